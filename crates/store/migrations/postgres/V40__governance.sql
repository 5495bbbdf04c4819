-- Governance (spec/governance.md): what went wrong and what was put right. Commits leave signals, and the governance chain
-- makes problems of them. A signal that was weighed goes; a problem stays.
-- Where the governance chain stands: it is there before its first record.
INSERT INTO instances (instance_id, sequence, head, last_time_us, state, moves, policy_ref)
    VALUES ('00000000-0000-0000-0000-000000000001', 0, decode(repeat('00', 32), 'hex'), 0, '', 0, '');

CREATE TABLE problem_signals (
    signal_id    UUID    NOT NULL PRIMARY KEY,
    category     TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    opens        BOOLEAN NOT NULL,
    at_us        BIGINT NOT NULL,
    event_id     UUID,
    run_id       UUID,
    step         TEXT,
    worker_class TEXT,
    detail       TEXT    NOT NULL
);

-- A problem is resolved by the event that is named here, and by nothing else.
CREATE TABLE problems (
    problem_id        UUID    NOT NULL PRIMARY KEY,
    category          TEXT    NOT NULL,
    key               TEXT    NOT NULL,
    since_us          BIGINT NOT NULL,
    opened_event_id   UUID    NOT NULL,
    run_id            UUID,
    step              TEXT,
    worker_class      TEXT,
    detail            TEXT    NOT NULL,
    resolved_event_id UUID,
    resolved_at_us    BIGINT,
    CHECK ((resolved_event_id IS NULL) = (resolved_at_us IS NULL))
);
CREATE UNIQUE INDEX problems_open ON problems (category, key) WHERE resolved_at_us IS NULL;
CREATE INDEX problems_open_by_category ON problems (category, problem_id) WHERE resolved_at_us IS NULL;
CREATE INDEX problems_resolved_by_category ON problems (category, problem_id) WHERE resolved_at_us IS NOT NULL;
CREATE INDEX problems_by_category ON problems (category, problem_id);

CREATE TABLE problem_counts (
    category   TEXT    NOT NULL PRIMARY KEY,
    open_count BIGINT NOT NULL
);
INSERT INTO problem_counts VALUES ('dlq', 0), ('silent_workers', 0), ('overdue_steps', 0), ('schema_violations', 0),
    ('event_lag', 0), ('integrity_warnings', 0), ('failed_runs', 0), ('orphan_runs', 0);
