//! The colours of runs on their way through the committer: stored with each batch, and told to whoever waits for a run.

use super::Committer;
use crate::port::Unit;
use crate::run::rollup::Basis;
use countersign_kernel::lifecycle::{RunState, StepCode};
use countersign_kernel::run::Run;
use countersign_kernel::{InstanceId, Time};

impl Committer {
    /// What colour each run of the batch has, once all of it is decided.
    pub(super) fn colour(&mut self, units: &mut [Unit]) {
        for unit in units {
            let run = self.cache.get(&unit.instance_id).and_then(|instance| instance.run.as_deref());
            unit.rollup = run.map(|run| Basis::of(run).to_json().into());
            unit.colour = run.map(|run| run.head.rollup.colour.as_str());
        }
    }

    /// A parent hears at once that its child has another colour, waits, or goes on. One that is not held here is asked to look.
    pub(super) fn tell_parent(&mut self, child: InstanceId, now: Time) {
        let run = self.cache.peek(&child).and_then(|instance| instance.run.as_deref());
        let Some((parent, child)) = run.and_then(|run| Some((run.head.parent.clone()?, run))) else { return };
        let holder = self.cache.peek(&parent.run_id).and_then(|instance| instance.run.as_deref());
        let item = (parent.run_id, Some(parent.step_seq));
        let Some(cell) = holder.and_then(|run| run.cell(parent.step_seq)) else {
            self.book.remind_by(item, now);
            return;
        };
        let seen = (cell.live.as_ref().and_then(|live| live.child_colour), cell.state == StepCode::Waiting);
        // It may not go on without its parent.
        let alone = holder.is_some_and(Run::stands_still) && child.head.state != RunState::Stopped;
        if cell.awaited() == Some(child.run_id) && (alone || seen != (Some(child.head.rollup.colour), child.waits())) {
            self.book.remind_by(item, now);
        }
    }
}
