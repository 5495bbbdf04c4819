//! `workflow_started`: the documents that the process runs under, fixed by their digests.

use super::{Context, Kinds, Process, Started, optional_text};
use crate::bytes::Digest;
use crate::finding::{Claim, Code};
use crate::json::Value;
use crate::record::Header;

impl Process {
    pub(super) fn start(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) -> Option<()> {
        if self.started.is_some() || header.sequence != 1 {
            ctx.findings.find(Code::RecordMissing, header, "a second start: the process was started before");
            return Some(());
        }
        let started = Started {
            subject_ref: ctx.names.get(payload.text("subject_ref")?),
            definition: optional_text(payload, "definition")?.map(|name| ctx.names.get(name)),
            declaration_digest: Digest::parse(payload.text("declaration_digest")?)?,
            gate_spec_digest: Digest::parse(payload.text("gate_spec_digest")?)?,
        };
        let initial_state = payload.text("initial_state")?;
        optional_text(payload, "reason")?;
        let labels = payload.texts("gate_spec_labels")?;
        self.state = Some(ctx.names.get(initial_state));
        self.read_documents(header, &started, ctx);
        self.check_definition(header, &started, ctx);
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
        };
        self.state = Some(ctx.names.get("run"));
        self.read_documents(header, &started, ctx);
        self.check_definition(header, &started, ctx);
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

    /// A start may replace approvers of the definition, never its declaration.
    fn check_definition(&self, header: &Header, started: &Started, ctx: &mut Context<'_>) {
        let Some(name) = &started.definition else { return };
        let Some(definition) = ctx.registry.definition(name, header.registry_seq) else {
            let detail = format!("the definition {name} was not published at registry record {}", header.registry_seq);
            return ctx.findings.find(Code::DocumentMismatch, header, detail);
        };
        if definition.declaration_digest != started.declaration_digest {
            let detail = format!(
                "the definition {name} has the declaration {}, the process was started with {}",
                definition.declaration_digest, started.declaration_digest
            );
            ctx.findings.find(Code::DocumentMismatch, header, detail);
        }
    }
}
