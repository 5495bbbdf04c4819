//! The actions of a scenario as the kernel's commands.

use super::runs::{Acting, Control, Report, RunStart, compact};
use super::{Failure, On, Said, Source, Start, broken};
use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::plan::Work;
use countersign_kernel::process::{
    self, Command, DecideGate, Decision, FireTransition, OpenGate, StartWorkflow, StepChoice,
};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry;
use countersign_kernel::run::{self, ClaimNext, Facet, FromStep, Job, Outbound, Parent, StartRun, TaskRef};
use countersign_kernel::{GrantId, InstanceId, Time};
use countersign_ledger::sha256;
use serde_json::Value;
use std::sync::Arc;

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

/// A document as the command that publishes it.
pub fn publish_command(document: &str) -> Said<registry::PublishDefinition> {
    let definition = countersign_definition::parse(document.as_bytes()).map_err(|problems| {
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        Failure::Refused(Refusal::new(Code::InvalidDefinition, first))
    })?;
    Ok(definition.published_as(document, |bytes| sha256(&[bytes])))
}

fn named(text: &str) -> Said<(String, Option<u32>)> {
    match text.rsplit_once('@') {
        None => Ok((text.to_owned(), None)),
        Some((name, version)) => Ok((name.to_owned(), Some(version.parse().map_err(broken)?))),
    }
}

/// A start as the command that asks for it.
pub fn start_command(start: &Start) -> Said<Command> {
    let source = match &start.from {
        Source::Declaration(declaration) => process::Source::Inline(declaration.clone()),
        Source::Definition(text) => {
            let (name, version) = named(text)?;
            process::Source::Definition { name, version }
        }
    };
    Ok(Command::StartWorkflow(StartWorkflow {
        source,
        subject_ref: start.subject_ref.clone(),
        gate_spec: start.gate_spec.clone(),
        reason: start.reason.clone(),
    }))
}

pub fn open_gate(on: On<'_>) -> OpenGate {
    OpenGate { action: on.action.to_owned(), reason: owned(on.reason), request: None }
}

pub fn open_command(on: On<'_>) -> Command {
    Command::OpenGate(open_gate(on))
}

pub fn decide_gate(on: On<'_>, decision: Decision, step: Option<StepChoice>) -> DecideGate {
    DecideGate { action: on.action.to_owned(), decision, reason: owned(on.reason), step, request_digest: None }
}

pub fn decide_command(on: On<'_>, decision: Decision, step: Option<StepChoice>) -> Command {
    Command::DecideGate(decide_gate(on, decision, step))
}

pub fn fire_command(on: On<'_>) -> Command {
    Command::FireTransition(FireTransition { action: on.action.to_owned(), reason: owned(on.reason) })
}

pub fn register_command(actor_ref: &str) -> registry::Command {
    registry::Command::RegisterActor(registry::RegisterActor {
        actor_ref: actor_ref.to_owned(),
        kind: registry::ActorKind::Human,
        display_name: None,
        key: None,
        token_hash: sha256(&[actor_ref.as_bytes()]),
    })
}

pub fn grant_command(subject_ref: &str, scope: &str) -> registry::Command {
    registry::Command::GrantScope(registry::GrantScope {
        subject_ref: subject_ref.to_owned(),
        action_scope: scope.to_owned(),
    })
}

pub fn revoke_command(grant_id: &str) -> registry::Command {
    registry::Command::RevokeGrant(registry::RevokeGrant { grant_id: GrantId::parse(grant_id) })
}

/// `now` is the level's own; `from_step` holds what its store knows of the old run.
pub fn start_run_command(start: &RunStart, now: Time, from_step: Option<FromStep>) -> Said<run::Command> {
    let (definition, version) = named(&start.definition)?;
    Ok(run::Command::Start(Box::new(StartRun {
        version,
        subject_ref: start.subject_ref.clone(),
        priority: start.priority,
        start_at: start.start_in_us.map(|us| now.after(us)),
        corrects: start.corrects.as_deref().and_then(InstanceId::parse),
        from_step,
        dry_run: start.dry_run,
        ..StartRun::new(definition, compact(start.input.as_deref()))
    })))
}

pub fn report_command(step_seq: u32, lease_token: &str, report: &Report) -> Said<run::Command> {
    let task = TaskRef { step_seq, lease_token: uuid::Uuid::try_parse(lease_token).ok() };
    let category = |text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => FailureCategory::parse(text).map(Some).ok_or_else(|| broken(format!("no category `{text}`"))),
    };
    let outbound = |event_type: &Option<String>| {
        let sent = event_type.iter().map(|event_type| Outbound { event_type: event_type.clone(), data: "null".into() });
        sent.collect::<Vec<_>>()
    };
    Ok(match report {
        Report::Complete { output, sending, claim_next } => run::Command::Complete {
            task,
            output: compact(output.as_deref()),
            outbound: outbound(sending),
            claim_next: claim_next.then_some(ClaimNext { lease: super::LEASE_US }),
            artifacts: vec![],
        },
        Report::Wait { event_type, timeout_us, facet, sending } => run::Command::Wait {
            task,
            event_type: event_type.clone(),
            timeout: *timeout_us,
            facets: facet.iter().flat_map(|text| text.split(',')).filter_map(Facet::parse).collect(),
            outbound: outbound(sending),
        },
        Report::Retry { error, backoff_us, category: text } => {
            run::Command::Retry { task, error: error.clone(), backoff: *backoff_us, category: category(text)? }
        }
        Report::Dead { error, category: text } => {
            run::Command::Dead { task, error: error.clone(), category: category(text)? }
        }
        Report::CannotComplete { evidence } => run::Command::CannotComplete { task, evidence_ref: evidence.clone() },
        Report::Block { reason } => run::Command::Block { task, block_reason: reason.clone() },
        Report::Beat { lease_us } => run::Command::Heartbeat { task, lease: *lease_us },
    })
}

pub fn control_command(control: &Control) -> Said<run::Command> {
    Ok(match control {
        Control::Run { action, approval_id, reason, compensate } => {
            let (approval_id, reason) = (approval_id.clone(), reason.clone());
            match *action {
                "cancel" => run::Command::Cancel { reason, approval_id, compensate: *compensate },
                "pause" => run::Command::Pause { reason },
                "resume" => run::Command::Resume { approval_id, reason },
                "stop" => run::Command::Stop { reason },
                "void" => run::Command::Void { approval_id, reason },
                other => return Err(broken(format!("nobody can {other} a run"))),
            }
        }
        Control::Unblock { step, evidence_ref, reason } => run::Command::Act(run::StepAct {
            step: step.clone(),
            act: run::Act::Unblock { evidence_ref: evidence_ref.clone() },
            reason: reason.clone(),
            preview: false,
        }),
        Control::Declare { step, done, output, reason } => run::Command::DeclareEffect {
            step: step.clone(),
            done: *done,
            output: output.as_deref().map(|output| compact(Some(output))),
            reason: reason.clone(),
        },
    })
}

/// As the server makes it of the route and the body; `prior` is what its store knows of what closed the step.
pub fn act_command(acting: &Acting, now: Time, prior: Option<run::Prior>) -> Said<run::Command> {
    let text = |name: &str| acting.body.get(name).and_then(Value::as_str).map(str::to_owned);
    let facets = acting.body.get("waiting_facets").and_then(Value::as_array).into_iter().flatten();
    let act = match acting.act.as_str() {
        "claim" => run::Act::Claim,
        "release" => run::Act::Release,
        "wait" => run::Act::Wait {
            event_type: text("waiting_event_type"),
            timeout: acting.body.get("timeout_ms").and_then(Value::as_i64).map(|ms| ms * 1000),
            facets: text("waiting_facet")
                .into_iter()
                .chain(facets.filter_map(Value::as_str).map(str::to_owned))
                .collect(),
        },
        "block" => run::Act::Block { block_reason: text("block_reason") },
        "unblock" => run::Act::Unblock { evidence_ref: text("evidence_ref") },
        "complete" => run::Act::Complete {
            output: acting.body.get("output").map_or_else(|| "null".into(), |output| output.to_string().into()),
            outbound: acting
                .body
                .get("outbound_events")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(sent)
                .collect(),
        },
        "cannot-complete" => run::Act::CannotComplete { evidence_ref: text("evidence_ref") },
        "escalate" => run::Act::Escalate,
        "retry" => run::Act::Retry,
        "block-escalate" => run::Act::BlockEscalate { approval_id: text("approval_id") },
        "reopen" => run::Act::Reopen {
            approval_id: text("approval_id"),
            correction_reason: text("correction_reason"),
            prior: prior.map(Box::new),
        },
        "re-engage" => run::Act::Reengage,
        "extend-deadline" => run::Act::ExtendDeadline { deadline: now.after(acting.deadline_in_us.unwrap_or(0)) },
        "transition" => run::Act::Transition(Box::new(run::TransitionWish {
            to: text("to").unwrap_or_default(),
            trigger_ref: text("trigger_ref"),
            evidence_ref: text("evidence_ref"),
            event_type: text("waiting_event_type"),
            timeout: acting.body.get("timeout_ms").and_then(Value::as_i64).map(|ms| ms * 1000),
            facets: text("waiting_facet").into_iter().collect(),
            block_reason: text("block_reason"),
            output: acting.body.get("output").map(|output| output.to_string().into()),
            outbound: vec![],
        })),
        other => return Err(broken(format!("nobody can {other} a step"))),
    };
    let (step, reason, preview) = (acting.step.clone(), text("reason"), acting.preview);
    Ok(run::Command::Act(run::StepAct { step, act, reason, preview }))
}

/// The start of the run that a child step asks for.
pub fn child_start(job: Option<&Job>, run_id: &str, step_seq: u32, input: &Arc<str>) -> Said<run::Command> {
    let Some(Work::Workflow { name, version }) = job.map(|job| &job.work) else {
        return Err(broken("a child step without its workflow"));
    };
    let run_id = InstanceId::parse(run_id).ok_or_else(|| broken("no id"))?;
    let parent = Some(Parent { run_id, step_seq });
    Ok(run::Command::Start(Box::new(StartRun {
        version: *version,
        parent,
        ..StartRun::new(name.as_str(), input.clone())
    })))
}

/// An event that a person sends with a completion.
fn sent(event: &Value) -> run::Outbound {
    run::Outbound {
        event_type: event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned(),
        data: event.get("data").map_or_else(|| "null".into(), |data| data.to_string().into()),
    }
}
