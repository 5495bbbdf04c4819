//! Governance beside the committer: it has signals weighed, and reads the board.
//!
//! Signals come from commits: where a run fails, the same transaction says so ([`of_run`]). Every node has them weighed when it
//! has committed some, and looks now and then for those of nodes that are gone. The chain's fence lets one of them open a
//! problem; so no lease is needed.

use crate::clock::Entropy;
use crate::port::{Head, Page, ProblemQuery, Reader, RecordQuery, StoreError};
use crate::rows::{GovernanceWrite, ProblemRow, SignalRow, Write};
use crate::{Command, Engine, Outcome, outcome, replay, store_failure};
use countersign_kernel::governance::{Category, Condition, Replayed, Signal, Subject, Weighed};
use countersign_kernel::lifecycle::{RunState, StepCode};
use countersign_kernel::plan::{OnFailure, StepSeq};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;
use countersign_kernel::run::{Cell, Role, Run, RunEvent};
use countersign_kernel::{EventId, IdSource, InstanceId, ProblemId, Time};
use countersign_ledger::ZERO_HASH;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Signals that one commit weighs.
pub(crate) const MOST_SIGNALS: usize = 10_000;
/// How often a node looks for the signals of others.
const LOOK: Duration = Duration::from_secs(10);
/// Of a payload's text; a record may hold 65,536 bytes.
const MOST_TEXT: usize = 60_000;
/// Open warnings that are read at a time.
const INTEGRITY_PAGE: usize = 500;
/// Evidence that a row of the board names.
const MOST_REFS: usize = 100;

pub(crate) async fn head(reader: &dyn Reader) -> Result<Head, StoreError> {
    let newest = Page { after: None, limit: 1, descending: true };
    let chain = RecordQuery { instance_id: Some(InstanceId::GOVERNANCE), ..RecordQuery::default() };
    let found = reader.records(&chain, &newest).await?;
    Ok(found.first().map_or(Head { sequence: 0, record_hash: ZERO_HASH, last_time: Time(0) }, |row| Head {
        sequence: row.sequence,
        record_hash: row.record.record_hash,
        last_time: row.recorded_at,
    }))
}

/// Whether these rows say that something went wrong, or was put right.
pub(crate) fn signals(writes: &[Write]) -> bool {
    writes.iter().any(|write| matches!(write, Write::Governance(GovernanceWrite::Signal(_))))
}

/// What an event of a run signals. Nothing, where nothing went wrong: then it only looks at the moves.
pub(crate) fn of_run(run: &Run, event: &RunEvent, event_id: EventId, ids: &mut IdSource, writes: &mut Vec<Write>) {
    let mut told = Told { run, event, event_id, ids, writes };
    for run_move in &event.run_moves {
        match run_move.transition.to {
            RunState::Failed => told.run(Category::FailedRuns, run.run_id, true, "the run failed"),
            RunState::Voided => told.run(Category::FailedRuns, run.run_id, false, "the run was voided"),
            RunState::Completed => {
                if let Some(failed) = run.follows {
                    told.run(Category::FailedRuns, failed, false, "a run that corrects or continues it completed");
                }
            }
            _ => {}
        }
    }
    told.replayed();
    const TROUBLE: &[StepCode] = &[StepCode::Overdue, StepCode::Waiting, StepCode::Blocked, StepCode::Failed];
    if !event.moves.iter().any(|m| TROUBLE.contains(&m.from) || TROUBLE.contains(&m.to)) {
        return;
    }
    // A step may make several moves in one event: what it was before and what it is after them counts.
    let mut steps: BTreeMap<StepSeq, (StepCode, StepCode)> = BTreeMap::new();
    for m in &event.moves {
        steps.entry(m.step_seq).and_modify(|(_, to)| *to = m.to).or_insert((m.from, m.to));
    }
    for (seq, (from, to)) in steps {
        told.overdue(seq, from, to);
        told.held(seq, from, to);
    }
}

struct Told<'a> {
    run: &'a Run,
    event: &'a RunEvent,
    event_id: EventId,
    ids: &'a mut IdSource,
    writes: &'a mut Vec<Write>,
}

impl Told<'_> {
    fn cell(&self, seq: StepSeq) -> Option<&Cell> {
        let at = self.event.cells.binary_search_by_key(&seq, |(of, _)| *of).ok()?;
        Some(&self.event.cells[at].1)
    }

    fn run(&mut self, category: Category, run_id: InstanceId, opens: bool, detail: &str) {
        let subject =
            Subject { category, key: run_id.to_string(), run_id: Some(run_id), step: None, worker_class: None };
        self.tell(subject, opens, detail, None);
    }

    /// Past its deadline, until it has ended or has a new deadline. It may be blocked or wait meanwhile.
    fn overdue(&mut self, seq: StepSeq, from: StepCode, to: StepCode) {
        const MAY_BE: &[StepCode] = &[StepCode::Overdue, StepCode::Waiting, StepCode::Blocked];
        if !MAY_BE.contains(&from) && !MAY_BE.contains(&to) {
            return;
        }
        let first_at =
            self.cell(seq).and_then(|cell| cell.docket.as_deref()).and_then(|docket| docket.overdue_first_at);
        let is = |state, since: Option<Time>| state == StepCode::Overdue || MAY_BE.contains(&state) && since.is_some();
        let before = is(from, first_at.filter(|at| *at < self.event.at));
        match (before, is(to, first_at)) {
            (false, true) => self.step(Category::OverdueSteps, seq, true, "the step is past its deadline"),
            (true, false) => self.step(Category::OverdueSteps, seq, false, &format!("the step is {to}")),
            (true, true) | (false, false) => {}
        }
    }

    /// A dead letter: a step that will not be tried again by itself, and whose run waits for what becomes of it.
    fn held(&mut self, seq: StepSeq, from: StepCode, to: StepCode) {
        if from != StepCode::Failed && to != StepCode::Failed {
            return;
        }
        let holds = self.run.plan.step(seq).is_some_and(|step| step.on_failure == OnFailure::Hold);
        let role = |cell: &Cell| cell.role == Role::Step;
        if !holds || !self.cell(seq).is_some_and(role) {
            return;
        }
        let dead = to == StepCode::Failed && !self.cell(seq).is_some_and(Cell::retry_scheduled);
        if dead && !self.event.head.state.is_ended() {
            self.step(Category::Dlq, seq, true, "the step is dead, and its run is held");
        } else if from == StepCode::Failed && !dead {
            self.step(Category::Dlq, seq, false, &format!("the step is {to}"));
        }
    }

    /// A step that was reopened is another one.
    fn step(&mut self, category: Category, seq: StepSeq, opens: bool, detail: &str) {
        let subject = self.subject(category, seq);
        self.tell(subject, opens, detail, None);
    }

    /// A dead step may be claimed once more, as a request for that was approved.
    fn replayed(&mut self) {
        let Some((seq, replay)) = self.event.acted.as_deref().and_then(|acted| Some((acted.step_seq, acted.replay?)))
        else {
            return;
        };
        let subject = self.subject(Category::Dlq, seq);
        self.tell(subject, true, "the step may be claimed once more", Some(replay::resumed(&replay)));
    }

    fn subject(&self, category: Category, seq: StepSeq) -> Subject {
        let cycle = self.run.cell(seq).map_or(0, Cell::cycle);
        Subject {
            category,
            key: format!("{}.{seq}.{cycle}", self.run.run_id),
            run_id: Some(self.run.run_id),
            step: Some(self.run.step_name(seq).into()),
            worker_class: None,
        }
    }

    fn tell(&mut self, subject: Subject, opens: bool, detail: &str, replay: Option<Replayed>) {
        let (at, event_id) = (self.event.at, Some(self.event_id));
        let signal = Signal { subject, at, event_id, opens, detail: detail.to_owned(), replay };
        let row = SignalRow { signal_id: self.ids.make(), signal };
        self.writes.push(Write::Governance(GovernanceWrite::Signal(row)));
    }
}

/// A record of what was weighed.
pub(crate) struct Recorded {
    pub action: &'static str,
    /// Where it was made before: what it says is named by others.
    pub event_id: Option<EventId>,
    pub payload: Vec<u8>,
}

/// The records of what was weighed, as many as their size asks for.
pub(crate) fn payloads(weighed: &Weighed) -> Vec<Recorded> {
    let opened = weighed.opened.iter().map(|problem| {
        let Subject { category, key, run_id, step, worker_class } = &problem.subject;
        let mut entry = Map::new();
        entry.insert("problem_id".to_owned(), problem.problem_id.to_string().into());
        entry.insert("category".to_owned(), category.as_str().into());
        entry.insert("key".to_owned(), key.as_str().into());
        entry.insert("event_id".to_owned(), problem.opened_event_id.to_string().into());
        entry.insert("since_us".to_owned(), problem.since.0.into());
        for (name, value) in [
            ("run_id", run_id.map(|run_id| run_id.to_string())),
            ("step", step.clone()),
            ("worker_class", worker_class.clone()),
            ("detail", Some(problem.detail.clone())),
        ] {
            entry.extend(value.map(|value| (name.to_owned(), value.into())));
        }
        Value::Object(entry)
    });
    let resolved = weighed.resolved.iter().map(|resolved| {
        json!({
            "problem_id": resolved.problem_id.to_string(),
            "category": resolved.category.as_str(),
            "event_id": resolved.resolved_event_id.to_string(),
        })
    });
    let observed = weighed.observed.iter().map(|observed| {
        let conditions: Vec<Value> = observed.conditions.iter().map(condition).collect();
        let payload = json!({ "instance_id": InstanceId::GOVERNANCE.to_string(), "conditions": conditions });
        let payload = payload.to_string().into_bytes();
        Recorded { action: "condition_observed", event_id: Some(observed.event_id), payload }
    });
    let completed = weighed.completed.iter().map(|completed| Recorded {
        action: replay::COMPLETED,
        event_id: Some(completed.event_id),
        payload: replay::completed(completed),
    });
    let before = observed.chain(completed);
    before.chain(in_records("problem_opened", opened)).chain(in_records("problem_resolved", resolved)).collect()
}

fn condition(condition: &Condition) -> Value {
    json!({
        "category": condition.category.as_str(),
        "key": condition.key,
        "state": if condition.healed { "healed" } else { "breached" },
        "at_us": condition.at.0,
        "detail": condition.detail,
    })
}

fn in_records(action: &'static str, entries: impl Iterator<Item = Value>) -> Vec<Recorded> {
    let mut texts: Vec<String> = vec![];
    for entry in entries {
        let entry = entry.to_string();
        match texts.last_mut() {
            Some(text) if text.len() + entry.len() < MOST_TEXT => {
                text.push(',');
                text.push_str(&entry);
            }
            _ => texts.push(entry),
        }
    }
    let governance = InstanceId::GOVERNANCE;
    let whole = |text: String| format!("{{\"instance_id\":\"{governance}\",\"problems\":[{text}]}}").into_bytes();
    texts.into_iter().map(|text| Recorded { action, event_id: None, payload: whole(text) }).collect()
}

/// A row of the board: a category, how many of its problems are open, and what shows it.
#[derive(Clone, Debug)]
pub struct BoardRow {
    pub category: Category,
    pub open: u64,
    /// The oldest ones that are open; where none is, the last ones that were resolved.
    pub evidence: Vec<ProblemRow>,
}

impl Engine {
    /// One problem of this category. Needs `governance:read`.
    pub async fn problem(
        &self,
        actor_ref: &str,
        category: Category,
        problem_id: Option<ProblemId>,
    ) -> Result<ProblemRow, Refusal> {
        self.require_governance_read(actor_ref).await?;
        let unknown = || Refusal::new(Code::NotKnown, format!("there is no problem of `{category}` with this id"));
        let problem_id = problem_id.ok_or_else(unknown)?;
        let before = problem_id.0.as_u128().checked_sub(1).map(uuid::Uuid::from_u128);
        let page = Page { after: before, limit: 1, descending: false };
        let found = self.reader.problems(&ProblemQuery { category, open: None }, &page).await;
        let found = found.map_err(|error| store_failure(&error))?.pop();
        found.filter(|row| row.problem.problem_id == problem_id).ok_or_else(unknown)
    }

    /// Has the signals that there are weighed. How many that were.
    pub async fn weigh_signals(&self) -> Result<u64, Refusal> {
        let mut weighed = 0;
        loop {
            // An idle server asks and writes nothing.
            let found = self.reader.problem_signals(1).await.map_err(|error| store_failure(&error))?;
            if found.is_empty() {
                return Ok(weighed);
            }
            match self.execute(self.own_call(Command::Governance(outcome::Governance::Weigh))).await? {
                Outcome::Weighed { signals: 0, .. } => return Ok(weighed),
                Outcome::Weighed { signals, .. } => weighed += signals,
                _ => return Ok(weighed),
            }
        }
    }

    /// How many records the chain has.
    pub(crate) async fn governance_sequence(&self) -> Result<u64, StoreError> {
        Ok(self.governance_head().await?.sequence)
    }

    pub(crate) async fn governance_head(&self) -> Result<Head, StoreError> {
        head(&*self.reader).await
    }

    /// Signals what verifying found, by what it is about, with a code of each; and what it did not find any more, if `is_all`.
    pub(crate) async fn observe_integrity(
        &self,
        found: BTreeMap<String, &str>,
        is_all: bool,
    ) -> Result<(), StoreError> {
        let query = ProblemQuery { category: Category::IntegrityWarnings, open: Some(true) };
        let (mut open, mut after) = (BTreeSet::new(), None);
        loop {
            let page = Page { after, limit: INTEGRITY_PAGE, descending: false };
            let rows = self.reader.problems(&query, &page).await?;
            let Some(last) = rows.last() else { break };
            after = Some(last.problem.problem_id.0);
            open.extend(rows.into_iter().map(|row| row.problem.subject.key));
        }
        let healed = open.iter().filter(|key| is_all && !found.contains_key(*key));
        let healed = healed.map(|key| (key.clone(), false, "verifying finds nothing any more".to_owned()));
        let new = found.iter().filter(|(key, _)| !open.contains(*key));
        let told = new.map(|(key, code)| (key.clone(), true, format!("verifying found `{code}`"))).chain(healed);
        let entropy = Entropy::default().take().map_err(|error| StoreError::Transient(error.to_string()))?;
        let mut ids = IdSource::new(self.now(), u64::from_le_bytes(entropy));
        let row = |(key, opens, detail): (String, bool, String)| {
            let run_id = None;
            let subject =
                Subject { category: Category::IntegrityWarnings, key, run_id, step: None, worker_class: None };
            let signal = Signal { subject, at: self.now(), event_id: None, opens, detail, replay: None };
            SignalRow { signal_id: ids.make(), signal }
        };
        let signals: Vec<SignalRow> = told.map(row).collect();
        if !signals.is_empty() {
            self.signal(&signals).await?;
        }
        Ok(())
    }

    /// Has this weighed soon.
    pub(crate) async fn signal(&self, signals: &[SignalRow]) -> Result<(), StoreError> {
        self.outbox.signal(signals).await?;
        self.governance_wake.notify_one();
        Ok(())
    }

    /// Tells that this node has committed a signal.
    pub fn governance_wake(&self) -> Arc<Notify> {
        self.governance_wake.clone()
    }

    /// All categories, each with what shows it. Needs `governance:read`.
    pub async fn problem_board(&self, actor_ref: &str) -> Result<Vec<BoardRow>, Refusal> {
        self.require_governance_read(actor_ref).await?;
        let counts = self.problem_counts().await?;
        let mut rows = Vec::with_capacity(counts.len());
        for (category, open) in counts {
            let query = ProblemQuery { category, open: Some(open > 0) };
            let page = Page { after: None, limit: MOST_REFS, descending: open == 0 };
            let evidence = self.reader.problems(&query, &page).await.map_err(|error| store_failure(&error))?;
            rows.push(BoardRow { category, open, evidence });
        }
        Ok(rows)
    }

    pub async fn require_governance_read(&self, actor_ref: &str) -> Result<(), Refusal> {
        self.require_scope(actor_ref, scopes::GOVERNANCE_READ).await
    }

    /// How many problems are open, for every category.
    pub async fn problem_counts(&self) -> Result<Vec<(Category, u64)>, Refusal> {
        let counts = self.reader.count_problems().await.map_err(|error| store_failure(&error))?;
        let of = |category: &Category| counts.iter().find(|(of, _)| of == category).map_or(0, |(_, open)| *open);
        Ok(Category::ALL.iter().map(|category| (*category, of(category))).collect())
    }

    /// The problems of a category, by id. Needs `governance:read`.
    pub async fn problems(
        &self,
        actor_ref: &str,
        query: &ProblemQuery,
        page: &Page,
    ) -> Result<Vec<ProblemRow>, Refusal> {
        self.require_governance_read(actor_ref).await?;
        self.reader.problems(query, page).await.map_err(|error| store_failure(&error))
    }
}

/// Does what was approved, and weighs signals, until the engine is gone.
pub async fn govern(engine: std::sync::Weak<Engine>, wake: Arc<Notify>) {
    loop {
        let _ = tokio::time::timeout(LOOK, wake.notified()).await;
        let Some(engine) = engine.upgrade() else { return };
        if let Err(refusal) = engine.replay_approved().await {
            tracing::warn!(%refusal, "approved replays could not be read");
        }
        if let Err(refusal) = engine.weigh_signals().await {
            tracing::warn!(%refusal, "signals could not be weighed");
        }
    }
}

/// Verifies the whole store again and again. What it finds is a problem (`observe_integrity`).
pub async fn verify(engine: std::sync::Weak<Engine>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(engine) = engine.upgrade() else { return };
        if let Err(refusal) = engine.verify_own().await {
            tracing::warn!(%refusal, "the store could not be verified");
        }
    }
}
