-- By when a step is to be claimed, while nobody has claimed it.
ALTER TABLE run_steps ADD COLUMN start_by_us BIGINT;
