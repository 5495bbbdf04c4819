//! Holds and purges as they are asked for: by a record or a hold, of which only the store knows to which instance it
//! belongs. That never changes, so it may be looked up before; everything else is decided by the committer.

use crate::outcome::{Command, Target};
use crate::port::{HoldQuery, Page, PurgeableQuery, RecordQuery, StoreError};
use crate::rows::{HoldRow, RecordRow};
use crate::{Engine, store_failure};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::registry::scopes;
use countersign_kernel::retention::{PlaceHold, PurgeRecord, ReleaseHold};
use countersign_kernel::{EventId, HoldId, InstanceId, process, registry};

const ONE: Page = Page { after: None, limit: 1, descending: false };

impl Engine {
    /// The command that holds a record.
    pub async fn place_hold(
        &self,
        record_ref: &str,
        reason: String,
        case_ref: Option<String>,
    ) -> Result<Command, Refusal> {
        let instance_id = self.instance_of_record(record_ref).await.map_err(|error| store_failure(&error))?;
        let command = PlaceHold { record_ref: record_ref.to_owned(), reason, case_ref, record: None };
        Ok(match instance_id {
            Some(InstanceId::REGISTRY) => Command::Registry(registry::Command::PlaceHold(command)),
            instance_id => on(instance_id, process::Command::PlaceHold(command)),
        })
    }

    /// The command that releases a hold.
    pub async fn release_hold(&self, hold_id: &str, reason: Option<String>) -> Result<Command, Refusal> {
        let instance_id = self.instance_of_hold(hold_id).await.map_err(|error| store_failure(&error))?;
        let command = ReleaseHold { hold_id: hold_id.to_owned(), reason, hold: None };
        Ok(match instance_id {
            Some(InstanceId::REGISTRY) => Command::Registry(registry::Command::ReleaseHold(command)),
            instance_id => on(instance_id, process::Command::ReleaseHold(command)),
        })
    }

    /// The command that purges a record.
    pub async fn purge_record(&self, event_id: &str) -> Result<Command, Refusal> {
        let instance_id = self.instance_of_record(event_id).await.map_err(|error| store_failure(&error))?;
        let command = PurgeRecord::of(event_id);
        // The registry is no process; a purge of its records is refused without one.
        Ok(on(instance_id.filter(|id| *id != InstanceId::REGISTRY), process::Command::PurgeRecord(command)))
    }

    /// The command that records that the evidence of a process is taken away. Its outcome names the record.
    pub fn export_evidence(&self, instance_id: InstanceId) -> Command {
        on(Some(instance_id), process::Command::RecordExport)
    }

    pub async fn read_holds(&self, actor_ref: &str, query: &HoldQuery, page: &Page) -> Result<Vec<HoldRow>, Refusal> {
        self.require_scope(actor_ref, scopes::AUDIT_READ).await?;
        self.reader.holds(query, page).await.map_err(|error| store_failure(&error))
    }

    /// Records whose retention has elapsed, those that are held included, each with its holds.
    pub async fn read_purgeable(
        &self,
        actor_ref: &str,
        after: Option<(countersign_kernel::Time, EventId)>,
        limit: usize,
        descending: bool,
    ) -> Result<Vec<(RecordRow, Vec<HoldRow>)>, Refusal> {
        self.require_scope(actor_ref, scopes::AUDIT_READ).await?;
        let query = PurgeableQuery { now: self.now(), after, limit, descending };
        self.reader.purgeable(&query).await.map_err(|error| store_failure(&error))
    }

    async fn instance_of_record(&self, event_id: &str) -> Result<Option<InstanceId>, StoreError> {
        let Some(event_id) = EventId::parse(event_id) else { return Ok(None) };
        let query = RecordQuery { event_id: Some(event_id), ..RecordQuery::default() };
        Ok(self.reader.records(&query, &ONE).await?.first().map(|row| row.instance_id))
    }

    async fn instance_of_hold(&self, hold_id: &str) -> Result<Option<InstanceId>, StoreError> {
        let Some(hold_id) = HoldId::parse(hold_id) else { return Ok(None) };
        let query = HoldQuery { hold_id: Some(hold_id), ..HoldQuery::default() };
        Ok(self.reader.holds(&query, &ONE).await?.first().map(|row| row.instance_id))
    }
}

fn on(instance_id: Option<InstanceId>, command: process::Command) -> Command {
    Command::Process { target: instance_id.map_or(Target::Nowhere, Target::Existing), command }
}
