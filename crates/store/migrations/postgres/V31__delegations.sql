-- Substitutes that approvers name ahead.
CREATE TABLE delegations (
    delegation_id UUID   NOT NULL PRIMARY KEY,
    delegator_ref TEXT   NOT NULL,
    delegate_ref  TEXT   NOT NULL,
    scope         TEXT   NOT NULL,
    from_us       BIGINT NOT NULL,
    until_us      BIGINT NOT NULL,
    reason        TEXT,
    made_at_us    BIGINT NOT NULL,
    made_seq      BIGINT NOT NULL UNIQUE,
    revoked_at_us BIGINT,
    revoked_seq   BIGINT UNIQUE
);
