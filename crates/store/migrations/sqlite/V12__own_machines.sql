-- The state machine of one's own that a run was started under: `name@version`, and its document. NULL: the engine's.
ALTER TABLE runs ADD COLUMN machine TEXT;
ALTER TABLE runs ADD COLUMN machine_digest BLOB;
-- The derived state that lies over a step's state.
ALTER TABLE run_steps ADD COLUMN derived_state TEXT;
