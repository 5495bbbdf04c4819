//! The guards of a run's transitions: whether each holds, by what the run holds and what was given with the request. This is
//! the one place that fires: the table names the guards ([`crate::lifecycle::Guard`]), and nothing moves but what [`Flow::fire`]
//! or [`Flow::fire_run`] has let through.

use super::correct::prior_of;
use super::flow::{By, Flow, broken, shell_gate};
use super::{BlockReason, Cell, CorrectionReason, Facet, Prior, Role};
use crate::Time;
use crate::lifecycle::{
    ActorClass, Facts, FailureCategory, Guard, Outcome, Response, RunState, RunTransition, StepCode, StepTransition,
    evaluate, fire_run, guards_of_act,
};
use crate::plan::{FailurePolicy, OnFailure, Order, StepSeq, StepSpec, Work};
use crate::process::GateStatus;
use crate::refusal::{Code, Refusal};

/// What comes with a request, for the guards to judge. What a transition does not need is left out.
#[derive(Clone, Copy, Default)]
pub struct Given<'g> {
    /// What shows it: a reference that a person gives, or what has arrived.
    pub evidence: Option<&'g str>,
    pub facets: &'g [&'g str],
    pub block_reason: Option<&'g str>,
    pub deadline: Option<Time>,
    pub approval: Option<Approval<'g>>,
    pub correction_reason: Option<&'g str>,
    pub prior: Option<&'g Prior>,
    pub judged: Option<&'g Judged>,
    pub category: Option<FailureCategory>,
    pub on_failure: Option<OnFailure>,
    pub in_slot: bool,
}

/// The approval that a transition spends.
#[derive(Clone, Copy)]
pub struct Approval<'g> {
    pub gate: &'g str,
    pub id: Option<&'g str>,
    /// Whoever asks names it. Otherwise it is enough that the gate is cleared.
    pub is_named: bool,
}

/// What became of an output, or of an input, that was held against its contract.
pub enum Judged {
    Holds,
    Missed(String),
    /// A check did not hold.
    Failed(String),
}

impl Judged {
    pub fn of<T>(judged: &Result<T, (String, &'static str)>) -> Judged {
        match judged {
            Ok(_) => Judged::Holds,
            Err((error, _)) if error.starts_with("CHECK_FAILED:") => Judged::Failed(error.clone()),
            Err((error, _)) => Judged::Missed(error.clone()),
        }
    }

    /// The same, with what it is about said first.
    pub fn about(self, what: &str) -> Judged {
        match self {
            Judged::Holds => Judged::Holds,
            Judged::Missed(error) => Judged::Missed(format!("{what}: {error}")),
            Judged::Failed(error) => Judged::Failed(format!("{what}: {error}")),
        }
    }
}

/// A declared transition of a step whose guards hold. [`Flow::make`] makes it.
pub struct Fired {
    pub(super) seq: StepSeq,
    pub(super) from: StepCode,
    pub(super) by: By,
    transition: &'static StepTransition,
}

impl Fired {
    pub fn transition(&self) -> &'static StepTransition {
        self.transition
    }
}

/// The same of a run. [`Flow::make_run`] makes it.
pub struct RunFired(&'static RunTransition);

impl RunFired {
    pub fn transition(&self) -> &'static RunTransition {
        self.0
    }
}

impl Flow<'_, '_, '_> {
    /// The declared transition, once every guard that the table has for it holds.
    pub fn fire(&self, seq: StepSeq, to: StepCode, by: By, given: &Given<'_>) -> Result<Fired, Refusal> {
        let transition = self.declared(seq, to, by)?;
        let from = self.state(seq).ok_or_else(broken)?;
        evaluate(transition.guards_of(by.0), &At { flow: self, seq: Some(seq), by, given })?;
        Ok(Fired { seq, from, by, transition })
    }

    pub fn fire_run(&self, to: RunState, trigger: &'static str, given: &Given<'_>) -> Result<RunFired, Refusal> {
        let from = self.head.state;
        let transition = fire_run(from, to, trigger).ok_or_else(|| {
            let detail = format!("the run cannot go from {from} to {to} by {trigger}: no such transition is declared");
            Refusal::new(Code::InvalidTransition, detail)
        })?;
        let about = transition.about().ok_or_else(broken)?;
        let by = By(about.actor, trigger);
        evaluate(about.guards.iter().copied(), &At { flow: self, seq: None, by, given })?;
        Ok(RunFired(transition))
    }

    /// An act that changes no state by itself is let through by its guards.
    pub fn allow(&self, seq: StepSeq, act: &'static str, given: &Given<'_>) -> Result<(), Refusal> {
        let by = By(ActorClass::Reviewer, act);
        evaluate(guards_of_act(act).iter().copied(), &At { flow: self, seq: Some(seq), by, given })
    }

    /// A guard of a machine's own transition.
    pub fn allow_own(
        &self,
        seq: StepSeq,
        actor: ActorClass,
        guard: Option<Guard>,
        given: &Given<'_>,
    ) -> Result<(), Refusal> {
        evaluate(guard, &At { flow: self, seq: Some(seq), by: By(actor, ""), given })
    }
}

/// Where a transition is asked for.
struct At<'f, 'r, 'c, 'x> {
    flow: &'f Flow<'r, 'c, 'x>,
    /// None for a transition of the run.
    seq: Option<StepSeq>,
    by: By,
    given: &'f Given<'f>,
}

impl Facts for At<'_, '_, '_, '_> {
    fn check(&self, guard: Guard) -> Result<(), Refusal> {
        match guard {
            Guard::PicResolves => self.pic_resolves(),
            Guard::ExecutorClass => self.executor_class(),
            Guard::RunHandsOut => self.run_hands_out(),
            Guard::WaitingFacet => self.waiting_facet(),
            Guard::BlockReason => self.block_reason(),
            Guard::GateCleared => self.gate_cleared(),
            Guard::TasksCompleted => self.tasks_completed(),
            Guard::OutputContract | Guard::Postcondition | Guard::InputContract => self.contract(guard),
            Guard::CorrectionReason => self.correction_reason(),
            Guard::ApprovalPresent => self.approval(),
            Guard::EffectsKnown => self.effects_known(),
            Guard::EffectUnknown => self.effect_unknown(),
            guard => {
                let (holds, detail, field) = self.plainly(guard)?;
                if holds {
                    return Ok(());
                }
                let refusal = Refusal::by_guard(guard, detail);
                Err(if field.is_empty() { refusal } else { refusal.at(field) })
            }
        }
    }
}

const EVIDENCE: &str = "evidence_ref";

impl At<'_, '_, '_, '_> {
    fn cell(&self) -> Option<&Cell> {
        self.flow.cell(self.seq?)
    }

    fn spec(&self) -> Option<&StepSpec> {
        self.flow.spec(self.seq?)
    }

    fn name(&self) -> &str {
        self.seq.map_or("", |seq| self.flow.run.step_name(seq))
    }

    fn is_persons(&self) -> bool {
        self.spec().is_some_and(|spec| matches!(spec.work, Work::Human { .. }))
    }

    /// The step of which this is a task.
    fn whole(&self) -> Option<StepSeq> {
        match self.cell()?.role {
            Role::Task(step) => Some(step),
            Role::Step | Role::Compensation(_) => None,
        }
    }

    /// Whether a worker takes it out of a queue. What the engine does itself begins in whatever state the run is.
    fn is_taken(&self) -> bool {
        self.by.0 != ActorClass::ExecutorWorker || self.spec().is_none_or(StepSpec::is_claimed)
    }

    /// Guards with one answer: whether it holds, what to do where it does not, and where.
    fn plainly(&self, guard: Guard) -> Result<(bool, &'static str, &'static str), Refusal> {
        let (flow, now, given) = (self.flow, self.flow.now(), self.given);
        Ok(match guard {
            Guard::RunGoesForward => (!flow.head.undoing, "the run is undoing its work", ""),
            Guard::PinsSurveyed => (
                !self.is_taken() || !(flow.is_surveyed() || flow.is_spent()),
                "the run's pins are being looked at, or its cap is reached: nothing begins now",
                "step",
            ),
            Guard::ActorIsPic => {
                let pic = self.cell().and_then(Cell::pic).is_some_and(|pic| **pic == *flow.ctx.base.actor_ref);
                (pic, "only whoever is in charge of the step does this", "step")
            }
            Guard::FacetProof => (
                given.evidence.is_some(),
                "say with `evidence_ref` what shows that the thing waited for is there",
                EVIDENCE,
            ),
            Guard::BlockerEvidence => {
                (given.evidence.is_some(), "say with `evidence_ref` what shows that the block is resolved", EVIDENCE)
            }
            Guard::DeclarationEvidence => (
                given.evidence.is_some(),
                "say with `evidence_ref` what shows that the step cannot be completed",
                EVIDENCE,
            ),
            Guard::DeadlineUpdated => (
                self.is_put_off(now),
                "a deadline is put off to a later time, and to one that lies ahead",
                if given.deadline.is_some() { "deadline" } else { "step" },
            ),
            Guard::PriorAudit => (
                self.seq.is_some_and(|seq| prior_of(flow, seq, given.prior).is_some()),
                "the record that closed the step is not at hand: it was closed in another run, or has just been closed",
                "step",
            ),
            Guard::RetryBudget => (
                self.cell().is_some_and(Cell::retry_scheduled) == (self.by.1 == "retry_attempt"),
                "the step will be tried again by itself: neither is its budget spent, nor did it fail for good",
                "step",
            ),
            Guard::OnFailureHold => (
                self.seq.is_none_or(|seq| !self.cell().is_some_and(|cell| flow.run.is_passed(seq, cell))),
                "the run has gone on without this step",
                "step",
            ),
            Guard::CapReached => (self.cap(now), "the step's work is done already, or its cap is reached", "step"),
            Guard::UndoUnderWay => (self.undo_is_under_way(), "only an undo that is under way is declared", "step"),
            guard => (self.follows(guard, now)?, "the engine does not find it so", ""),
        })
    }

    /// Guards of what the engine does by itself: it asks where the answer is yes.
    fn follows(&self, guard: Guard, now: Time) -> Result<bool, Refusal> {
        let (flow, given, cell) = (self.flow, self.given, self.cell());
        let live = cell.and_then(|cell| cell.live.as_deref());
        let whole = self.whole().and_then(|step| flow.state(step));
        Ok(match guard {
            Guard::PreconditionConfig => match cell.map(|cell| (cell.role, cell.open_deps)) {
                Some((Role::Step, open)) => open == 0,
                Some((Role::Task(step), _)) => flow.cell(step).is_some_and(Cell::is_held),
                Some((Role::Compensation(_), _)) => flow.head.undoing,
                None => false,
            },
            Guard::PredecessorOpen => self.waits_for_a_step(),
            Guard::DeadlinePassed => cell.is_some_and(|cell| cell.is_late(now)),
            Guard::StartDeadlinePassed => cell.and_then(Cell::claim_by).is_some_and(|by| by < now),
            Guard::CompletedLate => cell.is_some_and(|cell| cell.is_late(now)),
            Guard::FailureClass => given.category.is_some(),
            Guard::EventAwaited => {
                live.and_then(|live| live.waiting.as_ref()).is_some_and(|waiting| waiting.event_type.is_some())
            }
            Guard::LeaseOver => cell.and_then(Cell::lease).is_some_and(|lease| lease.until < now),
            Guard::WaitOver => self.wait_is_over(now),
            Guard::UpstreamOrWhen if self.whole().is_some() => whole == Some(StepCode::Skipped),
            Guard::UpstreamOrWhen if self.by.1 == "when_false" => self.spec().is_some_and(|spec| spec.when.is_some()),
            Guard::UpstreamOrWhen => cell.is_some_and(|cell| cell.open_deps == 0 && !cell.fed),
            Guard::OnFailureSkip if self.whole().is_some() => whole == Some(StepCode::Skipped),
            Guard::OnFailureSkip => given.on_failure == Some(OnFailure::Skip),
            Guard::ApprovalWhereDeclared => matches!(flow.head.state, RunState::Cancelled | RunState::Voided),
            Guard::TimeoutPassed => self.timeout_has_passed(now),
            Guard::GateDeclared => {
                self.spec().is_some_and(|spec| spec.gate.is_some() || matches!(spec.work, Work::Approval(_)))
            }
            Guard::FailurePolicy => match (self.seq, self.by.1) {
                (None, "lease_expired") => flow.run.plan.failure_policy == FailurePolicy::FailClosed,
                (None, _) => flow.head.last_error.is_some(),
                (Some(_), _) => flow.head.state.is_ended() || flow.head.undoing || whole.is_some_and(is_over),
            },
            Guard::EngineVerdict => {
                given.category.is_some() || flow.head.undoing || live.is_some_and(|live| live.effect_unknown)
            }
            Guard::SlotFree => {
                let begins = flow.head.start_at.is_none_or(|at| at <= now);
                begins && (flow.head.concurrency_key.is_none() || given.in_slot)
            }
            Guard::AllCompleted => flow.head.open == 0,
            Guard::PinsDiffer => flow.book().is_some_and(|book| !book.drift.is_empty()),
            // Guards of other machines: no table of a run names them.
            _ => return Err(broken()),
        })
    }

    fn pic_resolves(&self) -> Result<(), Refusal> {
        let pic = self.cell().and_then(Cell::pic);
        let name = self.name();
        let detail = match pic {
            Some(pic) if self.flow.ctx.base.registry.actor(pic).is_some() => return Ok(()),
            Some(pic) => format!("`{pic}`, who is to be in charge of `{name}`, is no registered actor"),
            None => format!("nobody is in charge of `{name}`"),
        };
        Err(Refusal::by_guard(Guard::PicResolves, detail).at("step"))
    }

    fn executor_class(&self) -> Result<(), Refusal> {
        let stands = self.flow.head.state == RunState::Stopped;
        let detail = match self.by.0 {
            ActorClass::PicHuman if self.is_persons() => return Ok(()),
            ActorClass::ExecutorWorker | ActorClass::System if stands || !self.is_persons() => return Ok(()),
            ActorClass::Reviewer => return self.can_be_done_again(),
            _ => "whoever does the step is of another class",
        };
        Err(Refusal::by_guard(Guard::ExecutorClass, detail).at("step"))
    }

    /// What is reopened is done by a person or a worker; a task only where that was what held its step up.
    fn can_be_done_again(&self) -> Result<(), Refusal> {
        let at_work = |step| self.flow.cell(step).is_some_and(Cell::is_held);
        let impossible = self.cell().is_some_and(|cell| cell.state == StepCode::CannotComplete);
        let detail = if self.whole().is_some_and(|step| !impossible || !at_work(step)) {
            "a task is reopened where it was declared impossible and its step is at work; otherwise reopen the step"
        } else {
            let own = |spec: &StepSpec| matches!(spec.work, Work::Wait(_) | Work::Approval(_) | Work::Workflow { .. });
            if !self.spec().is_some_and(|spec| spec.is_frame() || own(spec)) {
                return Ok(());
            }
            "only what people and workers do can be done again; start a new run that corrects this one"
        };
        Err(Refusal::by_guard(Guard::ExecutorClass, detail).at("step"))
    }

    fn run_hands_out(&self) -> Result<(), Refusal> {
        let role = match self.by.0 {
            ActorClass::ExecutorWorker => self.cell().map_or(Role::Step, |cell| cell.role),
            _ => Role::Step,
        };
        if !self.is_taken() || self.flow.head.hands_out(role) {
            return Ok(());
        }
        let detail = format!("the run is {}; no work begins in it", self.flow.head.state);
        Err(Refusal::by_guard(Guard::RunHandsOut, detail))
    }

    fn waiting_facet(&self) -> Result<(), Refusal> {
        let what = match self.given.facets.iter().find(|facet| Facet::parse(facet).is_none()) {
            Some(unknown) => format!("`{unknown}` is none of them"),
            None if self.given.facets.is_empty() => "a wait says what it waits for".to_owned(),
            None => return Ok(()),
        };
        let vocabulary: Vec<&str> = Facet::ALL.iter().map(|facet| facet.as_str()).collect();
        let detail = format!("{what}; the facets are {}", vocabulary.join(", "));
        Err(Refusal::by_guard(Guard::WaitingFacet, detail).at("waiting_facet"))
    }

    fn block_reason(&self) -> Result<(), Refusal> {
        let forbidden = |category: FailureCategory| category.class().default_response == Response::Block;
        if self.given.block_reason.and_then(BlockReason::parse).is_some() || self.given.category.is_some_and(forbidden)
        {
            return Ok(());
        }
        let vocabulary: Vec<&str> = BlockReason::ALL.iter().map(|reason| reason.as_str()).collect();
        let detail = format!("a block has one of the reasons {}", vocabulary.join(", "));
        Err(Refusal::by_guard(Guard::BlockReason, detail).at("block_reason"))
    }

    fn gate_cleared(&self) -> Result<(), Refusal> {
        let seq = self.seq.ok_or_else(broken)?;
        let cleared = match self.by.1 {
            "gate_cleared" => shell_gate(self.flow, self.name()).is_some_and(|status| status == GateStatus::Approved),
            _ => !self.flow.has_open_gate(seq),
        };
        if cleared {
            return Ok(());
        }
        let detail = format!("`{}` waits for an approval: decide its gate", self.name());
        Err(Refusal::by_guard(Guard::GateCleared, detail).at("step"))
    }

    fn tasks_completed(&self) -> Result<(), Refusal> {
        let Some(task) = self.seq.and_then(|seq| self.flow.open_task(seq)) else { return Ok(()) };
        let state = self.flow.state(task).unwrap_or(StepCode::NotStarted);
        let detail = format!("`{}` is {state}", self.flow.run.step_name(task));
        Err(Refusal::by_guard(Guard::TasksCompleted, detail).at("step"))
    }

    fn contract(&self, guard: Guard) -> Result<(), Refusal> {
        match (guard, self.given.judged) {
            (Guard::Postcondition, Some(Judged::Failed(error))) => Err(Refusal::by_guard(guard, error).at("output")),
            (Guard::Postcondition, Some(_)) | (_, Some(Judged::Holds | Judged::Failed(_))) => Ok(()),
            (_, Some(Judged::Missed(error))) => Err(Refusal::by_guard(guard, error).at("output")),
            (_, None) => Err(Refusal::by_guard(guard, "nothing was held against it").at("output")),
        }
    }

    fn correction_reason(&self) -> Result<(), Refusal> {
        if self.given.correction_reason.and_then(CorrectionReason::parse).is_some() {
            return Ok(());
        }
        let vocabulary: Vec<&str> = CorrectionReason::ALL.iter().map(|reason| reason.as_str()).collect();
        let detail = format!("a correction has one of the reasons {}", vocabulary.join(", "));
        Err(Refusal::by_guard(Guard::CorrectionReason, detail).at("correction_reason"))
    }

    fn approval(&self) -> Result<(), Refusal> {
        let Some(approval) = self.given.approval else { return Ok(()) };
        if self.flow.approved(&approval).is_some() {
            return Ok(());
        }
        if !approval.is_named {
            let detail = format!(
                "this definition lets nobody cancel or void a run without an approval: open the gate `{}` and have it decided",
                approval.gate
            );
            return Err(Refusal::new(Code::GateNotCleared, detail));
        }
        let detail = format!(
            "`approval_id` names no unspent approval of the gate `{}`: open it and have it decided",
            approval.gate
        );
        Err(Refusal::by_guard(Guard::ApprovalPresent, detail).at("approval_id"))
    }

    /// Nothing is done twice because nobody knows that it was done. A run that began to undo its work, and waits to be told
    /// what became of an attempt, is not held up or ended half-way.
    fn effects_known(&self) -> Result<(), Refusal> {
        let flow = self.flow;
        if self.by.1 != "workflow_resume" {
            if flow.head.outcome != Some(Outcome::EffectUnknown) {
                return Ok(());
            }
            let detail =
                "the run is undoing its work and waits to be told what became of an attempt: declare its effect";
            return Err(Refusal::by_guard(Guard::EffectsKnown, detail));
        }
        if flow.head.state != RunState::Stopped || flow.book().is_none() {
            return Ok(());
        }
        let unknown = |seq: &StepSeq| flow.cell(*seq).is_some_and(is_unknown);
        match flow.live().into_iter().find(unknown) {
            None => Ok(()),
            Some(seq) => {
                let step = flow.run.step_name(seq);
                let detail = format!("nobody knows what became of the last attempt at `{step}`: declare its effect");
                Err(Refusal::by_guard(Guard::EffectsKnown, detail))
            }
        }
    }

    /// Asked of a declaration; of what follows from it, that there was one.
    fn effect_unknown(&self) -> Result<(), Refusal> {
        let flow = self.flow;
        let holds = match self.by.1 {
            "effect_declare" => {
                let unknown = self.cell().is_some_and(is_unknown);
                let at_work = flow.head.undoing && self.is_persons() && self.cell().is_some_and(Cell::is_held);
                let waited_for = match flow.head.state {
                    RunState::Stopped if flow.book().is_some() => true,
                    _ => flow.head.outcome == Some(Outcome::EffectUnknown),
                };
                at_work || (unknown && waited_for)
            }
            _ => {
                let of_this = |of: StepSeq| self.seq.is_none_or(|seq| seq == of);
                let captured = flow.notes.captured.as_ref().is_some_and(|(of, _)| of_this(*of));
                captured || flow.effect.is_some_and(|(of, _)| of_this(of))
            }
        };
        if holds {
            return Ok(());
        }
        let detail = format!("the run does not wait for anybody to say what became of `{}`", self.name());
        Err(Refusal::by_guard(Guard::EffectUnknown, detail).at("step"))
    }

    fn waits_for_a_step(&self) -> bool {
        let plan = &self.flow.run.plan;
        let open = |seq: &StepSeq| self.flow.cell(*seq).is_some_and(|cell| !cell.is_ended());
        match (plan.order, self.seq) {
            (Order::Linear, Some(seq)) => (0..seq).any(|before| open(&before)),
            (Order::Dag, _) => self.spec().is_some_and(|spec| spec.depends_on.iter().any(open)),
            (Order::Linear, None) => false,
        }
    }

    fn wait_is_over(&self, now: Time) -> bool {
        let waiting = self.cell().and_then(|cell| cell.live.as_ref()?.waiting.as_ref()?.deadline_at);
        waiting.is_some_and(|at| at <= now)
    }

    fn is_put_off(&self, now: Time) -> bool {
        let (old, new) = (self.cell().and_then(Cell::promised), self.given.deadline);
        new.is_some_and(|new| new > now && old.is_none_or(|old| new > old))
    }

    /// Not reached where a person completes; reached where it stops the run.
    fn cap(&self, now: Time) -> bool {
        let flow = self.flow;
        let soft = |seq: &StepSeq| {
            flow.cell(*seq).and_then(|cell| flow.run.soft_cap_at(*seq, cell)).is_some_and(|at| at <= now)
        };
        match (self.by.1, self.seq) {
            ("soft_cap", _) => flow.live().iter().any(soft),
            ("hard_cap", _) => flow.is_spent(),
            (_, Some(seq)) => !flow.has_yielded(seq) && flow.within_cap(seq, now) >= now,
            (_, None) => false,
        }
    }

    fn timeout_has_passed(&self, now: Time) -> bool {
        let flow = self.flow;
        let limit = match self.seq {
            None => flow.run.plan.timeout.zip(flow.head.executing_since),
            Some(seq) => {
                let started = self.cell().and_then(|cell| cell.live.as_ref()?.started_at);
                flow.run.timeout_of(seq).zip(started)
            }
        };
        limit.is_some_and(|(timeout, since)| since.after(timeout) <= now)
    }

    fn undo_is_under_way(&self) -> bool {
        use StepCode::{Failed, InProgress, Overdue, Ready, Waiting};
        self.cell().is_some_and(|cell| {
            matches!(cell.role, Role::Compensation(_))
                && matches!(cell.state, Ready | InProgress | Overdue | Waiting | Failed)
        })
    }
}

fn is_unknown(cell: &Cell) -> bool {
    cell.live.as_ref().is_some_and(|live| live.effect_unknown)
}

/// A step that its tasks do not go on without.
const fn is_over(step: StepCode) -> bool {
    matches!(step, StepCode::Skipped | StepCode::Cancelled | StepCode::Completed)
}
