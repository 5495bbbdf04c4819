//! Starting a process: the request's declaration and gate_spec to the kernel's values.

use super::auth::Caller;
use super::body::Posted;
use super::openapi::Refused;
use super::{App, Done, Problem, mismatched};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::{Command, Outcome, Target};
use countersign_kernel::process::{self, Source, StartWorkflow};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::text::is_blank;
use countersign_kernel::{Declaration, GateEntry, GateSpec, QuorumRule, Transition};
use std::sync::Arc;

/// Start a process from a declaration or a published definition. Needs `workflows:start`.
#[utoipa::path(post, path = "/v1/processes", tag = "processes", request_body = wire::StartProcess,
    responses((status = 201, body = wire::ProcessStarted), Refused))]
pub async fn start(
    State(app): State<App>,
    caller: Caller,
    posted: Posted<wire::StartProcess>,
) -> Done<wire::ProcessStarted> {
    let wire::StartProcess { declaration, definition, subject_ref, gate_spec: spec, reason } = posted.body;
    let source = source(declaration, definition)?;
    let command = StartWorkflow { source, subject_ref, gate_spec: gate_spec(spec.unwrap_or_default())?, reason };
    let command = Command::Process { target: Target::New, command: process::Command::StartWorkflow(command) };
    match app.engine()?.execute(caller.call(command, posted.sent)?).await? {
        Outcome::Started { instance_id } => Ok((StatusCode::CREATED, Json(wire::ProcessStarted { instance_id }))),
        outcome => Err(mismatched(&outcome)),
    }
}

fn source(given: Option<wire::Declaration>, definition: Option<String>) -> Result<Source, Problem> {
    match (given, definition) {
        (Some(given), None) => {
            no_effects(&given)?;
            Ok(Source::Inline(Arc::new(declaration(given))))
        }
        (None, Some(definition)) => named(&definition),
        (Some(_), Some(_)) => {
            let detail = "a process starts from a `declaration` or from a `definition`, not from both";
            Err(Problem::invalid_request(detail).at("definition"))
        }
        (None, None) => {
            let detail = "what to start is missing: give a `declaration`, or the name of a `definition`";
            Err(Problem::invalid_request(detail).at("declaration"))
        }
    }
}

/// Effects act in the engine's name, so it takes the authority to publish to declare them.
fn no_effects(given: &wire::Declaration) -> Result<(), Refusal> {
    match given.transitions.iter().position(|transition| !transition.effects.is_empty()) {
        None => Ok(()),
        Some(i) => {
            let detail =
                "only the transitions of a published definition have `effects`: publish it, and start it by its name";
            Err(Refusal::new(Code::InvalidDeclaration, detail).at(format!("declaration.transitions[{i}].effects")))
        }
    }
}

fn named(definition: &str) -> Result<Source, Problem> {
    let (name, version) = name_and_version(definition)?;
    Ok(Source::Definition { name, version })
}

/// `name` for the newest version, `name@2` for that one.
pub fn name_and_version(definition: &str) -> Result<(String, Option<u32>), Problem> {
    let refuse = |detail: &str| Problem::invalid_request(detail).at("definition");
    let (name, version) = match definition.rsplit_once('@') {
        None => (definition, None),
        Some((name, version)) => {
            let number = version.parse::<u32>().ok().filter(|number| *number > 0 && number.to_string() == version);
            let number = number.ok_or_else(|| refuse("a version is a number from 1: write `name` or `name@2`"))?;
            (name, Some(number))
        }
    };
    if is_blank(name) {
        return Err(refuse("`definition` is blank; it needs the name of a published definition"));
    }
    Ok((name.to_owned(), version))
}

fn declaration(given: wire::Declaration) -> Declaration {
    let transition = |t: wire::Transition| {
        let (from_state, action, to_state, guard) = (t.from, t.action, t.to, t.guard);
        Transition { from_state, action, to_state, guard, effects: vec![] }
    };
    Declaration {
        states: given.states,
        transitions: given.transitions.into_iter().map(transition).collect(),
        initial_state: given.initial_state,
        terminal_states: given.terminal_states,
    }
}

fn gate_spec(given: wire::GateSpec) -> Result<GateSpec, Problem> {
    given
        .into_iter()
        .map(|(label, entry)| Ok((label.clone(), gate_entry(&label, entry)?)))
        .collect::<Result<_, _>>()
        .map(GateSpec)
}

fn gate_entry(label: &str, entry: wire::GateEntry) -> Result<GateEntry, Problem> {
    let refuse =
        |place: &str, detail: &str| Err(Problem::invalid_request(detail).at(format!("gate_spec.{label}{place}")));
    let wire::GateEntry { approver_ref, approvers, quorum, scope, delegable } = entry;
    let delegable = delegable.unwrap_or_default();
    match (approver_ref, approvers, quorum) {
        (Some(approver_ref), None, None) => Ok(GateEntry::Single { approver_ref, scope, delegable }),
        (None, Some(approvers), Some(quorum)) => {
            let rule = match (quorum.rule, quorum.m) {
                (wire::QuorumRule::AllOfN, None) => QuorumRule::AllOfN,
                (wire::QuorumRule::OneOfN, None) => QuorumRule::OneOfN,
                (wire::QuorumRule::MOfN, Some(m)) => QuorumRule::MOfN { m },
                (wire::QuorumRule::MOfN, None) => {
                    return refuse(".quorum.m", "m-of-n needs `m`: how many approvals are enough");
                }
                (wire::QuorumRule::AllOfN | wire::QuorumRule::OneOfN, Some(_)) => {
                    return refuse(".quorum.m", "`m` belongs to the rule m-of-n and to no other");
                }
            };
            Ok(GateEntry::Quorum { approvers, rule, scope, delegable })
        }
        (Some(_), ..) => refuse("", "a gate names either one `approver_ref`, or `approvers` with a `quorum`; not both"),
        (None, Some(_), None) => refuse(".quorum", "`approvers` need a `quorum` that says how many must approve"),
        (None, None, Some(_)) => refuse(".approvers", "a `quorum` needs `approvers`"),
        (None, None, None) => refuse(".approver_ref", "nobody is named who could approve"),
    }
}
