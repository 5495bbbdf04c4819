//! Gives a run its commands, as the engine would, and has the auditor look at every answer.

use super::auditor::Auditor;
use super::colour::Colours;
use super::generate::{EVENTS, Op, SECOND};
use super::runs::{decide, registry_of};
use countersign_kernel::lifecycle::{FailureCategory, Outcome, OwnMachine, RunState, StepCode};
use countersign_kernel::plan::*;
use countersign_kernel::process::{DecideGate, Decision, Process};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::Registry;
use countersign_kernel::run::{self, ClaimNext, ClaimSteps, Command, Event, KeptEvent, Run, StartRun, TaskRef};
use countersign_kernel::{Budget, Time};
use std::sync::Arc;
use uuid::Uuid;

const LEASE: Micros = 40 * SECOND;

fn why() -> Option<String> {
    Some("so decided".to_owned())
}

/// What a worker says; the category of a retry by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Complete,
    /// And goes on with what follows.
    CompleteAndClaim,
    Retry(Option<usize>),
    Dead,
    Wait(usize),
    Beat,
}

impl Kind {
    /// What is answered as before when it is said again.
    fn verb(self) -> &'static str {
        match self {
            Kind::Complete | Kind::CompleteAndClaim => "complete",
            Kind::Retry(_) => "retry",
            Kind::Dead => "dead",
            Kind::Wait(_) => "wait",
            Kind::Beat => "heartbeat",
        }
    }
}

/// A lease that was given, and what was said under it.
#[derive(Clone, Debug)]
pub struct Given {
    pub step_seq: StepSeq,
    pub token: Uuid,
    pub said: Option<Kind>,
}

pub struct World {
    registry: Registry,
    pub shell: Process,
    pub run: Run,
    pub events: Vec<Event>,
    leases: Vec<Given>,
    auditor: Auditor,
    colours: Colours,
    now: i64,
    sent: usize,
}

/// Expressions are the words true, false and error; templates stand for themselves.
struct Words;

impl Language for Words {
    fn judge(&self, expression: &Expression, _: &Scope<'_>) -> Result<bool, ExpressionError> {
        match &*expression.0 {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(ExpressionError::new(other.to_owned())),
        }
    }

    fn fill(&self, template: &Template, _: &Scope<'_>) -> Result<String, ExpressionError> {
        match &*template.0 {
            "error" => Err(ExpressionError::new("error".to_owned())),
            text => Ok(text.to_owned()),
        }
    }

    fn moment(&self, template: &Template, _: &Scope<'_>) -> Result<Time, ExpressionError> {
        Err(ExpressionError::new(template.0.to_string()))
    }

    fn conforms(&self, _: &Schema, _: &str) -> Result<(), ExpressionError> {
        Ok(())
    }

    fn plan(&self, _: &[u8]) -> Result<Plan, ExpressionError> {
        Err(ExpressionError::new("not here".to_owned()))
    }

    fn machine(&self, _: &[u8]) -> Result<Option<OwnMachine>, ExpressionError> {
        Err(ExpressionError::new("not here".to_owned()))
    }

    fn prepare(&self, _: &[u8]) {}

    fn metered<'a>(&'a self, _: &'a Budget) -> Box<dyn Language + 'a> {
        Box::new(Words)
    }
}

impl World {
    pub fn start(plan: Plan) -> World {
        let registry = registry_of(&Arc::new(plan));
        let start = StartRun::new("wf", "{}");
        let now = 1_000 * SECOND;
        let events = decide(&registry, None, now, &Command::Start(Box::new(start)), &Words)
            .unwrap_or_else(|refusal| panic!("the start: {refusal}"));
        let (shell, run) = Run::begun_by(&events[0]).unwrap_or_else(|| panic!("no start: {events:?}"));
        let auditor = Auditor::new(run.plan.clone());
        let mut world = World {
            registry,
            shell,
            run,
            events: vec![],
            leases: vec![],
            auditor,
            colours: Colours::default(),
            now,
            sent: 0,
        };
        world.accept(events);
        world
    }

    fn ask(&mut self, command: &Command) -> Result<usize, Refusal> {
        self.now += 1;
        let events = decide(&self.registry, Some((&self.shell, &self.run)), self.now, command, &Words)?;
        let count = events.len();
        self.accept(events);
        Ok(count)
    }

    fn accept(&mut self, events: Vec<Event>) {
        let before = self.run.clone();
        for event in &events {
            match event {
                Event::Gate(event) => self.shell.apply(event),
                Event::Run(event) => {
                    self.run.apply(event);
                    self.leases.extend(event.claimed.iter().map(|claimed| Given {
                        step_seq: claimed.step_seq,
                        token: claimed.lease_token,
                        said: None,
                    }));
                    self.auditor.hear(&before, event, &self.run);
                    self.colours.look(&self.run, event);
                }
            }
        }
        self.events.extend(events);
        if !self.run.cells.is_empty() {
            self.auditor.look(&self.run);
        }
    }

    /// What is due, as the engine's clockwork would find it.
    fn look(&mut self) {
        for round in 0.. {
            assert!(round < 200, "the clock never gets done with {:?}", self.run.head);
            let due = |seq: &StepSeq| self.run.agenda(*seq).timer.is_some_and(|at| at.0 <= self.now);
            let steps: Vec<StepSeq> = self.run.live.iter().copied().filter(due).collect();
            let whole = self.run.due_at().is_some_and(|at| at.0 <= self.now);
            if steps.is_empty() && !whole {
                return;
            }
            match self.ask(&Command::Due { steps, run: whole }) {
                Ok(0) => return,
                Ok(_) => {}
                Err(refusal) => panic!("the clock is refused: {refusal}"),
            }
        }
    }

    pub fn give(&mut self, op: &Op) {
        let ended = self.run.head.state.is_ended();
        let (run_before, events_before) = (self.run.clone(), self.events.len());
        match op {
            Op::Claim(max) => self.claim(*max),
            Op::Report { of, kind } => self.report(*of, *kind),
            Op::Event(which) => {
                self.sent += 1;
                let id: Arc<str> = format!("e{}", self.sent).into();
                let event = KeptEvent { id, event_type: EVENTS[*which].into(), data: "null".into() };
                let taken = self.ask(&Command::Receive { event, seen: false });
                assert!(taken.is_ok(), "an event is refused: {taken:?}");
            }
            Op::Pass(us) => {
                self.now += us;
                self.look();
            }
            Op::Pause => drop(self.ask(&Command::Pause { reason: why() })),
            Op::Resume => {
                drop(self.ask(&Command::Resume { approval_id: None, reason: None }));
                self.look();
            }
            Op::Cancel => drop(self.ask(&Command::Cancel { reason: why(), approval_id: None })),
            Op::Stop => drop(self.ask(&Command::Stop { reason: why() })),
            Op::Void => drop(self.ask(&Command::Void { reason: why(), approval_id: None })),
            Op::Unblock(seq) => {
                let (step, act) = (self.name(*seq), run::Act::Unblock { evidence_ref: Some("e".to_owned()) });
                drop(self.ask(&Command::Act(run::StepAct { step, act, reason: None, preview: false })));
            }
            Op::Declare(seq, done) => self.declare(*seq, *done),
            Op::Decide(seq, yes) => {
                let decision = if *yes { Decision::Approve } else { Decision::Reject };
                let reason = (!yes).then(|| "no".to_owned());
                let command =
                    DecideGate { action: self.name(*seq), decision, reason, step: None, request_digest: None };
                drop(self.ask(&Command::DecideGate(command)));
            }
        }
        if ended {
            assert_eq!(run_before, self.run, "an ended run stays ended");
            assert_eq!(events_before, self.events.len(), "{op:?} on an ended run");
        }
    }

    fn name(&self, seq: usize) -> String {
        format!("s{}", seq % self.run.plan.steps.len())
    }

    fn claim(&mut self, max: usize) {
        let ready = |seq: &StepSeq| self.run.agenda(*seq).claim.is_some_and(|claim| claim.at.0 <= self.now);
        let mut steps: Vec<StepSeq> = self.run.live.iter().copied().filter(ready).take(max).collect();
        let hands_out = matches!(self.run.head.state, RunState::Executing | RunState::Blocked | RunState::Compensating);
        if steps.is_empty() {
            // Whoever offers what is not to be had gets nothing.
            steps = (0..self.run.cells.len() as StepSeq).collect();
        }
        let had = self.leases.len();
        self.ask(&Command::Claim(ClaimSteps { steps, worker_id: "w".into(), lease: LEASE }))
            .unwrap_or_else(|refusal| panic!("a claim: {refusal}"));
        assert!(hands_out || self.leases.len() == had, "handed out while the run is not at work");
    }

    fn report(&mut self, of: usize, kind: Kind) {
        let Some(place) = self.leases.len().checked_sub(of + 1) else { return };
        let Given { step_seq, token, said } = self.leases[place].clone();
        let task = TaskRef { step_seq, lease_token: Some(token) };
        let holds = self.run.cell(step_seq).is_some_and(|cell| {
            cell.is_held() && cell.token == Some(token) && cell.lease().is_some_and(|lease| lease.until.0 > self.now)
        });
        // T9 from waiting: the worker that put the step down can still say that it failed.
        let is_newest = self.leases[place + 1..].iter().all(|later| later.step_seq != step_seq);
        let waits = self.run.cell(step_seq).is_some_and(|cell| cell.state == StepCode::Waiting);
        let put_down = kind == Kind::Dead && matches!(said, Some(Kind::Wait(_))) && is_newest && waits;
        let error = "e".to_owned();
        let command = match kind {
            Kind::Complete | Kind::CompleteAndClaim => {
                let claim_next = (kind == Kind::CompleteAndClaim).then_some(ClaimNext { lease: LEASE });
                Command::Complete { task, output: "1".into(), outbound: vec![], claim_next, artifacts: vec![] }
            }
            Kind::Retry(category) => {
                let category = category.map(|i| FailureCategory::REGISTRY[i].category);
                Command::Retry { task, error, backoff: None, category }
            }
            Kind::Dead => Command::Dead { task, error, category: None },
            Kind::Wait(which) => Command::Wait {
                task,
                event_type: Some(EVENTS[which].to_owned()),
                timeout: Some(60 * SECOND),
                facets: vec![],
                outbound: vec![],
            },
            Kind::Beat => Command::Heartbeat { task, lease: LEASE },
        };
        match self.ask(&command) {
            Ok(written) if holds => {
                assert!(said.is_none() && written > 0, "{kind:?} after {said:?} wrote {written}");
                if kind != Kind::Beat {
                    self.leases[place].said = Some(kind);
                }
            }
            Ok(written) if put_down => {
                assert!(written > 0, "{kind:?} after {said:?} wrote nothing");
                self.leases[place].said = Some(kind);
            }
            // Only what was said before may be said again, and to no effect.
            Ok(written) => {
                let again = said.is_some_and(|said| said.verb() == kind.verb());
                assert!(again && written == 0, "{kind:?} after {said:?} was accepted: {written}");
            }
            Err(refusal) => {
                assert!(!holds && !put_down, "{kind:?} under a good lease, or of a step put down: {refusal}");
                assert_eq!(refusal.code, Code::LeaseLost);
            }
        }
    }

    fn declare(&mut self, seq: usize, done: bool) {
        let step = self.name(seq);
        let seq = (seq % self.run.plan.steps.len()) as StepSeq;
        let unknown = |run: &Run| {
            (run.head.outcome == Some(Outcome::EffectUnknown)
                || run.runbook().is_some() && run.head.state == RunState::Stopped)
                && run.cell(seq).and_then(|cell| cell.live.as_ref()).is_some_and(|live| live.effect_unknown)
        };
        let asked = unknown(&self.run);
        if asked {
            self.auditor.declares(seq, done, Time(self.now + 1));
        }
        let output = done.then(|| Arc::from("2"));
        match self.ask(&Command::DeclareEffect { step, done, output, reason: "seen".to_owned() }) {
            Ok(_) => assert!(asked && !unknown(&self.run)),
            Err(refusal) => assert!(!asked, "nobody can say what became of step {seq}: {refusal}"),
        }
    }

    /// What was recorded is enough to build it again.
    pub fn replay(&self) {
        let begun = Run::begun_by(&self.events[0]);
        let (mut shell, mut run) = begun.unwrap_or_else(|| panic!("no start"));
        for event in &self.events {
            match event {
                Event::Gate(event) => shell.apply(event),
                Event::Run(event) => run.apply(event),
            }
        }
        assert_eq!((&shell, &run), (&self.shell, &self.run));
    }

    /// Somebody does whatever there is to do.
    pub fn finish(&mut self) {
        let _ = self.ask(&Command::Resume { approval_id: None, reason: None });
        self.look();
        for _ in 0..200 {
            if self.run.head.state.is_ended() {
                return;
            }
            if self.run.head.state == RunState::Stopped {
                self.give(&Op::Resume);
            }
            let had = self.leases.len();
            self.claim(100);
            while self.leases.len() > had && self.leases.last().is_some_and(|given| given.said.is_none()) {
                let open = self.leases.iter().rev().position(|given| given.said.is_none());
                let Some(of) = open.filter(|of| self.leases.len() - of > had) else { break };
                // Every other one goes on with what follows.
                let place = self.leases.len() - 1 - of;
                let kind = if place.is_multiple_of(2) { Kind::CompleteAndClaim } else { Kind::Complete };
                self.report(of, kind);
                self.leases[place].said.get_or_insert(Kind::Complete);
            }
            for seq in 0..self.run.plan.steps.len() {
                let cell = self.run.cell(seq as StepSeq);
                match cell.map(|cell| (cell.state, cell.live.as_ref().is_some_and(|live| live.effect_unknown))) {
                    Some((StepCode::Blocked, _)) => {
                        self.give(&Op::Decide(seq, true));
                        self.give(&Op::Unblock(seq));
                    }
                    // Of a runbook that stopped, too: what nobody knows of is declared before it goes on.
                    Some((StepCode::Failed | StepCode::Ready, true)) => self.declare(seq, seq.is_multiple_of(2)),
                    _ => {}
                }
            }
            self.give(&Op::Event(0));
            self.give(&Op::Event(1));
            self.give(&Op::Pass(200 * SECOND));
        }
        // Only what is on hold keeps a run from its end.
        let on_hold = |seq: StepSeq| self.run.plan.step(seq).is_some_and(|spec| spec.on_failure == OnFailure::Hold);
        let held_up = (0..).zip(&self.run.cells).any(|(seq, cell)| cell.state == StepCode::Failed && on_hold(seq));
        assert!(held_up, "never ends: {:#?}\n{:#?}", self.run.head, self.run.cells);
    }
}
