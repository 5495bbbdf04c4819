-- What actors said about worker classes: frozen, thawed. The newest one of a class counts.
CREATE TABLE worker_class_marks (
    registry_seq BIGINT NOT NULL PRIMARY KEY,
    mark         TEXT    NOT NULL,
    worker_class TEXT    NOT NULL,
    reason       TEXT    NOT NULL,
    marked_at_us BIGINT NOT NULL,
    marked_by    TEXT    NOT NULL
);

-- When workers were last heard of, to within a part of the threshold of their class. No evidence: a row goes a day after its
-- worker was last heard of, or when its worker says goodbye.
CREATE TABLE worker_heartbeats (
    worker_class   TEXT    NOT NULL,
    worker_id      TEXT    NOT NULL,
    last_tick_at_us BIGINT NOT NULL,
    last_ok_at_us  BIGINT NOT NULL,
    lease_until_us BIGINT NOT NULL,
    PRIMARY KEY (worker_class, worker_id)
);

-- What worker classes have done in a minute, by node.
CREATE TABLE worker_minutes (
    minute       BIGINT NOT NULL,
    worker_class TEXT    NOT NULL,
    node_id      UUID NOT NULL,
    jobs         BIGINT NOT NULL,
    errors       BIGINT NOT NULL,
    events       TEXT    NOT NULL,
    PRIMARY KEY (minute, worker_class, node_id)
);
