//! What is written to the tables of governance.

use super::Name;
use crate::value::Value;
use countersign_engine::rows::{GovernanceWrite, SignalRow};
use countersign_kernel::governance::{Problem, Signal, Subject};
use countersign_kernel::process::ReplayState;

pub fn values(write: &GovernanceWrite) -> (Name, Vec<Value<'_>>) {
    match write {
        GovernanceWrite::Signal(row) => (Name::ProblemSignal, signal_values(row)),
        GovernanceWrite::TakeSignal { signal_id } => (Name::TakeSignal, vec![Value::Id(*signal_id)]),
        GovernanceWrite::Problem(problem) => (Name::Problem, problem_values(problem)),
        GovernanceWrite::ResolveProblem { problem_id, end } => {
            (Name::ResolveProblem, vec![Value::Id(problem_id.0), Value::Id(end.event_id.0), Value::time(end.at)])
        }
        GovernanceWrite::CountProblems { category, open } => {
            (Name::CountProblems, vec![Value::Text(category.as_str()), Value::count(*open)])
        }
        GovernanceWrite::RequestReplay(row) => (
            Name::ReplayRequest,
            vec![
                Value::Id(row.request_id.0),
                Value::Id(row.dead_letter_id.0),
                Value::Text(&row.requested_by),
                Value::time(row.requested_at),
                Value::Text(row.state.as_str()),
            ],
        ),
        GovernanceWrite::DecideReplay { request_id, state, approval_id } => (
            Name::DecideReplay,
            vec![Value::Id(request_id.0), Value::Text(state.as_str()), Value::optional_id(*approval_id)],
        ),
        GovernanceWrite::CompleteReplay { request_id, end } => (
            Name::CompleteReplay,
            vec![
                Value::Id(request_id.0),
                Value::Text(ReplayState::Completed.as_str()),
                Value::Text(end.outcome.as_str()),
                Value::Id(end.event_id.0),
                Value::time(end.at),
            ],
        ),
    }
}

pub fn signal_values(row: &SignalRow) -> Vec<Value<'_>> {
    let Signal { subject, at, event_id, opens, detail, replay } = &row.signal;
    vec![
        Value::Id(row.signal_id),
        Value::Text(subject.category.as_str()),
        Value::Text(&subject.key),
        Value::Bool(*opens),
        Value::time(*at),
        Value::optional_id(event_id.map(|id| id.0)),
        Value::optional_id(subject.run_id.map(|id| id.0)),
        Value::text(subject.step.as_deref()),
        Value::text(subject.worker_class.as_deref()),
        Value::Text(detail),
        Value::optional_id(replay.map(|replay| replay.request.0)),
        Value::text(replay.map(|replay| replay.outcome.as_str())),
    ]
}

fn problem_values(problem: &Problem) -> Vec<Value<'_>> {
    let Subject { category, key, run_id, step, worker_class } = &problem.subject;
    vec![
        Value::Id(problem.problem_id.0),
        Value::Text(category.as_str()),
        Value::Text(key),
        Value::time(problem.since),
        Value::Id(problem.opened_event_id.0),
        Value::optional_id(run_id.map(|id| id.0)),
        Value::text(step.as_deref()),
        Value::text(worker_class.as_deref()),
        Value::Text(&problem.detail),
    ]
}
