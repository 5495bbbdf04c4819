//! What a round's events say of workers: who was handed a step, and what became of it. The monitor gets
//! only what was committed, and keeps it in memory: nothing is written for it here.

use super::Committer;
use crate::monitor::{Note, Noted};
use countersign_kernel::lifecycle::{ActorClass, StepCode};
use countersign_kernel::run::{Action, Cell, Lease, Run, RunEvent};
use countersign_kernel::{EventId, InstanceId, Time};
use std::collections::HashMap;

/// By run.
#[derive(Default)]
pub struct Notes(HashMap<InstanceId, Vec<Noted>>);

impl Notes {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// `run` is as it was before the event.
    pub fn take(&mut self, run: &Run, event: &RunEvent, event_id: EventId) {
        for (seq, after) in &event.cells {
            let before = run.cell(*seq);
            let (held, holds) = (before.and_then(Cell::lease), after.lease());
            let (lease, note) = match (held, holds) {
                (None, Some(lease)) => (lease, claimed(before, lease, event.at)),
                (Some(before), Some(lease)) if lease.until > before.until => {
                    (lease, Note::Prolonged { lease_until: lease.until })
                }
                (Some(lease), None) => match ended(event, *seq, after, event_id) {
                    Some(note) => (lease, note),
                    None => continue,
                },
                _ => continue,
            };
            let (queue, worker_id) = (run.queue(*seq, after.role), lease.worker_id.clone());
            self.0.entry(run.run_id).or_default().push(Noted { queue, worker_id, at: event.at, note });
        }
    }
}

/// What became ready in the same command did not wait.
fn claimed(before: Option<&Cell>, lease: &Lease, at: Time) -> Note {
    let since = before.and_then(|cell| {
        let live = cell.live.as_deref()?;
        let waited = live.waiting.as_ref().and_then(|waiting| waiting.deadline_at);
        let offered = cell.is_offered() || cell.state == StepCode::Failed;
        if offered { live.next_run_at } else { waited }
    });
    let waited_us = since.map_or(0, |since| (at.0 - since.0).max(0));
    Note::Claimed { lease_until: lease.until, waited_us }
}

/// `None`: others took it away, and it says nothing of the worker.
fn ended(event: &RunEvent, seq: u32, after: &Cell, event_id: EventId) -> Option<Note> {
    let moved = event.moves.iter().find(|m| m.step_seq == seq)?;
    Some(match (moved.actor, after.state) {
        (ActorClass::ExecutorWorker, StepCode::Completed) => Note::Done(event_id),
        (ActorClass::ExecutorWorker, StepCode::Failed) => Note::Failed(event_id),
        (ActorClass::ExecutorWorker, _) => Note::Left,
        (_, StepCode::Ready | StepCode::Failed) if event.action == Action::TimePassed => Note::Lost(event_id),
        _ => return None,
    })
}

impl Committer {
    /// The unit of this run is committed.
    pub(super) fn tell_monitor(&mut self, run_id: InstanceId) {
        let Some(noted) = self.notes.0.remove(&run_id) else { return };
        let registry = self.registry.read();
        self.monitor.take(noted, |queue, worker_id| registry.is_frozen(queue, worker_id));
    }
}
