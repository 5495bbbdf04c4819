//! The governance chain (`spec/governance.md`): problems open once, and resolve only by an event. What the engine has observed by
//! itself is an event of this chain.

use crate::bytes::Id;
use crate::finding::{Claim, Code, Findings};
use crate::json::Value;
use crate::record::{Action, Header, Record};
use crate::registry::Registry;
use crate::replays::Asked;
use std::collections::{HashMap, HashSet};

const CATEGORIES: [&str; 8] = [
    "dlq",
    "silent_workers",
    "overdue_steps",
    "schema_violations",
    "event_lag",
    "integrity_warnings",
    "failed_runs",
    "orphan_runs",
];

/// Of which the engine alone sees that they begin and end.
const OBSERVED: [&str; 3] = ["silent_workers", "event_lag", "integrity_warnings"];

const WORKERS: &str = "silent_workers";

/// What a problem that is open was opened with.
struct Open {
    category: &'static str,
    key: String,
    event_id: Id,
    since_us: i64,
}

/// The chain as far as it was read. Of what is resolved only the ids are kept.
#[derive(Default)]
pub struct Governance {
    open: HashMap<Id, Open>,
    keys: HashSet<(&'static str, String)>,
    resolved: HashSet<Id>,
    /// What was observed in the command whose records are arriving, and when: event, category, key, and whether it is over.
    observed: HashMap<(Id, &'static str, String, bool), i64>,
    /// Requests to replay a dead letter.
    pub asked: HashMap<Id, Asked>,
    /// What arrived by a replay that this command completed: the record and the letter.
    arrived: HashSet<(Id, Id)>,
    command_at_us: i64,
}

impl Governance {
    pub fn take(&mut self, record: &Record, registry: &Registry, findings: &mut Findings) {
        let header = &record.header;
        findings.checked(Claim::DeclaredPath);
        if header.recorded_at_us != self.command_at_us {
            self.command_at_us = header.recorded_at_us;
            self.observed.clear();
            self.arrived.clear();
        }
        if let (Action::DlqReplayRequested | Action::DlqReplayCompleted, Some(payload)) =
            (header.action, record.payload())
        {
            let taken = match header.action {
                Action::DlqReplayRequested => self.ask(payload),
                _ => self.complete(payload, header),
            };
            if let Err(detail) = taken {
                findings.find(Code::GovernanceInvalid, header, detail);
            }
            return;
        }
        let list = if header.action == Action::ConditionObserved { "conditions" } else { "problems" };
        let entries = record.payload().and_then(|payload| payload.get(list)).and_then(Value::as_list);
        for entry in entries.unwrap_or_default() {
            let taken = match header.action {
                Action::ConditionObserved => self.observe(entry, header, registry),
                Action::ProblemOpened => self.opened(entry, header.event_id),
                _ => self.end(entry, header.event_id),
            };
            if let Err(detail) = taken {
                findings.find(Code::GovernanceInvalid, header, detail);
            }
        }
    }

    fn ask(&mut self, payload: &Value) -> Result<(), String> {
        let (request, letter) = (id(payload, "dlq_replay_request_id")?, id(payload, "dead_letter_id")?);
        let key = payload.text("key").unwrap_or_default().to_owned();
        let known = self.asked.insert(request, Asked { letter, key: key.clone(), completed: None });
        if known.is_some() {
            return Err(format!("request {request} is made a second time"));
        }
        match self.open.get(&letter) {
            Some(open) if open.category == "dlq" && open.key == key => Ok(()),
            _ => Err(format!("there is no open dead letter {letter} about {key}")),
        }
    }

    fn complete(&mut self, payload: &Value, header: &Header) -> Result<(), String> {
        let request = id(payload, "dlq_replay_request_id")?;
        let (approval, letter) = (id(payload, "approval_id")?, id(payload, "dead_letter_id")?);
        let Some(asked) = self.asked.get_mut(&request) else {
            return Err(format!("request {request} was never made"));
        };
        if asked.completed.is_some() {
            return Err(format!("request {request} is completed a second time"));
        }
        asked.completed = Some((approval, header.clone()));
        if asked.letter != letter {
            return Err(format!("request {request} is about another dead letter than {letter}"));
        }
        if payload.text("outcome") == Some("delivered") {
            self.arrived.insert((header.event_id, letter));
        }
        Ok(())
    }

    fn observe(&mut self, entry: &Value, header: &Header, registry: &Registry) -> Result<(), String> {
        let category = category(entry)?;
        let key = entry.text("key").ok_or("a condition has no `key`")?.to_owned();
        let healed = match entry.text("state") {
            Some("healed") => true,
            Some("breached") => false,
            _ => return Err(format!("the condition of {key} is neither breached nor healed")),
        };
        let at_us =
            entry.int("at_us").ok_or_else(|| format!("the condition of {key} does not say when it was seen"))?;
        // A frozen class claims nothing: it is neither silent nor healthy.
        let frozen = category == WORKERS && registry.is_frozen(&key, header.registry_seq);
        let seen = if frozen { Err(format!("the worker class {key} was frozen at that time")) } else { Ok(()) };
        self.observed.insert((header.event_id, category, key, healed), at_us);
        seen
    }

    /// What only the engine sees, its own record says.
    fn is_shown(&self, event_id: Id, category: &'static str, key: &str, healed: bool) -> Result<(), String> {
        if !OBSERVED.contains(&category) || self.observed.contains_key(&(event_id, category, key.to_owned(), healed)) {
            return Ok(());
        }
        Err(format!("event {event_id} is no record of this chain that says so of {key}"))
    }

    fn opened(&mut self, entry: &Value, at: Id) -> Result<(), String> {
        let problem_id = id(entry, "problem_id")?;
        let category = category(entry)?;
        let key = entry.text("key").ok_or("a problem has no `key`")?.to_owned();
        let event_id = before(entry, at)?;
        let Some((since_us, _)) = entry.int("since_us").zip(entry.text("detail")) else {
            return Err(format!("problem {problem_id} does not say since when it is there, and why"));
        };
        if self.open.contains_key(&problem_id) || self.resolved.contains(&problem_id) {
            return Err(format!("problem {problem_id} is opened a second time"));
        }
        if !self.keys.insert((category, key.clone())) {
            return Err(format!("a problem of `{category}` about {key} is open already"));
        }
        let shown = self.is_shown(event_id, category, &key, false);
        self.open.insert(problem_id, Open { category, key, event_id, since_us });
        shown
    }

    fn end(&mut self, entry: &Value, at: Id) -> Result<(), String> {
        let problem_id = id(entry, "problem_id")?;
        let category = category(entry)?;
        let Some(open) = self.open.remove(&problem_id) else {
            return Err(format!("problem {problem_id} is resolved, and is not open"));
        };
        self.keys.remove(&(open.category, open.key.clone()));
        self.resolved.insert(problem_id);
        let event_id = before(entry, at)?;
        if event_id == open.event_id {
            return Err(format!("problem {problem_id} is resolved by the event that opened it"));
        }
        if category != open.category {
            return Err(format!("problem {problem_id} is of `{}`, not of `{category}`", open.category));
        }
        // A delivery arrives by a replay, and by nothing else.
        let delivery = category == "dlq" && open.key.starts_with(&format!("{}.", open.event_id));
        if delivery && !self.arrived.contains(&(event_id, problem_id)) {
            return Err(format!("event {event_id} is no record of a replay that delivered dead letter {problem_id}"));
        }
        self.is_shown(event_id, category, &open.key, true)?;
        // Of workers it is the time of the tick: one from before shows nothing.
        match self.observed.get(&(event_id, category, open.key.clone(), true)) {
            Some(at_us) if category == WORKERS && *at_us <= open.since_us => {
                Err(format!("problem {problem_id} is resolved, and no worker of {} ticked since", open.key))
            }
            _ => Ok(()),
        }
    }
}

fn id(entry: &Value, name: &str) -> Result<Id, String> {
    entry.text(name).and_then(Id::parse).ok_or_else(|| format!("a problem has no `{name}`"))
}

fn category(entry: &Value) -> Result<&'static str, String> {
    let text = entry.text("category").unwrap_or_default();
    CATEGORIES.into_iter().find(|known| *known == text).ok_or_else(|| format!("`{text}` is no category of problems"))
}

/// The event that opened or resolved it: there is one, and it came before the record that names it.
fn before(entry: &Value, at: Id) -> Result<Id, String> {
    let event_id = id(entry, "event_id")?;
    if event_id < at { Ok(event_id) } else { Err(format!("event {event_id} came after the record that names it")) }
}
