//! `claim`: a worker takes steps under a lease. Which steps it is offered is the engine's affair; whether each may be
//! taken is decided here, and one that may not is simply not handed out.

use super::advance::missed;
use super::flow::{By, Flow, SYSTEM, WORKER};
use super::result::check_lease;
use super::secrets::Watched;
use super::{Action, ClaimSteps, Claimed, Context, Event, Handed, Job, Lease, Role, Run, TaskType, permitted};
use crate::lifecycle::{FailureCategory, StepCode};
use crate::plan::{Micros, Scope, Secrets, StepSeq, StepSpec, Template, Work};
use crate::process::Process;
use crate::refusal::{Refusal, require_text};
use crate::registry::scopes;
use std::sync::Arc;
use uuid::Uuid;

pub fn decide(
    target: Option<(&Process, &Run)>,
    command: &ClaimSteps,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    require_text("worker_id", &command.worker_id)?;
    check_lease(command.lease)?;
    let (shell, run) = permitted(target, scopes::TASKS_WORK, ctx)?;
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    for seq in &command.steps {
        claim_one(&mut flow, *seq, &command.worker_id, command.lease)?;
    }
    if flow.moves.is_empty() {
        // Pins are looked at without a record, until it is known what they are.
        return Ok(if flow.claimed.is_empty() { vec![] } else { flow.finish(Action::SurveyMoved, &actor_ref, None) });
    }
    flow.advance()?;
    Ok(flow.finish(Action::StepsClaimed, &actor_ref, None))
}

/// False where the step cannot be claimed now, or not by workers of this class.
pub fn claim_one(
    flow: &mut Flow<'_, '_, '_>,
    seq: StepSeq,
    worker_id: &Arc<str>,
    lease: Micros,
) -> Result<bool, Refusal> {
    if flow.book().and_then(|book| book.survey.as_ref()).is_some_and(|survey| survey.step_seq == seq) {
        return flow.claim_survey(seq, worker_id);
    }
    if flow.is_surveyed() || flow.is_spent() {
        return Ok(false);
    }
    let Some(cell) = flow.cell(seq) else { return Ok(false) };
    let (state, role, live) = (cell.state, cell.role, cell.details());
    let registry = flow.ctx.base.registry;
    if registry.has_frozen() && registry.is_frozen(&flow.run.queue(seq, role), worker_id) {
        return Ok(false);
    }
    let now = flow.now();
    let claimed = flow.spec(seq).is_none_or(StepSpec::is_claimed);
    let due = live.next_run_at.is_some_and(|at| at <= now);
    let timed_out = live.waiting.as_ref().and_then(|waiting| waiting.deadline_at).is_some_and(|at| at <= now);
    let (by, task_type) = match state {
        _ if cell.is_offered() && due => (By(WORKER, "step_claim"), TaskType::ReadyStep),
        StepCode::Failed if due => (By(WORKER, "retry_attempt"), TaskType::ReadyStep),
        StepCode::Waiting if timed_out => (By(WORKER, "waiting_timeout"), TaskType::WaitingTimeout),
        _ => return Ok(false),
    };
    if !claimed || !flow.head.hands_out(role) {
        return Ok(false);
    }
    let task_type = if matches!(role, Role::Compensation(_)) { TaskType::Compensation } else { task_type };
    let input = match input_of(flow, seq, role, live.event.as_deref()) {
        Ok(input) => input,
        // What others have used up is not its fault: it is claimed with the next command.
        Err(_) if worn(flow) => return Ok(false),
        Err((error, trigger)) => {
            flow.fail(seq, &error, FailureCategory::Validation, By(SYSTEM, trigger))?;
            return Ok(false);
        }
    };
    let job = match job_of(flow, seq, live.event.as_deref()) {
        Ok(job) => job,
        Err(_) if worn(flow) => return Ok(false),
        Err(error) => {
            flow.fail(seq, &error, FailureCategory::Validation, By(SYSTEM, "expression_error"))?;
            return Ok(false);
        }
    };
    flow.move_step(seq, StepCode::InProgress, by)?;
    let lease_token: Uuid = flow.ctx.base.ids.make();
    let until = flow.within_cap(seq, now.after(lease));
    let cell = flow.edit(seq)?;
    cell.token = Some(lease_token);
    let live = cell.live.get_or_insert_default();
    live.lease = Some(Lease { worker_id: worker_id.clone(), until });
    live.next_run_at = None;
    live.waiting = None;
    live.task_type = Some(task_type);
    let claimed = describe(flow, seq, input, job);
    flow.claimed.extend(claimed);
    Ok(true)
}

/// Whether the budget of this command is used up, and others have had their share of it.
fn worn(flow: &Flow<'_, '_, '_>) -> bool {
    flow.ctx.language.is_exhausted() && !flow.moves.is_empty()
}

/// The task under the lease that the step is held by.
fn describe(flow: &Flow<'_, '_, '_>, seq: StepSeq, input: Arc<str>, job: Option<Box<Job>>) -> Option<Claimed> {
    let cell = flow.cell(seq)?;
    let live = cell.live.as_deref()?;
    let named = match cell.role {
        Role::Compensation(undone) => undone,
        Role::Step | Role::Task(_) => seq,
    };
    Some(Claimed {
        step_seq: seq,
        step: flow.run.plan.step(named).map_or_else(|| Arc::from(""), |spec| spec.name.clone()),
        task_type: live.task_type?,
        attempt: live.attempts + 1,
        max_attempts: flow.run.max_attempts(seq),
        cycle: cell.cycle(),
        input,
        event: live.event.clone(),
        lease_token: cell.token?,
        locked_until: live.lease.as_ref()?.until,
        job,
        probes: vec![],
    })
}

/// What was handed out with a completion, for whoever lost the answer: while that lease stands, and to nobody else.
pub fn handed_out(target: (&Process, &Run), handed: &Handed, ctx: &mut Context<'_>) -> Option<Claimed> {
    let (shell, run) = permitted(Some(target), scopes::TASKS_WORK, ctx).ok()?;
    let cell = run.cell(handed.step_seq)?;
    let stands = cell.is_held() && cell.lease().is_some_and(|lease| lease.until >= ctx.base.now);
    if !stands || cell.token != Some(handed.lease_token) {
        return None;
    }
    let (role, event) = (cell.role, cell.live.as_ref().and_then(|live| live.event.clone()));
    let flow = Flow::new(shell, run, ctx);
    let input = input_of(&flow, handed.step_seq, role, event.as_deref()).ok()?;
    let job = job_of(&flow, handed.step_seq, event.as_deref()).ok()?;
    describe(&flow, handed.step_seq, input, job)
}

/// What an executor of ours is to do, or why it cannot be worked out. What undoes a step sees its output, and may always be
/// tried again.
fn job_of(flow: &Flow<'_, '_, '_>, seq: StepSeq, event: Option<&str>) -> Result<Option<Box<Job>>, String> {
    let (work, repeatable, artifacts, output) = match (flow.spec(seq), flow.cell(seq).map(|cell| cell.role)) {
        (Some(spec), _) => (&spec.work, spec.is_repeatable(), spec.artifacts.clone(), None),
        (None, Some(Role::Compensation(undone))) => match flow.run.plan.compensation_of(undone) {
            Some(entry) => (&entry.work, true, vec![], Some(flow.output(undone).map_or("null", |output| output))),
            None => return Ok(None),
        },
        (None, _) => return Ok(None),
    };
    if matches!(work, Work::Worker | Work::Approval(_) | Work::Wait(_) | Work::Human { .. }) {
        return Ok(None);
    }
    let (filled, secrets) = fill_work(flow, work, event, output)?;
    let live = flow.cell(seq).and_then(|cell| cell.live.as_ref());
    let started = live.and_then(|live| live.started_at);
    Ok(Some(Box::new(Job {
        work: work.clone(),
        filled,
        timeout_at: flow.run.timeout_of(seq).map(|timeout| started.unwrap_or(flow.now()).after(timeout)),
        repeatable,
        artifacts,
        last_child: live.and_then(|live| live.child),
        secrets,
    })))
}

/// The texts of a work, and the values of the secrets in them.
pub type Filled = (Vec<Option<Arc<str>>>, Vec<Arc<str>>);

/// The texts of an executor's work, with every `${…}` filled in.
pub fn fill_work(
    flow: &Flow<'_, '_, '_>,
    work: &Work,
    event: Option<&str>,
    output: Option<&str>,
) -> Result<Filled, String> {
    let templates = match work {
        Work::Shell(work) => vec![("command", Some(&work.command)), ("env", work.env.as_ref())],
        Work::Http(work) => {
            vec![("url", Some(&work.url)), ("headers", work.headers.as_ref()), ("body", work.body.as_ref())]
        }
        Work::Workflow { .. } | Work::Worker | Work::Approval(_) | Work::Wait(_) | Work::Human { .. } => vec![],
    };
    let language = flow.ctx.language;
    let watched = flow.ctx.secrets.map(Watched::new);
    let fill = |(name, template): (&str, Option<&Template>)| match template {
        None => Ok(None),
        Some(template) => flow
            .with_scope(event, output, |scope| {
                let secrets = watched.as_ref().map(|watched| watched as &dyn Secrets);
                language.fill(template, &Scope { secrets, ..*scope })
            })
            .map(|text| Some(Arc::from(text)))
            .map_err(|error| format!("EXPRESSION_ERROR: {name}: {error}")),
    };
    let filled = templates.into_iter().map(fill).collect::<Result<_, _>>()?;
    Ok((filled, watched.map(Watched::into_revealed).unwrap_or_default()))
}

/// What a step works on, or has worked on. Nothing before its turn, and where it cannot be worked out.
pub fn input_of_step(shell: &Process, run: &Run, seq: StepSeq, ctx: &mut Context<'_>) -> Option<Arc<str>> {
    let cell = run.cell(seq).filter(|cell| cell.state != StepCode::NotStarted)?;
    let (role, event) = (cell.role, cell.live.as_ref().and_then(|live| live.event.clone()));
    let flow = Flow::new(shell, run, ctx);
    input_of(&flow, seq, role, event.as_deref()).ok()
}

/// What the step works on, or why it cannot be worked out.
pub fn input_of(
    flow: &Flow<'_, '_, '_>,
    seq: StepSeq,
    role: Role,
    event: Option<&str>,
) -> Result<Arc<str>, (String, &'static str)> {
    if let Role::Compensation(undone) = role {
        let input = input_of(flow, undone, Role::Step, event)?;
        let action = flow.run.plan.compensation_of(undone).map_or("", |entry| entry.action.as_str());
        let output = flow.output(undone).map_or("null", |output| output);
        let action = crate::text::json_string(action);
        return Ok(format!(r#"{{"action":{action},"input":{input},"output":{output}}}"#).into());
    }
    let Some(spec) = flow.run.plan.step(seq) else { return Ok(flow.run.input.clone()) };
    let language = flow.ctx.language;
    let input: Arc<str> = match &spec.input {
        None => flow.run.input.clone(),
        Some(template) => flow
            .with_scope(event, None, |scope| language.fill(template, scope))
            .map_err(|error| (format!("EXPRESSION_ERROR: input: {error}"), "expression_error"))?
            .into(),
    };
    if let Some(schema) = &spec.input_schema {
        language.conforms(schema, &input).map_err(|error| missed("input", &error))?;
    }
    Ok(input)
}
