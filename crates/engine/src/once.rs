//! Requests that are carried out once although the committer has no part in them, or in more than one of their parts: their
//! answers are kept under the caller's key, beside those that the committer keeps.

use crate::committer::{IDEMPOTENCY_WINDOW_US, kept_answer, replayed};
use crate::outcome::IdempotencyKey;
use crate::rows::IdempotencyRow;
use crate::{Engine, store_failure};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::{InstanceId, Time};
use countersign_ledger::sha256;
use serde::Serialize;
use serde::de::DeserializeOwned;

impl Engine {
    /// Whether something was carried out in the engine's own name under this key.
    pub async fn has_done(&self, key: &str) -> Result<bool, Refusal> {
        let own = &self.config.application_actor_ref;
        let kept = self.outbox.kept_answer(own, key, self.now()).await.map_err(|error| store_failure(&error))?;
        Ok(kept.is_some())
    }

    /// Keeps in the engine's own name that what has this key needs nothing any more.
    pub async fn set_done(&self, key: &str, until: Time) -> Result<(), Refusal> {
        let row = IdempotencyRow {
            actor_ref: self.config.application_actor_ref.clone(),
            key: key.to_owned(),
            instance_id: InstanceId::REGISTRY,
            request_digest: sha256(&[key.as_bytes()]),
            answer: "null".to_owned(),
            expires_at: until,
        };
        self.outbox.keep_answer(&row, self.now()).await.map_err(|error| store_failure(&error))
    }

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
            answer: kept_answer(&answer)?,
            expires_at: Time(now.0.saturating_add(IDEMPOTENCY_WINDOW_US)),
        };
        self.outbox.keep_answer(&row, now).await.map_err(|error| store_failure(&error))?;
        Ok(answer)
    }
}
