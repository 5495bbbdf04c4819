//! A run's roll-up with its basis, as it is stored: one small JSON text on the instance's row, which every commit writes
//! anyway.

use crate::port::{RunStepView, RunView, StoreError};
use crate::store_failure;
use countersign_kernel::Time;
use countersign_kernel::lifecycle::{ROLLUP_POLICY, RunState, StepCode};
use countersign_kernel::plan::{Order, Plan, StepSeq};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::rollup::{Colour, Counts, Facts, Progress, Rollup, Share, Tally};
use countersign_kernel::run::Run;
use serde_json::Value;

/// What a run's row says of its colour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basis {
    pub rollup: Rollup,
    /// Where a chain stands, and where the critical path of a DAG leads.
    pub current: Option<StepSeq>,
    pub critical: Option<StepSeq>,
    /// Only of a run that another one waits for: nothing in it is at work.
    pub waits: bool,
    /// Nothing where an older version stored it.
    pub progress: Option<Progress>,
}

/// As the run's row says it.
pub fn stored(run: &RunView) -> Result<Option<Basis>, Refusal> {
    let Some(text) = &run.head.rollup else { return Ok(None) };
    Basis::parse(text)
        .map(Some)
        .ok_or_else(|| store_failure(&StoreError::Corrupt(format!("run {}: its roll-up is none", run.row.instance_id))))
}

/// What an older version did not store, counted from all steps of the run.
pub fn counted(older: Option<Basis>, plan: &Plan, steps: &[RunStepView], run: &RunView) -> Basis {
    let counted = Basis::counted(plan, steps, run.chain.last_time);
    match older {
        Some(older) => Basis { progress: counted.progress, ..older },
        None => counted,
    }
}

impl Basis {
    pub fn of(run: &Run) -> Basis {
        Basis {
            rollup: run.head.rollup,
            current: (run.plan.order == Order::Linear).then_some(run.head.current),
            critical: run.critical_step(),
            waits: run.head.parent.is_some() && run.waits(),
            progress: Some(run.tally.progress()),
        }
    }

    /// From the rows of all steps.
    pub fn counted(plan: &Plan, steps: &[RunStepView], at: Time) -> Basis {
        let share = |step: &RunStepView| {
            if step.new.compensates.is_none() && plan.step_of_task(step.step_seq).is_some() {
                return Share::Nothing;
            }
            let planned = plan.step(step.step_seq).filter(|_| step.new.compensates.is_none());
            let facts = Facts {
                state: step.state.state,
                optional: planned.is_some_and(|spec| spec.optional),
                severe: step.state.blocked_cause.is_some(),
                child: step.state.child_colour.and_then(Colour::parse),
            };
            match Share::of(&facts, &ROLLUP_POLICY) {
                Share::Done if step.new.compensates.is_some() => Share::Green,
                share => share,
            }
        };
        let tally = Tally::of(steps.iter().map(share));
        let state_of = |seq: StepSeq| steps.get(seq as usize).map(|step| step.state.state);
        let ended = |seq: StepSeq| state_of(seq).is_some_and(StepCode::is_terminal);
        let first = (0..).zip(&plan.steps).map(|(seq, _)| seq).find(|seq| !ended(*seq));
        let last = StepSeq::try_from(plan.steps.len()).unwrap_or(StepSeq::MAX);
        Basis {
            rollup: Rollup::default().after(&tally, state_of, RunState::Executing, at),
            current: (plan.order == Order::Linear).then_some(first.unwrap_or(last)),
            critical: plan.by_rank(Run::first_unfinished(plan, ended)).filter(|_| plan.has_critical_path()),
            waits: false,
            progress: Some(tally.progress()),
        }
    }

    pub fn to_json(&self) -> String {
        let Rollup { colour, counts: c, decisive, computed_at, frozen_at } = &self.rollup;
        let mut text = format!(
            "{{\"state_code\":\"{colour}\",\"counts\":[{},{},{},{},{}],\"computed_at_us\":{}",
            c.red, c.yellow, c.green, c.skipped, c.optional_excluded, computed_at.0
        );
        if let Some((seq, state)) = decisive {
            text.push_str(&format!(",\"decisive\":[{seq},\"{state}\"]"));
        }
        if let Some(Time(at)) = frozen_at {
            text.push_str(&format!(",\"frozen_at_us\":{at}"));
        }
        for (name, seq) in [("current", self.current), ("critical", self.critical)] {
            if let Some(seq) = seq {
                text.push_str(&format!(",\"{name}\":{seq}"));
            }
        }
        if self.waits {
            text.push_str(",\"waits\":true");
        }
        if let Some(Progress { completed, skipped }) = self.progress {
            text.push_str(&format!(",\"progress\":[{completed},{skipped}]"));
        }
        text.push('}');
        text
    }

    /// `None` where the text is none of ours.
    pub fn parse(text: &str) -> Option<Basis> {
        let value: Value = serde_json::from_str(text).ok()?;
        let seq = |value: &Value| value.as_u64().and_then(|seq| StepSeq::try_from(seq).ok());
        let counts: Vec<u32> = value.get("counts")?.as_array()?.iter().filter_map(seq).collect();
        let [red, yellow, green, skipped, optional_excluded] = counts[..] else { return None };
        let decisive = match value.get("decisive") {
            None => None,
            Some(pair) => Some((seq(pair.get(0)?)?, StepCode::parse(pair.get(1)?.as_str()?)?)),
        };
        Some(Basis {
            rollup: Rollup {
                colour: Colour::parse(value.get("state_code")?.as_str()?)?,
                counts: Counts { red, yellow, green, skipped, optional_excluded },
                decisive,
                computed_at: Time(value.get("computed_at_us")?.as_i64()?),
                frozen_at: value.get("frozen_at_us").and_then(Value::as_i64).map(Time),
            },
            current: value.get("current").and_then(seq),
            critical: value.get("critical").and_then(seq),
            waits: value.get("waits").and_then(Value::as_bool).unwrap_or(false),
            progress: match value.get("progress") {
                None => None,
                Some(pair) => Some(Progress { completed: seq(pair.get(0)?)?, skipped: seq(pair.get(1)?)? }),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_what_is_read() {
        let small = Basis { rollup: Rollup::default(), current: None, critical: None, waits: false, progress: None };
        let full = Basis {
            rollup: Rollup {
                colour: Colour::Red,
                counts: Counts { red: 1, yellow: 2, green: 3, skipped: 4, optional_excluded: 5 },
                decisive: Some((7, StepCode::CannotComplete)),
                computed_at: Time(1_700_000_000_000_001),
                frozen_at: Some(Time(1_700_000_000_000_002)),
            },
            current: Some(0),
            critical: Some(9),
            waits: true,
            progress: Some(Progress { completed: 3, skipped: 4 }),
        };
        for basis in [small, full] {
            assert_eq!(Basis::parse(&basis.to_json()).as_ref(), Some(&basis));
        }
        for text in ["", "{}", r#"{"state_code":"blue","counts":[0,0,0,0,0],"computed_at_us":0}"#] {
            assert_eq!(Basis::parse(text), None, "{text}");
        }
    }
}
