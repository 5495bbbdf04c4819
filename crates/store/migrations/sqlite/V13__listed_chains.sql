-- The records of an instance are listed many at a time, as those of an action are (V4, sqlite/listing.rs): a command wrote a
-- page of this index, and a batch of many long runs a page for each of them. That sequences are dense and unique is what the
-- fence is for, and whoever verifies the log checks it.

CREATE TABLE records_of_instance (
    instance_id BLOB    NOT NULL,
    sequence    INTEGER NOT NULL,
    event_id    BLOB    NOT NULL,
    position    INTEGER NOT NULL,
    PRIMARY KEY (instance_id, sequence)
) STRICT, WITHOUT ROWID;
INSERT INTO records_of_instance SELECT instance_id, sequence, event_id, position FROM records
    WHERE position <= (SELECT through FROM records_listed) ORDER BY instance_id, sequence;

DROP INDEX records_by_instance;

-- Every record, to be found by its instance.
CREATE VIEW chained_records AS
    SELECT l.instance_id, l.sequence, l.position, l.event_id, r.action_ref, r.actor_ref, r.recorded_at_us, r.header, r.payload,
        r.attestation, r.salt, r.purgeable_from_us
    FROM records_of_instance l CROSS JOIN records r ON r.position = l.position
    UNION ALL
    SELECT instance_id, sequence, position, event_id, action_ref, actor_ref, recorded_at_us, header, payload,
        attestation, salt, purgeable_from_us
    FROM records NOT INDEXED WHERE position > (SELECT through FROM records_listed);
