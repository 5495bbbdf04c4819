//! The destruction of what need not be kept any longer, record by record; and which records these are.

use super::auth::Caller;
use super::body::{Address, PostedNothing};
use super::openapi::Refused;
use super::query::{Axis, List, Params, bad_cursor};
use super::{App, Done, Problem, Read, holds, ledger, mismatched, time};
use crate::artifacts;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::port::StoreError;
use countersign_engine::rows::{HoldRow, RecordRow};
use countersign_engine::{Outcome, store_failure};
use countersign_kernel::registry::scopes;
use countersign_kernel::{EventId, Time};
use countersign_ledger::record::Header;
use uuid::Uuid;

pub struct PurgeableList;

impl List for PurgeableList {
    const TAG: u8 = b'q';
    const AXES: &'static [Axis] = &[];
}

/// Destroy the content of a record whose retention has elapsed. Needs `audit:purge`.
#[utoipa::path(post, path = "/v1/ledger/records/{event_id}/purge", tag = "ledger",
    params(("event_id" = String, Path)), request_body = Option<wire::Empty>,
    responses((status = 200, body = wire::RecordPurged), Refused))]
pub async fn purge(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: PostedNothing,
) -> Done<wire::RecordPurged> {
    let engine = app.engine()?;
    let event_id = address.get("event_id").to_owned();
    let command = engine.purge_record(&event_id).await?;
    let named = match engine.require_scope(&caller.actor_ref, scopes::AUDIT_PURGE).await {
        Ok(()) => engine.artifacts_of_record(&event_id).await?,
        Err(_) => vec![],
    };
    artifacts::mark(&app.artifacts, named.clone()).await;
    match engine.execute(caller.call(command, posted.sent)?).await? {
        Outcome::Purged { event_id: purged_by } => {
            if !named.is_empty() {
                // Whoever settled in between has found it named.
                artifacts::mark(&app.artifacts, named).await;
                artifacts::settle(&engine, &app.artifacts).await;
            }
            let purged = wire::RecordPurged { event_id, state: wire::RetentionState::Purged, purged_by };
            Ok((StatusCode::OK, Json(purged)))
        }
        outcome => Err(mismatched(&outcome)),
    }
}

/// Records whose retention has elapsed, by the time when it did; those that are held are listed with what holds them.
/// Needs `audit:read`.
#[utoipa::path(get, path = "/v1/ledger/purgeable", tag = "ledger", params(Params<PurgeableList>),
    responses((status = 200, body = wire::Page<wire::PurgeableRecord>), Refused))]
pub async fn purgeable(
    State(app): State<App>,
    caller: Caller,
    params: Params<PurgeableList>,
) -> Read<wire::Page<wire::PurgeableRecord>> {
    let engine = app.engine()?;
    let (limit, after) = params.keyed_page();
    let after = after.map(|key| position(key).ok_or_else(bad_cursor)).transpose()?;
    let rows = engine.read_purgeable(&caller.actor_ref, after, limit, params.is_descending()).await?;
    let now = engine.now();
    params.answer_keyed(rows, |(row, _)| key(row), |(row, holds)| to_wire(&row, holds, now)).map(Json)
}

/// Where a record stands in this list: the time, and then its id.
fn key(row: &RecordRow) -> Vec<u8> {
    let from = row.purgeable_from.unwrap_or_default().0;
    [from.to_be_bytes().as_slice(), row.event_id.0.as_bytes().as_slice()].concat()
}

fn position(key: &[u8]) -> Option<(Time, EventId)> {
    let (from, event_id) = key.split_first_chunk::<8>()?;
    Some((Time(i64::from_be_bytes(*from)), EventId(Uuid::from_slice(event_id).ok()?)))
}

fn to_wire(row: &RecordRow, held_by: Vec<HoldRow>, now: Time) -> Result<wire::PurgeableRecord, Problem> {
    let header = Header::parse(&row.record.header).map_err(|error| {
        Problem::from(store_failure(&StoreError::Corrupt(format!("record {}: {error}", row.event_id))))
    })?;
    let at = |us: Option<i64>| us.map(|us| time::format(Time(us)));
    Ok(wire::PurgeableRecord {
        event_id: header.event_id,
        action_ref: header.action_ref,
        actor_ref: header.actor_ref,
        recorded_at: time::format(Time(header.recorded_at_us)),
        instance_id: header.instance_id,
        sequence: header.sequence,
        retention: wire::Retention {
            policy_ref: header.retention.policy_ref,
            retention_until: at(header.retention.retention_until_us),
            state: ledger::records::retention_state(row),
        },
        purge_deadline: at(header.retention.purge_deadline_us),
        overdue: header.retention.purge_deadline_us.is_some_and(|deadline| deadline < now.0),
        holds: held_by.into_iter().map(holds::to_wire).collect(),
    })
}
