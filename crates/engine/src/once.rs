//! Requests that are carried out once although the committer has no part in them, or in more than one of their parts: their
//! answers are kept under the caller's key, beside those that the committer keeps.

use crate::committer::{IDEMPOTENCY_WINDOW_US, replayed};
use crate::outcome::IdempotencyKey;
use crate::rows::IdempotencyRow;
use crate::{Engine, store_failure};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::{InstanceId, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;

impl Engine {
    /// The answer that was kept under this key, or else that of `work`, which is then kept. Two that come at the same time
    /// may both be carried out: `work` is something that does no harm twice.
    pub async fn once<T: Serialize + DeserializeOwned>(
        &self,
        actor_ref: &str,
        idempotency: Option<IdempotencyKey>,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let Some(IdempotencyKey { key, request_digest }) = idempotency else { return work.await };
        let kept = self.outbox.kept_answer(actor_ref, &key, self.now()).await.map_err(|error| store_failure(&error))?;
        if let Some(row) = kept {
            return replayed(&row, request_digest);
        }
        let answer = work.await?;
        let now = self.now();
        let row = IdempotencyRow {
            actor_ref: actor_ref.to_owned(),
            key,
            instance_id: InstanceId::REGISTRY,
            request_digest,
            answer: serde_json::to_string(&answer).unwrap_or_default(),
            expires_at: Time(now.0.saturating_add(IDEMPOTENCY_WINDOW_US)),
        };
        self.outbox.keep_answer(&row, now).await.map_err(|error| store_failure(&error))?;
        Ok(answer)
    }
}
