//! Reading proposals: what is proposed stands in their records.

use crate::api::auth::Caller;
use crate::api::body::Address;
use crate::api::definitions::{self, diff};
use crate::api::openapi::Refused;
use crate::api::query::{Axis, List, NoQuery, Params};
use crate::api::{App, Problem, process_view, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::{Page, Past, ProcessQuery, ProcessView};
use countersign_engine::proposal::{Content, MERGED, PROPOSAL};
use countersign_engine::rows::RecordRow;
use countersign_engine::{Engine, store_failure};
use countersign_kernel::InstanceId;
use countersign_kernel::process::{self, PROPOSAL as DEFINITION, PROPOSAL_STATES};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;
use countersign_ledger::document::parse_gate_spec;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Pages that are looked through for one of the list, where its filter has no index.
const LOOKED_THROUGH: usize = 20;

pub struct ProposalList;

impl List for ProposalList {
    const TAG: u8 = b'P';
    const AXES: &'static [Axis] = &[Axis::Word("state", PROPOSAL_STATES), Axis::Text("target"), Axis::Text("kind")];
}

/// A proposal with its records.
pub struct Read {
    view: ProcessView,
    records: Vec<RecordRow>,
}

impl Read {
    pub fn id(&self) -> InstanceId {
        self.view.row.instance_id
    }

    pub fn state(&self) -> &str {
        &self.view.current_state
    }

    /// Its kind and its target.
    pub fn subject(&self) -> (&str, &str) {
        subject(&self.view)
    }

    pub fn is_of_definition(&self) -> bool {
        process::PUBLISHED_KINDS.contains(&self.subject().0)
    }

    /// The number of its next firing.
    pub fn next(&self) -> u64 {
        1 + self.records.iter().filter(|row| row.action_ref == "transition_fired").count() as u64
    }

    /// The members of this name that its records have, oldest first, each with its record.
    fn attached(&self, member: &'static str) -> impl Iterator<Item = (&RecordRow, Value)> {
        self.records.iter().filter_map(move |row| {
            let mut said: Map<String, Value> = serde_json::from_slice(row.record.payload()?).ok()?;
            Some((row, said.remove(member)?))
        })
    }

    /// What was proposed, oldest first.
    fn versions(&self) -> Vec<(&RecordRow, Content)> {
        let read = |(row, value)| Some((row, serde_json::from_value(value).ok()?));
        self.attached(PROPOSAL).filter_map(read).collect()
    }

    /// What is proposed now.
    pub fn content(&self) -> Result<Content, Refusal> {
        let says = |row: &&RecordRow| {
            row.action_ref == "workflow_started"
                || (row.action_ref == "transition_fired" && row.record.payload().is_none())
        };
        let newest = self.versions().into_iter().last();
        // A purged firing may have been an edit.
        let unread = self.records.iter().rev().find(says).filter(|row| row.record.payload().is_none());
        let known = newest.filter(|(row, _)| unread.is_none_or(|lost| lost.sequence < row.sequence));
        known.map(|(_, content)| content).ok_or_else(|| {
            Refusal::new(Code::NotActive, "what is proposed here has been purged: make another proposal").at("id")
        })
    }

    /// The proposed document.
    pub async fn document(&self, engine: &Engine) -> Result<String, Problem> {
        let missing = || Refusal::new(Code::InvalidRequest, "this proposal has no document").at("document");
        let digest = self.content()?.document().ok_or_else(missing)?;
        let bytes = engine.published_document(digest).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn subject(view: &ProcessView) -> (&str, &str) {
    view.row.subject_ref.split_once('/').unwrap_or((view.row.subject_ref.as_str(), ""))
}

fn not_known() -> Problem {
    Refusal::new(Code::NotKnown, "there is no proposal with this id").at("id").into()
}

/// Whether the actor sees every proposal.
async fn sees_all(engine: &Engine, actor_ref: &str) -> Result<bool, Refusal> {
    for scope in [scopes::PROPOSALS_WRITE, scopes::GOVERNANCE_READ, scopes::DEFINITIONS_PUBLISH] {
        if engine.may(actor_ref, scope).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The proposals of this query, as far as the actor may read them.
async fn views(
    engine: &Engine,
    actor_ref: &str,
    query: ProcessQuery,
    page: &Page,
) -> Result<Vec<ProcessView>, Problem> {
    let query = ProcessQuery { definitions: Some(vec![DEFINITION.to_owned()]), ..query };
    let found = match sees_all(engine, actor_ref).await? {
        true => engine.own_processes(&query, page).await?,
        // Who is asked to approve one reads it.
        false => engine.read_workflow(actor_ref, query, page).await?,
    };
    Ok(found
        .into_iter()
        .filter(|view| view.row.definition.as_ref().is_some_and(|(name, _)| name == DEFINITION))
        .collect())
}

pub async fn read(engine: &Engine, actor_ref: &str, id: InstanceId) -> Result<Read, Problem> {
    let past = Past::Firings { from: 0, limit: 0 };
    let query = ProcessQuery { instance_id: Some(id), past, ..ProcessQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let view = views(engine, actor_ref, query, &page).await?.into_iter().next().ok_or_else(not_known)?;
    Ok(Read { records: engine.own_records(id).await?, view })
}

/// The proposal of the address.
pub async fn found(engine: &Engine, caller: &Caller, address: &Address) -> Result<Read, Problem> {
    engine.refresh_registry().await.map_err(|error| Problem::from(store_failure(&error)))?;
    read(engine, &caller.actor_ref, super::named(address)).await
}

/// Proposals, in the order in which they were made. Needs `proposals:write`, `governance:read`, `definitions:publish` or
/// `workflows:read`.
#[utoipa::path(get, path = "/v1/proposals", tag = "proposals", params(Params<ProposalList>),
    responses((status = 200, body = wire::Page<wire::ProposalSummary>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<ProposalList>,
) -> Result<Json<wire::Page<wire::ProposalSummary>>, Problem> {
    let engine = app.engine()?;
    let (kind, target) = (params.text("kind"), params.text("target"));
    let whole = kind.as_ref().zip(target.as_ref()).map(|(kind, target)| format!("{kind}/{target}"));
    let (subject_ref, current_state) = (whole, params.text("state"));
    let query = ProcessQuery { subject_ref, current_state, past: Past::Nothing, ..ProcessQuery::default() };
    let fits = |view: &ProcessView| {
        let (its_kind, its_target) = subject(view);
        kind.as_ref().is_none_or(|kind| kind == its_kind) && target.as_ref().is_none_or(|target| target == its_target)
    };
    let mut page = params.page()?;
    let wanted = page.limit;
    let mut items = vec![];
    for _ in 0..LOOKED_THROUGH {
        let found = views(&engine, &caller.actor_ref, query.clone(), &page).await?;
        let is_last = found.len() < page.limit;
        page.after = found.last().map(|view| view.row.instance_id.0);
        items.extend(found.into_iter().filter(fits));
        if is_last || items.len() >= wanted {
            break;
        }
    }
    items.truncate(wanted);
    let answer = params.answer(items, |view| view.row.instance_id.0, |view| Ok(summary(&view)))?;
    Ok(Json(answer))
}

fn summary(view: &ProcessView) -> wire::ProposalSummary {
    let (kind, target) = subject(view);
    wire::ProposalSummary {
        proposal_id: view.row.instance_id.to_string(),
        proposal_kind: kind.to_owned(),
        target: target.to_owned(),
        state: view.current_state.clone(),
        proposer_ref: view.row.initiator_ref.clone(),
        created_at: time::format(view.row.started_at),
    }
}

/// One proposal with its document, earlier versions, comments and approval. Needs `proposals:write`, `governance:read`,
/// `definitions:publish` or `workflows:read`; who is asked to approve it needs no scope.
#[utoipa::path(get, path = "/v1/proposals/{id}", tag = "proposals", params(("id" = String, Path)),
    responses((status = 200, body = wire::ProposalView), Refused))]
pub async fn one(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    _: NoQuery,
) -> Result<Json<wire::ProposalView>, Problem> {
    let engine = app.engine()?;
    let known = found(&engine, &caller, &address).await?;
    let content = known.content().ok();
    let document = match content.as_ref().and_then(Content::document) {
        Some(_) => Some(known.document(&engine).await?),
        None => None,
    };
    let newest = known.is_of_definition().then(|| newest_version(&engine, known.subject().1));
    let versions = known.versions().into_iter().map(|(row, content)| wire::ProposalVersion {
        base_version: content.base_version,
        digest: content.digest,
        at: time::format(row.recorded_at),
        event_id: row.event_id.to_string(),
    });
    let versions = versions.collect();
    let comments = known.records.iter().filter_map(comment).collect();
    let merged = known.attached(MERGED).find_map(|(_, value)| serde_json::from_value(value).ok());
    let wire::ProposalSummary { proposal_id, proposal_kind, target, state, proposer_ref, created_at } =
        summary(&known.view);
    let approvers = parse_gate_spec(&known.view.gate_spec).unwrap_or_default();
    let approvers = approvers.0.get(process::PUBLISH).map(|entry| entry.approvers().to_vec()).unwrap_or_default();
    let mut view = wire::ProposalView {
        proposal_id,
        proposal_kind,
        target,
        state,
        proposer_ref,
        proposer_class: None,
        base_version: None,
        digest: None,
        document,
        proposed_action: None,
        evidence_ref: None,
        affected: vec![],
        reason: None,
        created_at,
        newest_version: newest,
        approvers,
        versions,
        comments,
        gates: process_view::gates_of(known.view.gates),
        merged,
    };
    if let Some(content) = content {
        view.proposer_class = Some(content.proposer_class);
        view.base_version = Some(content.base_version);
        view.digest = content.digest;
        view.proposed_action = content.proposed_action;
        view.evidence_ref = content.evidence_ref;
        view.affected = content.affected;
        view.reason = Some(content.reason);
    }
    Ok(Json(view))
}

fn comment(row: &RecordRow) -> Option<wire::ProposalComment> {
    let said: Value = serde_json::from_slice(row.record.payload()?).ok()?;
    let is_comment = row.action_ref == "transition_fired" && said["action"] == "comment";
    Some(wire::ProposalComment {
        by: row.actor_ref.clone(),
        at: time::format(row.recorded_at),
        text: is_comment.then(|| said["reason"].as_str())??.to_owned(),
        event_id: row.event_id.to_string(),
    })
}

fn newest_version(engine: &Engine, name: &str) -> u32 {
    engine.registry().definition(name, None).map_or(0, |newest| newest.version)
}

/// What the proposed document changes, against the version that it is based on and against the newest one, with the problems
/// that the document has. Needs `proposals:write`, `governance:read`, `definitions:publish` or `workflows:read`; who is asked
/// to approve it needs no scope.
#[utoipa::path(get, path = "/v1/proposals/{id}/diff", tag = "proposals", params(("id" = String, Path)),
    responses((status = 200, body = wire::ProposalDiff), Refused))]
pub async fn compare(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    _: NoQuery,
) -> Result<Json<wire::ProposalDiff>, Problem> {
    let engine = app.engine()?;
    let known = found(&engine, &caller, &address).await?;
    if !known.is_of_definition() {
        let detail = "this proposal changes no definition: there is nothing to compare";
        return Err(Refusal::new(Code::InvalidRequest, detail).at("id").into());
    }
    let (content, document) = (known.content()?, known.document(&engine).await?);
    let (bytes, checked) = definitions::checked(&engine, document.into_bytes()).await?;
    let newest_version = newest_version(&engine, known.subject().1);
    let mut answer = wire::ProposalDiff {
        base_version: content.base_version,
        newest_version,
        base: None,
        newest: None,
        problems: vec![],
        needs_rebase: newest_version != content.base_version,
    };
    match checked {
        Err(problems) => answer.problems = problems,
        Ok(mut definition) => {
            answer.problems = definitions::to_wire(std::mem::take(&mut definition.warnings));
            let proposed = diff::Whole::proposed(definition, Arc::from(String::from_utf8_lossy(&bytes)));
            answer.base = against(&app, &engine, &known, content.base_version, &proposed).await?;
            answer.newest = against(&app, &engine, &known, newest_version, &proposed).await?;
        }
    }
    Ok(Json(answer))
}

async fn against(
    app: &App,
    engine: &Engine,
    known: &Read,
    version: u32,
    proposed: &diff::Whole,
) -> Result<Option<wire::DefinitionDiff>, Problem> {
    let published = engine.registry().definition(known.subject().1, Some(version)).cloned();
    let Some(published) = published else { return Ok(None) };
    Ok(Some(diff::between(&diff::Whole::read(app, published).await?, proposed)))
}
