-- The log (spec/checkpoint.md). Its order is (xact, instance_id, sequence): a transaction that builds on another one got
-- its number after the other had committed, because both hold the registry lock and the rows of their instances.
-- Numbers are those of this server. Records from before this column, or from another server (a restored dump), have 0
-- and stand in log_backlog until they are in the log.

ALTER TABLE records ADD COLUMN xact XID8 NOT NULL DEFAULT '0';
ALTER TABLE records ALTER COLUMN xact SET DEFAULT pg_current_xact_id();
CREATE INDEX records_by_xact ON records (xact);

CREATE TABLE log_entries (
    log_index   BIGINT NOT NULL PRIMARY KEY,
    event_id    UUID   NOT NULL,
    record_hash BYTEA  NOT NULL
);
CREATE UNIQUE INDEX log_entries_by_event ON log_entries (event_id);

-- Complete subtrees of 2^level entries, at the levels 8, 16, 24 …: what lies between is computed from 256 of them.
CREATE TABLE log_nodes (
    level      BIGINT NOT NULL,
    node_index BIGINT NOT NULL,
    hash       BYTEA  NOT NULL,
    PRIMARY KEY (level, node_index)
);

-- Signed notes. Only the note is ever changed: witnesses add their lines.
CREATE TABLE log_checkpoints (
    size         BIGINT NOT NULL PRIMARY KEY,
    root         BYTEA  NOT NULL,
    note         TEXT   NOT NULL,
    signed_at_us BIGINT NOT NULL
);

-- Written once.
CREATE TABLE log_state (
    id           BIGINT PRIMARY KEY CHECK (id = 1),
    origin       TEXT   NOT NULL,
    verifier_key TEXT   NOT NULL
);

CREATE TABLE log_lease (
    id            BIGINT PRIMARY KEY CHECK (id = 1),
    holder        TEXT   NOT NULL,
    expires_at_us BIGINT NOT NULL,
    token         BIGINT NOT NULL
) WITH (fillfactor = 50);
INSERT INTO log_lease VALUES (1, '', 0, 0);

-- What was recorded before this schema, in an order that the log may have: after the registry record it was decided
-- under and before the next, then by time, which within an instance never falls.
CREATE TABLE log_backlog (
    position BIGINT NOT NULL PRIMARY KEY,
    event_id UUID   NOT NULL
);
INSERT INTO log_backlog (position, event_id)
SELECT row_number() OVER (ORDER BY registry_place, of_process, recorded_at_us, instance_id, sequence), event_id
FROM (
    SELECT event_id, recorded_at_us, instance_id, sequence,
           instance_id <> '00000000-0000-0000-0000-000000000000' AS of_process,
           CASE WHEN instance_id = '00000000-0000-0000-0000-000000000000' THEN sequence
                ELSE (convert_from(header, 'UTF8')::json ->> 'registry_seq')::int8 END AS registry_place
    FROM records
) AS placed;
