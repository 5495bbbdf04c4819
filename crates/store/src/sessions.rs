//! The statements of sessions, which both databases share.

use crate::select::Dialect;
use crate::value::{Columns, Value};
use countersign_engine::port::StoreError;
use countersign_engine::port::sessions::SessionRow;
use countersign_kernel::Time;

/// How many rows that are over one call deletes.
const AT_ONCE: usize = 100;
const COLUMNS: &str = "session_hash, actor_ref, credential_id, seen_at_us, ends_at_us, begun_at_us, user_agent";

pub struct SessionSql {
    pub begin: String,
    pub find: String,
    pub of_actor: String,
    pub touch: String,
    pub end: String,
    /// Both delete what is over. Parameter: now.
    pub forget: [String; 2],
    pub spend: String,
    pub count: String,
    /// Whether the passkey has counted before.
    pub has_counted: String,
}

impl SessionSql {
    pub fn new(dialect: Dialect) -> Self {
        let [a, b, c, d, e, f, g] = [1, 2, 3, 4, 5, 6, 7].map(|n| dialect.hole(n));
        SessionSql {
            begin: format!("INSERT INTO sessions ({COLUMNS}) VALUES ({a}, {b}, {c}, {d}, {e}, {f}, {g})"),
            find: format!("SELECT {COLUMNS} FROM sessions WHERE session_hash = {a}"),
            of_actor: format!(
                "SELECT {COLUMNS} FROM sessions WHERE actor_ref = {a} \
                 ORDER BY seen_at_us DESC, session_hash LIMIT {AT_ONCE}"
            ),
            touch: format!("UPDATE sessions SET seen_at_us = {b} WHERE session_hash = {a} AND seen_at_us < {b}"),
            end: format!("DELETE FROM sessions WHERE session_hash = {a}"),
            forget: [("sessions", "session_hash"), ("spent_challenges", "challenge_hash")].map(|(table, key)| {
                format!(
                    "DELETE FROM {table} WHERE {key} IN \
                     (SELECT {key} FROM {table} WHERE ends_at_us <= {a} ORDER BY ends_at_us LIMIT {AT_ONCE})"
                )
            }),
            spend: format!(
                "INSERT INTO spent_challenges (challenge_hash, ends_at_us) VALUES ({a}, {b}) ON CONFLICT DO NOTHING"
            ),
            count: format!(
                "INSERT INTO passkey_counters (key_id, counter, assertion_hash) VALUES ({a}, {b}, {c}) \
                 ON CONFLICT (key_id) DO UPDATE SET counter = excluded.counter, assertion_hash = excluded.assertion_hash \
                 WHERE passkey_counters.counter < excluded.counter OR (passkey_counters.counter = excluded.counter \
                 AND passkey_counters.assertion_hash = excluded.assertion_hash)"
            ),
            has_counted: format!("SELECT counter FROM passkey_counters WHERE key_id = {a}"),
        }
    }
}

pub fn values(row: &SessionRow) -> Vec<Value<'_>> {
    vec![
        Value::digest(&row.session_hash),
        Value::Text(&row.actor_ref),
        Value::Text(&row.credential_id),
        Value::time(row.seen_at),
        Value::time(row.ends_at),
        Value::optional_time(row.begun_at),
        Value::text(row.user_agent.as_deref()),
    ]
}

pub fn row(columns: &dyn Columns) -> Result<SessionRow, StoreError> {
    Ok(SessionRow {
        session_hash: columns.digest(0)?,
        actor_ref: columns.text(1)?,
        credential_id: columns.text(2)?,
        seen_at: columns.time(3)?,
        ends_at: columns.time(4)?,
        begun_at: columns.optional_int(5)?.map(Time),
        user_agent: columns.optional_text(6)?,
    })
}
