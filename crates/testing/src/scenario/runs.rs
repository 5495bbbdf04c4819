//! The words for runs: what workers, senders of events and operators do, and what is said of a run afterwards.

use super::parse::Words;
use super::{Act, Expected, StepName, Target, retention};
use crate::drive::{Acting, Addressed, Control, LEASE_US, Report, RunStart, SentEvent};
use countersign_kernel::process::Decision;
use countersign_kernel::refusal::Code;
use serde_json::{Map, Value};

/// What is done with runs. Runs are named, not yet found.
#[derive(Clone, Debug)]
pub enum RunAct {
    Start {
        name: String,
        start: RunStart,
    },
    Claim {
        queue: String,
        max: u32,
        lease_us: i64,
    },
    Report {
        run: String,
        step: String,
        lease: LeaseName,
        report: Report,
    },
    Send {
        event: SentEvent,
    },
    Control {
        run: String,
        control: Control,
    },
    OnStep {
        run: String,
        acting: Acting,
    },
    /// What a control, or the report of a task, would come to.
    Preview(Box<RunAct>),
    Open {
        on: Target,
        name: Option<String>,
    },
    Decide {
        on: Target,
        decision: Decision,
    },
    Read {
        run: String,
    },
}

/// Which of the leases that a step had.
#[derive(Clone, Debug)]
pub enum LeaseName {
    First,
    Last,
    Text(String),
}

/// A task as far as a scenario describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskLine {
    pub run: Option<String>,
    pub step: String,
    pub attempt: Option<u32>,
    pub task_type: Option<String>,
    pub input: Option<Value>,
}

#[derive(Clone, Debug)]
pub enum RunCheck {
    Run {
        run: String,
        state: String,
        members: Vec<(String, Wanted)>,
    },
    Step {
        run: String,
        step: String,
        state: String,
        members: Vec<(String, Wanted)>,
    },
    /// (name, state_code) of all, compensations as `undo:NAME`.
    Steps {
        run: String,
        steps: Vec<(String, String)>,
    },
    /// The transitions of a record, `None` the last: those of steps, then those of the run.
    Fires {
        run: String,
        number: Option<u64>,
        ids: Vec<String>,
    },
}

#[derive(Clone, Debug)]
pub enum Wanted {
    Absent,
    Text(String),
    Json(Value),
    /// So long after the last record of the run.
    After(i64),
}

impl RunAct {
    /// What it is called where every code of an action must have its scenario.
    pub const fn name(&self) -> &'static str {
        match self {
            RunAct::Start { .. } => "starts run",
            RunAct::Claim { .. } => "claims",
            RunAct::Report { report, .. } => match report {
                Report::Complete { .. } => "completes",
                Report::Wait { .. } => "waits",
                Report::Retry { .. } => "retries",
                Report::Dead { .. } => "dies",
                Report::CannotComplete { .. } => "despairs",
                Report::Block { .. } => "blocks",
                Report::Beat { .. } => "beats",
            },
            RunAct::Send { .. } => "sends",
            RunAct::Control { control, .. } => match control {
                Control::Run { action, .. } => action,
                Control::Unblock { .. } => "unblocks",
                Control::Declare { .. } => "declares",
            },
            RunAct::OnStep { .. } | RunAct::Preview(_) => "acts",
            RunAct::Open { .. } => "opens run gate",
            RunAct::Decide { .. } => "decides run gate",
            RunAct::Read { .. } => "reads run",
        }
    }
}

type Named<'a> = &'a dyn Fn(&mut Words) -> Result<String, String>;

/// The rest of a line that begins with WHO and this verb; `None` where the verb is not ours.
pub(super) fn act(verb: &str, words: &mut Words, run: Named<'_>) -> Result<Option<Act>, String> {
    let act = match verb {
        "starts" if words.skip("run") => start(words, run)?,
        "claims" => {
            let max = match words.peek() {
                Some("from") => 1,
                _ => words.text("how many")?.parse().map_err(|_| "how many is a number")?,
            };
            words.expect("from")?;
            let queue = words.text("the queue")?;
            RunAct::Claim { queue, max, lease_us: lease(words)? }
        }
        "completes" | "waits" | "retries" | "dies" | "despairs" | "blocks" | "beats" => report(verb, words, run)?,
        "sends" => send(words, run)?,
        "previews" if words.skip("that") => {
            words.expect("it")?;
            let verb = words.text("what it does")?;
            match act(&verb, words, run)? {
                Some(Act::Run(act)) if matches!(*act, RunAct::Control { .. } | RunAct::Report { .. }) => {
                    RunAct::Preview(act)
                }
                _ => return Err(format!("`{verb}` has no preview")),
            }
        }
        "acts" | "previews" => on_step(verb == "previews", words, run)?,
        "pauses" => control("pause", words, run)?,
        "resumes" => control("resume", words, run)?,
        "cancels" => control("cancel", words, run)?,
        "stops" => control("stop", words, run)?,
        "voids" => control("void", words, run)?,
        "unblocks" => {
            let (run, step) = (run(words)?, words.text("the step")?);
            let evidence_ref = words.optional("showing")?;
            RunAct::Control {
                run,
                control: Control::Unblock { step, evidence_ref, reason: words.optional("because")? },
            }
        }
        "declares" => {
            let (run, step) = (run(words)?, words.text("the step")?);
            let done = match words.text("`done` or `not-done`")?.as_str() {
                "done" => true,
                "not-done" => false,
                other => return Err(format!("expected `done` or `not-done`, found `{other}`")),
            };
            let output = words.optional("with")?;
            let reason = words.optional("because")?.unwrap_or_default();
            RunAct::Control { run, control: Control::Declare { step, done, output, reason } }
        }
        _ => return Ok(None),
    };
    Ok(Some(Act::Run(Box::new(act))))
}

/// A gate of a run is opened, decided or read like that of a process.
pub(super) fn of_process(act: Act, is_run: impl Fn(&str) -> bool) -> Result<Act, String> {
    let run = match act {
        Act::Open { on, name } if is_run(&on.process) => RunAct::Open { on, name },
        Act::Decide { on, decision, step } if is_run(&on.process) => match step {
            None => RunAct::Decide { on, decision },
            Some(StepName { gate, .. }) => return Err(format!("`step {gate}`: name the gate's action alone")),
        },
        Act::Read { process } if is_run(&process) => RunAct::Read { run: process },
        other => return Ok(other),
    };
    Ok(Act::Run(Box::new(run)))
}

/// `R of order-process [for SUBJECT] [priority 9] [in 1h] [corrects R0] [from R0 SHIP] [dry] [with {…}]`.
fn start(words: &mut Words, run: Named<'_>) -> Result<RunAct, String> {
    let name = words.text("a name for the run")?;
    words.expect("of")?;
    let mut start = RunStart { definition: words.text("the definition")?, ..RunStart::default() };
    start.subject_ref = words.optional("for")?;
    start.priority = number(words.optional("priority")?)?;
    start.start_in_us = length(words.optional("in")?)?;
    if words.skip("corrects") {
        start.corrects = Some(run(words)?);
    }
    if words.skip("from") {
        start.from_step = Some((run(words)?, words.text("the step")?));
    }
    start.dry_run = words.skip("dry");
    start.input = words.optional("with")?;
    Ok(RunAct::Start { name, start })
}

fn number<T: std::str::FromStr>(text: Option<String>) -> Result<Option<T>, String> {
    text.map(|text| text.parse().map_err(|_| format!("`{text}` is no number here"))).transpose()
}

fn length(text: Option<String>) -> Result<Option<i64>, String> {
    text.as_deref().map(retention::length).transpose()
}

/// `[for 30s]`
fn lease(words: &mut Words) -> Result<i64, String> {
    Ok(length(words.optional("for")?)?.unwrap_or(LEASE_US))
}

fn report(verb: &str, words: &mut Words, run: Named<'_>) -> Result<RunAct, String> {
    let (run, step) = (run(words)?, words.text("the step")?);
    let mut report = match verb {
        "completes" => {
            Report::Complete { output: words.optional("with")?, sending: words.optional("sending")?, claim_next: false }
        }
        "waits" => {
            let event_type = if words.skip("for") {
                words.expect("event")?;
                Some(words.text("the event's type")?)
            } else {
                None
            };
            let timeout_us = length(words.optional("within")?)?;
            Report::Wait { event_type, timeout_us, facet: words.optional("as")?, sending: words.optional("sending")? }
        }
        "retries" => {
            let error = words.optional("because")?.unwrap_or_default();
            let backoff_us = length(words.optional("after")?)?;
            Report::Retry { error, backoff_us, category: words.optional("category")? }
        }
        "dies" => {
            let error = words.optional("because")?.unwrap_or_default();
            Report::Dead { error, category: words.optional("category")? }
        }
        "despairs" => Report::CannotComplete { evidence: words.optional("because")? },
        "blocks" => Report::Block { reason: words.optional("because")? },
        _ => Report::Beat { lease_us: lease(words)? },
    };
    let mut lease = LeaseName::Last;
    if words.skip("under") {
        lease = if words.skip("its") {
            words.expect("first")?;
            words.expect("lease")?;
            LeaseName::First
        } else {
            words.expect("lease")?;
            LeaseName::Text(words.text("the token")?)
        };
    }
    if let Report::Complete { claim_next, .. } = &mut report
        && words.skip("and")
    {
        words.expect("claims")?;
        *claim_next = true;
    }
    Ok(RunAct::Report { run, step, lease, report })
}

/// `e1 payment.captured to R [with {…}]`, `… to key order-1`.
fn send(words: &mut Words, run: Named<'_>) -> Result<RunAct, String> {
    let (id, event_type) = (words.text("the event's id")?, words.text("its type")?);
    words.expect("to")?;
    let to = if words.skip("key") { Addressed::Key(words.text("the key")?) } else { Addressed::Run(run(words)?) };
    let data = words.optional("with")?;
    Ok(RunAct::Send { event: SentEvent { id, event_type, to, data } })
}

/// `claim on R STEP [with {…}] [in 2h] [because "…"]`: the last word of the route, and the members of the body.
fn on_step(preview: bool, words: &mut Words, run: Named<'_>) -> Result<RunAct, String> {
    let act = words.text("what is done")?;
    words.expect("on")?;
    let (run, step) = (run(words)?, words.text("the step")?);
    let mut body = match words.optional("with")?.map(|text| json(&text)).transpose()? {
        None => Map::new(),
        Some(Value::Object(body)) => body,
        Some(other) => return Err(format!("{other} is no object")),
    };
    let deadline_in_us = length(words.optional("in")?)?;
    body.extend(words.optional("because")?.map(|reason| ("reason".to_owned(), reason.into())));
    Ok(RunAct::OnStep { run, acting: Acting { act, step, body, deadline_in_us, preview } })
}

fn control(action: &'static str, words: &mut Words, run: Named<'_>) -> Result<RunAct, String> {
    let run = run(words)?;
    let approval_id = words.optional("approval")?;
    let compensate = words.skip("undoing");
    let reason = words.optional("because")?;
    Ok(RunAct::Control { run, control: Control::Run { action, approval_id, reason, compensate } })
}

pub(super) fn expected(words: &mut Words, act: &RunAct) -> Result<Expected, String> {
    if let Some(code) = words.peek().and_then(Code::parse) {
        words.text("the code")?;
        return Ok(Expected::Refused { code, at: words.optional("at")?, guard: words.optional("guard")? });
    }
    match act {
        RunAct::Start { .. } | RunAct::Open { .. } | RunAct::Read { .. } => {
            words.expect("ok")?;
            Ok(Expected::Ok)
        }
        RunAct::Claim { .. } => {
            let mut tasks = vec![];
            while !words.skip("nothing") && words.peek().is_some() {
                tasks.push(task(words)?);
            }
            Ok(Expected::Tasks(tasks))
        }
        RunAct::Report { .. } => {
            let state = words.text("the step's state")?;
            let next = if words.skip("then") { Some(task(words)?) } else { None };
            Ok(Expected::Reported { state, next })
        }
        RunAct::Send { .. } => match words.text("`woke`, `nothing` or `duplicate`")?.as_str() {
            "duplicate" => Ok(Expected::Woke { duplicate: true, steps: vec![] }),
            "nothing" => Ok(Expected::Woke { duplicate: false, steps: vec![] }),
            "woke" => {
                let mut steps = vec![];
                while words.peek().is_some() {
                    steps.push(words.text("a step")?);
                }
                Ok(Expected::Woke { duplicate: false, steps })
            }
            other => Err(format!("`{other}` cannot come of an event")),
        },
        RunAct::OnStep { .. } | RunAct::Preview(_) => {
            let mut said = words.text("the step's state, or what would happen")?;
            if said == "refused" {
                said = format!("{said} {}", words.text("the guard or code")?);
                while words.skip("and") {
                    said = format!("{said} and {}", words.text("the guard or code")?);
                }
            }
            Ok(Expected::NewState(said))
        }
        RunAct::Control { .. } => Ok(Expected::NewState(words.text("the run's state")?)),
        RunAct::Decide { .. } => {
            Ok(Expected::Decided { outcome: words.text("the outcome")?, chain_state: words.optional("chain")? })
        }
    }
}

/// `[R/]STEP [attempt 2] [WAITING_TIMEOUT] [with {…}]`.
fn task(words: &mut Words) -> Result<TaskLine, String> {
    let step = words.text("the step")?;
    let (run, step) = match step.split_once('/') {
        Some((run, step)) => (Some(run.to_owned()), step.to_owned()),
        None => (None, step),
    };
    let attempt = number(words.optional("attempt")?)?;
    let task_type = match words.peek() {
        Some(word @ ("READY_STEP" | "WAITING_TIMEOUT" | "COMPENSATION" | "SURVEY")) => Some(word.to_owned()),
        _ => None,
    };
    if task_type.is_some() {
        words.text("the task type")?;
    }
    let input = words.optional("with")?.map(|text| json(&text)).transpose()?;
    Ok(TaskLine { run, step, attempt, task_type, input })
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("`{text}` is no JSON: {error}"))
}

/// What follows `run`, `steps`, or `step` and a run's name.
pub(super) fn check(subject: &str, words: &mut Words, run: Named<'_>) -> Result<RunCheck, String> {
    let run = run(words)?;
    match subject {
        "steps" => {
            words.expect("are")?;
            let mut steps = vec![];
            while words.peek().is_some() {
                let word = words.text("a step")?;
                let (name, state) = word.rsplit_once('/').ok_or("a step is NAME/STATE")?;
                steps.push((name.to_owned(), state.to_owned()));
            }
            Ok(RunCheck::Steps { run, steps })
        }
        "step" => {
            let step = words.text("the step")?;
            words.expect("is")?;
            let state = words.text("its state")?;
            Ok(RunCheck::Step { run, step, state, members: members(words)? })
        }
        _ => {
            words.expect("is")?;
            let state = words.text("its state")?;
            Ok(RunCheck::Run { run, state, members: members(words)? })
        }
    }
}

fn members(words: &mut Words) -> Result<Vec<(String, Wanted)>, String> {
    let mut members = vec![];
    while words.peek().is_some() {
        let name = words.text("a member")?;
        let word = words.take("its value")?;
        let wanted = match word.text.as_str() {
            "none" if !word.quoted => Wanted::Absent,
            "now" if !word.quoted => Wanted::After(0),
            "in" if !word.quoted => Wanted::After(retention::length(&words.text("how long")?)?),
            text if text.starts_with('{') => Wanted::Json(json(text)?),
            text => Wanted::Text(text.to_owned()),
        };
        members.push((name, wanted));
    }
    Ok(members)
}

/// `fires T8 T1 R4`
pub(super) fn fires(words: &mut Words, run: String, number: Option<u64>) -> Result<RunCheck, String> {
    let mut ids = vec![];
    while words.peek().is_some() {
        ids.push(words.text("a transition")?);
    }
    Ok(RunCheck::Fires { run, number, ids })
}
