//! A signed request and the run's record that it led to (`spec/run.md`, section 6).

use super::agreement::{Agreement, same_members, same_route};
use super::statement::Signed;
use crate::json::Value;
use crate::record::{Action, Header};
use crate::run::read::Ranges;
use std::borrow::Cow;

pub fn same_request(header: &Header, payload: &Value, body: &Value, signed: &Signed) -> Agreement {
    let instance = header.instance_id.to_string();
    let control = |action: &str, verb: &str| {
        same_route(signed, "POST", action, &["v1", "runs", &instance, verb])?;
        same_members(payload, body, &["reason"])
    };
    let step = |action: &str, verb: &str| {
        let named = segment(signed, 5)?;
        same_route(signed, "POST", action, &["v1", "runs", &instance, "steps", &named, verb])?;
        same_members(payload, body, &["reason"])
    };
    if let Some(own) = payload.get("own_transition") {
        step("transition_step", "transition")?;
        same_members(payload, body, &["evidence_ref"])?;
        return same_members(own, body, &["to"]);
    }
    match header.action {
        Action::RunStarted if signed.statement.action == "dispatch_run" => {
            same_route(signed, "POST", "dispatch_run", &["v1", "runs", "trigger"])
        }
        // An event posted at the one door starts runs as well, and an event posted at the other one wakes.
        Action::RunStarted if signed.statement.action == "receive_event" => {
            same_route(signed, "POST", "receive_event", &["v1", "events"])
        }
        // The run of a schedule, by hand: the input is the schedule's.
        Action::RunStarted if segment(signed, 2)?.as_str() == "schedules" => {
            let definition = payload.text("definition").and_then(|named| named.rsplit_once('@'));
            let name = definition.map_or("", |(name, _)| name);
            same_route(signed, "POST", "start_run", &["v1", "schedules", name, "trigger"])
        }
        Action::RunStarted => {
            same_route(signed, "POST", "start_run", &["v1", "runs"])?;
            same_start(payload, body)
        }
        Action::StepsClaimed => {
            let queue = segment(signed, 3)?;
            same_route(signed, "POST", "claim", &["v1", "queues", &queue, "claim"])?;
            let same = |lease: &Value| lease.text("worker_id") == body.text("worker_id");
            let leases = payload.get("leases").and_then(Value::as_list).unwrap_or_default();
            if leases.iter().all(same) { Ok(()) } else { Err("the worker_id of a lease is not the body's".to_owned()) }
        }
        Action::StepCompleted if signed.statement.action == "complete_step" => step("complete_step", "complete"),
        Action::StepWaiting if signed.statement.action == "wait_step" => step("wait_step", "wait"),
        Action::StepClaimed => step("claim_step", "claim"),
        Action::StepReleased => step("release_step", "release"),
        Action::StepBlocked if signed.statement.action == "block" => {
            task(header, payload, signed, &["block"])?;
            same_members(payload, body, &["block_reason"])
        }
        Action::StepCannotComplete if signed.statement.action == "cannot_complete" => {
            task(header, payload, signed, &["cannot_complete"])?;
            same_members(payload, body, &["evidence_ref"])
        }
        Action::StepBlocked => {
            step("block_step", "block")?;
            same_members(payload, body, &["block_reason"])
        }
        Action::StepUnblocked => {
            step("unblock_step", "unblock")?;
            same_members(payload, body, &["evidence_ref"])
        }
        Action::StepCannotComplete => {
            step("cannot_complete_step", "cannot-complete")?;
            same_members(payload, body, &["evidence_ref"])
        }
        Action::StepEscalated => step("escalate_step", "escalate"),
        Action::StepRetryOrdered => step("retry_step", "retry"),
        Action::BlockEscalated => step("escalate_block", "block-escalate"),
        Action::StepReopened => {
            step("reopen_step", "reopen")?;
            same_members(payload, body, &["approval_id"])?;
            same_members(payload.get("correction").unwrap_or(&Value::Null), body, &["correction_reason"])
        }
        Action::DeadlineExtended => step("extend_deadline", "extend-deadline"),
        Action::StepReengaged => step("reengage_step", "re-engage"),
        Action::StepCompleted | Action::StepYielded | Action::PinsCaptured => {
            task(header, payload, signed, &["complete"])
        }
        Action::StepWaiting => task(header, payload, signed, &["wait"]).map(|_| ()),
        Action::StepRetried | Action::StepFailed | Action::PinsSurveyed => {
            let completes = header.action != Action::StepRetried;
            task(header, payload, signed, if completes { &["complete", "retry", "dead"] } else { &["retry", "dead"] })?;
            let moves = payload.get("transitions").and_then(Value::as_list).unwrap_or_default();
            let failed = moves.iter().any(|made| matches!(made.text("id"), Some("T4" | "T9")));
            if signed.statement.action == "complete" || (completes && !failed) {
                return Ok(());
            }
            let said = body.text("last_error").map(recorded_error);
            let entries = payload.get("errors").and_then(Value::as_list).unwrap_or_default();
            if entries.iter().any(|entry| entry.text("last_error") == said.as_deref()) {
                return Ok(());
            }
            Err("the last_error that was reported is not recorded".to_owned())
        }
        Action::EventReceived => {
            match signed.statement.action.as_str() {
                "dispatch_run" => same_route(signed, "POST", "dispatch_run", &["v1", "runs", "trigger"])?,
                _ => same_route(signed, "POST", "receive_event", &["v1", "events"])?,
            }
            let event = payload.get("event").unwrap_or(&Value::Null);
            same_members(event, body, &["id", "type"])?;
            same_value(event, body, "data")
        }
        Action::RunCancelled => {
            control("cancel_run", "cancel")?;
            let undoes = |said: &Value| said.get("compensate").and_then(Value::as_bool) == Some(true);
            if undoes(payload) != undoes(body) {
                return Err("`compensate` of the body is not the payload's".to_owned());
            }
            same_if_said(payload, body, "approval_id")
        }
        Action::RunPaused => control("pause_run", "pause"),
        Action::RunResumed => {
            control("resume_run", "resume")?;
            same_members(payload, body, &["approval_id"])
        }
        Action::RunStopped => control("stop_run", "stop"),
        Action::RunVoided => {
            control("void_run", "void")?;
            same_if_said(payload, body, "approval_id")
        }
        Action::EffectDeclared => step("declare_effect", "declare-effect"),
        _ => Err(format!("`{}` is not what a request leads to", header.action.as_str())),
    }
}

/// A member that the body may leave to the server.
fn same_if_said(payload: &Value, body: &Value, member: &str) -> Agreement {
    if body.text(member).is_some() { same_members(payload, body, &[member]) } else { Ok(()) }
}

/// A segment of the request's path that the record does not say; decoded.
fn segment(signed: &Signed, at: usize) -> Result<String, String> {
    let request = signed.statement.request.as_deref().unwrap_or_default();
    let path = request.split_once(' ').map_or("", |(_, path)| path);
    let found = path.split('/').nth(at).filter(|segment| !segment.is_empty());
    let found = found.ok_or_else(|| "the statement's request has too few segments".to_owned())?;
    super::path::decode(found).ok_or_else(|| "the statement's request cannot be read".to_owned())
}

/// A report on one of the steps that the record moves.
fn task(header: &Header, payload: &Value, signed: &Signed, verbs: &[&'static str]) -> Agreement {
    let verb = verbs.iter().find(|verb| signed.statement.action == **verb);
    let verb = verb.ok_or_else(|| format!("the statement's action does not lead to `{}`", header.action.as_str()))?;
    let task = segment(signed, 3)?;
    same_route(signed, "POST", verb, &["v1", "tasks", &task, &verb.replace('_', "-")])?;
    let seq = task.strip_prefix(&format!("{}.", header.instance_id)).and_then(|seq| seq.parse::<usize>().ok());
    let moves = payload.get("transitions").and_then(Value::as_list).unwrap_or_default();
    let of = |step_move: &Value, seq: usize| match step_move.text("step_seqs").and_then(Ranges::parse) {
        Some(together) => together.contains(seq),
        None => step_move.int("step_seq").and_then(|own| usize::try_from(own).ok()) == Some(seq),
    };
    let acted = payload.int("step_seq").or(payload.get("yielded").and_then(|yielded| yielded.int("step_seq")));
    let named = |seq: usize| acted.and_then(|acted| usize::try_from(acted).ok()) == Some(seq);
    if seq.is_some_and(|seq| named(seq) || moves.iter().any(|step_move| of(step_move, seq))) {
        return Ok(());
    }
    Err("the statement reports on a step that the record does not move".to_owned())
}

fn same_start(payload: &Value, body: &Value) -> Agreement {
    let (asked, recorded) = (body.text("definition"), payload.text("definition"));
    let same_name = |recorded: &str, asked: &str| {
        recorded == asked || recorded.rsplit_once('@').is_some_and(|(name, _)| name == asked)
    };
    if !asked.zip(recorded).is_some_and(|(asked, recorded)| same_name(recorded, asked)) {
        return Err("asked for another definition than was recorded".to_owned());
    }
    let given: Vec<&str> =
        ["subject_ref", "priority", "corrects"].into_iter().filter(|name| body.given(name).is_some()).collect();
    same_members(payload, body, &given)?;
    same_value(payload, body, "input")
}

/// Equal, where the record has the value in full. What a body leaves out is null.
fn same_value(object: &Value, body: &Value, name: &str) -> Agreement {
    let recorded = object.get(name);
    if recorded.is_none_or(|recorded| recorded == body.get(name).unwrap_or(&Value::Null)) {
        return Ok(());
    }
    Err(format!("`{name}` of the body is not what was recorded"))
}

/// An error of more than 4096 bytes is recorded cut short (`spec/run.md`, section 3).
fn recorded_error(said: &str) -> Cow<'_, str> {
    const MAX_BYTES: usize = 4096;
    if said.len() <= MAX_BYTES {
        return said.into();
    }
    let end = said.floor_char_boundary(MAX_BYTES - '…'.len_utf8());
    format!("{}…", &said[..end]).into()
}
