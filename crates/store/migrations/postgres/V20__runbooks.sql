-- What a runbook's run keeps (pins, the survey that is pending, caps, verdicts, artifacts), as one JSON text. NULL: no runbook.
ALTER TABLE run_heads ADD COLUMN runbook TEXT;
-- What the approver is shown and decides on, JSON text. NULL: nothing but the gate itself.
ALTER TABLE approval_steps ADD COLUMN request TEXT;
