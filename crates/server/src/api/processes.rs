//! Processes: their gates, their transitions, and the view of everything that happened to them.

use super::auth::Caller;
use super::body::{Address, Posted};
use super::openapi::Refused;
use super::query::{Axis, List, NoQuery, Params};
use super::{App, Done, Problem, Read, mismatched, process_view};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::port::{Page, ProcessQuery};
use countersign_engine::{Command, Outcome, Target};
use countersign_kernel::process::{self, DecideGate, Decision, FireTransition, OpenGate, StepChoice};
use countersign_kernel::refusal::{Code, Refusal, require_text};
use countersign_kernel::{InstanceId, StepId};

pub struct ProcessList;

impl List for ProcessList {
    const TAG: u8 = b'p';
    const AXES: &'static [Axis] = &[
        Axis::Text("instance_id"),
        Axis::Text("subject_ref"),
        Axis::Text("initiator_ref"),
        Axis::Time("started_after"),
        Axis::Time("started_before"),
    ];
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
    let wire::OpenGate { action, reason } = posted.body;
    let command = on(&address, process::Command::OpenGate(OpenGate { action, reason }))?;
    let outcome = app.engine()?.execute(caller.call(command, posted.sent)?).await?;
    Ok((StatusCode::CREATED, Json(gate_opened(outcome)?)))
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
    let outcome = app.engine()?.execute(caller.call(command, posted.sent)?).await?;
    Ok((StatusCode::OK, Json(gate_decided(outcome)?)))
}

/// A decision on the gate of `action`.
pub fn decision(action: &str, decide: wire::DecideGate) -> Result<DecideGate, Refusal> {
    let wire::DecideGate { decision, reason, step_id } = decide;
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
    Ok(DecideGate { action: action.to_owned(), decision, reason, step })
}

pub fn gate_decided(outcome: Outcome) -> Result<wire::GateDecided, Problem> {
    match outcome {
        Outcome::Decided { outcome, chain_state } => {
            let chain_state = match chain_state {
                None => None,
                Some(state) => Some(approval_state(&state)?),
            };
            Ok(wire::GateDecided { outcome: decided(&outcome)?, chain_state })
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

/// Processes, in the order in which they were started. Needs `workflows:read`; with a finer scope, the
/// processes of the definitions that it names.
#[utoipa::path(get, path = "/v1/processes", tag = "processes", params(Params<ProcessList>),
    responses((status = 200, body = wire::Page<wire::WorkflowView>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<ProcessList>,
) -> Read<wire::Page<wire::WorkflowView>> {
    let query = ProcessQuery {
        instance_id: params.id("instance_id", InstanceId::parse),
        subject_ref: params.text("subject_ref"),
        initiator_ref: params.text("initiator_ref"),
        started: params.range("started_"),
        definitions: None,
    };
    let views = app.engine()?.read_workflow(&caller.actor_ref, query, &params.page()?).await?;
    params.answer(views, |view| view.row.instance_id.0, process_view::to_wire).map(Json)
}

/// One process with its history and its gates. Needs `workflows:read`.
#[utoipa::path(get, path = "/v1/processes/{instance_id}", tag = "processes", params(("instance_id" = String, Path)),
    responses((status = 200, body = wire::WorkflowView), Refused))]
pub async fn read(State(app): State<App>, caller: Caller, address: Address, _: NoQuery) -> Read<wire::WorkflowView> {
    let instance_id = InstanceId::parse(named(&address)?).unwrap_or(InstanceId(uuid::Uuid::max()));
    let query = ProcessQuery { instance_id: Some(instance_id), ..ProcessQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let view = app.engine()?.read_workflow(&caller.actor_ref, query, &page).await?.into_iter().next();
    let view = view
        .ok_or_else(|| Refusal::new(Code::NotKnown, "there is no process with this instance_id").at("instance_id"))?;
    process_view::to_wire(view).map(Json)
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
