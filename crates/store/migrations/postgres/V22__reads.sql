-- What holds a run up: steps that wait, are blocked or have failed, and steps that show the colour of a child. Whoever follows a run
-- asks for these beside what its records name. A step that is claimed and completed never enters this index.
CREATE INDEX run_steps_held_up ON run_steps (instance_id, step_seq)
    WHERE (state IN ('waiting', 'blocked', 'failed') OR child_run_id IS NOT NULL AND state = 'in_progress');

-- Which records tell why an attempt at a step failed. The errors stand in the records alone, and go with them.
CREATE TABLE step_errors (
    instance_id UUID    NOT NULL,
    step_seq    BIGINT  NOT NULL,
    event_id    UUID    NOT NULL,
    PRIMARY KEY (instance_id, step_seq, event_id)
);

-- Runs by colour. It stands on the instance's row, beside the roll-up that it is part of, and changes far less often.
ALTER TABLE instances ADD COLUMN colour TEXT;
UPDATE instances SET colour = rollup::json ->> 'state_code' WHERE rollup IS NOT NULL;
CREATE INDEX instances_by_colour ON instances (colour, instance_id) WHERE colour IS NOT NULL;
-- Processes by their state. A run has a roll-up, and its own index by state.
CREATE INDEX instances_by_state ON instances (state, instance_id) WHERE rollup IS NULL;
CREATE INDEX runs_by_initiator ON runs (initiator_ref, instance_id);
CREATE INDEX runs_by_parent ON runs (parent_id, instance_id) WHERE parent_id IS NOT NULL;

-- By how a subject begins, whatever the order of the database's language.
CREATE INDEX runs_by_subject_prefix ON runs (subject_ref COLLATE "C");

-- By when an approver is asked to decide, where the definition says so.
ALTER TABLE assignments ADD COLUMN due_at_us BIGINT;

-- The indexes above made PostgreSQL count the one row of a new store's `instances`. Plans made for one row scan the table until it
-- is analysed, and a busy server makes its plans before that. Written anew, the table counts as not analysed, and plans go by key.
DO $$
BEGIN
    LOCK TABLE instances IN ACCESS EXCLUSIVE MODE;
    IF (SELECT count(*) FROM (SELECT FROM instances LIMIT 2) AS few) < 2 THEN
        CREATE TEMP TABLE kept_instances ON COMMIT DROP AS SELECT * FROM instances;
        TRUNCATE instances;
        INSERT INTO instances SELECT * FROM kept_instances;
    END IF;
END $$;
