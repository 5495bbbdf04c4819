//! Schedules: what starts runs by itself, and how it is paused, resumed and triggered.

use serde::{Deserialize, Serialize};

/// What starts runs of a definition by the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleView {
    pub definition: String,
    pub version: u32,
    pub cron: String,
    pub time_zone: String,
    /// What happens while an earlier run is under way: skip, queue or allow.
    pub overlap: String,
    /// Null where the pattern never comes again, and while it is paused.
    pub next_at: Option<String>,
    /// Its place among the definition's schedules: 0 is the first.
    pub index: usize,
    /// `idle` until the next tick, or `paused`.
    pub state: String,
    /// How far back missed ticks are started, such as `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PauseView>,
}

/// Who paused a definition, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PauseView {
    pub at: String,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A definition that waits for its next tick or for an event: the run that it will start has no id yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IdleRun {
    /// `name@version`.
    pub definition: String,
    /// `idle`, or `paused`.
    pub state: String,
    /// Types of events that start it.
    pub events: Vec<String>,
    /// The next tick of its schedules. Null where there is none, and while it is paused.
    pub next_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PauseView>,
}

/// Pause or resume what starts a definition by itself. A pause needs a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ControlSchedule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The result for a definition's schedules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleMoved {
    pub definition: String,
    /// `idle` or `paused`.
    pub state: String,
}

/// Start the run of a schedule now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TriggerSchedule {
    /// Which one, where the definition has several: 0 is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
}
