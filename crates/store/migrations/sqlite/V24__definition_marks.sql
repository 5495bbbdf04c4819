-- What actors said about definitions: retired, paused, resumed. The newest one of a kind counts.
CREATE TABLE definition_marks (
    registry_seq INTEGER NOT NULL PRIMARY KEY,
    mark         TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    reason       TEXT,
    marked_at_us INTEGER NOT NULL,
    marked_by    TEXT    NOT NULL
) STRICT;
