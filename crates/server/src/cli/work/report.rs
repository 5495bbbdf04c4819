//! The result of a command as a report of the worker protocol.

use countersign_client::wire::{CompleteTask, DeadTask, OutboundEvent, RetryTask, Task, TaskReported, WaitTask};
use countersign_client::{Answer, Client, Error};
use countersign_executor::Verdict;
use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::run::{Facet, Outbound};
use std::time::Duration;

/// Sends it once.
pub async fn send(client: &Client, task: &Task, ended: &Verdict) -> Result<Answer<TaskReported>, Error> {
    let lease_token = task.lease_token.clone();
    let named = |category: &Option<FailureCategory>| category.map(|category| category.as_str().to_owned());
    match ended {
        Verdict::Completed { output_json, outbound, .. } => {
            let output = serde_json::from_str(output_json).ok();
            let outbound_events = events(outbound);
            let request = CompleteTask { lease_token, output, outbound_events, ..CompleteTask::default() };
            client.complete_task(&task.task_id, &request).await
        }
        Verdict::Waiting { event_type, timeout, facet, outbound } => {
            let request = WaitTask {
                lease_token,
                waiting_event_type: event_type.clone(),
                timeout_ms: timeout.map(millis),
                waiting_facet: facet.map(Facet::as_str).map(str::to_owned),
                waiting_facets: None,
                outbound_events: events(outbound),
            };
            client.wait_task(&task.task_id, &request).await
        }
        Verdict::Retry { last_error, backoff, category } => {
            let (last_error, error_category) = (last_error.clone(), named(category));
            let request = RetryTask { lease_token, last_error, backoff_ms: backoff.map(millis), error_category };
            client.retry_task(&task.task_id, &request).await
        }
        Verdict::Dead { last_error, category } => {
            let request = DeadTask { lease_token, last_error: last_error.clone(), error_category: named(category) };
            client.dead_task(&task.task_id, &request).await
        }
        Verdict::Unknown { instead } => Box::pin(send(client, task, instead)).await,
    }
}

/// The verb, and what it says, for a line on the terminal.
pub fn told(ended: &Verdict) -> (&'static str, String) {
    match ended {
        Verdict::Completed { output_json, .. } => ("completed", output_json.clone()),
        Verdict::Waiting { event_type, timeout, .. } => {
            let event = event_type.as_ref().map(|event| format!("for {event}"));
            let timeout = timeout.map(|timeout| format!("at most {timeout:?}"));
            ("waiting", event.into_iter().chain(timeout).collect::<Vec<_>>().join(", "))
        }
        Verdict::Retry { last_error, .. } => ("retry", last_error.clone()),
        Verdict::Dead { last_error, .. } => ("dead", last_error.clone()),
        Verdict::Unknown { instead } => told(instead),
    }
}

fn events(outbound: &[Outbound]) -> Option<Vec<OutboundEvent>> {
    let event = |event: &Outbound| OutboundEvent {
        event_type: event.event_type.clone(),
        data: serde_json::from_str(&event.data).ok(),
    };
    (!outbound.is_empty()).then(|| outbound.iter().map(event).collect())
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
