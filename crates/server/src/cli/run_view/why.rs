//! Why a run is where it is: what each attempt of a step failed with, what failed first where the undoing failed too, and, on
//! demand, what went in and came out.

use super::{error_text, is_retrying};
use crate::cli::output::printable;
use crate::cli::table::{Tint, tint};
use crate::cli::time::ago;
use countersign_client::wire::{FailedAttempt, RunView, StepDetail, StepView};
use countersign_client::{Client, Error};
use jiff::Timestamp;
use serde_json::Value;

/// Steps whose failed attempts are asked for, where not everything is shown.
const MOST_TROUBLED: usize = 10;

/// The steps of which more is to be told: all of them, or those of which an attempt failed.
pub async fn details(client: &Client, run: &RunView, full: bool, rows: usize) -> Result<Vec<StepDetail>, Error> {
    let troubled =
        |step: &&StepView| step.role != "compensation" && (full || step.attempts > 0 || step.last_error.is_some());
    let most = if full { rows } else { MOST_TROUBLED };
    let mut details = Vec::new();
    for step in run.steps.iter().filter(troubled).take(most) {
        match client.run_step(&run.run_id, &step.name).await {
            Ok(answer) => details.push(answer.body),
            // What one may see of a run may end here.
            Err(error) if error.code().is_some() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(details)
}

/// A section with a line for each failed attempt, and with `full` for each input and output.
pub fn section(run: &RunView, details: &[StepDetail], full: bool, now: Timestamp) -> Option<String> {
    let mut lines = Vec::new();
    for detail in details {
        let name = tint(Tint::Strong, &detail.step.name);
        lines.extend(detail.attempt_log.iter().map(|attempt| format!("  {name} {}", failed(attempt, now))));
        if full {
            let told = |what: &str, value: &Option<Value>| {
                let value = value.as_ref().filter(|value| !value.is_null())?;
                Some(format!("  {name} {} {}", tint(Tint::Dim, what), printable(&value.to_string())))
            };
            lines.extend(told("input ", &detail.input).into_iter().chain(told("output", &detail.step.output)));
        }
    }
    if full && let Some(input) = run.input.as_ref().filter(|input| !input.is_null()) {
        lines.insert(0, format!("  {} {}", tint(Tint::Dim, "input of the run"), printable(&input.to_string())));
    }
    let title = if full { "Attempts, inputs and outputs" } else { "Failed attempts" };
    (!lines.is_empty()).then(|| format!("{}\n{}", tint(Tint::Strong, title), lines.join("\n")))
}

fn failed(attempt: &FailedAttempt, now: Timestamp) -> String {
    let number = attempt.attempts.map_or_else(String::new, |count| format!("attempt {}: ", count.max(1)));
    let why = match (&attempt.error, attempt.purged) {
        (Some(error), _) => error.clone(),
        (None, true) => "its record was purged".to_owned(),
        (None, false) => attempt.error_category.clone().unwrap_or_else(|| "it gave no reason".to_owned()),
    };
    let unknown = if attempt.effect_unknown { ", effect unknown" } else { "" };
    format!("{} {}", tint(Tint::Bad, &format!("{number}{why}{unknown}")), tint(Tint::Dim, &ago(&attempt.at, now)))
}

/// What failed before anything was undone, where the undoing failed as well: both have to be known.
pub fn root_cause(run: &RunView) -> Option<String> {
    let undoing_failed =
        |step: &StepView| step.role == "compensation" && step.state_code == "failed" && !is_retrying(step);
    if !run.steps.iter().any(undoing_failed) {
        return None;
    }
    let broke = |step: &&StepView| step.role == "step" && step.state_code == "failed" && !is_retrying(step);
    // Those before the last one were gone on without.
    let step = run.steps.iter().rev().find(broke)?;
    let error = error_text(run, step.last_error.as_deref()?);
    Some(format!("{} failed: {}", tint(Tint::Strong, &step.name), tint(Tint::Bad, &error)))
}

/// What a cancelled run undoes, and what it leaves as it is.
pub fn reach_of_cancel(run: &RunView, compensate: bool) -> Vec<String> {
    let undone: Vec<&str> = run.steps.iter().filter_map(|step| step.compensates.as_deref()).collect();
    let done =
        |step: &&StepView| step.role == "step" && step.state_code == "completed" && !undone.contains(&&*step.name);
    let stays: Vec<&StepView> = run.steps.iter().filter(done).collect();
    let names = |steps: &[&StepView]| listed(&steps.iter().map(|step| &*step.name).collect::<Vec<_>>());
    if compensate {
        let waits = run.steps.iter().filter(|step| step.effect_unknown).collect::<Vec<_>>();
        let said = [
            (!waits.is_empty())
                .then(|| format!("  nothing is undone before their effect is declared: {}", names(&waits))),
            (!undone.is_empty()).then(|| format!("  undone, in this order: {}", listed(&undone))),
            (waits.is_empty() && !stays.is_empty())
                .then(|| format!("  these steps have no compensation and stay completed: {}", names(&stays))),
        ];
        return said.into_iter().flatten().collect();
    }
    let compensable: Vec<&StepView> = stays.iter().copied().filter(|step| step.compensable).collect();
    let said = [
        (!stays.is_empty())
            .then(|| format!("  cancelling undoes nothing; these steps stay completed: {}", names(&stays))),
        (!compensable.is_empty())
            .then(|| format!("  not undone, though the definition says how (--compensate): {}", names(&compensable))),
    ];
    said.into_iter().flatten().collect()
}

/// So many names are listed.
const LISTED: usize = 10;

fn listed(names: &[&str]) -> String {
    let named = printable(&names.iter().take(LISTED).copied().collect::<Vec<_>>().join(", "));
    match names.len().saturating_sub(LISTED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
