//! The stores beside the ledger, process by process and run by run, against the records.

use super::verify_log::{PAGE, Walk};
use super::{failed, verify_rows, verify_run};
use crate::Engine;
use crate::port::{Page, ProcessQuery, RecordQuery, RunQuery, StoreError};
use crate::rows::RecordRow;
use countersign_kernel::InstanceId;
use countersign_kernel::refusal::Refusal;
use std::collections::HashMap;

/// Processes at a time, each with its whole past.
const STORES_PAGE: usize = 64;

impl Engine {
    /// What the stores say of every process and of the registry, against the records.
    pub(super) async fn verify_stores(&self, walk: &mut Walk) -> Result<(), Refusal> {
        // Rows first: records that come meanwhile have none there yet, and are left out.
        match self.reader.registry_since(0).await {
            Err(StoreError::Corrupt(what)) => walk.find("row-missing", None, what),
            stored => {
                let stored = stored.map_err(failed)?;
                let records = self.chain(InstanceId::REGISTRY, stored.head.sequence).await?;
                walk.found_all(verify_rows::registry(&stored, &records));
            }
        }
        let mut page = Page { after: None, limit: STORES_PAGE, descending: false };
        loop {
            let views = match self.reader.processes(&ProcessQuery::default(), &page).await {
                // Rows that cannot even be read are not what was recorded. They stop nobody from hearing of it.
                Err(StoreError::Corrupt(what)) => {
                    walk.find("row-missing", None, what);
                    return self.verify_runs(walk, None).await;
                }
                views => views.map_err(failed)?,
            };
            let (Some(first), Some(last)) = (views.first(), views.last()) else {
                return self.verify_runs(walk, None).await;
            };
            let (first, last) = (first.row.instance_id, last.row.instance_id);
            page.after = Some(last.0);
            let records = self.reader.chains(first, last).await.map_err(failed)?;
            let chains: HashMap<InstanceId, &[RecordRow]> = records
                .chunk_by(|a, b| a.instance_id == b.instance_id)
                .filter_map(|chain| Some((chain.first()?.instance_id, chain)))
                .collect();
            for view in &views {
                let chain = chains.get(&view.row.instance_id).copied().unwrap_or_default();
                let end = chain.partition_point(|row| row.sequence <= view.head.sequence);
                walk.found_all(verify_rows::process(view, &chain[..end]));
            }
        }
    }

    /// What the stores say of every run, or of one, against its records.
    async fn verify_runs(&self, walk: &mut Walk, run_id: Option<InstanceId>) -> Result<(), Refusal> {
        let query = RunQuery { instance_id: run_id, ..RunQuery::default() };
        let mut page = Page { after: None, limit: STORES_PAGE, descending: false };
        loop {
            let views = match self.reader.runs(&query, &page).await {
                Err(StoreError::Corrupt(what)) => {
                    walk.find("row-missing", None, what);
                    return Ok(());
                }
                views => views.map_err(failed)?,
            };
            let Some(last) = views.last() else { return Ok(()) };
            page.after = Some(last.row.instance_id.0);
            for view in views {
                let run_id = view.row.instance_id;
                match self.run_now(view).await {
                    Err(StoreError::Corrupt(what)) => walk.find("row-missing", None, what),
                    Err(error) => return Err(failed(error)),
                    // It never stood still; its records were verified all the same.
                    Ok(None) => {}
                    Ok(Some(state)) => {
                        let records = self.chain(run_id, state.view.chain.sequence).await?;
                        walk.found_all(verify_run::run(&state, &records));
                    }
                }
            }
        }
    }

    /// The same for one instance.
    pub(super) async fn verify_stores_of(&self, walk: &mut Walk, instance_id: InstanceId) -> Result<(), Refusal> {
        if instance_id == InstanceId::REGISTRY {
            let stored = self.reader.registry_since(0).await.map_err(failed)?;
            let records = self.chain(instance_id, stored.head.sequence).await?;
            walk.found_all(verify_rows::registry(&stored, &records));
            return Ok(());
        }
        let query = ProcessQuery { instance_id: Some(instance_id), ..ProcessQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        for view in self.reader.processes(&query, &page).await.map_err(failed)? {
            let records = self.chain(instance_id, view.head.sequence).await?;
            walk.found_all(verify_rows::process(&view, &records));
        }
        self.verify_runs(walk, Some(instance_id)).await
    }

    /// The records of one chain up to this sequence.
    async fn chain(&self, instance_id: InstanceId, through: u64) -> Result<Vec<RecordRow>, Refusal> {
        let query = RecordQuery { instance_id: Some(instance_id), ..RecordQuery::default() };
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let rows = self.reader.records(&query, &Page { after, limit: PAGE, descending: false }).await;
            let rows = rows.map_err(failed)?;
            let Some(last) = rows.last() else { return Ok(all) };
            after = Some(last.event_id.0);
            all.extend(rows.into_iter().filter(|row| row.sequence <= through));
        }
    }
}
