//! The stores beside the ledger, instance by instance, and what the records themselves say: each instance's rows are compared
//! with its records, and both are given to the history check.

use super::history::{Fed, HistoryCheck};
use super::verify_governance::Known;
use super::verify_log::PAGE;
use super::walk::Walk;
use super::{failed, verify_rows, verify_run};
use crate::Engine;
use crate::evidence::{RunState, lines, run_lines};
use crate::port::{
    Page, ProblemQuery, ProcessQuery, ProcessView, RecordQuery, RegistryDelta, ReplayQuery, RunQuery, RunView,
    StoreError,
};
use crate::rows::RecordRow;
use countersign_kernel::governance::Category;
use countersign_kernel::plan::Plan;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::EventBody;
use countersign_kernel::{Digest, InstanceId};
use countersign_ledger::document::{declaration_document, published_gates_document};
use countersign_ledger::record::HeaderView;
use countersign_ledger::sha256;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Instances at a time, each with its whole past.
const STORES_PAGE: usize = 64;
/// Compiled definitions that are kept.
const MOST_PLANS: usize = 64;

/// Where the comparison of an instance's rows with its records reports to.
struct Stores<'w> {
    walk: &'w mut Walk,
    history: HistoryCheck,
    /// Instances whose rows nobody has seen yet.
    unseen: BTreeSet<InstanceId>,
    plans: HashMap<Digest, Arc<Plan>>,
    /// The registry's records could be read. Without them nobody would seem to have been permitted anything, and every
    /// instance damaged.
    registry_known: bool,
}

impl Stores<'_> {
    /// Instances behind `after` whose rows are still to be seen, a page of them.
    fn next(&self, after: Option<InstanceId>) -> Vec<InstanceId> {
        let behind = |id: &&InstanceId| after.is_none_or(|after| **id > after);
        self.unseen.iter().filter(behind).take(STORES_PAGE).copied().collect()
    }

    /// Rows that cannot be read are not what was recorded. They stop nobody from hearing of it.
    fn unreadable(&mut self, instance_id: InstanceId, what: &str) {
        self.unseen.remove(&instance_id);
        // So both stores say it.
        let code = if what.starts_with("document ") { "document-mismatch" } else { "row-missing" };
        self.walk.find(code, instance_id, format!("{instance_id}: its rows cannot be read: {what}"));
    }
}

impl Engine {
    /// What the stores say of every instance and of the registry, against the records.
    pub(super) async fn verify_stores(&self, walk: &mut Walk, instances: BTreeSet<InstanceId>) -> Result<(), Refusal> {
        let history = HistoryCheck::start(self.config.in_process_callers);
        let mut stores = Stores { walk, history, unseen: instances, plans: HashMap::new(), registry_known: false };
        self.verify_registry(&mut stores).await?;
        self.verify_processes(&mut stores).await?;
        self.verify_runs(&mut stores).await?;
        self.verify_governance(&mut stores).await?;
        for instance_id in std::mem::take(&mut stores.unseen) {
            stores.walk.find("row-missing", instance_id, format!("{instance_id} is neither a process nor a run"));
        }
        finish(stores).await
    }

    /// The same for one instance.
    pub(super) async fn verify_stores_of(&self, walk: &mut Walk, instance_id: InstanceId) -> Result<(), Refusal> {
        let history = HistoryCheck::start(self.config.in_process_callers);
        let unseen = BTreeSet::from([instance_id]);
        let mut stores = Stores { walk, history, unseen, plans: HashMap::new(), registry_known: false };
        self.verify_registry(&mut stores).await?;
        if instance_id == InstanceId::REGISTRY {
            stores.unseen.clear();
        } else if instance_id == InstanceId::GOVERNANCE {
            self.verify_governance(&mut stores).await?;
        } else {
            let found = self.verify_process_of(&mut stores, instance_id).await?;
            if !found && !self.verify_run_of(&mut stores, instance_id).await? {
                let detail = format!("{instance_id} is neither a process nor a run");
                stores.walk.find("row-missing", instance_id, detail);
            }
        }
        finish(stores).await
    }

    async fn verify_registry(&self, stores: &mut Stores<'_>) -> Result<(), Refusal> {
        // Rows first: records that come meanwhile have none there yet, and are left out.
        let stored = match self.reader.registry_since(0).await {
            Err(StoreError::Corrupt(what)) => {
                stores.walk.find("row-missing", InstanceId::REGISTRY, format!("the registry cannot be read: {what}"));
                None
            }
            stored => Some(stored.map_err(failed)?),
        };
        let through = stored.as_ref().map_or(u64::MAX, |stored| stored.head.sequence);
        let Some(records) = self.chain(stores.walk, InstanceId::REGISTRY, 0, through).await? else { return Ok(()) };
        if let Some(stored) = &stored {
            stores.walk.found_all(verify_rows::registry(stored, &records));
            stores.history.give(Fed::Documents(published(stored))).await;
        }
        stores.registry_known = true;
        stores.history.registry_sequence = records.last().map_or(0, |row| row.sequence);
        stores.history.give(Fed::Registry(records)).await;
        let seal = match self.log.latest_checkpoint().await {
            // It was found on the way through the log.
            Err(StoreError::Corrupt(_)) => None,
            // Where nothing is to be proven, the log's key is nobody's.
            _ if self.config.in_process_callers => None,
            seal => seal.map_err(failed)?,
        };
        let keys = self.trusted_keys().await?;
        let signed = seal.zip(keys).map(|(seal, keys)| (seal.note, keys.at(seal.size).to_string()));
        stores.history.give(Fed::EndRegistry(signed)).await;
        Ok(())
    }

    async fn verify_processes(&self, stores: &mut Stores<'_>) -> Result<(), Refusal> {
        let mut page = Page { after: None, limit: STORES_PAGE, descending: false };
        loop {
            let views = match self.reader.processes(&ProcessQuery::default(), &page).await {
                Err(StoreError::Corrupt(_)) => {
                    let ids = stores.next(page.after.map(InstanceId));
                    for instance_id in &ids {
                        self.verify_process_of(stores, *instance_id).await?;
                    }
                    let Some(last) = ids.last() else { return Ok(()) };
                    page.after = Some(last.0);
                    continue;
                }
                views => views.map_err(failed)?,
            };
            let (Some(first), Some(last)) = (views.first(), views.last()) else { return Ok(()) };
            let (first, last) = (first.row.instance_id, last.row.instance_id);
            page.after = Some(last.0);
            let mut chains: HashMap<InstanceId, Vec<RecordRow>> = HashMap::new();
            match self.reader.chains(first, last).await {
                Err(StoreError::Corrupt(_)) => {
                    for view in &views {
                        self.verify_process_of(stores, view.row.instance_id).await?;
                    }
                    continue;
                }
                records => {
                    for row in records.map_err(failed)? {
                        chains.entry(row.instance_id).or_default().push(row);
                    }
                }
            }
            for view in &views {
                let mut chain = chains.remove(&view.row.instance_id).unwrap_or_default();
                chain.truncate(chain.partition_point(|row| row.sequence <= view.head.sequence));
                self.verify_process(stores, view, chain).await?;
            }
        }
    }

    /// Where it is a process. `false`: it is none.
    async fn verify_process_of(&self, stores: &mut Stores<'_>, instance_id: InstanceId) -> Result<bool, Refusal> {
        let query = ProcessQuery { instance_id: Some(instance_id), ..ProcessQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        let view = match self.reader.processes(&query, &page).await {
            Err(StoreError::Corrupt(what)) => {
                stores.unreadable(instance_id, &what);
                return Ok(true);
            }
            views => views.map_err(failed)?.pop(),
        };
        let Some(view) = view else { return Ok(false) };
        stores.unseen.remove(&instance_id);
        if let Some(records) = self.chain(stores.walk, instance_id, 0, view.head.sequence).await? {
            self.verify_process(stores, &view, records).await?;
        }
        Ok(true)
    }

    async fn verify_process(
        &self,
        stores: &mut Stores<'_>,
        view: &ProcessView,
        records: Vec<RecordRow>,
    ) -> Result<(), Refusal> {
        let instance_id = view.row.instance_id;
        stores.unseen.remove(&instance_id);
        stores.walk.found_all(verify_rows::process(view, &records));
        let documents = vec![view.declaration.clone(), view.gate_spec.clone()];
        self.give(stores, instance_id, records, Some(lines::state(view)), documents).await
    }

    /// The problems' rows against the governance chain.
    async fn verify_governance(&self, stores: &mut Stores<'_>) -> Result<(), Refusal> {
        stores.unseen.remove(&InstanceId::GOVERNANCE);
        // Rows first, and again behind the records: what moves meanwhile is looked at the next time.
        let before = self.governance_sequence().await.map_err(failed)?;
        let Some(records) = self.chain(stores.walk, InstanceId::GOVERNANCE, 0, before).await? else { return Ok(()) };
        let mut known = Known::of(&records);
        for category in Category::ALL {
            self.verify_problems(stores, *category, &mut known).await?;
        }
        self.verify_replays(stores, &mut known).await?;
        if self.governance_sequence().await.map_err(failed)? == before {
            let counts = self.reader.count_problems().await.map_err(failed)?;
            stores.walk.found_all(known.finish(&counts));
        }
        if !records.is_empty() {
            self.give(stores, InstanceId::GOVERNANCE, records, None, vec![]).await?;
        }
        Ok(())
    }

    async fn verify_replays(&self, stores: &mut Stores<'_>, known: &mut Known) -> Result<(), Refusal> {
        let mut page = Page { after: None, limit: PAGE, descending: false };
        loop {
            let rows = match self.reader.replay_requests(&ReplayQuery::default(), &page).await {
                Err(StoreError::Corrupt(what)) => {
                    stores.unreadable(InstanceId::GOVERNANCE, &what);
                    return Ok(());
                }
                rows => rows.map_err(failed)?,
            };
            let Some(last) = rows.last() else { return Ok(()) };
            page.after = Some(last.request_id.0);
            rows.iter().for_each(|row| known.replay_row(row));
        }
    }

    async fn verify_problems(
        &self,
        stores: &mut Stores<'_>,
        category: Category,
        known: &mut Known,
    ) -> Result<(), Refusal> {
        let query = ProblemQuery { category, open: None };
        let mut page = Page { after: None, limit: PAGE, descending: false };
        loop {
            let rows = match self.reader.problems(&query, &page).await {
                Err(StoreError::Corrupt(what)) => {
                    stores.unreadable(InstanceId::GOVERNANCE, &what);
                    return Ok(());
                }
                rows => rows.map_err(failed)?,
            };
            let Some(last) = rows.last() else { return Ok(()) };
            page.after = Some(last.problem.problem_id.0);
            rows.into_iter().for_each(|row| known.row(row));
        }
    }

    async fn verify_runs(&self, stores: &mut Stores<'_>) -> Result<(), Refusal> {
        let mut page = Page { after: None, limit: STORES_PAGE, descending: false };
        loop {
            let views = match self.reader.runs(&RunQuery::default(), &page).await {
                Err(StoreError::Corrupt(_)) => {
                    let ids = stores.next(page.after.map(InstanceId));
                    for instance_id in &ids {
                        self.verify_run_of(stores, *instance_id).await?;
                    }
                    let Some(last) = ids.last() else { return Ok(()) };
                    page.after = Some(last.0);
                    continue;
                }
                views => views.map_err(failed)?,
            };
            let Some(last) = views.last() else { return Ok(()) };
            page.after = Some(last.row.instance_id.0);
            for view in views {
                self.verify_run(stores, view).await?;
            }
        }
    }

    /// Where it is a run. `false`: it is none.
    async fn verify_run_of(&self, stores: &mut Stores<'_>, instance_id: InstanceId) -> Result<bool, Refusal> {
        let query = RunQuery { instance_id: Some(instance_id), ..RunQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        let view = match self.reader.runs(&query, &page).await {
            Err(StoreError::Corrupt(what)) => {
                stores.unreadable(instance_id, &what);
                return Ok(true);
            }
            views => views.map_err(failed)?.pop(),
        };
        let Some(view) = view else { return Ok(false) };
        self.verify_run(stores, view).await?;
        Ok(true)
    }

    async fn verify_run(&self, stores: &mut Stores<'_>, view: RunView) -> Result<(), Refusal> {
        let run_id = view.row.instance_id;
        stores.unseen.remove(&run_id);
        let state = match self.run_now(view).await {
            Err(StoreError::Corrupt(what)) => {
                stores.unreadable(run_id, &what);
                return Ok(());
            }
            // It kept moving; its records were verified all the same.
            state => match state.map_err(failed)? {
                None => return Ok(()),
                Some(state) => state,
            },
        };
        let Some(records) = self.chain(stores.walk, run_id, 0, state.view.chain.sequence).await? else {
            return Ok(());
        };
        let plan = self.compiled(stores, &state);
        stores.walk.found_all(verify_run::run(&state, plan.as_ref(), &records));
        let documents = documents(&state);
        self.give(stores, run_id, records, Some(run_lines::state(&state)), documents).await
    }

    /// The plan of a run's document; `None` where the document is none, which is found by its digest.
    fn compiled(&self, stores: &mut Stores<'_>, state: &RunState) -> Option<Arc<Plan>> {
        let digest = sha256(&[&state.document]);
        if stores.plans.len() > MOST_PLANS {
            stores.plans.clear();
        }
        if let Some(plan) = stores.plans.get(&digest) {
            return Some(plan.clone());
        }
        let plan = Arc::new(self.config.language.plan(&state.document).ok()?);
        stores.plans.insert(digest, plan.clone());
        Some(plan)
    }

    /// Gives an instance to the history check, and before it what of the registry its records were decided under.
    async fn give(
        &self,
        stores: &mut Stores<'_>,
        instance_id: InstanceId,
        records: Vec<RecordRow>,
        state: Option<String>,
        documents: Vec<Arc<[u8]>>,
    ) -> Result<(), Refusal> {
        if !stores.registry_known {
            return Ok(());
        }
        let known = stores.history.registry_sequence;
        let under = records.last().and_then(|row| HeaderView::parse(&row.record.header).ok());
        if let Some(under) = under.map(|header| header.registry_seq).filter(|under| *under > known)
            && let Some(more) = self.chain(stores.walk, InstanceId::REGISTRY, known, under).await?
            && let Some(last) = more.last()
        {
            stores.history.registry_sequence = last.sequence;
            stores.history.give(Fed::Registry(more)).await;
        }
        stores.history.give(Fed::Documents(documents)).await;
        stores.history.give(Fed::Instance { instance_id, records, state }).await;
        Ok(())
    }

    /// The records of one chain behind one sequence and up to another. `None`: they cannot be read, which was found.
    async fn chain(
        &self,
        walk: &mut Walk,
        instance_id: InstanceId,
        behind: u64,
        through: u64,
    ) -> Result<Option<Vec<RecordRow>>, Refusal> {
        let query = RecordQuery { instance_id: Some(instance_id), ..RecordQuery::default() };
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let rows = match self.reader.records(&query, &Page { after, limit: PAGE, descending: false }).await {
                Err(StoreError::Corrupt(what)) => {
                    walk.find("record-missing", instance_id, format!("its records cannot be read: {what}"));
                    return Ok(None);
                }
                rows => rows.map_err(failed)?,
            };
            let Some(last) = rows.last() else { break };
            after = Some(last.event_id.0);
            all.extend(rows.into_iter().filter(|row| row.sequence > behind && row.sequence <= through));
        }
        all.sort_by_key(|row: &RecordRow| row.sequence);
        Ok(Some(all))
    }
}

async fn finish(stores: Stores<'_>) -> Result<(), Refusal> {
    let Stores { walk, history, .. } = stores;
    match history.finish().await {
        Ok(found) => walk.found_all(found),
        Err(error) => {
            tracing::error!(error, "the history check has failed");
            return Err(Refusal::new(Code::RecordingFailure, "verifying has failed; the server's log says why"));
        }
    }
    Ok(())
}

/// The documents of what was published.
fn published(stored: &RegistryDelta) -> Vec<Arc<[u8]>> {
    let definitions = stored.events.iter().filter_map(|(_, event)| match &event.body {
        EventBody::DefinitionPublished(definition) => Some(definition),
        _ => None,
    });
    let of = |document: countersign_ledger::document::Document| Arc::from(document.bytes.as_slice());
    // What cannot be written is missing, which is found where its digest is asked for.
    let both = definitions.flat_map(|definition| {
        [declaration_document(&definition.declaration), published_gates_document(&definition.gate_spec)]
    });
    both.filter_map(|document| document.ok().map(of))
        .chain(stored.workflows.iter().map(|(_, body)| body.clone()))
        .collect()
}

fn documents(state: &RunState) -> Vec<Arc<[u8]>> {
    let own = [&state.declaration, &state.gate_spec].map(|document| Arc::from(document.bytes.as_slice()));
    own.into_iter().chain([state.document.clone()]).chain(state.machine.clone()).collect()
}
