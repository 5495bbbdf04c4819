//! What a runbook's run keeps besides (ADR 34): its pins and the survey that is pending, how much of its caps is used, what
//! made it stop, and what its steps left to be shown.

use super::{Cell, Run};
use crate::Time;
use crate::id::StepId;
use crate::lifecycle::{RunState, StepCode};
use crate::plan::{Micros, PinSpec, Plan, StepSeq, Work};
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

/// Where the engine's own executor claims surveys. No definition can name it: a name has no `@`.
pub const SURVEY_QUEUE: &str = "@survey";
/// How long a probe may take that says nothing else.
pub const PROBE_TIMEOUT: Micros = 30_000_000;
/// What whoever looks has besides, to say what was found.
const GRACE: Micros = 5_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runbook {
    /// Only what is `readOnly` is carried out.
    pub dry_run: bool,
    /// In the order of their first capture.
    pub pins: Vec<Pin>,
    pub survey: Option<Survey>,
    /// The lease under which a survey was answered last: who repeats the answer is answered as before.
    pub answered: Option<Uuid>,
    /// What made it stop last, where that was drift.
    pub drift: Vec<Drift>,
    /// Why pins had no value when they were last looked at.
    pub unseen: Vec<(Arc<str>, Arc<str>)>,
    /// Executing time that is used, but for what passed since `since`.
    pub used: Micros,
    pub since: Option<Time>,
    /// The step that is under way, and when it was claimed.
    pub claimed: Option<(StepSeq, Time)>,
    /// The last verdicts of each step that has checks.
    pub checks: Vec<(StepSeq, Vec<Verdict>)>,
    pub artifacts: Vec<(StepSeq, Artifact)>,
}

/// What was found of a pin: its value (JSON text), or that there is none.
pub type Found = (Arc<str>, Option<Arc<str>>);
/// A pin and the value that was captured.
pub type Captured = (Arc<str>, Arc<str>);

/// A value that the world had when a step completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub name: Arc<str>,
    /// The step that captured it last.
    pub step_seq: StepSeq,
    /// JSON text.
    pub value: Arc<str>,
    /// Until the next survey: what it was before it was pinned anew. The world may have come back.
    pub before: Option<Arc<str>>,
}

/// Pins are being looked at. Nothing else of the run is claimable meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    pub step_seq: StepSeq,
    pub aim: Aim,
    /// What was answered so far, in the order of the answers: the pin and its value, or that there is none.
    pub found: Vec<Found>,
    pub offered_at: Time,
    pub lease: Option<(Uuid, Time)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Whether the step may begin, or go on after a resume.
    Begin,
    /// The step's work is done, and these are its own pins.
    Capture {
        output: Arc<str>,
        artifacts: Vec<Artifact>,
        /// Somebody declared that it was done.
        declared: bool,
    },
}

/// A pin that is not as it was. JSON texts; `live` is nothing where the probe gave nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    pub pin: Arc<str>,
    pub pinned: Arc<str>,
    pub live: Option<Arc<str>>,
}

/// How a check held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub name: Arc<str>,
    pub held: bool,
}

/// A file that a step left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Relative to the step's working directory.
    pub path: Arc<str>,
    pub sha256: crate::Digest,
    pub size_bytes: u64,
}

/// One shell or http pin to look at, with every `${…}` filled in.
#[derive(Clone, PartialEq, Eq)]
pub struct Probe {
    pub pin: Arc<str>,
    pub work: Work,
    /// As in [`super::Job`]; or why there is nothing to look with, and so no value.
    pub filled: Result<Vec<Option<Arc<str>>>, String>,
    pub timeout: Micros,
    /// As in [`super::Job`].
    pub secrets: Vec<Arc<str>>,
}

impl fmt::Debug for Probe {
    /// What was filled in may hold secrets and is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("pin", &self.pin).field("work", &self.work).finish_non_exhaustive()
    }
}

/// What a record says of all this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    pub checks: Vec<(StepSeq, Vec<Verdict>)>,
    /// Outputs that were not accepted.
    pub refused: Vec<(StepSeq, Arc<str>)>,
    pub artifacts: Vec<(StepSeq, Artifact)>,
    /// The work of a step is done, and its pins are to be captured.
    pub yielded: Option<(StepSeq, Arc<str>)>,
    pub captured: Option<(StepSeq, Vec<Captured>)>,
    pub surveyed: Option<(StepSeq, Vec<Found>)>,
    pub drift: Vec<Drift>,
    pub approval_id: Option<StepId>,
    pub repinned: Vec<Drift>,
    pub budget: Option<Micros>,
    /// What a cancelled run completed is undone first.
    pub compensate: bool,
}

/// What is asked of one executor at a time.
pub struct Part<'p> {
    pub queue: Arc<str>,
    pub pins: Vec<&'p PinSpec>,
}

impl Part<'_> {
    /// They are looked at side by side.
    fn timeout(&self) -> Micros {
        self.pins.iter().map(|pin| pin.timeout).max().unwrap_or(PROBE_TIMEOUT)
    }

    /// Until when an answer counts that is claimed now.
    pub fn answer_by(&self, now: Time) -> Time {
        let grace = if &*self.queue == SURVEY_QUEUE { GRACE } else { 0 };
        now.after(self.timeout().saturating_add(grace))
    }
}

impl Runbook {
    /// Executing time that is used by now.
    pub fn used_at(&self, now: Time) -> Micros {
        self.used.saturating_add(self.since.map_or(0, |since| now.0.saturating_sub(since.0).max(0)))
    }

    /// The pins that this survey looks at, in order.
    pub fn asked<'p>(&self, plan: &'p Plan, survey: &Survey) -> Vec<&'p PinSpec> {
        match survey.aim {
            Aim::Capture { .. } => plan.step(survey.step_seq).map_or(vec![], |spec| spec.pins.iter().collect()),
            Aim::Begin => {
                let spec = |pin: &Pin| plan.step(pin.step_seq)?.pins.iter().find(|spec| spec.name == pin.name);
                self.pins.iter().filter_map(spec).collect()
            }
        }
    }

    /// Shell and http pins together, then each worker's pin.
    pub fn part<'p>(&self, plan: &'p Plan, survey: &Survey) -> Option<Part<'p>> {
        let answered = |pin: &PinSpec| survey.found.iter().any(|(name, _)| *name == pin.name);
        let open: Vec<&PinSpec> = self.asked(plan, survey).into_iter().filter(|pin| !answered(pin)).collect();
        let (workers, own): (Vec<_>, Vec<_>) = open.into_iter().partition(|pin| matches!(pin.work, Work::Worker));
        if !own.is_empty() {
            return Some(Part { queue: SURVEY_QUEUE.into(), pins: own });
        }
        let first = workers.into_iter().next()?;
        Some(Part { queue: first.queue.clone(), pins: vec![first] })
    }

    /// The run's pins as expressions see them.
    pub fn pins_json(&self, shown: impl Fn(&str) -> Arc<str>) -> String {
        let pin = |pin: &Pin| format!("{}:{}", crate::text::json_string(&pin.name), shown(&pin.value));
        format!("{{{}}}", self.pins.iter().map(pin).collect::<Vec<_>>().join(","))
    }
}

impl Survey {
    pub const fn captures(&self) -> bool {
        matches!(self.aim, Aim::Capture { .. })
    }
}

impl Run {
    pub fn runbook(&self) -> Option<&Runbook> {
        self.head.runbook.as_deref()
    }

    /// The survey that is pending for this step.
    pub fn survey_of(&self, seq: StepSeq) -> Option<&Survey> {
        self.runbook()?.survey.as_ref().filter(|survey| survey.step_seq == seq)
    }

    /// Whether pins are being looked at before something begins: nothing else is handed out.
    pub fn is_surveyed(&self) -> bool {
        self.runbook().and_then(|book| book.survey.as_ref()).is_some_and(|survey| !survey.captures())
    }

    /// From where and since when the survey of this step may be claimed, and when it is too late.
    pub(super) fn survey_agenda(&self, seq: StepSeq) -> Option<(Option<super::Claim>, Time)> {
        let survey = self.survey_of(seq)?;
        let part = self.runbook()?.part(&self.plan, survey)?;
        match survey.lease {
            Some((_, until)) => Some((None, until.after(1))),
            None => {
                let claim =
                    super::Claim { at: survey.offered_at, queue: part.queue.clone(), priority: self.head.priority };
                Some((Some(claim), survey.offered_at.after(part.timeout())))
            }
        }
    }

    /// When the step has been under way for as long as it may.
    pub fn soft_cap_at(&self, seq: StepSeq, cell: &Cell) -> Option<Time> {
        let (claimed, at) = self.runbook()?.claimed?;
        let under_way = cell.is_held() || cell.state == StepCode::Waiting;
        let cap = self.plan.step(seq)?.soft_cap.filter(|_| claimed == seq && under_way)?;
        Some(at.after(cap))
    }

    /// A runbook that was stopped: nothing of it goes on, and its children are its work.
    pub fn stands_still(&self) -> bool {
        self.runbook().is_some() && self.head.state == RunState::Stopped
    }

    /// When the run has executed for as long as it may.
    pub fn hard_cap_at(&self) -> Option<Time> {
        let book = self.runbook()?;
        let cap = self.plan.hard_cap.filter(|_| self.head.state == RunState::Executing)?;
        Some(book.since?.after(cap.saturating_sub(book.used)))
    }

    /// What the clock and workers may have to do with: what is under way, and the step before which pins are looked at.
    pub fn on_agenda(&self) -> impl Iterator<Item = StepSeq> {
        let surveyed = self.runbook().and_then(|book| book.survey.as_ref()).map(|survey| survey.step_seq);
        self.live.iter().copied().chain(surveyed.filter(|seq| !self.live.contains(seq)))
    }
}

impl Runbook {
    /// What the run is called. A stop by drift has made the gate of its step moot: it waits no more.
    pub fn phase(&self, plan: &Plan, codes: &[StepCode]) -> Arc<str> {
        if self.drift.is_empty() { phase(plan, codes) } else { reached(plan, codes) }
    }
}

/// What a runbook's run is called by the last step that it has completed, or the gate that it waits at. `codes` are the states
/// of its steps.
pub fn phase(plan: &Plan, codes: &[StepCode]) -> Arc<str> {
    let waits = |spec: &crate::plan::StepSpec| match (&spec.work, &spec.gate) {
        (Work::Approval(_), _) => Some(format!("awaiting_approval:{}", spec.name).into()),
        (_, Some(label)) => Some(format!("awaiting_{label}").into()),
        (_, None) => None,
    };
    let blocked = plan.steps.iter().zip(codes).find(|(_, code)| **code == StepCode::Blocked);
    blocked.and_then(|(spec, _)| waits(spec)).unwrap_or_else(|| reached(plan, codes))
}

fn reached(plan: &Plan, codes: &[StepCode]) -> Arc<str> {
    let mut ended = plan.steps.iter().zip(codes).rev().filter(|(_, code)| **code == StepCode::Completed);
    ended.find_map(|(spec, _)| spec.phase.clone()).unwrap_or_else(|| "pending".into())
}
