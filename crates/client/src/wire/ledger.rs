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
    /// `desc`: the newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// At most this many items (default 50, at most 500).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A record to verify, with the payload as the asker knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct VerifyRecord {
    pub event_id: String,
    /// Compared with the stored payload as a value; what is hashed is what is stored.
    pub payload: Value,
    /// Take a record that no checkpoint covers yet for verified, as far as it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lenient: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum VerificationResult {
    Verified,
    FailedVerification,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecordVerification {
    pub result: VerificationResult,
    /// Why it failed: `attestation-proof-invalid`, `attestation-actor-unknown-in-registry`, `seal-proof-invalid`,
    /// `seal-record-set-mismatch`, `unsealed` or `purged`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// A seal over everything that was recorded before it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Seal {
    /// `<origin>@<size>`
    pub evidence_id: String,
    pub size: u64,
    /// Of the log's tree, in hex.
    pub root: String,
}

/// How far the log is sealed, and when all of it was last verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LedgerStatus {
    /// Records under the newest checkpoint.
    pub sealed: u64,
    /// When that was signed; null before the first.
    pub sealed_at: Option<String>,
    /// Records behind it. A very large number is not counted to the end.
    pub unsealed: u64,
    /// How long the oldest of them has waited, in milliseconds; 0 where none waits.
    pub seal_lag_ms: u64,
    /// Null where the whole log was never verified on request.
    pub last_verification: Option<LastVerification>,
}

/// The last `POST /v1/ledger/verify-log` over the whole log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LastVerification {
    pub at: String,
    /// Who asked for it.
    pub by: String,
    pub result: VerificationResult,
    pub records: u64,
    /// The newest checkpoint that was reached.
    pub size: u64,
    pub findings: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct VerifyLog {
    /// Only what concerns this process; the all-zero id is the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogVerification {
    pub result: VerificationResult,
    /// How many records were read again.
    pub records: u64,
    /// The newest checkpoint that was reached, and its root in hex.
    pub size: u64,
    pub root: String,
    /// What is not as it was recorded, the first thousand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    pub code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    pub detail: String,
}

/// A line of a verification that is followed (`Accept: application/x-ndjson`); the last line is the answer itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub verified: u64,
    pub of: u64,
}

/// The proof that a record is in the log (RFC 6962).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecordProof {
    pub event_id: String,
    pub log_index: u64,
    /// The leaf.
    pub record_hash: String,
    /// Of the checkpoint's tree.
    pub size: u64,
    pub root: String,
    /// Hashes from the leaf upwards, in hex.
    pub proof: Vec<String>,
    /// The signed note.
    pub checkpoint: String,
}

/// That the log of `old` entries is the beginning of the log of `new` entries (RFC 6962).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConsistencyProof {
    pub old: u64,
    pub new: u64,
    pub old_root: String,
    pub new_root: String,
    pub proof: Vec<String>,
}

/// Two sizes of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ConsistencyQuery {
    pub old: u64,
    pub new: u64,
}

/// What to take evidence of: one process, or every process with a record in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ExportQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// Where other keys took over the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogRotations {
    pub rotations: Vec<LogRotation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogRotation {
    /// How many entries the log had.
    pub size: u64,
    /// The cross-signed note.
    pub note: String,
    pub rotated_at: String,
}
