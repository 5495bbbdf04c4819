//! Carries out a scenario at one level. Besides what the scenario itself expects, every refusal must
//! leave the records as they were, every accepted action on a process must add to them, and at the end
//! an auditor goes over each process.

use super::check::check;
use super::run_play::{self, RunNames, show_task, tasks_fit};
use super::{Act, Expected, Line, NOWHERE, REGISTRY, RecordName, Scenario, StepName, Target, What};
use crate::drive::{ADMIN, Driver, Failure, HoldOn, Level, On, Opened, Said};
use crate::{audit, run_audit};
use std::collections::HashMap;

/// A well-formed id that was never issued.
pub const NOBODYS_ID: &str = "019a8000-0000-7000-8000-00000000dead";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Straight,
    /// Stop and start again before every line: all that matters is stored.
    RestartBeforeEveryLine,
}

/// The names that a scenario has given so far.
#[derive(Default)]
pub struct Names {
    pub runs: RunNames,
    processes: HashMap<String, String>,
    gates: HashMap<String, Opened>,
    /// (subject, scope, grant_id) of the grants that stand, oldest first.
    grants: Vec<(String, String, String)>,
    /// The same, of those that were revoked.
    revoked: Vec<(String, String, String)>,
    records: HashMap<String, usize>,
    holds: HashMap<String, String>,
}

impl Names {
    /// The id of a process; a name that stands for none is sent as it is.
    pub fn process(&self, name: &str) -> String {
        match self.processes.get(name).or_else(|| self.runs.ids.get(name)) {
            Some(id) => id.clone(),
            None if name == NOWHERE => NOBODYS_ID.to_owned(),
            None if name == REGISTRY => uuid::Uuid::nil().to_string(),
            None => name.to_owned(),
        }
    }

    pub fn opened(&mut self, name: Option<&str>, opened: Opened) {
        self.gates.extend(name.map(|name| (name.to_owned(), opened)));
    }

    pub fn instances(&self) -> Vec<String> {
        self.processes.values().cloned().collect()
    }

    pub fn step(&self, name: &StepName) -> Result<String, String> {
        let Some(opened) = self.gates.get(&name.gate) else { return Ok(name.gate.clone()) };
        let found = match &name.approver {
            None => opened.steps.first().filter(|_| opened.steps.len() == 1),
            Some(approver) => opened.steps.iter().find(|step| step.approver_ref == *approver),
        };
        found.map(|step| step.step_id.clone()).ok_or_else(|| format!("which step of `{}`?", name.gate))
    }

    /// The chain, or the one step.
    pub fn gate(&self, name: &str) -> Option<String> {
        let opened = self.gates.get(name)?;
        opened.chain_id.clone().or_else(|| opened.steps.first().map(|step| step.step_id.clone()))
    }

    /// The event_id of a record. One that there is not has nobody's id.
    pub async fn record(&self, driver: &mut dyn Driver, name: &RecordName) -> Said<String> {
        match name {
            RecordName::Text(text) => Ok(text.clone()),
            RecordName::Of { process, .. } if process == NOWHERE => Ok(NOBODYS_ID.to_owned()),
            RecordName::Of { process, number } => {
                let records = driver.records(&self.process(process)).await?;
                let found = records.into_iter().find(|record| record.sequence == *number);
                found
                    .map(|record| record.event_id)
                    .ok_or_else(|| Failure::Broken(format!("there is no record {number} of {process}")))
            }
        }
    }

    /// `$B` is the id of process B, `$first` that of the gate `first`.
    pub fn substitute(&self, text: &str) -> String {
        let instances = self.processes.iter().chain(&self.runs.ids);
        let mut names: Vec<(&String, String)> = instances.map(|(name, id)| (name, id.clone())).collect();
        names.extend(self.gates.keys().filter_map(|name| self.gate(name).map(|id| (name, id))));
        // The longest first, so that `$B2` is not taken for `$B`.
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        names.iter().fold(text.to_owned(), |text, (name, id)| text.replace(&format!("${name}"), id))
    }
}

/// `Err` says where and what: `scenarios/x.txt:12: …`.
pub async fn run(scenario: &Scenario, driver: &mut dyn Driver, pace: Pace) -> Result<(), String> {
    let mut names = Names::default();
    for line in &scenario.lines {
        let at = |message: String| format!("{}:{}: {message}", scenario.file, line.number);
        if line.only_over_http && driver.level() != Level::Http {
            continue;
        }
        if pace == Pace::RestartBeforeEveryLine {
            driver.restart().await.map_err(|failure| at(format!("restart: {failure}")))?;
        }
        carry_out(line, driver, &mut names).await.map_err(at)?;
    }
    let mut processes: Vec<(&String, &String)> = names.processes.iter().collect();
    processes.sort();
    for (name, instance_id) in processes {
        audit::audit(driver, instance_id)
            .await
            .map_err(|finding| format!("{}: process {name}: {finding}", scenario.file))?;
    }
    for (name, run_id) in &names.runs.ids {
        let audited = run_audit::audit(driver, run_id).await;
        audited.map_err(|finding| format!("{}: run {name}: {finding}", scenario.file))?;
    }
    Ok(())
}

async fn carry_out(line: &Line, driver: &mut dyn Driver, names: &mut Names) -> Result<(), String> {
    let works = |failure: Failure| format!("{failure}");
    match &line.what {
        What::Actor { name, scopes } => {
            driver.register(name).await.map_err(works)?;
            for scope in scopes {
                let grant_id = driver.grant(ADMIN, name, scope).await.map_err(works)?;
                names.grants.push((name.clone(), scope.clone(), grant_id));
            }
            Ok(())
        }
        What::Definition { document } => driver.publish(ADMIN, document).await.map_err(works),
        What::Restart => driver.restart().await.map_err(works),
        What::Policy { name } => driver.keep_under(name).await.map_err(works),
        What::Child { name, run, step } => {
            let child = driver.child_of(&names.process(run), step).await.map_err(works)?;
            names.runs.ids.insert(name.clone(), child);
            Ok(())
        }
        What::Approval { name, run, action } => {
            let opened = run_play::newest_gate(driver, &names.process(run), action).await?;
            names.opened(Some(name), opened);
            Ok(())
        }
        What::Pass { us } => driver.pass(*us).await.map_err(works),
        What::PassUntil { us, run, step, member } => {
            let since = run_play::time_of(driver, &names.process(run), step, member).await?;
            driver.pass_until(since + us).await.map_err(works)
        }
        What::Act { who, act: Act::Run(act), expected } => {
            let before = counts(driver, names).await?;
            let answer = run_play::perform(driver, names, who, act).await;
            compare(&answer, expected)?;
            let after = counts(driver, names).await?;
            let refused = answer.is_err() && before != after;
            if refused {
                Err(format!("refused, but the records of runs went from {before:?} to {after:?}"))
            } else {
                Ok(())
            }
        }
        What::Act { who, act, expected } => {
            let answer = perform(driver, names, who, act).await;
            compare(&answer, expected)?;
            recorded(driver, names, act, answer.is_ok()).await
        }
        What::Check(expected) => check(expected, driver, names).await,
    }
}

/// How many records each run has.
async fn counts(driver: &mut dyn Driver, names: &Names) -> Result<Vec<(String, usize)>, String> {
    let mut counts = vec![];
    for (name, run_id) in &names.runs.ids {
        let records = driver.records(run_id).await.map_err(|failure| failure.to_string())?;
        counts.push((name.clone(), records.len()));
    }
    Ok(counts)
}

async fn perform(driver: &mut dyn Driver, names: &mut Names, who: &str, act: &Act) -> Said<Expected> {
    match act {
        Act::Start { name, start } => {
            let instance_id = driver.start(who, start).await?;
            names.processes.insert(name.clone(), instance_id);
            Ok(Expected::Ok)
        }
        Act::Open { on, name } => {
            let id = names.process(&on.process);
            let opened = driver.open_gate(who, of(on, &id)).await?;
            if let Some(name) = name {
                names.gates.insert(name.clone(), opened);
            }
            Ok(Expected::Ok)
        }
        Act::Decide { on, decision, step } => {
            let id = names.process(&on.process);
            let step = step.as_ref().map(|step| names.step(step)).transpose().map_err(Failure::Broken)?;
            let decided = driver.decide_gate(who, of(on, &id), *decision, step.as_deref()).await?;
            Ok(Expected::Decided { outcome: decided.outcome, chain_state: decided.chain_state })
        }
        Act::Fire { on } => {
            let id = names.process(&on.process);
            driver.fire(who, of(on, &id)).await.map(Expected::NewState)
        }
        Act::Read { process } => {
            let id = names.process(process);
            driver.read(who, &id).await.map(|_| Expected::Ok)
        }
        Act::Grant { subject, scope } => {
            let grant_id = driver.grant(who, subject, scope).await?;
            names.grants.push((subject.clone(), scope.clone(), grant_id));
            Ok(Expected::Ok)
        }
        Act::Revoke { subject, scope } => {
            let is_it = |grant: &(String, String, String)| grant.0 == *subject && grant.1 == *scope;
            let standing = names.grants.iter().position(is_it);
            // Where none stands: the one that was revoked last, or one that never was.
            let grant_id = match standing {
                Some(i) => names.grants[i].2.clone(),
                None => names.revoked.iter().rfind(|grant| is_it(grant)).map_or(NOBODYS_ID.to_owned(), |g| g.2.clone()),
            };
            driver.revoke(who, &grant_id).await?;
            names.revoked.extend(standing.map(|i| names.grants.remove(i)));
            Ok(Expected::Ok)
        }
        Act::Hold { record, name, reason, case } => {
            let record_ref = names.record(driver, record).await?;
            let hold = HoldOn { record_ref: &record_ref, reason, case_ref: case.as_deref() };
            let hold_id = driver.place_hold(who, hold).await?;
            names.holds.extend(name.clone().map(|name| (name, hold_id)));
            Ok(Expected::Ok)
        }
        Act::Release { hold, reason } => {
            let hold_id = names.holds.get(hold).cloned().unwrap_or_else(|| names.process(hold));
            driver.release_hold(who, &hold_id, reason.as_deref()).await.map(|()| Expected::Ok)
        }
        Act::Purge { record } => {
            let event_id = names.record(driver, record).await?;
            driver.purge(who, &event_id).await.map(|()| Expected::Ok)
        }
        Act::Get { path } => {
            let path = names.substitute(path);
            driver.request(who, &path, None).await.map(|_| Expected::Ok)
        }
        Act::Post { path, body } => {
            let (path, body) = (names.substitute(path), names.substitute(body));
            driver.request(who, &path, Some(&body)).await.map(|_| Expected::Ok)
        }
        Act::Run(act) => run_play::perform(driver, names, who, act).await,
    }
}

fn of<'a>(on: &'a Target, instance_id: &'a str) -> On<'a> {
    On { instance_id, action: &on.action, reason: on.reason.as_deref() }
}

fn compare(answer: &Said<Expected>, expected: &Expected) -> Result<(), String> {
    let fits = match (answer, expected) {
        (Err(Failure::Refused(refusal)), Expected::Refused { code, at, guard }) => {
            let named = |guard: &String| refusal.detail.contains(&format!("the guard `{guard}`"));
            refusal.code == *code
                && guard.as_ref().is_none_or(named)
                && at.as_deref().is_none_or(|at| refusal.field.as_deref() == Some(at))
        }
        (
            Ok(Expected::Decided { outcome, chain_state }),
            Expected::Decided { outcome: expected, chain_state: expected_state },
        ) => outcome == expected && (expected_state.is_none() || chain_state == expected_state),
        (Ok(Expected::Tasks(found)), Expected::Tasks(expected)) => tasks_fit(found, expected),
        (Ok(Expected::Reported { state, next }), Expected::Reported { state: expected, next: expected_next }) => {
            state == expected && tasks_fit(next.as_slice(), expected_next.as_slice())
        }
        (Ok(answer), expected) => answer == expected,
        (Err(_), _) => false,
    };
    if fits {
        return Ok(());
    }
    let said = match answer {
        Ok(answer) => show(answer),
        Err(Failure::Refused(refusal)) => {
            let field = refusal.field.as_deref().map(|field| format!(" at {field}")).unwrap_or_default();
            format!("{}{field} ({})", refusal.code, refusal.detail)
        }
        Err(failure) => failure.to_string(),
    };
    Err(format!("expected {}, got {said}", show(expected)))
}

fn show(expected: &Expected) -> String {
    match expected {
        Expected::Ok => "ok".to_owned(),
        Expected::NewState(state) => format!("the state `{state}`"),
        Expected::Decided { outcome, chain_state: None } => outcome.clone(),
        Expected::Decided { outcome, chain_state: Some(state) } => format!("{outcome}, chain {state}"),
        Expected::Tasks(tasks) if tasks.is_empty() => "nothing".to_owned(),
        Expected::Tasks(tasks) => tasks.iter().map(show_task).collect::<Vec<_>>().join(", "),
        Expected::Reported { state, next: None } => state.clone(),
        Expected::Reported { state, next: Some(next) } => format!("{state} then {}", show_task(next)),
        Expected::Woke { duplicate: true, .. } => "duplicate".to_owned(),
        Expected::Woke { steps, .. } if steps.is_empty() => "nothing".to_owned(),
        Expected::Woke { steps, .. } => format!("woke {}", steps.join(" ")),
        Expected::Refused { code, at, guard } => {
            let at = at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
            let guard = guard.as_ref().map(|guard| format!(" guard {guard}")).unwrap_or_default();
            format!("{code}{at}{guard}")
        }
    }
}

/// A refusal writes nothing; an accepted action leaves at least one record.
async fn recorded(driver: &mut dyn Driver, names: &mut Names, act: &Act, accepted: bool) -> Result<(), String> {
    let (process, writes) = match act {
        Act::Start { name, .. } => (name, true),
        Act::Open { on, .. } | Act::Decide { on, .. } | Act::Fire { on } => (&on.process, true),
        Act::Read { process } => (process, false),
        Act::Hold { record: RecordName::Of { process, .. }, .. }
        | Act::Purge { record: RecordName::Of { process, .. } } => (process, true),
        Act::Hold { .. } | Act::Purge { .. } => return Ok(()),
        // Which process it belongs to, only the hold knows.
        Act::Release { .. } => {
            for (name, instance_id) in &names.processes {
                let now = driver.records(instance_id).await.map_err(|failure| failure.to_string())?.len();
                let before = names.records.insert(name.clone(), now).unwrap_or(0);
                if !accepted && now != before {
                    return Err(format!("refused, but {name} went from {before} to {now} records"));
                }
            }
            return Ok(());
        }
        Act::Grant { .. } | Act::Revoke { .. } | Act::Get { .. } | Act::Post { .. } | Act::Run(_) => return Ok(()),
    };
    let Some(instance_id) = names.processes.get(process) else { return Ok(()) };
    let now = driver.records(instance_id).await.map_err(|failure| failure.to_string())?.len();
    let before = names.records.insert(process.clone(), now).unwrap_or(0);
    match (accepted && writes, now > before) {
        (true, true) => Ok(()),
        (false, _) if now == before => Ok(()),
        (true, false) => Err(format!("accepted, but {process} still has {now} records")),
        (false, _) => Err(format!("nothing was to be written, but {process} went from {before} to {now} records")),
    }
}
