//! Finds out whether a transaction committed, after the answer to its COMMIT was lost.

use super::connect::failed;
use super::{BEGIN, Backend, PostgresWriter, REGISTRY_LOCK};
use crate::value::Columns;
use countersign_engine::port::{Batch, Committed, StoreError, Unit, Verdict};
use countersign_kernel::EventId;
use countersign_kernel::plan::StepSeq;
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

impl PostgresWriter {
    /// Ends the connection whose answer was lost, on the server's side too, then looks for what it has left: a statement
    /// that the server has not read yet would still be carried out.
    pub(super) async fn find_out(&mut self, batch: &Batch, cause: &str) -> Result<Committed, StoreError> {
        let first: Option<EventId> = batch.units.iter().flat_map(|unit| &unit.records).map(|row| row.event_id).next();
        let mut last_error = cause.to_owned();
        let backend = self.session.as_ref().map(|session| session.backend);
        for attempt in 0..20u32 {
            tokio::time::sleep(std::time::Duration::from_millis(u64::from(attempt.min(10)) * 100)).await;
            self.session = None;
            match self.was_committed(batch, backend).await {
                Ok(verdicts) => {
                    tracing::warn!(?first, "the answer to a commit was lost and has been found out");
                    return Ok(Committed::Done(verdicts));
                }
                Err(error) => last_error = error.to_string(),
            }
        }
        Err(StoreError::Unknown(last_error))
    }

    async fn was_committed(&mut self, batch: &Batch, by: Option<Backend>) -> Result<Vec<Verdict>, StoreError> {
        let session = self.session().await?;
        if let Some(Backend { pid, since }) = by {
            let sql = "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE pid = $1 \
                       AND (EXTRACT(EPOCH FROM backend_start) * 1000000)::int8 = $2";
            let found = session.client.query_opt(sql, &[&pid, &since]).await.map_err(failed)?;
            if found.map(|row| row.bool(0)).transpose()? == Some(false) {
                return Err(StoreError::Transient("the lost connection's work has not ended".to_owned()));
            }
        }
        session.client.batch_execute(BEGIN).await.map_err(failed)?;
        // The old transaction holds this lock shared until it ends.
        session.client.query(&session.lock_alone, &[&REGISTRY_LOCK]).await.map_err(failed)?;
        let ids: Vec<Uuid> =
            batch.units.iter().filter_map(|unit| unit.records.first()).map(|row| row.event_id.0).collect();
        let rows = session
            .client
            .query("SELECT event_id FROM records WHERE event_id = ANY($1)", &[&ids])
            .await
            .map_err(failed)?;
        let found: HashSet<Uuid> = rows.iter().map(|row| row.id(0)).collect::<Result<_, _>>()?;
        let beats = self.beats_found(batch.units.iter().filter(|unit| unit.records.is_empty())).await?;
        self.session().await?.client.batch_execute("COMMIT").await.map_err(failed)?;
        let verdict = |unit: &Unit| {
            let won = match unit.records.first() {
                Some(row) => found.contains(&row.event_id.0),
                None => beats.contains(&unit.instance_id.0),
            };
            if won { Verdict::Won } else { Verdict::Lost }
        };
        Ok(batch.units.iter().map(verdict).chain(batch.checks.iter().map(|_| Verdict::Lost)).collect())
    }

    /// Units without records prolong leases. One was committed where the instance has had as many beats and its steps
    /// have the leases that it gave them: another node may have prolonged others from the same beat.
    async fn beats_found<'b>(&mut self, units: impl Iterator<Item = &'b Unit>) -> Result<HashSet<Uuid>, StoreError> {
        let units: Vec<&Unit> = units.collect();
        if units.is_empty() {
            return Ok(HashSet::new());
        }
        let client = &self.session().await?.client;
        let ids: Vec<Uuid> = units.iter().map(|unit| unit.instance_id.0).collect();
        let sql = "SELECT instance_id, beats FROM instances WHERE instance_id = ANY($1)";
        let rows = client.query(sql, &[&ids]).await.map_err(failed)?;
        let beats: HashMap<Uuid, u64> =
            rows.iter().map(|row| Ok((row.id(0)?, row.count(1)?))).collect::<Result<_, StoreError>>()?;
        let steps: Vec<(Uuid, StepSeq)> =
            units.iter().flat_map(|unit| unit.steps.keys().map(|seq| (unit.instance_id.0, *seq))).collect();
        let step_ids: Vec<Uuid> = steps.iter().map(|(id, _)| *id).collect();
        let step_seqs: Vec<i64> = steps.iter().map(|(_, seq)| i64::from(*seq)).collect();
        let sql = "SELECT s.instance_id, s.step_seq, s.lease_token, s.locked_until_us FROM UNNEST($1::uuid[], $2::int8[]) \
                   AS u(instance_id, step_seq) JOIN run_steps s ON s.instance_id = u.instance_id AND s.step_seq = u.step_seq";
        let rows = client.query(sql, &[&step_ids, &step_seqs]).await.map_err(failed)?;
        let mut leases: HashMap<(Uuid, i64), (Option<Uuid>, Option<i64>)> = HashMap::new();
        for row in &rows {
            leases.insert((row.id(0)?, row.int(1)?), (row.optional_id(2)?, row.optional_int(3)?));
        }
        let was_written = |unit: &&&Unit| {
            let id = unit.instance_id.0;
            let lease = |seq: &StepSeq| leases.get(&(id, i64::from(*seq))).copied();
            beats.get(&id).is_some_and(|found| *found >= unit.beats)
                && unit.steps.iter().all(|(seq, step)| {
                    lease(seq) == Some((step.state.lease_token, step.state.locked_until.map(|until| until.0)))
                })
        };
        Ok(units.iter().filter(was_written).map(|unit| unit.instance_id.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::place::{Place, commit};
    use crate::tests::samples::*;
    use countersign_engine::rows::StepState;
    use countersign_kernel::Time;

    fn leased(until: i64) -> StepState {
        StepState { locked_until: Some(Time(until)), ..full_step() }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_heartbeat_is_found_by_what_it_wrote() {
        let place = Place::postgres().await;
        let (mut other, _) = place.open().await;
        let mut writer = PostgresWriter::new(crate::postgres::Settings::parse(&place.url).unwrap());
        let id = run_id(1);
        let begun = start(small_run(id), small_head(id, "executing"), [added(0, leased(1)), added(1, leased(1))]);
        let batch = |units: Vec<Unit>| Batch { registry_sequence: 0, changes_registry: false, units, checks: vec![] };
        let beat = heartbeat(&begun, 1, [changed(0, leased(2))]);
        assert_eq!(writer.was_committed(&batch(vec![begun.clone()]), None).await.unwrap(), [Verdict::Lost]);
        commit(&mut *other, vec![begun.clone()]).await;
        assert_eq!(writer.was_committed(&batch(vec![begun.clone()]), None).await.unwrap(), [Verdict::Won]);
        assert_eq!(writer.was_committed(&batch(vec![beat.clone()]), None).await.unwrap(), [Verdict::Lost]);
        commit(&mut *other, vec![beat.clone()]).await;
        assert_eq!(writer.was_committed(&batch(vec![beat]), None).await.unwrap(), [Verdict::Won]);
        // From the same beat another node prolonged another lease.
        let elsewhere = heartbeat(&begun, 1, [changed(1, leased(2))]);
        assert_eq!(writer.was_committed(&batch(vec![elsewhere]), None).await.unwrap(), [Verdict::Lost]);
        assert_eq!(writer.find_out(&batch(vec![begun]), "lost").await.unwrap(), Committed::Done(vec![Verdict::Won]));
    }
}
