//! `workflow_started`: the documents that the process runs under, fixed by their digests.

use super::{Context, Kinds, Process, Started, optional_text};
use super::{proposal, replay};
use crate::bytes::Digest;
use crate::finding::{Claim, Code};
use crate::json::{self, Value};
use crate::record::Header;
use std::rc::Rc;

impl Process {
    pub(super) fn start(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) -> Option<()> {
        if self.started.is_some() || header.sequence != 1 {
            ctx.findings.find(Code::RecordMissing, header, "a second start: the process was started before");
            return Some(());
        }
        let mut started = Started {
            subject_ref: ctx.names.get(payload.text("subject_ref")?),
            definition: optional_text(payload, "definition")?.map(|name| ctx.names.get(name)),
            declaration_digest: Digest::parse(payload.text("declaration_digest")?)?,
            gate_spec_digest: Digest::parse(payload.text("gate_spec_digest")?)?,
            replaced: vec![],
        };
        self.rules = rules(payload)?;
        let stated = match payload.given("replaced") {
            None => vec![],
            Some(_) => payload.texts("replaced")?,
        };
        let initial_state = payload.text("initial_state")?;
        optional_text(payload, "reason")?;
        let labels = payload.texts("gate_spec_labels")?;
        self.state = Some(ctx.names.get(initial_state));
        self.read_documents(header, &started, ctx);
        self.check_definition(header, payload, &started, ctx);
        started.replaced = self.check_replaced(header, &started, stated, ctx);
        if let Some(declaration) = &self.declaration {
            if declaration.initial_state != initial_state {
                let expected = &declaration.initial_state;
                let detail = format!("started in `{initial_state}`, the declaration begins in `{expected}`");
                ctx.findings.find(Code::DocumentMismatch, header, detail);
            }
            let (mut stated, mut declared) = (labels, declaration.guards());
            stated.sort_unstable();
            declared.sort_unstable();
            if stated != declared {
                let detail =
                    format!("started with the guards [{}], declared are [{}]", stated.join(", "), declared.join(", "));
                ctx.findings.find(Code::DocumentMismatch, header, detail);
            }
        }
        self.started = Some(started);
        Some(())
    }

    /// A run's shell: its gates, under the definition's own declaration and gate_spec.
    pub(super) fn start_run(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) -> Option<()> {
        if header.sequence != 1 {
            return Some(());
        }
        let started = Started {
            subject_ref: ctx.names.get(payload.text("subject_ref")?),
            definition: Some(ctx.names.get(payload.text("definition")?)),
            declaration_digest: Digest::parse(payload.text("declaration_digest")?)?,
            gate_spec_digest: Digest::parse(payload.text("gate_spec_digest")?)?,
            replaced: vec![],
        };
        self.rules = rules(payload)?;
        self.state = Some(ctx.names.get("run"));
        self.read_documents(header, &started, ctx);
        self.check_definition(header, payload, &started, ctx);
        let published = started.definition.as_ref().and_then(|name| ctx.registry.definition(name, header.registry_seq));
        if let Some(published) = published {
            let document = payload.text("document_digest").and_then(Digest::parse);
            if published.document_digest != document || published.gate_spec_digest != started.gate_spec_digest {
                let detail = "the run was started under another document or gate_spec than was published";
                ctx.findings.find(Code::DocumentMismatch, header, detail);
            }
        }
        self.started = Some(started);
        Some(())
    }

    fn read_documents(&mut self, header: &Header, started: &Started, ctx: &mut Context<'_>) {
        self.declaration = ctx.documents.declaration(Some(started.declaration_digest));
        self.gate_spec = ctx.documents.gate_spec(Some(started.gate_spec_digest));
        let documents = [
            ("declaration", started.declaration_digest, self.declaration.is_some()),
            ("gate_spec", started.gate_spec_digest, self.gate_spec.is_some()),
        ];
        for (name, digest, known) in documents {
            ctx.findings.checked(Claim::DeclaredPath);
            if !known {
                let detail = format!("no {name} with the digest {digest} is in the bundle");
                self.find(Code::DocumentMismatch, header, Kinds::NONE, detail, ctx);
            }
        }
    }

    /// A start names other approvers only where the definition leaves them to it, never the starter unless it allows
    /// that, and says which it named. Answers the labels whose approvers are not the definition's.
    fn check_replaced(
        &self,
        header: &Header,
        started: &Started,
        mut stated: Vec<&str>,
        ctx: &mut Context<'_>,
    ) -> Vec<Rc<str>> {
        let definition =
            started.definition.as_ref().and_then(|name| ctx.registry.definition(name, header.registry_seq));
        let Some(definition) = definition else {
            if !stated.is_empty() {
                let detail = "says that approvers were replaced, and comes from no definition";
                ctx.findings.find(Code::DocumentMismatch, header, detail);
            }
            return vec![];
        };
        let same = definition.gate_spec_digest == started.gate_spec_digest;
        let published = ctx.documents.published(definition.gate_spec_digest);
        let Some(spec) = &self.gate_spec else { return vec![] };
        if self.rules < 2 {
            let differs: Vec<&str> = match &published {
                _ if same => vec![],
                Some(published) => published.replaced_in(spec),
                None => spec.0.keys().map(String::as_str).collect(),
            };
            if !same {
                let detail = "approvers were chosen by the initiator, when every start could do so";
                ctx.findings.note("approvers-chosen-at-start", Some(header.event_id), detail);
            }
            return differs.into_iter().map(Rc::from).collect();
        }
        ctx.findings.checked(Claim::ApprovalGated);
        let Some(published) = published else {
            let detail =
                format!("the gate_spec {} of the definition is not in the bundle", definition.gate_spec_digest);
            ctx.findings.find(Code::DocumentMismatch, header, detail);
            return vec![];
        };
        let replaced = published.replaced_in(spec);
        stated.sort_unstable();
        if stated != replaced {
            let detail = format!(
                "says that the approvers of [{}] were replaced; those of [{}] were",
                stated.join(", "),
                replaced.join(", ")
            );
            ctx.findings.find(Code::DocumentMismatch, header, json::shortened(&detail));
        }
        for label in &replaced {
            let (gate, entry) = (published.0.get(*label), spec.0.get(*label));
            let (Some(gate), Some(entry)) = (gate.filter(|gate| gate.replaceable), entry) else {
                let detail = format!("the approvers of `{label}` were replaced, and the definition fixes them");
                ctx.findings.find(Code::WrongApprover, header, json::shortened(&detail));
                continue;
            };
            if entry.scope != gate.scope {
                let detail = format!("the scope of `{label}` is not the definition's");
                ctx.findings.find(Code::WrongApprover, header, json::shortened(&detail));
            }
            if entry.delegable != gate.delegable {
                let detail =
                    format!("whether an approver of `{label}` may name a substitute is the definition's to say");
                ctx.findings.find(Code::WrongApprover, header, json::shortened(&detail));
            }
            if !gate.self_approval && entry.approvers.iter().any(|approver| **approver == *header.actor_ref) {
                let detail = format!("`{}` started the process and is an approver of `{label}`", header.actor_ref);
                ctx.findings.find(Code::WrongApprover, header, json::shortened(&detail));
            }
        }
        if !replaced.is_empty() {
            let detail = format!("the initiator named the approvers of {}", replaced.join(", "));
            ctx.findings.note("approvers-replaced", Some(header.event_id), json::shortened(&detail));
        }
        replaced.into_iter().map(Rc::from).collect()
    }

    /// A start may replace approvers of the definition, never its declaration.
    fn check_definition(&self, header: &Header, payload: &Value, started: &Started, ctx: &mut Context<'_>) {
        let Some(name) = &started.definition else { return };
        if [proposal::DEFINITION, replay::DEFINITION].contains(&&**name) && !self.is_run {
            return;
        }
        let Some(definition) = ctx.registry.definition(name, header.registry_seq) else {
            let detail = format!("the definition {name} was not published at registry record {}", header.registry_seq);
            return ctx.findings.find(Code::DocumentMismatch, header, detail);
        };
        // A child belongs to a run that goes on.
        let is_child = payload.given("parent_run_id").is_some();
        if let Some(record) = definition.retired_by(header.registry_seq).filter(|_| !is_child) {
            let detail = format!("the definition {name} was retired by registry record {record}");
            ctx.findings.find(Code::DocumentMismatch, header, detail);
        }
        if definition.declaration_digest != started.declaration_digest {
            let detail = format!(
                "the definition {name} has the declaration {}, the process was started with {}",
                definition.declaration_digest, started.declaration_digest
            );
            ctx.findings.find(Code::DocumentMismatch, header, detail);
        }
    }
}

/// The edition of the rules that the instance began under.
fn rules(payload: &Value) -> Option<i64> {
    match payload.given("rules") {
        None => Some(1),
        Some(value) => value.as_int().filter(|rules| *rules >= 1),
    }
}
