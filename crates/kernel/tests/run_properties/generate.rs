//! Random plans of up to thirty steps, and what people, workers and the clock do to their runs.

use super::play::Kind;
use super::runs::plan_of;
use countersign_kernel::gate_spec::{GateEntry, GateSpec};
use countersign_kernel::plan::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const SECOND: Micros = 1_000_000;
pub const EVENTS: [&str; 2] = ["ping", "pong"];

#[derive(Clone, Debug)]
pub enum Op {
    Claim(usize),
    /// By one of the leases that were ever given, counted from the newest.
    Report {
        of: usize,
        kind: Kind,
    },
    Event(usize),
    Pass(Micros),
    Pause,
    Resume,
    /// Undoing what was completed, or not.
    Cancel(bool),
    Stop,
    Void,
    Unblock(usize),
    Declare(usize, bool),
    Decide(usize, bool),
}

pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    let kind = prop_oneof![
        5 => Just(Kind::Complete),
        4 => Just(Kind::CompleteAndClaim),
        2 => Just(Kind::Retry(None)),
        1 => Just(Kind::Retry(Some(5))),
        1 => Just(Kind::Retry(Some(4))),
        1 => Just(Kind::Dead),
        2 => (0..2usize).prop_map(Kind::Wait),
        1 => Just(Kind::Beat),
    ];
    let op = prop_oneof![
        20 => (1..5usize).prop_map(Op::Claim),
        30 => (0..6usize, kind).prop_map(|(of, kind)| Op::Report { of, kind }),
        4 => (0..2usize).prop_map(Op::Event),
        10 => (1..90i64).prop_map(|s| Op::Pass(s * SECOND)),
        2 => Just(Op::Pause),
        4 => Just(Op::Resume),
        1 => prop_oneof![3 => Just(Op::Stop), 2 => any::<bool>().prop_map(Op::Cancel), 1 => Just(Op::Void)],
        2 => (0..30usize).prop_map(Op::Unblock),
        3 => (0..30usize, any::<bool>()).prop_map(|(seq, done)| Op::Declare(seq, done)),
        5 => (0..30usize, prop::bool::weighted(0.8)).prop_map(|(seq, yes)| Op::Decide(seq, yes)),
    ];
    vec(op, 0..120)
}

#[derive(Clone, Debug)]
struct Draft {
    deps: Vec<usize>,
    work: usize,
    when: usize,
    on_failure: usize,
    retries: u32,
    backoff: usize,
    timeout: Option<Micros>,
    repeatable: bool,
    gate: bool,
    undo: bool,
    optional: bool,
    /// Its input cannot be worked out.
    inputless: bool,
    /// It is skipped for an external error, whatever its `on_failure`.
    lenient: bool,
}

fn draft() -> impl Strategy<Value = Draft> {
    let shape = (vec(1..6usize, 0..4), 0..12usize, 0..14usize, 0..6usize, 0..4u32, 0..3usize);
    let rest = (
        proptest::option::weighted(0.3, (20..200i64).prop_map(|s| s * SECOND)),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.5),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.12),
        prop::bool::weighted(0.3),
    );
    (shape, rest).prop_map(|((deps, work, when, on_failure, retries, backoff), rest)| {
        let (timeout, repeatable, gate, undo, optional, inputless, lenient) = rest;
        Draft {
            deps,
            work,
            when,
            on_failure,
            retries,
            backoff,
            timeout,
            repeatable,
            gate,
            undo,
            optional,
            inputless,
            lenient,
        }
    })
}

pub fn plan() -> impl Strategy<Value = Plan> {
    let timeout = proptest::option::weighted(0.3, (60..900i64).prop_map(|s| s * SECOND));
    let closed = prop::bool::weighted(0.1);
    (any::<bool>(), vec(draft(), 1..=30), any::<bool>(), timeout, escalation(), closed).prop_map(
        |(linear, drafts, undoes, timeout, blocked_escalation, closed)| {
            let plan = Plan { blocked_escalation, ..build(linear || closed, &drafts, undoes, timeout) };
            if closed { close(plan) } else { plan }
        },
    )
}

/// As a definition must be to be `fail-closed`: one step after the other, and nothing is tried again, passed over, put on
/// hold or undone.
fn close(mut plan: Plan) -> Plan {
    plan.failure_policy = FailurePolicy::FailClosed;
    plan.compensation.clear();
    for step in &mut plan.steps {
        step.retry.max_retries = 0;
        step.optional = false;
        step.errors = ErrorResponses::default();
        step.when = None;
        step.on_failure = OnFailure::Abort;
    }
    plan
}

/// Wide, and hundreds of steps of it.
pub fn large_plan() -> impl Strategy<Value = Plan> {
    (vec(draft(), 300..=500), escalation()).prop_map(|(drafts, blocked_escalation)| {
        let roots = |(i, draft): (usize, Draft)| match i % 7 {
            0 => Draft { deps: vec![], on_failure: 5, ..draft },
            _ => Draft { on_failure: 5, ..draft },
        };
        let drafts: Vec<Draft> = drafts.into_iter().enumerate().map(roots).collect();
        Plan { blocked_escalation, ..build(false, &drafts, false, None) }
    })
}

fn escalation() -> impl Strategy<Value = BlockedEscalation> {
    (1..200i64, proptest::option::of(any::<bool>())).prop_map(|(seconds, critical_path)| BlockedEscalation {
        after: seconds * SECOND,
        review_after: None,
        critical_path,
    })
}

/// A chain of steps with nothing special about them.
pub fn chain(steps: usize) -> Plan {
    let plain = Draft {
        deps: vec![],
        work: 0,
        when: 9,
        on_failure: 0,
        retries: 1,
        backoff: 0,
        timeout: None,
        repeatable: false,
        gate: false,
        undo: false,
        optional: false,
        inputless: false,
        lenient: false,
    };
    build(true, &vec![plain; steps], false, None)
}

fn build(linear: bool, drafts: &[Draft], undoes: bool, timeout: Option<Micros>) -> Plan {
    let mut plan = Plan {
        order: if linear { Order::Linear } else { Order::Dag },
        failure_policy: if undoes { FailurePolicy::Compensate } else { FailurePolicy::Abort },
        timeout,
        gate_spec: GateSpec(BTreeMap::from([("sign".to_owned(), entry())])),
        ..plan_of((0..drafts.len()).map(|i| step(i, &drafts[i], linear)).collect())
    };
    for (seq, draft) in (0..).zip(drafts) {
        if draft.undo && !plan.steps[seq as usize].read_only {
            plan.compensation.push(CompensationSpec {
                step: seq,
                action: "undo".into(),
                agent: Arc::from("undoer"),
                work: Work::Worker,
                timeout: None,
                hold: false,
            });
            plan.referenced.push(seq);
        }
    }
    plan
}

fn entry() -> GateEntry {
    GateEntry::Single { approver_ref: "ann".to_owned(), scope: "s".to_owned(), delegable: false }
}

fn step(i: usize, draft: &Draft, linear: bool) -> StepSpec {
    let mut deps: Vec<StepSeq> = match linear {
        true => i.checked_sub(1).into_iter().map(|d| d as StepSeq).collect(),
        false => draft.deps.iter().filter_map(|back| i.checked_sub(*back)).map(|d| d as StepSeq).collect(),
    };
    deps.sort_unstable();
    deps.dedup();
    let work = match draft.work {
        0 => Work::Wait(WaitWork::Event { event_type: EVENTS[i % 2].into(), timeout: Some(100 * SECOND) }),
        1 => Work::Wait(WaitWork::For(30 * SECOND)),
        2 => Work::Approval(entry()),
        _ => Work::Worker,
    };
    // A plain chain in tests of the generator itself is all workers.
    let work = if draft.when == 9 { Work::Worker } else { work };
    StepSpec {
        name: format!("s{i}").into(),
        gate: (draft.gate && matches!(work, Work::Worker)).then(|| "sign".to_owned()),
        work,
        depends_on: deps,
        when: match draft.when {
            0 | 1 => Some(Expression("false".into())),
            2 => Some(Expression("true".into())),
            3 => Some(Expression(if i.is_multiple_of(4) { "error".into() } else { "true".into() })),
            _ => None,
        },
        input: (draft.inputless && matches!(draft.work, 3..)).then(|| Template("error".into())),
        output: None,
        input_schema: None,
        output_schema: None,
        retry: RetryPolicy {
            max_retries: draft.retries,
            backoff: [Backoff::Constant, Backoff::Linear, Backoff::Exponential][draft.backoff],
            initial_delay: 5 * SECOND,
            max_delay: 12 * SECOND,
            jitter: false,
        },
        timeout: draft.timeout,
        deadline: None,
        schedule_to_start: None,
        on_failure: match draft.on_failure {
            0 => OnFailure::Abort,
            1 | 2 => OnFailure::Skip,
            3 | 4 => OnFailure::Compensate,
            _ => OnFailure::Hold,
        },
        optional: draft.optional,
        read_only: draft.repeatable && i.is_multiple_of(2),
        idempotent: draft.repeatable && i % 2 == 1,
        checks: vec![],
        pins: vec![],
        soft_cap: None,
        request: None,
        uses: vec![],
        artifacts: vec![],
        phase: None,
        category: None,
        errors: ErrorResponses { external: draft.lenient.then_some(ErrorResponse::Skip), agent_error: None },
        queue: Arc::from("q"),
        priority: None,
        tasks: vec![],
    }
}
