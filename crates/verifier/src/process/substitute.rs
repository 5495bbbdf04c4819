//! Decisions in an approver's place (`spec/record.md`, section 4, *Substitutes*): whether the delegation that a decision
//! names carries it.

use super::gate::{Gate, Step, Transfer};
use super::quorum::State;
use super::{Context, Process, optional_id, optional_text};
use crate::bytes::Id;
use crate::json::Value;
use crate::record::Header;
use std::rc::Rc;

/// The approver for whom a decision was made, as the record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mandate {
    pub of: String,
    pub delegation_id: Id,
    pub assignment_id: Id,
}

impl Mandate {
    /// Nothing where the payload says nothing of it; a fault where it says half of it.
    pub fn read(payload: &Value) -> Option<Option<Mandate>> {
        let of = optional_text(payload, "on_behalf_of")?;
        match (of, optional_id(payload, "delegation_id")?, optional_id(payload, "assignment_id")?) {
            (None, None, None) => Some(None),
            (Some(of), Some(delegation_id), Some(assignment_id)) => {
                Some(Some(Mandate { of: of.to_owned(), delegation_id, assignment_id }))
            }
            _ => None,
        }
    }

    pub fn transfer(&self, header: &Header) -> Transfer {
        Transfer { assignment_id: self.assignment_id, to: header.actor_ref.clone(), at_us: header.recorded_at_us }
    }
}

impl Process {
    /// Why the delegation does not carry this decision.
    pub(super) fn check_mandate(
        &self,
        header: &Header,
        (gate, step): (&Gate, &Step),
        mandate: &Mandate,
        initiator: &Rc<str>,
        ctx: &Context<'_>,
    ) -> Result<(), String> {
        let (actor, at) = (&header.actor_ref, header.registry_seq);
        if *mandate.of != *step.approver {
            return Err(format!("decided on behalf of `{}`, the approver is `{}`", mandate.of, step.approver));
        }
        if !self.is_delegable(&gate.guard) {
            return Err(format!("decided by a substitute, which the gate_spec does not allow for `{}`", gate.guard));
        }
        let id = mandate.delegation_id;
        let delegation = ctx.registry.delegation(&id.to_string()).filter(|delegation| delegation.span.began(at));
        let Some(delegation) = delegation else { return Err(format!("there was no delegation {id}")) };
        if delegation.span.ended(at) {
            return Err(format!("the delegation {id} had been revoked"));
        }
        if !delegation.covers(header.recorded_at_us) {
            return Err(format!("the decision lies outside the period of the delegation {id}"));
        }
        if (&*delegation.delegator_ref, &*delegation.delegate_ref) != (&*mandate.of, &**actor) {
            return Err(format!("the delegation {id} is not that of `{}` to `{actor}`", mandate.of));
        }
        if *delegation.scope != *gate.scope {
            return Err(format!("the delegation {id} is for another scope than `{}`", gate.scope));
        }
        if actor == initiator {
            return Err(format!("`{actor}` initiated this, and decided as a substitute"));
        }
        let decided = |other: &Step| {
            let end = other.end.as_ref().filter(|_| matches!(other.state, State::Approved | State::Rejected));
            end.is_some_and(|end| end.by == *actor)
        };
        if gate.steps.iter().any(|other| other.approver == *actor || decided(other)) {
            return Err(format!("`{actor}` has a voice in this gate already, and decided as a substitute"));
        }
        if step.recalled_at_us.is_some() && !step.recall_unknown {
            return Err(format!("`{actor}` decided as a substitute what waited for nobody any more"));
        }
        Ok(())
    }

    /// Not known where the gate_spec is not: that is found at the start.
    pub(super) fn is_delegable(&self, guard: &str) -> bool {
        self.gate_spec.as_ref().is_none_or(|spec| spec.0.get(guard).is_some_and(|entry| entry.delegable))
    }
}
