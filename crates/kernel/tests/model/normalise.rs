//! Two processes that differ only in the ids and times of their gates behave alike. Renaming both to
//! what they are worth (the order of appearance, the rank) lets the checker see that they are one.

use crate::auditor::Auditor;
use countersign_kernel::process::{GateKind, GateRef, Process};
use countersign_kernel::{AssignmentId, ChainId, StepId, Time};
use std::collections::HashMap;
use std::hash::Hash;

/// Old id → small id, in the order of asking.
struct Renamed<I>(HashMap<I, I>);

impl<I: Copy + Eq + Hash> Renamed<I> {
    /// The kernel makes UUIDs of time and entropy; these are counted from one.
    fn get(&mut self, id: I, make: fn(u128) -> I) -> I {
        let next = self.0.len() as u128 + 1;
        *self.0.entry(id).or_insert_with(|| make(next))
    }
}

impl<I> Default for Renamed<I> {
    fn default() -> Self {
        Renamed(HashMap::new())
    }
}

#[derive(Default)]
struct Names {
    steps: Renamed<StepId>,
    chains: Renamed<ChainId>,
    assignments: Renamed<AssignmentId>,
}

impl Names {
    fn step(&mut self, id: StepId) -> StepId {
        self.steps.get(id, |n| StepId(uuid(n)))
    }

    fn chain(&mut self, id: ChainId) -> ChainId {
        self.chains.get(id, |n| ChainId(uuid(n)))
    }

    fn assignment(&mut self, id: AssignmentId) -> AssignmentId {
        self.assignments.get(id, |n| AssignmentId(uuid(n)))
    }

    fn gate(&mut self, gate: GateRef) -> GateRef {
        match gate {
            GateRef::Step(id) => GateRef::Step(self.step(id)),
            GateRef::Chain(id) => GateRef::Chain(self.chain(id)),
        }
    }
}

fn uuid(n: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(n)
}

pub fn normalise(process: &mut Process, auditor: &mut Auditor) {
    process.next_sequence_number = 1;
    process.started_at = Time(0);

    let mut times: Vec<Time> = process.gates.iter().map(|gate| gate.opened_at).collect();
    times.sort_unstable();
    times.dedup();
    let rank = |time: Time| Time(times.partition_point(|known| *known < time) as i64 + 1);

    let mut names = Names::default();
    for gate in &mut process.gates {
        gate.opened_at = rank(gate.opened_at);
        if let GateKind::Quorum { chain_id, .. } = &mut gate.kind {
            *chain_id = names.chain(*chain_id);
        }
        for step in &mut gate.steps {
            step.submitted_at = gate.opened_at;
            step.step_id = names.step(step.step_id);
            step.assignment = step.assignment.map(|id| names.assignment(id));
        }
    }
    for gate in &mut auditor.gates {
        gate.gate = names.gate(gate.gate);
        for step in &mut gate.steps {
            step.step_id = names.step(step.step_id);
            step.active = step.active.iter().map(|id| names.assignment(*id)).collect();
        }
    }
}
