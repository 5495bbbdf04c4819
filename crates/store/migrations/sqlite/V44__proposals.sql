-- Who approves the next version of a definition (the entry `publish` of its gate_spec, as JSON). NULL: whoever may publish does.
ALTER TABLE definitions ADD COLUMN publish TEXT;

-- The proposal that a version was published from, and the gate of its approval.
ALTER TABLE definitions ADD COLUMN proposal_id BLOB;
ALTER TABLE definitions ADD COLUMN approval_id BLOB;
ALTER TABLE definitions ADD COLUMN approval_is_chain INTEGER;
