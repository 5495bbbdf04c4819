-- Who is in charge of a step, what was promised, what was missed, and why it is blocked.
ALTER TABLE run_steps ADD COLUMN pic TEXT;
ALTER TABLE run_steps ADD COLUMN deadline_us BIGINT;
ALTER TABLE run_steps ADD COLUMN overdue_first_at_us BIGINT;
ALTER TABLE run_steps ADD COLUMN sla_breach_us BIGINT;
ALTER TABLE run_steps ADD COLUMN cycle BIGINT;
ALTER TABLE run_steps ADD COLUMN declared_at_us BIGINT;
ALTER TABLE run_steps ADD COLUMN secondary_facets TEXT;
ALTER TABLE run_steps ADD COLUMN block_reason TEXT;
ALTER TABLE run_steps ADD COLUMN escalated_at_us BIGINT;
-- What a person has to do.
CREATE INDEX run_steps_to_be_done ON run_steps (pic, instance_id, step_seq)
    WHERE pic IS NOT NULL AND state IN ('ready', 'in_progress', 'waiting', 'blocked', 'overdue');

-- Each reopening of a step, with what it reopened. Nothing here is ever changed but by a purge.
CREATE TABLE step_corrections (
    instance_id         UUID NOT NULL,
    step_seq            BIGINT NOT NULL,
    cycle               BIGINT NOT NULL,
    from_state          TEXT NOT NULL,
    prior_event_id      UUID NOT NULL,
    prior_actor_ref     TEXT NOT NULL,
    prior_at_us         BIGINT NOT NULL,
    overdue_first_at_us BIGINT,
    sla_breach_us       BIGINT,
    approval_id         UUID NOT NULL,
    correction_reason   TEXT NOT NULL,
    reopened_by         TEXT NOT NULL,
    reopened_at_us      BIGINT NOT NULL,
    event_id            UUID NOT NULL,
    output              TEXT,
    PRIMARY KEY (instance_id, step_seq, cycle)
);
