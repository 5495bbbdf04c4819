//! Is everything in a store as it must be? Reads all of it back through the port and checks it against
//! `spec/record.md` and the invariants of seed 000, from the records alone. It shares no decision with the
//! kernel: it follows the records with rules of its own ([`fold`]), counts approvals and looks up grants
//! itself, and only then compares with what the rows say.
//!
//! The store must be quiet while it is checked.

mod chain;
mod documents;
mod fold;
mod grants;
mod retention;
mod rows;

use anyhow::bail;
use countersign_engine::port::{
    AssignmentQuery, Head, HoldQuery, Page, ProcessQuery, ProcessView, Reader, RecordQuery, RegistryDelta, StepQuery,
    Store, StoreError, Writer,
};
use countersign_engine::rows::{AssignmentRow, HoldRow, RecordRow, StepRow};
use countersign_kernel::{InstanceId, StepId};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

const PAGE: usize = 500;
/// How many findings a failure shows.
const SHOWN: usize = 20;

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub processes: usize,
    pub records: usize,
    pub registry_records: usize,
    pub transitions: usize,
    pub guarded: usize,
    pub gates: usize,
    pub steps: usize,
    pub holds: usize,
    pub purged: usize,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} processes, {} records, {} transitions ({} guarded), {} gates, {} steps",
            self.processes, self.records, self.transitions, self.guarded, self.gates, self.steps
        )
    }
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub instance_id: String,
    pub detail: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.instance_id, self.detail)
    }
}

/// The findings about one instance.
struct Notes<'f> {
    instance_id: String,
    findings: &'f mut Vec<Finding>,
}

impl Notes<'_> {
    fn note(&mut self, detail: String) {
        self.findings.push(Finding { instance_id: self.instance_id.clone(), detail });
    }

    fn require(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.note(otherwise());
        }
    }
}

/// Checks everything. Other users of the store must be idle.
pub async fn check_store(store: Box<dyn Store>) -> Result<Summary, Vec<Finding>> {
    let (mut writer, reader) = store.into_parts();
    let unreadable = |error: StoreError| {
        vec![Finding { instance_id: "(store)".to_owned(), detail: format!("cannot be read: {error}") }]
    };
    let stored = Stored::read(&*reader, &mut *writer).await.map_err(unreadable)?;
    let mut findings = Vec::new();
    let summary = stored.check(&mut findings);
    if findings.is_empty() { Ok(summary) } else { Err(findings) }
}

/// The same by address, as an error that shows what was found.
pub async fn require_sound(url: &str) -> anyhow::Result<Summary> {
    match check_store(countersign_store::open(url).await?).await {
        Ok(summary) => Ok(summary),
        Err(findings) => {
            let shown: Vec<String> = findings.iter().take(SHOWN).map(ToString::to_string).collect();
            bail!("{} findings in {url}:\n  {}", findings.len(), shown.join("\n  "))
        }
    }
}

/// All that a store holds.
struct Stored {
    processes: Vec<ProcessView>,
    records: BTreeMap<InstanceId, Vec<RecordRow>>,
    steps: Vec<StepRow>,
    assignments: HashMap<StepId, Vec<AssignmentRow>>,
    heads: HashMap<InstanceId, Head>,
    registry: RegistryDelta,
    holds: HashMap<InstanceId, Vec<HoldRow>>,
}

impl Stored {
    async fn read(reader: &dyn Reader, writer: &mut dyn Writer) -> Result<Stored, StoreError> {
        let everything = ProcessQuery::default();
        let processes =
            pages(async |page| reader.processes(&everything, page).await, |view| view.row.instance_id.0).await?;
        let everything = RecordQuery::default();
        let mut records: BTreeMap<InstanceId, Vec<RecordRow>> = BTreeMap::new();
        for row in pages(async |page| reader.records(&everything, page).await, |row| row.event_id.0).await? {
            records.entry(row.instance_id).or_default().push(row);
        }
        let everything = StepQuery::default();
        let steps = pages(async |page| reader.approval_steps(&everything, page).await, |row| row.step_id.0).await?;
        let everything = AssignmentQuery::default();
        let mut assignments: HashMap<StepId, Vec<AssignmentRow>> = HashMap::new();
        let read = async |page: &Page| reader.assignments(&everything, page).await;
        for (assignment, _) in pages(read, |(row, _)| row.assignment_id.0).await? {
            assignments.entry(assignment.task_ref).or_default().push(assignment);
        }
        let ids: Vec<InstanceId> = processes.iter().map(|view| view.row.instance_id).collect();
        let mut heads = HashMap::new();
        for ids in ids.chunks(PAGE) {
            heads.extend(writer.load(ids).await?.into_iter().map(|loaded| (loaded.instance_id(), loaded.head)));
        }
        let registry = reader.registry_since(0).await?;
        let everything = HoldQuery::default();
        let mut holds: HashMap<InstanceId, Vec<HoldRow>> = HashMap::new();
        for row in pages(async |page| reader.holds(&everything, page).await, |row| row.hold_id.0).await? {
            holds.entry(row.instance_id).or_default().push(row);
        }
        Ok(Stored { processes, records, steps, assignments, heads, registry, holds })
    }

    fn check(&self, findings: &mut Vec<Finding>) -> Summary {
        let mut summary = Summary { processes: self.processes.len(), steps: self.steps.len(), ..Summary::default() };
        let none = Vec::new();
        let of_registry = self.records.get(&InstanceId::REGISTRY).unwrap_or(&none);
        let mut notes = Notes { instance_id: "(registry)".to_owned(), findings };
        let entries = chain::check(InstanceId::REGISTRY, of_registry, &self.registry.head, &mut notes);
        let grants = grants::check(&entries, &self.registry, &mut notes);
        retention::check(InstanceId::REGISTRY, &entries, self.holds_of(InstanceId::REGISTRY), &mut notes);
        summary.holds = self.holds.values().map(Vec::len).sum();
        summary.registry_records = entries.len();
        summary.records = entries.len();

        for view in &self.processes {
            let instance_id = view.row.instance_id;
            let mut notes = Notes { instance_id: instance_id.to_string(), findings };
            let Some(head) = self.heads.get(&instance_id) else {
                notes.note("is listed, but cannot be loaded".to_owned());
                continue;
            };
            let records = self.records.get(&instance_id).unwrap_or(&none);
            let entries = chain::check(instance_id, records, head, &mut notes);
            grants.check_process(view, &entries, &mut notes);
            retention::check(instance_id, &entries, self.holds_of(instance_id), &mut notes);
            let purged = entries.iter().filter(|entry| entry.purged).count();
            summary.purged += purged;
            if purged > 0 {
                // What depends on destroyed content cannot be told any more.
                retention::check_process(view, &entries, &mut notes);
            } else if let Some(picture) = fold::fold(view, &entries, grants.application(), &mut notes) {
                rows::compare(view, &picture, &entries, &self.assignments, &mut notes);
            }
            summary.records += entries.len();
            summary.transitions += view.history.len();
            summary.guarded += view.history.iter().filter(|row| row.guard_satisfied).count();
            summary.gates += view.gates.len();
        }
        self.check_strays(findings);
        summary
    }

    fn holds_of(&self, instance_id: InstanceId) -> &[HoldRow] {
        self.holds.get(&instance_id).map_or(&[], Vec::as_slice)
    }

    /// Rows that belong to nothing.
    fn check_strays(&self, findings: &mut Vec<Finding>) {
        let mut stray = |instance_id: InstanceId, detail: String| {
            findings.push(Finding { instance_id: instance_id.to_string(), detail });
        };
        let known: HashMap<InstanceId, &ProcessView> =
            self.processes.iter().map(|view| (view.row.instance_id, view)).collect();
        for (instance_id, records) in &self.records {
            if !is_known_chain(*instance_id) && !known.contains_key(instance_id) {
                stray(*instance_id, format!("{} records of a process that does not exist", records.len()));
            }
        }
        for (instance_id, holds) in &self.holds {
            if !is_known_chain(*instance_id) && !known.contains_key(instance_id) {
                stray(*instance_id, format!("{} holds in a process that does not exist", holds.len()));
            }
        }
        let mut listed: HashMap<StepId, &StepRow> = HashMap::new();
        for step in &self.steps {
            listed.insert(step.step_id, step);
            let gates = known.get(&step.instance_id).map_or(&[][..], |view| &view.gates);
            let shown = gates.iter().flat_map(|(_, steps)| steps).any(|(row, _)| row == step);
            if !shown {
                stray(step.instance_id, format!("step {} is no part of its process", step.step_id));
            }
        }
        for (step_id, assignments) in &self.assignments {
            if !listed.contains_key(step_id) {
                stray(
                    InstanceId::REGISTRY,
                    format!("{} assignments of step {step_id}, which is none", assignments.len()),
                );
            }
        }
    }
}

/// Everything a query finds, page by page, in the order of ids.
async fn pages<T>(
    read: impl AsyncFn(&Page) -> Result<Vec<T>, StoreError>,
    key: impl Fn(&T) -> Uuid,
) -> Result<Vec<T>, StoreError> {
    let mut all: Vec<T> = Vec::new();
    loop {
        let after = all.last().map(&key);
        let found = read(&Page { after, limit: PAGE, descending: false }).await?;
        let last = found.len() < PAGE;
        for item in found {
            if all.last().is_some_and(|before| key(before) >= key(&item)) {
                return Err(StoreError::Corrupt(format!("a page is out of order at {}", key(&item))));
            }
            all.push(item);
        }
        if last {
            return Ok(all);
        }
    }
}

/// The chains that belong to no process.
const fn is_known_chain(instance_id: InstanceId) -> bool {
    instance_id.0.is_nil() || instance_id.0.as_u128() == InstanceId::GOVERNANCE.0.as_u128()
}
