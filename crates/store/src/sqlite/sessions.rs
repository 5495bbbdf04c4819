//! Sessions on SQLite: read by the pool of readers, written beside the committer.

use super::Turn;
use super::connect::Location;
use super::read::{Pool, read_on, rows};
use super::side::{Side, execute, on_its_thread};
use crate::select::Dialect;
use crate::sessions::{self, SessionSql};
use crate::value::Value;
use async_trait::async_trait;
use countersign_engine::port::StoreError;
use countersign_engine::port::sessions::{SessionRow, Sessions};
use countersign_kernel::{Digest, Time};
use rusqlite::Connection;
use std::sync::Arc;

pub struct SqliteSessions {
    readers: Arc<Pool>,
    desk: Arc<Desk>,
}

struct Desk {
    side: Side,
    sql: SessionSql,
}

impl Desk {
    fn write(&self, sql: &str, values: &[Value<'_>]) -> Result<usize, StoreError> {
        self.side.with(|connection| self.side.write(connection, |transaction| execute(transaction, sql, values)))
    }
}

impl SqliteSessions {
    pub fn new(readers: Arc<Pool>, location: Location, turn: Turn) -> Self {
        let desk = Desk { side: Side::new(location, turn), sql: SessionSql::new(Dialect::Sqlite) };
        SqliteSessions { readers, desk: Arc::new(desk) }
    }
}

#[async_trait]
impl Sessions for SqliteSessions {
    async fn begin(&self, row: &SessionRow) -> Result<(), StoreError> {
        let row = row.clone();
        on_its_thread(&self.desk, move |desk| desk.write(&desk.sql.begin, &sessions::values(&row)).map(|_| ())).await
    }

    async fn find(&self, session_hash: &Digest) -> Result<Option<SessionRow>, StoreError> {
        let (session_hash, desk) = (*session_hash, self.desk.clone());
        read_on(&self.readers, move |connection| {
            Ok(rows(connection, &desk.sql.find, &[Value::digest(&session_hash)], sessions::row)?.pop())
        })
        .await
    }

    async fn of_actor(&self, actor_ref: &str) -> Result<Vec<SessionRow>, StoreError> {
        let (actor_ref, desk) = (actor_ref.to_owned(), self.desk.clone());
        read_on(&self.readers, move |connection| {
            rows(connection, &desk.sql.of_actor, &[Value::Text(&actor_ref)], sessions::row)
        })
        .await
    }

    async fn touch(&self, session_hash: &Digest, seen_at: Time) -> Result<(), StoreError> {
        let session_hash = *session_hash;
        on_its_thread(&self.desk, move |desk| {
            desk.write(&desk.sql.touch, &[Value::digest(&session_hash), Value::time(seen_at)]).map(|_| ())
        })
        .await
    }

    async fn end(&self, session_hash: &Digest) -> Result<(), StoreError> {
        let session_hash = *session_hash;
        on_its_thread(&self.desk, move |desk| {
            desk.write(&desk.sql.end, &[Value::digest(&session_hash)])?;
            desk.side.flush()
        })
        .await
    }

    async fn forget(&self, now: Time) -> Result<(), StoreError> {
        on_its_thread(&self.desk, move |desk| {
            for sql in &desk.sql.forget {
                desk.write(sql, &[Value::time(now)])?;
            }
            Ok(())
        })
        .await
    }

    async fn spend(&self, challenge_hash: &Digest, ends_at: Time) -> Result<bool, StoreError> {
        let challenge_hash = *challenge_hash;
        on_its_thread(&self.desk, move |desk| {
            let spent = desk.write(&desk.sql.spend, &[Value::digest(&challenge_hash), Value::time(ends_at)])?;
            desk.side.flush()?;
            Ok(spent > 0)
        })
        .await
    }

    async fn count(&self, key_id: &str, counter: u32, assertion_hash: &Digest) -> Result<bool, StoreError> {
        let (key_id, assertion_hash) = (key_id.to_owned(), *assertion_hash);
        on_its_thread(&self.desk, move |desk| {
            if counter == 0 {
                let seen = |connection: &mut Connection| {
                    rows(connection, &desk.sql.has_counted, &[Value::Text(&key_id)], |row| row.int(0))
                };
                return Ok(desk.side.with(seen)?.is_empty());
            }
            let values = [Value::Text(&key_id), Value::Int(counter.into()), Value::digest(&assertion_hash)];
            let counted = desk.write(&desk.sql.count, &values)?;
            desk.side.flush()?;
            Ok(counted > 0)
        })
        .await
    }
}
