//! Surveys and captures (ADR 34): somebody claims the pins of a run, looks at them and says what they are; then the step
//! begins, or completes, or the run stops.

use super::claim::fill_work;
use super::flow::{By, Flow, SYSTEM, WORKER, broken};
use super::result::Target;
use super::{
    Action, Aim, Artifact, Captured, Claimed, Context, Drift, Event, Found, Pin, Probe, Runbook, Survey, TaskRef,
    TaskType, permitted,
};
use crate::lifecycle::{ActorClass, FailureCategory, Outcome, RunState, StepCode};
use crate::plan::{StepSeq, StepSpec, Work};
use crate::refusal::{Code, Refusal};
use crate::registry::scopes;
use crate::text::json_string;
use std::sync::Arc;
use uuid::Uuid;

/// What is kept of why a pin has no value.
const LONGEST_ERROR: usize = 500;
const UNANSWERED: &str = "nobody answered in time";
const UNTOLD: &str = "no value was reported";

impl Flow<'_, '_, '_> {
    pub fn book(&self) -> Option<&Runbook> {
        self.head.runbook.as_deref()
    }

    pub fn book_mut(&mut self) -> Option<&mut Runbook> {
        self.head.runbook.as_deref_mut()
    }

    fn survey_of(&self, seq: StepSeq) -> Option<&Survey> {
        self.book()?.survey.as_ref().filter(|survey| survey.step_seq == seq)
    }

    /// Whether pins are being looked at before something begins.
    pub fn is_surveyed(&self) -> bool {
        self.book().and_then(|book| book.survey.as_ref()).is_some_and(|survey| !survey.captures())
    }

    /// Whether the work of this step is done, and its pins are being captured.
    pub fn has_yielded(&self, seq: StepSeq) -> bool {
        self.survey_of(seq).is_some_and(Survey::captures)
    }

    pub fn has_pins(&self) -> bool {
        self.book().is_some_and(|book| !book.pins.is_empty())
    }

    /// The step's turn has come and its gate, if it has one, is cleared: its pins are looked at before it begins.
    pub fn begin_step(&mut self, seq: StepSeq, spec: &StepSpec, by: By) -> Result<(), Refusal> {
        if self.has_pins() { self.ask_survey(seq) } else { self.make_ready(seq, spec, by) }
    }

    pub fn ask_survey(&mut self, seq: StepSeq) -> Result<(), Refusal> {
        self.offer(Survey { step_seq: seq, aim: Aim::Begin, found: vec![], offered_at: self.now(), lease: None })
    }

    fn offer(&mut self, survey: Survey) -> Result<(), Refusal> {
        self.drop_survey()?;
        // The agenda hears of steps that were touched.
        self.edit(survey.step_seq)?;
        self.book_mut().ok_or_else(broken)?.survey = Some(survey);
        Ok(())
    }

    pub fn drop_survey(&mut self) -> Result<(), Refusal> {
        if let Some(survey) = self.book_mut().and_then(|book| book.survey.take()) {
            self.edit(survey.step_seq)?;
        }
        Ok(())
    }

    /// The work is done and its output accepted. With pins, the step completes when they are captured.
    pub fn yield_or_close(
        &mut self,
        seq: StepSeq,
        output: Arc<str>,
        artifacts: Vec<Artifact>,
        by: By,
    ) -> Result<(), Refusal> {
        let pins = self.spec(seq).is_some_and(|spec| !spec.pins.is_empty());
        if self.book().is_none() || !pins {
            self.note_artifacts(seq, artifacts);
            return self.close(seq, output, by);
        }
        self.notes.yielded = Some((seq, output.clone()));
        self.clear_hold(seq)?;
        let declared = by.0 == ActorClass::Reviewer;
        let aim = Aim::Capture { output, artifacts, declared };
        if let Some(book) = self.book_mut() {
            book.claimed = None;
        }
        self.offer(Survey { step_seq: seq, aim, found: vec![], offered_at: self.now(), lease: None })
    }

    fn note_artifacts(&mut self, seq: StepSeq, artifacts: Vec<Artifact>) {
        if artifacts.is_empty() {
            return;
        }
        if let Some(book) = self.book_mut() {
            book.artifacts.retain(|(of, _)| *of != seq);
            book.artifacts.extend(artifacts.iter().map(|artifact| (seq, artifact.clone())));
        }
        self.notes.artifacts.extend(artifacts.into_iter().map(|artifact| (seq, artifact)));
    }

    /// Hands out the part of the survey that comes next. False where there is none to hand out.
    pub fn claim_survey(&mut self, seq: StepSeq, worker_id: &str) -> Result<bool, Refusal> {
        let run = self.run;
        let Some(survey) = self.survey_of(seq).filter(|survey| survey.lease.is_none()).cloned() else {
            return Ok(false);
        };
        let offered = survey.captures() || self.head.hands_out(super::Role::Step);
        let Some(part) = self.book().and_then(|book| book.part(&run.plan, &survey)).filter(|_| offered) else {
            return Ok(false);
        };
        if self.ctx.base.registry.is_frozen(&part.queue, worker_id) {
            return Ok(false);
        }
        let probe = |pin: &&crate::plan::PinSpec| {
            let (filled, secrets) = match fill_work(self, &pin.work, None, None) {
                Ok((filled, secrets)) => (Ok(filled), secrets),
                Err(error) => (Err(error), vec![]),
            };
            Probe { pin: pin.name.clone(), work: pin.work.clone(), filled, timeout: pin.timeout, secrets }
        };
        let own = part.pins.iter().filter(|pin| !matches!(pin.work, Work::Worker));
        let probes: Vec<Probe> = own.map(probe).collect();
        let (now, step) = (self.now(), run.step_name(seq));
        let pin = part.pins.first().map_or_else(|| Arc::from(""), |pin| pin.name.clone());
        let input = format!(r#"{{"pin":{},"step":{},"input":{}}}"#, json_string(&pin), json_string(step), run.input);
        let (lease_token, until): (Uuid, _) = (self.ctx.base.ids.make(), part.answer_by(now));
        self.claimed.push(Claimed {
            step_seq: seq,
            step: step.into(),
            task_type: TaskType::Survey,
            attempt: 1,
            max_attempts: 1,
            cycle: self.cell(seq).map_or(0, super::Cell::cycle),
            input: input.into(),
            event: None,
            lease_token,
            locked_until: until,
            job: None,
            probes,
        });
        self.edit(seq)?;
        if let Some(survey) = self.book_mut().and_then(|book| book.survey.as_mut()) {
            survey.lease = Some((lease_token, until));
        }
        Ok(true)
    }

    /// The survey's time is over: what nobody has answered has no value.
    pub fn survey_due(&mut self, seq: StepSeq) -> Result<bool, Refusal> {
        let now = self.now();
        let offered = self.has_yielded(seq) || self.head.hands_out(super::Role::Step);
        let late = self.run.survey_agenda(seq).is_some_and(|(_, until)| until <= now);
        if !late || !offered || self.survey_of(seq) != self.run.survey_of(seq) {
            return Ok(false);
        }
        self.answered(None, &[])?;
        Ok(true)
    }

    /// What was found of the part that was asked for; what is not among it has no value. Nothing, where nobody answered.
    fn answered(&mut self, values: Option<&[Found]>, errors: &[(Arc<str>, Arc<str>)]) -> Result<(), Refusal> {
        let (run, now) = (self.run, self.now());
        let mut survey = self.book().and_then(|book| book.survey.clone()).ok_or_else(broken)?;
        let part = self.book().and_then(|book| book.part(&run.plan, &survey));
        let mut unseen =
            if survey.found.is_empty() { vec![] } else { self.book().map_or(vec![], |b| b.unseen.clone()) };
        for pin in part.iter().flat_map(|part| &part.pins) {
            let mut told = values.unwrap_or_default().iter();
            let value = told.find(|(name, _)| *name == pin.name).and_then(|(_, value)| value.clone());
            if value.is_none() {
                let told = errors.iter().find(|(name, _)| *name == pin.name).map(|(_, why)| why);
                let why = told.map_or(if values.is_none() { UNANSWERED } else { UNTOLD }, |why| why);
                unseen.push((pin.name.clone(), why[..why.floor_char_boundary(LONGEST_ERROR)].into()));
            }
            survey.found.push((pin.name.clone(), value));
        }
        // Whoever comes too late has no answer to repeat.
        let token = survey.lease.take().map(|(token, _)| token).filter(|_| values.is_some());
        survey.offered_at = now;
        let more = self.book().is_some_and(|book| book.part(&run.plan, &survey).is_some());
        self.edit(survey.step_seq)?;
        let book = self.book_mut().ok_or_else(broken)?;
        book.answered = token.or(book.answered);
        book.unseen = unseen;
        book.survey = more.then(|| survey.clone());
        if more {
            return Ok(());
        }
        match survey.aim.clone() {
            Aim::Begin => self.surveyed(&survey),
            Aim::Capture { output, artifacts, declared } => self.captured(&survey, output, artifacts, declared),
        }
    }

    /// Equal, and what waited for it begins; or the run stops.
    fn surveyed(&mut self, survey: &Survey) -> Result<(), Refusal> {
        let book = self.book_mut().ok_or_else(broken)?;
        let mut drift = Vec::new();
        let mut found = Vec::with_capacity(book.pins.len());
        for pin in &mut book.pins {
            let live = survey.found.iter().find(|(name, _)| *name == pin.name).and_then(|(_, value)| value.clone());
            found.push((pin.name.clone(), live.clone()));
            let before = pin.before.take();
            match live {
                Some(live) if live == pin.value => {}
                Some(live) if Some(&live) == before.as_ref() => pin.value = live,
                live => drift.push(Drift { pin: pin.name.clone(), pinned: pin.value.clone(), live }),
            }
        }
        self.notes.surveyed = Some((survey.step_seq, found));
        if drift.is_empty() {
            return self.go_on(survey.step_seq);
        }
        book_drift(self, &drift);
        self.notes.drift = drift;
        self.moot_gate_of(survey.step_seq);
        self.stand_still(Outcome::Drift, "drift", None)
    }

    /// What the survey held up.
    fn go_on(&mut self, seq: StepSeq) -> Result<(), Refusal> {
        let Some(spec) = self.spec(seq) else { return Ok(()) };
        match self.state(seq) {
            Some(StepCode::NotStarted) => self.make_ready(seq, spec, By(ActorClass::MowOrchestrator, "precondition")),
            Some(StepCode::Blocked) if self.is_cleared(&spec.name) => {
                self.consume(&spec.name)?;
                self.make_ready(seq, spec, By(SYSTEM, "gate_cleared"))
            }
            Some(StepCode::Blocked) => self.ask_again(seq),
            _ => Ok(()),
        }
    }

    fn captured(
        &mut self,
        survey: &Survey,
        output: Arc<str>,
        artifacts: Vec<Artifact>,
        declared: bool,
    ) -> Result<(), Refusal> {
        let (seq, run) = (survey.step_seq, self.run);
        let specs = run.plan.step(seq).map_or(&[][..], |spec| &spec.pins);
        let value = |name: &Arc<str>| survey.found.iter().find(|(found, _)| found == name)?.1.clone();
        if let Some(missing) = specs.iter().find(|pin| value(&pin.name).is_none()) {
            let error = format!("PIN_FAILED:{}", missing.name);
            return self.fail(seq, &error, FailureCategory::External, By(SYSTEM, "validation"));
        }
        let captured: Vec<Captured> =
            specs.iter().filter_map(|pin| Some((pin.name.clone(), value(&pin.name)?))).collect();
        let book = self.book_mut().ok_or_else(broken)?;
        for (name, value) in &captured {
            let pin = Pin { name: name.clone(), step_seq: seq, value: value.clone(), before: None };
            match book.pins.iter_mut().find(|known| known.name == *name) {
                Some(known) => *known = pin,
                None => book.pins.push(pin),
            }
        }
        let checks = book.checks.iter().find(|(of, _)| *of == seq).cloned();
        self.notes.checks.extend(checks);
        self.notes.captured = Some((seq, captured));
        self.note_artifacts(seq, artifacts);
        let by = if declared { By(ActorClass::Reviewer, "effect_declared") } else { By(WORKER, "step_complete") };
        self.close(seq, output, by)
    }
}

fn book_drift(flow: &mut Flow<'_, '_, '_>, drift: &[Drift]) {
    if let Some(book) = flow.book_mut() {
        book.drift = drift.to_vec();
    }
}

/// Somebody who looked at pins says what they are.
pub fn answer(
    target: Target<'_>,
    task: &TaskRef,
    values: &[Found],
    errors: &[(Arc<str>, Arc<str>)],
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let (shell, run) = permitted(target, scopes::TASKS_WORK, ctx)?;
    let book = run.runbook();
    if task.lease_token.is_some() && book.is_some_and(|book| book.answered == task.lease_token) {
        return Ok(vec![]);
    }
    let lease = run.survey_of(task.step_seq).and_then(|survey| survey.lease);
    let held = lease.filter(|(token, until)| Some(*token) == task.lease_token && *until >= ctx.base.now);
    if held.is_none() {
        let detail = "this is not the lease under which the pins are looked at now; nothing was changed";
        return Err(Refusal::new(Code::LeaseLost, detail).at("lease_token"));
    }
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.answered(Some(values), errors)?;
    flow.advance()?;
    let action = flow.survey_action(Action::StepFailed);
    Ok(flow.finish(action, &actor_ref, None))
}

impl Flow<'_, '_, '_> {
    /// What an answer came to. `failed` where a capture gave nothing.
    pub fn survey_action(&self, failed: Action) -> Action {
        if self.notes.surveyed.is_some() {
            Action::PinsSurveyed
        } else if self.notes.captured.is_some() {
            Action::StepCompleted
        } else if self.moves.is_empty() && self.run_moves.is_empty() {
            Action::SurveyMoved
        } else {
            failed
        }
    }

    /// Whether the run lives on and stands before or at this step: what a resume surveys.
    pub fn resumes_at(&self) -> Option<StepSeq> {
        let at = self.head.current;
        let open = (at as usize) < self.run.plan.steps.len() && !self.head.state.is_ended();
        (open && matches!(self.head.state, RunState::Executing | RunState::Blocked)).then_some(at)
    }
}

/// A worker's report under the lease of a survey: its one pin, and what it is.
pub fn reported(run: &super::Run, task: &TaskRef, value: Option<&Arc<str>>) -> Option<Vec<Found>> {
    let book = run.runbook()?;
    if task.lease_token.is_some() && book.answered == task.lease_token {
        return Some(vec![]);
    }
    let survey = run.survey_of(task.step_seq)?;
    survey.lease.filter(|(token, _)| Some(*token) == task.lease_token)?;
    let part = book.part(&run.plan, survey)?;
    let worker = part.pins.first().filter(|pin| matches!(pin.work, Work::Worker));
    Some(worker.map(|pin| (pin.name.clone(), value.cloned())).into_iter().collect())
}
