//! What the live stream tells.

use serde::{Deserialize, Serialize};

/// A topic moved: what it says is to be read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Moved {
    /// As it was asked for: `run:<id>`, `runs`, …
    pub topic: String,
    /// The number of the last record of a run or process; missing where it is not known, and for lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
}

/// Beside the members of a problem: the topics that the stream is refused for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RefusedTopics {
    pub refused_topics: Vec<String>,
}
