//! Ledger records as they are stored: the header's members, and the payload as the JSON that it is.

use crate::api::auth::Caller;
use crate::api::body::Address;
use crate::api::openapi::Refused;
use crate::api::query::{Axis, List, NoQuery, Params};
use crate::api::{App, Problem, Read, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::{Page, RecordQuery, StoreError};
use countersign_engine::rows::RecordRow;
use countersign_engine::store_failure;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::{EventId, InstanceId, Time};
use countersign_ledger::record::Header;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;

pub struct RecordList;

impl List for RecordList {
    const TAG: u8 = b'l';
    const AXES: &'static [Axis] = &[
        Axis::Text("instance_id"),
        Axis::Text("action_ref"),
        Axis::Text("actor_ref"),
        Axis::Time("after"),
        Axis::Time("before"),
    ];
}

/// A record with what a checker needs beside it.
#[derive(Serialize, utoipa::ToSchema)]
pub struct RecordView {
    #[serde(flatten)]
    record: wire::LedgerRecord,
    /// SHA-256 of the salt and the payload's bytes, as the header states it.
    payload_digest: String,
    /// How the actor was known, as the JSON that it is (`spec/record.md`, section 5).
    attestation: Value,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct RecordPage {
    items: Vec<RecordView>,
    /// The cursor of the next page; null when this is the last one.
    next: Option<String>,
}

/// Records, in the order in which they were recorded. Needs `audit:read`.
#[utoipa::path(get, path = "/v1/ledger/records", tag = "ledger", params(Params<RecordList>),
    responses((status = 200, body = RecordPage), Refused))]
pub async fn list(State(app): State<App>, caller: Caller, params: Params<RecordList>) -> Read<RecordPage> {
    let query = RecordQuery {
        event_id: None,
        instance_id: params.id("instance_id", InstanceId::parse),
        action_ref: params.text("action_ref"),
        actor_ref: params.text("actor_ref"),
        recorded: params.range(""),
    };
    let engine = app.engine()?;
    let rows = engine.read_records(&caller.actor_ref, &query, &params.page()?).await?;
    let ids: Vec<EventId> = rows.iter().map(|row| row.event_id).collect();
    let places: HashMap<EventId, u64> = (ids.iter().copied().zip(engine.log_indices(&ids).await?))
        .filter_map(|(id, log_index)| Some((id, log_index?)))
        .collect();
    let shown = |row: RecordRow| {
        let log_index = places.get(&row.event_id).copied();
        to_wire(row, log_index)
    };
    let wire::Page { items, next } = params.answer(rows, |row| row.event_id.0, shown)?;
    Ok(Json(RecordPage { items, next }))
}

/// One record. Needs `audit:read`.
#[utoipa::path(get, path = "/v1/ledger/records/{event_id}", tag = "ledger", params(("event_id" = String, Path)),
    responses((status = 200, body = RecordView), Refused))]
pub async fn read(State(app): State<App>, caller: Caller, address: Address, _: NoQuery) -> Read<RecordView> {
    let event_id = EventId::parse(address.get("event_id")).unwrap_or(EventId(uuid::Uuid::max()));
    let query = RecordQuery { event_id: Some(event_id), ..RecordQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let engine = app.engine()?;
    let row = engine.read_records(&caller.actor_ref, &query, &page).await?.into_iter().next();
    let row =
        row.ok_or_else(|| Refusal::new(Code::NotKnown, "there is no record with this event_id").at("event_id"))?;
    let log_index = engine.log_indices(&[row.event_id]).await?.into_iter().next().flatten();
    to_wire(row, log_index).map(Json)
}

pub fn retention_state(row: &RecordRow) -> wire::RetentionState {
    if row.record.is_purged() { wire::RetentionState::Purged } else { wire::RetentionState::Retained }
}

fn to_wire(row: RecordRow, log_index: Option<u64>) -> Result<RecordView, Problem> {
    let damaged =
        |what: String| Problem::from(store_failure(&StoreError::Corrupt(format!("record {}: {what}", row.event_id))));
    let header = Header::parse(&row.record.header).map_err(|error| damaged(error.to_string()))?;
    let json = |part: Option<&[u8]>| match part {
        Some(bytes) => serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string())),
        // Purged.
        None => Ok(Value::Null),
    };
    let payload: Value = json(row.record.payload())?;
    let attestation = json(row.record.content.as_ref().map(|content| content.attestation.as_slice()))?;
    Ok(RecordView {
        record: wire::LedgerRecord {
            event_id: header.event_id,
            action_ref: header.action_ref,
            actor_ref: header.actor_ref,
            recorded_at: time::format(Time(header.recorded_at_us)),
            instance_id: header.instance_id,
            sequence: header.sequence,
            assurance: header.assurance,
            payload,
            retention: wire::Retention {
                policy_ref: header.retention.policy_ref,
                retention_until: header.retention.retention_until_us.map(|us| time::format(Time(us))),
                state: retention_state(&row),
            },
            record_hash: row.record.record_hash.to_string(),
            prev: header.prev,
            registry_seq: header.registry_seq,
            log_index,
        },
        payload_digest: header.payload_digest,
        attestation,
    })
}
