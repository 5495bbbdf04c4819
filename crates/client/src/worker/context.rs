//! What a handler is given: its task, and the lease under which it holds it.

use super::lease::Heartbeat;
use super::report::{Category, Failure};
use crate::wire::Task;
use serde::de::DeserializeOwned;

/// One attempt at one step.
#[derive(Clone, Debug)]
pub struct TaskContext {
    task: Task,
    heartbeat: Heartbeat,
}

/// Why the step was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskType {
    /// It is its turn, or it was woken, or it is tried again.
    ReadyStep,
    /// What it waited for did not come in time.
    WaitingTimeout,
    /// The step is to be undone.
    Compensation,
}

impl TaskContext {
    pub(super) fn new(task: Task, heartbeat: Heartbeat) -> Self {
        TaskContext { task, heartbeat }
    }

    /// The task as it came over the wire.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// The step's name; for a compensation, that of the step to be undone.
    pub fn step(&self) -> &str {
        &self.task.step
    }

    pub fn run_id(&self) -> &str {
        &self.task.run_id
    }

    pub fn task_type(&self) -> TaskType {
        TaskType::of(&self.task)
    }

    /// Counted from 1.
    pub fn attempt(&self) -> u32 {
        self.task.attempt
    }

    /// Whether a retry from here would only end the step.
    pub fn is_last_attempt(&self) -> bool {
        self.task.attempt >= self.task.max_attempts
    }

    /// The same for every attempt at this step: pass it on to whatever must not be done twice.
    pub fn idempotency_key(&self) -> &str {
        &self.task.idempotency_key
    }

    /// The step's input. One that does not fit will not fit at the next attempt either, so the failure is final.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        T::deserialize(&self.task.input).map_err(|error| unfit("input", &error))
    }

    /// The data of the event that woke the step, if one did.
    pub fn event<T: DeserializeOwned>(&self) -> Result<Option<T>, Failure> {
        let event = self.task.event.as_ref();
        event.map(T::deserialize).transpose().map_err(|error| unfit("event", &error))
    }

    pub fn heartbeat(&self) -> &Heartbeat {
        &self.heartbeat
    }
}

impl TaskType {
    pub(super) fn of(task: &Task) -> Self {
        match task.task_type.as_str() {
            "COMPENSATION" => TaskType::Compensation,
            "WAITING_TIMEOUT" => TaskType::WaitingTimeout,
            _ => TaskType::ReadyStep,
        }
    }
}

fn unfit(what: &str, error: &serde_json::Error) -> Failure {
    Failure::dead(format!("the {what} is not what this handler understands: {error}")).category(Category::Validation)
}
