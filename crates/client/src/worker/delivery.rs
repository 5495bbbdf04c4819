//! Brings a result to the server: again and again while the lease lasts, since a report under its own lease token is
//! taken once however often it arrives.

use super::lease::Heartbeat;
use super::report::{Category, Failure, Report, Verdict};
use super::{Backoff, is_transient};
use crate::client::Client;
use crate::error::Error;
use crate::wire::{CompleteTask, DeadTask, RetryTask, Task, TaskReported, WaitTask};
use std::time::Duration;
use tokio::time::Instant;

/// A server that takes longer over one report is asked again.
const TRY_FOR: Duration = Duration::from_secs(10);

/// A report about one task.
pub(super) struct Delivery<'a> {
    pub client: &'a Client,
    pub task: &'a Task,
    pub lease: &'a Heartbeat,
    pub lease_ms: Option<i64>,
    pub claim_next: bool,
}

impl Delivery<'_> {
    /// The next task, where there is one. A result that the server will never take becomes a failure of the step:
    /// in silence it would only wait for the lease to expire.
    pub async fn deliver(&self, result: Result<Report, Failure>) -> Option<Task> {
        match self.repeat(&result).await {
            Ok(reported) => reported.and_then(|reported| reported.next),
            Err(error) => {
                let (task_id, step) = (&self.task.task_id, &self.task.step);
                tracing::error!(task_id, step, %error, "the server refuses the result");
                if result.is_ok() {
                    let failure = Failure::retry(format!("the server refused the result: {error}"));
                    if let Err(error) = self.repeat(&Err(failure.category(Category::AgentError))).await {
                        tracing::error!(task_id, step, %error, "the server refuses the failure too");
                    }
                }
                None
            }
        }
    }

    /// `Ok(None)` if the report is no longer needed; an error if the server refused it.
    async fn repeat(&self, result: &Result<Report, Failure>) -> Result<Option<TaskReported>, Error> {
        let mut backoff = Backoff::new();
        let (task_id, step) = (&self.task.task_id, &self.task.step);
        loop {
            let until = self.lease.until();
            let sent = tokio::time::timeout_at(until.min(Instant::now() + TRY_FOR), self.send(result)).await;
            match sent {
                Ok(Ok(reported)) => return Ok(Some(reported)),
                Ok(Err(error)) if matches!(error.code(), Some("lease-lost" | "already-terminal")) => {
                    tracing::warn!(task_id, step, %error, "the result comes too late");
                    return Ok(None);
                }
                Ok(Err(error)) if !is_transient(&error) => return Err(error),
                Ok(Err(error)) => tracing::debug!(task_id, step, %error, "the result is not delivered yet"),
                Err(_) => tracing::debug!(task_id, step, "the result is not delivered yet: no answer"),
            }
            let again = Instant::now() + backoff.next();
            if again >= until {
                tracing::warn!(task_id, step, "the lease is over before the result could be delivered");
                return Ok(None);
            }
            tokio::time::sleep_until(again).await;
        }
    }

    async fn send(&self, result: &Result<Report, Failure>) -> Result<TaskReported, Error> {
        let (client, task_id) = (self.client, self.task.task_id.as_str());
        let lease_token = self.task.lease_token.clone();
        let answer = match result {
            Ok(Report::Completed { output, outbound_events }) => {
                let request = CompleteTask {
                    lease_token,
                    output: Some(output.clone()),
                    outbound_events: some(outbound_events),
                    claim_next: self.claim_next.then_some(true),
                    lease_ms: self.lease_ms.filter(|_| self.claim_next),
                };
                client.complete_task(task_id, &request).await
            }
            Ok(Report::Waiting { event_type, timeout, facet, outbound_events }) => {
                let request = WaitTask {
                    lease_token,
                    waiting_event_type: event_type.clone(),
                    timeout_ms: timeout.map(millis),
                    waiting_facet: facet.map(|facet| facet.as_str().to_owned()),
                    waiting_facets: None,
                    outbound_events: some(outbound_events),
                };
                client.wait_task(task_id, &request).await
            }
            Err(Failure { message, verdict, category }) => {
                let (last_error, error_category) = (message.clone(), category.map(|c| c.as_str().to_owned()));
                match verdict {
                    Verdict::Retry { backoff } => {
                        let backoff_ms = backoff.map(millis);
                        let request = RetryTask { lease_token, last_error, backoff_ms, error_category };
                        client.retry_task(task_id, &request).await
                    }
                    Verdict::Dead => {
                        client.dead_task(task_id, &DeadTask { lease_token, last_error, error_category }).await
                    }
                }
            }
        };
        answer.map(|answer| answer.body)
    }
}

fn some<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

/// Rounded up: a wait that was asked for is never shorter.
pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i64::MAX)
}
