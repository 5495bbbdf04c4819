//! How a run comes to a stop and who lets it go on: the gates `resume` and `void`, what they ask, and caps.

use super::flow::{By, Flow, SYSTEM};
use super::gate::SHELL_STATE;
use super::{Drift, Outbound, Run};
use crate::lifecycle::{Outcome, RunState, StepCode};
use crate::plan::{Micros, Plan, StepSeq, StepSpec, Work};
use crate::process::{self, Fate, GateStatus, Request};
use crate::refusal::Refusal;
use crate::text::json_string;
use std::sync::Arc;

/// The gate that every resume of a stopped runbook needs, and the one that voiding it needs.
pub const RESUME: &str = "resume";
pub const VOID: &str = "void";
/// Who lets a runbook go on, or voids it.
pub const SOVEREIGN: &str = "sovereign";

/// A value up to this size is shown as it is.
const SHOWN: usize = 256;

/// The label of the gate that this action needs, if it needs one.
pub fn label_of<'p>(plan: &'p Plan, action: &'p str) -> Option<&'p str> {
    let named = |label: &str| plan.gate_spec.0.contains_key(label);
    if named(action) {
        return Some(action);
    }
    (plan.is_runbook() && named(SOVEREIGN)).then_some(SOVEREIGN)
}

impl Run {
    /// Whether nobody does this to the run without an approval. A run that was started before there were runbooks asks for
    /// none.
    pub fn guards(&self, action: &str) -> bool {
        label_of(&self.plan, action).is_some() && (self.runbook().is_some() || !self.plan.is_runbook())
    }
}

impl Flow<'_, '_, '_> {
    /// The run stands still. Whoever is at work loses their lease, and what they did under it is unknown.
    pub fn stand_still(
        &mut self,
        outcome: Outcome,
        trigger: &'static str,
        reason: Option<&str>,
    ) -> Result<(), Refusal> {
        if self.book().is_some_and(|book| book.dry_run) {
            // Nobody is asked about it, so nobody could ever resume it.
            self.head.outcome = Some(outcome);
            return self.fail_run(&format!("STOPPED: {outcome}"), "step_failed");
        }
        self.move_run(RunState::Stopped, trigger)?;
        self.head.outcome = Some(outcome);
        if outcome != Outcome::Drift
            && let Some(book) = self.book_mut()
        {
            book.drift.clear();
        }
        let now = self.now();
        for seq in self.live() {
            // What has only tasks, or waits for a child, nobody holds; and what has yielded is done.
            let frame = self.spec(seq).is_some_and(StepSpec::is_frame);
            // A person who is at work when the run begins to undo may finish, and has no lease.
            let persons = self.spec(seq).is_some_and(|spec| matches!(spec.work, Work::Human { .. }));
            if self.has_yielded(seq)
                || frame
                || (persons && self.head.undoing)
                || self.cell(seq).is_none_or(|cell| !cell.is_held() || cell.awaited().is_some())
            {
                continue;
            }
            if self.cell(seq).is_some_and(|cell| cell.lease().is_some()) {
                self.lose_verdict(seq)?;
            }
            self.move_step(seq, StepCode::Ready, By(SYSTEM, "unclaimed"))?;
            self.revoke(seq)?;
            self.edit(seq)?.live.get_or_insert_default().next_run_at = Some(now);
        }
        if self.is_surveyed() {
            self.drop_survey()?;
        }
        if self.run.guards(RESUME) {
            let request = self.stop_request(outcome, reason);
            self.open_gate(RESUME, request)?;
        }
        if self.book().is_some() {
            let data = self.about_stop(outcome, reason, false).into();
            self.outbound.push(Outbound { event_type: super::result::ESCALATED.to_owned(), data });
        }
        Ok(())
    }

    /// A value as people are shown it: what is long, by its digest.
    fn shown(&self, value: &str) -> Arc<str> {
        if value.len() <= SHOWN {
            return value.into();
        }
        format!("\"sha256:{}\"", (self.ctx.digest)(value)).into()
    }

    fn drift_json(&self, drift: &[Drift]) -> String {
        let line = |d: &Drift| {
            let live = d.live.as_deref().map_or_else(|| Arc::from("null"), |live| self.shown(live));
            format!(r#"{{"pin":{},"pinned":{},"live":{live}}}"#, json_string(&d.pin), self.shown(&d.pinned))
        };
        format!("[{}]", drift.iter().map(line).collect::<Vec<_>>().join(","))
    }

    fn about_stop(&self, outcome: Outcome, reason: Option<&str>, asks: bool) -> String {
        let mut members = vec![format!(r#""outcome":"{outcome}""#)];
        if !asks {
            members.insert(0, format!(r#""run_id":"{}""#, self.run.run_id));
        }
        if let Some(step) = self.run.plan.steps.get(self.head.current as usize) {
            members.push(format!(r#""step":{}"#, json_string(&step.name)));
        }
        if let Some(reason) = reason {
            members.push(format!(r#""reason":{}"#, json_string(reason)));
        }
        if let Some(book) = self.book().filter(|book| !book.drift.is_empty()) {
            members.push(format!(r#""drift":{}"#, self.drift_json(&book.drift)));
        }
        format!("{{{}}}", members.join(","))
    }

    /// What the sovereign is asked after a stop.
    pub fn stop_request(&self, outcome: Outcome, reason: Option<&str>) -> Request {
        self.with_pins(self.about_stop(outcome, reason, true))
    }

    pub fn void_request(&self, reason: Option<&str>) -> Request {
        let mut members = vec![format!(r#""state":"{}""#, self.head.state)];
        members.extend(self.head.outcome.map(|outcome| format!(r#""outcome":"{outcome}""#)));
        members.extend(reason.map(|reason| format!(r#""reason":{}"#, json_string(reason))));
        self.with_pins(format!("{{{}}}", members.join(",")))
    }

    /// What the approver of a step is asked. Where the definition does not say: with what the run began, and the outputs
    /// that the step works on.
    pub fn step_request(&self, spec: &StepSpec) -> Result<Request, String> {
        let language = self.ctx.language;
        let text = match &spec.request {
            Some(template) => self
                .with_scope(None, None, |scope| language.fill(template, scope))
                .map_err(|error| format!("EXPRESSION_ERROR: request: {error}"))?,
            None => self.worked_on(vec![], Some(spec)),
        };
        Ok(self.with_pins(text))
    }

    /// What the approver of a cancellation, a reopening or a late escalation is asked, where the opener does not say.
    pub fn operator_request(&self, step: Option<(StepSeq, &StepSpec)>, reason: Option<&str>) -> Request {
        let mut about = vec![format!(r#""run_state":"{}""#, self.head.state)];
        if let Some((seq, spec)) = step {
            about.push(format!(r#""step":{}"#, json_string(&spec.name)));
            about.extend(self.state(seq).map(|state| format!(r#""step_state":"{state}""#)));
        }
        about.extend(reason.map(|reason| format!(r#""reason":{}"#, json_string(reason))));
        self.with_pins(self.worked_on(about, step.map(|(_, spec)| spec)))
    }

    fn worked_on(&self, mut members: Vec<String>, spec: Option<&StepSpec>) -> String {
        members.push(format!(r#""input":{}"#, self.run.input));
        let output = |seq: &StepSeq| {
            let name = &self.spec(*seq)?.name;
            Some(format!("{}:{}", json_string(name), self.output(*seq)?))
        };
        let outputs: Vec<String> = spec.into_iter().flat_map(|spec| &spec.uses).filter_map(output).collect();
        if !outputs.is_empty() {
            members.push(format!(r#""outputs":{{{}}}"#, outputs.join(",")));
        }
        format!("{{{}}}", members.join(","))
    }

    /// An object, with all pins of the run at its end.
    fn with_pins(&self, object: String) -> Request {
        let mut text = object;
        if let Some(book) = self.book().filter(|book| !book.pins.is_empty()) {
            let pins = book.pins_json(|value| self.shown(value));
            text.truncate(text.trim_end().len().saturating_sub(1));
            let comma = if text.len() > 1 { "," } else { "" };
            text.push_str(&format!(r#"{comma}"pins":{pins}}}"#));
        }
        let digest = (self.ctx.digest)(&text);
        Request { text: text.into(), digest }
    }

    /// A gate of this step that waits, or was approved and not spent, is about a world that is gone.
    pub fn moot_gate_of(&mut self, seq: StepSeq) {
        let Some(name) = self.spec(seq).map(|spec| spec.name.clone()) else { return };
        let shell = super::advance::shell_after(self.shell, &self.gate_events);
        let own = |gate: &process::Gate| {
            gate.action == *name
                && gate.current
                && gate.fate == Fate::Unspent
                && matches!(gate.status(), GateStatus::Pending | GateStatus::Approved)
        };
        self.gate_events.extend(process::moot_gates(&shell, own, &self.ctx.base));
    }

    /// Opens the step's gate anew where it was mooted.
    pub fn ask_again(&mut self, seq: StepSeq) -> Result<(), Refusal> {
        let Some(spec) = self.spec(seq).filter(|_| self.state(seq) == Some(StepCode::Blocked)) else { return Ok(()) };
        let shell = super::advance::shell_after(self.shell, &self.gate_events);
        let moot = shell.gate(SHELL_STATE, &spec.name).is_some_and(|gate| gate.fate == Fate::Mooted);
        if moot { self.open_step_gate(seq, spec) } else { Ok(()) }
    }

    /// What was approved is pinned anew. A probe that gave nothing gives nothing to pin.
    pub fn pin_anew(&mut self) {
        let Some(book) = self.book_mut() else { return };
        let approved: Vec<Drift> = book.drift.drain(..).filter(|drift| drift.live.is_some()).collect();
        for drift in &approved {
            if let (Some(pin), Some(live)) = (book.pins.iter_mut().find(|pin| pin.name == drift.pin), &drift.live) {
                pin.before = Some(std::mem::replace(&mut pin.value, live.clone()));
            }
        }
        self.notes.repinned = approved;
    }

    /// The budget of executing time once more.
    pub fn renew_budget(&mut self) {
        let cap = self.run.plan.hard_cap;
        if let Some(book) = self.book_mut() {
            book.used = 0;
            self.notes.budget = cap;
        }
    }

    /// A step whose cap is reached stops the run. Heartbeats or not.
    pub fn soft_cap_due(&mut self, seq: StepSeq) -> Result<bool, Refusal> {
        let now = self.now();
        let reached = self.cell(seq).and_then(|cell| self.run.soft_cap_at(seq, cell)).is_some_and(|at| at <= now);
        if !reached || !matches!(self.head.state, RunState::Executing | RunState::Blocked | RunState::Paused) {
            return Ok(false);
        }
        self.stand_still(Outcome::SoftCap, "soft_cap", None)?;
        Ok(true)
    }

    pub fn hard_cap_due(&mut self) -> Result<bool, Refusal> {
        let reached = self.run.hard_cap_at().is_some_and(|at| at <= self.now());
        if !reached || self.head.state != RunState::Executing {
            return Ok(false);
        }
        self.stand_still(Outcome::HardCap, "hard_cap", None)?;
        Ok(true)
    }

    /// Whether no step may begin any more, though the clock has not said so yet.
    pub fn is_spent(&self) -> bool {
        self.run.hard_cap_at().is_some_and(|at| at <= self.now())
    }

    /// A lease ends where the step's cap does.
    pub fn within_cap(&self, seq: StepSeq, until: crate::Time) -> crate::Time {
        let cap = |(claimed, at): (StepSeq, crate::Time)| -> Option<crate::Time> {
            let length: Micros = self.spec(seq)?.soft_cap.filter(|_| claimed == seq)?;
            Some(at.after(length))
        };
        self.book().and_then(|book| book.claimed).and_then(cap).map_or(until, |cap| cap.min(until))
    }

    /// Whether a dry run ends before this step: it would change something, or ask somebody.
    pub fn ends_dry(&self, spec: &StepSpec) -> bool {
        let carried_out = matches!(spec.work, Work::Worker | Work::Shell(_) | Work::Http(_));
        let looks_only = spec.read_only && spec.gate.is_none() && carried_out;
        self.book().is_some_and(|book| book.dry_run) && !looks_only
    }

    pub fn end_dry_run(&mut self) -> Result<(), Refusal> {
        self.move_run(RunState::Completed, "dry_run")?;
        self.head.outcome = Some(Outcome::DryRun);
        Ok(())
    }
}
