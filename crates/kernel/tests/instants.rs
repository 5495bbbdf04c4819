//! The exact microsecond at which a lease ends, a step may be claimed again, and a jittered delay may end.

#[path = "support/plain.rs"]
mod plain;
#[path = "support/runs.rs"]
mod runs;

use countersign_kernel::Time;
use countersign_kernel::lifecycle::StepCode;
use countersign_kernel::plan::*;
use countersign_kernel::process::Process;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::Registry;
use countersign_kernel::run::{ClaimSteps, Command, Event, Run, StartRun, TaskRef};
use plain::Plain;
use runs::{decide, plan_of, registry_of};
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

const START: i64 = 1_000_000_000;
const LEASE: Micros = 30_000_000;

/// A run of one worker's step.
struct World {
    registry: Registry,
    shell: Process,
    run: Run,
}

impl World {
    fn start(retry: RetryPolicy) -> World {
        let registry = registry_of(&Arc::new(plan(retry)));
        let start = Command::Start(Box::new(StartRun::new("wf", "{}")));
        let events = decide(&registry, None, START, &start, &Plain).unwrap_or_else(|refusal| panic!("{refusal}"));
        let (shell, run) = Run::begun_by(&events[0]).unwrap_or_else(|| panic!("no start: {events:?}"));
        let mut world = World { registry, shell, run };
        world.apply(&events);
        world
    }

    fn apply(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::Gate(event) => self.shell.apply(event),
                Event::Run(event) => self.run.apply(event),
            }
        }
    }

    fn give(&mut self, at: i64, command: &Command) -> Result<(), Refusal> {
        let events = decide(&self.registry, Some((&self.shell, &self.run)), at, command, &Plain)?;
        self.apply(&events);
        Ok(())
    }

    fn claim(&mut self, at: i64) -> Option<Uuid> {
        let claim = ClaimSteps { steps: vec![0], worker_id: "w".into(), lease: LEASE };
        self.give(at, &Command::Claim(claim)).unwrap_or_else(|refusal| panic!("{refusal}"));
        self.run.cells[0].token.filter(|_| self.state() == StepCode::InProgress)
    }

    fn due(&mut self, at: i64) {
        self.give(at, &Command::Due { steps: vec![0], run: true }).unwrap_or_else(|refusal| panic!("{refusal}"));
    }

    fn state(&self) -> StepCode {
        self.run.cells[0].state
    }
}

fn task(lease_token: Option<Uuid>) -> TaskRef {
    TaskRef { step_seq: 0, lease_token }
}

fn complete(token: Option<Uuid>) -> Command {
    Command::Complete { task: task(token), output: "1".into(), outbound: vec![], claim_next: None, artifacts: vec![] }
}

fn retry(token: Option<Uuid>) -> Command {
    Command::Retry { task: task(token), error: "busy".to_owned(), backoff: None, category: None }
}

#[test]
fn a_report_at_locked_until_is_in_time_and_one_after_it_is_not() {
    for (late, accepted) in [(-1, true), (0, true), (1, false)] {
        let mut world = World::start(RetryPolicy::DEFAULT);
        let token = world.claim(START + 1);
        let answer = world.give(START + 1 + LEASE + late, &complete(token));
        assert_eq!(answer.map_err(|refusal| refusal.code), if accepted { Ok(()) } else { Err(Code::LeaseLost) });
    }
}

#[test]
fn a_lease_is_taken_away_only_after_locked_until() {
    let mut world = World::start(RetryPolicy::DEFAULT);
    assert!(world.claim(START + 1).is_some());
    let until = START + 1 + LEASE;
    assert_eq!(world.run.agenda(0).timer, Some(Time(until + 1)), "the clock comes by when it may");
    world.due(until);
    assert_eq!(world.state(), StepCode::InProgress);
    world.due(until + 1);
    assert_eq!(world.state(), StepCode::Ready);
}

#[test]
fn a_step_is_claimed_at_next_run_at_and_not_before() {
    let policy = RetryPolicy { backoff: Backoff::Constant, initial_delay: 5_000_000, ..RetryPolicy::DEFAULT };
    let mut world = World::start(policy);
    let token = world.claim(START + 1);
    world.give(START + 2, &retry(token)).unwrap_or_else(|refusal| panic!("{refusal}"));
    let at = START + 2 + 5_000_000;
    assert_eq!(world.claim(at - 1), None);
    assert!(world.claim(at).is_some());
}

/// "with `jitter`, between half of that and all of it"
#[test]
fn a_jittered_delay_lies_between_half_of_it_and_all_of_it() {
    let mut delays = BTreeSet::new();
    for now in 0..500 {
        let at = START + 7_919 * now;
        let policy = RetryPolicy { jitter: true, max_retries: 4, initial_delay: 8_000_000, ..RetryPolicy::DEFAULT };
        let mut world = World::start(policy);
        let mut now = at;
        for attempt in 0..3 {
            let token = world.claim(now + 1);
            world.give(now + 2, &retry(token)).unwrap_or_else(|refusal| panic!("{refusal}"));
            let next = world.run.cells[0].details().next_run_at.unwrap_or_else(|| panic!("no retry"));
            let (delay, full) = (next.0 - now - 2, 8_000_000 << attempt);
            assert!((full / 2..=full).contains(&delay), "{delay} of {full}");
            delays.insert(delay * 100 / full);
            now = next.0;
        }
    }
    assert!(delays.len() > 40, "those who failed together come back together: {delays:?}");
}

fn plan(retry: RetryPolicy) -> Plan {
    let step = StepSpec {
        name: "s".into(),
        work: Work::Worker,
        depends_on: vec![],
        when: None,
        input: None,
        output: None,
        input_schema: None,
        output_schema: None,
        retry,
        timeout: None,
        deadline: None,
        schedule_to_start: None,
        on_failure: OnFailure::Abort,
        optional: false,
        read_only: false,
        idempotent: false,
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
        queue: Arc::from("q"),
        priority: None,
        tasks: vec![],
    };
    plan_of(vec![step])
}
