//! What a run and each of its steps did: who did what and when, with which input and output. Gathered record by record, in the words
//! of `spec/run.md`. Nothing here is judged.

use crate::identity::Signing;
use crate::json::Value;
use crate::process::Process;
use crate::record::{Action, Assurance, Record};
use crate::registry::Registry;
use crate::run::Run;
use crate::run::read::{Ranges, Told};
use std::collections::BTreeMap;

/// A report is for people: nobody reads further. What is left out is counted.
const MOST_STEPS: usize = 2_000;
const MOST_ACTS: usize = 24;
const MOST_VALUES: usize = 4;
/// Of one value, and of all values of a report.
const MOST_CHARS: usize = 4_000;
const MOST_BYTES: usize = 4 << 20;

/// A run, for the report.
#[derive(Clone, Debug, Default)]
pub struct RunSummary {
    pub state: &'static str,
    pub outcome: Option<String>,
    pub last_error: Option<String>,
    /// Name and value, in the order in which people ask.
    pub facts: Vec<(&'static str, String)>,
    pub input: Option<String>,
    pub output: Option<String>,
    pub steps: Vec<RunStep>,
    pub left_out: usize,
    /// From some record on it could not be followed.
    pub lost: bool,
    /// The actor that signs for the engine.
    pub engine: Option<String>,
    pub linear: bool,
    /// Steps of the definition: places in `steps`, each behind those that it depends on.
    pub planned: usize,
    pub edges: Vec<(usize, usize)>,
}

/// A step, a task or a compensation.
#[derive(Clone, Debug)]
pub struct RunStep {
    pub name: String,
    /// Who or what carries it out; of a compensation or a task, that it is one.
    pub kind: String,
    pub gate: Option<String>,
    /// What this undoes; or the compensations of this step.
    pub undoes: Option<usize>,
    pub undone_by: Option<usize>,
    pub state: &'static str,
    /// It ended in an earlier run, which this one continues.
    pub taken_over: bool,
    /// In charge of it, and until when.
    pub pic: Option<String>,
    pub deadline_us: Option<i64>,
    /// When its work began for the first time, and when it was completed.
    pub began_at_us: Option<i64>,
    pub completed_at_us: Option<i64>,
    pub failed_attempts: i64,
    pub last_error: Option<String>,
    /// The run that it is.
    pub child: Option<String>,
    pub log: StepLog,
}

/// What the records say of one step.
#[derive(Clone, Debug, Default)]
pub struct StepLog {
    pub acts: Vec<Act>,
    pub acts_left_out: usize,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub values_left_out: usize,
}

/// One transition of a step.
#[derive(Clone, Debug)]
pub struct Act {
    pub at_us: i64,
    /// Of `spec/run.md`, section 4.
    pub id: String,
    pub to: String,
    /// Whose record it is.
    pub who: String,
    /// The engine did it, as a consequence of what `who` did.
    pub by_engine: bool,
    pub assurance: Assurance,
    /// What it waited for, why it failed, who the worker was.
    pub why: Vec<String>,
}

/// Everything that the records of a run say, as they arrive.
#[derive(Debug, Default)]
pub struct RunLog {
    steps: BTreeMap<usize, StepLog>,
    path: Vec<String>,
    input: Option<String>,
    output: Option<String>,
    taken_over: Option<(String, String)>,
    dry_run: bool,
    trace_id: Option<String>,
    /// The bytes of values so far.
    bytes: usize,
    /// Values of which the records hold only the digest.
    pub by_digest: u64,
}

impl RunLog {
    pub fn record(&mut self, record: &Record, signing: &Signing) {
        let header = &record.header;
        let Some(payload) = record.payload().filter(|_| header.action.is_run()) else { return };
        if header.action == Action::RunStarted {
            self.start(payload);
        }
        for step_move in list(payload, "transitions") {
            let texts = ["id", "to", "actor_class"].map(|name| step_move.text(name));
            let [Some(id), Some(to), Some(class)] = texts else { continue };
            for seq in seqs(step_move) {
                let log = self.steps.entry(seq).or_default();
                if log.acts.len() >= MOST_ACTS {
                    log.acts_left_out += 1;
                    continue;
                }
                log.acts.push(Act {
                    at_us: header.recorded_at_us,
                    id: cut(id),
                    to: cut(to),
                    who: header.actor_ref.to_string(),
                    by_engine: matches!(class, "system" | "mow_orchestrator"),
                    assurance: header.assurance,
                    why: why(payload, seq, to),
                });
            }
        }
        self.reasons(payload, signing);
        self.values(payload);
        for run_move in list(payload, "run_transitions") {
            self.path.extend(run_move.text("to").filter(|_| self.path.len() < MOST_ACTS).map(str::to_owned));
        }
        self.output = self.value(payload, "output").or(self.output.take());
    }

    fn start(&mut self, payload: &Value) {
        self.input = self.value(payload, "input");
        self.dry_run = payload.get("dry_run").and_then(Value::as_bool) == Some(true);
        self.trace_id = payload.text("trace_id").map(str::to_owned);
        let taken = payload.given("taken_over");
        self.taken_over = taken.and_then(|taken| {
            Some((taken.text("completed")?.to_owned(), taken.text("skipped").unwrap_or_default().to_owned()))
        });
    }

    /// What somebody gave as a reason, and the meaning of their signature, belong to the step that they acted on.
    fn reasons(&mut self, payload: &Value, signing: &Signing) {
        let acted = payload.int("step_seq").and_then(|seq| usize::try_from(seq).ok());
        let Some(act) = acted.and_then(|seq| self.steps.get_mut(&seq)?.acts.last_mut()) else { return };
        for (name, text) in [
            ("reason", payload.text("reason")),
            ("evidence", payload.text("evidence_ref")),
            ("blocked by", payload.text("block_reason")),
            ("signed as", signing.meaning.as_deref()),
        ] {
            act.why.extend(text.map(|text| format!("{name}: {}", cut(text))));
        }
    }

    /// Inputs and outputs of steps, whole or by digest.
    fn values(&mut self, payload: &Value) {
        for (member, name) in [("inputs", "input"), ("outputs", "output"), ("refused", "output")] {
            for entry in list(payload, member) {
                let Some(text) = self.value(entry, name) else { continue };
                let text = if member == "refused" { format!("refused: {text}") } else { text };
                for seq in seqs(entry) {
                    let log = self.steps.entry(seq).or_default();
                    let values = if name == "input" { &mut log.inputs } else { &mut log.outputs };
                    if values.last() == Some(&text) {
                        continue;
                    }
                    if values.len() >= MOST_VALUES || self.bytes > MOST_BYTES {
                        log.values_left_out += 1;
                        continue;
                    }
                    self.bytes += text.len();
                    values.push(text.clone());
                }
            }
        }
    }

    fn value(&mut self, object: &Value, name: &str) -> Option<String> {
        if object.get("run_input").and_then(Value::as_bool) == Some(true) {
            return Some("the input of the run".to_owned());
        }
        if let Some(value) = object.get(name) {
            let text = cut(&value.to_string());
            self.bytes += text.len();
            return Some(text);
        }
        let digest = object.text(&format!("{name}_digest"))?;
        self.by_digest += 1;
        let bytes = object.int(&format!("{name}_bytes")).map_or_else(String::new, |bytes| format!(", {bytes} bytes"));
        Some(format!("by its digest alone: sha256:{digest}{bytes}"))
    }

    pub fn has_begun(&self) -> bool {
        self.steps.values().any(|log| log.acts.iter().any(|act| act.to == "in_progress"))
    }

    pub fn has_outputs(&self) -> bool {
        self.steps.values().any(|log| !log.outputs.is_empty())
    }

    pub fn has_inputs(&self) -> bool {
        self.steps.values().any(|log| !log.inputs.is_empty())
    }

    pub fn summary(&mut self, run: &Run, process: &Process, registry: &Registry) -> RunSummary {
        let workflow = run.workflow();
        let specs = workflow.as_ref().map(|workflow| workflow.steps.as_slice()).unwrap_or_default();
        let planned = specs.len().min(MOST_STEPS);
        let mut undone: BTreeMap<usize, usize> = BTreeMap::new();
        for (seq, step) in run.steps.iter().enumerate() {
            undone.extend(step.compensates.map(|undone| (undone, seq)));
        }
        let logs = &mut self.steps;
        let step = |(seq, step): (usize, &crate::run::Step)| {
            let spec = specs.get(seq);
            let log = logs.remove(&seq).unwrap_or_default();
            let about = |spec: &crate::run::definition::StepSpec| {
                // Names the person in charge.
                let about = spec.about.as_ref().filter(|_| step.charge.pic.is_none());
                format!("{}{}", spec.run, about.map(|about| format!(" {}", cut(about))).unwrap_or_default())
            };
            let other = if step.compensates.is_some() { "compensation" } else { "task" };
            RunStep {
                name: step.name.clone(),
                kind: spec.map_or(other.to_owned(), about),
                gate: spec.and_then(|spec| spec.gate.clone()),
                undoes: step.compensates,
                undone_by: undone.get(&seq).copied(),
                state: step.state,
                taken_over: step.taken_over,
                pic: step.charge.pic.clone(),
                deadline_us: step.charge.deadline_us,
                began_at_us: log.acts.iter().find(|act| act.to == "in_progress").map(|act| act.at_us),
                completed_at_us: step.completed_at_us.filter(|_| step.state == "completed"),
                failed_attempts: step.attempts,
                last_error: step.last_error.as_deref().map(cut),
                child: step.child.map(|child| child.to_string()),
                log,
            }
        };
        let steps = run.steps.iter().enumerate().take(MOST_STEPS).map(step).collect();
        let edges = specs.iter().take(planned).enumerate();
        let edges = edges.flat_map(|(seq, spec)| spec.depends_on.iter().map(move |before| (*before, seq)));
        let edges = edges.filter(|(before, _)| *before < planned).collect();
        RunSummary {
            state: run.state,
            outcome: run.outcome.clone(),
            last_error: run.last_error.as_deref().map(cut),
            facts: self.facts(run, process),
            input: self.input.clone().or_else(|| run.begin.as_ref().map(|begin| told(&begin.input))),
            output: self.output.clone(),
            steps,
            left_out: run.steps.len().saturating_sub(MOST_STEPS),
            lost: run.lost,
            engine: registry.application_actor(u64::MAX).map(str::to_owned),
            linear: workflow.as_ref().is_some_and(|workflow| workflow.linear),
            planned,
            edges,
        }
    }

    /// Where the run comes from, and the way that it went.
    fn facts(&self, run: &Run, process: &Process) -> Vec<(&'static str, String)> {
        let mut facts = Vec::new();
        let mut add = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
        let text = |name: &str| run.begin.as_ref().and_then(|begin| begin.texts.get(name).cloned());
        add(
            "Definition",
            process.started.as_ref().and_then(|started| started.definition.as_deref()).map(str::to_owned),
        );
        let begun = process.begun.as_ref();
        add("Started", begun.map(|begun| format!("{} by {}", crate::time::utc(begun.at_us), begun.initiator)));
        let continued = text("continues").map(|continued| {
            let named = |ranges: &str| named(run, ranges);
            let (completed, skipped) =
                self.taken_over.as_ref().map_or_else(Default::default, |(done, left)| (named(done), named(left)));
            let some =
                |names: String, what: &str| if names.is_empty() { names } else { format!("; {what} there: {names}") };
            format!("{continued}{}{}", some(completed, "completed"), some(skipped, "skipped"))
        });
        add("Continues the run", continued);
        add("Corrects the run", text("corrects"));
        let step = run.begin.as_ref().and_then(|begin| begin.parent_step_seq);
        let step = step.map_or_else(String::new, |seq| format!(", its step {seq}"));
        add("Part of the run", text("parent_run_id").map(|parent| parent + &step));
        add("Correlation key", text("correlation_key"));
        add("Concurrency key", text("concurrency_key"));
        add("Trace", self.trace_id.clone());
        add("Dry run", self.dry_run.then(|| "yes: no step was carried out".to_owned()));
        add("States", (!self.path.is_empty()).then(|| format!("idle → {}", self.path.join(" → "))));
        facts
    }
}

/// The names of these steps.
fn named(run: &Run, ranges: &str) -> String {
    let ranges = Ranges::parse(ranges);
    let seqs = ranges.iter().flat_map(Ranges::iter).take(MOST_ACTS + 1);
    let names: Vec<&str> = seqs.filter_map(|seq| run.steps.get(seq)).map(|step| step.name.as_str()).collect();
    match names.get(..MOST_ACTS) {
        Some(first) if names.len() > MOST_ACTS => format!("{} …", first.join(", ")),
        _ => names.join(", "),
    }
}

/// What else its record says about this transition.
fn why(payload: &Value, seq: usize, to: &str) -> Vec<String> {
    let of = |member: &str| list(payload, member).iter().find(|entry| seqs(entry).contains(&seq));
    let mut why = Vec::new();
    match to {
        "in_progress" => {
            let lease = of("leases").and_then(|lease| Some((lease.int("attempt")?, lease.text("worker_id"))));
            why.extend(lease.map(|(attempt, worker)| {
                let worker = worker.map_or_else(String::new, |worker| format!(", worker {}", cut(worker)));
                format!("attempt {attempt}{worker}")
            }));
        }
        "waiting" => {
            if let Some(wait) = of("waits") {
                let facet = wait.text("facet").unwrap_or_default().trim_start_matches("waiting_").replace('_', " ");
                let event = wait.text("event_type").map_or_else(String::new, |event| format!(", event {}", cut(event)));
                why.push(format!("for {facet}{event}"));
            }
        }
        _ => {}
    }
    if matches!(to, "failed" | "ready" | "blocked" | "cannot_complete" | "waiting")
        && let Some(error) = of("errors").and_then(|error| error.text("last_error"))
    {
        why.push(cut(error));
    }
    if to == "completed"
        && let Some(taken) = payload.get("event").and_then(|event| event.text("type"))
    {
        why.push(format!("event {}", cut(taken)));
    }
    why
}

fn list<'v>(payload: &'v Value, name: &str) -> &'v [Value] {
    payload.get(name).and_then(Value::as_list).unwrap_or_default()
}

/// The steps of an entry, as many as a report lists.
fn seqs(entry: &Value) -> Vec<usize> {
    let one = entry.int("step_seq").and_then(|seq| usize::try_from(seq).ok());
    let many = entry.text("step_seqs").and_then(Ranges::parse);
    let many = many.iter().flat_map(Ranges::iter).take_while(|seq| *seq < MOST_STEPS);
    one.into_iter().chain(many).filter(|seq| *seq < MOST_STEPS).collect()
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MOST_CHARS {
        return text.to_owned();
    }
    let head: String = text.chars().take(MOST_CHARS).collect();
    format!("{head}… ({} bytes in all)", text.len())
}

fn told(told: &Told) -> String {
    match told {
        Told::Value(value) => cut(&value.to_string()),
        Told::Digest(digest) => format!("by its digest alone: sha256:{digest}"),
    }
}
