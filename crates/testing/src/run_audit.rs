//! The checks of an outside auditor on a run, from its records alone: every change is a declared transition, each
//! begins in the state where the one before it ended, and together they lead to the view.

use crate::drive::{ADMIN, Driver, Failure, Record};
use countersign_kernel::lifecycle::{RUN_TRANSITIONS, STEP_TRANSITIONS};
use serde_json::Value;

pub async fn audit(driver: &mut dyn Driver, run_id: &str) -> Result<(), String> {
    let works = |failure: Failure| failure.to_string();
    let mut records = driver.records(run_id).await.map_err(works)?;
    loop {
        let view = driver.read_run(ADMIN, run_id).await.map_err(works)?;
        let now = driver.records(run_id).await.map_err(works)?;
        // The engine may have gone on by itself between the two reads.
        if now.len() == records.len() {
            examine(&view, &records)?;
            break;
        }
        records = now;
    }
    driver.verify(run_id).await.map_err(works)
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_default()
}

fn list<'v>(value: &'v Value, member: &str) -> impl Iterator<Item = &'v Value> {
    value[member].as_array().into_iter().flatten()
}

pub fn examine(view: &Value, records: &[Record]) -> Result<(), String> {
    let Some(first) = records.first() else { return Err("a run without records".to_owned()) };
    if first.action_ref != "run_started" {
        return Err(format!("the records begin with {}", first.action_ref));
    }
    let number = |member: &str| first.payload[member].as_u64().unwrap_or(0);
    let count = number("steps") + number("tasks");
    // Steps that were taken over from another run began as they ended there.
    let mut steps: Vec<Option<String>> = match first.payload.get("continues") {
        Some(_) => (0..count).map(|_| None).collect(),
        None => (0..count).map(|_| Some("not_started".to_owned())).collect(),
    };
    let mut run = "idle".to_owned();
    for (number, record) in (1..).zip(records) {
        if record.sequence != number {
            return Err(format!("record {number} bears the number {}", record.sequence));
        }
        for _ in list(&record.payload, "compensations") {
            steps.push(Some("not_started".to_owned()));
        }
        for line in list(&record.payload, "transitions") {
            for seq in seqs(line) {
                let Some(state) = steps.get_mut(seq) else { return Err(format!("no step {seq}: {line}")) };
                if !is_declared(line) || state.as_deref().is_some_and(|state| state != text(line, "from")) {
                    return Err(format!("record {number}: step {seq} is {state:?}, then {line}"));
                }
                *state = Some(text(line, "to").to_owned());
            }
        }
        for line in list(&record.payload, "run_transitions") {
            let (id, from, to, trigger) =
                (text(line, "id"), text(line, "from"), text(line, "to"), text(line, "trigger"));
            let declared = RUN_TRANSITIONS
                .iter()
                .any(|t| t.id == id && t.from.as_str() == from && t.to.as_str() == to && t.trigger == trigger);
            if !declared || from != run {
                return Err(format!("record {number}: the run is {run}, then {line}"));
            }
            to.clone_into(&mut run);
        }
    }
    if run != text(view, "state") {
        return Err(format!("the records lead to {run}, the view shows {}", view["state"]));
    }
    let shown: Vec<&str> = list(view, "steps").map(|step| text(step, "state_code")).collect();
    let agree = shown.len() == steps.len()
        && shown.iter().zip(&steps).all(|(shown, told)| told.as_deref().is_none_or(|told| told == *shown));
    if agree { Ok(()) } else { Err(format!("the records lead to {steps:?}, the view shows {shown:?}")) }
}

/// One step, or ranges of them: `0-3,7`.
fn seqs(line: &Value) -> Vec<usize> {
    let number = |text: &str| text.parse::<usize>().unwrap_or(usize::MAX);
    match line["step_seq"].as_u64() {
        Some(seq) => vec![usize::try_from(seq).unwrap_or(usize::MAX)],
        None => text(line, "step_seqs")
            .split(',')
            .flat_map(|range| match range.split_once('-') {
                Some((first, last)) => (number(first)..=number(last)).collect::<Vec<_>>(),
                None => vec![number(range)],
            })
            .collect(),
    }
}

fn is_declared(line: &Value) -> bool {
    // The person in charge of a task may what that of a step may.
    let class = if text(line, "actor_class") == "task_pic_human" { "pic_human" } else { text(line, "actor_class") };
    STEP_TRANSITIONS.iter().any(|t| {
        t.id == text(line, "id")
            && t.from.iter().any(|from| from.as_str() == text(line, "from"))
            && t.to.as_str() == text(line, "to")
            && t.actors.iter().any(|actor| actor.as_str() == class)
            && t.triggers.contains(&text(line, "trigger"))
    })
}
