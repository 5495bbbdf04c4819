//! Random lives of runs whose steps people do. Whatever they try, in whatever order: nothing that was promised, missed or
//! completed is ever taken back, a wait has its facet, and what the run counts is what its steps say.

#![expect(clippy::expect_used, reason = "a test's helpers may fail the test")]

#[path = "support/plain.rs"]
mod plain;
#[path = "support/runs.rs"]
mod runs;

use countersign_kernel::gate_spec::{GateEntry, GateSpec};
use countersign_kernel::lifecycle::StepCode;
use countersign_kernel::plan::*;
use countersign_kernel::process::{DecideGate, Decision, GateStatus, OpenGate, Process};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::registry::Registry;
use countersign_kernel::run::{Act, Cell, ClaimSteps, Command, Event, Prior, Run, StartRun, StepAct, TaskRef};
use countersign_kernel::{EventId, IdSource, Time};
use plain::Plain;
use proptest::prelude::*;
use runs::{WHO, decide, plan_of, registry_of};
use std::collections::BTreeMap;
use std::sync::Arc;

const SECOND: Micros = 1_000_000;

fn step(i: usize, linear: bool, human: bool, (deadline, may_wait): (Option<Micros>, Option<Micros>)) -> StepSpec {
    let before = |back: usize| i.checked_sub(back).map(|seq| seq as StepSeq);
    StepSpec {
        name: format!("s{i}").into(),
        work: if human { Work::Human { pic: Some(Template("\"ann\"".into())) } } else { Work::Worker },
        depends_on: if linear { before(1) } else { before(2) }.into_iter().collect(),
        when: None,
        input: None,
        output: None,
        input_schema: None,
        output_schema: i.is_multiple_of(3).then(|| Schema("{}".into())),
        retry: RetryPolicy::DEFAULT,
        timeout: None,
        deadline,
        schedule_to_start: may_wait,
        on_failure: OnFailure::Hold,
        optional: false,
        read_only: false,
        idempotent: true,
        gate: None,
        checks: vec![],
        pins: vec![],
        soft_cap: None,
        request: None,
        uses: vec![],
        artifacts: vec![],
        phase: None,
        category: None,
        errors: ErrorResponses::default(),
        queue: "q".into(),
        priority: None,
        tasks: vec![],
    }
}

fn plan(linear: bool, steps: Vec<StepSpec>) -> Plan {
    let entry = GateEntry::Single { approver_ref: WHO.to_owned(), scope: "s".to_owned(), delegable: false };
    Plan {
        order: if linear { Order::Linear } else { Order::Dag },
        gate_spec: GateSpec(BTreeMap::from([("reopen".to_owned(), entry.clone()), ("escalate".to_owned(), entry)])),
        blocked_escalation: BlockedEscalation { after: 30 * SECOND, review_after: None, critical_path: None },
        ..plan_of(steps)
    }
}

struct World {
    registry: Registry,
    shell: Process,
    run: Run,
    now: i64,
    /// The record that closed each step, as a store would know it.
    closed: BTreeMap<StepSeq, Prior>,
    events: Vec<Event>,
}

impl World {
    fn start(plan: Plan) -> World {
        let registry = registry_of(&Arc::new(plan));
        let start = StartRun::new("wf", Arc::from("{}"));
        let now = 1_000 * SECOND;
        let events = decide(&registry, None, now, &Command::Start(Box::new(start)), &Plain).expect("a start");
        let (shell, run) = Run::begun_by(&events[0]).expect("a run");
        let mut world = World { registry, shell, run, now, closed: BTreeMap::new(), events: vec![] };
        world.accept(events);
        world
    }

    fn ask(&mut self, command: &Command) -> Result<usize, Refusal> {
        self.now += 1;
        let events = decide(&self.registry, Some((&self.shell, &self.run)), self.now, command, &Plain)?;
        let count = events.len();
        self.accept(events);
        Ok(count)
    }

    fn accept(&mut self, events: Vec<Event>) {
        for event in &events {
            match event {
                Event::Gate(event) => self.shell.apply(event),
                Event::Run(event) => {
                    let before = self.run.clone();
                    self.run.apply(event);
                    self.nothing_is_taken_back(&before);
                    for m in &event.moves {
                        if matches!(m.to, StepCode::Completed | StepCode::CannotComplete) {
                            let event_id: EventId = IdSource::new(event.at, 7).make();
                            let output = event.outputs.iter().find(|(seq, _)| *seq == m.step_seq);
                            let output = output.map(|(_, output)| output.clone());
                            let prior = Prior { event_id, actor_ref: WHO.to_owned(), at: event.at, output };
                            self.closed.insert(m.step_seq, prior);
                        }
                        let docket = self.run.cells[m.step_seq as usize].docket.clone().unwrap_or_default();
                        let late = docket.deadline.is_some_and(|deadline| event.at > deadline);
                        match m.transition.id {
                            "T7" => assert!(late && docket.sla_breach > Some(0) && docket.overdue_first_at.is_some()),
                            "T8" => assert!(!late, "completed late, and not as such"),
                            "X14" => {
                                let by = docket.start_by.expect("a time to claim it by");
                                assert!(event.at > by && docket.overdue_first_at.is_some());
                            }
                            "X16" => assert!(docket.start_by.is_none_or(|by| by > event.at)),
                            "T5" => assert!(late && docket.overdue_first_at.is_some()),
                            _ => {}
                        }
                    }
                }
            }
        }
        self.events.extend(events);
        self.agrees_with_itself();
    }

    fn nothing_is_taken_back(&self, before: &Run) {
        for (old, new) in before.cells.iter().zip(&self.run.cells) {
            let (a, b) = (old.docket.clone().unwrap_or_default(), new.docket.clone().unwrap_or_default());
            assert!(a.overdue_first_at.is_none() || a.overdue_first_at == b.overdue_first_at);
            assert!(a.sla_breach.is_none() || b.sla_breach.is_some());
            assert!(old.completed_at.is_none() || new.completed_at.is_some());
            assert!(b.cycle == a.cycle || b.cycle == a.cycle + 1);
            assert_eq!(b.cycle > a.cycle, old.is_ended() && !new.is_ended() || reopened(old, new));
            let held_up = old.state != StepCode::NotStarted && new.state == StepCode::NotStarted;
            assert!(a.pic.is_none() || a.pic == b.pic || held_up && b.pic.is_none(), "only X17 ends a charge");
            assert!(b.start_by.is_none() || new.is_offered(), "it is claimed by a time only while it is offered");
        }
    }

    fn agrees_with_itself(&self) {
        let (run, head) = (&self.run, &self.run.head);
        let count = |which: &dyn Fn(&Cell) -> bool| run.cells.iter().filter(|cell| which(cell)).count() as u32;
        for (seq, cell) in (0..).zip(&run.cells) {
            let live = cell.details();
            assert_eq!(live.waiting.is_some(), cell.state == StepCode::Waiting, "a wait has its facet: {cell:?}");
            assert_eq!(live.block.is_some(), cell.state == StepCode::Blocked, "{cell:?}");
            if cell.state == StepCode::NotStarted {
                let spec = run.plan.step(seq).expect("a step");
                let open = spec.depends_on.iter().filter(|dep| !run.cells[**dep as usize].is_ended()).count();
                assert_eq!(cell.open_deps as usize, open, "step {seq}");
            }
        }
        if head.state.is_ended() {
            return;
        }
        assert_eq!(head.held, count(&Cell::is_held));
        assert_eq!(head.blocked, count(&|cell| cell.state == StepCode::Blocked));
        assert_eq!(head.open, count(&|cell| !cell.is_ended()));
        if run.plan.order == Order::Linear {
            let first = run.cells.iter().position(|cell| !cell.is_ended());
            assert_eq!(Some(head.current as usize), first);
        }
    }

    fn act(&mut self, seq: usize, act: Act) -> Result<usize, Refusal> {
        let step = format!("s{}", seq % self.run.plan.steps.len());
        self.ask(&Command::Act(StepAct { step, act, reason: None, preview: false }))
    }

    fn approval(&self, action: &str) -> Option<String> {
        let gate = self.shell.gate("run", action).filter(|gate| gate.status() == GateStatus::Approved)?;
        gate.steps.first().map(|step| step.step_id.to_string())
    }

    fn look(&mut self) {
        for _ in 0..100 {
            let due = |seq: &StepSeq| self.run.agenda(*seq).timer.is_some_and(|at| at.0 <= self.now);
            let steps: Vec<StepSeq> = self.run.live.iter().copied().filter(due).collect();
            if steps.is_empty() || self.ask(&Command::Due { steps, run: false }).expect("a look at the clock") == 0 {
                return;
            }
        }
        panic!("the clock never gets done");
    }

    fn give(&mut self, op: &Op) {
        let n = self.run.plan.steps.len();
        let given = match op {
            Op::Claim(seq) => self.act(*seq, Act::Claim),
            Op::Release(seq) => self.act(*seq, Act::Release),
            Op::Wait(seq, timeout) => {
                let facets = vec!["waiting_time_gate".to_owned(), "waiting_human".to_owned()];
                self.act(*seq, Act::Wait { event_type: None, timeout: *timeout, facets })
            }
            Op::Block(seq) => self.act(*seq, Act::Block { block_reason: Some("missing_input".to_owned()) }),
            Op::Unblock(seq) => self.act(*seq, Act::Unblock { evidence_ref: Some("e".to_owned()) }),
            Op::Complete(seq, good) => {
                let output = if *good { "1" } else { "null" };
                self.act(*seq, Act::Complete { output: output.into(), outbound: vec![] })
            }
            Op::GiveUp(seq) => self.act(*seq, Act::CannotComplete { evidence_ref: Some("e".to_owned()) }),
            Op::Escalate(seq) => self.act(*seq, Act::Escalate),
            Op::Urge(seq) => {
                let approval_id = self.approval(&format!("escalate:s{}", seq % n));
                self.act(*seq, Act::BlockEscalate { approval_id })
            }
            Op::Retry(seq) => self.act(*seq, Act::Retry),
            Op::Reengage(seq) => self.act(*seq, Act::Reengage),
            Op::Extend(seq, length) => {
                let deadline = Time(self.now + length);
                self.act(*seq, Act::ExtendDeadline { deadline })
            }
            Op::Ask(label, seq) => {
                let action = format!("{}:s{}", ["reopen", "escalate"][label % 2], seq % n);
                let opened =
                    self.ask(&Command::OpenGate(OpenGate { action: action.clone(), reason: None, request: None }));
                let decide =
                    DecideGate { action, decision: Decision::Approve, reason: None, step: None, request_digest: None };
                opened.and_then(|_| self.ask(&Command::DecideGate(decide)))
            }
            Op::Reopen(seq) => {
                let approval_id = self.approval(&format!("reopen:s{}", seq % n));
                let prior = self.closed.get(&((seq % n) as StepSeq)).cloned().map(Box::new);
                self.act(*seq, Act::Reopen { approval_id, correction_reason: Some("data_error".to_owned()), prior })
            }
            Op::Work(seq, dies) => self.work((seq % n) as StepSeq, *dies),
            Op::Pass(length) => {
                self.now += length;
                self.look();
                Ok(0)
            }
        };
        if let Err(refusal) = given {
            assert!(!refusal.detail.is_empty());
        }
    }

    /// A worker takes it and reports at once.
    fn work(&mut self, seq: StepSeq, dies: bool) -> Result<usize, Refusal> {
        let claim = ClaimSteps { steps: vec![seq], worker_id: "w".into(), lease: 5 * SECOND };
        self.ask(&Command::Claim(claim))?;
        let token = self.run.cells[seq as usize].token;
        let task = TaskRef { step_seq: seq, lease_token: token };
        self.now += 2 * SECOND;
        match dies {
            true => self.ask(&Command::Dead { task, error: "no".to_owned(), category: None }),
            false => self.ask(&Command::Complete {
                task,
                output: "1".into(),
                outbound: vec![],
                claim_next: None,
                artifacts: vec![],
            }),
        }
    }

    fn replay(&self) {
        let (mut shell, mut run) = Run::begun_by(&self.events[0]).expect("a run");
        for event in &self.events {
            match event {
                Event::Gate(event) => shell.apply(event),
                Event::Run(event) => run.apply(event),
            }
        }
        assert_eq!((&shell, &run), (&self.shell, &self.run));
    }
}

fn reopened(old: &Cell, new: &Cell) -> bool {
    old.state == StepCode::CannotComplete && matches!(new.state, StepCode::InProgress | StepCode::Ready)
}

#[derive(Clone, Debug)]
enum Op {
    Claim(usize),
    Release(usize),
    Wait(usize, Option<Micros>),
    Block(usize),
    Unblock(usize),
    Complete(usize, bool),
    GiveUp(usize),
    Escalate(usize),
    Urge(usize),
    Retry(usize),
    Reengage(usize),
    Extend(usize, Micros),
    Ask(usize, usize),
    Reopen(usize),
    Work(usize, bool),
    Pass(Micros),
}

fn op() -> impl Strategy<Value = Op> {
    let seq = 0..6usize;
    prop_oneof![
        8 => seq.clone().prop_map(Op::Claim),
        1 => seq.clone().prop_map(Op::Release),
        2 => (seq.clone(), proptest::option::of((1..60i64).prop_map(|s| s * SECOND))).prop_map(|(s, t)| Op::Wait(s, t)),
        2 => seq.clone().prop_map(Op::Block),
        3 => seq.clone().prop_map(Op::Unblock),
        8 => (seq.clone(), prop::bool::weighted(0.9)).prop_map(|(s, good)| Op::Complete(s, good)),
        2 => seq.clone().prop_map(Op::GiveUp),
        1 => seq.clone().prop_map(Op::Escalate),
        1 => seq.clone().prop_map(Op::Urge),
        2 => seq.clone().prop_map(Op::Reengage),
        1 => seq.clone().prop_map(Op::Retry),
        2 => (seq.clone(), (1..200i64).prop_map(|s| s * SECOND)).prop_map(|(s, length)| Op::Extend(s, length)),
        4 => (0..2usize, seq.clone()).prop_map(|(label, s)| Op::Ask(label, s)),
        6 => seq.clone().prop_map(Op::Reopen),
        5 => (seq, prop::bool::weighted(0.2)).prop_map(|(s, dies)| Op::Work(s, dies)),
        4 => (1..90i64).prop_map(|s| Op::Pass(s * SECOND)),
    ]
}

fn plans() -> impl Strategy<Value = Plan> {
    let time = |likely| proptest::option::weighted(likely, (1..60i64).prop_map(|s| s * SECOND));
    let shape = (prop::bool::weighted(0.7), (time(0.6), time(0.4)));
    (any::<bool>(), proptest::collection::vec(shape, 2..6)).prop_map(|(linear, shapes)| {
        let steps = shapes.into_iter().enumerate().map(|(i, (human, times))| step(i, linear, human, times));
        plan(linear, steps.collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nothing_is_taken_back((plan, ops) in (plans(), proptest::collection::vec(op(), 0..160))) {
        let mut world = World::start(plan);
        for op in &ops {
            world.give(op);
        }
        world.replay();
    }
}

/// Ten thousand steps turning overdue at once cost one command, and one record.
#[test]
fn ten_thousand_steps_turn_overdue_in_one_go() {
    const STEPS: usize = 10_000;
    let mut spec = step(0, false, false, (Some(60 * SECOND), None));
    spec.depends_on.clear();
    let steps = (0..STEPS).map(|i| StepSpec { name: format!("s{i}").into(), ..spec.clone() }).collect();
    let registry = registry_of(&Arc::new(plan(false, steps)));
    let start = StartRun::new("wf", Arc::from("{}"));
    let mut now = 1_000 * SECOND;
    let mut events = decide(&registry, None, now, &Command::Start(Box::new(start)), &Plain).expect("a start");
    let (shell, mut run) = Run::begun_by(&events[0]).expect("a run");
    let seqs: Vec<StepSeq> = (0..STEPS as StepSeq).collect();
    let claim = Command::Claim(ClaimSteps { steps: seqs.clone(), worker_id: "w".into(), lease: 3600 * SECOND });
    for command in [Some(claim), None] {
        for event in &events {
            let Event::Run(event) = event else { continue };
            run.apply(event);
        }
        now += 1;
        if let Some(command) = command {
            events = decide(&registry, Some((&shell, &run)), now, &command, &Plain).expect("a claim");
        }
    }
    let at = |time: i64| {
        decide(&registry, Some((&shell, &run)), time, &Command::Due { steps: seqs.clone(), run: false }, &Plain)
    };
    assert!(at(1_060 * SECOND).expect("a look").is_empty(), "at the deadline nothing is late");
    let late = at(1_060 * SECOND + 2).expect("a look");
    let [Event::Run(late)] = &late[..] else { panic!("one record: {}", late.len()) };
    assert_eq!(late.moves.len(), STEPS);
    assert!(late.moves.iter().all(|m| m.transition.id == "T5"));
}
