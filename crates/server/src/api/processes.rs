//! Processes: their gates, their transitions, and the view of everything that happened to them.

use super::auth::Caller;
use super::body::{Address, Posted};
use super::openapi::Refused;
use super::query::{Axis, List, Params, beginning};
use super::start::name_and_version;
use super::{App, Done, Problem, Read, mismatched, process_view};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::port::{Page, Past, ProcessQuery};
use countersign_engine::run::payload::is_told_in_full;
use countersign_engine::{Command, Engine, Outcome, Target};
use countersign_kernel::process::{self, DecideGate, Decision, FireTransition, OpenGate, Request, StepChoice};
use countersign_kernel::refusal::{Code, Refusal, require_text};
use countersign_kernel::{EventId, InstanceId, StepId};
use countersign_ledger::record::Header;
use countersign_ledger::{parse_hex_digest, sha256};

pub struct ProcessList;

impl List for ProcessList {
    const TAG: u8 = b'p';
    const AXES: &'static [Axis] = &[
        Axis::Text("instance_id"),
        Axis::Text("subject_ref"),
        Axis::Text("initiator_ref"),
        Axis::Text("definition"),
        Axis::Text("current_state"),
        Axis::Text("q"),
        Axis::Time("started_after"),
        Axis::Time("started_before"),
    ];
}

/// Firings in one answer.
const FIRINGS: usize = 500;

pub struct HistoryOfProcess;

impl List for HistoryOfProcess {
    const TAG: u8 = b'H';
    const AXES: &'static [Axis] = &[Axis::Text("history_cursor")];
    const PAGED: bool = false;
}

/// Ask for the approval that a guarded transition needs. Needs `workflows:open-gate`.
#[utoipa::path(post, path = "/v1/processes/{instance_id}/gates", tag = "processes",
    params(("instance_id" = String, Path)), request_body = wire::OpenGate,
    responses((status = 201, body = wire::GateOpened), Refused))]
pub async fn open_gate(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::OpenGate>,
) -> Done<wire::GateOpened> {
    let command = on(&address, process::Command::OpenGate(opening(posted.body)?))?;
    let outcome = app.engine()?.execute(caller.call(command, posted.sent)?).await?;
    Ok((StatusCode::CREATED, Json(gate_opened(outcome)?)))
}

/// What is asked of an approver stands in the record of the opening, so it has to fit in there.
pub fn opening(open: wire::OpenGate) -> Result<OpenGate, Refusal> {
    let wire::OpenGate { action, reason, request } = open;
    let refuse = |detail: &str| Refusal::new(Code::InvalidRequest, detail).at("request");
    let request = match request {
        None => None,
        Some(request) if request.is_object() => {
            let text = request.to_string();
            if !is_told_in_full(&text) {
                return Err(refuse("this is more than a record has room for: ask with its digest, or a link to it"));
            }
            Some(Request { digest: sha256(&[text.as_bytes()]), text: text.into() })
        }
        Some(_) => return Err(refuse("what an approver is asked is an object")),
    };
    Ok(OpenGate { action, reason, request })
}

pub fn gate_opened(outcome: Outcome) -> Result<wire::GateOpened, Problem> {
    match outcome {
        Outcome::GateOpened { step_id, assignment_id } => Ok(wire::GateOpened {
            step_id: Some(step_id),
            assignment_id: Some(assignment_id),
            ..wire::GateOpened::default()
        }),
        Outcome::ChainOpened { chain_id, steps } => {
            let steps = steps.into_iter().map(|step| wire::GateOpenedStep {
                step_id: step.step_id,
                assignment_id: step.assignment_id,
                approver_ref: step.approver_ref,
            });
            let steps = Some(steps.collect());
            Ok(wire::GateOpened { chain_id: Some(chain_id), steps, ..wire::GateOpened::default() })
        }
        outcome => Err(mismatched(&outcome)),
    }
}

/// Decide an open gate. Needs no scope: the gate names who may decide it.
#[utoipa::path(post, path = "/v1/processes/{instance_id}/gates/{action}/decision", tag = "processes",
    params(("instance_id" = String, Path), ("action" = String, Path)), request_body = wire::DecideGate,
    responses((status = 200, body = wire::GateDecided), Refused))]
pub async fn decide_gate(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::DecideGate>,
) -> Done<wire::GateDecided> {
    let command = on(&address, process::Command::DecideGate(decision(address.get("action"), posted.body)?))?;
    let engine = app.engine()?;
    let outcome = engine.execute(caller.call(command, posted.sent)?).await?;
    Ok((StatusCode::OK, Json(gate_decided(&engine, outcome).await?)))
}

/// A decision on the gate of `action`.
pub fn decision(action: &str, decide: wire::DecideGate) -> Result<DecideGate, Refusal> {
    let wire::DecideGate { decision, reason, step_id, request_digest } = decide;
    let decision = match decision {
        wire::Decision::Approve => Decision::Approve,
        wire::Decision::Reject => Decision::Reject,
        wire::Decision::Withdraw => Decision::Withdraw,
    };
    let step = match step_id {
        None => None,
        Some(text) => {
            require_text("step_id", &text)?;
            Some(StepId::parse(&text).map_or(StepChoice::Unknown, StepChoice::Id))
        }
    };
    let request_digest = match request_digest {
        None => None,
        Some(text) => Some(parse_hex_digest(&text).ok_or_else(|| {
            let detail = "`request_digest` has 64 hexadecimal digits, in small letters";
            Refusal::new(Code::InvalidRequest, detail).at("request_digest")
        })?),
    };
    Ok(DecideGate { action: action.to_owned(), decision, reason, step, request_digest })
}

/// The answer to a decision, with what says that it is recorded.
pub async fn gate_decided(engine: &Engine, outcome: Outcome) -> Result<wire::GateDecided, Problem> {
    match outcome {
        Outcome::Decided { outcome, chain_state, event_id } => {
            let chain_state = match chain_state {
                None => None,
                Some(state) => Some(approval_state(&state)?),
            };
            let record = match event_id.as_deref().and_then(EventId::parse) {
                Some(event_id) => engine.own_record(event_id).await?,
                None => None,
            };
            let header = record.as_ref().and_then(|row| Header::parse(&row.record.header).ok());
            Ok(wire::GateDecided {
                outcome: decided(&outcome)?,
                chain_state,
                event_id,
                sequence: record.as_ref().map(|row| row.sequence),
                record_hash: record.as_ref().map(|row| row.record.record_hash.to_string()),
                assurance: header.map(|header| header.assurance),
            })
        }
        outcome => Err(mismatched(&outcome)),
    }
}

/// Fire a transition from the current state. Needs `workflows:fire`.
#[utoipa::path(post, path = "/v1/processes/{instance_id}/transitions", tag = "processes",
    params(("instance_id" = String, Path)), request_body = wire::FireTransition,
    responses((status = 200, body = wire::TransitionFired), Refused))]
pub async fn fire(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::FireTransition>,
) -> Done<wire::TransitionFired> {
    let wire::FireTransition { action, reason } = posted.body;
    let command = on(&address, process::Command::FireTransition(FireTransition { action, reason }))?;
    match app.engine()?.execute(caller.call(command, posted.sent)?).await? {
        Outcome::Fired { new_state, transition_id, sequence_number, event_id } => {
            Ok((StatusCode::OK, Json(wire::TransitionFired { new_state, transition_id, sequence_number, event_id })))
        }
        outcome => Err(mismatched(&outcome)),
    }
}

/// Processes, in the order in which they were started, without their histories. `q` is how a subject or a process's id begins. Needs `workflows:read`; with a finer scope, the
/// processes of the definitions that it names.
#[utoipa::path(get, path = "/v1/processes", tag = "processes", params(Params<ProcessList>),
    responses((status = 200, body = wire::Page<wire::WorkflowSummary>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<ProcessList>,
) -> Read<wire::Page<wire::WorkflowSummary>> {
    let (definition, version) = match params.text("definition") {
        None => (None, None),
        Some(text) => {
            let (name, version) = name_and_version(&text).map_err(Problem::into_query)?;
            (Some(name), version)
        }
    };
    let query = ProcessQuery {
        instance_id: params.id("instance_id", InstanceId::parse),
        subject_ref: params.text("subject_ref"),
        initiator_ref: params.text("initiator_ref"),
        started: params.range("started_"),
        definitions: definition.map(|name| vec![name]),
        version,
        current_state: params.text("current_state"),
        q: params.text("q").map(|text| beginning(&text)).transpose()?,
        past: Past::Nothing,
    };
    let views = app.engine()?.read_workflow(&caller.actor_ref, query, &params.page()?).await?;
    let engine = app.engine()?;
    let registry = engine.registry();
    let summary = |view| process_view::to_wire(view, &registry).map(wire::WorkflowSummary::from);
    params.answer(views, |view| view.row.instance_id.0, summary).map(Json)
}

/// One process with its history and its gates. Needs `workflows:read`.
#[utoipa::path(get, path = "/v1/processes/{instance_id}", tag = "processes",
    params(("instance_id" = String, Path), Params<HistoryOfProcess>),
    responses((status = 200, body = wire::WorkflowView), Refused))]
pub async fn read(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    params: Params<HistoryOfProcess>,
) -> Read<wire::WorkflowView> {
    let from = match params.text("history_cursor") {
        None => 0,
        Some(text) => text
            .parse::<u64>()
            .ok()
            .filter(|from| from.to_string() == text)
            .ok_or_else(|| Problem::invalid_query("history_cursor", "this is no `history_next` of ours"))?,
    };
    let instance_id = InstanceId::parse(named(&address)?).unwrap_or(InstanceId(uuid::Uuid::max()));
    let past = Past::Firings { from, limit: FIRINGS + 1 };
    let query = ProcessQuery { instance_id: Some(instance_id), past, ..ProcessQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let engine = app.engine()?;
    let view = engine.read_workflow(&caller.actor_ref, query, &page).await?.into_iter().next();
    let mut view = view
        .ok_or_else(|| Refusal::new(Code::NotKnown, "there is no process with this instance_id").at("instance_id"))?;
    let next = view.history.get(FIRINGS).map(|firing| firing.sequence_number.to_string());
    view.history.truncate(FIRINGS);
    let view = process_view::to_wire(view, &engine.registry())?;
    Ok(Json(wire::WorkflowView { history_next: next, ..view }))
}

/// The command on the process that the address names. The registry is an instance, but no process.
fn on(address: &Address, command: process::Command) -> Result<Command, Refusal> {
    let target = match InstanceId::parse(named(address)?) {
        None | Some(InstanceId::REGISTRY) => Target::Nowhere,
        Some(instance_id) => Target::Existing(instance_id),
    };
    Ok(Command::Process { target, command })
}

/// The instance_id of the address, which may name nothing but must not be blank.
fn named(address: &Address) -> Result<&str, Refusal> {
    let instance_id = address.get("instance_id");
    require_text("instance_id", instance_id).map(|()| instance_id)
}

/// The engine's words are the wire's; only their types differ.
fn decided(text: &str) -> Result<wire::Outcome, Problem> {
    serde_json::from_value(text.into()).map_err(|error| unknown_word(text, &error))
}

fn approval_state(text: &str) -> Result<wire::ApprovalState, Problem> {
    serde_json::from_value(text.into()).map_err(|error| unknown_word(text, &error))
}

fn unknown_word(text: &str, error: &serde_json::Error) -> Problem {
    tracing::error!(text, %error, "the engine answered with a word that the wire does not have");
    Problem::internal()
}
