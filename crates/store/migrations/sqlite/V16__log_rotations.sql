-- Where another key took over the log (spec/checkpoint.md, section 6). `log_state.verifier_key` is the key of today.

CREATE TABLE log_rotations (
    size          INTEGER PRIMARY KEY,
    note          TEXT    NOT NULL,
    rotated_at_us INTEGER NOT NULL
) STRICT;
