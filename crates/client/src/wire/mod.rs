//! The JSON that crosses the wire, one file per resource. These types are the contract: the server
//! parses and writes them, the client and the OpenAPI document are made from them.
//!
//! Requests refuse unknown fields; answers may gain fields, so readers ignore what they do not know.
//! Times are RFC 3339 UTC text with microseconds (`2026-11-15T19:47:28.123456Z`) and ids are opaque
//! text: nothing here interprets either.

mod actions;
mod actors;
mod approvals;
mod cells;
mod definitions;
mod delegations;
mod governance;
mod grants;
mod graph;
mod holds;
mod ledger;
mod outbox;
mod processes;
mod proposals;
mod registry;
mod replays;
mod runs;
mod schedules;
mod sessions;
mod steps;
mod stream;
mod tasks;
mod timeline;
mod workers;

pub use actions::*;
pub use actors::*;
pub use approvals::*;
pub use cells::*;
pub use definitions::*;
pub use delegations::*;
pub use governance::*;
pub use grants::*;
pub use graph::*;
pub use holds::*;
pub use ledger::*;
pub use outbox::*;
pub use processes::*;
pub use proposals::*;
pub use registry::*;
pub use replays::*;
pub use runs::*;
pub use schedules::*;
pub use sessions::*;
pub use steps::*;
pub use stream::*;
pub use tasks::*;
pub use timeline::*;
pub use workers::*;

use serde::{Deserialize, Serialize};

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    pub items: Vec<T>,
    /// The cursor of the next page; null when this is the last one.
    pub next: Option<String>,
}

/// Why a request was refused (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The address of the code's page.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// What the code means, in a few words.
    pub title: String,
    /// The HTTP status, again.
    pub status: u16,
    /// The exact code, e.g. `gate-not-cleared`.
    pub code: String,
    /// What was wrong with this request, and what to do about it.
    pub detail: String,
    /// The place at fault, as a path into the request: `transitions[2].to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// For `invalid-definition`: everything that is wrong with the document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<DefinitionProblem>,
}

/// The empty object `{}`, for requests that say everything in their address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Empty {}

#[cfg(test)]
mod tests;
