-- Runs of workflows: a run is an instance like a process, with steps that workers carry out.

-- How often leases of its steps were prolonged. That leaves no record, so the fence compares it besides the sequence.
ALTER TABLE instances ADD COLUMN beats BIGINT NOT NULL DEFAULT 0;

-- The normalised document of a workflow, in `documents`.
ALTER TABLE definitions ADD COLUMN document_digest BYTEA;

-- What a run was started with.
CREATE TABLE runs (
    instance_id        UUID    NOT NULL PRIMARY KEY,
    definition_name    TEXT    NOT NULL,
    definition_version BIGINT  NOT NULL,
    document_digest    BYTEA   NOT NULL,
    subject_ref        TEXT    NOT NULL,
    initiator_ref      TEXT    NOT NULL,
    correlation_key    TEXT,
    concurrency_key    TEXT,
    corrects           UUID,
    continues          UUID,
    parent_id          UUID,
    parent_step_seq    BIGINT,
    started_at_us      BIGINT  NOT NULL,
    input              TEXT    NOT NULL
);
CREATE INDEX runs_by_subject ON runs (subject_ref, instance_id);
CREATE INDEX runs_by_definition ON runs (definition_name, instance_id);

-- What changes about a run. The first columns repeat what never does, so that indexes of what is under way hold nothing
-- that has ended.
CREATE TABLE run_heads (
    instance_id        UUID    NOT NULL PRIMARY KEY,
    definition_name    TEXT    NOT NULL,
    correlation_key    TEXT,
    concurrency_key    TEXT,
    state              TEXT    NOT NULL,
    outcome            TEXT,
    priority           BIGINT  NOT NULL,
    start_at_us        BIGINT,
    executing_since_us BIGINT,
    completed_at_us    BIGINT,
    failed_at_us       BIGINT,
    due_at_us          BIGINT,
    is_live            BOOLEAN NOT NULL,
    last_error         TEXT,
    output             TEXT
) WITH (fillfactor = 60);
CREATE INDEX run_heads_due ON run_heads (due_at_us, instance_id) WHERE due_at_us IS NOT NULL;
CREATE INDEX run_heads_by_state ON run_heads (state, instance_id);
CREATE INDEX run_heads_ended ON run_heads (definition_name, state, instance_id)
    WHERE state = 'completed' OR state = 'failed' OR state = 'cancelled' OR state = 'voided';
CREATE INDEX run_heads_queued ON run_heads (priority DESC, instance_id, start_at_us) WHERE state = 'queued';
CREATE INDEX run_heads_under_way ON run_heads (definition_name, concurrency_key)
    WHERE concurrency_key IS NOT NULL AND state IN ('executing', 'blocked', 'paused', 'stopped', 'compensating');
CREATE INDEX run_heads_by_correlation ON run_heads (correlation_key, instance_id)
    WHERE correlation_key IS NOT NULL AND is_live;

-- The long texts stand last: whoever reads only the state need not read past them.
CREATE TABLE run_steps (
    instance_id        UUID    NOT NULL,
    step_seq           BIGINT  NOT NULL,
    name               TEXT    NOT NULL,
    compensates        BIGINT,
    queue              TEXT    NOT NULL,
    max_attempts       BIGINT  NOT NULL,
    state              TEXT    NOT NULL,
    attempts           BIGINT  NOT NULL,
    next_run_at_us     BIGINT,
    locked_by          TEXT,
    locked_until_us    BIGINT,
    lease_token        UUID,
    waiting_event_type TEXT,
    waiting_facet      TEXT,
    deadline_at_us     BIGINT,
    error_category     TEXT,
    started_at_us      BIGINT,
    completed_at_us    BIGINT,
    effect_unknown     BOOLEAN NOT NULL,
    child_run_id       UUID,
    task_type          TEXT,
    output_needed      BOOLEAN NOT NULL,
    due_at_us          BIGINT,
    last_error         TEXT,
    event_data         TEXT,
    output             TEXT,
    PRIMARY KEY (instance_id, step_seq)
) WITH (fillfactor = 70);
CREATE INDEX run_steps_due ON run_steps (due_at_us, instance_id, step_seq) WHERE due_at_us IS NOT NULL;

-- Events that runs received; each counts once.
CREATE TABLE run_events (
    instance_id    UUID    NOT NULL,
    event_id       TEXT    NOT NULL,
    event_type     TEXT    NOT NULL,
    received_at_us BIGINT  NOT NULL,
    taken          BOOLEAN NOT NULL,
    data           TEXT    NOT NULL,
    PRIMARY KEY (instance_id, event_id)
) WITH (fillfactor = 90);
CREATE INDEX run_events_kept ON run_events (instance_id, received_at_us, event_id) WHERE NOT taken;

-- Events for the world outside, until they are delivered.
CREATE TABLE outbox (
    outbox_id          UUID    NOT NULL PRIMARY KEY,
    instance_id        UUID    NOT NULL,
    event_type         TEXT    NOT NULL,
    created_at_us      BIGINT  NOT NULL,
    state              TEXT    NOT NULL DEFAULT 'pending',
    attempts           BIGINT  NOT NULL DEFAULT 0,
    next_attempt_at_us BIGINT  NOT NULL,
    last_error         TEXT,
    data               TEXT    NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX outbox_pending ON outbox (next_attempt_at_us, outbox_id) WHERE state = 'pending';
-- A purge finds what a record sent by its run and time.
CREATE INDEX outbox_by_run ON outbox (instance_id, created_at_us);
