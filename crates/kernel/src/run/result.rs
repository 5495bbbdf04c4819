//! What a worker reports: completed, waiting, to be retried, dead. Every such write is fenced by the lease: whoever
//! comes late is told `lease-lost` and has changed nothing.

use super::claim::claim_one;
use super::flow::{By, Flow, SYSTEM, WORKER};
use super::guard::Given;
use super::person::{block_for, give_up};
use super::{
    Acted, Action, Artifact, Cell, ClaimNext, Context, Event, Facet, Handed, Outbound, Role, Run, TaskRef, Waiting,
    permitted, survey,
};
use crate::json_mark::mark;
use crate::lifecycle::{FailureCategory, Response, StepCode};
use crate::plan::{FailurePolicy, Micros, RetryPolicy, StepSeq};
use crate::process::Process;
use crate::refusal::{Code, Refusal, require_ref, require_text};
use crate::registry::scopes;
use std::sync::Arc;
use uuid::Uuid;

pub type Target<'r> = Option<(&'r Process, &'r Run)>;

/// A lease for longer than this is a mistake.
pub const MAX_LEASE: Micros = 24 * 3600 * 1_000_000;
pub const MIN_LEASE: Micros = 1000;

/// The cell that the caller holds, or why it does not.
pub fn held<'r>(run: &'r Run, task: &TaskRef, ctx: &Context<'_>) -> Result<&'r Cell, Refusal> {
    let cell = run
        .cell(task.step_seq)
        .ok_or_else(|| Refusal::new(Code::NotKnown, "there is no task with this task_id").at("task_id"))?;
    let mine = task.lease_token.is_some() && cell.token == task.lease_token;
    let lost = |detail: String| Err(Refusal::new(Code::LeaseLost, detail).at("lease_token"));
    if !mine {
        return lost("this is not the lease under which the step is held now; nothing was changed".to_owned());
    }
    match cell.lease() {
        Some(lease) if cell.is_held() && lease.until >= ctx.base.now => Ok(cell),
        Some(_) if cell.is_held() => lost("the lease has expired; nothing was changed".to_owned()),
        _ => lost(format!("the lease has ended: the step is {} now; nothing was changed", cell.state)),
    }
}

/// What ended a lease. The same again, under that lease, is answered as before and changes nothing; another verb comes late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Wait,
    Retry,
    Dead,
    CannotComplete,
    Block,
}

/// The bits of a token that hold its version. A token in use has the version 7 of its UUID; a spent one shows in that place what
/// it was spent on, so that no column has to.
const VERSION: u32 = 76;
/// A completion before its output left a mark.
const COMPLETE_UNMARKED: u128 = 0x8;
const COMPLETE: u128 = 0xc;
/// A person's completion. A person has no lease, so this token was never used to report anything.
const COMPLETE_BY_PERSON: u128 = 0xd;

fn with_version(token: Uuid, version: u128) -> u128 {
    token.as_u128() & !(0xf << VERSION) | version << VERSION
}

impl Verb {
    /// The token of a lease that this verb has ended.
    fn spends(self, token: Uuid) -> Uuid {
        let version = match self {
            Verb::Wait => 0x9,
            Verb::Retry => 0xa,
            Verb::Dead => 0xb,
            Verb::CannotComplete => 0xe,
            Verb::Block => 0xf,
        };
        Uuid::from_u128(with_version(token, version))
    }
}

/// The token of a lease that a completion with this output has ended. Its upper half still names the lease, which began at a
/// time of its own; the lower half, which is secret until then, gives way to the output's mark.
fn completes(token: Uuid, output: &str) -> Uuid {
    const LOWER: u128 = u64::MAX as u128;
    let seed = u64::try_from(token.as_u128() & LOWER).unwrap_or_default();
    Uuid::from_u128(with_version(token, COMPLETE) & !LOWER | u128::from(mark(seed, output)))
}

/// The token that a person's completion with this output leaves behind: a fresh id in the upper half, and below it the output's
/// mark, which that id seeds. A purge of the output takes it away too, so that no guess can be tried against it.
pub fn completed_by_person(id: Uuid, output: &str) -> Uuid {
    let upper = with_version(id, COMPLETE_BY_PERSON) >> 64;
    let seed = u64::try_from(upper).unwrap_or_default();
    Uuid::from_u128(upper << 64 | u128::from(mark(seed, output)))
}

/// How a completion that comes again compares with the one that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    Same,
    OtherOutput,
}

impl Cell {
    /// Whether the lease of this token was ended by this verb. Whoever's lease was taken away has no token here any more
    /// ([`Flow::take_away`]).
    pub fn was_reported(&self, token: Option<Uuid>, verb: Verb) -> bool {
        // What has yielded is in progress, and under nobody's lease.
        (!self.is_held() || self.lease().is_none()) && token.is_some_and(|token| self.token == Some(verb.spends(token)))
    }

    /// Whether a completion ended the lease of this token, and whether it had this output.
    pub fn was_completed(&self, token: Option<Uuid>, output: &str) -> Option<Repeated> {
        let (token, spent) = (token?, self.token?);
        // What has yielded is in progress, and under nobody's lease.
        if self.is_held() && self.lease().is_some() {
            return None;
        }
        if spent == completes(token, output) || spent.as_u128() == with_version(token, COMPLETE_UNMARKED) {
            return Some(Repeated::Same);
        }
        (spent.as_u128() >> 64 == with_version(token, COMPLETE) >> 64).then_some(Repeated::OtherOutput)
    }

    /// Whether a person has completed the step, and whether it was with this output.
    pub fn was_completed_by_person(&self, output: &str) -> Option<Repeated> {
        let left = self.token.filter(|token| token.as_u128() >> VERSION & 0xf == COMPLETE_BY_PERSON)?;
        let same = completed_by_person(left, output) == left;
        Some(if same { Repeated::Same } else { Repeated::OtherOutput })
    }
}

fn repeats(run: &Run, task: &TaskRef, verb: Verb) -> bool {
    run.cell(task.step_seq).is_some_and(|cell| cell.was_reported(task.lease_token, verb))
}

impl Flow<'_, '_, '_> {
    /// What this lease was ended by, whatever it had been spent on before.
    fn end_lease(&mut self, task: &TaskRef, verb: Verb) -> Result<(), Refusal> {
        self.edit(task.step_seq)?.token = task.lease_token.map(|token| verb.spends(token));
        Ok(())
    }

    /// The lease that this report came under has done its work.
    fn spend_lease(&mut self, task: &TaskRef, spent: impl Fn(Uuid) -> Uuid) -> Result<(), Refusal> {
        let cell = self.edit(task.step_seq)?;
        if cell.token == task.lease_token {
            cell.token = cell.token.map(spent);
        }
        Ok(())
    }
}

pub fn complete(
    target: Target<'_>,
    task: &TaskRef,
    (output, artifacts): (&Arc<str>, &[Artifact]),
    outbound: &[Outbound],
    claim_next: Option<&ClaimNext>,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    check_outbound(outbound)?;
    let (shell, run) = permitted(target, scopes::TASKS_WORK, ctx)?;
    if let Some(values) = survey::reported(run, task, Some(output)) {
        return survey::answer(target, task, &values, &[], ctx);
    }
    match run.cell(task.step_seq).and_then(|cell| cell.was_completed(task.lease_token, output)) {
        None => {}
        Some(Repeated::Same) => return Ok(vec![]),
        Some(Repeated::OtherOutput) => {
            let detail = "this lease has completed the step with another output, which counts; nothing was changed";
            return Err(Refusal::new(Code::Conflict, detail).at("output"));
        }
    }
    let worker_id = held(run, task, ctx)?.lease().map(|lease| lease.worker_id.clone());
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.completed_with(task.step_seq, output.clone(), artifacts.to_vec())?;
    let yielded = flow.has_yielded(task.step_seq);
    let accepted = yielded || flow.state(task.step_seq) == Some(StepCode::Completed);
    // What a step would have told the world is not told where its result is not accepted.
    if accepted {
        flow.outbound.extend_from_slice(outbound);
    }
    flow.spend_lease(task, |token| completes(token, output))?;
    flow.advance()?;
    if let (Some(next), Some(worker_id)) = (claim_next, worker_id) {
        check_lease(next.lease)?;
        claim_follower(&mut flow, task, next, &worker_id)?;
    }
    let action = match accepted {
        true if yielded => Action::StepYielded,
        true => Action::StepCompleted,
        false => Action::StepFailed,
    };
    Ok(flow.finish(action, &actor_ref, None))
}

/// The first step of the same queue that this completion made ready goes to the same worker. One that cannot begin has failed,
/// and what that leads to may make others ready.
fn claim_follower(
    flow: &mut Flow<'_, '_, '_>,
    task: &TaskRef,
    next: &ClaimNext,
    worker_id: &Arc<str>,
) -> Result<(), Refusal> {
    let queue = flow.run.queue(task.step_seq, flow.cell(task.step_seq).map_or(Role::Step, |cell| cell.role));
    let mut looked_at = 0;
    while let Some(made) = flow.moves.get(looked_at) {
        looked_at += 1;
        let (seq, ready) = (made.step_seq, made.to == StepCode::Ready);
        let role = flow.cell(seq).map_or(Role::Step, |cell| cell.role);
        if !ready || flow.run.queue(seq, role) != queue {
            continue;
        }
        let before = flow.moves.len();
        let claimed = claim_one(flow, seq, worker_id, next.lease)?;
        if flow.moves.len() > before {
            flow.advance()?;
        }
        if claimed {
            let lease_token = flow.cell(seq).and_then(|cell| cell.token);
            let handed = lease_token.map(|lease_token| Handed { run_id: flow.run.run_id, step_seq: seq, lease_token });
            flow.edit(task.step_seq)?.handed = handed.map(Box::new);
            return Ok(());
        }
    }
    Ok(())
}

/// What a worker waits for.
pub struct Wish<'a> {
    pub event_type: Option<&'a str>,
    pub timeout: Option<Micros>,
    pub facets: &'a [Facet],
}

pub fn wait(
    target: Target<'_>,
    task: &TaskRef,
    wish: &Wish<'_>,
    outbound: &[Outbound],
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    if let Some(event_type) = wish.event_type {
        require_text("waiting_event_type", event_type)?;
    }
    if wish.event_type.is_none() && wish.timeout.is_none() {
        let detail = "a wait needs a `waiting_event_type`, a `timeout_ms`, or both: nothing else could end it";
        return Err(Refusal::new(Code::InvalidRequest, detail).at("waiting_event_type"));
    }
    if wish.timeout.is_some_and(|timeout| timeout < 0) {
        return Err(Refusal::new(Code::InvalidRequest, "`timeout_ms` must not be negative").at("timeout_ms"));
    }
    check_outbound(outbound)?;
    let (shell, run) = permitted(target, scopes::TASKS_WORK, ctx)?;
    if repeats(run, task, Verb::Wait) {
        return Ok(vec![]);
    }
    held(run, task, ctx)?;
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.outbound.extend_from_slice(outbound);
    let by_clock = if wish.event_type.is_some() { Facet::External } else { Facet::TimeGate };
    let mut facets = wish.facets.to_vec();
    facets.sort_unstable();
    facets.dedup();
    let (primary, secondary) = facets.split_first().unwrap_or((&by_clock, &[]));
    let waiting = Waiting {
        event_type: wish.event_type.map(Arc::from),
        facet: *primary,
        secondary: secondary.to_vec(),
        deadline_at: wish.timeout.map(|timeout| flow.now().after(timeout)),
    };
    flow.put_down(task.step_seq, waiting, WORKER)?;
    flow.spend_lease(task, |token| Verb::Wait.spends(token))?;
    flow.advance()?;
    Ok(flow.finish(Action::StepWaiting, &actor_ref, None))
}

/// `retry` (with the backoff that the worker may wish for) and `dead` (`None`).
pub fn fail(
    target: Target<'_>,
    task: &TaskRef,
    error: &str,
    retry: Option<Option<Micros>>,
    category: Option<FailureCategory>,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    require_text("last_error", error)?;
    if retry.flatten().is_some_and(|backoff| backoff < 0) {
        return Err(Refusal::new(Code::InvalidRequest, "`backoff_ms` must not be negative").at("backoff_ms"));
    }
    let (shell, run) = permitted(target, scopes::TASKS_WORK, ctx)?;
    if let Some(values) = survey::reported(run, task, None) {
        let errors: Vec<_> = values.iter().map(|(pin, _)| (pin.clone(), Arc::from(error))).collect();
        return survey::answer(target, task, &values, &errors, ctx);
    }
    let verb = if retry.is_some() { Verb::Retry } else { Verb::Dead };
    if repeats(run, task, verb) {
        return Ok(vec![]);
    }
    let waits = verb == Verb::Dead && has_put_down(run, task);
    if !waits {
        held(run, task, ctx)?;
    }
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    let action = failed(&mut flow, task.step_seq, error, retry, category)?;
    if waits {
        flow.end_lease(task, verb)?;
    }
    flow.spend_lease(task, |token| verb.spends(token))?;
    flow.advance()?;
    Ok(flow.finish(action, &actor_ref, None))
}

/// The step waits, and was put down under this lease: who did that can still say that it failed, or cannot be completed.
fn has_put_down(run: &Run, task: &TaskRef) -> bool {
    let put_down = |cell: &Cell| cell.state == StepCode::Waiting && cell.was_reported(task.lease_token, Verb::Wait);
    run.cell(task.step_seq).is_some_and(put_down)
}

/// What undoes a step is done or fails; nothing else is said of it by a worker.
fn no_undo(flow: &Flow<'_, '_, '_>, seq: StepSeq) -> Result<(), Refusal> {
    if flow.cell(seq).is_some_and(|cell| matches!(cell.role, Role::Compensation(_))) {
        let detail = "what undoes a step is completed, or fails";
        return Err(Refusal::new(Code::InvalidTransition, detail).at("task_id"));
    }
    Ok(())
}

fn acted(step_seq: StepSeq, evidence_ref: Option<&str>) -> Option<Box<Acted>> {
    let evidence_ref = evidence_ref.map(str::to_owned);
    Some(Box::new(Acted {
        step_seq,
        evidence_ref,
        approval_id: None,
        correction: None,
        own: None,
        input: None,
        escalated_to: None,
        replay: None,
    }))
}

/// T12 by a worker. The run goes on, red, until the step is reopened or the run is cancelled.
pub fn cannot_complete(
    target: Target<'_>,
    task: &TaskRef,
    evidence_ref: Option<&str>,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    evidence_ref.map_or(Ok(()), |text| require_ref("evidence_ref", text))?;
    let (shell, run) = permitted(target, scopes::TASKS_WORK, ctx)?;
    if repeats(run, task, Verb::CannotComplete) {
        return Ok(vec![]);
    }
    if !has_put_down(run, task) {
        held(run, task, ctx)?;
    }
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    no_undo(&flow, task.step_seq)?;
    flow.acted = acted(task.step_seq, evidence_ref);
    give_up(&mut flow, task.step_seq, By(WORKER, "declare_cannot_complete"), evidence_ref)?;
    flow.end_lease(task, Verb::CannotComplete)?;
    flow.advance()?;
    Ok(flow.finish(Action::StepCannotComplete, &actor_ref, None))
}

/// T4 by a worker: something of ours is missing. Once the block is cleared, the step goes back to its queue.
pub fn block(
    target: Target<'_>,
    task: &TaskRef,
    reason: Option<&str>,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let (shell, run) = permitted(target, scopes::TASKS_WORK, ctx)?;
    if repeats(run, task, Verb::Block) {
        return Ok(vec![]);
    }
    held(run, task, ctx)?;
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    no_undo(&flow, task.step_seq)?;
    flow.acted = acted(task.step_seq, None);
    block_for(&mut flow, task.step_seq, reason, WORKER)?;
    flow.end_lease(task, Verb::Block)?;
    flow.advance()?;
    Ok(flow.finish(Action::StepBlocked, &actor_ref, None))
}

/// An attempt has failed: what its category, the step and its attempts make of that.
pub fn failed(
    flow: &mut Flow<'_, '_, '_>,
    seq: StepSeq,
    error: &str,
    retry: Option<Option<Micros>>,
    category: Option<FailureCategory>,
) -> Result<Action, Refusal> {
    let error = &*crate::text::shortened(error);
    let attempts = flow.cell(seq).map_or(0, |cell| cell.details().attempts);
    let (response, on_failure) = flow.response(seq, category, retry.is_some());
    let by = By(WORKER, "executor_failure");
    let category =
        category.unwrap_or(if retry.is_some() { FailureCategory::Transient } else { FailureCategory::AgentError });
    match response {
        Response::Retry if attempts + 1 < flow.run.max_attempts(seq) => {
            schedule_retry(flow, seq, error, retry.flatten(), category)?;
            Ok(Action::StepRetried)
        }
        Response::Block => {
            let given = Given { category: Some(category), ..Given::default() };
            flow.move_given(seq, StepCode::Blocked, By(WORKER, "step_block"), &given)?;
            flow.clear_hold(seq)?;
            let live = flow.edit(seq)?.live.get_or_insert_default();
            live.last_error = Some(error.into());
            live.category = Some(category);
            flow.outbound.push(Outbound { event_type: ESCALATED.to_owned(), data: escalation(flow.run, seq, error) });
            Ok(Action::StepFailed)
        }
        Response::Retry | Response::Skip | Response::Fail => {
            flow.edit(seq)?.live.get_or_insert_default().attempts = attempts + 1;
            let on_failure = on_failure.or_else(|| flow.spec(seq).map(|spec| spec.on_failure));
            match on_failure {
                Some(on_failure) => flow.fail_with(seq, error, category, by, on_failure)?,
                None => flow.fail(seq, error, category, by)?,
            }
            Ok(Action::StepFailed)
        }
    }
}

/// T9, transient: it will be claimable again after its backoff.
fn schedule_retry(
    flow: &mut Flow<'_, '_, '_>,
    seq: StepSeq,
    error: &str,
    backoff: Option<Micros>,
    category: FailureCategory,
) -> Result<(), Refusal> {
    let policy = flow.run.retry_policy(seq);
    let given = Given { category: Some(category), ..Given::default() };
    flow.move_given(seq, StepCode::Failed, By(WORKER, "executor_failure"), &given)?;
    flow.clear_hold(seq)?;
    let (now, roll) = (flow.now(), flow.ctx.base.ids.make::<uuid::Uuid>().as_u128());
    let live = flow.edit(seq)?.live.get_or_insert_default();
    live.attempts += 1;
    live.last_error = Some(error.into());
    live.category = Some(category);
    let delay = backoff.unwrap_or_else(|| jittered(&policy, policy.delay(live.attempts), roll));
    live.next_run_at = Some(now.after(delay));
    Ok(())
}

/// Half of the delay is certain, the other half is drawn, so that those who failed together do not come back together.
fn jittered(policy: &RetryPolicy, delay: Micros, roll: u128) -> Micros {
    if !policy.jitter || delay < 2 {
        return delay;
    }
    let half = delay / 2;
    half + Micros::try_from(roll % u128::from(half.unsigned_abs().max(1))).unwrap_or(0)
}

fn escalation(run: &Run, seq: StepSeq, error: &str) -> Arc<str> {
    let (step, error) = (crate::text::json_string(run.step_name(seq)), crate::text::json_string(error));
    format!(r#"{{"run_id":"{}","step":{step},"error":{error}}}"#, run.run_id).into()
}

/// What goes out where a policy forbade something.
pub const ESCALATED: &str = "governance.escalated";

/// What the engine emits itself nobody else sends: its readers rely on what it carries.
pub fn check_outbound(outbound: &[Outbound]) -> Result<(), Refusal> {
    let own = |event_type: &str| {
        event_type == ESCALATED || ["step.", "task.", "run."].iter().any(|prefix| event_type.starts_with(prefix))
    };
    match outbound.iter().position(|event| own(&event.event_type)) {
        None => Ok(()),
        Some(place) => {
            let detail = "the engine alone sends `governance.escalated`, and events whose type begins with `step.`, `task.` or `run.`";
            Err(Refusal::new(Code::InvalidRequest, detail).at(format!("outbound_events[{place}].type")))
        }
    }
}

pub fn heartbeat(
    target: Target<'_>,
    task: &TaskRef,
    lease: Micros,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    check_lease(lease)?;
    let (shell, run) = permitted(target, scopes::TASKS_WORK, ctx)?;
    // Who looks at pins has as long as they have, and no longer.
    if survey::reported(run, task, None).is_some() {
        return Ok(vec![]);
    }
    held(run, task, ctx)?;
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    let until = flow.within_cap(task.step_seq, flow.now().after(lease));
    if let Some(lease) = flow.edit(task.step_seq)?.live.as_mut().and_then(|live| live.lease.as_mut()) {
        lease.until = lease.until.max(until);
    }
    Ok(flow.finish(Action::StepProlonged, &actor_ref, None))
}

pub fn check_lease(lease: Micros) -> Result<(), Refusal> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(Refusal::new(Code::InvalidRequest, "`lease_ms` must lie between 1 and 86400000 (a day)").at("lease_ms"))
}

/// Lost leases come back here from [`super::due`].
pub fn lease_expired(flow: &mut Flow<'_, '_, '_>, seq: StepSeq) -> Result<(), Refusal> {
    let max = flow.run.max_attempts(seq);
    let closed = flow.run.plan.failure_policy == FailurePolicy::FailClosed;
    let now = flow.now();
    flow.lose_verdict(seq)?;
    flow.take_away(seq)?;
    let live = flow.edit(seq)?.live.get_or_insert_default();
    live.attempts += 1;
    let exhausted = live.attempts >= max;
    // There the run stops instead ([`super::due`]): nothing is tried again before somebody has seen what became of it.
    if exhausted && !closed {
        return flow.fail(seq, "LEASE_EXPIRED", FailureCategory::Timeout, By(SYSTEM, "lease_exhausted"));
    }
    flow.move_step(seq, StepCode::Ready, By(SYSTEM, "lease_expired"))?;
    flow.clear_hold(seq)?;
    let live = flow.edit(seq)?.live.get_or_insert_default();
    live.last_error = Some("LEASE_EXPIRED".into());
    live.category = Some(FailureCategory::Timeout);
    live.next_run_at = Some(now);
    Ok(())
}
