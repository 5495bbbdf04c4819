//! Whatever is asked of a runbook's run, in whichever order and at whatever time: no step begins without an equal survey or past
//! the hard cap, nothing goes on after a stop without the approval of that stop, and no attempt follows one of which nobody
//! knows what it did. The auditor knows nothing but the events.

#[path = "support/plain.rs"]
mod plain;
#[path = "support/runs.rs"]
mod runs;

use countersign_kernel::gate_spec::{GateEntry, GateSpec};
use countersign_kernel::id::StepId;
use countersign_kernel::lifecycle::RunState;
use countersign_kernel::plan::*;
use countersign_kernel::process::{DecideGate, Decision, EventBody, OpenGate, Process};
use countersign_kernel::registry::Registry;
use countersign_kernel::run::{Action, ClaimSteps, Command, Event, Run, RunEvent, StartRun, TaskRef};
use plain::Plain;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use runs::{WHO, decide, plan_of, registry_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

const SECOND: Micros = 1_000_000;
const HARD: Micros = 100 * SECOND;

fn step(name: &str) -> StepSpec {
    StepSpec {
        name: name.into(),
        work: Work::Worker,
        depends_on: vec![],
        when: None,
        input: None,
        output: None,
        input_schema: None,
        output_schema: None,
        retry: RetryPolicy { max_retries: 0, ..RetryPolicy::DEFAULT },
        timeout: None,
        deadline: None,
        schedule_to_start: None,
        on_failure: OnFailure::Abort,
        optional: false,
        read_only: false,
        idempotent: false,
        gate: None,
        request: None,
        uses: vec![],
        checks: vec![],
        pins: vec![],
        soft_cap: Some(20 * SECOND),
        artifacts: vec![],
        phase: None,
        category: None,
        errors: ErrorResponses::default(),
        queue: "q".into(),
        priority: None,
        tasks: vec![],
    }
}

fn plan() -> Plan {
    let pin = || vec![PinSpec { name: "p".into(), work: Work::Worker, queue: "p".into(), timeout: 30 * SECOND }];
    let entry = GateEntry::Single { approver_ref: WHO.to_owned(), scope: "s".to_owned(), delegable: false };
    let mut steps = vec![
        StepSpec { read_only: true, pins: pin(), ..step("look") },
        step("write"),
        StepSpec { gate: Some("go".to_owned()), ..step("cut") },
        StepSpec { pins: pin(), ..step("again") },
        StepSpec { idempotent: true, ..step("close") },
    ];
    for (seq, step) in (0..).zip(&mut steps) {
        step.depends_on = StepSeq::checked_sub(seq, 1).into_iter().collect();
    }
    Plan {
        failure_policy: FailurePolicy::FailClosed,
        hard_cap: Some(HARD),
        gate_spec: GateSpec(BTreeMap::from([("sovereign".to_owned(), entry.clone()), ("go".to_owned(), entry)])),
        ..plan_of(steps)
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// Whatever can be claimed, steps and surveys.
    Claim,
    Complete,
    Dead,
    /// What was looked at is so, or nobody could tell.
    Look(Option<u8>),
    Pass(u8),
    Stop,
    Pause,
    Open(&'static str),
    Approve(&'static str),
    /// With one of the approvals that there ever were.
    Resume(Option<usize>),
    Void(Option<usize>),
    Declare(usize, bool),
}

fn op() -> impl Strategy<Value = Op> {
    let gate = prop::sample::select(vec!["resume", "cut", "void"]);
    prop_oneof![
        8 => Just(Op::Claim),
        5 => Just(Op::Complete),
        1 => Just(Op::Dead),
        8 => prop_oneof![6 => Just(Some(1)), 2 => Just(Some(2)), 1 => Just(None)].prop_map(Op::Look),
        2 => (1..40u8).prop_map(Op::Pass),
        1 => (90..130u8).prop_map(Op::Pass),
        1 => Just(Op::Stop),
        1 => Just(Op::Pause),
        1 => gate.clone().prop_map(Op::Open),
        6 => gate.prop_map(Op::Approve),
        6 => prop::option::weighted(0.9, 0..6usize).prop_map(Op::Resume),
        1 => prop::option::of(0..6usize).prop_map(Op::Void),
        3 => (0..5usize, any::<bool>()).prop_map(|(seq, done)| Op::Declare(seq, done)),
    ]
}

/// What the events say, and nothing else.
#[derive(Default)]
struct Auditor {
    pins: bool,
    /// The step for which an equal survey was made, since the run was last resumed.
    surveyed: Option<StepSeq>,
    /// Approvals to resume that this stop has asked for, and those to void.
    asked: BTreeSet<StepId>,
    void: BTreeSet<StepId>,
    fired: Vec<(String, StepId)>,
    unknown: BTreeSet<StepSeq>,
    executed: Micros,
    since: Option<i64>,
}

impl Auditor {
    fn see(&mut self, events: &[Event]) {
        self.fired.clear();
        let stops = |event: &Event| match event {
            Event::Run(event) => event.run_moves.iter().any(|m| m.transition.to == RunState::Stopped),
            Event::Gate(_) => false,
        };
        if events.iter().any(stops) {
            self.asked.clear();
        }
        for event in events {
            match event {
                Event::Gate(event) => self.see_gate(&event.body),
                Event::Run(event) => self.see_run(event),
            }
        }
    }

    fn see_gate(&mut self, body: &EventBody) {
        match body {
            EventBody::GateOpened { gate, .. } => {
                let ids = gate.steps.iter().map(|step| step.step_id);
                match gate.action.as_str() {
                    "resume" => self.asked.extend(ids),
                    "void" => self.void.extend(ids),
                    _ => {}
                }
            }
            EventBody::TransitionFired { action, gate: Some(gate), .. } => {
                self.fired.extend(gate.step_id().map(|id| (action.clone(), id)));
            }
            _ => {}
        }
    }

    fn spent(&self, event: &RunEvent, action: &str) -> StepId {
        let approval_id = event.notes.as_ref().and_then(|notes| notes.approval_id);
        let approval_id = approval_id.unwrap_or_else(|| panic!("{action} without an approval"));
        assert!(
            self.fired.contains(&(action.to_owned(), approval_id)),
            "{action} with an approval that it does not spend"
        );
        approval_id
    }

    fn see_run(&mut self, event: &RunEvent) {
        let now = event.at.0;
        let executed = self.executed + self.since.map_or(0, |since| now - since);
        for m in event.moves.iter().filter(|m| m.transition.id == "T2") {
            assert!(!self.pins || self.surveyed == Some(m.step_seq), "{} begins without a survey", m.step_seq);
            assert!(!self.unknown.contains(&m.step_seq), "{} is done twice", m.step_seq);
            assert!(executed <= HARD, "{} begins past the cap", m.step_seq);
        }
        let notes = event.notes.as_deref();
        if let Some((seq, _)) = notes.and_then(|notes| notes.surveyed.as_ref()) {
            let drifted = notes.is_some_and(|notes| !notes.drift.is_empty());
            let ends = event.run_moves.iter().any(|m| matches!(m.transition.to, RunState::Stopped));
            assert_eq!(drifted, ends, "drift stops, and nothing else of a survey does");
            self.surveyed = (!drifted).then_some(*seq);
        }
        self.pins |= notes.is_some_and(|notes| notes.captured.is_some());
        for (seq, cell) in &event.cells {
            if cell.live.as_ref().is_some_and(|live| live.effect_unknown) {
                self.unknown.insert(*seq);
            }
        }
        if let Some((seq, _)) = event.effect {
            self.unknown.remove(&seq);
        }
        let resumes = |from: RunState| event.run_moves.iter().any(|m| m.transition.from == from);
        if event.action == Action::RunResumed {
            if resumes(RunState::Stopped) {
                let approval_id = self.spent(event, "resume");
                assert!(self.asked.remove(&approval_id), "resumed with the approval of another stop");
                assert!(self.unknown.is_empty(), "resumed over an unknown effect");
            }
            self.surveyed = None;
        }
        if event.action == Action::RunVoided {
            let approval_id = self.spent(event, "void");
            assert!(self.void.contains(&approval_id));
        }
        for m in &event.run_moves {
            if m.transition.from == RunState::Executing {
                self.executed += self.since.take().map_or(0, |since| now - since);
            }
            if m.transition.to == RunState::Executing {
                self.since = Some(now);
            }
        }
        if notes.is_some_and(|notes| notes.budget.is_some()) {
            self.executed = 0;
        }
    }
}

struct World {
    registry: Registry,
    shell: Process,
    run: Run,
    auditor: Auditor,
    now: i64,
    approvals: Vec<StepId>,
    surveys: Vec<(StepSeq, Uuid)>,
    leases: Vec<(StepSeq, Uuid)>,
}

impl World {
    fn start() -> World {
        let registry = registry_of(&Arc::new(plan()));
        let now = 1_000 * SECOND;
        let start = Command::Start(Box::new(StartRun::new("wf", "{}")));
        let events = decide(&registry, None, now, &start, &Plain).unwrap_or_else(|refusal| panic!("{refusal}"));
        let (shell, run) = Run::begun_by(&events[0]).unwrap_or_else(|| panic!("{events:?}"));
        let (auditor, approvals, surveys, leases) = (Auditor::default(), vec![], vec![], vec![]);
        let mut world = World { registry, shell, run, auditor, now, approvals, surveys, leases };
        world.apply(&events);
        world
    }

    fn apply(&mut self, events: &[Event]) {
        self.auditor.see(events);
        for event in events {
            match event {
                Event::Gate(event) => {
                    if let EventBody::GateOpened { gate, .. } = &event.body {
                        self.approvals.extend(gate.steps.iter().map(|step| step.step_id));
                    }
                    self.shell.apply(event);
                }
                Event::Run(event) => {
                    for task in &event.claimed {
                        let to = if task.task_type.as_str() == "SURVEY" { &mut self.surveys } else { &mut self.leases };
                        to.push((task.step_seq, task.lease_token));
                    }
                    self.run.apply(event);
                }
            }
        }
    }

    fn ask(&mut self, command: &Command) {
        self.now += 1;
        // Whatever is refused changes nothing; the auditor sees what is not.
        let target = Some((&self.shell, &self.run));
        if let Ok(events) = decide(&self.registry, target, self.now, command, &Plain) {
            self.apply(&events);
        }
    }

    fn report(&mut self, (step_seq, token): (StepSeq, Uuid), value: Option<Arc<str>>) {
        let task = TaskRef { step_seq, lease_token: Some(token) };
        let (error, category) = ("gone".to_owned(), None);
        self.ask(&match value {
            Some(output) => Command::Complete { task, output, outbound: vec![], claim_next: None, artifacts: vec![] },
            None => Command::Dead { task, error, category },
        });
    }

    fn play(&mut self, op: &Op) {
        let approval = |world: &World, which: &Option<usize>| {
            let last = world.approvals.len().checked_sub(1)?;
            which.map(|back| world.approvals[last.saturating_sub(back)].to_string())
        };
        let reason = || Some("because".to_owned());
        match op {
            Op::Claim => {
                let steps: Vec<StepSeq> = (0..5).collect();
                self.ask(&Command::Claim(ClaimSteps { steps, worker_id: "w".into(), lease: 30 * SECOND }));
            }
            Op::Complete => {
                self.leases.last().copied().into_iter().for_each(|task| self.report(task, Some("1".into())))
            }
            Op::Dead => self.leases.last().copied().into_iter().for_each(|task| self.report(task, None)),
            Op::Look(value) => {
                let value = value.map(|value| Arc::from(value.to_string()));
                self.surveys.last().copied().into_iter().for_each(|task| self.report(task, value.clone()));
            }
            Op::Pass(seconds) => {
                self.now += i64::from(*seconds) * SECOND;
                // The clock comes by late, or not at all before somebody else does something.
                if seconds % 3 > 0 {
                    self.ask(&Command::Due { steps: (0..5).collect(), run: true });
                }
            }
            Op::Stop => self.ask(&Command::Stop { reason: reason() }),
            Op::Pause => self.ask(&Command::Pause { reason: reason() }),
            Op::Open(action) => {
                self.ask(&Command::OpenGate(OpenGate {
                    action: (*action).to_owned(),
                    reason: reason(),
                    request: None,
                }));
            }
            Op::Approve(action) => {
                let (action, decision) = ((*action).to_owned(), Decision::Approve);
                self.ask(&Command::DecideGate(DecideGate {
                    action,
                    decision,
                    reason: None,
                    step: None,
                    request_digest: None,
                }));
            }
            Op::Resume(which) => {
                let approval_id = approval(self, which);
                self.ask(&Command::Resume { approval_id, reason: reason() });
            }
            Op::Void(which) => {
                let approval_id = approval(self, which);
                self.ask(&Command::Void { approval_id, reason: reason() });
            }
            Op::Declare(seq, done) => {
                let step = self.run.step_name(*seq as StepSeq).to_owned();
                let (done, reason) = (*done, "seen".to_owned());
                self.ask(&Command::DeclareEffect { step, done, output: None, reason });
            }
        }
    }
}

/// Where failures are kept: a test of one file has no `main.rs`, beside which the default would be.
const KEPT: FileFailurePersistence = FileFailurePersistence::Direct("tests/proptest-regressions/runbook.txt");

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: Some(Box::new(KEPT)), ..ProptestConfig::default() })]

    #[test]
    fn a_runbook_holds_whatever_is_asked_of_it(ops in prop::collection::vec(op(), 0..120)) {
        let mut world = World::start();
        for op in &ops {
            world.play(op);
        }
    }
}

/// The walk above is worth something only where runs get somewhere.
#[test]
fn the_walk_reaches_the_end() {
    let mut world = World::start();
    for _ in 0..60 {
        for op in [Op::Claim, Op::Complete, Op::Claim, Op::Look(Some(1)), Op::Approve("cut")] {
            world.play(&op);
        }
    }
    assert_eq!(world.run.head.state, RunState::Completed);
}
