-- Whether the run has begun to undo its work: a run that is paused or stopped meanwhile goes on undoing.
ALTER TABLE run_heads ADD COLUMN undoing INTEGER NOT NULL DEFAULT 0;
UPDATE run_heads SET undoing = 1 WHERE state = 'compensating' OR (state = 'blocked' AND outcome = 'effect_unknown');
