-- The log (spec/checkpoint.md). Its order is `records.position`, the order of commits.

CREATE TABLE log_entries (
    log_index   INTEGER PRIMARY KEY,
    event_id    BLOB    NOT NULL,
    record_hash BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX log_entries_by_event ON log_entries (event_id);

-- Complete subtrees of 2^level entries, at the levels 8, 16, 24 …: what lies between is computed from 256 of them.
CREATE TABLE log_nodes (
    level      INTEGER NOT NULL,
    node_index INTEGER NOT NULL,
    hash       BLOB    NOT NULL,
    PRIMARY KEY (level, node_index)
) STRICT, WITHOUT ROWID;

-- Signed notes. Only the note is ever changed: witnesses add their lines.
CREATE TABLE log_checkpoints (
    size         INTEGER PRIMARY KEY,
    root         BLOB    NOT NULL,
    note         TEXT    NOT NULL,
    signed_at_us INTEGER NOT NULL
) STRICT;

-- Written once. The lease is kept in memory: the file belongs to one process.
CREATE TABLE log_state (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    origin       TEXT    NOT NULL,
    verifier_key TEXT    NOT NULL
) STRICT;
