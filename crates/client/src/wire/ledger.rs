//! The ledger: one record for everything that happened.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One record. Nothing in it ever changes, except that a lawful purge empties `payload`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LedgerRecord {
    pub event_id: String,
    /// What was done: `transition_fired`.
    pub action_ref: String,
    /// Who did it.
    pub actor_ref: String,
    pub recorded_at: String,
    /// The process, or the registry for actors, grants and definitions.
    pub instance_id: String,
    /// The record's place within its instance, dense from 1.
    pub sequence: u64,
    /// How the actor is known: `actor_signed`, `passkey_signed` or `server_attested`.
    pub assurance: String,
    /// What was recorded; null once the record has been purged.
    pub payload: Value,
    pub retention: Retention,
    /// The hash of the record's header, in hex; the next record of the instance names it.
    pub record_hash: String,
    /// The `record_hash` of the record before it in its instance; zeros for the first.
    pub prev: String,
    /// The last record of the registry that was in force when this was decided.
    pub registry_seq: u64,
    /// The record's place in the sealed log; absent until it is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_index: Option<u64>,
}

/// How long a record is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Retention {
    pub policy_ref: String,
    /// Null: it is kept without end.
    pub retention_until: Option<String>,
    pub state: RetentionState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum RetentionState {
    Retained,
    Purged,
}

/// Which records to list, in the order in which they were recorded. Both ends of a time range are
/// inclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct RecordQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// At most this many items (default 50, at most 500).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
