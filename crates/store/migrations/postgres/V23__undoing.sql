-- Whether the run has begun to undo its work: a run that is paused or stopped meanwhile goes on undoing.
ALTER TABLE run_heads ADD COLUMN undoing BOOLEAN NOT NULL DEFAULT false;
UPDATE run_heads SET undoing = true WHERE state = 'compensating' OR (state = 'blocked' AND outcome = 'effect_unknown');
