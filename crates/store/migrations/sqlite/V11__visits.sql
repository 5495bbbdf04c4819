-- What a purged record of a run said of its steps' ways: transitions, states and ids, no content. Written by the purge that destroys
-- the rest; while a record stands, it says so itself.
CREATE TABLE step_visits (
    instance_id BLOB NOT NULL,
    event_id    BLOB NOT NULL,
    visits      TEXT NOT NULL,
    PRIMARY KEY (instance_id, event_id)
) STRICT, WITHOUT ROWID;
