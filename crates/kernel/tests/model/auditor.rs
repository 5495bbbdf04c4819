//! An auditor who watches the process from outside. It folds what happened into a picture of its own,
//! made from the events and the declared documents alone, and notes every breach of what was promised.
//! It never asks the kernel whether a gate is cleared: it counts the approvals itself.

use countersign_kernel::gate_spec::GateEntry;
use countersign_kernel::machine::{ChainState, StepState};
use countersign_kernel::process::{Decision, Event, EventBody, GateRef, MootKind, Process, Settled};
use countersign_kernel::{AssignmentId, QuorumRule, StepId};
use std::collections::BTreeSet;

/// A promise that was broken on the way to a state. Once noted it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Breach {
    /// A guarded transition fired without the approval of those whom its gate names.
    Ungated,
    /// The history moved and the record does not say so, or says something else.
    Unaudited,
    /// One approval served two firings.
    Reused,
    /// A move that is not declared from the state the process was in.
    Undeclared,
    /// Something happened to a process that had ended.
    AfterTerminal,
    /// Somebody acted who holds no grant for it, or decided a step that names somebody else.
    Unauthorised,
    /// A step changed after it had its outcome.
    Redecided,
    /// A gate was forgotten while it still waited for somebody.
    Forgotten,
}

/// What the last command did, for the properties that show the space is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Note {
    Reopened,
    MootedPending,
    MootedApproved,
    SelfLooped,
    Trailing,
    RestWithdrawn,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Auditor {
    pub gates: Vec<SeenGate>,
    pub breaches: BTreeSet<Breach>,
    /// Of the last command only.
    pub notes: BTreeSet<Note>,
}

/// A gate as its records tell it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeenGate {
    pub gate: GateRef,
    pub from_state: String,
    pub action: String,
    pub guard: String,
    pub steps: Vec<SeenStep>,
    /// The chain, or the one step, has its outcome.
    pub resolved: bool,
    pub firings: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeenStep {
    pub step_id: StepId,
    pub state: StepState,
    pub decided_by: Option<String>,
    /// Entries of this step that stand in somebody's in-tray.
    pub active: Vec<AssignmentId>,
}

/// Who may advance the process; the rest may only decide what names them.
pub struct Grants<'a> {
    pub may_advance: &'a [&'a str],
    pub application: &'a str,
}

impl Auditor {
    /// What one command did to `before`: `applied` changed the process into `after`, `recorded` is
    /// what the ledger was given.
    pub fn watch(
        &mut self,
        grants: &Grants<'_>,
        before: &Process,
        after: &Process,
        applied: &[Event],
        recorded: &[Event],
    ) {
        self.notes.clear();
        if applied != recorded {
            self.breaches.insert(Breach::Unaudited);
        }
        if before.is_terminal() && (before != after || !recorded.is_empty()) {
            self.breaches.insert(Breach::AfterTerminal);
        }
        let entries = after.next_sequence_number - before.next_sequence_number;
        let fired = |events: &[Event]| {
            events.iter().filter(|event| matches!(event.body, EventBody::TransitionFired { .. })).count() as u64
        };
        if fired(recorded) != entries {
            self.breaches.insert(Breach::Unaudited);
        }
        if entries > 1 || (entries == 0 && before.current_state != after.current_state) {
            self.breaches.insert(Breach::Undeclared);
        }
        for event in applied {
            self.fold(grants, before, after, event);
        }
        self.forget_what_the_process_forgot(after);
    }

    fn fold(&mut self, grants: &Grants<'_>, before: &Process, after: &Process, event: &Event) {
        let actor = event.actor_ref.as_str();
        let may_advance = grants.may_advance.contains(&actor);
        match &event.body {
            EventBody::GateOpened { gate, supersedes, .. } => {
                self.require(may_advance, Breach::Unauthorised);
                self.require(gate.from_state == before.current_state, Breach::Undeclared);
                if supersedes.is_some() {
                    self.notes.insert(Note::Reopened);
                }
                let steps = gate.steps.iter().map(|step| SeenStep {
                    step_id: step.step_id,
                    state: StepState::Pending,
                    decided_by: None,
                    active: step.assignment.into_iter().collect(),
                });
                self.gates.push(SeenGate {
                    gate: gate.gate_ref(),
                    from_state: gate.from_state.clone(),
                    action: gate.action.clone(),
                    guard: gate.guard.clone(),
                    steps: steps.collect(),
                    resolved: false,
                    firings: 0,
                });
            }
            EventBody::GateDecided { decision, settled: Some(settled), .. } => {
                self.decided(before, settled, *decision, actor);
                self.resolve(|gate| gate.steps.iter().any(|step| step.step_id == settled.step_id));
            }
            EventBody::StepDecided { decision, settled, trailing, .. } => {
                let left = actor == grants.application;
                if *trailing {
                    self.notes.insert(if left { Note::RestWithdrawn } else { Note::Trailing });
                }
                if left {
                    self.require(*decision == Decision::Withdraw, Breach::Unauthorised);
                    self.settle(settled, *decision, None);
                } else {
                    self.decided(before, settled, *decision, actor);
                }
            }
            EventBody::ChainResolved { chain_id, outcome, recalled, .. } => {
                self.require(actor == grants.application, Breach::Unauthorised);
                self.end_chain(GateRef::Chain(*chain_id), *outcome, recalled);
            }
            EventBody::ChainWithdrawn { chain_id, recalled, .. } => {
                self.require(actor == before.initiator_ref, Breach::Unauthorised);
                self.end_chain(GateRef::Chain(*chain_id), ChainState::Withdrawn, recalled);
            }
            EventBody::TransitionFired { from_state, action, to_state, gate, .. } => {
                self.require(may_advance, Breach::Unauthorised);
                self.fired(before, after, from_state, action, to_state, *gate);
            }
            EventBody::MootGateRecalled { gate, kind, settled, .. } => {
                self.require(actor == grants.application, Breach::Unauthorised);
                if let Some(settled) = settled {
                    self.settle(settled, Decision::Withdraw, None);
                }
                self.resolve(|seen| seen.gate == *gate);
                self.notes.insert(match kind {
                    MootKind::PendingWithdrawn => Note::MootedPending,
                    MootKind::ApprovedUnconsumed => Note::MootedApproved,
                });
            }
            // It says again what the chain's end has done.
            EventBody::StepWithdrawnWithChain { step_id, decided_by, .. } => {
                let own = actor == grants.application || actor == before.initiator_ref;
                self.require(own && *decided_by == before.initiator_ref, Breach::Unauthorised);
                let withdrawn = |step: &SeenStep| step.step_id == *step_id && step.state == StepState::Withdrawn;
                let seen = self.gates.iter().any(|gate| gate.steps.iter().any(withdrawn));
                self.require(seen, Breach::Unauthorised);
            }
            // The chain's own record; the gate's record carries the same gate.
            EventBody::ChainInitiated { .. }
            | EventBody::GateDecided { settled: None, .. }
            | EventBody::WorkflowStarted { .. }
            | EventBody::HoldPlaced { .. }
            | EventBody::HoldReleased { .. }
            | EventBody::RecordPurged { .. }
            | EventBody::EvidenceExported
            | EventBody::AttemptRefused { .. } => {}
        }
    }

    fn fired(
        &mut self,
        before: &Process,
        after: &Process,
        from_state: &str,
        action: &str,
        to_state: &str,
        gate: Option<GateRef>,
    ) {
        let declared = before.declaration.transitions.iter().find(|t| {
            (t.from_state.as_str(), t.action.as_str(), t.to_state.as_str()) == (from_state, action, to_state)
        });
        let moved = from_state == before.current_state && to_state == after.current_state;
        self.require(declared.is_some() && moved, Breach::Undeclared);
        if from_state == to_state {
            self.notes.insert(Note::SelfLooped);
        }
        if declared.is_none_or(|transition| transition.guard.is_none()) {
            self.require(gate.is_none(), Breach::Undeclared);
            return;
        }
        let bound = self.gates.iter().position(|seen| Some(seen.gate) == gate);
        let cleared = bound.is_some_and(|i| {
            let seen = &self.gates[i];
            seen.from_state == from_state && seen.action == action && is_approved(before, seen)
        });
        self.require(cleared, Breach::Ungated);
        if let Some(i) = bound {
            let again = self.gates[i].firings > 0;
            self.gates[i].firings = 1;
            self.require(!again, Breach::Reused);
        }
    }

    /// Somebody decided a step: it must name them, or they must be the initiator who withdraws.
    fn decided(&mut self, process: &Process, settled: &Settled, decision: Decision, actor: &str) {
        let named = self.gates.iter().find_map(|gate| {
            let slot = gate.steps.iter().position(|step| step.step_id == settled.step_id)?;
            process.gate_spec.0.get(&gate.guard)?.approvers().get(slot).cloned()
        });
        let authorised = match decision {
            Decision::Approve | Decision::Reject => named.as_deref() == Some(actor),
            Decision::Withdraw => process.initiator_ref == actor,
        };
        self.require(authorised, Breach::Unauthorised);
        self.settle(settled, decision, Some(actor));
    }

    fn settle(&mut self, settled: &Settled, decision: Decision, by: Option<&str>) {
        let mut pending = false;
        for step in self.gates.iter_mut().flat_map(|gate| &mut gate.steps) {
            if step.step_id == settled.step_id {
                pending = step.state == StepState::Pending;
                step.decided_by = by.map(str::to_owned);
                step.state = match decision {
                    Decision::Approve => StepState::Approved,
                    Decision::Reject => StepState::Rejected,
                    Decision::Withdraw => StepState::Withdrawn,
                };
                step.active.retain(|id| Some(*id) != settled.assignment);
            }
        }
        self.require(pending, Breach::Redecided);
    }

    fn end_chain(&mut self, chain: GateRef, outcome: ChainState, recalled: &[Settled]) {
        for settled in recalled {
            if outcome == ChainState::Withdrawn {
                self.settle(settled, Decision::Withdraw, None);
            }
            for step in self.gates.iter_mut().flat_map(|gate| &mut gate.steps) {
                if step.step_id == settled.step_id {
                    step.active.retain(|id| Some(*id) != settled.assignment);
                }
            }
        }
        self.resolve(|gate| gate.gate == chain);
    }

    fn resolve(&mut self, is_it: impl Fn(&SeenGate) -> bool) {
        self.gates.iter_mut().filter(|gate| is_it(gate)).for_each(|gate| gate.resolved = true);
    }

    /// The process keeps only what can still matter; so does the auditor, after a last look.
    fn forget_what_the_process_forgot(&mut self, after: &Process) {
        let known = |gate: &SeenGate| after.gates.iter().any(|known| known.gate_ref() == gate.gate);
        let waits = |gate: &SeenGate| gate.steps.iter().any(|s| s.state == StepState::Pending || !s.active.is_empty());
        let forgotten = self.gates.iter().any(|gate| !known(gate) && waits(gate));
        self.require(!forgotten, Breach::Forgotten);
        self.gates.retain(known);
    }

    fn require(&mut self, holds: bool, otherwise: Breach) {
        if !holds {
            self.breaches.insert(otherwise);
        }
    }
}

/// Enough of the people whom the gate_spec names have approved, each in their own step.
fn is_approved(process: &Process, seen: &SeenGate) -> bool {
    let Some(entry) = process.gate_spec.0.get(&seen.guard) else { return false };
    let approvals = entry
        .approvers()
        .iter()
        .zip(&seen.steps)
        .filter(|(named, step)| step.state == StepState::Approved && step.decided_by.as_ref() == Some(*named))
        .count();
    let needed = match entry {
        GateEntry::Single { .. } | GateEntry::Quorum { rule: QuorumRule::OneOfN, .. } => 1,
        GateEntry::Quorum { rule: QuorumRule::MOfN { m }, .. } => *m as usize,
        GateEntry::Quorum { rule: QuorumRule::AllOfN, approvers, .. } => approvers.len(),
    };
    seen.steps.len() == entry.approvers().len() && approvals >= needed
}
