//! Records without content: what cannot be told any more, and what their headers still rule out.

use super::quorum::{Rule, State};
use super::{Context, Kinds, Process};
use crate::bytes::Id;
use crate::finding::{Code, PARTIALLY_PURGED};
use crate::record::{Action, Header};
use crate::registry::Registry;
use std::rc::Rc;

/// A purged record of a decision. Its header still says who wrote it, and when.
#[derive(Debug)]
pub struct Decision {
    sequence: u64,
    action: Action,
    by: Rc<str>,
    at_us: i64,
    registry_seq: u64,
}

impl Process {
    /// Content was destroyed: what depended on it cannot be verified any more.
    pub(super) fn take_purged(&mut self, header: &Header, ctx: &mut Context<'_>) {
        let kind = Kinds::of(header.action);
        self.purged = self.purged.and(kind);
        self.purged_events.insert(header.event_id, kind);
        for claim in kind.claims() {
            ctx.findings.unverifiable(*claim);
        }
        if !kind.claims().is_empty() {
            let claims: Vec<&str> = kind.claims().iter().map(|claim| claim.as_str()).collect();
            let detail = format!(
                "the content of this `{}` was destroyed; claims {} cannot be verified for what depends on it",
                header.action.as_str(),
                claims.join(", ")
            );
            ctx.findings.note(PARTIALLY_PURGED, Some(header.event_id), detail);
        }
        if kind == Kinds::DECIDED {
            let (sequence, action, by) = (header.sequence, header.action, header.actor_ref.clone());
            let (at_us, registry_seq) = (header.recorded_at_us, header.registry_seq);
            self.purged_decisions.push(Decision { sequence, action, by, at_us, registry_seq });
        }
        // A quorum's `gate_decided` adds nothing to the record of the chain before it.
        let repeats = header.action == Action::GateDecided && self.command.decision.take().is_some();
        if !matches!(kind, Kinds::NONE | Kinds::STARTED | Kinds::RAN) && !repeats {
            self.gates.doubt(kind == Kinds::FIRED);
        }
        if kind == Kinds::FIRED {
            self.next_number += 1;
            self.state = None;
            self.command.left_unknown = true;
        }
    }

    /// A fault, unless records that were purged could explain it.
    pub(super) fn find(
        &self,
        code: Code,
        header: &Header,
        depends: Kinds,
        detail: impl Into<String>,
        ctx: &mut Context<'_>,
    ) {
        if self.purged.meets(depends) {
            ctx.findings.unverifiable(code.claim());
            let detail =
                format!("`{}` cannot be told, for records before it were purged: {}", code.as_str(), detail.into());
            return ctx.findings.note(PARTIALLY_PURGED, Some(header.event_id), detail);
        }
        ctx.findings.find(code, header, detail);
    }

    /// Whether a purged record after that sequence may be the one that is missing. Each explains one thing.
    fn claim(&mut self, action: Action, after: u64, by: impl Fn(&Decision) -> bool) -> bool {
        let fits = |d: &Decision| d.action == action && d.sequence > after && by(d);
        let found = self.purged_decisions.iter().position(fits);
        found.map(|at| self.purged_decisions.swap_remove(at)).is_some()
    }

    /// Takes a pending gate for approved where purged decisions of its approvers can make it so.
    pub(super) fn assume_approved(&mut self, gate_id: Id, registry: &Registry) -> bool {
        let Some(gate) = self.gates.get(gate_id) else { return false };
        let (after, rule, scope) = (gate.opened_seq, gate.rule, gate.scope.clone());
        let delegable = self.is_delegable(&gate.guard);
        let vote = if rule.is_some() { Action::StepApproved } else { Action::GateDecided };
        let mut states: Vec<State> = gate.steps.iter().map(|step| step.state).collect();
        let pending: Vec<(usize, Id, Rc<str>)> = (0..)
            .zip(&gate.steps)
            .filter(|(_, step)| step.state == State::Pending || (step.assumed && step.state == State::Withdrawn))
            .map(|(i, step)| (i, step.step_id, step.approver.clone()))
            .collect();
        let settled = gate.status() == State::Approved;
        for (i, step_id, approver) in pending {
            if rule.unwrap_or(Rule::All).met(&states) {
                break;
            }
            let substituted =
                |d: &Decision| delegable && registry.substituted(&d.by, &approver, &scope, (d.at_us, d.registry_seq));
            if !self.claim(vote, after, |d| d.by == approver || substituted(d)) {
                continue;
            }
            if let (Some(state), Some(step)) = (states.get_mut(i), self.gates.step_mut(step_id)) {
                *state = State::Approved;
                step.state = State::Approved;
                step.assumed = true;
            }
        }
        let resolved = rule.is_none() || settled || self.claim(Action::ChainResolved, after, |_| true);
        let approved = resolved && rule.unwrap_or(Rule::All).met(&states);
        if let (true, Some(gate)) = (approved, self.gates.get_mut(gate_id)) {
            gate.chain_state = State::Approved;
        }
        approved
    }
}
