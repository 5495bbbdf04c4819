//! Sessions on PostgreSQL, on the connections that reads use.

use super::connect::failed;
use super::read::{connection, parameters};
use crate::select::Dialect;
use crate::sessions::{self, SessionSql};
use crate::value::Value;
use async_trait::async_trait;
use countersign_engine::port::StoreError;
use countersign_engine::port::sessions::{SessionRow, Sessions};
use countersign_kernel::{Digest, Time};
use deadpool_postgres::Pool;

pub struct PostgresSessions {
    pool: Pool,
    sql: SessionSql,
}

impl PostgresSessions {
    pub fn new(pool: Pool) -> Self {
        PostgresSessions { pool, sql: SessionSql::new(Dialect::Postgres) }
    }

    async fn execute(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        let client = connection(&self.pool).await?;
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        client.execute(&statement, &parameters(values)).await.map_err(failed)
    }
}

#[async_trait]
impl Sessions for PostgresSessions {
    async fn begin(&self, row: &SessionRow) -> Result<(), StoreError> {
        self.execute(&self.sql.begin, &sessions::values(row)).await.map(|_| ())
    }

    async fn find(&self, session_hash: &Digest) -> Result<Option<SessionRow>, StoreError> {
        let client = connection(&self.pool).await?;
        let statement = client.prepare_cached(&self.sql.find).await.map_err(failed)?;
        let found = client.query_opt(&statement, &[&session_hash.0.as_slice()]).await.map_err(failed)?;
        found.map(|row| sessions::row(&row)).transpose()
    }

    async fn of_actor(&self, actor_ref: &str) -> Result<Vec<SessionRow>, StoreError> {
        let client = connection(&self.pool).await?;
        let statement = client.prepare_cached(&self.sql.of_actor).await.map_err(failed)?;
        let found = client.query(&statement, &[&actor_ref]).await.map_err(failed)?;
        found.iter().map(|row| sessions::row(row)).collect()
    }

    async fn touch(&self, session_hash: &Digest, seen_at: Time) -> Result<(), StoreError> {
        self.execute(&self.sql.touch, &[Value::digest(session_hash), Value::time(seen_at)]).await.map(|_| ())
    }

    async fn end(&self, session_hash: &Digest) -> Result<(), StoreError> {
        let mut client = connection(&self.pool).await?;
        let transaction = client.transaction().await.map_err(failed)?;
        // A database may be set up to lose its last commits; this one it may not.
        transaction.batch_execute("SET LOCAL synchronous_commit = on").await.map_err(failed)?;
        transaction.execute(&self.sql.end, &[&session_hash.0.as_slice()]).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }

    async fn forget(&self, now: Time) -> Result<(), StoreError> {
        for sql in &self.sql.forget {
            self.execute(sql, &[Value::time(now)]).await?;
        }
        Ok(())
    }

    async fn spend(&self, challenge_hash: &Digest, ends_at: Time) -> Result<bool, StoreError> {
        Ok(self.execute(&self.sql.spend, &[Value::digest(challenge_hash), Value::time(ends_at)]).await? > 0)
    }

    async fn count(&self, key_id: &str, counter: u32, assertion_hash: &Digest) -> Result<bool, StoreError> {
        if counter == 0 {
            let client = connection(&self.pool).await?;
            let statement = client.prepare_cached(&self.sql.has_counted).await.map_err(failed)?;
            return Ok(client.query_opt(&statement, &[&key_id]).await.map_err(failed)?.is_none());
        }
        let values = [Value::Text(key_id), Value::Int(counter.into()), Value::digest(assertion_hash)];
        Ok(self.execute(&self.sql.count, &values).await? > 0)
    }
}
