//! The rules of a runbook (`spec/run.md`, section 9): no step without an equal survey, no resume and no void without an
//! approval of its own, decisions bound to what was asked, every check held, no step past a cap, no attempt after an unknown
//! effect, nothing retried, skipped or taken from another run.

use super::Run;
use super::definition::{StepSpec, Workflow};
use super::follow::Made;
use super::read::{Moves, RunMove, Told};
use crate::bytes::{Digest, Id, sha256};
use crate::finding::Code;
use crate::json::{self, Value};
use crate::process::{Context, Process};
use crate::record::{Action, Header};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// What a run has pinned, how long it has executed, and what it may do next.
#[derive(Debug, Default)]
pub struct Runbook {
    /// It is one: fail-closed, linear, and its declaration guards `resume`.
    active: bool,
    pub(super) dry: bool,
    /// Checks are recorded from here on; runs of earlier servers have none.
    checked: bool,
    /// The digests of the pins, in the order of their first capture.
    pins: Vec<(String, Digest)>,
    /// What pins were before the last resume pinned them anew; good for one survey.
    before_resume: HashMap<String, Digest>,
    surveyed: BTreeSet<usize>,
    yielded: BTreeMap<usize, Told>,
    /// The step whose pins this command captured.
    captured: Option<usize>,
    claimed: BTreeMap<usize, i64>,
    executed_us: i64,
    executing_from: Option<i64>,
    stopped_at: Option<i64>,
    /// What the last stop says, and what its survey found.
    drift: Vec<Drift>,
    live: HashMap<String, Digest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    pin: String,
    pinned: Value,
    live: Value,
}

/// What a record says of pins, checks and approvals.
#[derive(Default)]
pub struct Said<'v> {
    checks: Vec<(usize, &'v str, bool)>,
    refused: Vec<usize>,
    yielded: Option<(usize, Told)>,
    pins: Vec<(&'v str, Option<Digest>, &'v Value)>,
    drift: Vec<Drift>,
    repinned: Vec<Drift>,
    has_drift: bool,
    budget_us: Option<i64>,
}

fn entries<'v, T>(payload: &'v Value, name: &str, read: impl Fn(&'v Value) -> Option<T>) -> Option<Vec<T>> {
    match payload.get(name) {
        None => Some(vec![]),
        Some(list) => list.as_list()?.iter().map(read).collect(),
    }
}

fn step_seq(value: &Value) -> Option<usize> {
    usize::try_from(value.int("step_seq")?).ok()
}

fn drift(value: &Value) -> Option<Drift> {
    let shown = |name: &str| value.get(name).cloned();
    Some(Drift { pin: value.text("pin")?.to_owned(), pinned: shown("pinned")?, live: shown("live")? })
}

fn pin(value: &Value) -> Option<(&str, Option<Digest>, &Value)> {
    let digest = match value.given("digest") {
        None => None,
        Some(text) => Some(Digest::parse(text.as_text()?)?),
    };
    Some((value.text("pin")?, digest, value.get("value").unwrap_or(&Value::Null)))
}

impl<'v> Said<'v> {
    /// `None`: these members are not what they must be.
    pub fn read(payload: &'v Value, action: Action) -> Option<Said<'v>> {
        let yielded = match payload.get("yielded") {
            None if action == Action::StepYielded => return None,
            None => None,
            Some(yielded) => Some((step_seq(yielded)?, super::read::told(yielded, "output")??)),
        };
        let pins_looked_at = matches!(action, Action::PinsCaptured | Action::PinsSurveyed);
        if pins_looked_at && payload.int("step_seq").is_none() {
            return None;
        }
        Some(Said {
            checks: entries(payload, "checks", |c| Some((step_seq(c)?, c.text("name")?, c.get("held")?.as_bool()?)))?,
            refused: entries(payload, "refused", |r| super::read::told(r, "output")?.and(step_seq(r)))?,
            yielded,
            pins: entries(payload, "pins", pin)?,
            drift: entries(payload, "drift", drift)?,
            repinned: entries(payload, "repinned", drift)?,
            has_drift: payload.get("drift").is_some(),
            budget_us: match payload.get("budget_us") {
                None => None,
                Some(budget) => Some(budget.as_int()?),
            },
        })
    }
}

/// Whether what is shown can be what has that digest. How a text is written is known; of other values it is not.
fn shows(shown: &Value, digest: Option<Digest>) -> bool {
    match (shown, digest) {
        (Value::Null, None) => true,
        (_, None) => false,
        (Value::Text(text), Some(digest)) => {
            *text == format!("sha256:{digest}") || sha256(&[json::text(text).as_bytes()]) == digest
        }
        (_, Some(_)) => true,
    }
}

impl Run {
    /// When the definition and what was taken over are known.
    pub(super) fn begin_runbook(&mut self, header: &Header, payload: &Value, process: &Process, ctx: &mut Context<'_>) {
        let Some(workflow) = self.workflow.clone() else { return };
        let active = workflow.closed && guards(process, "resume");
        let dry = payload.get("dry_run").and_then(Value::as_bool).unwrap_or(false);
        self.book = Runbook { active, dry, checked: active, ..Runbook::default() };
        let bound = |spec: &StepSpec| spec.gate.is_some() || spec.run == "approval" || !spec.pins.is_empty();
        for (seq, spec) in workflow.steps.iter().enumerate() {
            if active && bound(spec) && self.steps.get(seq).is_some_and(|step| step.taken_over) {
                let detail = format!("step {seq} has a gate or pins, and is taken over from another run");
                ctx.findings.find(Code::RunbookViolation, header, detail);
            }
        }
    }

    /// One record, after its moves. `was` is where the run stood before; `unknown` the steps whose effect was.
    #[expect(clippy::too_many_arguments, reason = "what one record of a run is judged by")]
    pub(super) fn follow_runbook(
        &mut self,
        header: &Header,
        moves: &Moves<'_>,
        made: &[Made],
        was: &str,
        unknown: &[usize],
        process: &Process,
        ctx: &mut Context<'_>,
    ) {
        let Some(workflow) = self.workflow.clone() else { return };
        let mut found: Vec<(Code, String)> = Vec::new();
        self.judge_checks(moves, made, &workflow, &mut found);
        if self.book.active {
            self.judge_pins(header, moves, made, &workflow, &mut found);
            self.judge_claims(header, made, unknown, &workflow, &mut found);
            self.judge_caps(header, moves, made, &workflow, &mut found);
            self.judge_stop(moves, &mut found);
        }
        let voids_by_cancel = header.action == Action::RunVoided && !guards(process, "void");
        if let (true, Some(approval_id)) = (voids_by_cancel || header.action == Action::RunCancelled, moves.approval_id)
        {
            self.command.spends.push((super::gates::CANCEL.to_owned(), approval_id.to_owned()));
        }
        if matches!(header.action, Action::RunResumed | Action::RunVoided) {
            self.judge_approval(header, moves, was, unknown, (&workflow, process), &mut found);
        }
        self.tell_time(header, moves);
        for (code, detail) in found {
            ctx.findings.find(code, header, detail);
        }
    }

    fn judge_checks(
        &mut self,
        moves: &Moves<'_>,
        made: &[Made],
        workflow: &Rc<Workflow>,
        found: &mut Vec<(Code, String)>,
    ) {
        let said = &moves.book;
        self.book.checked |= !said.checks.is_empty();
        if !self.book.checked {
            return;
        }
        let of = |seq: usize| said.checks.iter().filter(move |(step, ..)| *step == seq);
        let mut violated = |detail: String| found.push((Code::RunbookViolation, detail));
        for Made { seq, id, to, .. } in made {
            let Some(spec) = workflow.steps.get(*seq).filter(|spec| !spec.checks.is_empty()) else { continue };
            if matches!(*id, "T7" | "T8" | "X13") {
                let held = of(*seq).map(|(_, name, held)| (*name, *held));
                if !held.eq(spec.checks.iter().map(|name| (name.as_str(), true))) {
                    violated(format!("step {seq} is completed, and a check of it is missing or does not hold"));
                }
            }
            let error = moves.errors.iter().find(|(step, _)| step == seq).and_then(|(_, failure)| failure.last_error);
            if *to == "failed" && error.is_some_and(|error| error.starts_with("CHECK_FAILED:")) {
                let first = of(*seq).find(|(_, _, held)| !held).map(|(_, name, _)| format!("CHECK_FAILED:{name}"));
                if first.as_deref() != error || !said.refused.contains(seq) {
                    let what = "fails for a check, and the record does not show which and what it refused";
                    violated(format!("step {seq} {what}"));
                }
            }
        }
        for (seq, name, _) in said.checks.iter().filter(|(_, _, held)| !held) {
            let over = |to: &str| to == "failed" || (to == "skipped" && !self.book.active);
            if !made.iter().any(|made| made.seq == *seq && over(made.to)) {
                violated(format!("the check `{name}` of step {seq} does not hold, and the step has not failed"));
            }
        }
    }

    fn judge_pins(
        &mut self,
        header: &Header,
        moves: &Moves<'_>,
        made: &[Made],
        workflow: &Rc<Workflow>,
        found: &mut Vec<(Code, String)>,
    ) {
        if let Some((seq, output)) = &moves.book.yielded {
            self.book.yielded.insert(*seq, output.clone());
        }
        match (header.action, moves.acted) {
            (Action::PinsCaptured, Some(seq)) => return self.book.capture(seq, &moves.book, workflow, found),
            (Action::PinsSurveyed, Some(seq)) => self.book.survey(seq, moves, found),
            _ => {}
        }
        let equal =
            |seq: usize| header.action == Action::PinsSurveyed && moves.acted == Some(seq) && !moves.book.has_drift;
        for Made { seq, id, to, .. } in made {
            let Some(spec) = workflow.steps.get(*seq) else { continue };
            if !self.book.pins.is_empty() && matches!(*id, "T1" | "X8r") && !equal(*seq) {
                let detail = format!("{id} of step {seq} without an equal survey in its record");
                found.push((Code::RunbookViolation, detail));
            }
            if *to != "completed" || spec.pins.is_empty() {
                continue;
            }
            if self.book.captured != Some(*seq) {
                let detail = format!("step {seq} has pins, and is completed without capturing them");
                found.push((Code::RunbookViolation, detail));
            }
            let output = self.steps.get(*seq).and_then(|step| step.output.as_ref());
            if let (Some(Told::Value(yielded)), Some(Told::Value(output))) = (self.book.yielded.remove(seq), output)
                && yielded != *output
            {
                found.push((Code::RunbookViolation, format!("the output of step {seq} is not what it yielded")));
            }
        }
    }

    fn judge_claims(
        &self,
        header: &Header,
        made: &[Made],
        unknown: &[usize],
        workflow: &Rc<Workflow>,
        found: &mut Vec<(Code, String)>,
    ) {
        let book = &self.book;
        let mut violated = |detail: String| found.push((Code::RunbookViolation, detail));
        for Made { seq, id, .. } in made {
            if matches!(*id, "T10" | "X4" | "X5" | "X12") {
                violated(format!("{id} of step {seq}: a runbook retries and skips nothing"));
            }
            let Some(spec) = workflow.steps.get(*seq).filter(|_| matches!(*id, "T2" | "X15")) else { continue };
            if !book.pins.is_empty() && !book.surveyed.contains(seq) {
                violated(format!("step {seq} began without a survey since the run was resumed"));
            }
            if unknown.contains(seq) {
                violated(format!("step {seq} began again while the effect of its last attempt was unknown"));
            }
            if workflow.hard_cap_us.is_some_and(|cap| book.executing(header.recorded_at_us) > cap) {
                violated(format!("step {seq} began past the hard cap"));
            }
            let reads = spec.read_only && spec.gate.is_none() && matches!(&*spec.run, "worker" | "shell" | "http");
            if book.dry && !reads {
                violated(format!("a dry run carries out step {seq}"));
            }
        }
    }

    fn judge_caps(
        &mut self,
        header: &Header,
        moves: &Moves<'_>,
        made: &[Made],
        workflow: &Rc<Workflow>,
        found: &mut Vec<(Code, String)>,
    ) {
        let at = header.recorded_at_us;
        let cap = |seq: usize| workflow.steps.get(seq).and_then(|spec| spec.soft_cap_us);
        let claimed = self.book.claimed.clone();
        let mut violated = |detail: String| found.push((Code::RunbookViolation, detail));
        for Made { seq, id, to, .. } in made {
            let late = self.book.claimed.get(seq).zip(cap(*seq)).is_some_and(|(since, cap)| at - since > cap);
            let exempt = header.action == Action::ChildEnded || self.book.captured == Some(*seq);
            match *id {
                "T2" | "X3" | "X15" => {
                    self.book.claimed.insert(*seq, at);
                }
                "T7" | "T8" if late && !exempt => violated(format!("step {seq} was completed past its soft cap")),
                _ => {}
            }
            if !matches!(*to, "in_progress" | "overdue" | "waiting" | "blocked") {
                self.book.claimed.remove(seq);
            }
        }
        if let (Action::StepYielded, Some((seq, _))) = (header.action, &moves.book.yielded)
            && claimed.get(seq).zip(cap(*seq)).is_some_and(|(since, cap)| at - since > cap)
        {
            violated(format!("step {seq} yielded past its soft cap"));
        }
        let over = claimed.iter().any(|(seq, since)| cap(*seq).is_some_and(|cap| at - since >= cap));
        for RunMove { id, to, trigger, .. } in &moves.run {
            let hard = workflow.hard_cap_us.is_some_and(|cap| self.book.executing(at) >= cap);
            match (*trigger, *to) {
                ("soft_cap", _) if !over => {
                    violated(format!("{id} before any step was at work as long as its soft cap"));
                }
                ("hard_cap", _) if !hard => violated(format!("{id} before the hard cap was reached")),
                (_, "compensating") => violated("a runbook is not undone".to_owned()),
                _ => {}
            }
        }
    }

    fn judge_stop(&self, moves: &Moves<'_>, found: &mut Vec<(Code, String)>) {
        for RunMove { trigger, .. } in moves.run.iter().filter(|made| made.to == "stopped") {
            let outcome = if *trigger == "workflow_stop" { "operator" } else { trigger };
            if moves.outcome != Some(outcome) {
                let said = moves.outcome.unwrap_or("none");
                found.push((Code::RunbookViolation, format!("stopped by {trigger}, with the outcome {said}")));
            }
            if self.book.dry {
                found.push((Code::RunbookViolation, "a dry run stops, and does not fail".to_owned()));
            }
        }
    }

    fn judge_approval(
        &mut self,
        header: &Header,
        moves: &Moves<'_>,
        was: &str,
        unknown: &[usize],
        (workflow, process): (&Rc<Workflow>, &Process),
        found: &mut Vec<(Code, String)>,
    ) {
        let resumes = header.action == Action::RunResumed;
        let action = if resumes { "resume" } else { "void" };
        if let (true, true, Some(seq)) = (self.book.active, resumes, unknown.first()) {
            found.push((Code::RunbookViolation, format!("resumed while the effect of step {seq} was unknown")));
        }
        if guards(process, action) && (!resumes || was == "stopped") {
            let named = moves.approval_id.and_then(Id::parse);
            let gate = process
                .gates
                .iter()
                .find(|gate| &*gate.action == action && gate.steps.iter().any(|step| Some(step.step_id) == named));
            let earlier = |at: i64| resumes && self.book.stopped_at.is_some_and(|stopped| at < stopped);
            if gate.is_none_or(|gate| earlier(gate.opened_at_us)) {
                let detail = format!("{} without an approval of its own", header.action.as_str());
                found.push((Code::GateNotApproved, detail));
            }
            if let Some(approval_id) = moves.approval_id {
                self.command.spends.push((action.to_owned(), approval_id.to_owned()));
            }
        }
        if !resumes {
            return;
        }
        self.command.repinned |= !moves.book.repinned.is_empty();
        let book = &mut self.book;
        let mut due = if was == "stopped" { book.drift.clone() } else { vec![] };
        due.retain(|drift| drift.live != Value::Null);
        if book.active && moves.book.repinned != due {
            let detail = "what is pinned anew is not what the approval of the stop shows";
            found.push((Code::GateNotApproved, detail.to_owned()));
        }
        book.before_resume.clear();
        for (name, digest) in book.pins.iter_mut().filter(|(name, _)| due.iter().any(|drift| drift.pin == *name)) {
            book.before_resume.insert(name.clone(), *digest);
            *digest = book.live.get(name).copied().unwrap_or(*digest);
        }
        book.surveyed.clear();
        let budget = workflow.hard_cap_us.filter(|_| moves.approval_id.is_some());
        if book.active && moves.book.budget_us != budget {
            let detail = "budget_us is not the hard cap that an approval gives once more";
            found.push((Code::RunbookViolation, detail.to_owned()));
        }
    }

    fn tell_time(&mut self, header: &Header, moves: &Moves<'_>) {
        let (at, book) = (header.recorded_at_us, &mut self.book);
        for RunMove { from, to, .. } in &moves.run {
            if *from == "executing" {
                book.executed_us = book.executing(at);
                book.executing_from = None;
            }
            match *to {
                "executing" => book.executing_from = Some(at),
                "stopped" => {
                    book.stopped_at = Some(at);
                    book.drift.clone_from(&moves.book.drift);
                }
                _ => {}
            }
        }
        if moves.book.budget_us.is_some() {
            book.executed_us = 0;
            book.executing_from = book.executing_from.map(|_| at);
        }
    }

    pub(super) fn is_dry(&self) -> bool {
        self.book.dry
    }

    pub(super) fn is_runbook(&self) -> bool {
        self.book.active
    }

    pub(super) fn has_captured(&self, seq: usize) -> bool {
        self.book.captured == Some(seq)
    }

    /// Pins are captured for a step that completes with them.
    pub(super) fn end_capture(&mut self) -> Option<usize> {
        let captured = self.book.captured.take().filter(|_| self.book.active)?;
        let open = self.steps.get(captured).is_some_and(|step| step.state != "completed");
        open.then_some(captured)
    }
}

impl Runbook {
    fn executing(&self, at: i64) -> i64 {
        self.executed_us + self.executing_from.map_or(0, |since| at - since)
    }

    fn pinned(&self, name: &str) -> Option<Digest> {
        self.pins.iter().find(|(pin, _)| pin == name).map(|(_, digest)| *digest)
    }

    fn capture(&mut self, seq: usize, said: &Said<'_>, workflow: &Workflow, found: &mut Vec<(Code, String)>) {
        let mut names: Vec<&str> = said.pins.iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        let mut due: Vec<&str> =
            workflow.steps.get(seq).map_or(vec![], |spec| spec.pins.iter().map(String::as_str).collect());
        due.sort_unstable();
        if names != due || !self.yielded.contains_key(&seq) {
            let detail = "the pins captured are not those of a step that has yielded";
            found.push((Code::RunbookViolation, detail.to_owned()));
        }
        for (name, digest, value) in &said.pins {
            if digest.is_none() || !shows(value, *digest) {
                let detail = format!("the pin `{}` is captured without the digest of its value", json::shortened(name));
                found.push((Code::RunbookViolation, detail));
            }
            let digest = digest.unwrap_or(Digest::ZERO);
            match self.pins.iter_mut().find(|(pin, _)| pin == name) {
                Some((_, pinned)) => *pinned = digest,
                None => self.pins.push(((*name).to_owned(), digest)),
            }
        }
        self.captured = Some(seq);
    }

    fn survey(&mut self, seq: usize, moves: &Moves<'_>, found: &mut Vec<(Code, String)>) {
        let said = &moves.book;
        let mut violated = |detail: &str| found.push((Code::RunbookViolation, detail.to_owned()));
        if !said.pins.iter().map(|(name, ..)| *name).eq(self.pins.iter().map(|(name, _)| name.as_str())) {
            violated("a survey does not look at every pin of the run");
        }
        let mut differ: Vec<(&str, Option<Digest>)> = Vec::new();
        for (name, digest, _) in &said.pins {
            // The world may have gone back to what was pinned before.
            if digest.is_some() && self.before_resume.get(*name) == digest.as_ref() {
                let pins = self.pins.iter_mut().filter(|(pin, _)| pin == name);
                pins.for_each(|(_, pinned)| *pinned = digest.unwrap_or(*pinned));
            }
            if digest.is_none() || self.pinned(name) != *digest {
                differ.push((name, *digest));
            }
        }
        let shown = |(drift, (name, digest)): (&Drift, &(&str, Option<Digest>))| {
            shows(&drift.live, *digest) && shows(&drift.pinned, self.pinned(name))
        };
        if !said.drift.iter().map(|drift| drift.pin.as_str()).eq(differ.iter().map(|(name, _)| *name)) {
            violated("drift does not list exactly the pins that differ");
        } else if !said.drift.iter().zip(&differ).all(shown) {
            violated("drift does not show the values that the survey found");
        }
        let stops = moves.run.iter().any(|made| made.to == "stopped" || self.dry && made.to == "failed");
        if stops == differ.is_empty() {
            violated("a run stops where its pins differ, and nowhere else");
        }
        self.before_resume.clear();
        self.live = differ.iter().filter_map(|(name, digest)| Some(((*name).to_owned(), (*digest)?))).collect();
        if differ.is_empty() {
            self.surveyed.insert(seq);
        }
    }
}

pub(super) fn guards(process: &Process, action: &str) -> bool {
    process.declaration.as_ref().is_some_and(|declaration| declaration.transition("run", action).is_some())
}
