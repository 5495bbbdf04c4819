//! What somebody could ask of a process, a run or a step now: candidates, each with the very command that would be decided. A
//! candidate holds no rule: whoever wants to know whether it would be accepted decides the command and changes nothing.
//!
//! A candidate says as little as possible. What a refusal then asks for ([`Candidate::supply`]) is put in for the asking, and is
//! what the caller has to give ([`Candidate::needs`]).

use crate::Time;
use crate::lifecycle::{RunState, StepCode};
use crate::machine::StepState;
use crate::plan::StepSeq;
use crate::process::{self, DecideGate, Decision, FireTransition, Gate, GateStatus, OpenGate, Process};
use crate::refusal::Refusal;
use crate::run::{self, Act, BlockReason, CorrectionReason, Facet, Prior, Run, StepAct, TransitionWish};
use std::sync::Arc;

/// What stands in the place of a text that the caller will give.
const GIVEN: &str = "given";
/// What a deadline is put off by, for the asking.
const LATER: i64 = 3_600_000_000;

#[derive(Clone, Debug)]
pub enum Asked {
    Process(process::Command),
    Run(run::Command),
}

#[derive(Clone, Debug)]
pub struct Candidate {
    /// The action of a transition, or the last part of the route that asks for it.
    pub action: String,
    pub asked: Asked,
    /// Where it leads, as far as it is known without deciding.
    pub to_state: String,
    /// What the caller has to give.
    pub needs: Vec<&'static str>,
    /// The gate that it is about, or that it needs.
    pub gate: Option<String>,
    /// The step that it is done to.
    pub step_seq: Option<StepSeq>,
}

/// What became of a candidate.
#[derive(Clone, Debug)]
pub struct Offer {
    pub candidate: Candidate,
    /// Everything that refuses it.
    pub refused: Vec<Refusal>,
    pub transition_id: Option<String>,
}

/// What is put in for the asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Supplied {
    /// Decide again.
    Put,
    /// Whether it is accepted depends on nothing but what the caller gives.
    UpToCaller,
    /// The refusal stands.
    No,
}

impl Candidate {
    fn new(action: impl Into<String>, asked: Asked, to_state: impl Into<String>) -> Candidate {
        let (action, to_state) = (action.into(), to_state.into());
        Candidate { action, asked, to_state, needs: vec![], gate: None, step_seq: None }
    }

    fn about(self, gate: &str) -> Candidate {
        Candidate { gate: Some(gate.to_owned()), ..self }
    }

    fn needing(self, needs: &[&'static str]) -> Candidate {
        Candidate { needs: needs.to_vec(), ..self }
    }

    /// The approval that it would spend, once it was put in.
    pub fn approval(&self) -> Option<&str> {
        use run::Command::{Act as OnStep, Cancel, Resume, Void};
        match &self.asked {
            Asked::Run(
                Cancel { approval_id, .. }
                | Resume { approval_id, .. }
                | Void { approval_id, .. }
                | OnStep(StepAct { act: Act::Reopen { approval_id, .. } | Act::BlockEscalate { approval_id }, .. }),
            ) => approval_id.as_deref(),
            Asked::Run(_) | Asked::Process(_) => None,
        }
    }

    /// Puts in what the refusal misses, where the caller could. `run` and its shell are those that it was decided on.
    pub fn supply(&mut self, refusal: &Refusal, run: Option<(&Process, &Run)>) -> Supplied {
        let Some(field) = FIELDS.iter().copied().find(|field| refusal.field.as_deref() == Some(*field)) else {
            return Supplied::No;
        };
        if self.needs.contains(&field) {
            return if field == "output" { Supplied::UpToCaller } else { Supplied::No };
        }
        let approval = || {
            let (shell, _) = run?;
            let gate = self.gate.as_deref()?;
            approved(shell.gate(&shell.current_state, gate)?)
        };
        let approval = approval();
        let put = match &mut self.asked {
            Asked::Process(command) => put_process(command, field),
            Asked::Run(command) => put_run(command, field, approval),
        };
        match put {
            Supplied::No => {}
            _ => self.needs.push(field),
        }
        put
    }
}

/// What a caller gives with a command.
const FIELDS: &[&str] =
    &["reason", "evidence_ref", "waiting_facet", "block_reason", "correction_reason", "approval_id", "output"];

/// The approval that can be spent.
fn approved(gate: &Gate) -> Option<String> {
    let step = gate.steps.iter().find(|step| gate.is_cleared() && step.state == StepState::Approved)?;
    Some(step.step_id.to_string())
}

fn put_process(command: &mut process::Command, field: &str) -> Supplied {
    match (command, field) {
        (process::Command::DecideGate(DecideGate { reason, .. }), "reason") => *reason = Some(GIVEN.to_owned()),
        _ => return Supplied::No,
    }
    Supplied::Put
}

fn put_run(command: &mut run::Command, field: &str, approval: Option<String>) -> Supplied {
    use run::Command::{Act as OnStep, Cancel, DecideGate as Decide, Pause, Resume, Stop, Void};
    let given = || Some(GIVEN.to_owned());
    match (command, field) {
        (
            Cancel { reason, .. }
            | Pause { reason }
            | Resume { reason, .. }
            | Stop { reason }
            | Void { reason, .. }
            | OnStep(StepAct { reason, .. })
            | Decide(DecideGate { reason, .. }),
            "reason",
        ) => *reason = given(),
        (
            Cancel { approval_id, .. }
            | Resume { approval_id, .. }
            | Void { approval_id, .. }
            | OnStep(StepAct { act: Act::Reopen { approval_id, .. } | Act::BlockEscalate { approval_id }, .. }),
            "approval_id",
        ) if approval.is_some() => *approval_id = approval,
        (OnStep(StepAct { act, .. }), field) => return put_act(act, field),
        _ => return Supplied::No,
    }
    Supplied::Put
}

fn put_act(act: &mut Act, field: &str) -> Supplied {
    let given = || Some(GIVEN.to_owned());
    match (act, field) {
        (Act::Unblock { evidence_ref } | Act::CannotComplete { evidence_ref }, "evidence_ref") => {
            *evidence_ref = given();
        }
        (Act::Transition(wish), "evidence_ref") => wish.evidence_ref = given(),
        (Act::Wait { facets, .. }, "waiting_facet") => facets.push(Facet::External.as_str().to_owned()),
        (Act::Transition(wish), "waiting_facet") => wish.facets.push(Facet::External.as_str().to_owned()),
        (Act::Block { block_reason }, "block_reason") => {
            *block_reason = Some(BlockReason::ALL[0].as_str().to_owned());
        }
        (Act::Transition(wish), "block_reason") => wish.block_reason = Some(BlockReason::ALL[0].as_str().to_owned()),
        (Act::Reopen { correction_reason, .. }, "correction_reason") => {
            *correction_reason = Some(CorrectionReason::ALL[0].as_str().to_owned());
        }
        (Act::Complete { .. } | Act::Transition(_), "output") => return Supplied::UpToCaller,
        _ => return Supplied::No,
    }
    Supplied::Put
}

/// What can be asked of a process in its state: every transition from there, and its gate.
pub fn of_process(process: &Process) -> Vec<Candidate> {
    let mut all = vec![];
    let here = &process.current_state;
    for transition in process.declaration.transitions.iter().filter(|t| t.from_state == *here) {
        let action = &transition.action;
        let fire = process::Command::FireTransition(FireTransition { action: action.clone(), reason: None });
        let fire = Candidate::new(action, Asked::Process(fire), &transition.to_state);
        if transition.guard.is_none() {
            all.push(fire);
            continue;
        }
        all.push(fire.about(action));
        let open = process::Command::OpenGate(OpenGate { action: action.clone(), reason: None, request: None });
        all.push(Candidate::new("open-gate", Asked::Process(open), here).about(action));
        all.extend(decisions(process, action).map(|(name, decide)| {
            Candidate::new(name, Asked::Process(process::Command::DecideGate(decide)), here).about(action)
        }));
    }
    all
}

/// The decisions on a gate that waits for one.
fn decisions<'p>(process: &'p Process, action: &'p str) -> impl Iterator<Item = (&'static str, DecideGate)> + 'p {
    let waits = process.gate(&process.current_state, action).is_some_and(|gate| gate.status() == GateStatus::Pending);
    let all = [Decision::Approve, Decision::Reject, Decision::Withdraw];
    all.into_iter().filter(move |_| waits).map(move |decision| {
        let decide = DecideGate { action: action.to_owned(), decision, reason: None, step: None, request_digest: None };
        (decision.as_str(), decide)
    })
}

/// What can be asked of a run as a whole.
pub fn of_run(shell: &Process, run: &Run) -> Vec<Candidate> {
    let none = || None;
    let commands = [
        (
            "cancel",
            RunState::Cancelled,
            run::Command::Cancel { reason: none(), approval_id: none(), compensate: false },
        ),
        ("pause", RunState::Paused, run::Command::Pause { reason: none() }),
        ("resume", RunState::Executing, run::Command::Resume { approval_id: none(), reason: none() }),
        ("stop", RunState::Stopped, run::Command::Stop { reason: none() }),
        ("void", RunState::Voided, run::Command::Void { approval_id: none(), reason: none() }),
    ];
    let gated = |action: &str| shell.declaration.transition(&shell.current_state, action).is_some();
    let mut all: Vec<Candidate> = commands
        .into_iter()
        .map(|(action, to, command)| {
            let candidate = Candidate::new(action, Asked::Run(command), to.as_str());
            // Where there is no gate for voiding, that for cancelling is asked.
            let gate = if action == "void" && !gated("void") { "cancel" } else { action };
            if gated(gate) { candidate.about(gate) } else { candidate }
        })
        .collect();
    for gate in ["cancel", "resume", "void"].into_iter().filter(|gate| gated(gate)) {
        all.extend(on_gate(shell, gate, run.head.state.as_str()));
    }
    all
}

/// Opening this gate of a run, and deciding it.
fn on_gate(shell: &Process, gate: &str, state: &str) -> Vec<Candidate> {
    let open = run::Command::OpenGate(OpenGate { action: gate.to_owned(), reason: None, request: None });
    let open = Candidate::new("open-gate", Asked::Run(open), state).about(gate);
    let decisions = decisions(shell, gate);
    let decided = decisions
        .map(|(name, decide)| Candidate::new(name, Asked::Run(run::Command::DecideGate(decide)), state).about(gate));
    std::iter::once(open).chain(decided).collect()
}

/// What can be asked of what undoes a step.
fn of_undo(name: &str, seq: StepSeq, state: StepCode) -> Vec<Candidate> {
    let act = StepAct { step: name.to_owned(), act: Act::Retry, reason: None, preview: false };
    let retry = Candidate::new("retry", Asked::Run(run::Command::Act(act)), state.as_str());
    let mut all = vec![retry, declare(name, state)];
    all.iter_mut().for_each(|candidate| candidate.step_seq = Some(seq));
    all
}

/// An operator says what became of it.
fn declare(name: &str, state: StepCode) -> Candidate {
    let declare =
        run::Command::DeclareEffect { step: name.to_owned(), done: true, output: None, reason: GIVEN.to_owned() };
    Candidate::new("declare-effect", Asked::Run(declare), state.as_str()).needing(&["result", "reason"])
}

/// What can be asked of one step, or task. `prior` is what closed it, which only the store knows.
pub fn of_step(shell: &Process, run: &Run, seq: StepSeq, prior: Option<Prior>, now: Time) -> Vec<Candidate> {
    let (Some(cell), name) = (run.cell(seq), run.step_name(seq)) else { return vec![] };
    let state = cell.state;
    if matches!(cell.role, run::Role::Compensation(_)) {
        return of_undo(&format!("{}{name}", run::UNDO), seq, state);
    }
    let later = cell.deadline().map_or(now, |deadline| deadline.max(now)).after(LATER);
    let gated = |gate: &str| shell.declaration.transition(&shell.current_state, gate).is_some();
    // The approval for a task is its step's.
    let whole = run.step_name(run.plan.step_of_task(seq).unwrap_or(seq));
    let acts = [
        ("claim", StepCode::InProgress, Act::Claim),
        ("release", StepCode::Ready, Act::Release),
        ("wait", StepCode::Waiting, Act::Wait { event_type: None, timeout: None, facets: vec![] }),
        ("block", StepCode::Blocked, Act::Block { block_reason: None }),
        ("unblock", StepCode::InProgress, Act::Unblock { evidence_ref: None }),
        ("complete", StepCode::Completed, Act::Complete { output: Arc::from("null"), outbound: vec![] }),
        ("cannot-complete", StepCode::CannotComplete, Act::CannotComplete { evidence_ref: None }),
        ("escalate", StepCode::CannotComplete, Act::Escalate),
        ("retry", state, Act::Retry),
        ("block-escalate", state, Act::BlockEscalate { approval_id: None }),
        (
            "reopen",
            StepCode::InProgress,
            Act::Reopen { approval_id: None, correction_reason: None, prior: prior.map(Box::new) },
        ),
        ("extend-deadline", state, Act::ExtendDeadline { deadline: later }),
        ("re-engage", StepCode::InProgress, Act::Reengage),
    ];
    let act = |act| Asked::Run(run::Command::Act(StepAct { step: name.to_owned(), act, reason: None, preview: false }));
    let mut all: Vec<Candidate> = acts
        .into_iter()
        .map(|(action, to, wish)| {
            let candidate = Candidate::new(action, act(wish), to.as_str());
            match action {
                "reopen" => candidate.about(&format!("reopen:{whole}")),
                "block-escalate" if gated(&format!("escalate:{name}")) => candidate.about(&format!("escalate:{name}")),
                "extend-deadline" => candidate.needing(&["deadline"]),
                _ => candidate,
            }
        })
        .collect();
    if let Some(pinned) = run.machine_of(cell) {
        let from = cell.shown_state();
        all.extend(pinned.machine.transitions.iter().filter(|t| t.from == from).map(|t| {
            let wish =
                TransitionWish { to: t.to.clone(), trigger_ref: Some(t.trigger.clone()), ..TransitionWish::default() };
            Candidate::new("transition", act(Act::Transition(Box::new(wish))), &t.to)
        }));
    }
    all.push(declare(name, state));
    let gates = [name.to_owned(), format!("reopen:{name}"), format!("escalate:{name}")];
    for gate in gates.iter().filter(|gate| gated(gate)) {
        all.extend(on_gate(shell, gate, state.as_str()));
    }
    all.iter_mut().for_each(|candidate| candidate.step_seq = Some(seq));
    all
}
