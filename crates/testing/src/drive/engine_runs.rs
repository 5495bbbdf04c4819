//! Runs at the engine.

use super::commands::{
    act_command, child_start, control_command, decide_gate, open_gate, report_command, start_run_command,
};
use super::engine::{ALL, EngineDriver, opened, unexpected};
use super::runs::{
    Acting, Addressed, ClaimWish, Control, Report, Reported, RunStart, Runs, SentEvent, TaskOf, TaskSeen, Woken,
    child_in, compact, critical_path, current, previewed, role, rollup, step_words, value, with_runbook, without_nulls,
};
use super::{ADMIN, APPLICATION, Decided, LEASE_US, On, Opened, Said, broken};
use async_trait::async_trait;
use countersign_engine::port::{RunQuery, RunStepView, RunView};
use countersign_engine::run::rollup::Basis;
use countersign_engine::{Addressee, Ask, ClaimCall, Command, Outcome, Problem, Proof, Target, Task};
use countersign_kernel::lifecycle::{RunState, StepCode};
use countersign_kernel::plan::Plan;
use countersign_kernel::process::Decision;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::run::{self, KeptEvent, TaskRef};
use countersign_kernel::text::length;
use countersign_kernel::{InstanceId, Time};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

impl EngineDriver {
    async fn ask_run(&self, by: &str, run_id: &str, command: run::Command) -> Said<Outcome> {
        let target = InstanceId::parse(run_id).map_or(Target::Nowhere, Target::Existing);
        let expected = self.expect_run(by, run_id, &command).await?;
        let said = self.execute(by, Command::Run { target, command }).await;
        Self::compare(expected.as_ref(), &said)?;
        said
    }

    async fn foresee(&self, by: &str, run_id: &str, command: run::Command) -> Said<String> {
        let target = InstanceId::parse(run_id).map_or(Target::Nowhere, Target::Existing);
        let ask = Ask::Preview(Box::new(command));
        match self.execute(by, Command::Ask { target, ask }).await? {
            Outcome::Previewed { transition_id, problems, .. } => Ok(told(transition_id.as_deref(), &problems)),
            other => unexpected(other),
        }
    }

    async fn run(&self, by: &str, run_id: &str) -> Said<(RunView, Vec<RunStepView>)> {
        let instance_id = InstanceId::parse(run_id).or(Some(InstanceId(uuid::Uuid::max())));
        let query = RunQuery { instance_id, ..RunQuery::default() };
        let view = self.engine()?.read_runs(by, query, &ALL).await?.into_iter().next();
        let view = view.ok_or_else(|| Refusal::new(Code::NotKnown, "there is no run with this run_id"))?;
        let steps = self.engine()?.read_run_steps(&view, 0, ALL.limit).await?;
        Ok((view, steps))
    }
}

fn seen(task: &Task) -> TaskSeen {
    TaskSeen {
        run_id: task.run_id.clone(),
        step: task.step.to_string(),
        step_seq: task.step_seq,
        attempt: task.attempt,
        max_attempts: task.max_attempts,
        task_type: task.task_type.clone(),
        input: value(&task.input),
        event: task.event.as_deref().map(value),
        lease_token: task.lease_token.clone(),
    }
}

#[async_trait]
impl Runs for EngineDriver {
    async fn start_run(&mut self, by: &str, start: &RunStart) -> Said<String> {
        let from = match &start.from_step {
            None => None,
            Some((run_id, step)) => {
                let run_id = InstanceId::parse(run_id).unwrap_or(InstanceId(uuid::Uuid::max()));
                Some(self.engine()?.from_step(by, run_id, step.clone()).await?)
            }
        };
        let now = self.engine()?.now();
        let command = Command::Run { target: Target::New, command: start_run_command(start, now, from)? };
        match self.execute(by, command).await? {
            Outcome::RunStarted { run_id } => Ok(run_id),
            other => unexpected(other),
        }
    }

    async fn claim(&mut self, by: &str, wish: &ClaimWish) -> Said<Vec<TaskSeen>> {
        let claim = ClaimCall {
            queue: wish.queue.as_str().into(),
            worker_id: wish.worker_id.as_str().into(),
            max: wish.max as usize,
            lease: wish.lease_us,
        };
        let tasks = self.engine()?.claim(by, Proof::InProcess, claim, Duration::ZERO).await?;
        Ok(tasks.iter().map(seen).collect())
    }

    async fn report(&mut self, by: &str, of: TaskOf<'_>, report: &Report) -> Said<Reported> {
        let command = report_command(of.step_seq, of.lease_token, report)?;
        match self.ask_run(by, of.run_id, command).await? {
            Outcome::TaskDone { state_code, next, .. } => Ok(Reported { state_code, next: next.as_ref().map(seen) }),
            other => unexpected(other),
        }
    }

    async fn send_event(&mut self, by: &str, event: &SentEvent) -> Said<Woken> {
        let to = match &event.to {
            Addressed::Run(run_id) => Addressee::Run(InstanceId::parse(run_id)),
            Addressed::Key(key) => Addressee::Key(key.clone()),
        };
        let kept = KeptEvent {
            id: event.id.as_str().into(),
            event_type: event.event_type.as_str().into(),
            data: compact(event.data.as_deref()),
        };
        let sent = self.engine()?.send_event(by, &Proof::InProcess, &to, &kept).await?;
        Ok(Woken { duplicate: sent.duplicate, steps: sent.woken.into_iter().map(|(_, step)| step).collect() })
    }

    async fn preview_report(&mut self, by: &str, of: TaskOf<'_>, report: &Report) -> Said<String> {
        self.foresee(by, of.run_id, report_command(of.step_seq, of.lease_token, report)?).await
    }

    async fn preview_control(&mut self, by: &str, run_id: &str, control: &Control) -> Said<String> {
        self.foresee(by, run_id, control_command(control)?).await
    }

    async fn control_run(&mut self, by: &str, run_id: &str, control: &Control) -> Said<String> {
        match self.ask_run(by, run_id, control_command(control)?).await? {
            Outcome::RunMoved { state } | Outcome::StepActed { state, .. } => Ok(state),
            other => unexpected(other),
        }
    }

    async fn act_on_step(&mut self, by: &str, run_id: &str, acting: &Acting) -> Said<String> {
        let prior = match InstanceId::parse(run_id).filter(|_| acting.act == "reopen") {
            None => None,
            Some(run_id) => self.engine()?.prior(run_id, &acting.step).await?,
        };
        let command = act_command(acting, self.engine()?.now(), prior)?;
        match self.ask_run(by, run_id, command).await? {
            Outcome::StepActed { state_code, .. } => Ok(state_code),
            Outcome::Previewed { transition_id, problems, .. } => Ok(told(transition_id.as_deref(), &problems)),
            other => unexpected(other),
        }
    }

    async fn open_run_gate(&mut self, by: &str, on: On<'_>) -> Said<Opened> {
        opened(self.ask_run(by, on.instance_id, run::Command::OpenGate(open_gate(on))).await?)
    }

    async fn decide_run_gate(&mut self, by: &str, on: On<'_>, decision: Decision) -> Said<Decided> {
        let command = run::Command::DecideGate(decide_gate(on, decision, None));
        match self.ask_run(by, on.instance_id, command).await? {
            Outcome::Decided { outcome, chain_state, .. } => Ok(Decided { outcome, chain_state }),
            other => unexpected(other),
        }
    }

    async fn read_run(&mut self, by: &str, run_id: &str) -> Said<Value> {
        let (view, steps) = self.run(by, run_id).await?;
        self.follow(run_id).await?;
        let plan = self.engine()?.plan_of(&view).await?;
        Ok(to_view(&view, &steps, &plan))
    }

    /// What the server's executor of child steps does.
    async fn child_of(&mut self, run_id: &str, step: &str) -> Said<String> {
        let claim = ClaimCall { queue: "@workflow".into(), worker_id: APPLICATION.into(), max: 100, lease: LEASE_US };
        for task in self.engine()?.claim(APPLICATION, Proof::InProcess, claim, Duration::ZERO).await? {
            let command = child_start(task.job.as_deref(), &task.run_id, task.step_seq, &task.input)?;
            let started = self.execute(APPLICATION, Command::Run { target: Target::New, command }).await?;
            let Outcome::RunStarted { run_id: child } = started else { return unexpected(started) };
            let of = TaskRef { step_seq: task.step_seq, lease_token: Uuid::try_parse(&task.lease_token).ok() };
            let child = InstanceId::parse(&child).ok_or_else(|| broken("no id"))?;
            self.ask_run(APPLICATION, &task.run_id, run::Command::ChildStarted { task: of, child }).await?;
        }
        let view = self.read_run(ADMIN, run_id).await?;
        child_in(&view, step).ok_or_else(|| broken(format!("`{step}` waits for no run")))
    }
}

fn to_view(view: &RunView, steps: &[RunStepView], plan: &Plan) -> Value {
    let (row, head) = (&view.row, &view.head);
    let state = RunState::parse(&head.state).unwrap_or(RunState::Idle);
    let codes: Vec<StepCode> = steps.iter().map(|step| step.state.state).collect();
    let current = current(plan, &codes);
    let basis = head.rollup.as_deref().and_then(Basis::parse);
    let text = |text: &Option<Arc<str>>| text.as_ref().map(ToString::to_string);
    let time = |time: Option<Time>| time.map(|time| time.0);
    let id = |id: Option<InstanceId>| id.map(|id| id.to_string());
    let book = head.runbook.as_deref().and_then(countersign_engine::run::runbook::parse);
    let view = without_nulls(json!({
        "machine": row.machine.as_ref().map(|machine| machine.named.clone()),
        "state": head.state,
        "outcome": head.outcome,
        "views": {"linear": state.linear()},
        "current_step_seq": current.as_ref().map(|(seq, _)| seq),
        "current_step_type": current.as_ref().map(|(_, name)| name),
        "rollup": basis.as_ref().map(|basis| rollup(&basis.rollup, plan)),
        "critical_path": basis.as_ref().and_then(|basis| critical_path(plan, basis.critical)),
        "priority": head.priority,
        "start_at": time(head.start_at),
        "completed_at": time(head.completed_at),
        "failed_at": time(head.failed_at),
        "last_error": text(&head.last_error),
        "output": head.output.as_deref().map(value),
        "correlation_key": text(&row.correlation_key),
        "corrects": id(row.corrects),
        "continues": id(row.continues),
        "steps": steps.iter().map(|step| to_step(step, plan, state)).collect::<Vec<_>>(),
    }));
    with_runbook(view, book.as_ref(), plan, &codes)
}

fn to_step(step: &RunStepView, plan: &Plan, run: RunState) -> Value {
    let RunStepView { step_seq, new, state } = step;
    let text = |text: &Option<Arc<str>>| text.as_ref().map(ToString::to_string);
    let time = |time: Option<Time>| time.map(|time| time.0);
    let charge = &state.charge;
    let retry = state.state == StepCode::Failed && state.next_run_at.is_some();
    let compensates = new.compensates.and_then(|seq| plan.step(seq)).map(|spec| spec.name.to_string());
    let task_of = plan.step_of_task(*step_seq).filter(|_| new.compensates.is_none()).and_then(|seq| plan.step(seq));
    without_nulls(json!({
        "name": &*new.name,
        "step_seq": step_seq,
        "role": role(compensates.is_some(), task_of.is_some()),
        "compensates": compensates,
        "task_of": task_of.map(|step| step.name.to_string()),
        "queue": &*new.queue,
        "state_code": state.state.as_str(),
        "derived_state": text(&charge.derived_state),
        "waiting_facet": state.waiting_facet,
        "waiting_event_type": text(&state.waiting_event_type),
        "secondary_facets": charge.secondary_facets.as_ref().map(|list| list.split(',').collect::<Vec<_>>()),
        "pic": text(&charge.pic),
        "deadline": time(charge.deadline),
        "start_by": time(charge.start_by),
        "overdue_first_at": time(charge.overdue_first_at),
        "completed_after_deadline": charge.sla_breach.map(|_| true),
        "sla_breach_duration": charge.sla_breach.map(length),
        "blocked_since": time(state.blocked_since),
        "blocked_severity": (state.state == StepCode::Blocked)
            .then(|| if state.blocked_cause.is_some() { "red" } else { "yellow_dark" }),
        "blocked_cause": state.blocked_cause,
        "block_reason": charge.block_reason,
        "escalated_at": time(charge.escalated_at),
        "attempts": state.attempts,
        "max_attempts": new.max_attempts,
        "next_run_at": time(state.next_run_at),
        "locked_by": text(&state.locked_by),
        "locked_until": time(state.locked_until),
        "deadline_at": time(state.deadline_at),
        "completed_at": time(state.completed_at),
        "last_error": text(&state.last_error),
        "error_category": state.error_category,
        "effect_unknown": state.effect_unknown.then_some(true),
        "output": state.output.as_deref().map(value),
        "child_run_id": state.child_run_id.map(|id| id.to_string()),
        "child_rollup": state.child_colour,
        "views": step_words(state.as_offered(), retry, run),
    }))
}

fn told(transition_id: Option<&str>, problems: &[Problem]) -> String {
    previewed(transition_id, problems.iter().map(|problem| problem.guard.as_str()))
}
