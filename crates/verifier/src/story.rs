//! What a report shows besides the verdict: the timeline, the gates, and the facts for the questions that only people
//! can answer. Nothing here is judged.

mod cover;
mod facts;
mod run;

use crate::bytes::Id;
use crate::chain::ChainHead;
use crate::identity::Signing;
use crate::json::Value;
use crate::process::Process;
use crate::process::document::{Declaration, GateSpec};
use crate::process::quorum::State;
use crate::record::{Action, Header, Record};
use crate::registry::Registry;
use crate::run::Run;
use crate::run::definition::Workflow;
use cover::Cover;
use facts::{approver_fact, machine_fact, plan_fact, spec_facts};
use run::RunLog;
pub use run::{Act, RunStep, RunSummary};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A report is for people: nobody reads further. What is left out is counted.
const MOST_ENTRIES: usize = 5_000;
const MOST_DECISIONS: usize = 1_000;
const MOST_DOCUMENTS: usize = 100;

#[derive(Clone, Debug)]
pub struct Entry {
    pub sequence: u64,
    pub log_index: u64,
    pub at_us: i64,
    pub who: String,
    pub action: &'static str,
    pub what: String,
    pub assurance: &'static str,
    pub meaning: Option<String>,
    pub reason: Option<String>,
}

#[derive(Clone, Debug)]
struct Decision {
    by: String,
    at_us: i64,
    registry_seq: u64,
    action: String,
    decision: String,
    reason: Option<String>,
    meaning: Option<String>,
    assurance: &'static str,
    instance_id: Id,
}

/// A process, for the table of a report.
#[derive(Clone, Debug)]
pub struct ProcessSummary {
    pub instance_id: Id,
    /// None: the record that says so was purged.
    pub subject: Option<String>,
    pub definition: Option<String>,
    pub started: Option<(String, i64)>,
    pub last_at_us: i64,
    pub state: Option<String>,
    pub records: u64,
    pub firings: usize,
}

/// A gate, for the table of a report.
#[derive(Clone, Debug)]
pub struct GateSummary {
    pub action: String,
    pub from_state: String,
    pub guard: String,
    pub scope: String,
    pub rule: String,
    /// What its approvers were asked.
    pub request: Option<String>,
    pub state: &'static str,
    /// Of a quorum with an outcome: by how many of how many.
    pub approved: Option<String>,
    pub fate: &'static str,
    pub steps: Vec<StepSummary>,
}

#[derive(Clone, Debug)]
pub struct StepSummary {
    pub approver: String,
    pub state: &'static str,
    /// It ended after its quorum had an outcome.
    pub trailing: bool,
    /// By whom and when it ended.
    pub end: Option<(String, i64)>,
}

/// A declared machine and where it came from.
#[derive(Clone, Debug)]
pub struct Machine {
    pub digest: String,
    pub definition: Option<String>,
    pub declaration: Rc<Declaration>,
    /// What the process in scope really did: from and action of its firings, and where it is. Of a window nothing.
    pub taken: BTreeSet<(String, String)>,
    pub ended_in: Option<String>,
}

/// A workflow's definition.
#[derive(Clone, Debug)]
struct Plan {
    digest: String,
    definition: Option<String>,
    workflow: Rc<Workflow>,
}

#[derive(Clone, Debug)]
struct Spec {
    digest: String,
    definition: Option<String>,
    as_published: Option<bool>,
    /// Guards whose approvers the initiator named in place of the definition's.
    replaced: Vec<Rc<str>>,
    gate_spec: Rc<GateSpec>,
    /// The registry record that the first process with it began under.
    began_under: u64,
}

impl Spec {
    fn approvers(&self) -> impl Iterator<Item = &str> {
        self.gate_spec.0.values().flat_map(|entry| entry.approvers.iter().map(String::as_str))
    }
}

/// A fact: as people read it, and as data.
#[derive(Clone, Debug)]
pub struct Fact {
    pub text: String,
    pub data: serde_json::Value,
}

#[derive(Clone, Debug)]
pub struct Question {
    pub check: u8,
    pub question: &'static str,
    pub facts: Vec<Fact>,
}

#[derive(Debug, Default)]
pub struct Story {
    /// Whether a report will show the timeline and the gates.
    pub told: bool,
    /// Of one process everything is told; of a window, which processes are in it.
    pub whole: bool,
    pub processes: Vec<ProcessSummary>,
    pub processes_left_out: u64,
    pub timeline: Vec<Entry>,
    pub left_out: u64,
    pub gates: Vec<GateSummary>,
    /// What the steps did, where the bundle is of a run.
    pub run: Option<RunSummary>,
    log: RunLog,
    cover: Cover,
    pub machines: BTreeMap<String, Machine>,
    plans: BTreeMap<String, Plan>,
    /// The steps of the run that undo others, as far as its records have been read.
    undoing: BTreeSet<i64>,
    specs: BTreeMap<String, Spec>,
    /// What the approvers of each gate were asked, by its id.
    asked: BTreeMap<String, String>,
    decisions: Vec<Decision>,
    decisions_left_out: u64,
}

impl Story {
    pub fn record(&mut self, record: &Record, signing: &Signing) {
        let header = &record.header;
        let payload = record.payload();
        let text = |name: &str| payload.and_then(|payload| payload.text(name)).map(str::to_owned);
        if header.action == Action::GateDecided && payload.is_some() {
            self.decision(Decision {
                by: header.actor_ref.to_string(),
                at_us: header.recorded_at_us,
                registry_seq: header.registry_seq,
                action: text("action").unwrap_or_default(),
                decision: text("decision").unwrap_or_default(),
                reason: text("reason"),
                meaning: signing.meaning.clone(),
                assurance: header.assurance.as_str(),
                instance_id: header.instance_id,
            });
        }
        self.count(header);
        if !self.told || !self.whole || header.is_registry() {
            return;
        }
        self.log.record(record, signing);
        if header.action == Action::GateOpened && self.asked.len() < MOST_ENTRIES {
            self.asked.extend(payload.and_then(asked));
        }
        if self.timeline.len() >= MOST_ENTRIES {
            self.left_out += 1;
            return;
        }
        self.undoing.extend(payload.into_iter().flat_map(compensations));
        self.timeline.push(Entry {
            sequence: header.sequence,
            log_index: header.log_index,
            at_us: header.recorded_at_us,
            who: header.actor_ref.to_string(),
            action: header.action.as_str(),
            what: payload.map_or("content destroyed".to_owned(), |payload| self.summary(header.action, payload)),
            assurance: header.assurance.as_str(),
            meaning: signing.meaning.clone(),
            reason: text("reason"),
        });
    }

    /// Every record counts for what the checks cover.
    pub fn count(&mut self, header: &Header) {
        if self.told {
            self.cover.record(header);
        }
    }

    fn decision(&mut self, decision: Decision) {
        if self.decisions.len() < MOST_DECISIONS {
            self.decisions.push(decision);
        } else {
            self.decisions_left_out += 1;
        }
    }

    /// After a process was replayed.
    pub fn process(&mut self, process: &Process, run: Option<&Run>, chain: &ChainHead, registry: &Registry) {
        if self.told && self.processes.len() < MOST_ENTRIES {
            let mut summary = process_summary(process, chain);
            if let Some(run) = run {
                summary.state = (!run.lost).then(|| run.state.to_owned());
            }
            self.processes.push(summary);
        } else {
            self.processes_left_out += 1;
        }
        let Some(started) = &process.started else { return };
        let definition = started.definition.as_deref().map(str::to_owned);
        if let Some(run) = run {
            // Its machine is that of every run: what it declares are its steps.
            if let (Some(workflow), Some(begin)) = (run.workflow(), &run.begin)
                && self.plans.len() < MOST_DOCUMENTS
            {
                let digest = begin.document_digest.to_string();
                let plan = Plan { digest: digest.clone(), definition: definition.clone(), workflow };
                self.plans.entry(digest).or_insert(plan);
            }
        } else if let Some(declaration) = process.declaration.as_ref().filter(|_| self.machines.len() < MOST_DOCUMENTS)
        {
            let digest = started.declaration_digest.to_string();
            let fired = process.fired.iter().filter(|_| self.whole);
            let machine = Machine {
                digest: digest.clone(),
                definition: definition.clone(),
                declaration: declaration.clone(),
                taken: fired.map(|fired| (fired.from_state.to_string(), fired.action.to_string())).collect(),
                ended_in: process.state.as_deref().filter(|_| self.whole).map(str::to_owned),
            };
            self.machines.entry(digest).or_insert(machine);
        }
        if let Some(gate_spec) = process.gate_spec.as_ref().filter(|_| self.specs.len() < MOST_DOCUMENTS) {
            let digest = started.gate_spec_digest.to_string();
            let published = definition.as_deref().and_then(|name| registry.definition(name, u64::MAX));
            let replaced = started.replaced.clone();
            let as_published = published.map(|_| replaced.is_empty());
            let (began_under, gate_spec) =
                (process.begun.as_ref().map_or(0, |begun| begun.registry_seq), gate_spec.clone());
            let spec = Spec { digest: digest.clone(), definition, as_published, replaced, gate_spec, began_under };
            let known = self.specs.entry(digest).or_insert(spec);
            known.began_under = known.began_under.min(began_under);
        }
        if let Some(run) = run.filter(|_| self.told && self.whole) {
            self.cover.of_run(&self.log, run);
            self.run = Some(self.log.summary(run, process, registry));
        }
        if self.told && self.whole {
            let room = MOST_ENTRIES.saturating_sub(self.gates.len());
            let asked = &self.asked;
            let summary = |gate| gate_summary(gate, asked);
            self.gates.extend(process.gates.iter().take(room).map(summary));
        }
    }

    /// What the one instance of a bundle is.
    pub fn kind(&self) -> &'static str {
        if self.plans.is_empty() { "process" } else { "run" }
    }

    /// What the checks do not cover, in sentences.
    pub fn uncovered(&self, registry: &Registry) -> Vec<String> {
        if self.told { self.cover.sentences(self.specs.values(), registry) } else { vec![] }
    }

    pub fn questions(&self, registry: &Registry) -> Vec<Question> {
        vec![
            Question {
                check: 6,
                question: "Is the gate_spec what the regulation asks for?",
                facts: self.specs.values().flat_map(spec_facts).collect(),
            },
            Question {
                check: 7,
                question: "Is the declared machine the required process?",
                facts: self.machines.values().map(machine_fact).chain(self.plans.values().map(plan_fact)).collect(),
            },
            Question {
                check: 8,
                question: "Was the named approver the right authority at that time?",
                facts: self.approver_facts(registry),
            },
        ]
    }

    fn approver_facts(&self, registry: &Registry) -> Vec<Fact> {
        let mut approvers: BTreeMap<&str, Vec<&Decision>> = BTreeMap::new();
        for entry in self.specs.values().flat_map(|spec| spec.gate_spec.0.values()) {
            for approver in &entry.approvers {
                approvers.entry(approver).or_default();
            }
        }
        for decision in &self.decisions {
            approvers.entry(&decision.by).or_default().push(decision);
        }
        let mut facts: Vec<Fact> = approvers
            .into_iter()
            .take(MOST_DECISIONS)
            .map(|(approver, decisions)| approver_fact(approver, &decisions, registry))
            .collect();
        if self.decisions_left_out > 0 {
            let text = format!("{} more decisions are not listed", self.decisions_left_out);
            facts.push(Fact { data: json!({ "decisions_not_listed": self.decisions_left_out }), text });
        }
        facts
    }
}

impl Story {
    /// What a record says, in a few words.
    fn summary(&self, action: Action, payload: &Value) -> String {
        let text = |name: &str| payload.text(name).unwrap_or("?").to_owned();
        if action.is_run() {
            return self.run_summary(action, payload);
        }
        match action {
            Action::WorkflowStarted => {
                let definition = payload.text("definition").unwrap_or("an inline declaration");
                format!("{} started from {definition}, in {}", text("subject_ref"), text("initial_state"))
            }
            Action::GateOpened => {
                format!("gate for {} in {}, guard {}", text("action"), text("from_state"), text("guard"))
            }
            Action::GateDecided => format!("{}: {}", text("action"), text("decision")),
            Action::TransitionFired => format!("{}: {} → {}", text("action"), text("from_state"), text("new_state")),
            Action::MootGateRecalled => {
                format!("gate for {} in {}: {}", text("moot_action"), text("from_state"), text("moot_kind"))
            }
            Action::ChainResolved => format!("{}: {}", text("action"), text("outcome")),
            Action::AttemptRefused => format!("{}: {}", text("attempted"), text("code")),
            Action::RecordPurged => format!("{} of {} ({})", text("action_ref"), text("actor_ref"), text("event_id")),
            Action::HoldPlaced | Action::HoldReleased => format!("on {}", text("record_ref")),
            Action::EvidenceExported => "evidence exported".to_owned(),
            _ => payload.text("action").unwrap_or_default().to_owned(),
        }
    }

    /// What a run's record says: where the run goes, and what its steps did.
    fn run_summary(&self, action: Action, payload: &Value) -> String {
        let list = |name: &str| payload.get(name).and_then(Value::as_list).unwrap_or_default();
        let mut parts: Vec<String> = Vec::new();
        if action == Action::RunStarted {
            parts.push(format!(
                "run of {} started for {}",
                text_of(payload, "definition"),
                text_of(payload, "subject_ref")
            ));
        }
        if let Some(event) = payload.get("event") {
            parts.push(format!("event {}", text_of(event, "type")));
        }
        for step_move in list("transitions").iter().take(6) {
            let which = match step_move.text("step") {
                None => format!("steps {}", crate::json::shortened(&text_of(step_move, "step_seqs"))),
                // It bears the name of what it undoes.
                Some(step) if step_move.int("step_seq").is_some_and(|seq| self.undoing.contains(&seq)) => {
                    format!("undoing of {step}")
                }
                Some(step) => step.to_owned(),
            };
            parts.push(format!("{which} → {}", text_of(step_move, "to")));
        }
        if list("transitions").len() > 6 {
            parts.push("…".to_owned());
        }
        parts.extend(list("run_transitions").iter().map(|run_move| format!("run → {}", text_of(run_move, "to"))));
        if parts.is_empty() { action.as_str().replace('_', " ") } else { parts.join("; ") }
    }
}

/// A gate's id, and what its approvers are asked: as it stands in the record, or by its digest.
fn asked(payload: &Value) -> Option<(String, String)> {
    let gate = payload.text("chain_id").or(payload.text("step_id"))?;
    let request = match payload.get("request") {
        Some(request) => request.to_string(),
        None => format!("by its digest, sha256:{}", payload.text("request_digest")?),
    };
    Some((gate.to_owned(), request))
}

/// Steps that undo others, as a record lists them.
fn compensations(payload: &Value) -> impl Iterator<Item = i64> {
    let pairs = payload.get("compensations").and_then(Value::as_list).unwrap_or_default();
    pairs.iter().filter_map(|pair| pair.as_list()?.first()?.as_int())
}

fn text_of(value: &Value, name: &str) -> String {
    value.text(name).unwrap_or("?").to_owned()
}

fn process_summary(process: &Process, chain: &ChainHead) -> ProcessSummary {
    let started = process.started.as_ref();
    ProcessSummary {
        instance_id: process.instance_id,
        subject: started.map(|started| started.subject_ref.to_string()),
        definition: started.and_then(|started| started.definition.as_deref()).map(str::to_owned),
        started: process.begun.as_ref().map(|begun| (begun.initiator.to_string(), begun.at_us)),
        last_at_us: chain.recorded_at_us,
        state: process.state.as_deref().map(str::to_owned),
        records: chain.sequence,
        firings: process.fired.len(),
    }
}

fn gate_summary(gate: &crate::process::gate::Gate, asked: &BTreeMap<String, String>) -> GateSummary {
    let decided = gate.is_chain() && gate.chain_state != State::Pending;
    let step = |step: &crate::process::gate::Step| StepSummary {
        approver: step.approver.to_string(),
        // A quorum with an outcome waits for nobody.
        state: if decided && step.state == State::Pending { "not decided" } else { step.state.as_str() },
        trailing: step.is_trailing(),
        end: step.end.as_ref().map(|end| (end.by.to_string(), end.at_us)),
    };
    GateSummary {
        action: gate.action.to_string(),
        from_state: gate.from_state.to_string(),
        guard: gate.guard.to_string(),
        scope: gate.scope.to_string(),
        rule: gate.rule.map_or("single approver".to_owned(), |rule| match rule.m() {
            Some(m) => format!("{m} of {}", gate.steps.len()),
            None => rule.as_str().to_owned(),
        }),
        request: asked.get(&gate.id.to_string()).cloned(),
        approved: decided.then(|| {
            let approved =
                gate.steps.iter().filter(|step| step.state == State::Approved && !step.is_trailing()).count();
            format!("{approved} of {} approved", gate.steps.len())
        }),
        state: gate.status().as_str(),
        fate: gate.fate.as_str(),
        steps: gate.steps.iter().map(step).collect(),
    }
}
