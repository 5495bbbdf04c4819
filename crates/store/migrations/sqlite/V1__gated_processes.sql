-- The first schema. Ids are 16-byte blobs whose order is the order of time; times are microseconds since
-- 1970; digests are 32 bytes. Nothing here is ever deleted except idempotency keys, and what a
-- lawful purge destroys.

-- Where each instance stands. The all-zero id is the registry.
CREATE TABLE instances (
    instance_id  BLOB    NOT NULL PRIMARY KEY,
    sequence     INTEGER NOT NULL,
    head         BLOB    NOT NULL,
    last_time_us INTEGER NOT NULL,
    state        TEXT    NOT NULL,
    moves        INTEGER NOT NULL,
    policy_ref   TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO instances VALUES (zeroblob(16), 0, zeroblob(32), 0, '', 0, '');

-- Declarations and gate_specs, once each.
CREATE TABLE documents (
    digest BLOB NOT NULL PRIMARY KEY,
    body   BLOB NOT NULL
) STRICT;

CREATE TABLE processes (
    instance_id        BLOB    NOT NULL PRIMARY KEY,
    definition_name    TEXT,
    definition_version INTEGER,
    subject_ref        TEXT    NOT NULL,
    initiator_ref      TEXT    NOT NULL,
    declaration_digest BLOB    NOT NULL,
    gate_spec_digest   BLOB    NOT NULL,
    started_at_us      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX processes_by_subject ON processes (subject_ref, instance_id);
CREATE INDEX processes_by_initiator ON processes (initiator_ref, instance_id);
CREATE INDEX processes_by_definition ON processes (definition_name, instance_id) WHERE definition_name IS NOT NULL;

CREATE TABLE transitions (
    instance_id     BLOB    NOT NULL,
    sequence_number INTEGER NOT NULL,
    transition_id   BLOB    NOT NULL,
    from_state      TEXT    NOT NULL,
    action          TEXT    NOT NULL,
    to_state        TEXT    NOT NULL,
    fired_at_us     INTEGER NOT NULL,
    actor_ref       TEXT    NOT NULL,
    guard_satisfied INTEGER NOT NULL,
    gate_id         BLOB,
    gate_is_chain   INTEGER NOT NULL,
    event_id        BLOB    NOT NULL,
    PRIMARY KEY (instance_id, sequence_number)
) STRICT, WITHOUT ROWID;

-- Bindings of guarded transitions: gate_id is the step's id, or the chain's for a quorum.
CREATE TABLE gates (
    gate_id              BLOB    NOT NULL PRIMARY KEY,
    instance_id          BLOB    NOT NULL,
    from_state           TEXT    NOT NULL,
    action               TEXT    NOT NULL,
    guard                TEXT    NOT NULL,
    scope                TEXT    NOT NULL,
    opened_at_us         INTEGER NOT NULL,
    opened_by            TEXT    NOT NULL,
    rule                 TEXT,
    m                    INTEGER,
    chain_state          TEXT,
    chain_terminal_at_us INTEGER,
    fate                 TEXT    NOT NULL,
    is_current           INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX gates_by_instance ON gates (instance_id, gate_id);

CREATE TABLE approval_steps (
    step_id       BLOB    NOT NULL PRIMARY KEY,
    gate_id       BLOB    NOT NULL,
    instance_id   BLOB    NOT NULL,
    slot          INTEGER NOT NULL,
    action        TEXT    NOT NULL,
    subject_ref   TEXT    NOT NULL,
    approver_ref  TEXT    NOT NULL,
    submitter_ref TEXT    NOT NULL,
    scope         TEXT    NOT NULL,
    submitted_at_us INTEGER NOT NULL,
    state         TEXT    NOT NULL,
    ended_by      TEXT,
    ended_at_us   INTEGER,
    ended_reason  TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX steps_by_gate ON approval_steps (gate_id, slot);
CREATE INDEX steps_by_approver ON approval_steps (approver_ref, step_id);
CREATE INDEX steps_by_subject ON approval_steps (subject_ref, step_id);
CREATE INDEX steps_by_submitter ON approval_steps (submitter_ref, step_id);
CREATE INDEX steps_by_scope ON approval_steps (scope, step_id);
CREATE INDEX steps_pending ON approval_steps (step_id) WHERE state = 'Pending';

CREATE TABLE assignments (
    assignment_id  BLOB    NOT NULL PRIMARY KEY,
    task_ref       BLOB    NOT NULL,
    assignee_ref   TEXT    NOT NULL,
    assigned_at_us INTEGER NOT NULL,
    status         TEXT    NOT NULL,
    ended_at_us    INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX assignments_by_task ON assignments (task_ref, assignment_id);
CREATE INDEX assignments_by_assignee ON assignments (assignee_ref, assignment_id);
CREATE UNIQUE INDEX assignments_one_active ON assignments (task_ref) WHERE status = 'Active';
CREATE INDEX assignments_inbox ON assignments (assignee_ref, assignment_id) WHERE status = 'Active';

CREATE TABLE records (
    position       INTEGER PRIMARY KEY, -- the order of commits; records are never deleted, so it only grows
    event_id       BLOB    NOT NULL,
    instance_id    BLOB    NOT NULL,
    sequence       INTEGER NOT NULL,
    action_ref     TEXT    NOT NULL,
    actor_ref      TEXT    NOT NULL,
    recorded_at_us INTEGER NOT NULL,
    header         BLOB    NOT NULL,
    payload        BLOB, -- this one, the next two: nothing once the record has been purged
    attestation    BLOB,
    salt           BLOB
) STRICT;
CREATE UNIQUE INDEX records_by_event ON records (event_id);
CREATE UNIQUE INDEX records_by_instance ON records (instance_id, sequence);
CREATE INDEX records_by_action ON records (action_ref, event_id);
CREATE INDEX records_by_actor ON records (actor_ref, event_id);

CREATE TABLE idempotency (
    actor_ref      TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    request_digest BLOB    NOT NULL,
    answer         TEXT    NOT NULL,
    expires_at_us  INTEGER NOT NULL,
    PRIMARY KEY (actor_ref, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_expiry ON idempotency (expires_at_us);

CREATE TABLE actors (
    actor_ref        TEXT    NOT NULL PRIMARY KEY,
    kind             TEXT    NOT NULL,
    display_name     TEXT,
    registered_at_us INTEGER NOT NULL,
    registered_by    TEXT    NOT NULL,
    registry_seq     INTEGER NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;

-- Bearer tokens, known by their SHA-256 alone.
CREATE TABLE credentials (
    token_hash    BLOB NOT NULL PRIMARY KEY,
    actor_ref     TEXT NOT NULL,
    issued_at_us  INTEGER NOT NULL,
    issued_by     TEXT NOT NULL,
    registry_seq  INTEGER NOT NULL UNIQUE,
    revoked_at_us INTEGER,
    revoked_by    TEXT,
    revoked_seq   INTEGER UNIQUE
) STRICT, WITHOUT ROWID;

-- Public keys of actors who sign.
CREATE TABLE actor_keys (
    key_id           TEXT NOT NULL PRIMARY KEY,
    actor_ref        TEXT NOT NULL,
    public_key       TEXT NOT NULL,
    registered_at_us INTEGER NOT NULL,
    registered_by    TEXT NOT NULL,
    registry_seq     INTEGER NOT NULL UNIQUE,
    revoked_at_us    INTEGER,
    revoked_by       TEXT,
    revoke_reason    TEXT,
    revoked_seq      INTEGER UNIQUE
) STRICT, WITHOUT ROWID;

CREATE TABLE grants (
    grant_id      BLOB    NOT NULL PRIMARY KEY,
    subject_ref   TEXT    NOT NULL,
    action_scope  TEXT    NOT NULL,
    granted_at_us INTEGER NOT NULL,
    granted_by    TEXT    NOT NULL,
    granted_seq   INTEGER NOT NULL UNIQUE,
    revoked_at_us INTEGER,
    revoked_by    TEXT,
    revoked_seq   INTEGER UNIQUE
) STRICT, WITHOUT ROWID;

CREATE TABLE definitions (
    name               TEXT    NOT NULL,
    version            INTEGER NOT NULL,
    digest             BLOB    NOT NULL,
    source             TEXT    NOT NULL,
    declaration_digest BLOB    NOT NULL,
    gate_spec_digest   BLOB    NOT NULL,
    retention          TEXT,
    published_at_us    INTEGER NOT NULL,
    published_by       TEXT    NOT NULL,
    registry_seq       INTEGER NOT NULL UNIQUE,
    PRIMARY KEY (name, version)
) STRICT;

CREATE TABLE configurations (
    registry_seq   INTEGER NOT NULL PRIMARY KEY,
    policy         TEXT,
    recorded_at_us INTEGER NOT NULL,
    recorded_by    TEXT    NOT NULL,
    regulated      INTEGER NOT NULL,
    application_actor_ref TEXT NOT NULL,
    server_actor_ref      TEXT NOT NULL
) STRICT;
