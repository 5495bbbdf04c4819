//! Legal holds, and the destruction of what need not be kept any longer.

use super::{Retention, RetentionState};
use serde::{Deserialize, Serialize};

/// Keep a record from being purged until the hold is released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PlaceHold {
    /// The record's event_id.
    pub record_ref: String,
    /// Why it must be kept.
    pub reason: String,
    /// The matter that it is kept for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case_ref: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HoldPlaced {
    pub hold_id: String,
}

/// Release a hold. Other holds on the same record stay active.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReleaseHold {
    /// Why it need not be held any longer; it must not be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HoldReleased {
    /// Always `Released`.
    pub state: HoldState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum HoldState {
    Active,
    Released,
}

/// A legal hold. It is released, never deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hold {
    pub hold_id: String,
    /// The event_id of the record that it keeps.
    pub record_ref: String,
    /// The process of that record, or the registry.
    pub instance_id: String,
    pub state: HoldState,
    pub placed_at: String,
    pub placed_by: String,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_reason: Option<String>,
}

/// Which holds to list, in the order in which they were placed; released ones are included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct HoldQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<HoldState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case_ref: Option<String>,
    /// At most this many items (default 50, at most 500).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The content of a record was destroyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecordPurged {
    pub event_id: String,
    /// Always `Purged`.
    pub state: RetentionState,
    /// The event_id of the `record_purged` that says so.
    pub purged_by: String,
}

/// A record whose retention has elapsed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PurgeableRecord {
    pub event_id: String,
    pub action_ref: String,
    pub actor_ref: String,
    pub recorded_at: String,
    pub instance_id: String,
    pub sequence: u64,
    pub retention: Retention,
    /// By when its content should be gone.
    pub purge_deadline: Option<String>,
    /// That time has passed.
    pub overdue: bool,
    /// What keeps it for now; it can be purged when there are none.
    pub holds: Vec<Hold>,
}

/// Records that may be purged, by the time from which on they may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct PurgeableQuery {
    /// At most this many items (default 50, at most 500).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
