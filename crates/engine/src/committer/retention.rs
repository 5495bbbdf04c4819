//! Holds and purges on their way through the committer: what the store knows of a record is put into the command before it
//! is decided, in every round anew, and the fence makes sure that it still held when the command was written.

use super::round::Round;
use super::{Committer, IDEMPOTENCY_WINDOW_US, Job};
use crate::outcome::{Call, Command};
use crate::port::{Batch, LoadedBody, StoreError};
use crate::purge::{self, Purge};
use crate::rows::Write;
use crate::store_failure;
use countersign_kernel::process::{self, EventBody};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::retention::{HoldFacts, RUN_START, RecordFacts, START};
use countersign_kernel::{EventId, HoldId, Time, registry};
use std::collections::VecDeque;

impl Committer {
    /// Fills in the facts of every job that is about a record. One damaged record must not stop its neighbours: its calls
    /// are refused, the others go on.
    pub(super) async fn resolve_records(&mut self, jobs: &mut VecDeque<Job>) -> Result<(), StoreError> {
        self.copies.clear();
        if !jobs.iter().any(|job| is_about_a_record(&job.call)) {
            return Ok(());
        }
        let mut waiting = std::mem::take(jobs);
        while let Some(mut job) = waiting.pop_front() {
            match self.resolve_record(&mut job.call).await {
                Ok(()) => jobs.push_back(job),
                Err(error @ StoreError::Corrupt(_)) => job.give(Err(store_failure(&error))),
                Err(error) => {
                    jobs.push_back(job);
                    jobs.append(&mut waiting);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    async fn resolve_record(&mut self, call: &mut Call) -> Result<(), StoreError> {
        let Command::Process { command, .. } = &mut call.command else { return Ok(()) };
        match command {
            process::Command::PlaceHold(command) => command.record = self.record_facts(&command.record_ref).await?,
            process::Command::ReleaseHold(command) => command.hold = self.hold_facts(&command.hold_id).await?,
            process::Command::PurgeRecord(command) => command.record = self.purge_facts(&command.event_id).await?,
            _ => {}
        }
        Ok(())
    }

    /// A registry command with its facts; nothing else changes the registry before it is decided.
    pub(super) async fn with_facts(&mut self, command: &registry::Command) -> Result<registry::Command, StoreError> {
        let mut command = command.clone();
        match &mut command {
            registry::Command::PlaceHold(command) => command.record = self.record_facts(&command.record_ref).await?,
            registry::Command::ReleaseHold(command) => command.hold = self.hold_facts(&command.hold_id).await?,
            _ => {}
        }
        Ok(command)
    }

    async fn record_facts(&mut self, event_id: &str) -> Result<Option<RecordFacts>, StoreError> {
        let Some(event_id) = EventId::parse(event_id) else { return Ok(None) };
        self.writer.find_record(event_id).await?.as_ref().map(purge::facts).transpose()
    }

    async fn hold_facts(&mut self, hold_id: &str) -> Result<Option<HoldFacts>, StoreError> {
        let Some(hold_id) = HoldId::parse(hold_id) else { return Ok(None) };
        let hold = self.writer.find_hold(hold_id).await?;
        Ok(hold.map(|hold| HoldFacts {
            hold_id,
            record_ref: hold.record_ref,
            instance_id: hold.instance_id,
            released: hold.released.is_some(),
        }))
    }

    /// The facts, and beside them what the purge would destroy.
    async fn purge_facts(&mut self, event_id: &str) -> Result<Option<RecordFacts>, StoreError> {
        let Some(event_id) = EventId::parse(event_id) else { return Ok(None) };
        let Some(row) = self.writer.find_record(event_id).await? else { return Ok(None) };
        if let Some(purge) = Purge::of(&row)? {
            let steps = match purge.steps() {
                None => vec![],
                Some(of) => self.writer.steps(of).await?,
            };
            let keys_expire_at = Time(row.recorded_at.0.saturating_add(IDEMPOTENCY_WINDOW_US));
            let mut writes = purge.writes(&steps, keys_expire_at);
            if purge.is_of_run() {
                for loaded in self.writer.load(&[row.instance_id]).await? {
                    if let LoadedBody::Run(run) = &loaded.body {
                        writes.extend(purge.run_writes(run, super::runs::FOR_EVER));
                        let (instance_id, expires_at) = (row.instance_id, super::runs::STARTED);
                        writes.push(Write::ForgetKeys { instance_id, expires_at });
                    }
                }
            }
            self.copies.insert(event_id, writes);
        }
        purge::facts(&row).map(Some)
    }

    /// What the store said is older than this batch. `false` where the call must wait for the batch: the start of a process to
    /// which it adds approval steps repeats its subject in rows that are not there yet.
    pub(super) fn bring_up_to_date(&mut self, call: &mut Call, round: &Round) -> bool {
        let Command::Process { command: process::Command::PurgeRecord(command), .. } = &mut call.command else {
            return true;
        };
        let Some(record) = &mut command.record else { return true };
        record.purged |= round.purged.contains(&record.event_id);
        let run = self.cache.get(&record.instance_id).and_then(|instance| instance.run.as_deref());
        command.run_lives = run.is_some_and(|run| !run.head.state.is_ended());
        !matches!(record.action_ref.as_str(), START | RUN_START) || !round.opened.contains(&record.instance_id)
    }

    /// The rows of a purge that was accepted.
    pub(super) fn write_purge(&self, event: &process::Event, writes: &mut Vec<Write>) -> Result<(), Refusal> {
        let EventBody::RecordPurged { record } = &event.body else { return Ok(()) };
        let copies = self.copies.get(&record.event_id).ok_or_else(|| {
            Refusal::new(Code::RecordingFailure, "what the record repeats elsewhere is not known; nothing was written")
        })?;
        writes.extend(copies.iter().cloned());
        Ok(())
    }

    /// A run that holds what was purged is read again.
    pub(super) fn forget_runs(&mut self, batch: &Batch) {
        let purges = |write: &Write| matches!(write, Write::PurgeRecord { .. });
        for unit in batch.units.iter().filter(|unit| unit.writes.iter().any(purges)) {
            if self.cache.get(&unit.instance_id).is_some_and(|instance| instance.run.is_some()) {
                self.cache.remove(&unit.instance_id);
            }
        }
    }

    /// What was purged must not linger in the store's own files. Where it cannot be overwritten at once, housekeeping
    /// tries again.
    pub(super) async fn after_purges(&mut self, batch: &Batch) {
        let purges = |write: &Write| matches!(write, Write::PurgeRecord { .. });
        if batch.units.iter().flat_map(|unit| &unit.writes).any(purges) {
            self.scrub_due = true;
            self.scrub().await;
        }
    }

    pub(super) async fn scrub(&mut self) {
        if !self.scrub_due {
            return;
        }
        match self.writer.scrub().await {
            Ok(done) => self.scrub_due = !done,
            Err(error) => tracing::warn!(%error, "purged content may still stand in the store's files; trying again"),
        }
    }
}

fn is_about_a_record(call: &Call) -> bool {
    use process::Command::{PlaceHold, PurgeRecord, ReleaseHold};
    matches!(&call.command, Command::Process { command: PlaceHold(_) | ReleaseHold(_) | PurgeRecord(_), .. })
}
