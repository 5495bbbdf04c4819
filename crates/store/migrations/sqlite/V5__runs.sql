-- Runs of workflows: a run is an instance like a process, with steps that workers carry out.

-- How often leases of its steps were prolonged. That leaves no record, so the fence compares it besides the sequence.
ALTER TABLE instances ADD COLUMN beats INTEGER NOT NULL DEFAULT 0;

-- The normalised document of a workflow, in `documents`.
ALTER TABLE definitions ADD COLUMN document_digest BLOB;

-- What a run was started with.
CREATE TABLE runs (
    instance_id        BLOB    NOT NULL PRIMARY KEY,
    definition_name    TEXT    NOT NULL,
    definition_version INTEGER NOT NULL,
    document_digest    BLOB    NOT NULL,
    subject_ref        TEXT    NOT NULL,
    initiator_ref      TEXT    NOT NULL,
    correlation_key    TEXT,
    concurrency_key    TEXT,
    corrects           BLOB,
    continues          BLOB,
    parent_id          BLOB,
    parent_step_seq    INTEGER,
    started_at_us      INTEGER NOT NULL,
    input              TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_by_subject ON runs (subject_ref, instance_id);
CREATE INDEX runs_by_definition ON runs (definition_name, instance_id);

-- What changes about a run. The first columns repeat what never does, so that indexes of what is under way hold nothing
-- that has ended.
CREATE TABLE run_heads (
    instance_id        BLOB    NOT NULL PRIMARY KEY,
    definition_name    TEXT    NOT NULL,
    correlation_key    TEXT,
    concurrency_key    TEXT,
    state              TEXT    NOT NULL,
    outcome            TEXT,
    priority           INTEGER NOT NULL,
    start_at_us        INTEGER,
    executing_since_us INTEGER,
    completed_at_us    INTEGER,
    failed_at_us       INTEGER,
    due_at_us          INTEGER,
    is_live            INTEGER NOT NULL,
    last_error         TEXT,
    output             TEXT
) STRICT, WITHOUT ROWID;
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
    instance_id        BLOB    NOT NULL,
    step_seq           INTEGER NOT NULL,
    name               TEXT    NOT NULL,
    compensates        INTEGER,
    queue              TEXT    NOT NULL,
    max_attempts       INTEGER NOT NULL,
    state              TEXT    NOT NULL,
    attempts           INTEGER NOT NULL,
    next_run_at_us     INTEGER,
    locked_by          TEXT,
    locked_until_us    INTEGER,
    lease_token        BLOB,
    waiting_event_type TEXT,
    waiting_facet      TEXT,
    deadline_at_us     INTEGER,
    error_category     TEXT,
    started_at_us      INTEGER,
    completed_at_us    INTEGER,
    effect_unknown     INTEGER NOT NULL,
    child_run_id       BLOB,
    task_type          TEXT,
    output_needed      INTEGER NOT NULL,
    due_at_us          INTEGER,
    last_error         TEXT,
    event_data         TEXT,
    output             TEXT,
    PRIMARY KEY (instance_id, step_seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_steps_due ON run_steps (due_at_us, instance_id, step_seq) WHERE due_at_us IS NOT NULL;

-- Events that runs received; each counts once.
CREATE TABLE run_events (
    instance_id    BLOB    NOT NULL,
    event_id       TEXT    NOT NULL,
    event_type     TEXT    NOT NULL,
    received_at_us INTEGER NOT NULL,
    taken          INTEGER NOT NULL,
    data           TEXT    NOT NULL,
    PRIMARY KEY (instance_id, event_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_events_kept ON run_events (instance_id, received_at_us, event_id) WHERE NOT taken;

-- Events for the world outside, until they are delivered.
CREATE TABLE outbox (
    outbox_id          BLOB    NOT NULL PRIMARY KEY,
    instance_id        BLOB    NOT NULL,
    event_type         TEXT    NOT NULL,
    created_at_us      INTEGER NOT NULL,
    state              TEXT    NOT NULL DEFAULT 'pending',
    attempts           INTEGER NOT NULL DEFAULT 0,
    next_attempt_at_us INTEGER NOT NULL,
    last_error         TEXT,
    data               TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX outbox_pending ON outbox (next_attempt_at_us, outbox_id) WHERE state = 'pending';
-- A purge finds what a record sent by its run and time.
CREATE INDEX outbox_by_run ON outbox (instance_id, created_at_us);
