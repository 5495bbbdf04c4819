//! A proposal: a process under the built-in declaration below. Its records, gate, in-tray and evidence are those of any
//! process. What is proposed stands in the record of the start and of each edit, as text that the kernel does not read; an
//! approver is asked that text, so an approval is bound to exactly what was proposed.
//!
//! A proposal moves through the commands of this file only. The approval of its gate fires `approve`, a rejection `reject`,
//! both by the application actor and with the decision itself. So `merged` is reached from an approval and from nothing else.

use super::{Context, DefinitionRef, Event, EventBody, Gate, GateStatus, OpenGate, Process, Request};
use super::{built_in, moot, open_gate};
use crate::Digest;
use crate::declaration::Declaration;
use crate::gate_spec::{GateEntry, GateSpec, QuorumRule};
use crate::refusal::{Code, Refusal, require_optional_text, require_ref, require_text};
use crate::registry::{ActorKind, Registry, scopes};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// What proposals come from, in the place of a published definition: no document can have this name.
pub const PROPOSAL: &str = "countersign:proposal";
pub const PROPOSAL_VERSION: u32 = 1;
/// The guard of `approve`, and the label of the entry with which a definition says who approves its next version.
pub const PUBLISH: &str = "publish";
/// The action whose gate is the approval, and the state that it leaves.
pub const APPROVE: &str = "approve";
pub const REVIEW: &str = "review";
/// The kinds whose merge publishes a version; whoever proposed another kind applies it themselves.
pub const PUBLISHED_KINDS: &[&str] = &["machine", "process", "workflow"];

const DRAFT: &str = "draft";
const APPROVED: &str = "approved";
const EDIT: &str = "edit";
const COMMENT: &str = "comment";
const REJECT: &str = "reject";
const MERGE: &str = "merge";
const WITHDRAW: &str = "withdraw";

#[rustfmt::skip]
pub const TRANSITIONS: &[built_in::Row] = &[
    (DRAFT, EDIT, DRAFT, None),
    (DRAFT, COMMENT, DRAFT, None),
    (DRAFT, "submit", "submitted", None),
    (DRAFT, WITHDRAW, "withdrawn", None),
    ("submitted", EDIT, DRAFT, None),
    ("submitted", COMMENT, "submitted", None),
    ("submitted", REVIEW, REVIEW, None),
    ("submitted", WITHDRAW, "withdrawn", None),
    (REVIEW, EDIT, DRAFT, None),
    (REVIEW, COMMENT, REVIEW, None),
    (REVIEW, APPROVE, APPROVED, Some(PUBLISH)),
    (REVIEW, REJECT, "rejected", None),
    (REVIEW, WITHDRAW, "withdrawn", None),
    (APPROVED, EDIT, DRAFT, None),
    (APPROVED, COMMENT, APPROVED, None),
    (APPROVED, MERGE, "merged", None),
    (APPROVED, WITHDRAW, "withdrawn", None),
];
pub const STATES: &[&str] = &[DRAFT, "submitted", REVIEW, APPROVED, "rejected", "merged", "withdrawn"];
pub const TERMINAL: &[&str] = &["rejected", "merged", "withdrawn"];

/// The declaration that every proposal is started under.
pub fn proposal_declaration() -> &'static Arc<Declaration> {
    static DECLARATION: LazyLock<Arc<Declaration>> =
        LazyLock::new(|| built_in::declaration(STATES, TRANSITIONS, TERMINAL));
    &DECLARATION
}

/// What the record of a command says besides: a JSON object under this name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attachment {
    pub member: &'static str,
    pub text: Arc<str>,
    /// A document that the text names by its digest.
    pub document: Option<(Digest, Arc<str>)>,
}

/// Who proposes. A caller says no more than `kg_feedback` or `ai_agent`; the rest is the kind of their actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProposerClass {
    Human,
    Service,
    KgFeedback,
    AiAgent,
}

impl ProposerClass {
    pub const ALL: &'static [ProposerClass] =
        &[ProposerClass::Human, ProposerClass::Service, ProposerClass::KgFeedback, ProposerClass::AiAgent];

    pub const fn as_str(self) -> &'static str {
        match self {
            ProposerClass::Human => "human",
            ProposerClass::Service => "service",
            ProposerClass::KgFeedback => "kg_feedback",
            ProposerClass::AiAgent => "ai_agent",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|class| class.as_str() == text)
    }

    /// Whether it says on which evidence it proposes.
    pub const fn needs_evidence(self) -> bool {
        matches!(self, ProposerClass::KgFeedback | ProposerClass::AiAgent)
    }

    /// The class of this actor, who may state to be less than a person, and never more.
    pub fn of(registry: &Registry, actor_ref: &str, stated: Option<ProposerClass>) -> Result<Self, Refusal> {
        let own = match registry.actor(actor_ref).map(|actor| actor.kind) {
            Some(ActorKind::Human) => ProposerClass::Human,
            Some(ActorKind::Service) | None => ProposerClass::Service,
        };
        match stated {
            None => Ok(own),
            Some(stated) if stated == own || stated.needs_evidence() => Ok(stated),
            Some(stated) => {
                let detail = format!(
                    "`{actor_ref}` is registered as {}: it cannot propose as `{}`",
                    own.as_str(),
                    stated.as_str()
                );
                Err(Refusal::new(Code::InvalidRequest, detail).at("proposer_class"))
            }
        }
    }
}

/// What a proposal is about: its subject is `kind/target`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposalOf {
    pub kind: String,
    pub target: String,
    /// The version that it changes; 0 where there is none yet.
    pub base_version: u32,
    pub class: ProposerClass,
    pub has_evidence: bool,
    pub reason: String,
    /// What is proposed, as it is recorded and asked.
    pub content: Attachment,
    /// Who approves where the target does not say it.
    pub approvers: Option<GateEntry>,
}

#[derive(Clone, Debug)]
pub enum ProposalAct {
    Edit(Box<ProposalOf>),
    Submit,
    /// Asks the approvers this.
    Review(Request),
    Comment,
    Withdraw,
}

#[derive(Clone, Debug)]
pub struct MoveProposal {
    pub act: ProposalAct,
    pub reason: Option<String>,
    /// The number of its next firing when the caller read it, where what is asked follows from what was read.
    pub next: Option<u64>,
}

impl MoveProposal {
    pub const fn name(&self) -> &'static str {
        match self.act {
            ProposalAct::Edit(_) => "edit_proposal",
            ProposalAct::Submit => "submit_proposal",
            ProposalAct::Review(_) => "review_proposal",
            ProposalAct::Comment => "comment_proposal",
            ProposalAct::Withdraw => "withdraw_proposal",
        }
    }
}

impl Process {
    pub fn is_proposal(&self) -> bool {
        is_proposal(self.definition.as_ref())
    }

    /// The approval of what is proposed now: the gate that the last `approve` was fired with.
    pub fn proposal_approval(&self) -> Option<&Gate> {
        let gate = self.gate(REVIEW, APPROVE).filter(|_| [APPROVED, "merged"].contains(&&*self.current_state))?;
        (gate.fate == super::Fate::Consumed && gate.status() == GateStatus::Approved).then_some(gate)
    }
}

pub fn is_proposal(definition: Option<&DefinitionRef>) -> bool {
    definition.is_some_and(|of| of.name == PROPOSAL && of.version == PROPOSAL_VERSION)
}

pub fn propose(command: &ProposalOf, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    check(command, ctx)?;
    let entry = approvers(command, ctx.registry, ctx.actor_ref)?;
    let instance_id = ctx.ids.make();
    Ok(vec![ctx.by_caller(EventBody::WorkflowStarted {
        instance_id,
        definition: Some(DefinitionRef { name: PROPOSAL.to_owned(), version: PROPOSAL_VERSION }),
        subject_ref: subject(command),
        declaration: proposal_declaration().clone(),
        gate_spec: Arc::new(GateSpec(BTreeMap::from([(PUBLISH.to_owned(), entry)]))),
        replaced: vec![],
        reason: None,
        attachment: Some(command.content.clone()),
    })])
}

fn subject(command: &ProposalOf) -> String {
    format!("{}/{}", command.kind, command.target)
}

fn check(command: &ProposalOf, ctx: &Context<'_>) -> Result<(), Refusal> {
    require_ref("proposal_kind", &command.kind)?;
    if command.kind.contains('/') {
        let detail = "a `proposal_kind` is a name without `/`";
        return Err(Refusal::new(Code::InvalidRequest, detail).at("proposal_kind"));
    }
    require_ref("target", &command.target)?;
    require_ref("target", &subject(command))?;
    require_text("reason", &command.reason)?;
    ctx.require_scope(scopes::PROPOSALS_WRITE, None)?;
    ProposerClass::of(ctx.registry, ctx.actor_ref, Some(command.class))?;
    if command.class.needs_evidence() && !command.has_evidence {
        let detail = format!("a proposal of the class `{}` names its evidence", command.class.as_str());
        return Err(Refusal::new(Code::InvalidRequest, detail).at("evidence_ref"));
    }
    if PUBLISHED_KINDS.contains(&&*command.kind) {
        let newest = ctx.registry.definition(&command.target, None);
        if newest.is_some_and(|newest| newest.kind() != command.kind) {
            let detail = format!("`{}` is no {}", command.target, command.kind);
            return Err(Refusal::new(Code::Conflict, detail).at("target"));
        }
        if newest.map_or(0, |newest| newest.version) < command.base_version {
            let detail = format!("`{}` has no version {}", command.target, command.base_version);
            return Err(Refusal::new(Code::NotKnown, detail).at("base_version"));
        }
    }
    Ok(())
}

/// Who approves: whom the newest version names for its next one, else whom the deployment names; without the proposer,
/// unless the definition allows it.
fn approvers(command: &ProposalOf, registry: &Registry, proposer: &str) -> Result<GateEntry, Refusal> {
    let published = match PUBLISHED_KINDS.contains(&&*command.kind) {
        true => registry.definition(&command.target, None).and_then(|newest| newest.publish.as_ref()),
        false => None,
    };
    let (entry, may_be_proposer) = match published {
        Some(gate) => (gate.preset(), gate.self_approval() == Some(true)),
        None => (command.approvers.as_ref(), false),
    };
    let nobody = |why: &str| Refusal::new(Code::GateNotAvailable, format!("nobody could approve this: {why}"));
    let entry = entry.ok_or_else(|| {
        nobody("give the definition an entry `publish` in its gate_spec, or set `[governance.proposals] approvers`")
    })?;
    match may_be_proposer {
        true => Ok(entry.clone()),
        false => without(entry, proposer).ok_or_else(|| nobody("who proposes does not approve")),
    }
}

/// The same approvers but for this one; `None` where the rest cannot approve.
pub(super) fn without(entry: &GateEntry, actor_ref: &str) -> Option<GateEntry> {
    let rest: Vec<String> = entry.approvers().iter().filter(|approver| **approver != actor_ref).cloned().collect();
    match entry {
        GateEntry::Single { .. } => (!rest.is_empty()).then(|| entry.clone()),
        GateEntry::Quorum { rule, scope, delegable, .. } => {
            let count = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            let enough = match rule {
                QuorumRule::MOfN { m } => *m <= count,
                QuorumRule::AllOfN | QuorumRule::OneOfN => count > 0,
            };
            let (rule, scope, delegable) = (*rule, scope.clone(), *delegable);
            enough.then_some(GateEntry::Quorum { approvers: rest, rule, scope, delegable })
        }
    }
}

pub fn decide(process: Option<&Process>, command: &MoveProposal, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    match command.act {
        ProposalAct::Comment => require_text("text", command.reason.as_deref().unwrap_or_default())?,
        _ => require_optional_text("reason", command.reason.as_deref())?,
    }
    let process = known(process, ctx)?;
    if command.next.is_some_and(|next| next != process.next_sequence_number) {
        return Err(moved());
    }
    let reason = command.reason.clone();
    match &command.act {
        ProposalAct::Edit(content) => edit(process, content, ctx),
        ProposalAct::Submit => {
            require_proposer(process, ctx)?;
            fire(process, "submit", reason, None, ctx)
        }
        ProposalAct::Review(request) => review(process, request, reason, ctx),
        ProposalAct::Comment => fire(process, COMMENT, reason, None, ctx),
        ProposalAct::Withdraw => {
            require_proposer(process, ctx)?;
            fire(process, WITHDRAW, reason, None, ctx)
        }
    }
}

/// What was read of the proposal is no longer so.
fn moved() -> Refusal {
    Refusal::new(Code::Conflict, "the proposal has moved on: read it again").at("next")
}

/// Permission comes before existence.
fn known<'p>(process: Option<&'p Process>, ctx: &Context<'_>) -> Result<&'p Process, Refusal> {
    ctx.require_scope(scopes::PROPOSALS_WRITE, None)?;
    let proposal = process.filter(|process| process.is_proposal());
    proposal.ok_or_else(|| Refusal::new(Code::NotKnown, "there is no proposal with this id").at("id"))
}

/// What is approved is the proposer's: nobody else changes it.
fn require_proposer(process: &Process, ctx: &Context<'_>) -> Result<(), Refusal> {
    if process.initiator_ref == ctx.actor_ref {
        return Ok(());
    }
    let detail = format!("only `{}`, who proposed it, may do this; you are `{}`", process.initiator_ref, ctx.actor_ref);
    Err(Refusal::new(Code::Unauthorized, detail))
}

/// Back to a draft, whatever was asked or approved before.
fn edit(process: &Process, content: &ProposalOf, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    require_proposer(process, ctx)?;
    check(content, ctx)?;
    if subject(content) != process.subject_ref {
        let detail = format!("this proposal is about `{}`; for another target make another one", process.subject_ref);
        return Err(Refusal::new(Code::Conflict, detail).at("target"));
    }
    let entry = approvers(content, ctx.registry, ctx.actor_ref)?;
    if process.gate_spec.0.get(PUBLISH) != Some(&entry) {
        let detail = "others approve it now than when the proposal was made: withdraw it and make another one";
        return Err(Refusal::new(Code::Conflict, detail).at("base_version"));
    }
    fire(process, EDIT, None, Some(content.content.clone()), ctx)
}

fn review(
    process: &Process,
    request: &Request,
    reason: Option<String>,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    // A gate that was withdrawn is opened again.
    let mut events = match process.current_state == REVIEW {
        true => vec![],
        false => fire(process, REVIEW, reason.clone(), None, ctx)?,
    };
    let reviewed = events.iter().fold(process.clone(), |process, event| process.evolve(event));
    let open = OpenGate { action: APPROVE.to_owned(), reason, request: None };
    events.extend(open_gate::open(&reviewed, &open, Some(request.clone()), ctx)?);
    Ok(events)
}

/// One of the unguarded transitions of the declaration.
fn fire(
    process: &Process,
    action: &str,
    reason: Option<String>,
    attachment: Option<Attachment>,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let transition = crate::machine::fire(&process.declaration, &process.current_state, action, None)
        .map_err(|refusal| super::fire_transition::explain(refusal, process, None, action))?;
    let transition_id = ctx.ids.make();
    let mut events = vec![ctx.by_caller(EventBody::TransitionFired {
        transition_id,
        sequence_number: process.next_sequence_number,
        from_state: transition.from_state.clone(),
        action: action.to_owned(),
        to_state: transition.to_state.clone(),
        gate: None,
        reason,
        effects: vec![],
        attachment,
    })];
    if transition.from_state != transition.to_state {
        events.extend(moot::leave_state(process, None, ctx));
    }
    Ok(events)
}

/// What the engine does once its gate is decided: an approval approves the proposal, a rejection rejects it.
pub(super) fn follow(process: &Process, decided: &[Event], ctx: &mut Context<'_>) -> Vec<Event> {
    let after = decided.iter().fold(process.clone(), |process, event| process.evolve(event));
    if after.current_state != REVIEW {
        return vec![];
    }
    let Some(gate) = after.gate(REVIEW, APPROVE) else { return vec![] };
    let (action, spent) = match gate.status() {
        GateStatus::Approved if gate.is_cleared() => (APPROVE, Some(gate)),
        GateStatus::Rejected => (REJECT, None),
        _ => return vec![],
    };
    built_in::fire(&after, action, spent, ctx)
}

/// The merge of an approved proposal. `class` and `content` are those of what was approved.
pub fn merge(
    process: Option<&Process>,
    class: ProposerClass,
    reason: Option<String>,
    attachment: Attachment,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let process = known(process, ctx)?;
    let is_person = ctx.registry.actor(ctx.actor_ref).is_some_and(|actor| actor.kind == ActorKind::Human);
    let is_own = process.initiator_ref == ctx.actor_ref;
    if !is_person || (is_own && class != ProposerClass::Human) {
        let detail = match is_own {
            true => format!("a proposer of the class `{}` never merges what it proposed", class.as_str()),
            false => "a person merges; this actor is a service".to_owned(),
        };
        return Err(Refusal::new(Code::Unauthorized, detail));
    }
    let events = fire(process, MERGE, reason, Some(attachment), ctx)?;
    match process.proposal_approval() {
        Some(_) => Ok(events),
        None => Err(Refusal::new(Code::GateNotCleared, "this proposal has no approval")),
    }
}
