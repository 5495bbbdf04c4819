-- Whether the run was cancelled with `compensate`: it is cancelled, not completed, once its work is undone.
ALTER TABLE run_heads ADD COLUMN called_off BOOLEAN NOT NULL DEFAULT false;
