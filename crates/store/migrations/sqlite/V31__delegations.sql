-- Substitutes that approvers name ahead.
CREATE TABLE delegations (
    delegation_id BLOB    NOT NULL PRIMARY KEY,
    delegator_ref TEXT    NOT NULL,
    delegate_ref  TEXT    NOT NULL,
    scope         TEXT    NOT NULL,
    from_us       INTEGER NOT NULL,
    until_us      INTEGER NOT NULL,
    reason        TEXT,
    made_at_us    INTEGER NOT NULL,
    made_seq      INTEGER NOT NULL UNIQUE,
    revoked_at_us INTEGER,
    revoked_seq   INTEGER UNIQUE
) STRICT;
