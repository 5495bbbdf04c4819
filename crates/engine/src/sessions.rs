//! Sessions: a browser that was signed in with a token or a passkey is known by its session's id. A session never outlives
//! the credential that began it.

use crate::port::sessions::SessionRow;
use crate::stream::moves::{Key, Moves};
use crate::{Engine, store_failure};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::{Digest, Time};

/// A session is touched at most this often.
const TOUCH_US: i64 = 60 * 1_000_000;
/// With a shorter time-out more often: this many times within it.
const TOUCHES: i64 = 10;
/// The sessions of one actor, at most. A new one takes the place of the one that was used least recently.
pub const SESSIONS_PER_ACTOR: usize = 20;

/// How long a session lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Without a request.
    pub idle_us: i64,
    /// In all.
    pub absolute_us: i64,
}

/// A session that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub session_hash: Digest,
    pub actor_ref: String,
    pub credential_id: String,
    /// When it was last used, to within a minute.
    pub seen_at: Time,
    /// When it ends unless it is used.
    pub expires_at: Time,
    /// When it began, and what its browser calls itself; nothing where an older version began it.
    pub begun_at: Option<Time>,
    pub user_agent: Option<String>,
}

impl Engine {
    /// Begins a session for an actor whose credential was just checked. Rows that are over are cleared away beside it.
    pub async fn begin_session(
        &self,
        session_hash: Digest,
        actor_ref: &str,
        credential_id: &str,
        user_agent: Option<String>,
        lifetimes: Lifetimes,
    ) -> Result<Session, Refusal> {
        let now = self.now();
        let row = SessionRow {
            session_hash,
            actor_ref: actor_ref.to_owned(),
            credential_id: credential_id.to_owned(),
            seen_at: now,
            ends_at: Time(now.0.saturating_add(lifetimes.absolute_us)),
            begun_at: Some(now),
            user_agent,
        };
        if let Err(error) = self.sessions.forget(now).await {
            tracing::warn!(%error, "sessions that are over could not be deleted");
        }
        let earlier = self.sessions.of_actor(actor_ref).await.map_err(|error| store_failure(&error))?;
        for least_used in earlier.iter().skip(SESSIONS_PER_ACTOR - 1) {
            self.end_session(&least_used.session_hash).await?;
        }
        self.sessions.begin(&row).await.map_err(|error| store_failure(&error))?;
        Ok(session(row, lifetimes))
    }

    /// The session with this id, where it is in force and so is the credential that began it. Using it keeps it from being idle.
    pub async fn session(&self, session_hash: &Digest, lifetimes: Lifetimes) -> Result<Option<Session>, Refusal> {
        let Some(mut row) = self.session_row(session_hash, lifetimes).await? else { return Ok(None) };
        let now = self.now();
        if now.0 >= row.seen_at.0.saturating_add(TOUCH_US.min(lifetimes.idle_us / TOUCHES)) {
            match self.sessions.touch(session_hash, now).await {
                Ok(()) => row.seen_at = now,
                Err(error) => tracing::warn!(%error, "a session could not be touched"),
            }
        }
        Ok(Some(session(row, lifetimes)))
    }

    /// The same without using it: an idle session stays idle.
    pub async fn look_at_session(
        &self,
        session_hash: &Digest,
        lifetimes: Lifetimes,
    ) -> Result<Option<Session>, Refusal> {
        Ok(self.session_row(session_hash, lifetimes).await?.map(|row| session(row, lifetimes)))
    }

    async fn session_row(&self, session_hash: &Digest, lifetimes: Lifetimes) -> Result<Option<SessionRow>, Refusal> {
        let found = self.sessions.find(session_hash).await.map_err(|error| store_failure(&error))?;
        // A revocation on another node ends it at once.
        self.catch_up().await?;
        Ok(found.filter(|row| self.is_in_force(row, lifetimes)))
    }

    fn is_in_force(&self, row: &SessionRow, lifetimes: Lifetimes) -> bool {
        let now = self.now();
        now < row.ends_at
            && now.0 < row.seen_at.0.saturating_add(lifetimes.idle_us)
            && self.registry().keys().vouches(&row.actor_ref, &row.credential_id)
            && !self.is_engine_actor(&row.actor_ref)
    }

    /// The sessions of an actor that are in force, the one that was used last first.
    pub async fn sessions_of(&self, actor_ref: &str, lifetimes: Lifetimes) -> Result<Vec<Session>, Refusal> {
        let rows = self.sessions.of_actor(actor_ref).await.map_err(|error| store_failure(&error))?;
        self.catch_up().await?;
        let in_force = rows.into_iter().filter(|row| self.is_in_force(row, lifetimes));
        Ok(in_force.map(|row| session(row, lifetimes)).collect())
    }

    /// Whether a challenge is answered for the first time.
    pub async fn spend_challenge(&self, challenge_hash: &Digest, ends_at: Time) -> Result<bool, Refusal> {
        self.sessions.spend(challenge_hash, ends_at).await.map_err(|error| store_failure(&error))
    }

    /// Whether a passkey's counter has gone up with this assertion, or the same one comes again.
    pub async fn count_passkey(&self, key_id: &str, counter: u32, assertion: &Digest) -> Result<bool, Refusal> {
        self.sessions.count(key_id, counter, assertion).await.map_err(|error| store_failure(&error))
    }

    /// Ends a session, and the streams that were begun in it, on every node.
    pub async fn end_session(&self, session_hash: &Digest) -> Result<(), Refusal> {
        self.sessions.end(session_hash).await.map_err(|error| store_failure(&error))?;
        self.hub.committed(Moves::of(Key::Session(*session_hash)));
        Ok(())
    }
}

fn session(row: SessionRow, lifetimes: Lifetimes) -> Session {
    let SessionRow { session_hash, actor_ref, credential_id, seen_at, ends_at, begun_at, user_agent } = row;
    let expires_at = ends_at.min(Time(seen_at.0.saturating_add(lifetimes.idle_us)));
    Session { session_hash, actor_ref, credential_id, seen_at, expires_at, begun_at, user_agent }
}
