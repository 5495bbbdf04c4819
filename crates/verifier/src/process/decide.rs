//! Decisions: a step is decided by its approver and withdrawn by its submitter; a chain is settled by its own steps.

use super::gate::{End, Gate, MOOT, Reason, UNREACHABLE};
use super::quorum::{Rule, State};
use super::substitute::Mandate;
use super::{Context, Kinds, Owed, Process, Withdrawn, id, named, optional_id, optional_text};
use crate::bytes::Id;
use crate::finding::{Claim, Code};
use crate::json::Value;
use crate::record::Header;

const DECISIONS: Kinds = Kinds::OPENED.and(Kinds::DECIDED).and(Kinds::MOOTED).and(Kinds::FIRED);

impl Process {
    pub(super) fn decide_gate(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) -> Option<()> {
        let state = State::decided(payload.text("decision")?)?;
        let (step_id, chain_id) = (optional_id(payload, "step_id")?, optional_id(payload, "chain_id")?);
        let action = payload.text("action")?;
        let reason = Reason::of(optional_text(payload, "reason")?);
        let mandate = Mandate::read(payload)?;
        ctx.findings.checked(Claim::ApprovalGated);
        match (step_id, chain_id) {
            (_, Some(chain_id)) => {
                let this = Owed { chain_id, step_id, state, by: header.actor_ref.clone(), reason, mandate };
                self.close_decision(header, action, this, ctx);
            }
            (Some(step_id), None) => {
                let single = self.gates.of_step(step_id).filter(|gate| !gate.is_chain());
                if self.check_step(header, step_id, single, action, (state, mandate.as_ref()), ctx) {
                    self.settle(header, step_id, (state, mandate.as_ref()), reason);
                }
            }
            (None, None) => return None,
        }
        Some(())
    }

    /// The gate's own record of a decision on a quorum: the chain's record stands before it and says the same.
    fn close_decision(&mut self, header: &Header, action: &str, this: Owed, ctx: &mut Context<'_>) {
        let of = this.step_id.unwrap_or(this.chain_id);
        match self.command.decision.take() {
            None => {
                let detail = format!("a decision on {of}, which no record of its chain precedes");
                self.find(Code::RecordMissing, header, Kinds::DECIDED, detail, ctx);
                self.stand_in(header, action, &this, ctx);
            }
            Some(owed) if owed != this => {
                let detail = format!("this `gate_decided` on {of} is not that of the chain's record before it");
                self.find(Code::RecordMissing, header, Kinds::DECIDED, detail, ctx);
            }
            Some(_) => {}
        }
        if self.gates.get(this.chain_id).is_some_and(|gate| &*gate.action != action) {
            ctx.findings.find(Code::BindingInvalid, header, format!("chain {} is for another action", this.chain_id));
        }
    }

    /// The chain's own record of a decision was purged: the gate's says the same.
    fn stand_in(&mut self, header: &Header, action: &str, this: &Owed, ctx: &mut Context<'_>) {
        let Some(step_id) = this.step_id.filter(|_| self.purged.meets(Kinds::DECIDED)) else { return };
        let chain = self.gates.get(this.chain_id);
        let decided = (this.state, this.mandate.as_ref());
        if self.check_step(header, step_id, chain, action, decided, ctx) {
            self.settle(header, step_id, decided, this.reason);
        }
    }

    /// Whether the decision is on a pending step of that gate, by whom it is due.
    fn check_step(
        &self,
        header: &Header,
        step_id: Id,
        gate: Option<&Gate>,
        action: &str,
        (state, mandate): (State, Option<&Mandate>),
        ctx: &mut Context<'_>,
    ) -> bool {
        let step = gate.and_then(|gate| gate.steps.iter().find(|step| step.step_id == step_id));
        let (Some(gate), Some(step)) = (gate, step) else {
            let detail = format!("a decision on the step {step_id}, which no gate has");
            self.find(Code::BindingInvalid, header, Kinds::OPENED, detail, ctx);
            return false;
        };
        if &*gate.action != action {
            let detail = format!("the decision is for `{action}`, the step belongs to {}", named(gate));
            ctx.findings.find(Code::BindingInvalid, header, detail);
        }
        let withdrawn = state == State::Withdrawn;
        let due = if withdrawn { self.initiator(ctx) } else { step.approver.clone() };
        if let Some(mandate) = mandate.filter(|_| !withdrawn) {
            let initiator = self.initiator(ctx);
            if let Err(detail) = self.check_mandate(header, (gate, step), mandate, &initiator, ctx) {
                ctx.findings.find(Code::WrongApprover, header, format!("the step {step_id}: {detail}"));
            }
        } else if header.actor_ref != due || mandate.is_some() {
            let what = if withdrawn { "withdrawn" } else { "decided" };
            let detail = format!("the step {step_id} was {what} by `{}`, due is `{due}`", header.actor_ref);
            ctx.findings.find(Code::WrongApprover, header, detail);
        }
        if step.state != State::Pending && !step.assumed {
            let detail = format!("the step {step_id} was {} already", step.state.as_str());
            ctx.findings.find(Code::BindingInvalid, header, detail);
            return false;
        }
        true
    }

    fn settle(&mut self, header: &Header, step_id: Id, (state, mandate): (State, Option<&Mandate>), reason: Reason) {
        if let Some(step) = self.gates.step_mut(step_id) {
            step.transfer = mandate.map(|mandate| mandate.transfer(header));
            step.settle(state, End { by: header.actor_ref.clone(), at_us: header.recorded_at_us, reason });
        }
    }

    pub(super) fn decide_step(
        &mut self,
        header: &Header,
        payload: &Value,
        state: State,
        ctx: &mut Context<'_>,
    ) -> Option<()> {
        let (chain_id, step_id) = (id(payload, "chain_id")?, id(payload, "step_id")?);
        let (action, decided_by) = (payload.text("action")?, payload.text("decided_by")?);
        let reason = Reason::of(optional_text(payload, "reason")?);
        let trailing = payload.get("trailing")?.as_bool()?;
        let mandate = Mandate::read(payload)?;
        let chain = self.gates.get(chain_id).filter(|gate| gate.is_chain());
        let chain_state = chain.map(|gate| gate.chain_state);
        if chain_state.is_some_and(|state| trailing != (state != State::Pending)) {
            let detail = format!("`trailing` is {trailing}, but chain {chain_id} was {}", chain_state?.as_str());
            let depends = if trailing { Kinds::DECIDED } else { Kinds::NONE };
            self.find(Code::BindingInvalid, header, depends, detail, ctx);
        }
        if state == State::Withdrawn && self.command.withdrawn.iter().any(|step| step.step_id == step_id) {
            self.follow_chain(header, (chain_id, step_id), (decided_by, reason), ctx);
            return Some(());
        }
        let by_engine = ctx.registry.is_application_actor(&header.actor_ref, header.registry_seq);
        let left = match chain {
            Some(gate) => self.is_run || self.command.leaves(&gate.from_state),
            None => self.purged.meets(Kinds::OPENED),
        };
        if by_engine && state == State::Withdrawn && left {
            self.withdraw_rest(header, step_id, chain_id, (decided_by, reason), ctx);
            return Some(());
        }
        if decided_by != &*header.actor_ref {
            let detail = format!("recorded as decided by `{decided_by}`, the record is by `{}`", header.actor_ref);
            ctx.findings.find(Code::StatementMismatch, header, detail);
        }
        let fits = self.check_step(header, step_id, chain, action, (state, mandate.as_ref()), ctx);
        let by = header.actor_ref.clone();
        let owed = Owed { chain_id, step_id: Some(step_id), state, by, reason, mandate: mandate.clone() };
        self.owe(header, owed, ctx);
        if fits {
            self.settle(header, step_id, (state, mandate.as_ref()), reason);
            self.judge_quorum(chain_id);
        }
        Some(())
    }

    /// The record of a step that its chain's end withdrew, in this command: by the same actor, in the same words.
    fn follow_chain(
        &mut self,
        header: &Header,
        (chain_id, step_id): (Id, Id),
        (decided_by, reason): (&str, Reason),
        ctx: &mut Context<'_>,
    ) {
        let initiator = self.initiator(ctx);
        let Some(step) = self.command.withdrawn.iter_mut().find(|step| step.step_id == step_id) else { return };
        let again = std::mem::replace(&mut step.recorded, true);
        let same = (step.chain_id, &step.by, step.reason) == (chain_id, &header.actor_ref, reason);
        if again || !same {
            let detail = format!("the step {step_id} is not withdrawn as its chain's end says, or a second time");
            ctx.findings.find(Code::BindingInvalid, header, detail);
        }
        if *initiator != *decided_by {
            let detail = format!("withdrawn in the name of `{decided_by}`, the submitter is `{initiator}`");
            ctx.findings.find(Code::WrongApprover, header, detail);
        }
    }

    fn owe(&mut self, header: &Header, owed: Owed, ctx: &mut Context<'_>) {
        if let Some(before) = self.command.decision.replace(owed) {
            let of = before.step_id.unwrap_or(before.chain_id);
            let detail = format!("{of} was decided, but no `gate_decided` follows");
            self.find(Code::RecordMissing, header, Kinds::DECIDED, detail, ctx);
        }
    }

    /// The outcome that a pending chain has now, which a `chain_resolved` has to record.
    fn judge_quorum(&mut self, chain_id: Id) {
        let Some(gate) = self.gates.get(chain_id).filter(|gate| gate.chain_state == State::Pending && gate.sure) else {
            return;
        };
        let states: Vec<State> = gate.steps.iter().map(|step| step.state).collect();
        let outcome = gate.rule.unwrap_or(Rule::All).outcome(&states);
        if outcome != State::Pending {
            self.command.resolution = Some((chain_id, outcome));
        }
    }

    /// A state was left: the engine withdraws, in the submitter's name, what is undecided of a chain that has its outcome.
    fn withdraw_rest(
        &mut self,
        header: &Header,
        step_id: Id,
        chain_id: Id,
        (decided_by, reason): (&str, Reason),
        ctx: &mut Context<'_>,
    ) {
        let initiator = self.initiator(ctx);
        if *initiator != *decided_by {
            let detail = format!("withdrawn in the name of `{decided_by}`, the submitter is `{initiator}`");
            ctx.findings.find(Code::WrongApprover, header, detail);
        }
        let of_chain = self.gates.of_step(step_id).is_some_and(|gate| gate.id == chain_id);
        let resolved = self.gates.get(chain_id).is_some_and(|gate| gate.chain_state != State::Pending);
        let end = End { by: initiator, at_us: header.recorded_at_us, reason };
        match self
            .gates
            .step_mut(step_id)
            .filter(|step| of_chain && resolved && (step.state == State::Pending || step.assumed))
        {
            Some(step) => step.settle(State::Withdrawn, end),
            None => {
                let detail = format!("the step {step_id} is not an undecided step of a resolved chain");
                self.find(Code::BindingInvalid, header, DECISIONS, detail, ctx);
            }
        }
    }

    pub(super) fn resolve_chain(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) -> Option<()> {
        let chain_id = id(payload, "chain_id")?;
        let outcome = State::parse(payload.text("outcome")?)?;
        let recalled = recalled(payload)?;
        let action = payload.text("action")?;
        let due = self.command.resolution.take();
        let Some(gate) = self.gates.get(chain_id).filter(|gate| gate.is_chain()) else {
            let detail = format!("a resolution of chain {chain_id}, which was never opened");
            self.find(Code::BindingInvalid, header, Kinds::OPENED, detail, ctx);
            return Some(());
        };
        let moot = due.is_none() && (self.is_run || self.command.leaves(&gate.from_state));
        let expected = if moot { Some((chain_id, State::Withdrawn)) } else { due };
        if &*gate.action != action || gate.chain_state != State::Pending || expected != Some((chain_id, outcome)) {
            let unearned = outcome == State::Approved && !gate.rule_met();
            let code = if unearned { Code::GateNotApproved } else { Code::BindingInvalid };
            let detail =
                format!("chain {chain_id} is resolved as {}, which its steps do not amount to", outcome.as_str());
            self.find(code, header, DECISIONS, detail, ctx);
        }
        self.check_recalled(header, chain_id, &recalled, ctx);
        if moot {
            self.command.moot.push(chain_id);
        }
        let reason = if moot { MOOT } else { UNREACHABLE };
        self.end_chain(header, chain_id, outcome, Reason::of(Some(reason)), ctx);
        Some(())
    }

    pub(super) fn withdraw_chain(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) -> Option<()> {
        let chain_id = id(payload, "chain_id")?;
        let recalled = recalled(payload)?;
        let reason = Reason::of(Some(payload.text("reason")?));
        let action = payload.text("action")?;
        let by = header.actor_ref.clone();
        self.owe(header, Owed { chain_id, step_id: None, state: State::Withdrawn, by, reason, mandate: None }, ctx);
        let initiator = self.initiator(ctx);
        if header.actor_ref != initiator {
            let detail = format!("chain {chain_id} was withdrawn by `{}`, due is `{initiator}`", header.actor_ref);
            ctx.findings.find(Code::WrongApprover, header, detail);
        }
        let chain = self.gates.get(chain_id).filter(|gate| gate.is_chain() && &*gate.action == action);
        if chain.is_none_or(|gate| gate.chain_state != State::Pending) {
            let detail = format!("a withdrawal of chain {chain_id}, which was not pending");
            self.find(Code::BindingInvalid, header, DECISIONS, detail, ctx);
            return Some(());
        }
        self.check_recalled(header, chain_id, &recalled, ctx);
        self.end_chain(header, chain_id, State::Withdrawn, reason, ctx);
        Some(())
    }

    fn check_recalled(&self, header: &Header, chain_id: Id, recalled: &[Id], ctx: &mut Context<'_>) {
        let Some(gate) = self.gates.get(chain_id) else { return };
        let mut pending: Vec<Id> = gate.pending().map(|step| step.step_id).collect();
        let mut stated = recalled.to_vec();
        pending.sort_unstable();
        stated.sort_unstable();
        if pending != stated {
            let detail = format!(
                "recalls {} steps of chain {chain_id}, which are not its {} undecided ones",
                stated.len(),
                pending.len()
            );
            self.find(Code::BindingInvalid, header, DECISIONS, detail, ctx);
        }
    }

    /// A withdrawn chain takes its undecided steps with it; otherwise they only leave the in-trays.
    fn end_chain(&mut self, header: &Header, chain_id: Id, outcome: State, reason: Reason, ctx: &mut Context<'_>) {
        let by = self.initiator(ctx);
        let Some(gate) = self.gates.get_mut(chain_id) else { return };
        gate.chain_state = outcome;
        if outcome == State::Withdrawn {
            self.command.withdrawn.extend(gate.pending().map(|step| Withdrawn {
                step_id: step.step_id,
                chain_id,
                by: header.actor_ref.clone(),
                reason,
                recorded: false,
            }));
            gate.withdraw_pending(&by, header.recorded_at_us, reason);
        }
        for step in gate.steps.iter_mut().filter(|step| step.state == State::Pending) {
            step.recall(header.recorded_at_us);
        }
    }
}

fn recalled(payload: &Value) -> Option<Vec<Id>> {
    payload.texts("recalled_step_ids")?.into_iter().map(Id::parse).collect()
}
