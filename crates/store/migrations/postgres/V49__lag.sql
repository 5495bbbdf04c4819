-- How long things waited on their way from a producer to a consumer: a histogram for each minute, pair and node. No evidence:
-- a month of it is kept.
CREATE TABLE lag_minutes (
    minute    BIGINT NOT NULL,
    producer  TEXT    NOT NULL,
    consumer  TEXT    NOT NULL,
    node_id   UUID NOT NULL,
    histogram TEXT    NOT NULL,
    PRIMARY KEY (minute, producer, consumer, node_id)
);
