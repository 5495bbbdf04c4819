-- Legal holds and purges.

-- A hold keeps a record from being purged. It is released, never deleted.
CREATE TABLE holds (
    hold_id        UUID    NOT NULL PRIMARY KEY,
    record_ref     UUID    NOT NULL,
    instance_id    UUID    NOT NULL,
    placed_at_us   BIGINT NOT NULL,
    placed_by      TEXT    NOT NULL,
    reason         TEXT    NOT NULL,
    case_ref       TEXT,
    released_at_us BIGINT,
    released_by    TEXT,
    release_reason TEXT
) WITH (fillfactor = 80);
CREATE INDEX holds_by_record ON holds (record_ref, hold_id);
CREATE INDEX holds_by_case ON holds (case_ref, hold_id) WHERE case_ref IS NOT NULL;
CREATE INDEX holds_active ON holds (instance_id) WHERE released_at_us IS NULL;

-- From when on a record may be purged: null where it never may, and once it has been. So the index holds exactly what is
-- still to come, and what is kept without end costs nothing.
ALTER TABLE records ADD COLUMN purgeable_from_us BIGINT;
CREATE INDEX records_purgeable ON records (purgeable_from_us, event_id) WHERE purgeable_from_us IS NOT NULL;

-- Where the command left its records: a purge of them takes the answer along.
ALTER TABLE idempotency ADD COLUMN instance_id UUID NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000';
