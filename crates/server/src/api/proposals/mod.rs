//! Proposals: changes that take effect with their approval. What they may do is the engine's to say; here the request is made
//! into what is recorded, and what was proposed is read back from the records.

pub mod view;

use super::auth::Caller;
use super::body::{Address, Posted, Sent};
use super::openapi::Refused;
use super::{App, Done, Problem, mismatched};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_definition::Definition;
use countersign_engine::proposal::Content;
use countersign_engine::run::payload::is_told_in_full;
use countersign_engine::{Command, Engine, MergeCall, Outcome, Target};
use countersign_kernel::InstanceId;
use countersign_kernel::process::{self, ProposalAct, ProposalOf, ProposerClass};
use countersign_kernel::refusal::{Code, Refusal, require_present, require_text};
use countersign_kernel::registry::{PublishDefinition, scopes};
use countersign_ledger::sha256;
use std::sync::Arc;
use view::Read;

/// How often a command is made again because the proposal moved on while it was read.
const ATTEMPTS: usize = 5;

/// Propose a change of a definition, or of anything else. It is a draft until it is submitted. Needs `proposals:write`.
#[utoipa::path(post, path = "/v1/proposals", tag = "proposals", request_body = wire::NewProposal,
    responses((status = 201, body = wire::ProposalMade), Refused))]
pub async fn make(
    State(app): State<App>,
    caller: Caller,
    posted: Posted<wire::NewProposal>,
) -> Done<wire::ProposalMade> {
    let engine = app.engine()?;
    let wire::NewProposal {
        proposal_kind,
        target,
        base_version,
        document,
        proposed_action,
        evidence_ref,
        affected,
        reason,
        proposer_class,
    } = posted.body;
    engine.require_scope(&caller.actor_ref, scopes::PROPOSALS_WRITE).await?;
    let stated = proposer_class.map(|text| class(&text)).transpose()?;
    let class = ProposerClass::of(&engine.registry(), &caller.actor_ref, stated)?;
    let edit = wire::EditProposal { base_version, document, proposed_action, evidence_ref, affected, reason };
    let command = process::Command::Propose(Box::new(proposed(&engine, proposal_kind, target, class, edit)?));
    let command = Command::Process { target: Target::New, command };
    match engine.execute(caller.call(command, posted.sent)?).await? {
        Outcome::Started { instance_id } => {
            let state = process::proposal_declaration().initial_state.clone();
            Ok((StatusCode::CREATED, Json(wire::ProposalMade { proposal_id: instance_id, state })))
        }
        outcome => Err(mismatched(&outcome)),
    }
}

fn class(text: &str) -> Result<ProposerClass, Refusal> {
    ProposerClass::parse(text).ok_or_else(|| {
        let known: Vec<&str> = ProposerClass::ALL.iter().map(|class| class.as_str()).collect();
        let detail = format!("a `proposer_class` is one of {}", known.join(", "));
        Refusal::new(Code::InvalidRequest, detail).at("proposer_class")
    })
}

/// What is proposed, as the kernel decides on it and as it is recorded.
fn proposed(
    engine: &Engine,
    kind: String,
    target: String,
    class: ProposerClass,
    edit: wire::EditProposal,
) -> Result<ProposalOf, Refusal> {
    let refuse = |field: &str, detail: String| Err(Refusal::new(Code::InvalidRequest, detail).at(field));
    let wire::EditProposal { base_version, document, proposed_action, evidence_ref, affected, reason } = edit;
    require_text("proposal_kind", &kind)?;
    require_text("target", &target)?;
    let is_of_definition = process::PUBLISHED_KINDS.contains(&&*kind);
    if is_of_definition || document.is_some() {
        require_present("document", document.as_deref())?;
    }
    if !is_of_definition && proposed_action.is_none() {
        return refuse("proposed_action", format!("a proposal of the kind `{kind}` says what is to be done"));
    }
    if let Some(evidence_ref) = &evidence_ref {
        require_text("evidence_ref", evidence_ref)?;
    }
    for (at, what) in affected.iter().enumerate() {
        require_text(&format!("affected[{at}]"), what)?;
    }
    let content = Content {
        proposal_kind: kind.clone(),
        target: target.clone(),
        base_version,
        digest: document.as_ref().map(|document| sha256(&[document.as_bytes()]).to_string()),
        proposer_class: class.as_str().to_owned(),
        evidence_ref,
        affected,
        proposed_action,
        reason: reason.clone(),
    };
    if !is_told_in_full(&content.text()?) {
        let detail = "this is more than a record has room for: put a link in its place".to_owned();
        return refuse(if content.proposed_action.is_some() { "proposed_action" } else { "reason" }, detail);
    }
    Ok(ProposalOf {
        kind,
        target,
        base_version,
        class,
        has_evidence: content.evidence_ref.is_some(),
        reason,
        content: content.attachment(document.map(Arc::from))?,
        approvers: engine.proposal_approvers().cloned(),
    })
}

/// Replace what is proposed: it is a draft again, and every approval of what it was counts no more. Kind and target stay. Of
/// the proposer alone. Needs `proposals:write`.
#[utoipa::path(put, path = "/v1/proposals/{id}", tag = "proposals", params(("id" = String, Path)),
    request_body = wire::EditProposal, responses((status = 200, body = wire::ProposalMoved), Refused))]
pub async fn edit(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::EditProposal>,
) -> Done<wire::ProposalMoved> {
    let engine = app.engine()?;
    let known = writable(&engine, &caller, &address).await?;
    let class = known.content()?.class()?;
    let (kind, target) = known.subject();
    let content = proposed(&engine, kind.to_owned(), target.to_owned(), class, posted.body)?;
    let act = ProposalAct::Edit(Box::new(content));
    moved(&engine, caller, &known, process::MoveProposal { act, reason: None, next: None }, posted.sent).await
}

/// Submit a draft for review. A definition's document must be one that could be published. Of the proposer alone. Needs
/// `proposals:write`.
#[utoipa::path(post, path = "/v1/proposals/{id}/submit", tag = "proposals", params(("id" = String, Path)),
    request_body = wire::MoveProposal, responses((status = 200, body = wire::ProposalMoved), Refused))]
pub async fn submit(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::MoveProposal>,
) -> Done<wire::ProposalMoved> {
    following(&app, caller, &address, posted, Follows::Submit).await
}

/// Begin the review of a submitted proposal: its approvers are asked for exactly what is proposed, and decide in their
/// in-trays. The last approval that is needed approves the proposal, a rejection rejects it. Needs `proposals:write`.
#[utoipa::path(post, path = "/v1/proposals/{id}/review", tag = "proposals", params(("id" = String, Path)),
    request_body = wire::MoveProposal, responses((status = 200, body = wire::ProposalMoved), Refused))]
pub async fn review(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::MoveProposal>,
) -> Done<wire::ProposalMoved> {
    following(&app, caller, &address, posted, Follows::Review).await
}

/// Withdraw a proposal that was not merged. Of the proposer alone. Needs `proposals:write`.
#[utoipa::path(post, path = "/v1/proposals/{id}/withdraw", tag = "proposals", params(("id" = String, Path)),
    request_body = wire::MoveProposal, responses((status = 200, body = wire::ProposalMoved), Refused))]
pub async fn withdraw(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::MoveProposal>,
) -> Done<wire::ProposalMoved> {
    let engine = app.engine()?;
    let known = writable(&engine, &caller, &address).await?;
    let command = process::MoveProposal { act: ProposalAct::Withdraw, reason: posted.body.reason, next: None };
    moved(&engine, caller, &known, command, posted.sent).await
}

/// Comment on a proposal that is open. Needs `proposals:write`.
#[utoipa::path(post, path = "/v1/proposals/{id}/comments", tag = "proposals", params(("id" = String, Path)),
    request_body = wire::CommentOnProposal, responses((status = 200, body = wire::ProposalMoved), Refused))]
pub async fn comment(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::CommentOnProposal>,
) -> Done<wire::ProposalMoved> {
    let engine = app.engine()?;
    let known = writable(&engine, &caller, &address).await?;
    let command = process::MoveProposal { act: ProposalAct::Comment, reason: Some(posted.body.text), next: None };
    moved(&engine, caller, &known, command, posted.sent).await
}

/// Merge an approved proposal. For a definition, exactly the approved document becomes its next version, in the same
/// transaction, if the newest version still is the base; else `conflict`: change the proposal to the new base. For a kind of
/// your own, say where the evidence is that it was applied. A person merges, never the proposer where that is no person.
/// Merged again, it gives the same answer. Needs `proposals:write`, for a definition what publishing needs too.
#[utoipa::path(post, path = "/v1/proposals/{id}/merge", tag = "proposals", params(("id" = String, Path)),
    request_body = wire::MergeProposal, responses((status = 200, body = wire::ProposalMerged), Refused))]
pub async fn merge(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::MergeProposal>,
) -> Done<wire::ProposalMerged> {
    let engine = app.engine()?;
    let wire::MergeProposal { reason, evidence_ref } = posted.body;
    let known = writable(&engine, &caller, &address).await?;
    let refuse = |detail: &str| Err(Problem::invalid_request(detail).at("evidence_ref"));
    match (known.is_of_definition(), &evidence_ref) {
        (true, Some(_)) => return refuse("the merge publishes the definition: there is nothing else to show"),
        (false, None) => return refuse("say where the evidence is that this was applied"),
        (true, None) => {}
        (false, Some(text)) => require_text("evidence_ref", text)?,
    }
    let publish = match known.is_of_definition() && known.state() == "approved" {
        true => Some(publishable(&engine, &known).await?),
        false => None,
    };
    let prepared = publish.as_ref().and_then(|publish| publish.workflow.as_ref()?.document.clone());
    let call = MergeCall { proposal: known.id(), publish, evidence_ref, reason };
    match engine.execute(caller.call(Command::Merge(Box::new(call)), posted.sent)?).await? {
        Outcome::Merged { name, version, digest, created } => {
            if let Some(document) = prepared.filter(|_| created) {
                engine.prepare(document);
            }
            let state = "merged".to_owned();
            Ok((StatusCode::OK, Json(wire::ProposalMerged { state, name, version, digest })))
        }
        outcome => Err(mismatched(&outcome)),
    }
}

/// The proposal of the address. Permission comes before existence, and before what is wrong with the request.
async fn writable(engine: &Engine, caller: &Caller, address: &Address) -> Result<Read, Problem> {
    engine.require_scope(&caller.actor_ref, scopes::PROPOSALS_WRITE).await?;
    view::found(engine, caller, address).await
}

/// The proposed document as the command that publishes it, or why it cannot be.
async fn publishable(engine: &Arc<Engine>, known: &Read) -> Result<PublishDefinition, Problem> {
    let document = known.document(engine).await?;
    let (bytes, checked) = super::definitions::checked(engine, document.as_bytes().to_vec()).await?;
    let definition: Definition = checked.map_err(super::definitions::invalid_definition)?;
    let source = String::from_utf8(bytes).map_err(|_| Problem::invalid_request("the document is not UTF-8"))?;
    let publish = definition.published_as(source, |bytes| sha256(&[bytes]));
    let (kind, target) = known.subject();
    let given = match (&publish.workflow, &publish.machine) {
        (Some(_), _) => "workflow",
        (None, Some(_)) => "machine",
        (None, None) => "process",
    };
    if (given, publish.name.as_str()) != (kind, target) {
        let detail =
            format!("the document is the {given} `{}`; the proposal is about the {kind} `{target}`", publish.name);
        return Err(Refusal::new(Code::InvalidDefinition, detail).at("document").into());
    }
    Ok(publish)
}

/// What follows from what was read of the proposal.
#[derive(Clone, Copy)]
enum Follows {
    Submit,
    Review,
}

impl Follows {
    async fn command(
        self,
        engine: &Arc<Engine>,
        known: &Read,
        reason: Option<String>,
    ) -> Result<process::MoveProposal, Problem> {
        let act = match self {
            Follows::Submit => {
                if known.is_of_definition() && known.state() == "draft" {
                    publishable(engine, known).await?;
                }
                ProposalAct::Submit
            }
            Follows::Review => ProposalAct::Review(known.content()?.request()?),
        };
        Ok(process::MoveProposal { act, reason, next: Some(known.next()) })
    }
}

/// If the proposal moved on while it was read, it is read again.
async fn following(
    app: &App,
    caller: Caller,
    address: &Address,
    posted: Posted<wire::MoveProposal>,
    follows: Follows,
) -> Done<wire::ProposalMoved> {
    let engine = app.engine()?;
    let Posted { body: wire::MoveProposal { reason }, sent, .. } = posted;
    let mut known = writable(&engine, &caller, address).await?;
    let made = follows.command(&engine, &known, reason.clone()).await?;
    let actor_ref = caller.actor_ref.clone();
    let mut call = caller.call(on(&known, made), sent)?;
    for _ in 1..ATTEMPTS {
        match engine.execute(call.clone()).await {
            Err(refusal) if refusal.code == Code::Conflict && refusal.field.as_deref() == Some("next") => {
                known = view::read(&engine, &actor_ref, known.id()).await?;
                call.command = on(&known, follows.command(&engine, &known, reason.clone()).await?);
            }
            answer => return answered(answer?),
        }
    }
    answered(engine.execute(call).await?)
}

fn on(known: &Read, command: process::MoveProposal) -> Command {
    Command::Process { target: Target::Existing(known.id()), command: process::Command::MoveProposal(command) }
}

async fn moved(
    engine: &Engine,
    caller: Caller,
    known: &Read,
    command: process::MoveProposal,
    sent: Sent,
) -> Done<wire::ProposalMoved> {
    answered(engine.execute(caller.call(on(known, command), sent)?).await?)
}

fn answered(outcome: Outcome) -> Done<wire::ProposalMoved> {
    let (state, event_id) = match outcome {
        Outcome::Fired { new_state, event_id, .. } => (new_state, Some(event_id)),
        // A gate that was withdrawn was opened again.
        Outcome::GateOpened { .. } | Outcome::ChainOpened { .. } => (process::REVIEW.to_owned(), None),
        outcome => return Err(mismatched(&outcome)),
    };
    Ok((StatusCode::OK, Json(wire::ProposalMoved { state, event_id })))
}

/// The id of the address. Text that is no id of ours names nothing, like an id that is not there.
fn named(address: &Address) -> InstanceId {
    let nothing = InstanceId(uuid::Uuid::max());
    InstanceId::parse(address.get("id")).filter(|id| *id != InstanceId::REGISTRY).unwrap_or(nothing)
}
