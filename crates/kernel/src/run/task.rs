//! Tasks (seed 003 §4.3): the parts of a step, each with a person in charge or a queue of its own. They have their turn when
//! their step has begun, and whoever ends the last of them completes the step with it.

use super::Role;
use super::flow::{By, Flow, SYSTEM, WORKER};
use super::guard::{Given, Judged};
use crate::lifecycle::{ActorClass, FailureCategory, StepCode};
use crate::plan::{OnFailure, StepSeq};
use crate::refusal::Refusal;
use std::fmt::Write;
use std::sync::Arc;

impl Flow<'_, '_, '_> {
    /// Sees to the tasks of every step that this command has touched. True where that moved something.
    pub fn tend_tasks(&mut self) -> Result<bool, Refusal> {
        let plan = &self.run.plan;
        if plan.cell_count() == plan.steps.len() || self.head.state.is_ended() {
            return Ok(false);
        }
        let mut steps: Vec<StepSeq> = self
            .changed_where(|cell| !matches!(cell.role, Role::Compensation(_)))
            .into_iter()
            .map(|seq| plan.step_of_task(seq).unwrap_or(seq))
            .filter(|step| !plan.tasks_of(*step).is_empty())
            .collect();
        steps.sort_unstable();
        steps.dedup();
        let before = self.moves.len();
        for step in steps {
            match self.state(step) {
                Some(StepCode::InProgress | StepCode::Overdue) if self.is_at_work(step) => {
                    self.begin_tasks(step)?;
                    self.complete_with_tasks(step)?;
                }
                Some(StepCode::Skipped | StepCode::Cancelled) => self.end_tasks(step)?,
                _ => {}
            }
        }
        Ok(self.moves.len() > before)
    }

    fn begin_tasks(&mut self, step: StepSeq) -> Result<(), Refusal> {
        let run = self.run;
        for task in run.plan.tasks_of(step) {
            // A task that cannot even begin may have ended its step.
            let goes_on = self.is_at_work(step) && !self.head.undoing;
            if let (true, Some(StepCode::NotStarted), Some(spec)) = (goes_on, self.state(task), run.plan.step(task)) {
                self.make_ready(task, spec, By(ActorClass::MowOrchestrator, "precondition"))?;
            }
        }
        Ok(())
    }

    /// T8, or T7 where it is late, as the engine completes what it began itself: the step's output is that of its tasks, by
    /// name.
    fn complete_with_tasks(&mut self, step: StepSeq) -> Result<(), Refusal> {
        let run = self.run;
        let tasks = run.plan.tasks_of(step);
        let ended_now = self.moves.iter().any(|m| tasks.contains(&m.step_seq) && is_done(m.to));
        if !ended_now || !self.is_at_work(step) || !self.tasks_are_done(step) || self.has_yielded(step) {
            return Ok(());
        }
        let Some(spec) = run.plan.step(step) else { return Ok(()) };
        let mut output = String::from("{");
        for (task, seq) in spec.tasks.iter().zip(tasks) {
            let comma = if output.len() > 1 { "," } else { "" };
            let yielded = self.output(seq).map_or("null", |output| output);
            let _ = write!(output, "{comma}{}:{yielded}", crate::text::json_string(&task.name));
        }
        output.push('}');
        let judged = self.judge(step, Arc::from(output));
        match &judged {
            Ok(output) => self.yield_or_close(step, output.clone(), vec![], By(WORKER, "step_complete")),
            // Whoever acts is told what is missing; a worker's report stands, and the step has failed.
            Err(_) if self.acted.is_some() => {
                let judged = Judged::of(&judged).about(&format!("with its last task `{}` would end", spec.name));
                let given = Given { judged: Some(&judged), ..Given::default() };
                self.fire(step, StepCode::Completed, By(WORKER, "step_complete"), &given).map(drop)
            }
            Err((error, trigger)) => self.fail(step, error, FailureCategory::Validation, By(SYSTEM, trigger)),
        }
    }

    /// A step that is passed over takes its tasks along: those under way are revoked, those that had no turn have none.
    fn end_tasks(&mut self, step: StepSeq) -> Result<(), Refusal> {
        let skipped = self.moves.iter().rev().find(|m| m.step_seq == step && m.to == StepCode::Skipped);
        let passed_over = skipped.map(|m| By(SYSTEM, m.trigger));
        for task in self.run.plan.tasks_of(step) {
            if let (Some(by), Some(StepCode::NotStarted)) = (passed_over, self.state(task)) {
                self.move_step(task, StepCode::Skipped, by)?;
                continue;
            }
            let under_way = self.cell(task).is_some_and(|cell| match cell.state {
                StepCode::NotStarted | StepCode::CannotComplete => false,
                StepCode::Failed => cell.retry_scheduled(),
                state => !state.is_terminal(),
            });
            if under_way {
                self.end_task(task)?;
            }
        }
        Ok(())
    }

    /// One whose effect is unknown, or becomes so by this, has failed: it must still be declared what became of it when the
    /// rest is undone.
    fn end_task(&mut self, task: StepSeq) -> Result<(), Refusal> {
        if self.cell(task).is_some_and(|cell| cell.is_held() && cell.lease().is_some()) {
            self.lose_verdict(task)?;
        }
        let unknown = self.cell(task).and_then(|cell| cell.live.as_ref()).is_some_and(|live| live.effect_unknown);
        if !unknown || self.run.plan.compensation.is_empty() {
            self.move_step(task, StepCode::Cancelled, By(SYSTEM, "run_aborted"))?;
        } else if self.state(task) != Some(StepCode::Failed) {
            self.move_step(task, StepCode::Failed, By(SYSTEM, "lease_exhausted"))?;
        }
        self.revoke(task)
    }

    /// A task that failed for good fails its step, which does as its `onFailure` says. Where that is `hold`, the task is held and
    /// the step goes on.
    pub fn task_failed(
        &mut self,
        task: StepSeq,
        step: StepSeq,
        error: &str,
        category: FailureCategory,
        by: By,
        on_failure: OnFailure,
    ) -> Result<(), Refusal> {
        self.move_given(task, StepCode::Failed, by, &Given { category: Some(category), ..Given::default() })?;
        self.clear_hold(task)?;
        let given_up =
            self.state(step).is_none_or(|state| matches!(state, StepCode::Failed | StepCode::CannotComplete));
        let ended = self.cell(step).is_none_or(super::Cell::is_ended);
        if on_failure == OnFailure::Hold || given_up || ended {
            return Ok(());
        }
        let by = if self.declared(step, StepCode::Failed, by).is_ok() { by } else { By(SYSTEM, "validation") };
        let error = format!("TASK_FAILED: {}: {error}", self.run.step_name(task));
        self.fail_with(step, &error, category, by, on_failure)
    }

    /// Nobody completes a step over its tasks: the first that is not done.
    pub fn open_task(&self, step: StepSeq) -> Option<StepSeq> {
        self.run.plan.tasks_of(step).find(|task| !self.state(*task).is_some_and(is_done))
    }

    /// While a run is undone: it waits for tasks of which nobody is at work on any.
    pub fn is_abandoned(&self, step: StepSeq) -> bool {
        let mut tasks = self.run.plan.tasks_of(step);
        !tasks.is_empty() && !self.tasks_are_done(step) && !tasks.any(|task| self.is_at_work(task))
    }

    fn tasks_are_done(&self, step: StepSeq) -> bool {
        self.run.plan.tasks_of(step).all(|task| self.state(task).is_some_and(is_done))
    }

    fn is_at_work(&self, seq: StepSeq) -> bool {
        self.cell(seq).is_some_and(super::Cell::is_held)
    }
}

const fn is_done(state: StepCode) -> bool {
    matches!(state, StepCode::Completed | StepCode::Skipped)
}
