-- Governance (spec/governance.md): what went wrong and what was put right. Commits leave signals, and the governance chain
-- makes problems of them. A signal that was weighed goes; a problem stays.
-- Where the governance chain stands: it is there before its first record.
INSERT INTO instances (instance_id, sequence, head, last_time_us, state, moves, policy_ref)
    VALUES (X'00000000000000000000000000000001', 0, zeroblob(32), 0, '', 0, '');

CREATE TABLE problem_signals (
    signal_id    BLOB    NOT NULL PRIMARY KEY,
    category     TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    opens        INTEGER NOT NULL,
    at_us        INTEGER NOT NULL,
    event_id     BLOB,
    run_id       BLOB,
    step         TEXT,
    worker_class TEXT,
    detail       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- A problem is resolved by the event that is named here, and by nothing else.
CREATE TABLE problems (
    problem_id        BLOB    NOT NULL PRIMARY KEY,
    category          TEXT    NOT NULL,
    key               TEXT    NOT NULL,
    since_us          INTEGER NOT NULL,
    opened_event_id   BLOB    NOT NULL,
    run_id            BLOB,
    step              TEXT,
    worker_class      TEXT,
    detail            TEXT    NOT NULL,
    resolved_event_id BLOB,
    resolved_at_us    INTEGER,
    CHECK ((resolved_event_id IS NULL) = (resolved_at_us IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX problems_open ON problems (category, key) WHERE resolved_at_us IS NULL;
CREATE INDEX problems_open_by_category ON problems (category, problem_id) WHERE resolved_at_us IS NULL;
CREATE INDEX problems_resolved_by_category ON problems (category, problem_id) WHERE resolved_at_us IS NOT NULL;
CREATE INDEX problems_by_category ON problems (category, problem_id);

CREATE TABLE problem_counts (
    category   TEXT    NOT NULL PRIMARY KEY,
    open_count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO problem_counts VALUES ('dlq', 0), ('silent_workers', 0), ('overdue_steps', 0), ('schema_violations', 0),
    ('event_lag', 0), ('integrity_warnings', 0), ('failed_runs', 0), ('orphan_runs', 0);
