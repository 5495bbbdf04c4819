-- The first schema. Ids are UUIDs whose order is the order of time; times are microseconds since
-- 1970; digests are 32 bytes. Nothing here is ever deleted except idempotency keys, and what a
-- lawful purge destroys.

-- Where each instance stands. The all-zero id is the registry.
CREATE TABLE instances (
    instance_id  UUID    NOT NULL PRIMARY KEY,
    sequence     BIGINT NOT NULL,
    head         BYTEA    NOT NULL,
    last_time_us BIGINT NOT NULL,
    state        TEXT    NOT NULL,
    moves        BIGINT NOT NULL,
    policy_ref   TEXT    NOT NULL
) WITH (fillfactor = 80);

INSERT INTO instances VALUES ('00000000-0000-0000-0000-000000000000', 0, decode(repeat('00', 32), 'hex'), 0, '', 0, '');

-- Declarations and gate_specs, once each.
CREATE TABLE documents (
    digest BYTEA NOT NULL PRIMARY KEY,
    body   BYTEA NOT NULL
);

CREATE TABLE processes (
    instance_id        UUID    NOT NULL PRIMARY KEY,
    definition_name    TEXT,
    definition_version BIGINT,
    subject_ref        TEXT    NOT NULL,
    initiator_ref      TEXT    NOT NULL,
    declaration_digest BYTEA    NOT NULL,
    gate_spec_digest   BYTEA    NOT NULL,
    started_at_us      BIGINT NOT NULL
);
CREATE INDEX processes_by_subject ON processes (subject_ref, instance_id);
CREATE INDEX processes_by_initiator ON processes (initiator_ref, instance_id);
CREATE INDEX processes_by_definition ON processes (definition_name, instance_id) WHERE definition_name IS NOT NULL;

CREATE TABLE transitions (
    instance_id     UUID    NOT NULL,
    sequence_number BIGINT NOT NULL,
    transition_id   UUID    NOT NULL,
    from_state      TEXT    NOT NULL,
    action          TEXT    NOT NULL,
    to_state        TEXT    NOT NULL,
    fired_at_us     BIGINT NOT NULL,
    actor_ref       TEXT    NOT NULL,
    guard_satisfied BOOLEAN NOT NULL,
    gate_id         UUID,
    gate_is_chain   BOOLEAN NOT NULL,
    event_id        UUID    NOT NULL,
    PRIMARY KEY (instance_id, sequence_number)
);

-- Bindings of guarded transitions: gate_id is the step's id, or the chain's for a quorum.
CREATE TABLE gates (
    gate_id              UUID    NOT NULL PRIMARY KEY,
    instance_id          UUID    NOT NULL,
    from_state           TEXT    NOT NULL,
    action               TEXT    NOT NULL,
    guard                TEXT    NOT NULL,
    scope                TEXT    NOT NULL,
    opened_at_us         BIGINT NOT NULL,
    opened_by            TEXT    NOT NULL,
    rule                 TEXT,
    m                    BIGINT,
    chain_state          TEXT,
    chain_terminal_at_us BIGINT,
    fate                 TEXT    NOT NULL,
    is_current           BOOLEAN NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX gates_by_instance ON gates (instance_id, gate_id);

CREATE TABLE approval_steps (
    step_id       UUID    NOT NULL PRIMARY KEY,
    gate_id       UUID    NOT NULL,
    instance_id   UUID    NOT NULL,
    slot          BIGINT NOT NULL,
    action        TEXT    NOT NULL,
    subject_ref   TEXT    NOT NULL,
    approver_ref  TEXT    NOT NULL,
    submitter_ref TEXT    NOT NULL,
    scope         TEXT    NOT NULL,
    submitted_at_us BIGINT NOT NULL,
    state         TEXT    NOT NULL,
    ended_by      TEXT,
    ended_at_us   BIGINT,
    ended_reason  TEXT
) WITH (fillfactor = 80);
CREATE INDEX steps_by_gate ON approval_steps (gate_id, slot);
CREATE INDEX steps_by_approver ON approval_steps (approver_ref, step_id);
CREATE INDEX steps_by_subject ON approval_steps (subject_ref, step_id);
CREATE INDEX steps_by_submitter ON approval_steps (submitter_ref, step_id);
CREATE INDEX steps_by_scope ON approval_steps (scope, step_id);
CREATE INDEX steps_pending ON approval_steps (step_id) WHERE state = 'Pending';

CREATE TABLE assignments (
    assignment_id  UUID    NOT NULL PRIMARY KEY,
    task_ref       UUID    NOT NULL,
    assignee_ref   TEXT    NOT NULL,
    assigned_at_us BIGINT NOT NULL,
    status         TEXT    NOT NULL,
    ended_at_us    BIGINT
) WITH (fillfactor = 80);
CREATE INDEX assignments_by_task ON assignments (task_ref, assignment_id);
CREATE INDEX assignments_by_assignee ON assignments (assignee_ref, assignment_id);
CREATE UNIQUE INDEX assignments_one_active ON assignments (task_ref) WHERE status = 'Active';
CREATE INDEX assignments_inbox ON assignments (assignee_ref, assignment_id) WHERE status = 'Active';

CREATE TABLE records (
    event_id       UUID    NOT NULL,
    instance_id    UUID    NOT NULL,
    sequence       BIGINT NOT NULL,
    action_ref     TEXT    NOT NULL,
    actor_ref      TEXT    NOT NULL,
    recorded_at_us BIGINT NOT NULL,
    header         BYTEA    NOT NULL,
    payload        BYTEA, -- this one, the next two: nothing once the record has been purged
    attestation    BYTEA,
    salt           BYTEA
);
CREATE UNIQUE INDEX records_by_event ON records (event_id);
CREATE UNIQUE INDEX records_by_instance ON records (instance_id, sequence);
CREATE INDEX records_by_action ON records (action_ref, event_id);
CREATE INDEX records_by_actor ON records (actor_ref, event_id);

CREATE TABLE idempotency (
    actor_ref      TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    request_digest BYTEA    NOT NULL,
    answer         TEXT    NOT NULL,
    expires_at_us  BIGINT NOT NULL,
    PRIMARY KEY (actor_ref, key)
);
CREATE INDEX idempotency_by_expiry ON idempotency (expires_at_us);

CREATE TABLE actors (
    actor_ref        TEXT    NOT NULL PRIMARY KEY,
    kind             TEXT    NOT NULL,
    display_name     TEXT,
    registered_at_us BIGINT NOT NULL,
    registered_by    TEXT    NOT NULL,
    registry_seq     BIGINT NOT NULL UNIQUE
);

-- Bearer tokens, known by their SHA-256 alone.
CREATE TABLE credentials (
    token_hash    BYTEA NOT NULL PRIMARY KEY,
    actor_ref     TEXT NOT NULL,
    issued_at_us  BIGINT NOT NULL,
    issued_by     TEXT NOT NULL,
    registry_seq  BIGINT NOT NULL UNIQUE,
    revoked_at_us BIGINT,
    revoked_by    TEXT,
    revoked_seq   BIGINT UNIQUE
);

-- Public keys of actors who sign.
CREATE TABLE actor_keys (
    key_id           TEXT NOT NULL PRIMARY KEY,
    actor_ref        TEXT NOT NULL,
    public_key       TEXT NOT NULL,
    registered_at_us BIGINT NOT NULL,
    registered_by    TEXT NOT NULL,
    registry_seq     BIGINT NOT NULL UNIQUE,
    revoked_at_us    BIGINT,
    revoked_by       TEXT,
    revoke_reason    TEXT,
    revoked_seq      BIGINT UNIQUE
);

CREATE TABLE grants (
    grant_id      UUID    NOT NULL PRIMARY KEY,
    subject_ref   TEXT    NOT NULL,
    action_scope  TEXT    NOT NULL,
    granted_at_us BIGINT NOT NULL,
    granted_by    TEXT    NOT NULL,
    granted_seq   BIGINT NOT NULL UNIQUE,
    revoked_at_us BIGINT,
    revoked_by    TEXT,
    revoked_seq   BIGINT UNIQUE
);

CREATE TABLE definitions (
    name               TEXT    NOT NULL,
    version            BIGINT NOT NULL,
    digest             BYTEA    NOT NULL,
    source             TEXT    NOT NULL,
    declaration_digest BYTEA    NOT NULL,
    gate_spec_digest   BYTEA    NOT NULL,
    retention          TEXT,
    published_at_us    BIGINT NOT NULL,
    published_by       TEXT    NOT NULL,
    registry_seq       BIGINT NOT NULL UNIQUE,
    PRIMARY KEY (name, version)
);

CREATE TABLE configurations (
    registry_seq   BIGINT NOT NULL PRIMARY KEY,
    policy         TEXT,
    recorded_at_us BIGINT NOT NULL,
    recorded_by    TEXT    NOT NULL,
    regulated      BOOLEAN NOT NULL,
    application_actor_ref TEXT NOT NULL,
    server_actor_ref      TEXT NOT NULL
);
