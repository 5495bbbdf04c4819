//! Who decides in place of a named approver: the substitute whom that approver named ahead, where the gate_spec allows it,
//! in the delegation's period and scope. Nobody else, and nobody twice.

use super::{Context, Gate, OnBehalf, Process, Step};
use crate::Time;
use crate::refusal::{Code, Refusal};
use crate::registry::{Delegation, Registry};

/// What lets `actor_ref` decide this step though the gate names another approver.
pub fn mandate<'r>(
    process: &Process,
    gate: &Gate,
    step: &Step,
    actor_ref: &str,
    (registry, now): (&'r Registry, Time),
) -> Result<&'r Delegation, String> {
    let approver = &step.approver_ref;
    if !process.gate_spec.0.get(&gate.guard).is_some_and(|entry| entry.is_delegable()) {
        return Err(format!("the gate_spec lets no approver of `{}` name a substitute", gate.guard));
    }
    let delegation = registry.delegations().in_force(approver, actor_ref, &gate.scope, now);
    let delegation = delegation.ok_or_else(|| {
        format!("`{approver}` has not named `{actor_ref}` as their substitute for `{}` at this time", gate.scope)
    })?;
    if process.initiator_ref == actor_ref {
        return Err(format!("`{actor_ref}` initiated this, and substitutes for nobody here"));
    }
    // One person, one voice.
    if gate.steps.iter().any(|other| other.approver_ref == actor_ref) {
        return Err(format!("`{actor_ref}` is an approver of this gate, and substitutes for nobody here"));
    }
    if gate.steps.iter().any(|other| other.decided.as_ref().is_some_and(|decided| decided.by == actor_ref)) {
        return Err(format!("`{actor_ref}` has decided a step of this gate already, as a substitute"));
    }
    if step.assignment.is_none() {
        return Err(format!("nothing of this gate waits for `{approver}` any more, so there is nothing to take over"));
    }
    Ok(delegation)
}

/// Nothing where the caller is the approver; otherwise for whom they decide, or why they do not.
pub fn authority(
    process: &Process,
    gate: &Gate,
    step: &Step,
    verb: &str,
    ctx: &mut Context<'_>,
) -> Result<Option<OnBehalf>, Refusal> {
    if step.approver_ref == ctx.actor_ref {
        return Ok(None);
    }
    match mandate(process, gate, step, ctx.actor_ref, (ctx.registry, ctx.now)) {
        Ok(delegation) => Ok(Some(OnBehalf {
            of: step.approver_ref.clone(),
            delegation_id: delegation.delegation_id,
            assignment_id: ctx.ids.make(),
        })),
        Err(why) => {
            let who = format!(
                "only `{}`, whom the gate names, may {verb} it; you are `{}`",
                step.approver_ref, ctx.actor_ref
            );
            Err(Refusal::new(Code::Unauthorized, format!("{who}. {why}")))
        }
    }
}

/// The step of a quorum that the caller may decide for another.
pub fn step_for<'g>(process: &Process, gate: &'g Gate, ctx: &Context<'_>) -> Result<Option<&'g Step>, Refusal> {
    let may = |step: &&Step| mandate(process, gate, step, ctx.actor_ref, (ctx.registry, ctx.now)).is_ok();
    let mut open = gate.pending_steps().filter(may);
    let first = open.next();
    if open.next().is_some() {
        let detail = "you are the substitute of more than one approver here, and decide for one: name `step_id`";
        return Err(Refusal::new(Code::InvalidRequest, detail).at("step_id"));
    }
    Ok(first)
}
