//! Counters of what runs and steps came to. Only what was committed is counted, by the node that committed it.

use crate::port::Unit;
use crate::rows::{RunHeadRow, Write};
use countersign_kernel::InstanceId;
use countersign_kernel::lifecycle::{RunState, StepCode};
use countersign_kernel::run::Move;
use std::collections::HashMap;

/// The ends of steps in the batch under construction, by run.
#[derive(Default)]
pub struct Tally(HashMap<InstanceId, Vec<StepCode>>);

impl Tally {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// A step that failed may be tried again: that is an end, too, of an attempt.
    pub fn add(&mut self, run_id: InstanceId, moves: &[Move]) {
        let mut ends = moves.iter().map(|m| m.to).filter(|to| to.is_terminal() || *to == StepCode::Failed).peekable();
        if ends.peek().is_some() {
            self.0.entry(run_id).or_default().extend(ends);
        }
    }

    pub fn count(&mut self, unit: &Unit) {
        for state in self.0.remove(&unit.instance_id).unwrap_or_default() {
            metrics::counter!("countersign_steps_total", "state" => state.as_str()).increment(1);
        }
        for write in &unit.writes {
            match write {
                Write::NewRunHead(head) => {
                    metrics::counter!("countersign_runs_started_total").increment(1);
                    count_end(head);
                }
                Write::RunHead(head) => count_end(head),
                _ => {}
            }
        }
    }
}

fn count_end(head: &RunHeadRow) {
    if RunState::parse(head.state).is_some_and(RunState::is_ended) {
        metrics::counter!("countersign_runs_ended_total", "state" => head.state).increment(1);
    }
}
