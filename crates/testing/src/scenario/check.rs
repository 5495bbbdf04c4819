//! Compares the statements of a scenario with the reads.

use super::run::Names;
use super::{Check, HistoryLine};
use crate::drive::{ADMIN, Driver, Failure, Record, View};
use serde_json::Value;

pub async fn check(check: &Check, driver: &mut dyn Driver, names: &Names) -> Result<(), String> {
    match check {
        Check::Run(check) => super::run_play::check(check, driver, names).await,
        Check::State { process, state } => {
            let view = view(driver, names, process).await?;
            same(&view.current_state, state)
        }
        Check::Records { process, records } => {
            let found = driver.records(&names.process(process)).await.map_err(works)?;
            let mut found = found.into_iter();
            for (i, (action_ref, actor_ref)) in (1..).zip(records) {
                let Some(record) = found.next() else {
                    return Err(format!("expected {} records, found {}", records.len(), i - 1));
                };
                let by = actor_ref.as_ref().is_none_or(|actor_ref| *actor_ref == record.actor_ref);
                if record.action_ref != *action_ref || !by {
                    let by = actor_ref.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
                    let (action, actor) = (record.action_ref, record.actor_ref);
                    return Err(format!("record {i}: expected {action_ref}{by}, found {action} by {actor}"));
                }
            }
            let rest: Vec<String> = found.map(|record| record.action_ref).collect();
            if rest.is_empty() { Ok(()) } else { Err(format!("{} more records: {}", rest.len(), rest.join(" "))) }
        }
        Check::History { process, entries } => {
            let view = view(driver, names, process).await?;
            let expected: Vec<String> = entries.iter().map(|entry| expected_entry(entry, names)).collect();
            let found: Vec<String> = view.history.iter().map(found_entry).collect();
            same(&found, &expected)
        }
        Check::Inbox { who, items } => {
            let found = driver.inbox(who).await.map_err(works)?;
            let found: Vec<(String, String)> = found.into_iter().map(|item| (item.instance_id, item.action)).collect();
            let expected: Vec<(String, String)> =
                items.iter().map(|(process, action)| (names.process(process), action.clone())).collect();
            same(&found, &expected)
        }
        Check::Gate { process, action, state, fate } => {
            let view = view(driver, names, process).await?;
            let last = view.gates.iter().rev().find(|gate| gate.step.action == *action);
            let gate = last.ok_or_else(|| format!("no gate was ever opened for `{action}`"))?;
            same(&gate.gate_state(), &state.as_str())?;
            fate.as_ref().map_or(Ok(()), |fate| same(&gate.fate, fate))
        }
        Check::Step { step, state, by, reason } => {
            let step_id = names.step(step)?;
            let found = found_step(driver, names, &step_id).await?;
            same(&found.state, state)?;
            by.as_ref().map_or(Ok(()), |by| same(&found.ended_by.as_ref(), &Some(by)))?;
            reason.as_ref().map_or(Ok(()), |reason| same(&found.reason.as_ref(), &Some(reason)))
        }
        Check::Assignment { step, status } => {
            let step_id = names.step(step)?;
            let found = driver.assignments(&step_id).await.map_err(works)?;
            let statuses: Vec<&str> = found.iter().map(|assignment| assignment.status.as_str()).collect();
            same(&statuses, &vec![status.as_str()])
        }
        Check::Purged { record, purged } => {
            let event_id = names.record(driver, record).await.map_err(works)?;
            let super::RecordName::Of { process, .. } = record else { return Err("which process?".to_owned()) };
            let records = driver.records(&names.process(process)).await.map_err(works)?;
            let found = records.iter().find(|record| record.event_id == event_id);
            same(&found.map(|record| record.payload.is_null()), &Some(*purged))
        }
        Check::Payload { process, number, member, value } => {
            let record = record(driver, &names.process(process), *number).await?;
            let Some(found) = record.payload.get(member) else {
                return Err(format!("{} has no member `{member}`: {}", record.action_ref, record.payload));
            };
            let text = match found {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            value.as_ref().map_or(Ok(()), |value| same(&text, &names.substitute(value)))
        }
        Check::Lacks { process, number, member } => {
            let record = record(driver, &names.process(process), *number).await?;
            match record.payload.get(member) {
                None => Ok(()),
                Some(found) => Err(format!("{} has `{member}`: {found}", record.action_ref)),
            }
        }
    }
}

/// That of this number, or the last.
async fn record(driver: &mut dyn Driver, instance_id: &str, number: Option<u64>) -> Result<Record, String> {
    let mut records = driver.records(instance_id).await.map_err(works)?;
    let found = match number {
        None => records.pop(),
        Some(number) => records.into_iter().find(|record| record.sequence == number),
    };
    found.ok_or_else(|| "there is no such record".to_owned())
}

fn works(failure: Failure) -> String {
    failure.to_string()
}

fn same<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("expected {expected:?}, found {found:?}")) }
}

async fn view(driver: &mut dyn Driver, names: &Names, process: &str) -> Result<View, String> {
    driver.read(ADMIN, &names.process(process)).await.map_err(works)
}

/// A step by its id, in whichever process it is.
async fn found_step(driver: &mut dyn Driver, names: &Names, step_id: &str) -> Result<crate::drive::Step, String> {
    for instance_id in names.instances() {
        let steps = driver.approval_steps(&instance_id).await.map_err(works)?;
        if let Some(step) = steps.into_iter().find(|step| step.step_id == step_id) {
            return Ok(step);
        }
    }
    Err(format!("no approval step bears the id {step_id}"))
}

fn expected_entry(entry: &HistoryLine, names: &Names) -> String {
    let HistoryLine { action, from_state, to_state, by, cleared_by } = entry;
    let gate = cleared_by.as_ref().map(|gate| names.gate(gate).unwrap_or_else(|| gate.clone()));
    format!("{action}: {from_state} -> {to_state} by {by}, cleared by {gate:?}")
}

fn found_entry(entry: &crate::drive::Firing) -> String {
    let crate::drive::Firing { action, from_state, to_state, actor_ref, gate_id, .. } = entry;
    format!("{action}: {from_state} -> {to_state} by {actor_ref}, cleared by {gate_id:?}")
}
