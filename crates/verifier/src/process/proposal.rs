//! Proposals (`spec/proposal.md`): what was merged is what was approved, by whom the definition names.

use super::document::{GateEntry, PublishedGate};
use super::gate::Fate;
use super::quorum::State;
use super::{Context, Kinds, Process};
use crate::bytes::Id;
use crate::finding::{Claim, Code};
use crate::form::{self, Form, Kind, maybe, must};
use crate::json::{self, Value};
use crate::record::{Action, Header, Record};
use std::collections::HashMap;

/// What a proposal says it comes from.
pub const DEFINITION: &str = "countersign:proposal@1";
/// SHA-256 of the declaration that every proposal runs under.
const DECLARATION: &str = "fdea317583d7939f3ae337ee0fa773c754e0d6c6c88cfa8c299d90e2b918083f";
/// The kinds whose merge publishes a version.
const PUBLISHED: [&str; 3] = ["machine", "process", "workflow"];
/// The guard, and the label of who approves a definition's next version.
const PUBLISH: &str = "publish";

const CONTENT: Form = &[
    must("proposal_kind", Kind::Text),
    must("target", Kind::Text),
    must("base_version", Kind::Int),
    maybe("digest", Kind::Hex),
    must("proposer_class", Kind::OneOf(&["human", "service", "kg_feedback", "ai_agent"])),
    maybe("evidence_ref", Kind::Text),
    must("affected", Kind::Texts),
    maybe("proposed_action", Kind::Any),
    must("reason", Kind::Text),
];

/// What is known of a proposal besides its process.
#[derive(Debug, Default)]
pub struct Proposal {
    /// What is proposed now; None where a purged record hides it.
    content: Option<Value>,
    /// What each gate asks.
    asked: HashMap<Id, Value>,
    /// The approval that was followed last, and what it is of.
    approval: Option<Id>,
    approved: Option<Value>,
    /// The version that it was merged as, `name@version`.
    merged: Option<String>,
}

impl Process {
    pub fn is_proposal(&self) -> bool {
        self.started.as_ref().is_some_and(|started| started.definition.as_deref() == Some(DEFINITION))
    }

    /// After the process itself took the record.
    pub(super) fn take_proposal(&mut self, record: &Record, ctx: &mut Context<'_>) {
        if !self.is_proposal() {
            return;
        }
        let header = &record.header;
        let mut proposal = std::mem::take(&mut self.proposal);
        match (header.action, record.payload()) {
            (Action::WorkflowStarted, Some(payload)) => self.begin_proposal(&mut proposal, header, payload, ctx),
            (Action::GateOpened, Some(payload)) => ask(&mut proposal, header, payload, ctx),
            (Action::TransitionFired, Some(payload)) => self.move_proposal(&mut proposal, header, payload, ctx),
            // It may have been an edit.
            (Action::TransitionFired, None) => proposal.content = None,
            _ => {}
        }
        self.proposal = proposal;
    }

    fn begin_proposal(&self, proposal: &mut Proposal, header: &Header, payload: &Value, ctx: &mut Context<'_>) {
        if payload.text("declaration_digest") != Some(DECLARATION) {
            let detail = "a proposal under another declaration than that of proposals";
            ctx.findings.find(Code::DocumentMismatch, header, detail);
        }
        self.propose(proposal, header, payload, ctx);
        let Some(content) = &proposal.content else { return };
        let subject = format!("{}/{}", text(content, "proposal_kind"), text(content, "target"));
        if payload.text("subject_ref") != Some(&subject) {
            ctx.findings.find(Code::DocumentMismatch, header, "the subject is not the kind and the target");
        }
    }

    fn propose(&self, proposal: &mut Proposal, header: &Header, payload: &Value, ctx: &mut Context<'_>) {
        let before = proposal.content.take();
        let content = payload.get("proposal").unwrap_or(&Value::Null);
        if let Err(fault) = form::check_exactly(content, CONTENT) {
            ctx.findings.find(Code::BundleForm, header, format!("proposal: {}", fault.detail));
            return;
        }
        let kept = ["proposal_kind", "target", "proposer_class"];
        if before.is_some_and(|before| kept.iter().any(|name| before.text(name) != content.text(name))) {
            ctx.findings.find(Code::DocumentMismatch, header, "an edit changes kind, target or class");
        }
        let service = ctx.registry.is_service(&header.actor_ref);
        let fits = match content.text("proposer_class") {
            Some("human") => !service,
            Some("service") => service,
            _ => content.given("evidence_ref").is_some(),
        };
        if !fits {
            let class = text(content, "proposer_class");
            let detail = format!("`{}` proposed as {class}, which it is not, or without evidence", header.actor_ref);
            ctx.findings.find(Code::WrongApprover, header, detail);
        }
        self.check_proposed_approvers(header, content, ctx);
        proposal.content = Some(content.clone());
    }

    /// Whom the newest version names for its next one, without the proposer unless it allows that.
    fn check_proposed_approvers(&self, header: &Header, content: &Value, ctx: &mut Context<'_>) {
        ctx.findings.checked(Claim::ApprovalGated);
        let Some(entry) = self.gate_spec.as_ref().and_then(|spec| spec.0.get(PUBLISH)) else { return };
        let published = PUBLISHED.contains(&text(content, "proposal_kind"));
        let named = match published {
            true => ctx.registry.publisher(text(content, "target"), header.registry_seq),
            false => None,
        };
        let own = named.is_some_and(|gate| gate.self_approval);
        let proposer = &*header.actor_ref;
        if !own && entry.approvers.iter().any(|approver| approver == proposer) {
            ctx.findings.find(Code::WrongApprover, header, format!("`{proposer}` proposes, and is an approver"));
        }
        let Some(named) = named else { return };
        if due(named, proposer).as_ref() != Some(entry) {
            let detail = "the approvers are not those that the newest version names under `publish`";
            ctx.findings.find(Code::WrongApprover, header, detail);
        }
    }

    fn move_proposal(&self, proposal: &mut Proposal, header: &Header, payload: &Value, ctx: &mut Context<'_>) {
        let action = text(payload, "action");
        let proposer = self.begun.as_ref().map(|begun| begun.initiator.clone());
        let is_own = proposer.as_deref() == Some(&*header.actor_ref);
        if matches!(action, "edit" | "submit" | "withdraw") && !is_own {
            let detail = format!("{action} by `{}`, who did not propose it", header.actor_ref);
            ctx.findings.find(Code::WrongApprover, header, detail);
        }
        let engine = ctx.registry.is_application_actor(&header.actor_ref, header.registry_seq);
        if matches!(action, "approve" | "reject") && !engine {
            let detail = format!("{action} by `{}`; the engine follows the gate", header.actor_ref);
            ctx.findings.find(Code::WrongApprover, header, detail);
        }
        match action {
            "edit" => {
                (proposal.approval, proposal.approved) = (None, None);
                self.propose(proposal, header, payload, ctx);
            }
            "approve" => {
                proposal.approval = gate_of(payload);
                proposal.approved = proposal.approval.and_then(|gate| proposal.asked.get(&gate).cloned());
            }
            "reject" if !self.is_rejected() => {
                let detail = "rejected, and its gate was not";
                self.find(Code::GateNotApproved, header, Kinds::DECIDED.and(Kinds::OPENED), detail.to_owned(), ctx);
            }
            "merge" => self.merge(proposal, header, payload, is_own, ctx),
            _ => {}
        }
    }

    /// The gate of its approval was rejected.
    fn is_rejected(&self) -> bool {
        let gate = self.gates.bound(&"review".into(), &"approve".into());
        gate.is_some_and(|gate| gate.status() == State::Rejected && gate.fate != Fate::Consumed)
    }

    fn merge(&self, proposal: &mut Proposal, header: &Header, payload: &Value, is_own: bool, ctx: &mut Context<'_>) {
        ctx.findings.checked(Claim::ApprovalGated);
        let hidden = Kinds::FIRED.and(Kinds::OPENED).and(Kinds::STARTED);
        let mut problem = |code, detail: &str| self.find(code, header, hidden, detail.to_owned(), ctx);
        if proposal.approval.is_none() {
            problem(Code::GateNotApproved, "merged without an approval");
        }
        let merged = payload.get("merged").filter(|merged| merged.members().is_some());
        let (Some(content), Some(merged)) = (proposal.approved.clone(), merged) else {
            return problem(Code::BindingInvalid, "the merge does not say what it merged");
        };
        if proposal.content.as_ref().is_some_and(|proposed| !same(proposed, &content)) {
            problem(Code::BindingInvalid, "what was approved is not what is proposed");
        }
        if ctx.registry.is_service(&header.actor_ref) {
            let detail = format!("`{}` merged, and is no person", header.actor_ref);
            ctx.findings.find(Code::WrongApprover, header, detail);
        }
        if is_own && content.text("proposer_class") != Some("human") {
            let detail = format!("`{}` merged what it did not propose as a person", header.actor_ref);
            ctx.findings.find(Code::WrongApprover, header, detail);
        }
        if !PUBLISHED.contains(&text(&content, "proposal_kind")) {
            if text(merged, "evidence_ref").is_empty() {
                let detail = "merged without evidence that it was applied";
                ctx.findings.find(Code::BindingInvalid, header, detail);
            }
            return;
        }
        let next = content.int("base_version").map(|base| base.saturating_add(1));
        let same_version = merged.text("name") == content.text("target") && merged.int("version") == next;
        if !same_version || merged.text("digest") != content.text("digest") {
            ctx.findings.find(Code::BindingInvalid, header, "the version that was merged is not what was approved");
        }
        let name = format!("{}@{}", text(merged, "name"), merged.int("version").unwrap_or_default());
        check_version(&name, proposal, &content, header, ctx);
        proposal.merged = Some(name);
    }

    /// After the last record: a version that names this proposal was merged by it.
    pub(super) fn finish_proposal(&self, ctx: &mut Context<'_>) {
        if !self.is_proposal() || self.purged.meets(Kinds::FIRED) {
            return;
        }
        for (name, sequence) in ctx.registry.merges_of(self.instance_id) {
            if self.proposal.merged.as_deref() != Some(name)
                && let Some(last) = &self.last
            {
                let detail =
                    format!("registry record {sequence} publishes {name} from this proposal, which did not merge it");
                ctx.findings.find(Code::GateNotApproved, last, detail);
            }
        }
    }
}

/// What the registry says of the version that a merge names.
fn check_version(name: &str, proposal: &Proposal, content: &Value, header: &Header, ctx: &mut Context<'_>) {
    let Some(published) = ctx.registry.definition(name, header.registry_seq) else {
        let detail = format!("merged as {}, which no record publishes", json::shortened(name));
        return ctx.findings.find(Code::RecordMissing, header, detail);
    };
    let merged =
        published.merged.filter(|(instance, gate)| *instance == header.instance_id && Some(*gate) == proposal.approval);
    let together = (&*published.by, published.at_us, published.published)
        == (&*header.actor_ref, header.recorded_at_us, header.registry_seq);
    let bytes = Some(published.digest.to_string()) == content.text("digest").map(str::to_owned);
    if merged.is_none() {
        let detail = format!("{name} does not name this proposal and its approval");
        ctx.findings.find(Code::GateNotApproved, header, detail);
    }
    if !bytes {
        ctx.findings.find(Code::BindingInvalid, header, format!("{name} has other bytes than were approved"));
    }
    if !together {
        ctx.findings.find(Code::RecordMissing, header, format!("{name} was not published with the merge"));
    }
}

fn ask(proposal: &mut Proposal, header: &Header, payload: &Value, ctx: &mut Context<'_>) {
    let asked = payload.get("request").cloned().unwrap_or(Value::Null);
    if proposal.content.as_ref().is_some_and(|content| !same(content, &asked)) {
        let detail = "the approvers are asked something else than what is proposed";
        ctx.findings.find(Code::BindingInvalid, header, detail);
    }
    proposal.asked.extend(gate_of(payload).map(|gate| (gate, asked)));
}

fn gate_of(payload: &Value) -> Option<Id> {
    payload.text("chain_id").or(payload.text("step_id")).and_then(Id::parse)
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.text(name).unwrap_or_default()
}

/// Who approves what this actor proposes.
fn due(named: &PublishedGate, proposer: &str) -> Option<GateEntry> {
    let mut entry = named.preset.clone()?;
    if !named.self_approval && entry.rule.is_some() {
        entry.approvers.retain(|approver| approver != proposer);
    }
    Some(entry)
}

/// Equal but for the order of members.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(members), Value::Object(others)) => {
            members.len() == others.len()
                && members.iter().all(|(name, value)| b.get(name).is_some_and(|other| same(value, other)))
        }
        (Value::List(items), Value::List(others)) => {
            items.len() == others.len() && items.iter().zip(others).all(|(a, b)| same(a, b))
        }
        _ => a == b,
    }
}
