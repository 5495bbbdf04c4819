//! `transition_fired` and `moot_gate_recalled`: the only way to move, and what becomes of the gates left behind.

use super::document::Effect;
use super::gate::{Fate, MOOT, Reason};
use super::quorum::State;
use super::{Caused, Context, Fired, Kinds, Process, id, named, optional_id, optional_text, push_tight};
use crate::bytes::Id;
use crate::finding::{Claim, Code};
use crate::json::Value;
use crate::record::Header;

const PATH: Kinds = Kinds::STARTED.and(Kinds::FIRED);

impl Process {
    pub(super) fn fire(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) -> Option<()> {
        let fired = Fired {
            event_id: header.event_id,
            transition_id: id(payload, "transition_id")?,
            sequence_number: u64::try_from(payload.int("sequence_number")?).ok()?,
            from_state: ctx.names.get(payload.text("from_state")?),
            action: ctx.names.get(payload.text("action")?),
            to_state: ctx.names.get(payload.text("new_state")?),
            at_us: header.recorded_at_us,
            by: header.actor_ref.clone(),
            guarded: payload.get("guarded")?.as_bool()?,
            step_id: optional_id(payload, "step_id")?,
            chain_id: optional_id(payload, "chain_id")?,
        };
        optional_text(payload, "reason")?;
        let effects = Effect::read_all(payload.given("effects")).ok()?;
        ctx.findings.checked(Claim::DeclaredPath);
        self.check_path(header, &fired, ctx);
        self.take_effects(header, &fired, effects, ctx);
        self.check_guard(header, &fired, ctx);
        self.next_number = fired.sequence_number.saturating_add(1);
        self.state = Some(fired.to_state.clone());
        if fired.from_state != fired.to_state {
            self.command.left = Some(fired.from_state.clone());
        }
        push_tight(&mut self.fired, fired);
        Some(())
    }

    fn check_path(&self, header: &Header, fired: &Fired, ctx: &mut Context<'_>) {
        if let Some(state) = self.state.as_ref().filter(|state| **state != fired.from_state) {
            let detail = format!("fired from `{}`, replay had reached `{state}`", fired.from_state);
            self.find(Code::UndeclaredTransition, header, PATH, detail, ctx);
        }
        if fired.sequence_number != self.next_number {
            let (found, expected) = (fired.sequence_number, self.next_number);
            let detail = format!("its sequence_number is {found}, expected {expected}");
            self.find(Code::UndeclaredTransition, header, Kinds::NONE, detail, ctx);
        }
        let Some(declaration) = &self.declaration else { return };
        if declaration.is_terminal(&fired.from_state) {
            let detail = format!("`{}` is terminal, and `{}` was fired from it", fired.from_state, fired.action);
            return ctx.findings.find(Code::UndeclaredTransition, header, detail);
        }
        let declared = declaration.transition(&fired.from_state, &fired.action).map(|t| t.to.as_str());
        if declared != Some(&fired.to_state) {
            let expected = declared.map_or("declared is none".to_owned(), |to| format!("declared is one to `{to}`"));
            let detail = format!("`{}` from `{}` to `{}`: {expected}", fired.action, fired.from_state, fired.to_state);
            ctx.findings.find(Code::UndeclaredTransition, header, detail);
        }
    }

    /// A firing causes what its transition declares, all of it and in that order.
    fn take_effects(&mut self, header: &Header, fired: &Fired, effects: Vec<Effect>, ctx: &mut Context<'_>) {
        let declared = self.declaration.as_ref().and_then(|d| d.transition(&fired.from_state, &fired.action));
        if declared.is_some_and(|transition| transition.effects != effects) {
            let detail = format!("the effects of `{}` are not those that its transition declares", fired.action);
            ctx.findings.find(Code::UndeclaredTransition, header, detail);
        }
        for (place, effect) in (0..).zip(effects) {
            let starts = match effect {
                Effect::Start(definition) => Some(definition),
                Effect::Event(of) => {
                    self.sent.insert(of);
                    None
                }
            };
            self.effects.push(Caused { transition_id: fired.transition_id, place, starts });
        }
    }

    fn check_guard(&mut self, header: &Header, fired: &Fired, ctx: &mut Context<'_>) {
        let declared = self.declaration.as_ref().and_then(|d| d.transition(&fired.from_state, &fired.action));
        let guard = declared.map(|transition| transition.guard.is_some());
        if guard.is_some_and(|guard| guard != fired.guarded) {
            let detail = format!("`guarded` is {}, which is not what the declaration says", fired.guarded);
            ctx.findings.find(Code::UnguardedFiring, header, detail);
        }
        let gate_id = fired.chain_id.or(fired.step_id);
        match (fired.guarded, gate_id) {
            (false, None) => {}
            (false, Some(gate)) => {
                let detail = format!("an unguarded firing names the gate {gate}");
                ctx.findings.find(Code::UnguardedFiring, header, detail);
            }
            (true, None) => {
                ctx.findings.checked(Claim::ApprovalGated);
                ctx.findings.find(Code::GateNotApproved, header, "a guarded firing names no gate that it consumed");
            }
            (true, Some(gate_id)) => {
                ctx.findings.checked(Claim::ApprovalGated);
                self.spend(header, fired, gate_id, ctx);
            }
        }
    }

    /// One approval, one firing.
    fn spend(&mut self, header: &Header, fired: &Fired, gate_id: Id, ctx: &mut Context<'_>) {
        if let Some(earlier) = self.spent.insert(gate_id, header.sequence) {
            let detail = format!("the gate {gate_id} was consumed before, by the record with sequence {earlier}");
            return self.find(Code::ApprovalReused, header, Kinds::NONE, detail, ctx);
        }
        let Some(gate) = self.gates.get(gate_id).filter(|gate| gate.is_chain() == fired.chain_id.is_some()) else {
            let detail = format!("the gate {gate_id} that it consumed was never opened");
            return self.find(Code::GateNotApproved, header, Kinds::OPENED, detail, ctx);
        };
        let pending = gate.status() == State::Pending || (gate.status() == State::Approved && !gate.rule_met());
        if pending && self.purged.meets(Kinds::DECIDED) {
            self.assume_approved(gate_id, ctx.registry);
        }
        let Some(gate) = self.gates.get(gate_id) else { return };
        let problem = if gate.from_state != fired.from_state || gate.action != fired.action {
            Some(format!("it consumed {}", named(gate)))
        } else if !gate.current {
            Some(format!("{} had been replaced by a newer one", named(gate)))
        } else if gate.status() != State::Approved {
            Some(format!("{} was {}, not Approved", named(gate), gate.status().as_str()))
        } else if !gate.rule_met() {
            Some(format!("the steps of {} do not meet its rule", named(gate)))
        } else if gate.fate != Fate::Unspent {
            Some(format!("{} was {} before", named(gate), gate.fate.as_str()))
        } else {
            None
        };
        if let Some(detail) = problem {
            ctx.findings.find(Code::GateNotApproved, header, detail);
        }
        if let Some(gate) = self.gates.get_mut(gate_id) {
            gate.fate = Fate::Consumed;
        }
    }

    pub(super) fn recall_moot(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) -> Option<()> {
        let (step_id, chain_id) = (optional_id(payload, "step_id")?, optional_id(payload, "chain_id")?);
        let gate_id = chain_id.or(step_id)?;
        let (action, from_state) = (payload.text("moot_action")?, payload.text("from_state")?);
        let kind = payload.text("moot_kind")?;
        payload.text("reason")?;
        ctx.findings.checked(Claim::Coverage);
        let resolved = self.command.moot.iter().position(|chain| *chain == gate_id);
        let resolved = resolved.map(|at| self.command.moot.swap_remove(at)).is_some();
        if let Some((depends, problem)) = self.moot_problem(gate_id, action, from_state, kind, resolved) {
            self.find(Code::MootInvalid, header, depends, problem, ctx);
        }
        let by = self.initiator(ctx);
        if let Some(gate) = self.gates.get_mut(gate_id).filter(|gate| gate.fate == Fate::Unspent) {
            gate.fate = Fate::Mooted;
            if !gate.is_chain() {
                gate.withdraw_pending(&by, header.recorded_at_us, Reason::of(Some(MOOT)));
            }
        }
        Some(())
    }

    /// What is wrong with it, and which purged records could explain that.
    fn moot_problem(
        &self,
        gate_id: Id,
        action: &str,
        from_state: &str,
        kind: &str,
        resolved: bool,
    ) -> Option<(Kinds, String)> {
        if !self.is_run && self.command.left.as_deref() != Some(from_state) {
            return Some((Kinds::FIRED, format!("no firing of this command left `{from_state}`")));
        }
        let Some(gate) = self.gates.get(gate_id) else {
            return Some((Kinds::OPENED, format!("the gate {gate_id} was never opened")));
        };
        if &*gate.from_state != from_state || &*gate.action != action {
            return Some((Kinds::NONE, format!("it names another state or action than {}", named(gate))));
        }
        if gate.fate != Fate::Unspent || !gate.current {
            let why = if gate.current { gate.fate.as_str() } else { "replaced by a newer one" };
            return Some((Kinds::NONE, format!("{} was {why} already", named(gate))));
        }
        let expected = match (resolved, gate.status(), gate.is_chain()) {
            (true, _, _) | (false, State::Pending, false) => "pending-withdrawn",
            (false, State::Approved, _) => "approved-unconsumed",
            (false, State::Pending, true) => {
                return Some((Kinds::DECIDED, format!("{} was not resolved before", named(gate))));
            }
            (false, status, _) => {
                return Some((Kinds::NONE, format!("{} was {}, not open", named(gate), status.as_str())));
            }
        };
        let depends = if gate.status() == State::Pending { Kinds::DECIDED } else { Kinds::NONE };
        (kind != expected).then(|| (depends, format!("the kind is `{kind}`, expected `{expected}`")))
    }
}
