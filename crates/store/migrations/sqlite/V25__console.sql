-- Since when a session is there, and what its browser calls itself. NULL: it began before this was kept.
ALTER TABLE sessions ADD COLUMN begun_at_us INTEGER;
ALTER TABLE sessions ADD COLUMN user_agent TEXT;

-- The last time that the whole log was verified on request. One row.
CREATE TABLE log_verified (
    id             INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    verified_at_us INTEGER NOT NULL,
    verified_by    TEXT    NOT NULL,
    records        INTEGER NOT NULL,
    size           INTEGER NOT NULL,
    findings       INTEGER NOT NULL
) STRICT;
