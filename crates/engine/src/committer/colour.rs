//! The colours of runs on their way through the committer: stored with each batch, and told to whoever waits for a run.

use super::Committer;
use crate::port::Unit;
use crate::run::rollup::Basis;
use countersign_kernel::{InstanceId, Time};

impl Committer {
    /// What colour each run of the batch has, once all of it is decided.
    pub(super) fn colour(&mut self, units: &mut [Unit]) {
        for unit in units {
            let run = self.cache.get(&unit.instance_id).and_then(|instance| instance.run.as_deref());
            unit.rollup = run.map(|run| Basis::of(run).to_json().into());
        }
    }

    /// A parent that this node holds hears at once of another colour of its child; elsewhere it asks from time to time.
    pub(super) fn tell_parent(&mut self, child: InstanceId, now: Time) {
        let run = self.cache.get(&child).and_then(|instance| instance.run.as_deref());
        let Some((parent, colour)) = run.and_then(|run| Some((run.head.parent.clone()?, run.head.rollup.colour)))
        else {
            return;
        };
        let holder = self.cache.get(&parent.run_id).and_then(|instance| instance.run.as_deref());
        let live = holder.and_then(|run| run.cell(parent.step_seq)).and_then(|cell| cell.live.as_deref());
        if live.is_some_and(|live| live.child.is_some() && live.child_colour != Some(colour)) {
            self.book.remind((parent.run_id, Some(parent.step_seq)), Some(now));
        }
    }
}
