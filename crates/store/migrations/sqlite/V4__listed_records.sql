-- Records by action and by actor. Two indexes did this before, and every command wrote a page of each and waited for both
-- to reach the disk. Now records are listed many at a time, behind their own commits; readers look through those that are
-- not listed yet (sqlite/listing.rs).

CREATE TABLE records_of_action (
    action_ref TEXT NOT NULL,
    event_id   BLOB NOT NULL,
    PRIMARY KEY (action_ref, event_id)
) STRICT, WITHOUT ROWID;
INSERT INTO records_of_action SELECT action_ref, event_id FROM records ORDER BY action_ref, event_id;

CREATE TABLE records_of_actor (
    actor_ref TEXT NOT NULL,
    event_id  BLOB NOT NULL,
    PRIMARY KEY (actor_ref, event_id)
) STRICT, WITHOUT ROWID;
INSERT INTO records_of_actor SELECT actor_ref, event_id FROM records ORDER BY actor_ref, event_id;

-- The position of the last record that is listed.
CREATE TABLE records_listed (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    through INTEGER NOT NULL
) STRICT;
INSERT INTO records_listed SELECT 1, COALESCE(MAX(position), 0) FROM records;

DROP INDEX records_by_action;
DROP INDEX records_by_actor;
