//! Carries out what a scenario does with runs, and compares what it says of them with what the reads answer.

use super::Expected;
use super::run::{NOBODYS_ID, Names};
use super::runs::{LeaseName, RunAct, RunCheck, TaskLine, Wanted};
use crate::drive::{
    ADMIN, Acting, Addressed, ClaimWish, Control, Driver, Failure, On, Opened, OpenedStep, RunStart, Said, SentEvent,
    TaskOf, TaskSeen, broken, micros,
};
use serde_json::Value;
use std::collections::HashMap;

/// The runs that a scenario has named so far, and the leases that their steps have had.
#[derive(Default)]
pub struct RunNames {
    pub ids: HashMap<String, String>,
    leases: HashMap<(String, u32), Vec<String>>,
}

impl RunNames {
    fn name(&self, run_id: &str) -> Option<String> {
        self.ids.iter().find(|(_, id)| *id == run_id).map(|(name, _)| name.clone())
    }

    fn took(&mut self, task: &TaskSeen) -> TaskLine {
        self.leases.entry((task.run_id.clone(), task.step_seq)).or_default().push(task.lease_token.clone());
        TaskLine {
            run: self.name(&task.run_id),
            step: task.step.clone(),
            attempt: Some(task.attempt),
            task_type: Some(task.task_type.clone()),
            input: Some(task.input.clone()),
        }
    }

    fn lease(&self, run_id: &str, seq: u32, name: &LeaseName) -> String {
        let had = self.leases.get(&(run_id.to_owned(), seq));
        let token = match name {
            LeaseName::Text(text) => return text.clone(),
            LeaseName::First => had.and_then(|tokens| tokens.first()),
            LeaseName::Last => had.and_then(|tokens| tokens.last()),
        };
        token.cloned().unwrap_or_else(|| NOBODYS_ID.to_owned())
    }
}

/// The control, with the approval that a name stands for.
fn approved(control: &Control, names: &Names) -> Control {
    match control.clone() {
        Control::Run { action, approval_id, reason, compensate } => {
            let approval_id = approval_id.map(|approval_id| names.substitute(&approval_id));
            Control::Run { action, approval_id, reason, compensate }
        }
        other => other,
    }
}

pub async fn perform(driver: &mut dyn Driver, names: &mut Names, who: &str, act: &RunAct) -> Said<Expected> {
    match act {
        RunAct::Start { name, start } => {
            let start = RunStart {
                corrects: start.corrects.as_ref().map(|run| names.process(run)),
                from_step: start.from_step.as_ref().map(|(run, step)| (names.process(run), step.clone())),
                ..start.clone()
            };
            let run_id = driver.start_run(who, &start).await?;
            names.runs.ids.insert(name.clone(), run_id);
            Ok(Expected::Ok)
        }
        RunAct::Claim { queue, max, lease_us } => {
            let wish = ClaimWish { queue: queue.clone(), worker_id: who.to_owned(), max: *max, lease_us: *lease_us };
            let tasks = driver.claim(who, &wish).await?;
            Ok(Expected::Tasks(tasks.iter().map(|task| names.runs.took(task)).collect()))
        }
        RunAct::Preview(act) => match &**act {
            RunAct::Report { run, step, lease, report } => {
                let run_id = names.process(run);
                let step_seq = seq_of(driver, &run_id, step).await;
                let lease_token = names.runs.lease(&run_id, step_seq, lease);
                let task = TaskOf { run_id: &run_id, step_seq, lease_token: &lease_token };
                driver.preview_report(who, task, report).await.map(Expected::NewState)
            }
            RunAct::Control { run, control } => {
                let control = approved(control, names);
                driver.preview_control(who, &names.process(run), &control).await.map(Expected::NewState)
            }
            other => Err(broken(format!("{} has no preview", other.name()))),
        },
        RunAct::Report { run, step, lease, report } => {
            let run_id = names.process(run);
            let step_seq = seq_of(driver, &run_id, step).await;
            let lease_token = names.runs.lease(&run_id, step_seq, lease);
            let task = TaskOf { run_id: &run_id, step_seq, lease_token: &lease_token };
            let reported = driver.report(who, task, report).await?;
            let next = reported.next.as_ref().map(|task| names.runs.took(task));
            Ok(Expected::Reported { state: reported.state_code, next })
        }
        RunAct::Send { event } => {
            let to = match &event.to {
                Addressed::Run(run) => Addressed::Run(names.process(run)),
                key @ Addressed::Key(_) => key.clone(),
            };
            let woken = driver.send_event(who, &SentEvent { to, ..event.clone() }).await?;
            Ok(Expected::Woke { duplicate: woken.duplicate, steps: woken.steps })
        }
        RunAct::Control { run, control } => {
            let control = approved(control, names);
            driver.control_run(who, &names.process(run), &control).await.map(Expected::NewState)
        }
        RunAct::OnStep { run, acting } => {
            let body = names.substitute(&Value::Object(acting.body.clone()).to_string());
            let body = serde_json::from_str(&body).map_err(broken)?;
            let acting = Acting { body, ..acting.clone() };
            driver.act_on_step(who, &names.process(run), &acting).await.map(Expected::NewState)
        }
        RunAct::Open { on, name } => {
            let id = names.process(&on.process);
            let on = On { instance_id: &id, action: &on.action, reason: on.reason.as_deref() };
            let opened = driver.open_run_gate(who, on).await?;
            names.opened(name.as_deref(), opened);
            Ok(Expected::Ok)
        }
        RunAct::Decide { on, decision } => {
            let id = names.process(&on.process);
            let on = On { instance_id: &id, action: &on.action, reason: on.reason.as_deref() };
            let decided = driver.decide_run_gate(who, on, *decision).await?;
            Ok(Expected::Decided { outcome: decided.outcome, chain_state: decided.chain_state })
        }
        RunAct::Read { run } => driver.read_run(who, &names.process(run)).await.map(|_| Expected::Ok),
    }
}

/// `undo:NAME` for a compensation.
fn shown_name(step: &Value) -> String {
    let name = step["name"].as_str().unwrap_or_default();
    if step["role"] == "compensation" { format!("undo:{name}") } else { name.to_owned() }
}

fn steps(view: &Value) -> impl Iterator<Item = &Value> {
    view["steps"].as_array().into_iter().flatten()
}

/// A time of a step, in microseconds.
pub async fn time_of(driver: &mut dyn Driver, run_id: &str, step: &str, member: &str) -> Result<i64, String> {
    let view = driver.read_run(ADMIN, run_id).await.map_err(|failure| failure.to_string())?;
    let found = steps(&view).find(|seen| shown_name(seen) == step).and_then(|seen| seen[member].as_i64());
    found.ok_or_else(|| format!("`{step}` has no time `{member}`"))
}

/// The gate of this action that was opened last, by any actor.
pub async fn newest_gate(driver: &mut dyn Driver, run_id: &str, action: &str) -> Result<Opened, String> {
    let records = driver.records(run_id).await.map_err(|failure| failure.to_string())?;
    let opened = records.iter().rev().find(|r| r.action_ref == "gate_opened" && r.payload["action"] == action);
    let payload = &opened.ok_or_else(|| format!("no gate `{action}` was opened"))?.payload;
    let step = |step: &Value| OpenedStep {
        step_id: step["step_id"].as_str().unwrap_or_default().to_owned(),
        approver_ref: step["approver_ref"].as_str().unwrap_or_default().to_owned(),
    };
    Ok(match payload["steps"].as_array() {
        Some(steps) => Opened { chain_id: None, steps: steps.iter().map(step).collect() },
        None => Opened { chain_id: None, steps: vec![step(payload)] },
    })
}

/// A step that there is not has a number that there is not.
async fn seq_of(driver: &mut dyn Driver, run_id: &str, step: &str) -> u32 {
    let view = driver.read_run(ADMIN, run_id).await.unwrap_or_default();
    let found = steps(&view).find(|seen| shown_name(seen) == step).and_then(|seen| seen["step_seq"].as_u64());
    found.and_then(|seq| u32::try_from(seq).ok()).unwrap_or(99_999)
}

/// Whether what was handed out is what was expected, as far as that was said.
pub fn tasks_fit(found: &[TaskLine], expected: &[TaskLine]) -> bool {
    fn said<T: PartialEq>(found: &Option<T>, expected: &Option<T>) -> bool {
        expected.is_none() || found == expected
    }
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, expected)| {
            found.step == expected.step
                && said(&found.run, &expected.run)
                && said(&found.attempt, &expected.attempt)
                && said(&found.task_type, &expected.task_type)
                && said(&found.input, &expected.input)
        })
}

pub fn show_task(task: &TaskLine) -> String {
    let mut text = task.step.clone();
    if let Some(run) = &task.run {
        text = format!("{run}/{text}");
    }
    if let Some(attempt) = task.attempt {
        text += &format!(" attempt {attempt}");
    }
    if let Some(task_type) = &task.task_type {
        text += &format!(" {task_type}");
    }
    if let Some(input) = &task.input {
        text += &format!(" with {input}");
    }
    text
}

pub async fn check(check: &RunCheck, driver: &mut dyn Driver, names: &Names) -> Result<(), String> {
    let works = |failure: Failure| failure.to_string();
    match check {
        RunCheck::Run { run, state, members } => {
            let run_id = names.process(run);
            let view = driver.read_run(ADMIN, &run_id).await.map_err(works)?;
            same("the run is", view["state"].as_str().unwrap_or_default(), state)?;
            fit(&view, members, newest(driver, &run_id).await?, names)
        }
        RunCheck::Step { run, step, state, members } => {
            let run_id = names.process(run);
            let view = driver.read_run(ADMIN, &run_id).await.map_err(works)?;
            let found = steps(&view).find(|seen| shown_name(seen) == *step);
            let found = found.ok_or_else(|| format!("there is no step {step}"))?;
            same("the step is", found["state_code"].as_str().unwrap_or_default(), state)?;
            fit(found, members, newest(driver, &run_id).await?, names)
        }
        RunCheck::Steps { run, steps: expected } => {
            let view = driver.read_run(ADMIN, &names.process(run)).await.map_err(works)?;
            let text = |(name, state): (String, &str)| format!("{name}/{state}");
            let found: Vec<String> =
                steps(&view).map(|s| text((shown_name(s), s["state_code"].as_str().unwrap_or_default()))).collect();
            let expected: Vec<String> = expected.iter().map(|(name, state)| text((name.clone(), state))).collect();
            same("the steps are", &found.join(" "), &expected.join(" "))
        }
        RunCheck::Fires { run, number, ids } => {
            let records = driver.records(&names.process(run)).await.map_err(works)?;
            let record = match number {
                None => records.last(),
                Some(number) => records.iter().find(|record| record.sequence == *number),
            };
            let record = record.ok_or("there is no such record")?;
            let ids_in = |member: &str| {
                let lines = record.payload[member].as_array().into_iter().flatten();
                lines.filter_map(|line| line["id"].as_str().map(str::to_owned)).collect::<Vec<_>>()
            };
            let found = [ids_in("transitions"), ids_in("run_transitions")].concat();
            same(&format!("{} fires", record.action_ref), &found.join(" "), &ids.join(" "))
        }
    }
}

fn same(what: &str, found: &str, expected: &str) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what} `{found}`, expected `{expected}`")) }
}

/// When the last record was written.
async fn newest(driver: &mut dyn Driver, run_id: &str) -> Result<i64, String> {
    let records = driver.records(run_id).await.map_err(|failure| failure.to_string())?;
    let text = records.last().map(|record| record.recorded_at.as_str()).unwrap_or_default();
    text.parse().ok().or_else(|| micros(text)).ok_or_else(|| format!("`{text}` is no time"))
}

fn fit(view: &Value, members: &[(String, Wanted)], newest: i64, names: &Names) -> Result<(), String> {
    for (name, wanted) in members {
        // `rollup.counts.red` is a way into the view.
        let deep = || name.split('.').try_fold(view, |value, part| value.get(part));
        let found = view.get(name).or_else(|| view.get("views").and_then(|views| views.get(name))).or_else(deep);
        let fits = match (found, wanted) {
            (None, Wanted::Absent) => true,
            (None, _) | (Some(_), Wanted::Absent) => false,
            (Some(found), Wanted::Json(wanted)) => found == wanted,
            (Some(found), Wanted::After(us)) => found.as_i64() == Some(newest + us),
            (Some(Value::String(found)), Wanted::Text(wanted)) => *found == names.substitute(wanted),
            (Some(found), Wanted::Text(wanted)) => {
                serde_json::from_str::<Value>(wanted).is_ok_and(|wanted| *found == wanted)
            }
        };
        if !fits {
            let since = found.and_then(Value::as_i64).filter(|_| matches!(wanted, Wanted::After(_)));
            let since = since.map(|at| format!(" ({} us after the last record)", at - newest)).unwrap_or_default();
            let found = found.map_or("nothing".to_owned(), ToString::to_string);
            return Err(format!("`{name}` is {found}{since}, expected {wanted:?}"));
        }
    }
    Ok(())
}
