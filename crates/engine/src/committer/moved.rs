//! Which topics of the live stream a batch moves.

use super::Committer;
use crate::port::{Batch, Unit, Verdict};
use crate::rows::Write;
use crate::stream::moves::{Key, Moves};
use countersign_kernel::InstanceId;

/// What the types of governance events begin with.
const GOVERNANCE: [&str; 2] = ["governance.", "dlq_replay."];

impl Committer {
    /// What was committed.
    pub(super) fn tell_moved(&self, batch: &Batch, verdicts: &[Verdict]) {
        if !self.wakes.hub.is_followed() {
            return;
        }
        let mut moves = Moves::default();
        let won = batch.units.iter().zip(verdicts).filter(|(_, verdict)| **verdict == Verdict::Won);
        for (unit, _) in won {
            self.moved_by(unit, Some(unit.head.sequence), &mut moves);
        }
        self.wakes.hub.committed(moves);
    }

    /// Whether the batch was committed is not known: who follows it looks.
    pub(super) fn tell_perhaps_moved(&self, batch: &Batch) {
        let mut moves = Moves::default();
        batch.units.iter().for_each(|unit| self.moved_by(unit, None, &mut moves));
        self.wakes.hub.committed(moves);
    }

    /// The rights of readers may have changed, on other nodes too.
    pub(super) fn tell_registry_moved(&self, sequence: u64) {
        if self.wakes.hub.is_followed() {
            let mut moves = Moves::default();
            moves.insert(Key::Registry, Some(sequence));
            self.wakes.hub.committed(moves);
        }
    }

    fn moved_by(&self, unit: &Unit, sequence: Option<u64>, moves: &mut Moves) {
        // Prolonging a lease leaves no record.
        if unit.head.sequence == unit.expected_sequence {
            return;
        }
        moves.insert(Key::Instance(unit.instance_id), sequence);
        if unit.instance_id == InstanceId::GOVERNANCE {
            moves.insert(Key::Governance, None);
        }
        for write in &unit.writes {
            match write {
                Write::Assignment(row) => moves.insert(Key::Inbox(row.assignee_ref.as_str().into()), None),
                Write::EndAssignment { assignee_ref, .. } => {
                    moves.insert(Key::Inbox(assignee_ref.as_str().into()), None);
                }
                Write::Outbox(event) if GOVERNANCE.iter().any(|of| event.event_type.starts_with(of)) => {
                    moves.insert(Key::Governance, None);
                }
                _ => {}
            }
        }
        let Some(instance) = self.cache.peek(&unit.instance_id) else { return };
        let definition = instance.process.definition.as_ref().map_or("", |definition| definition.name.as_str());
        let Some(run) = instance.run.as_deref() else {
            moves.insert(Key::Processes(definition.into()), None);
            return;
        };
        moves.insert(Key::Runs(definition.into()), None);
        for pic in unit.steps.values().filter_map(|step| step.state.charge.pic.clone()) {
            moves.insert(Key::Worklist(pic), None);
        }
        // A worklist shows the state of the run, and only runs that are live.
        if unit.writes.iter().any(|write| matches!(write, Write::NewRunHead(_) | Write::RunHead(_))) {
            for pic in run.live.iter().filter_map(|seq| run.cell(*seq)?.pic().cloned()) {
                moves.insert(Key::Worklist(pic), None);
            }
        }
    }
}
