//! Runs over HTTP.

use super::http::{HttpDriver, opened, refused, word};
use super::runs::{
    Acting, Addressed, ClaimWish, Control, Report, Reported, RunStart, Runs, SentEvent, TIMES, TaskOf, TaskSeen, Woken,
    child_in, previewed, value,
};
use super::{ADMIN, Decided, LEASE_US, On, Opened, Said, broken};
use async_trait::async_trait;
use countersign_client::wire;
use countersign_kernel::process::Decision;
use serde_json::{Value, json};
use std::time::Duration;

fn parsed(text: Option<&String>) -> Option<Value> {
    text.map(|text| value(text))
}

/// Only whole milliseconds can be sent.
fn millis(us: i64) -> i64 {
    us / 1000
}

fn seen(task: wire::Task) -> TaskSeen {
    TaskSeen {
        run_id: task.run_id,
        step: task.step,
        step_seq: task.step_seq,
        attempt: task.attempt,
        max_attempts: task.max_attempts,
        task_type: task.task_type,
        input: task.input,
        event: task.event,
        lease_token: task.lease_token,
    }
}

fn outbound(event_type: Option<&String>) -> Option<Vec<wire::OutboundEvent>> {
    event_type.map(|event_type| vec![wire::OutboundEvent { event_type: event_type.clone(), data: None }])
}

/// `2026-11-15T19:47:28.123456Z` in microseconds since 1970.
pub fn micros(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second, fraction) = (number(11, 13)?, number(14, 16)?, number(17, 19)?, number(20, 26)?);
    // Days since 1970 in the civil calendar, years beginning with March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_era =
        y.rem_euclid(400) * 365 + y.rem_euclid(400) / 4 - y.rem_euclid(400) / 100 + (153 * m + 2) / 5 + day - 1;
    let days = y.div_euclid(400) * 146_097 + day_of_era - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + fraction)
}

/// And back.
fn rfc3339(us: i64) -> String {
    let (days, rest) = (us.div_euclid(86_400_000_000), us.rem_euclid(86_400_000_000));
    let z = days + 719_468;
    let (era, doe) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (seconds, fraction) = (rest / 1_000_000, rest % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
}

/// Times as numbers, as the other levels have them.
fn numbered(view: Value) -> Value {
    match view {
        Value::Object(members) => {
            let member = |(name, value): (String, Value)| {
                let time = value.as_str().filter(|_| TIMES.contains(&name.as_str())).and_then(micros);
                (name, time.map_or_else(|| numbered(value), Value::from))
            };
            members.into_iter().map(member).collect()
        }
        Value::Array(items) => items.into_iter().map(numbered).collect(),
        other => other,
    }
}

#[async_trait]
impl Runs for HttpDriver {
    async fn start_run(&mut self, by: &str, start: &RunStart) -> Said<String> {
        let request = wire::StartRun {
            definition: start.definition.clone(),
            input: parsed(start.input.as_ref()),
            subject_ref: start.subject_ref.clone(),
            priority: start.priority,
            start_at: start.start_in_us.map(|us| rfc3339(self.time.clock().read().wall.0 + us)),
            corrects: start.corrects.clone(),
            from_step: start
                .from_step
                .as_ref()
                .map(|(run_id, step)| wire::FromStep { run_id: run_id.clone(), step: step.clone() }),
            dry_run: start.dry_run,
        };
        Ok(self.client(by)?.start_run(&request).await.map_err(refused)?.body.run_id)
    }

    async fn claim(&mut self, by: &str, wish: &ClaimWish) -> Said<Vec<TaskSeen>> {
        let request = wire::ClaimTasks {
            worker_id: wish.worker_id.clone(),
            max: Some(wish.max),
            lease_ms: Some(millis(wish.lease_us)),
            wait_ms: None,
        };
        let claimed = self.client(by)?.claim_tasks(&wish.queue, &request).await.map_err(refused)?.body;
        Ok(claimed.tasks.into_iter().map(seen).collect())
    }

    async fn report(&mut self, by: &str, of: TaskOf<'_>, report: &Report) -> Said<Reported> {
        let client = self.client(by)?;
        let task_id = format!("{}.{}", of.run_id, of.step_seq);
        let lease_token = of.lease_token.to_owned();
        let reported = match report.clone() {
            Report::Complete { output, sending, claim_next } => {
                let request = wire::CompleteTask {
                    lease_token,
                    output: parsed(output.as_ref()),
                    outbound_events: outbound(sending.as_ref()),
                    claim_next: claim_next.then_some(true),
                    lease_ms: claim_next.then_some(millis(LEASE_US)),
                };
                client.complete_task(&task_id, &request).await
            }
            Report::Wait { event_type, timeout_us, facet, sending } => {
                let request = wire::WaitTask {
                    lease_token,
                    waiting_event_type: event_type,
                    timeout_ms: timeout_us.map(millis),
                    waiting_facet: None,
                    waiting_facets: facet.map(|text| text.split(',').map(str::to_owned).collect()),
                    outbound_events: outbound(sending.as_ref()),
                };
                client.wait_task(&task_id, &request).await
            }
            Report::Retry { error, backoff_us, category } => {
                let backoff_ms = backoff_us.map(millis);
                let request = wire::RetryTask { lease_token, last_error: error, backoff_ms, error_category: category };
                client.retry_task(&task_id, &request).await
            }
            Report::Dead { error, category } => {
                let request = wire::DeadTask { lease_token, last_error: error, error_category: category };
                client.dead_task(&task_id, &request).await
            }
            Report::CannotComplete { evidence } => {
                let request = wire::CannotCompleteTask { lease_token, evidence_ref: evidence };
                client.cannot_complete_task(&task_id, &request).await
            }
            Report::Block { reason } => {
                client.block_task(&task_id, &wire::BlockTask { lease_token, block_reason: reason }).await
            }
            Report::Beat { lease_us } => {
                let request = wire::HeartbeatTask { lease_token, lease_ms: Some(millis(lease_us)) };
                client.heartbeat_task(&task_id, &request).await
            }
        };
        let reported = reported.map_err(refused)?.body;
        Ok(Reported { state_code: reported.state_code, next: reported.next.map(seen) })
    }

    async fn send_event(&mut self, by: &str, event: &SentEvent) -> Said<Woken> {
        let (run_id, correlation_key) = match event.to.clone() {
            Addressed::Run(run_id) => (Some(run_id), None),
            Addressed::Key(key) => (None, Some(key)),
        };
        let request = wire::SendEvent {
            id: event.id.clone(),
            event_type: event.event_type.clone(),
            run_id,
            correlation_key,
            data: parsed(event.data.as_ref()),
        };
        let sent = self.client(by)?.send_event(&request).await.map_err(refused)?.body;
        Ok(Woken { duplicate: sent.duplicate, steps: sent.woken.into_iter().map(|woken| woken.step).collect() })
    }

    async fn preview_report(&mut self, by: &str, of: TaskOf<'_>, report: &Report) -> Said<String> {
        let task_id = format!("{}.{}", of.run_id, of.step_seq);
        let (name, mut body) = match report.clone() {
            Report::Complete { output, .. } => ("complete", json!({"output": parsed(output.as_ref())})),
            Report::Wait { event_type, timeout_us, facet, .. } => {
                let timeout_ms = timeout_us.map(millis);
                let body = json!({"waiting_event_type": event_type, "timeout_ms": timeout_ms, "waiting_facet": facet});
                ("wait", body)
            }
            Report::Retry { error, category, .. } => {
                ("retry", json!({"last_error": error, "error_category": category}))
            }
            Report::Dead { error, category } => ("dead", json!({"last_error": error, "error_category": category})),
            Report::CannotComplete { evidence } => ("cannot-complete", json!({"evidence_ref": evidence})),
            Report::Block { reason } => ("block", json!({"block_reason": reason})),
            Report::Beat { .. } => ("heartbeat", json!({})),
        };
        body["lease_token"] = of.lease_token.into();
        if let Some(members) = body.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        Ok(told(&self.client(by)?.preview_task(&task_id, name, &body).await.map_err(refused)?.body))
    }

    async fn preview_control(&mut self, by: &str, run_id: &str, control: &Control) -> Said<String> {
        let client = self.client(by)?;
        let preview = match control.clone() {
            Control::Run { action, approval_id, reason, compensate } => {
                client.preview_run(run_id, action, &wire::ControlRun { reason, approval_id, compensate }).await
            }
            Control::Unblock { step, evidence_ref, reason } => {
                let request = wire::EvidencedStep { evidence_ref, reason };
                client.preview_step(run_id, &step, "unblock", &request).await
            }
            Control::Declare { step, done, output, reason } => {
                let result = if done { wire::DeclaredResult::Completed } else { wire::DeclaredResult::NotDone };
                let request = wire::DeclareEffect { result, output: parsed(output.as_ref()), reason };
                client.preview_step(run_id, &step, "declare-effect", &request).await
            }
        };
        Ok(told(&preview.map_err(refused)?.body))
    }

    async fn control_run(&mut self, by: &str, run_id: &str, control: &Control) -> Said<String> {
        let client = self.client(by)?;
        let moved = match control.clone() {
            Control::Run { action, approval_id, reason, compensate } => {
                client.control_run(run_id, action, &wire::ControlRun { reason, approval_id, compensate }).await
            }
            Control::Unblock { step, evidence_ref, reason } => {
                let request = wire::EvidencedStep { evidence_ref, reason };
                let acted = client.act_on_step(run_id, &step, "unblock", &request).await;
                return Ok(acted.map_err(refused)?.body.state);
            }
            Control::Declare { step, done, output, reason } => {
                let result = if done { wire::DeclaredResult::Completed } else { wire::DeclaredResult::NotDone };
                let request = wire::DeclareEffect { result, output: parsed(output.as_ref()), reason };
                client.declare_effect(run_id, &step, &request).await
            }
        };
        Ok(moved.map_err(refused)?.body.state)
    }

    async fn act_on_step(&mut self, by: &str, run_id: &str, acting: &Acting) -> Said<String> {
        let client = self.client(by)?;
        let mut body = acting.body.clone();
        if let Some(us) = acting.deadline_in_us {
            body.insert("deadline".to_owned(), rfc3339(self.time.clock().read().wall.0 + us).into());
        }
        if acting.preview {
            let preview = client.preview_step(run_id, &acting.step, &acting.act, &body).await.map_err(refused)?.body;
            return Ok(told(&preview));
        }
        let acted = client.act_on_step(run_id, &acting.step, &acting.act, &body).await;
        Ok(acted.map_err(refused)?.body.state_code)
    }

    async fn open_run_gate(&mut self, by: &str, on: On<'_>) -> Said<Opened> {
        let request =
            wire::OpenGate { action: on.action.to_owned(), reason: on.reason.map(str::to_owned), request: None };
        Ok(opened(self.client(by)?.open_run_gate(on.instance_id, &request).await.map_err(refused)?.body))
    }

    async fn decide_run_gate(&mut self, by: &str, on: On<'_>, decision: Decision) -> Said<Decided> {
        let decision = match decision {
            Decision::Approve => wire::Decision::Approve,
            Decision::Reject => wire::Decision::Reject,
            Decision::Withdraw => wire::Decision::Withdraw,
        };
        let request =
            wire::DecideGate { decision, reason: on.reason.map(str::to_owned), step_id: None, request_digest: None };
        let client = self.client(by)?;
        let decided = client.decide_run_gate(on.instance_id, on.action, &request).await.map_err(refused)?.body;
        Ok(Decided { outcome: word(decided.outcome)?, chain_state: decided.chain_state.map(word).transpose()? })
    }

    async fn read_run(&mut self, by: &str, run_id: &str) -> Said<Value> {
        let view = self.client(by)?.run(run_id).await.map_err(refused)?.body;
        serde_json::to_value(view).map(numbered).map_err(broken)
    }

    /// The server's own executor starts it, in its own time.
    async fn child_of(&mut self, run_id: &str, step: &str) -> Said<String> {
        for _ in 0..6000 {
            if let Some(child) = child_in(&self.read_run(ADMIN, run_id).await?, step)
                // One that it waited for before is still shown until there is another.
                && self.read_run(ADMIN, &child).await?["failed_at"].is_null()
            {
                return Ok(child);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(broken(format!("nobody started the child of `{step}`")))
    }
}

fn told(preview: &wire::Preview) -> String {
    previewed(preview.transition_id.as_deref(), preview.problems.iter().map(|problem| problem.guard.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_went() {
        for us in [0, 951_782_400_000_000, 1_763_236_048_123_456, 1_709_164_800_000_001] {
            assert_eq!(micros(&rfc3339(us)), Some(us));
        }
        assert_eq!(rfc3339(951_782_400_000_000), "2000-02-29T00:00:00.000000Z");
    }
}
