-- Since when a session is there, and what its browser calls itself. NULL: it began before this was kept.
ALTER TABLE sessions ADD COLUMN begun_at_us BIGINT;
ALTER TABLE sessions ADD COLUMN user_agent TEXT;

-- By how a subject begins, whatever the order of the database's language.
CREATE INDEX processes_by_subject_prefix ON processes (subject_ref COLLATE "C");

-- The last time that the whole log was verified on request. One row.
CREATE TABLE log_verified (
    id             INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    verified_at_us BIGINT  NOT NULL,
    verified_by    TEXT    NOT NULL,
    records        BIGINT  NOT NULL,
    size           BIGINT  NOT NULL,
    findings       BIGINT  NOT NULL
);
