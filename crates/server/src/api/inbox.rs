//! The caller's in-tray: what waits for their decision. Everybody may see their own.

use super::auth::Caller;
use super::openapi::Refused;
use super::query::{Axis, List, NoQuery, Params, bad_cursor};
use super::{App, Problem, Read, process_view, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::Engine;
use countersign_engine::port::{Page, Past, ProcessQuery, Quorum, RunQuery, Waiting, due_key};
use countersign_engine::rows::StepRow;
use countersign_engine::run::runbook;
use countersign_kernel::plan::StepSeq;
use countersign_kernel::refusal::Refusal;
use countersign_kernel::{Declaration, InstanceId, QuorumRule};
use countersign_ledger::document::parse_declaration;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use uuid::Uuid;

pub struct InboxList;

impl List for InboxList {
    const TAG: u8 = b'i';
    const AXES: &'static [Axis] = &[];
}

/// What waits for the caller, soonest due first: their own, and what they may decide as a substitute (`on_behalf_of`).
/// Needs no scope.
#[utoipa::path(get, path = "/v1/inbox", tag = "processes", params(Params<InboxList>),
    responses((status = 200, body = wire::Page<wire::InboxItem>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<InboxList>,
) -> Read<wire::Page<wire::InboxItem>> {
    if params.is_descending() {
        return Err(Problem::invalid_query("order", "this list is given by when it is due, soonest first"));
    }
    let (limit, after) = params.keyed_page();
    let after = after.map(place).transpose()?;
    let engine = app.engine()?;
    let waiting = engine.inbox(&caller.actor_ref, after, limit).await?;
    let application = &engine.config().application_actor_ref;
    let mut seen: HashMap<InstanceId, Seen> = HashMap::new();
    for step in waiting.iter().map(|waiting| &waiting.step).filter(|step| step.request.is_some()) {
        if let Entry::Vacant(unseen) = seen.entry(step.instance_id) {
            unseen.insert(look(&engine, step.instance_id).await?);
        }
    }
    let steps: Vec<StepRow> = waiting.iter().map(|waiting| waiting.step.clone()).collect();
    let reasons = engine.opening_reasons(&steps).await?;
    let mut targets = HashMap::new();
    for waiting in waiting.iter().filter(|waiting| !waiting.is_run) {
        targets.extend(target(&engine, waiting).await?.map(|state| (waiting.step.step_id, state)));
    }
    let to_item = |waiting: Waiting| {
        let seen = seen.get(&waiting.step.instance_id).cloned().unwrap_or_default();
        let (reason, to_state) =
            (reasons.get(&waiting.step.gate_id).cloned(), targets.get(&waiting.step.step_id).cloned());
        let on_behalf_of = Some(waiting.step.approver_ref.clone()).filter(|approver| *approver != caller.actor_ref);
        Ok(wire::InboxItem { reason, to_state, on_behalf_of, ..to_wire(waiting, seen, application) })
    };
    params.answer_keyed(waiting, key, to_item).map(Json)
}

/// How much waits for the caller. Needs no scope.
#[utoipa::path(get, path = "/v1/inbox/count", tag = "processes",
    responses((status = 200, body = wire::InboxCount), Refused))]
pub async fn count(State(app): State<App>, caller: Caller, _: NoQuery) -> Read<wire::InboxCount> {
    let count = app.engine()?.inbox_count(&caller.actor_ref).await?;
    Ok(Json(wire::InboxCount { count }))
}

fn key(waiting: &Waiting) -> Vec<u8> {
    let mut key = due_key(waiting.due_at).to_be_bytes().to_vec();
    key.extend(waiting.assignment.assignment_id.0.as_bytes());
    key
}

fn place(key: &[u8]) -> Result<(i64, Uuid), Problem> {
    let (due, id) = key.split_at_checked(8).ok_or_else(bad_cursor)?;
    let due = due.try_into().map(i64::from_be_bytes).map_err(|_| bad_cursor())?;
    Ok((due, Uuid::from_slice(id).map_err(|_| bad_cursor())?))
}

/// What a run has come to, for whoever decides about its next step.
type Seen = (Vec<wire::StepCheck>, Vec<wire::StepArtifact>);

async fn look(engine: &Engine, run_id: InstanceId) -> Result<Seen, Refusal> {
    let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let Some(run) = engine.own_runs(&query, &page).await?.into_iter().next() else { return Ok(Seen::default()) };
    let Some(book) = run.head.runbook.as_deref().and_then(runbook::parse) else { return Ok(Seen::default()) };
    let plan = engine.plan_of(&run).await?;
    let step = |seq: StepSeq| plan.step(seq).map_or_else(String::new, |spec| spec.name.to_string());
    let checks = book.checks.iter().flat_map(|(seq, verdicts)| {
        let step = step(*seq);
        verdicts.iter().map(move |verdict| wire::StepCheck {
            step: step.clone(),
            name: verdict.name.to_string(),
            held: verdict.held,
        })
    });
    let artifacts = book.artifacts.iter().map(|(seq, left)| wire::StepArtifact {
        step: step(*seq),
        path: left.path.to_string(),
        sha256: left.sha256.to_string(),
        size_bytes: left.size_bytes,
    });
    Ok((checks.collect(), artifacts.collect()))
}

/// The state that an approved transition of a process leads to.
async fn target(engine: &Engine, waiting: &Waiting) -> Result<Option<String>, Problem> {
    let leads = |declaration: &Declaration, from: &str| {
        declaration.transition(from, &waiting.step.action).map(|transition| transition.to_state.clone())
    };
    let query =
        ProcessQuery { instance_id: Some(waiting.step.instance_id), past: Past::Nothing, ..ProcessQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let Some(view) = engine.own_processes(&query, &page).await?.into_iter().next() else { return Ok(None) };
    Ok(parse_declaration(&view.declaration).ok().and_then(|declaration| leads(&declaration, &view.current_state)))
}

fn to_wire(waiting: Waiting, (checks, artifacts): Seen, application: &str) -> wire::InboxItem {
    let Waiting { assignment, step, opened_by, is_run, definition, due_at, quorum, .. } = waiting;
    // A step's subject is `<subject>:<action>`; the in-tray shows the two apart.
    let subject_ref = step.subject_ref.strip_suffix(&step.action).and_then(|s| s.strip_suffix(':'));
    let subject_ref = subject_ref.unwrap_or(&step.subject_ref).to_owned();
    wire::InboxItem {
        kind: if is_run { "run" } else { "process" }.to_owned(),
        definition: definition.map(|(name, version)| format!("{name}@{version}")),
        requested_by: if opened_by == application { step.submitter_ref.clone() } else { opened_by },
        on_behalf_of: None,
        assignment_id: assignment.assignment_id.to_string(),
        task_ref: assignment.task_ref.to_string(),
        instance_id: step.instance_id.to_string(),
        action: step.action,
        scope: step.scope,
        subject_ref,
        reason: None,
        to_state: None,
        quorum: quorum.map(progress),
        assigned_at: time::format(assignment.assigned_at),
        due_at: due_at.map(time::format),
        request_digest: step.request.as_deref().map(process_view::digest),
        request: step.request.as_deref().map(process_view::json),
        checks,
        artifacts,
    }
}

fn progress(quorum: Quorum) -> wire::QuorumProgress {
    let Quorum { rule, approved, rejected, approvers } = quorum;
    let needed = match rule {
        QuorumRule::AllOfN => approvers,
        QuorumRule::MOfN { m } => m.into(),
        QuorumRule::OneOfN => 1,
    };
    wire::QuorumProgress { rule: process_view::rule(rule), approvers, needed, approved, rejected }
}
