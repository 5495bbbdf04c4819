//! What is written to the tables of governance.

use super::Name;
use crate::value::Value;
use countersign_engine::rows::{GovernanceWrite, SignalRow};
use countersign_kernel::governance::{Problem, Signal, Subject};

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
    }
}

pub fn signal_values(row: &SignalRow) -> Vec<Value<'_>> {
    let Signal { subject, at, event_id, opens, detail } = &row.signal;
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
