//! Applying events. Total and mechanical: an event carries what it leaves behind.

use super::flow::is_under_way;
use super::start::shell_of;
use super::{Action, Cell, Event, Role, Run, RunEvent};
use crate::Time;
use crate::lifecycle::{ROLLUP_POLICY, RunState};
use crate::plan::{Plan, StepSeq};
use crate::process::Process;
use crate::rollup::{Facts, Rollup, Share, Tally};

impl Run {
    /// The shell and the run that a `run_started` event begins, before the event is applied.
    pub fn begun_by(event: &Event) -> Option<(Process, Run)> {
        let Event::Run(event) = event else { return None };
        let started = event.started.as_deref()?;
        Some((shell_of(started, &event.actor_ref, event.at), Run::begin(started)))
    }

    /// Whether its output is kept at hand: something needs it (a task's, its step), or a correction is to be held against it.
    pub fn keeps_output(&self, seq: crate::plan::StepSeq) -> bool {
        self.plan.is_referenced(seq)
            || self.plan.step_of_task(seq).is_some()
            || self.cell(seq).is_some_and(|cell| cell.cycle() > 0)
    }

    pub fn apply(&mut self, event: &RunEvent) {
        self.head = event.head.clone();
        for (seq, cell) in &event.cells {
            let mut cell = cell.clone();
            let under_way = is_under_way(&cell);
            if under_way {
                self.live.insert(*seq);
            } else {
                self.live.remove(seq);
            }
            let new = share(&self.plan, *seq, &cell);
            if cell.is_ended() {
                cell.live = None;
            }
            let old = self.cell(*seq).map_or(Share::Nothing, |old| share(&self.plan, *seq, old));
            self.tally.replace(*seq, old, new);
            match self.cells.get_mut(*seq as usize) {
                Some(place) => *place = cell,
                None => self.cells.push(cell),
            }
        }
        // What was yielded before a correction stays until the correction yields something else.
        let reopened = event.acted.as_deref().and_then(|acted| Some((acted.step_seq, acted.correction.as_ref()?)));
        if let Some((seq, correction)) = reopened {
            self.outputs.extend(correction.prior.output.clone().map(|output| (seq, output)));
        }
        for (seq, output) in &event.outputs {
            if self.keeps_output(*seq) {
                self.outputs.insert(*seq, output.clone());
            }
        }
        self.kept.extend(event.kept.clone());
        self.kept.retain(|kept| !event.taken.contains(&kept.id));
        if !matches!(event.action, Action::StepProlonged | Action::SurveyMoved) {
            self.roll_up(event.at);
        }
    }

    fn roll_up(&mut self, at: Time) {
        let state_of = |seq: StepSeq| self.cell(seq).map(|cell| cell.state);
        self.head.rollup = self.head.rollup.after(&self.tally, state_of, self.head.state, at);
    }

    /// The roll-up as the cells have it, for a run that was stored without one.
    pub fn counted(&self, at: Time) -> Rollup {
        let state_of = |seq: StepSeq| self.cell(seq).map(|cell| cell.state);
        let counted = Rollup::default().after(&self.tally, state_of, RunState::Executing, at);
        Rollup { frozen_at: (self.head.state == RunState::Paused).then_some(at), ..counted }
    }

    /// What every step counts as, worked out from nothing.
    pub fn count_all(&mut self) {
        self.tally = Tally::of((0..).zip(&self.cells).map(|(seq, cell)| share(&self.plan, seq, cell)));
    }
}

/// What the step counts as in the roll-up of its run.
fn share(plan: &Plan, seq: StepSeq, cell: &Cell) -> Share {
    // The step counts, not the parts that it has.
    if matches!(cell.role, Role::Task(_)) {
        return Share::Nothing;
    }
    let optional = cell.role == Role::Step && plan.step(seq).is_some_and(|step| step.optional);
    let facts = Facts {
        state: cell.state,
        optional,
        severe: cell.severity().is_some_and(super::Severity::is_red),
        child: cell.live.as_ref().and_then(|live| live.child_colour),
    };
    match Share::of(&facts, &ROLLUP_POLICY) {
        // What undoes a step is no progress.
        Share::Done if cell.role != Role::Step => Share::Green,
        share => share,
    }
}
