//! What a run's row says of its colour, progress and decisive step (seed 003 §5), computed again from its steps. While a run
//! is paused its colour stands still: then it is computed from the steps as the records had left them at the pause.

use super::verify_run::Step;
use crate::evidence::RunState;
use crate::port::LoadedRun;
use crate::run::assemble::assemble;
use crate::run::rollup::Basis;
use countersign_kernel::Time;
use countersign_kernel::lifecycle::{ROLLUP_POLICY, RunState as RunCode, StepCode};
use countersign_kernel::plan::{Plan, StepSeq};
use countersign_kernel::rollup::{Facts, Share, Tally};
use countersign_kernel::run::Run;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The steps when the run was paused.
pub struct Frozen {
    pub at: Time,
    pub steps: Vec<Step>,
}

pub fn check(state: &RunState, run: &Run, frozen: Option<&Frozen>) -> Vec<(&'static str, String)> {
    // A run that an older version stored has none; whoever reads it counts the steps.
    let Some(text) = &state.view.head.rollup else { return vec![] };
    let Some(stored) = Basis::parse(text) else {
        return vec![("row-missing", format!("its roll-up is none: {text}"))];
    };
    let (mut computed, plan) = (Basis::of(run), &run.plan);
    match frozen {
        None => {
            computed.rollup.computed_at = stored.rollup.computed_at;
            computed.rollup.frozen_at = None;
        }
        Some(frozen) => {
            let (mut rollup, with_children) = (stored.rollup, frozen.steps.iter().any(|step| step.child.is_some()));
            // What a child's colour was then no record of this run says.
            if !with_children {
                let tally = Tally::of((0..).zip(&frozen.steps).map(|(seq, step)| share(plan, seq, step)));
                (rollup.colour, rollup.counts) = (tally.colour(), tally.counts());
                rollup.decisive = tally.decisive().and_then(|seq| Some((seq, code(frozen.steps.get(seq as usize)?)?)));
            }
            rollup.frozen_at = Some(frozen.at);
            computed.rollup = rollup;
        }
    }
    // Steps that were cancelled with their run do not tell where it was at that time; those of a run that completed do.
    let completed = state.view.head.state == RunCode::Completed.as_str() && state.view.head.outcome.is_none();
    if is_ended(&state.view.head.state) && !completed {
        (computed.current, computed.critical) = (stored.current, stored.critical);
    }
    // An older version did not store it.
    computed.progress = computed.progress.filter(|_| stored.progress.is_some());
    let mut findings = vec![];
    if computed != stored {
        let detail = format!("its roll-up says {}, its steps lead to {}", stored.to_json(), computed.to_json());
        findings.push(("replay-mismatch", detail));
    }
    if stored.rollup.computed_at > state.view.chain.last_time {
        findings.push(("replay-mismatch", "its roll-up is later than its last record".to_owned()));
    }
    findings
}

fn is_ended(state: &str) -> bool {
    RunCode::parse(state).is_some_and(RunCode::is_ended)
}

/// The run as the kernel has it, with the roll-up that it computes from the rows. `None`: the steps do not fit the plan, which
/// is found elsewhere.
pub fn assembled(state: &RunState, plan: &Arc<Plan>) -> Option<Run> {
    let mut head = state.view.head.clone();
    head.rollup = None;
    let loaded = LoadedRun {
        row: state.view.row.clone(),
        head,
        document: state.document.clone(),
        machine: None,
        moves: 0,
        gates: vec![],
        holds: BTreeMap::new(),
        steps: state.steps.iter().map(|step| (step.new.compensates, step.state.clone())).collect(),
        kept: vec![],
    };
    assemble(loaded, plan.clone(), None).ok().map(|(_, run)| run)
}

fn code(step: &Step) -> Option<StepCode> {
    StepCode::parse(&step.state)
}

fn share(plan: &Plan, seq: StepSeq, step: &Step) -> Share {
    let Some(state) = code(step) else { return Share::Nothing };
    if step.compensates.is_none() && plan.step_of_task(seq).is_some() {
        return Share::Nothing;
    }
    let planned = plan.step(seq).filter(|_| step.compensates.is_none());
    let optional = planned.is_some_and(|spec| spec.optional);
    Share::of(&Facts { state, optional, severe: step.cause.is_some(), child: None }, &ROLLUP_POLICY)
}
