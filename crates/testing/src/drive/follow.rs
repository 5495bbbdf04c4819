//! Runs with every scenario at the engine: following a run by its changes shows the same as reading it whole; an
//! offered action is accepted, and an action that is not offered is refused by the same guard.

use super::engine::EngineDriver;
use super::{ADMIN, Failure, Said, broken};
use countersign_engine::port::RunStepView;
use countersign_engine::run::cells::Cells;
use countersign_engine::{Ask, Offered, Outcome};
use countersign_kernel::lifecycle::{RunState, StepCode};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::process::{self, DecideGate, OpenGate};
use countersign_kernel::run::{self, Act, StepAct};
use countersign_kernel::{Code, InstanceId, Refusal};
use std::collections::BTreeMap;

/// How often a picture is compared before it is said to be wrong: the clock may move the run in between.
const LOOKS: usize = 5;

/// A run as a follower sees it.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    sequence: u64,
    cells: BTreeMap<StepSeq, String>,
}

impl Picture {
    fn take(&mut self, seen: &Cells) {
        if seen.full {
            self.cells.clear();
        }
        self.sequence = seen.run.chain.sequence;
        let lives = !RunState::parse(&seen.run.head.state).is_some_and(RunState::is_ended);
        let drawn = seen.steps.iter().map(|step| (step.step_seq, drawn(step, seen, lives)));
        self.cells.extend(drawn);
    }
}

/// All that a cell shows.
fn drawn(step: &RunStepView, seen: &Cells, lives: bool) -> String {
    let RunStepView { step_seq, new, state } = step;
    let behind = state.state == StepCode::NotStarted && seen.downstream.contains(step_seq);
    let colour = matches!(state.state, StepCode::InProgress | StepCode::Waiting).then_some(state.child_colour);
    let retries = lives && state.state == StepCode::Failed && state.next_run_at.is_some();
    let charge = &state.charge;
    format!(
        "{} {:?} {:?} {:?} {:?} {behind} {:?} {:?} {} {} {:?} {colour:?} {retries}",
        state.state,
        charge.derived_state,
        state.waiting_facet,
        charge.secondary_facets,
        state.blocked_cause,
        charge.pic,
        charge.deadline,
        state.attempts,
        new.max_attempts,
        state.child_run_id,
    )
}

/// What was offered before something was asked for.
pub struct Expected {
    what: String,
    offered: Option<Offered>,
}

impl EngineDriver {
    /// Brings this run's picture up to date by what changed, and compares it with the run.
    pub(super) async fn follow(&mut self, run_id: &str) -> Said<()> {
        let Some(id) = InstanceId::parse(run_id) else { return Ok(()) };
        let mut told = String::new();
        for _ in 0..LOOKS {
            let mut picture = self.pictures.get(&id).cloned().unwrap_or_default();
            let since = Some(picture.sequence);
            picture.take(&self.engine()?.read_cells(ADMIN, id, since).await?);
            let mut whole = Picture::default();
            whole.take(&self.engine()?.read_cells(ADMIN, id, None).await?);
            self.pictures.insert(id, picture.clone());
            if picture.sequence == whole.sequence && picture.cells == whole.cells {
                return Ok(());
            }
            told = format!("{picture:#?} is not {whole:#?}");
        }
        Err(broken(format!("whoever follows the run sees something else: {told}")))
    }

    /// What is offered to this actor, of what is about to be asked for.
    pub(super) async fn expect_run(&self, by: &str, run_id: &str, command: &run::Command) -> Said<Option<Expected>> {
        let Some((ask, action, gate)) = of_run(command) else { return Ok(None) };
        let to = match command {
            run::Command::Act(StepAct { act: Act::Transition(wish), .. }) => Some(wish.to.as_str()),
            _ => None,
        };
        self.expected(by, run_id, ask, (command.name(), action, gate.as_deref(), to)).await
    }

    pub(super) async fn expect_process(
        &self,
        by: &str,
        instance_id: &str,
        command: &process::Command,
    ) -> Said<Option<Expected>> {
        let (action, gate) = match command {
            process::Command::FireTransition(fire) => (fire.action.as_str(), None),
            process::Command::OpenGate(OpenGate { action, .. }) => ("open-gate", Some(action.as_str())),
            process::Command::DecideGate(DecideGate { action, decision, step: None, .. }) => {
                (decision.as_str(), Some(action.as_str()))
            }
            _ => return Ok(None),
        };
        self.expected(by, instance_id, Ask::Process, (command.name(), action, gate, None)).await
    }

    async fn expected(
        &self,
        by: &str,
        instance_id: &str,
        ask: Ask,
        (command, action, gate, to): (&str, &str, Option<&str>, Option<&str>),
    ) -> Said<Option<Expected>> {
        let Some(id) = InstanceId::parse(instance_id) else { return Ok(None) };
        let offers = match self.engine()?.offers(by, id, ask).await {
            Ok(offers) => offers,
            // What is not there offers nothing.
            Err(refusal) if refusal.code == Code::NotKnown => return Ok(None),
            Err(refusal) => return Err(refusal.into()),
        };
        let same = |offer: &Offered| {
            (offer.command.as_str(), offer.action.as_str()) == (command, action)
                && (gate.is_none() || offer.gate.as_deref() == gate)
                && to.is_none_or(|to| offer.to_state == to)
        };
        let what = format!("{by}: {action} {}", gate.unwrap_or_default());
        Ok(Some(Expected { what, offered: offers.into_iter().find(same) }))
    }

    /// Compares what was offered with what came of it.
    pub(super) fn compare(expected: Option<&Expected>, said: &Said<Outcome>) -> Said<()> {
        let Some(Expected { what, offered: Some(offered) }) = expected else { return Ok(()) };
        let needed = |field: &Option<String>| field.as_ref().is_some_and(|field| offered.needs.contains(field));
        match (said, offered.problems.as_slice()) {
            (Ok(_), []) => Ok(()),
            // What the caller gave was not enough, or not well-formed.
            (Err(Failure::Refused(refusal)), _) if needed(&refusal.field) || is_given(refusal) => Ok(()),
            (Err(Failure::Refused(refusal)), problems)
                if refusal.problems().any(|(guard, _)| problems.iter().any(|problem| problem.guard == guard)) =>
            {
                Ok(())
            }
            (Err(Failure::Broken(_)), _) => Ok(()),
            (said, _) => Err(broken(format!("{what}: it was offered as {offered:?}, and then {said:?}"))),
        }
    }
}

/// Whether a refusal is about what the caller gave.
fn is_given(refusal: &Refusal) -> bool {
    refusal.code == Code::InvalidRequest || refusal.field.as_deref() == Some("approval_id")
}

/// Who is asked about a command on a run, and what it is called there.
fn of_run(command: &run::Command) -> Option<(Ask, &'static str, Option<String>)> {
    let of_step = |step: &str| Ask::Step { step: step.to_owned(), prior: None };
    let of_gate = |gate: &str| match gate {
        "cancel" | "resume" | "void" => Ask::Run,
        gate => of_step(gate.split_once(':').map_or(gate, |(_, step)| step)),
    };
    Some(match command {
        run::Command::Cancel { .. } => (Ask::Run, "cancel", None),
        run::Command::Pause { .. } => (Ask::Run, "pause", None),
        run::Command::Resume { .. } => (Ask::Run, "resume", None),
        run::Command::Stop { .. } => (Ask::Run, "stop", None),
        run::Command::Void { .. } => (Ask::Run, "void", None),
        run::Command::DeclareEffect { step, .. } => (of_step(step), "declare-effect", None),
        run::Command::OpenGate(OpenGate { action, .. }) => (of_gate(action), "open-gate", Some(action.clone())),
        run::Command::DecideGate(DecideGate { action, decision, step: None, .. }) => {
            (of_gate(action), decision.as_str(), Some(action.clone()))
        }
        run::Command::Act(StepAct { step, act, preview: false, .. }) => {
            let action = match act {
                Act::Claim => "claim",
                Act::Release => "release",
                Act::Wait { .. } => "wait",
                Act::Block { .. } => "block",
                Act::Unblock { .. } => "unblock",
                Act::Complete { .. } => "complete",
                Act::CannotComplete { .. } => "cannot-complete",
                Act::Escalate => "escalate",
                Act::Retry => "retry",
                Act::BlockEscalate { .. } => "block-escalate",
                Act::Reopen { prior, .. } => {
                    let ask = Ask::Step { step: step.clone(), prior: prior.clone() };
                    return Some((ask, "reopen", None));
                }
                Act::ExtendDeadline { .. } => "extend-deadline",
                Act::Reengage => "re-engage",
                Act::Transition(_) => "transition",
                Act::Replay(_) => return None,
            };
            (of_step(step), action, None)
        }
        _ => return None,
    })
}
