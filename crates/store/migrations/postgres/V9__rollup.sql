-- The colour of a run with its basis. It stands on the instance's row, which every commit of the run writes anyway. NULL for
-- a process, and for a run that has not moved since it was stored by an older version.
ALTER TABLE instances ADD COLUMN rollup TEXT;

-- Since when a step is blocked, and why that is red (NULL: it is not).
ALTER TABLE run_steps ADD COLUMN blocked_since_us BIGINT;
ALTER TABLE run_steps ADD COLUMN blocked_cause TEXT;
-- The colour of the run that a step waits for.
ALTER TABLE run_steps ADD COLUMN child_colour TEXT;

-- The trace that a run was started in (W3C); NULL where it began its own, whose id is the run's.
ALTER TABLE runs ADD COLUMN trace_id TEXT;
CREATE INDEX runs_by_trace ON runs (trace_id, instance_id) WHERE trace_id IS NOT NULL;
