-- What was handed out with the answer to a completion, as <run_id>.<step_seq>.<lease_token>: whoever lost the answer and
-- repeats the completion is handed it again.
ALTER TABLE run_steps ADD COLUMN handed TEXT;
