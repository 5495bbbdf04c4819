//! `chain_initiated` and `gate_opened`: a guarded transition of the current state is bound to the approval that the
//! gate_spec names for its guard.

use super::gate::{Fate, Gate};
use super::quorum::{Rule, State};
use super::{ChainOpening, Context, Kinds, Process, id, named, new_step, optional_id, optional_text};
use crate::bytes::Id;
use crate::finding::Code;
use crate::json::Value;
use crate::record::Header;
use std::rc::Rc;

/// Step, assignment and approver.
type Seat = (Id, Id, Rc<str>);

fn seats(payload: &Value, ctx: &mut Context<'_>) -> Option<Vec<Seat>> {
    let seat = |value: &Value, ctx: &mut Context<'_>| {
        Some((id(value, "step_id")?, id(value, "assignment_id")?, ctx.names.get(value.text("approver_ref")?)))
    };
    payload.get("steps")?.as_list()?.iter().map(|value| seat(value, ctx)).collect()
}

impl Process {
    pub(super) fn initiate_chain(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) -> Option<()> {
        let opening = ChainOpening {
            chain_id: id(payload, "chain_id")?,
            action: ctx.names.get(payload.text("action")?),
            scope: ctx.names.get(payload.text("scope")?),
            rule: Rule::read(payload.text("quorum_rule"), payload.given("m"))?,
            steps: seats(payload, ctx)?,
        };
        let subject = payload.text("subject_ref")?;
        if let Some(started) = &self.started {
            let expected = format!("{}:{}", started.subject_ref, opening.action);
            if subject != expected {
                let detail = format!("the chain is about `{}`, expected `{expected}`", crate::json::shortened(subject));
                ctx.findings.find(Code::WrongApprover, header, detail);
            }
        }
        let approvers = payload.texts("approver_set")?;
        if !approvers.iter().copied().eq(opening.steps.iter().map(|(_, _, approver)| &**approver)) {
            ctx.findings.find(Code::WrongApprover, header, "the steps are not those of the approver_set");
        }
        self.check_submitter(header, payload.text("initiator_ref")?, ctx);
        if let Some(before) = self.command.chain.replace(opening) {
            let detail = format!("chain {} was initiated, but no `gate_opened` follows", before.chain_id);
            self.find(Code::RecordMissing, header, Kinds::OPENED, detail, ctx);
        }
        Some(())
    }

    pub(super) fn open_gate(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) -> Option<()> {
        let chain_id = optional_id(payload, "chain_id")?;
        let opening = self.command.chain.take();
        let (gate_id, steps, rule) = match chain_id {
            None => {
                let step_id = id(payload, "step_id")?;
                let approver = ctx.names.get(payload.text("approver_ref")?);
                (step_id, vec![(step_id, id(payload, "assignment_id")?, approver)], None)
            }
            Some(chain_id) => {
                let steps = seats(payload, ctx)?;
                let rule = self.check_chain(header, payload, chain_id, &steps, opening.as_ref(), ctx);
                (chain_id, steps, Some(rule))
            }
        };
        let gate = Gate {
            id: gate_id,
            from_state: ctx.names.get(payload.text("from_state")?),
            action: ctx.names.get(payload.text("action")?),
            guard: ctx.names.get(payload.text("guard")?),
            scope: ctx.names.get(payload.text("scope")?),
            opened_at_us: header.recorded_at_us,
            opened_seq: header.sequence,
            opened_by: header.actor_ref.clone(),
            rule,
            chain_state: State::Pending,
            fate: Fate::Unspent,
            current: true,
            sure: rule != Some(Rule::Unknown),
            steps: steps.into_iter().map(|(step, assignment, approver)| new_step(step, assignment, approver)).collect(),
        };
        optional_text(payload, "reason")?;
        let supersedes = optional_id(payload, "supersedes")?;
        self.check_submitter(header, payload.text("submitter_ref")?, ctx);
        self.check_binding(header, &gate, supersedes, ctx);
        self.check_approvers(header, &gate, ctx);
        if self.gates.knows(&gate) {
            ctx.findings.find(Code::RecordMissing, header, format!("{} was opened before", named(&gate)));
        } else {
            self.gates.bind(gate);
        }
        Some(())
    }

    /// A quorum's `gate_opened` repeats its `chain_initiated`.
    fn check_chain(
        &self,
        header: &Header,
        payload: &Value,
        chain_id: Id,
        steps: &[Seat],
        opening: Option<&ChainOpening>,
        ctx: &mut Context<'_>,
    ) -> Rule {
        let Some(opening) = opening.filter(|opening| opening.chain_id == chain_id) else {
            let detail = format!("chain {chain_id} has no `chain_initiated` before its `gate_opened`");
            self.find(Code::RecordMissing, header, Kinds::OPENED, detail, ctx);
            let declared = self.gate_spec.as_ref().and_then(|spec| spec.0.get(payload.text("guard")?)?.rule);
            return declared.unwrap_or(Rule::Unknown);
        };
        let same = opening.steps == steps
            && payload.text("action") == Some(&opening.action)
            && payload.text("scope") == Some(&opening.scope);
        if !same {
            let detail = format!("`chain_initiated` and `gate_opened` of chain {chain_id} say different things");
            ctx.findings.find(Code::BindingInvalid, header, detail);
        }
        if self.last.as_ref().is_some_and(|last| last.actor_ref != header.actor_ref) {
            let detail = "`chain_initiated` and `gate_opened` are by different actors";
            ctx.findings.find(Code::StatementMismatch, header, detail);
        }
        opening.rule
    }

    fn check_submitter(&self, header: &Header, stated: &str, ctx: &mut Context<'_>) {
        let initiator = self.initiator(ctx);
        if &*initiator != stated {
            let detail = format!("submitted in the name of `{stated}`, the process was initiated by `{initiator}`");
            ctx.findings.find(Code::WrongApprover, header, detail);
        }
    }

    fn check_binding(&mut self, header: &Header, gate: &Gate, supersedes: Option<Id>, ctx: &mut Context<'_>) {
        let state = self.state.get_or_insert_with(|| gate.from_state.clone()).clone();
        let path = Kinds::STARTED.and(Kinds::FIRED);
        if *state != *gate.from_state {
            let detail = format!("{} was opened while the process was in `{state}`", named(gate));
            self.find(Code::BindingInvalid, header, path, detail, ctx);
        }
        if let Some(declaration) = self.declaration.clone() {
            let detail = match declaration.transition(&gate.from_state, &gate.action).map(|t| t.guard.as_deref()) {
                None => Some("its transition is not declared".to_owned()),
                Some(None) => Some("its transition carries no guard".to_owned()),
                Some(Some(guard)) if guard != &*gate.guard => {
                    Some(format!("its transition is guarded by `{guard}`, not by `{}`", gate.guard))
                }
                Some(Some(_)) => None,
            };
            if let Some(detail) = detail {
                ctx.findings.find(Code::BindingInvalid, header, format!("{}: {detail}", named(gate)));
            }
        }
        self.check_bound(header, gate, supersedes, ctx);
    }

    /// The gate bound before must be refused, withdrawn, spent or moot, and is the one that is replaced.
    fn check_bound(&self, header: &Header, gate: &Gate, supersedes: Option<Id>, ctx: &mut Context<'_>) {
        let bound = self.gates.bound(&gate.from_state, &gate.action);
        let open = Kinds::OPENED.and(Kinds::DECIDED).and(Kinds::FIRED).and(Kinds::MOOTED);
        if let Some(bound) = bound.filter(|bound| bound.is_live()) {
            let detail = format!("{} is {} and unspent, and another was opened", named(bound), bound.status().as_str());
            self.find(Code::BindingInvalid, header, open, detail, ctx);
        }
        let expected = bound.map(|bound| bound.id);
        if supersedes != expected {
            let show = |id: Option<Id>| id.map_or("none".to_owned(), |id| id.to_string());
            let detail = format!("it supersedes {}, expected {}", show(supersedes), show(expected));
            self.find(Code::BindingInvalid, header, Kinds::OPENED, detail, ctx);
        }
    }

    /// Approvers, scope and rule are those of the gate_spec.
    fn check_approvers(&self, header: &Header, gate: &Gate, ctx: &mut Context<'_>) {
        let Some(spec) = &self.gate_spec else { return };
        let Some(entry) = spec.0.get(&*gate.guard) else {
            let detail = format!("the gate_spec names nobody for the guard `{}`", gate.guard);
            return ctx.findings.find(Code::WrongApprover, header, detail);
        };
        let approvers: Vec<&str> = gate.steps.iter().map(|step| &*step.approver).collect();
        let expected: Vec<&str> = entry.approvers.iter().map(String::as_str).collect();
        let show = |rule: Option<Rule>| match rule {
            None => "a single approver".to_owned(),
            Some(rule) => rule.m().map_or(rule.as_str().to_owned(), |m| format!("{m} of n")),
        };
        let detail = if approvers != expected {
            format!("asks [{}], the gate_spec names [{}]", approvers.join(", "), expected.join(", "))
        } else if gate.rule != entry.rule && gate.rule != Some(Rule::Unknown) {
            format!("asks for {}, the gate_spec for {}", show(gate.rule), show(entry.rule))
        } else if *gate.scope != *entry.scope {
            format!("is in the scope `{}`, the gate_spec says `{}`", gate.scope, entry.scope)
        } else {
            return;
        };
        ctx.findings.find(Code::WrongApprover, header, format!("{} {detail}", named(gate)));
    }
}
