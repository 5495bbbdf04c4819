-- Requests to replay a dead letter (spec/replay.md). The process of a request says how it was decided; here is what is to be
-- done, and what became of it. `replayed_at_us`: a delivery was made due again, which happens once.
CREATE TABLE replay_requests (
    request_id       BLOB    NOT NULL PRIMARY KEY,
    problem_id       BLOB    NOT NULL,
    requested_by     TEXT    NOT NULL,
    requested_at_us  INTEGER NOT NULL,
    state            TEXT    NOT NULL,
    approval_id      BLOB,
    replayed_at_us   INTEGER,
    outcome          TEXT,
    outcome_event_id BLOB,
    completed_at_us  INTEGER,
    CHECK ((outcome IS NULL) = (state <> 'completed'))
);
CREATE UNIQUE INDEX replay_requests_open ON replay_requests (problem_id) WHERE state IN ('requested', 'approved');
CREATE INDEX replay_requests_due ON replay_requests (request_id) WHERE state = 'approved' AND replayed_at_us IS NULL;
CREATE INDEX replay_requests_open_by_id ON replay_requests (request_id) WHERE state IN ('requested', 'approved');
CREATE INDEX replay_requests_by_problem ON replay_requests (problem_id, request_id);

-- Which replay a signal is the end of, and how it ended.
ALTER TABLE problem_signals ADD COLUMN replay_request_id BLOB;
ALTER TABLE problem_signals ADD COLUMN replay_outcome TEXT;

-- The request by which a delivery that was given up is tried again.
ALTER TABLE deliveries ADD COLUMN replay_request_id BLOB;
