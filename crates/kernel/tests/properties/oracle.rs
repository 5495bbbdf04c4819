//! A second opinion, written from the requirement and the contracts of its constituents, not from the
//! kernel: what each action must answer, and what the world looks like afterwards. It remembers every
//! gate that was ever opened and is in no hurry.

use countersign_kernel::gate_spec::{GateEntry, GateSpec, QuorumRule};
use countersign_kernel::process::Decision;
use countersign_kernel::refusal::Code;
use countersign_kernel::{Declaration, Transition};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Pending,
    Approved,
    Rejected,
    Withdrawn,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub approver: String,
    pub status: Status,
    pub in_tray: bool,
}

#[derive(Clone, Debug)]
pub struct Gate {
    pub from_state: String,
    pub action: String,
    /// `None` for the gate of a single approver.
    pub rule: Option<QuorumRule>,
    pub steps: Vec<Step>,
    /// The chain's outcome; for a single gate that of its step.
    pub status: Status,
    pub consumed: bool,
    pub mooted: bool,
}

/// A step, by the gate (in the order of opening) and its slot.
pub type StepAt = (usize, usize);

#[derive(Clone, Debug)]
pub enum Ask {
    Open { action: String },
    Decide { action: String, decision: Decision, reason: Option<String>, step: Option<Option<StepAt>> },
    Fire { action: String },
}

/// A record that an accepted action owes: what was done, and by whom.
pub type Owed = (&'static str, String);

#[derive(Clone, Debug)]
pub struct Oracle {
    pub declaration: Declaration,
    pub gate_spec: GateSpec,
    pub initiator: String,
    pub application: String,
    pub grants: BTreeSet<(String, &'static str)>,
    pub state: String,
    pub history: Vec<Transition>,
    pub gates: Vec<Gate>,
}

impl Oracle {
    /// Shape, permission, existence, state: in that order. `exists` is false where the caller names a
    /// process that there is not.
    pub fn answer(&mut self, actor: &str, ask: &Ask, exists: bool) -> Result<Vec<Owed>, Code> {
        match ask {
            Ask::Open { action } => {
                self.allow(actor, action, "workflows:open-gate", exists)?;
                self.open(actor, action)
            }
            Ask::Decide { action, decision, reason, step } => {
                let needs_reason = matches!(decision, Decision::Reject | Decision::Withdraw);
                let reason_is_fine = reason.as_ref().map_or(!needs_reason, |reason| !reason.trim().is_empty());
                if action.trim().is_empty() || !reason_is_fine {
                    return Err(Code::InvalidRequest);
                }
                if !exists {
                    return Err(Code::NotKnown);
                }
                self.decide(actor, action, *decision, *step)
            }
            Ask::Fire { action } => {
                self.allow(actor, action, "workflows:fire", exists)?;
                self.fire(actor, action)
            }
        }
    }

    fn allow(&self, actor: &str, action: &str, scope: &'static str, exists: bool) -> Result<(), Code> {
        if action.trim().is_empty() {
            Err(Code::InvalidRequest)
        } else if !self.grants.contains(&(actor.to_owned(), scope)) {
            Err(Code::PermissionDenied)
        } else if !exists {
            Err(Code::NotKnown)
        } else {
            Ok(())
        }
    }

    fn has_ended(&self) -> bool {
        self.declaration.terminal_states.contains(&self.state)
    }

    fn declared(&self, action: &str) -> Option<Transition> {
        let here = |t: &&Transition| t.from_state == self.state && t.action == action;
        self.declaration.transitions.iter().find(here).cloned()
    }

    /// The binding of (from_state, action): the gate that was opened last.
    fn bound(&self, from_state: &str, action: &str) -> Option<usize> {
        self.gates.iter().rposition(|gate| gate.from_state == from_state && gate.action == action)
    }

    fn open(&mut self, actor: &str, action: &str) -> Result<Vec<Owed>, Code> {
        if self.has_ended() {
            return Err(Code::GateNotAvailable);
        }
        let transition = self.declared(action).ok_or(Code::InvalidTransition)?;
        let guard = transition.guard.ok_or(Code::NotGuarded)?;
        if let Some(i) = self.bound(&self.state, action) {
            let gate = &self.gates[i];
            let unspent = !gate.consumed && !gate.mooted;
            if unspent && matches!(gate.status, Status::Pending | Status::Approved) {
                return Err(Code::AlreadyOpen);
            }
        }
        let entry = &self.gate_spec.0[&guard];
        let rule = match entry {
            GateEntry::Single { .. } => None,
            GateEntry::Quorum { rule, .. } => Some(*rule),
        };
        let steps = entry.approvers().iter().map(|approver| Step {
            approver: approver.clone(),
            status: Status::Pending,
            in_tray: true,
        });
        self.gates.push(Gate {
            from_state: self.state.clone(),
            action: action.to_owned(),
            rule,
            steps: steps.collect(),
            status: Status::Pending,
            consumed: false,
            mooted: false,
        });
        let mut owed = vec![];
        if rule.is_some() {
            owed.push(("chain_initiated", actor.to_owned()));
        }
        owed.push(("gate_opened", actor.to_owned()));
        Ok(owed)
    }

    fn decide(
        &mut self,
        actor: &str,
        action: &str,
        decision: Decision,
        step: Option<Option<StepAt>>,
    ) -> Result<Vec<Owed>, Code> {
        // The key is (from_state, action). Bindings are never deleted: where the current state does not declare the
        // action at all, the last one still answers.
        let bound = match self.declared(action) {
            Some(_) => self.bound(&self.state, action),
            None => self.gates.iter().rposition(|gate| gate.action == action),
        };
        let own = |gate: &Gate| gate.steps.iter().any(|step| step.approver == actor);
        let (gate, slot) = match (step, bound) {
            (Some(Some(at)), _) if self.gates[at.0].action == action => at,
            (_, None) => return Err(Code::GateNotOpen),
            (Some(_), Some(_)) => return Err(Code::NotKnown),
            (None, Some(bound)) if self.gates[bound].rule.is_none() => (bound, 0),
            (None, Some(bound))
                if decision == Decision::Withdraw && (actor == self.initiator || !own(&self.gates[bound])) =>
            {
                return self.withdraw_chain(actor, bound);
            }
            (None, Some(bound)) => {
                let chain = &self.gates[bound];
                match chain.steps.iter().position(|step| step.approver == actor) {
                    Some(slot) => (bound, slot),
                    None if chain.steps.iter().all(|step| step.status != Status::Pending) => {
                        return Err(Code::NotPending);
                    }
                    None => return Err(Code::Unauthorized),
                }
            }
        };
        let step = &self.gates[gate].steps[slot];
        if step.status != Status::Pending {
            return Err(Code::NotPending);
        }
        let entitled = if decision == Decision::Withdraw { &self.initiator } else { &step.approver };
        if actor != entitled {
            return Err(Code::Unauthorized);
        }
        Ok(self.settle(actor, gate, slot, decision))
    }

    fn settle(&mut self, actor: &str, gate: usize, slot: usize, decision: Decision) -> Vec<Owed> {
        let by = |what| (what, actor.to_owned());
        let gate = &mut self.gates[gate];
        let (status, said) = match decision {
            Decision::Approve => (Status::Approved, "step_approved"),
            Decision::Reject => (Status::Rejected, "step_rejected"),
            Decision::Withdraw => (Status::Withdrawn, "step_withdrawn"),
        };
        gate.steps[slot].status = status;
        gate.steps[slot].in_tray = false;
        let Some(rule) = gate.rule else {
            gate.status = status;
            return vec![by("gate_decided")];
        };
        let mut owed = vec![by(said), by("gate_decided")];
        if gate.status == Status::Pending {
            gate.status = outcome(rule, &gate.steps);
            if gate.status != Status::Pending {
                owed.push(("chain_resolved", self.application.clone()));
                let withdrawn = close(gate);
                owed.extend(withdrawn.map(|()| ("step_withdrawn", self.application.clone())));
            }
        }
        owed
    }

    fn withdraw_chain(&mut self, actor: &str, gate: usize) -> Result<Vec<Owed>, Code> {
        if self.gates[gate].status != Status::Pending {
            return Err(Code::NotPending);
        }
        if actor != self.initiator {
            return Err(Code::Unauthorized);
        }
        self.gates[gate].status = Status::Withdrawn;
        let withdrawn = close(&mut self.gates[gate]);
        let mut owed = vec![("chain_withdrawn", actor.to_owned()), ("gate_decided", actor.to_owned())];
        owed.extend(withdrawn.map(|()| ("step_withdrawn", actor.to_owned())));
        Ok(owed)
    }

    fn fire(&mut self, actor: &str, action: &str) -> Result<Vec<Owed>, Code> {
        if self.has_ended() {
            return Err(Code::Terminal);
        }
        let transition = self.declared(action).ok_or(Code::InvalidTransition)?;
        let mut owed = vec![("transition_fired", actor.to_owned())];
        let mut fired = None;
        if transition.guard.is_some() {
            let cleared = |i: &usize| {
                let gate = &self.gates[*i];
                gate.status == Status::Approved && !gate.consumed && !gate.mooted
            };
            let gate = self.bound(&self.state, action).filter(cleared).ok_or(Code::GateNotCleared)?;
            self.gates[gate].consumed = true;
            fired = Some(gate);
        }
        if transition.from_state != transition.to_state {
            self.leave(&transition.from_state, fired, &mut owed);
        }
        self.state.clone_from(&transition.to_state);
        self.history.push(transition);
        Ok(owed)
    }

    /// Pending gates are withdrawn and moot, approved unfired ones are moot, and what is left of a
    /// resolved chain is withdrawn. The gate just fired is not moot.
    fn leave(&mut self, from_state: &str, fired: Option<usize>, owed: &mut Vec<Owed>) {
        let application = self.application.clone();
        for i in 0..self.gates.len() {
            let is_bound = self.bound(from_state, &self.gates[i].action) == Some(i);
            let gate = &mut self.gates[i];
            if gate.from_state != from_state {
                continue;
            }
            let live = is_bound && !gate.consumed && !gate.mooted && fired != Some(i);
            if live && gate.status == Status::Pending {
                if gate.rule.is_some() {
                    owed.push(("chain_resolved", application.clone()));
                }
                gate.status = Status::Withdrawn;
                let withdrawn = close(gate);
                if gate.rule.is_some() {
                    owed.extend(withdrawn.map(|()| ("step_withdrawn", application.clone())));
                }
                gate.mooted = true;
                owed.push(("moot_gate_recalled", application.clone()));
                continue;
            }
            for step in gate.steps.iter_mut().filter(|step| step.status == Status::Pending) {
                step.status = Status::Withdrawn;
                owed.push(("step_withdrawn", application.clone()));
            }
            if live && gate.status == Status::Approved {
                gate.mooted = true;
                owed.push(("moot_gate_recalled", application.clone()));
            }
        }
    }
}

/// The chain has its outcome: nobody has it in the in-tray any more, and a withdrawn chain takes its
/// undecided steps with it, each with a record of its own.
fn close(gate: &mut Gate) -> impl Iterator<Item = ()> + use<> {
    let mut withdrawn = 0;
    for step in &mut gate.steps {
        step.in_tray = false;
        if gate.status == Status::Withdrawn && step.status == Status::Pending {
            step.status = Status::Withdrawn;
            withdrawn += 1;
        }
    }
    std::iter::repeat_n((), withdrawn)
}

/// The contract's rule on the counts A, R, W, P.
fn outcome(rule: QuorumRule, steps: &[Step]) -> Status {
    let count = |status| steps.iter().filter(|step| step.status == status).count();
    let (n, a, r, w) = (steps.len(), count(Status::Approved), count(Status::Rejected), count(Status::Withdrawn));
    let lost = |r: usize| if r >= 1 { Status::Rejected } else { Status::Withdrawn };
    match rule {
        QuorumRule::AllOfN if a == n => Status::Approved,
        QuorumRule::AllOfN if r + w >= 1 => lost(r),
        QuorumRule::AllOfN => Status::Pending,
        QuorumRule::MOfN { .. } | QuorumRule::OneOfN => {
            let m = rule.m().unwrap_or(1) as usize;
            if a >= m {
                Status::Approved
            } else if n - r - w < m {
                lost(r)
            } else {
                Status::Pending
            }
        }
    }
}
