-- Processes by initiator and by definition are listed many at a time, as records are (V4, sqlite/listing.rs): a start wrote
-- a page of each index. The process of a record that is not listed yet is not listed either; its first record says when
-- it began.

CREATE TABLE processes_of_initiator (
    initiator_ref TEXT NOT NULL,
    instance_id   BLOB NOT NULL,
    PRIMARY KEY (initiator_ref, instance_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE processes_of_definition (
    definition_name TEXT NOT NULL,
    instance_id     BLOB NOT NULL,
    PRIMARY KEY (definition_name, instance_id)
) STRICT, WITHOUT ROWID;

CREATE TEMP TABLE not_listed AS
    SELECT instance_id FROM records NOT INDEXED WHERE sequence = 1 AND position > (SELECT through FROM records_listed);
INSERT INTO processes_of_initiator SELECT initiator_ref, instance_id FROM processes
    WHERE instance_id NOT IN (SELECT instance_id FROM not_listed) ORDER BY initiator_ref, instance_id;
INSERT INTO processes_of_definition SELECT definition_name, instance_id FROM processes
    WHERE definition_name IS NOT NULL AND instance_id NOT IN (SELECT instance_id FROM not_listed)
    ORDER BY definition_name, instance_id;
DROP TABLE not_listed;

DROP INDEX processes_by_initiator;
DROP INDEX processes_by_definition;

-- That a task has one active assignment is the kernel's rule, and whoever verifies the stores checks it: an index for
-- nothing else was a page of every decision.
DROP INDEX assignments_one_active;
