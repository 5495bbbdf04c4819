//! Transitions of one's own (ADR 25). A derived state lies over the state that the engine knows: asking for a transition
//! of one's own moves what lies over it, and where the floor has to move too, does so by the floor's own act, with all
//! that this act asks for. Leaving the state of the floor takes away what lay over it.

use super::flow::Flow;
use super::guard::Given;
use super::person;
use super::{Action, Cell, Outbound, Role, Run, StepAct};
use crate::Digest;
use crate::lifecycle::{ActorClass, MachineScope, OwnMachine, OwnTransition, StepCode, floor_trigger};
use crate::plan::{Micros, StepSeq};
use crate::refusal::{Code, Refusal};
use crate::registry::{Registry, scopes};
use std::sync::Arc;

/// The machine that a run was started under, in the version that was the newest then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedMachine {
    pub name: Arc<str>,
    pub version: u32,
    pub document_digest: Digest,
    pub machine: Arc<OwnMachine>,
}

impl PinnedMachine {
    /// The machine that a plan names, as it is published now.
    pub fn of(registry: &Registry, name: &str, version: Option<u32>) -> Result<PinnedMachine, Refusal> {
        if let Some(definition) = registry.definition(name, version) {
            definition.require_usable()?;
        }
        let (definition, own) = registry.own_machine(name, version).ok_or_else(|| {
            let detail = format!(
                "the workflow's steps move by the machine `{name}`, and none of that name and version is published"
            );
            Refusal::new(Code::NotKnown, detail).at("definition")
        })?;
        if own.machine.scope == MachineScope::WorkflowRun {
            let detail = format!("`{name}` is a machine of runs; steps move by one of the scope step or task");
            return Err(Refusal::new(Code::InvalidRequest, detail).at("definition"));
        }
        Ok(PinnedMachine {
            name: definition.name.as_str().into(),
            version: definition.version,
            document_digest: own.document_digest,
            machine: own.machine.clone(),
        })
    }

    /// Whether steps of this kind move by it.
    fn is_for(&self, role: Role) -> bool {
        match role {
            Role::Step => self.machine.scope == MachineScope::Step,
            Role::Task(_) => self.machine.scope == MachineScope::Task,
            Role::Compensation(_) => false,
        }
    }
}

/// What somebody who asks for a transition of one's own gives with it. What the floor's act asks for besides comes along.
#[derive(Clone, Debug, Default)]
pub struct TransitionWish {
    pub to: String,
    /// Where several lead there.
    pub trigger_ref: Option<String>,
    pub evidence_ref: Option<String>,
    pub event_type: Option<String>,
    pub timeout: Option<Micros>,
    pub facets: Vec<String>,
    pub block_reason: Option<String>,
    pub output: Option<Arc<str>>,
    pub outbound: Vec<Outbound>,
}

/// A transition of one's own that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnMove {
    pub id: String,
    pub from: String,
    pub to: String,
    pub actor: ActorClass,
    pub trigger: String,
    pub emits: Option<&'static str>,
}

impl Cell {
    /// The derived state that lies over its state.
    pub fn derived(&self) -> Option<&Arc<str>> {
        self.docket.as_ref()?.derived.as_ref()
    }

    /// The state as its machine calls it.
    pub fn shown_state(&self) -> &str {
        self.derived().map_or(self.state.as_str(), |derived| derived)
    }

    pub(super) fn set_derived(&mut self, derived: Option<Arc<str>>) {
        if self.derived() == derived.as_ref() {
            return;
        }
        self.docket.get_or_insert_default().derived = derived;
        if self.docket.as_deref() == Some(&Default::default()) {
            self.docket = None;
        }
    }
}

impl Run {
    /// The machine that this step moves by, where it is not the engine's own.
    pub fn machine_of(&self, cell: &Cell) -> Option<&PinnedMachine> {
        self.machine.as_deref().filter(|pinned| pinned.is_for(cell.role))
    }
}

pub fn transition(
    flow: &mut Flow<'_, '_, '_>,
    command: &StepAct,
    seq: StepSeq,
    wish: &TransitionWish,
) -> Result<Action, Refusal> {
    let (row, floor_to) = chosen(flow, command, seq, wish)?;
    let given = Given { evidence: wish.evidence_ref.as_deref(), ..Given::default() };
    flow.allow_own(seq, row.actor, row.guard, &given)?;
    let floor_from = flow.state(seq).ok_or_else(super::flow::broken)?;
    let action = if floor_from == floor_to {
        Action::StepTransitioned
    } else {
        by_the_floor(flow, command, seq, (floor_from, floor_to), row.actor, wish)?
    };
    if flow.state(seq) != Some(floor_to) {
        let detail = format!("`{}` would not be {floor_to} afterwards", command.step);
        return Err(Refusal::new(Code::InvalidTransition, detail).at("to"));
    }
    let derived = (row.to != floor_to.as_str()).then(|| Arc::from(row.to.as_str()));
    flow.edit(seq)?.set_derived(derived);
    person::note_evidence(flow, wish.evidence_ref.as_deref());
    if let Some(acted) = &mut flow.acted {
        let OwnTransition { id, from, to, actor, trigger, emits, .. } = row;
        acted.own = Some(OwnMove { id, from, to, actor, trigger, emits });
    }
    Ok(action)
}

/// The declared transition that the caller may make, and the state of the floor that it leads to.
fn chosen(
    flow: &Flow<'_, '_, '_>,
    command: &StepAct,
    seq: StepSeq,
    wish: &TransitionWish,
) -> Result<(OwnTransition, StepCode), Refusal> {
    let cell = flow.cell(seq).ok_or_else(super::flow::broken)?;
    let refused = |detail: String| Refusal::new(Code::InvalidTransition, detail).at("to");
    let Some(pinned) = flow.run.machine_of(cell) else {
        let detail =
            format!("`{}` moves by the engine's own machine, which has no transitions of one's own", command.step);
        return Err(refused(detail));
    };
    let (machine, from, to) = (&*pinned.machine, cell.shown_state(), wish.to.as_str());
    let asked = |t: &&OwnTransition| wish.trigger_ref.as_ref().is_none_or(|trigger| *trigger == t.trigger);
    let declared: Vec<&OwnTransition> = machine.between(from, to).filter(asked).collect();
    let floor_to = machine.floor_of(to).and_then(StepCode::parse);
    let (false, Some(floor_to)) = (declared.is_empty(), floor_to) else {
        let detail = format!(
            "`{}` cannot go from {from} to {to}: {}@{} declares no such transition",
            command.step, pinned.name, pinned.version
        );
        return Err(refused(detail));
    };
    if declared.iter().all(|t| t.proposed) {
        let detail = format!("the transition from {from} to {to} is proposed, and inert until it is approved");
        return Err(refused(detail));
    }
    let mut live = declared.iter().filter(|t| !t.proposed);
    match live.clone().find(|t| bears(flow, cell, t.actor)) {
        Some(row) => Ok(((*row).clone(), floor_to)),
        None => {
            let class = live.next().map_or("", |t| t.actor.as_str());
            let detail = format!("`{}` is not {class} of `{}`", flow.ctx.base.actor_ref, command.step);
            Err(Refusal::new(Code::Unauthorized, detail).at("step"))
        }
    }
}

/// Whether the caller is of this class, for this step.
fn bears(flow: &Flow<'_, '_, '_>, cell: &Cell, class: ActorClass) -> bool {
    let definition = flow.shell.definition.as_ref().map(|d| d.name.as_str());
    let may = |scope: &str| flow.ctx.base.require_scope(scope, definition).is_ok();
    match class {
        ActorClass::PicHuman | ActorClass::TaskPicHuman => is_pic(flow, cell) && may(scopes::TASKS_WORK),
        ActorClass::Reviewer => may(scopes::RUNS_CONTROL),
        ActorClass::EscalationHandler => may(scopes::GOVERNANCE_ACT),
        ActorClass::System | ActorClass::ExecutorWorker | ActorClass::MowOrchestrator => false,
    }
}

fn is_pic(flow: &Flow<'_, '_, '_>, cell: &Cell) -> bool {
    cell.pic().is_some_and(|pic| **pic == *flow.ctx.base.actor_ref)
}

/// The floor moves by its own act, whose guards hold here as everywhere.
fn by_the_floor(
    flow: &mut Flow<'_, '_, '_>,
    command: &StepAct,
    seq: StepSeq,
    (from, to): (StepCode, StepCode),
    actor: ActorClass,
    wish: &TransitionWish,
) -> Result<Action, Refusal> {
    let evidence = wish.evidence_ref.as_deref();
    match floor_trigger(from, to, actor) {
        Some("step_release") => person::release(flow, seq),
        Some("step_wait") => person::wait(flow, seq, wish.event_type.as_deref(), wish.timeout, &wish.facets),
        Some("step_block") => person::block(flow, seq, wish.block_reason.as_deref()),
        Some("blocker_resolved") => person::unblock(flow, command, seq, evidence),
        Some("step_complete") => {
            flow.outbound.extend_from_slice(&wish.outbound);
            person::complete(flow, seq, &wish.output.clone().unwrap_or_else(|| Arc::from("null")))
        }
        Some("declare_cannot_complete") => person::cannot_complete(flow, seq, evidence),
        Some("escalate") => super::operator::escalate(flow, seq),
        _ => {
            let detail = format!("the floor knows no way from {from} to {to} that can be asked for");
            Err(Refusal::new(Code::InvalidTransition, detail).at("to"))
        }
    }
}
