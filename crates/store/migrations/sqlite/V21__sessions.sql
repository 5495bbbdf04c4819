-- Browsers that are signed in. Only the hash of a session's id is kept. `credential_id` names the token or the passkey that
-- began the session.
CREATE TABLE sessions (
    session_hash  BLOB    NOT NULL PRIMARY KEY,
    actor_ref     TEXT    NOT NULL,
    credential_id TEXT    NOT NULL,
    seen_at_us    INTEGER NOT NULL,
    ends_at_us    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_end ON sessions (ends_at_us);
CREATE INDEX sessions_by_actor ON sessions (actor_ref);

-- WebAuthn challenges that were answered: none is accepted twice.
CREATE TABLE spent_challenges (
    challenge_hash BLOB    NOT NULL PRIMARY KEY,
    ends_at_us     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX spent_challenges_by_end ON spent_challenges (ends_at_us);

-- The highest signature counter that each passkey has shown. A passkey that never counts has no row.
CREATE TABLE passkey_counters (
    key_id         TEXT    NOT NULL PRIMARY KEY,
    counter        INTEGER NOT NULL,
    -- Of the assertion that showed it: the same one may come again.
    assertion_hash BLOB    NOT NULL
) STRICT, WITHOUT ROWID;

-- What a passkey has besides its public key, as JSON text. NULL: an Ed25519 key that signs statements itself.
ALTER TABLE actor_keys ADD COLUMN passkey TEXT;
