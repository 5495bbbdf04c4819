//! How a run goes on: what follows the end of a step, what a failure leads to, and when the run ends.

use super::flow::{By, Flow, SYSTEM, WORKER};
use super::guard::{Given, Judged};
use super::{Artifact, Facet, Role, Verdict, Waiting};
use crate::lifecycle::{ActorClass, FailureCategory, Outcome, Response, RunState, StepCode};
use crate::plan::{
    ErrorResponse, Expression, ExpressionError, FailurePolicy, OnFailure, Order, StepSeq, StepSpec, WaitWork, Work,
};
use crate::process;
use crate::refusal::Refusal;
use std::sync::Arc;

impl Flow<'_, '_, '_> {
    /// A step has ended: those that waited for it come nearer.
    pub fn ended(&mut self, seq: StepSeq, completed: bool) -> Result<(), Refusal> {
        let plan = &self.run.plan;
        let next = [seq + 1];
        let followers = match plan.order {
            Order::Linear if (next[0] as usize) < plan.steps.len() => &next[..],
            Order::Linear => &[],
            Order::Dag => plan.dependents(seq),
        };
        for follower in followers.iter().copied() {
            // One that has begun went on from what was there: it does not wait for a correction.
            if self.state(follower) != Some(StepCode::NotStarted) {
                continue;
            }
            let cell = self.edit(follower)?;
            cell.open_deps = cell.open_deps.saturating_sub(1);
            cell.fed |= completed;
            if cell.open_deps == 0 && plan.order == Order::Dag {
                self.to_resolve.push_back(follower);
            }
        }
        if plan.order == Order::Linear && self.head.current == seq {
            self.head.current = self.first_open(seq + 1);
            // Where an earlier step is open again, those behind it wait, whatever has ended meanwhile.
            let next = self.head.current;
            if self.cell(next).is_some_and(|cell| cell.role == Role::Step && cell.state == StepCode::NotStarted) {
                self.to_resolve.push_back(next);
            }
        }
        Ok(())
    }

    /// Where a chain stands: what was ended before a step was reopened stays so.
    fn first_open(&self, from: StepSeq) -> StepSeq {
        let end = StepSeq::try_from(self.run.plan.steps.len()).unwrap_or(StepSeq::MAX);
        (from..end).find(|seq| self.cell(*seq).is_none_or(|cell| !self.run.is_passed(*seq, cell))).unwrap_or(end)
    }

    /// Lets the run go on as far as it can without anybody's help, and sets its state to what that means.
    pub fn advance(&mut self) -> Result<(), Refusal> {
        loop {
            while let Some(seq) = self.to_resolve.pop_front() {
                if self.head.undoing || self.head.state.is_ended() {
                    break;
                }
                self.resolve(seq)?;
            }
            if !self.tend_tasks()? {
                break;
            }
        }
        self.to_resolve.clear();
        match self.head.state {
            RunState::Executing | RunState::Blocked => self.settle(),
            RunState::Compensating => self.compensate(),
            _ => Ok(()),
        }
    }

    /// Completed, blocked or executing.
    pub fn settle(&mut self) -> Result<(), Refusal> {
        if self.head.outcome == Some(Outcome::EffectUnknown) {
            return Ok(());
        }
        if self.head.open == 0 {
            if self.head.state == RunState::Blocked {
                self.move_run(RunState::Executing, "input_received")?;
            }
            return self.complete_run();
        }
        match (self.head.state, self.head.blocked > 0) {
            (RunState::Executing, true) => self.move_run(RunState::Blocked, "input_required"),
            (RunState::Blocked, false) => self.move_run(RunState::Executing, "input_received"),
            _ => Ok(()),
        }
    }

    fn complete_run(&mut self) -> Result<(), Refusal> {
        if let Some(template) = self.run.plan.output.clone() {
            match self.with_scope(None, None, |scope| self.ctx.language.fill(&template, scope)) {
                Ok(output) => self.head.output = Some(output.into()),
                Err(error) => {
                    let error = format!("EXPRESSION_ERROR: output: {error}");
                    if self.run.plan.failure_policy == FailurePolicy::Compensate {
                        self.begin_compensation(&error, "step_failed")?;
                        return self.compensate();
                    }
                    return self.fail_run(&error, "step_failed");
                }
            }
        }
        if self.book().is_some_and(|book| book.dry_run) {
            self.head.outcome = Some(Outcome::DryRun);
        }
        self.move_run(RunState::Completed, "all_steps_ended")?;
        self.moot_open_gates();
        Ok(())
    }

    /// All dependencies of this step have ended: skip it, open its gate, or make it ready.
    fn resolve(&mut self, seq: StepSeq) -> Result<(), Refusal> {
        let Some(spec) = self.run.plan.step(seq) else { return Ok(()) };
        let fed = self.cell(seq).is_some_and(|cell| cell.fed) || spec.depends_on.is_empty();
        if self.run.plan.order == Order::Dag && !fed {
            return self.skip(seq, "upstream_skipped");
        }
        if let Some(when) = &spec.when {
            match self.with_scope(None, None, |scope| self.ctx.language.judge(when, scope)) {
                Ok(true) => {}
                Ok(false) => return self.skip(seq, "when_false"),
                Err(error) => {
                    let error = format!("EXPRESSION_ERROR: when: {error}");
                    return self.fail(seq, &error, FailureCategory::Validation, By(SYSTEM, "expression_error"));
                }
            }
        }
        if self.ends_dry(spec) {
            return self.end_dry_run();
        }
        if spec.gate.is_some() || matches!(spec.work, Work::Approval(_)) {
            self.move_step(seq, StepCode::Blocked, By(SYSTEM, "gate_opened"))?;
            return self.open_step_gate(seq, spec);
        }
        self.begin_step(seq, spec, By(ActorClass::MowOrchestrator, "precondition"))
    }

    fn skip(&mut self, seq: StepSeq, trigger: &'static str) -> Result<(), Refusal> {
        self.move_step(seq, StepCode::Skipped, By(SYSTEM, trigger))?;
        self.ended(seq, false)
    }

    /// Ready, and for what the engine does itself, further.
    pub fn make_ready(&mut self, seq: StepSeq, spec: &StepSpec, by: By) -> Result<(), Refusal> {
        self.move_step(seq, StepCode::Ready, by)?;
        let now = self.now();
        self.edit(seq)?.live.get_or_insert_default().next_run_at = Some(now);
        if !self.put_in_charge(seq, spec)? {
            return Ok(());
        }
        match &spec.work {
            Work::Wait(wait) => self.begin_wait(seq, wait),
            Work::Approval(_) => {
                self.move_step(seq, StepCode::InProgress, By(WORKER, "step_claim"))?;
                self.completed(seq, self.approval(&spec.name).into())
            }
            Work::Worker if spec.is_frame() => {
                self.move_step(seq, StepCode::InProgress, By(WORKER, "step_claim"))?;
                self.clear_hold(seq)
            }
            Work::Worker | Work::Shell(_) | Work::Http(_) | Work::Workflow { .. } | Work::Human { .. } => Ok(()),
        }
    }

    /// A wait of the engine's own: claimed and put down in one go.
    fn begin_wait(&mut self, seq: StepSeq, wait: &WaitWork) -> Result<(), Refusal> {
        self.move_step(seq, StepCode::InProgress, By(WORKER, "step_claim"))?;
        let now = self.now();
        let (event_type, facet, deadline_at) = match wait {
            WaitWork::Event { event_type, timeout } => {
                (Some(Arc::from(event_type.as_str())), Facet::External, timeout.map(|timeout| now.after(timeout)))
            }
            WaitWork::For(length) => (None, Facet::TimeGate, Some(now.after(*length))),
            WaitWork::Until(template) => {
                match self.with_scope(None, None, |scope| self.ctx.language.moment(template, scope)) {
                    Ok(time) => (None, Facet::TimeGate, Some(time)),
                    Err(error) => {
                        let error = format!("EXPRESSION_ERROR: until: {error}");
                        return self.fail(seq, &error, FailureCategory::Validation, By(SYSTEM, "expression_error"));
                    }
                }
            }
        };
        self.put_down(seq, Waiting { event_type, facet, secondary: vec![], deadline_at }, WORKER)
    }

    /// T3, and at once on where the event has come already.
    pub fn put_down(&mut self, seq: StepSeq, waiting: Waiting, by: ActorClass) -> Result<(), Refusal> {
        let given = Given { facets: &[waiting.facet.as_str()], ..Given::default() };
        self.move_given(seq, StepCode::Waiting, By(by, "step_wait"), &given)?;
        let kept = waiting.event_type.as_ref().and_then(|wanted| {
            self.run.kept.iter().find(|kept| kept.event_type == *wanted && !self.taken.contains(&kept.id))
        });
        let kept = kept.cloned();
        let live = self.edit(seq)?.live.get_or_insert_default();
        live.next_run_at = None;
        live.lease = None;
        live.waiting = Some(waiting);
        // What woke it before is not what ends this wait.
        live.event = None;
        match kept {
            Some(event) => {
                self.taken.push(event.id.clone());
                self.woken(seq, &event.data)
            }
            None => Ok(()),
        }
    }

    /// The event that the step waited for is there.
    pub fn woken(&mut self, seq: StepSeq, data: &Arc<str>) -> Result<(), Refusal> {
        let work = self.spec(seq).map(|spec| &spec.work);
        let own = matches!(work, Some(Work::Wait(_)));
        let persons = matches!(work, Some(Work::Human { .. }));
        let now = self.now();
        let clear = |flow: &mut Self| -> Result<(), Refusal> {
            let live = flow.edit(seq)?.live.get_or_insert_default();
            live.waiting = None;
            live.event = Some(data.clone());
            Ok(())
        };
        let proof = Given { evidence: Some(data), ..Given::default() };
        if own {
            self.move_given(seq, StepCode::InProgress, By(SYSTEM, "facet_resolved"), &proof)?;
            clear(self)?;
            return self.completed(seq, data.clone());
        }
        if persons {
            // It is still its person's.
            self.move_given(seq, StepCode::InProgress, By(SYSTEM, "facet_resolved"), &proof)?;
            return clear(self);
        }
        self.move_step(seq, StepCode::Ready, By(SYSTEM, "wake_up"))?;
        clear(self)?;
        self.edit(seq)?.live.get_or_insert_default().next_run_at = Some(now);
        Ok(())
    }

    /// T8, with the step's own `output`, checks and schema; a worker's output that misses them fails the step.
    pub fn completed(&mut self, seq: StepSeq, output: Arc<str>) -> Result<(), Refusal> {
        self.completed_with(seq, output, vec![])
    }

    pub fn completed_with(&mut self, seq: StepSeq, output: Arc<str>, artifacts: Vec<Artifact>) -> Result<(), Refusal> {
        match self.judge(seq, output) {
            Ok(output) => self.yield_or_close(seq, output, artifacts, By(WORKER, "step_complete")),
            Err((error, trigger)) => self.fail(seq, &error, FailureCategory::Validation, By(SYSTEM, trigger)),
        }
    }

    /// T8, T7 where it is late, or X13 where somebody declared it: with an output that [`Flow::judge`] has accepted.
    pub fn close(&mut self, seq: StepSeq, output: Arc<str>, by: By) -> Result<(), Refusal> {
        self.note_breach(seq)?;
        let given = Given { judged: Some(&Judged::Holds), ..Given::default() };
        self.move_given(seq, StepCode::Completed, by, &given)?;
        self.clear_hold(seq)?;
        let cell = self.edit(seq)?;
        if let Some(live) = &mut cell.live {
            live.effect_unknown = false;
            live.event = None;
        }
        let role = cell.role;
        self.outputs.push((seq, output));
        match role {
            Role::Step => self.ended(seq, true),
            Role::Task(_) | Role::Compensation(_) => Ok(()),
        }
    }

    /// What the step yields, or why it does not hold. Every check is judged and noted; an output that is refused is kept.
    pub fn judge(&mut self, seq: StepSeq, raw: Arc<str>) -> Result<Arc<str>, (String, &'static str)> {
        let Some(spec) = self.spec(seq) else { return Ok(raw) };
        let event = self.cell(seq).and_then(|cell| cell.live.as_ref()).and_then(|live| live.event.clone());
        let judged = self.contract(spec, event.as_deref(), raw.clone()).and_then(|output| {
            let verdicts = self.verdicts(spec, event.as_deref(), &output)?;
            let failed = verdicts.iter().find(|verdict| !verdict.held).map(|verdict| verdict.name.clone());
            self.note_checks(seq, verdicts);
            // Who reads the error compares it with this code.
            failed.map_or(Ok(output), |name| Err((format!("CHECK_FAILED:{name}"), "validation")))
        });
        if judged.is_err() {
            self.notes.refused.push((seq, raw));
        }
        judged
    }

    fn note_checks(&mut self, seq: StepSeq, verdicts: Vec<Verdict>) {
        if verdicts.is_empty() {
            return;
        }
        if let Some(book) = self.book_mut() {
            book.checks.retain(|(of, _)| *of != seq);
            book.checks.push((seq, verdicts.clone()));
        }
        self.notes.checks.push((seq, verdicts));
    }

    /// Anything but `true` is a check that did not hold. One that the budget does not cover has no verdict.
    fn verdicts(
        &self,
        spec: &StepSpec,
        event: Option<&str>,
        output: &str,
    ) -> Result<Vec<Verdict>, (String, &'static str)> {
        let language = self.ctx.language;
        let verdict = |(name, check): &(Arc<str>, Expression)| match self
            .with_scope(event, Some(output), |scope| language.judge(check, scope))
        {
            Err(error) if error.over_budget => {
                Err((format!("EXPRESSION_ERROR: checks.{name}: {error}"), "expression_error"))
            }
            judged => Ok(Verdict { name: name.clone(), held: judged == Ok(true) }),
        };
        spec.checks.iter().map(verdict).collect()
    }

    /// The output as `output` and `outputSchema` have it.
    fn contract(
        &self,
        spec: &StepSpec,
        event: Option<&str>,
        raw: Arc<str>,
    ) -> Result<Arc<str>, (String, &'static str)> {
        let language = self.ctx.language;
        let mut output = raw;
        if let Some(template) = &spec.output {
            output = self
                .with_scope(event, Some(&output), |scope| language.fill(template, scope))
                .map_err(|error| (format!("EXPRESSION_ERROR: output: {error}"), "expression_error"))?
                .into();
        }
        if let Some(schema) = &spec.output_schema {
            language.conforms(schema, &output).map_err(|error| missed("output", &error))?;
        }
        Ok(output)
    }

    /// It is nobody's any more and waits for nothing.
    pub fn clear_hold(&mut self, seq: StepSeq) -> Result<(), Refusal> {
        if let Some(live) = &mut self.edit(seq)?.live {
            live.lease = None;
            live.waiting = None;
            live.next_run_at = None;
        }
        Ok(())
    }

    /// Somebody's lease is taken away: whoever still reports under it comes late.
    pub fn revoke(&mut self, seq: StepSeq) -> Result<(), Refusal> {
        self.clear_hold(seq)?;
        self.take_away(seq)
    }

    /// Its lease is worth nothing any more, not even to repeat a result with.
    pub fn take_away(&mut self, seq: StepSeq) -> Result<(), Refusal> {
        self.edit(seq)?.token = None;
        Ok(())
    }

    /// The step has failed for good. Its `onFailure` says what follows.
    pub fn fail(&mut self, seq: StepSeq, error: &str, category: FailureCategory, by: By) -> Result<(), Refusal> {
        let on_failure = self.spec(seq).map_or(OnFailure::Abort, |spec| spec.on_failure);
        self.fail_with(seq, error, category, by, on_failure)
    }

    pub fn fail_with(
        &mut self,
        seq: StepSeq,
        error: &str,
        category: FailureCategory,
        by: By,
        on_failure: OnFailure,
    ) -> Result<(), Refusal> {
        let role = self.cell(seq).map_or(Role::Step, |cell| cell.role);
        self.moot_step_gate(seq)?;
        let live = self.edit(seq)?.live.get_or_insert_default();
        live.last_error = Some(error.into());
        live.category = Some(category);
        let unknown = live.effect_unknown;
        // Were it skipped, nobody would ask any more what became of it when the rest is undone.
        let to_be_declared = unknown && !self.run.plan.compensation.is_empty();
        if let Role::Task(step) = role {
            return self.task_failed(seq, step, error, category, by, on_failure);
        }
        if role == Role::Step && on_failure == OnFailure::Skip && !to_be_declared {
            let given = Given { on_failure: Some(on_failure), ..Given::default() };
            self.move_given(seq, StepCode::Skipped, By(SYSTEM, "on_failure_skip"), &given)?;
            self.clear_hold(seq)?;
            return self.ended(seq, false);
        }
        self.move_given(seq, StepCode::Failed, by, &Given { category: Some(category), ..Given::default() })?;
        self.clear_hold(seq)?;
        if let Role::Compensation(step) = role {
            return self.undo_failed(step, error);
        }
        if self.head.undoing || self.head.state.is_ended() {
            // One of those that were let finish.
            return Ok(());
        }
        match on_failure {
            OnFailure::Abort => self.fail_run(error, "step_failed"),
            OnFailure::Compensate => self.begin_compensation(error, "step_failed"),
            // Its effect is unknown; those behind it go on as behind a skipped one.
            OnFailure::Skip => {
                self.head.open = self.head.open.saturating_sub(1);
                self.ended(seq, false)
            }
            OnFailure::Hold => Ok(()),
        }
    }

    /// 004 abort: the run has failed, what is under way is revoked, later steps stay as they are.
    pub fn fail_run(&mut self, error: &str, trigger: &'static str) -> Result<(), Refusal> {
        self.head.last_error = Some(error.into());
        self.move_run(RunState::Failed, trigger)?;
        self.revoke_all(By(SYSTEM, "run_aborted"))
    }

    /// Ends everything that is under way, gates included.
    pub fn revoke_all(&mut self, by: By) -> Result<(), Refusal> {
        let mut live = self.live();
        // Steps in the same state stand together in the record.
        live.sort_by_key(|seq| self.state(*seq));
        for seq in live {
            let dead = self.cell(seq).is_some_and(|cell| cell.state == StepCode::Failed && !cell.retry_scheduled());
            let declared = self.cell(seq).is_some_and(|cell| cell.state == StepCode::CannotComplete);
            if by.0 == SYSTEM && (dead || declared) {
                continue;
            }
            self.move_step(seq, StepCode::Cancelled, by)?;
            self.revoke(seq)?;
        }
        self.moot_all_gates();
        Ok(())
    }

    /// What a failure of this kind leads to, as the step or its class says.
    pub fn response(
        &self,
        seq: StepSeq,
        category: Option<FailureCategory>,
        wants_retry: bool,
    ) -> (Response, Option<OnFailure>) {
        let spec = self.spec(seq);
        if self.run.plan.failure_policy == FailurePolicy::FailClosed {
            // Nothing is tried again, and what a policy forbids still waits for somebody with authority.
            let blocks = category.is_some_and(|category| category.class().default_response == Response::Block);
            return (if blocks { Response::Block } else { Response::Fail }, None);
        }
        let own = spec.and_then(|spec| spec.errors.of(category?));
        match (own, category) {
            (Some(ErrorResponse::Retry), _) => (Response::Retry, None),
            (Some(ErrorResponse::Skip), _) => (Response::Skip, Some(OnFailure::Skip)),
            (Some(ErrorResponse::Abort), _) => (Response::Fail, Some(OnFailure::Abort)),
            (None, None) => (if wants_retry { Response::Retry } else { Response::Fail }, None),
            (None, Some(category)) => match category.class().default_response {
                Response::Retry if !wants_retry => (Response::Fail, None),
                // While a run is undone nobody clears anything: it ends by itself.
                Response::Block if self.head.undoing => (Response::Fail, None),
                response => (response, None),
            },
        }
    }
}

/// The shell as it is after these events.
pub fn shell_after(shell: &process::Process, events: &[process::Event]) -> process::Process {
    events.iter().fold(shell.clone(), |shell, event| shell.evolve(event))
}

/// Why a step fails whose value was held against a schema: the value misses it, or finding out takes too much work.
pub(super) fn missed(what: &str, error: &ExpressionError) -> (String, &'static str) {
    match error.over_budget {
        true => (format!("EXPRESSION_ERROR: {what}: {error}"), "expression_error"),
        false => (format!("VALIDATION: {what}: {error}"), "validation"),
    }
}
