//! Events for the world outside, and their deliveries to webhooks.

use serde::{Deserialize, Serialize};

/// The state of an event, or of its delivery to one webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum OutboxState {
    /// On its way.
    Pending,
    Delivered,
    /// Given up.
    Dead,
}

/// An event that a step sent, with its deliveries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutboxEvent {
    pub outbox_id: String,
    pub run_id: String,
    #[serde(rename = "type")]
    pub event_type: String,
    /// The step that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub created_at: String,
    /// `dead` where nothing is on its way any more and a webhook did not get it.
    pub state: OutboxState,
    /// Who last had what was given up tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed_at: Option<String>,
    /// One per webhook that selects it. None: no node has looked at it, or no webhook selects it.
    pub deliveries: Vec<OutboxDelivery>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutboxDelivery {
    /// The webhook's name.
    pub webhook: String,
    pub state: OutboxState,
    pub attempts: u64,
    /// While it is pending; absent where that is at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<String>,
    /// When it was delivered or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Which events to list, in the order in which they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct OutboxQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<OutboxState>,
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
