//! Legal holds: placed on a record, released one by one, never deleted.

use super::auth::Caller;
use super::body::{Address, Posted};
use super::openapi::Refused;
use super::query::{Axis, List, Params};
use super::{App, Done, Read, mismatched, time};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::Outcome;
use countersign_engine::port::HoldQuery;
use countersign_engine::rows::HoldRow;
use countersign_kernel::EventId;

const ACTIVE: &str = "Active";
const RELEASED: &str = "Released";

pub struct HoldList;

impl List for HoldList {
    const TAG: u8 = b'h';
    const AXES: &'static [Axis] =
        &[Axis::Text("record_ref"), Axis::Word("state", &[ACTIVE, RELEASED]), Axis::Text("case_ref")];
}

/// Keep a record from being purged. Needs `audit:hold`.
#[utoipa::path(post, path = "/v1/ledger/holds", tag = "ledger", request_body = wire::PlaceHold,
    responses((status = 201, body = wire::HoldPlaced), Refused))]
pub async fn place(State(app): State<App>, caller: Caller, posted: Posted<wire::PlaceHold>) -> Done<wire::HoldPlaced> {
    let wire::PlaceHold { record_ref, reason, case_ref } = posted.body;
    let engine = app.engine()?;
    let command = engine.place_hold(&record_ref, reason, case_ref).await?;
    match engine.execute(caller.call(command, posted.sent)?).await? {
        Outcome::HoldPlaced { hold_id } => Ok((StatusCode::CREATED, Json(wire::HoldPlaced { hold_id }))),
        outcome => Err(mismatched(&outcome)),
    }
}

/// End a hold. Needs `audit:hold`.
#[utoipa::path(post, path = "/v1/ledger/holds/{hold_id}/release", tag = "ledger", params(("hold_id" = String, Path)),
    request_body = wire::ReleaseHold, responses((status = 200, body = wire::HoldReleased), Refused))]
pub async fn release(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::ReleaseHold>,
) -> Done<wire::HoldReleased> {
    let engine = app.engine()?;
    let command = engine.release_hold(address.get("hold_id"), posted.body.reason).await?;
    match engine.execute(caller.call(command, posted.sent)?).await? {
        Outcome::HoldReleased => Ok((StatusCode::OK, Json(wire::HoldReleased { state: wire::HoldState::Released }))),
        outcome => Err(mismatched(&outcome)),
    }
}

/// Holds, in the order in which they were placed, released ones included. Needs `audit:read`.
#[utoipa::path(get, path = "/v1/ledger/holds", tag = "ledger", params(Params<HoldList>),
    responses((status = 200, body = wire::Page<wire::Hold>), Refused))]
pub async fn list(State(app): State<App>, caller: Caller, params: Params<HoldList>) -> Read<wire::Page<wire::Hold>> {
    let query = HoldQuery {
        hold_id: None,
        record_ref: params.id("record_ref", EventId::parse),
        case_ref: params.text("case_ref"),
        released: params.text("state").map(|state| state == RELEASED),
    };
    let rows = app.engine()?.read_holds(&caller.actor_ref, &query, &params.page()?).await?;
    params.answer(rows, |row| row.hold_id.0, |row| Ok(to_wire(row))).map(Json)
}

pub fn to_wire(row: HoldRow) -> wire::Hold {
    let state = if row.released.is_some() { wire::HoldState::Released } else { wire::HoldState::Active };
    let (released_at, released_by, release_reason) = match row.released {
        Some(release) => (Some(time::format(release.at)), Some(release.by), Some(release.reason)),
        None => (None, None, None),
    };
    wire::Hold {
        hold_id: row.hold_id.to_string(),
        record_ref: row.record_ref.to_string(),
        instance_id: row.instance_id.to_string(),
        state,
        placed_at: time::format(row.placed_at),
        placed_by: row.placed_by,
        reason: row.reason,
        case_ref: row.case_ref,
        released_at,
        released_by,
        release_reason,
    }
}
