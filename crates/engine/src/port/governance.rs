//! What governance reads. Nothing here scans what grows: signals are gone once they were weighed, open problems have an index
//! of their own, and what is open is counted by the commit that changes it.

use super::{Page, StoreError};
use crate::rows::{ProblemRow, ReplayRow, SignalRow};
use async_trait::async_trait;
use countersign_kernel::governance::{Category, Open, Replays};
use countersign_kernel::{InstanceId, ProblemId};

/// Which problems a list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemQuery {
    pub category: Category,
    /// `None`: open and resolved.
    pub open: Option<bool>,
}

/// Which requests to replay a list holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayQuery {
    pub dead_letter_id: Option<ProblemId>,
    /// Those that wait for a decision or for an outcome, or the others.
    pub open: Option<bool>,
}

#[async_trait]
pub trait Governance: Send + Sync {
    /// What no problem has been made of yet, in the order of ids, at most `limit`.
    async fn problem_signals(&self, limit: usize) -> Result<Vec<SignalRow>, StoreError>;
    /// Those of these subjects that are open.
    async fn open_problems(&self, subjects: &[(Category, String)]) -> Result<Open, StoreError>;
    async fn problems(&self, query: &ProblemQuery, page: &Page) -> Result<Vec<ProblemRow>, StoreError>;
    /// How many are open, by category.
    async fn count_problems(&self) -> Result<Vec<(Category, u64)>, StoreError>;
    /// In the order of ids.
    async fn replay_requests(&self, query: &ReplayQuery, page: &Page) -> Result<Vec<ReplayRow>, StoreError>;
    /// Those of these requests that are approved and of which no outcome is known.
    async fn scheduled_replays(&self, requests: &[InstanceId]) -> Result<Replays, StoreError>;
    /// Approved requests that nothing was done about yet, at most `limit`.
    async fn due_replays(&self, limit: usize) -> Result<Vec<ReplayRow>, StoreError>;
}
