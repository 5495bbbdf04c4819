-- What actors said about definitions: retired, paused, resumed. The newest one of a kind counts.
CREATE TABLE definition_marks (
    registry_seq BIGINT NOT NULL PRIMARY KEY,
    mark         TEXT   NOT NULL,
    name         TEXT   NOT NULL,
    version      BIGINT NOT NULL,
    reason       TEXT,
    marked_at_us BIGINT NOT NULL,
    marked_by    TEXT   NOT NULL
);
