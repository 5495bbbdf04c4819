-- Events for the world outside on their way to webhooks.

-- The step that sent it; and who last had what was given up tried again.
ALTER TABLE outbox ADD COLUMN step TEXT;
ALTER TABLE outbox ADD COLUMN replayed_by TEXT;
ALTER TABLE outbox ADD COLUMN replayed_at_us BIGINT;
-- For lists. Each event stands in one of them.
CREATE INDEX outbox_open ON outbox (outbox_id) WHERE state = 'pending';
CREATE INDEX outbox_delivered ON outbox (outbox_id) WHERE state = 'delivered';
CREATE INDEX outbox_dead ON outbox (outbox_id) WHERE state = 'dead';

-- One row per event and webhook. From when they are there, the event itself is due at the end of time (2^63 - 1): it is
-- pending while one of them is, then delivered if all of them are, else dead.
CREATE TABLE deliveries (
    outbox_id          UUID    NOT NULL,
    webhook            TEXT    NOT NULL,
    state              TEXT    NOT NULL,
    attempts           BIGINT  NOT NULL,
    next_attempt_at_us BIGINT  NOT NULL,
    settled_at_us      BIGINT,
    last_error         TEXT,
    PRIMARY KEY (outbox_id, webhook)
) WITH (fillfactor = 70);
CREATE INDEX deliveries_pending ON deliveries (webhook, next_attempt_at_us, outbox_id) WHERE state = 'pending';
