//! Applying events. Total and mechanical: an event carries what it leaves behind.

use super::flow::is_under_way;
use super::start::shell_of;
use super::{Event, Run, RunEvent};
use crate::process::Process;

impl Run {
    /// The shell and the run that a `run_started` event begins, before the event is applied.
    pub fn begun_by(event: &Event) -> Option<(Process, Run)> {
        let Event::Run(event) = event else { return None };
        let started = event.started.as_deref()?;
        Some((shell_of(started, &event.actor_ref, event.at), Run::begin(started)))
    }

    /// Whether its output is kept at hand: something needs it, or a correction is to be held against it.
    pub fn keeps_output(&self, seq: crate::plan::StepSeq) -> bool {
        self.plan.is_referenced(seq) || self.cell(seq).is_some_and(|cell| cell.cycle() > 0)
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
            if cell.is_ended() {
                cell.live = None;
            }
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
    }
}
