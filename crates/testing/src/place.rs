//! The place of a test: a fresh store, removed when the test is over. Every test opens its store or engine through
//! this module.

use crate::postgres::Database;
use anyhow::{Context, anyhow, ensure};
use countersign_engine::port::{Store, StoreError};
use countersign_engine::{Config, Engine};
use countersign_ledger::sha256;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_postgres::NoTls;

/// Holds every scope in an engine that [`Place::engine`] has set up.
pub const ADMIN: &str = "admin";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Sqlite, Kind::Postgres];

    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Sqlite => "sqlite",
            Kind::Postgres => "postgres",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Each of these functions as a test on both stores.
#[macro_export]
macro_rules! on_both {
    ($($name:ident,)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name($crate::place::Kind::Sqlite).await
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name($crate::place::Kind::Postgres).await
            })*
        }
    };
}

/// A fresh store. A database stays after a failure, to be looked at; [`Place::remove`] drops it.
pub struct Place {
    pub kind: Kind,
    pub url: String,
    directory: tempfile::TempDir,
    database: Option<Database>,
}

impl Place {
    pub async fn new(kind: Kind) -> anyhow::Result<Place> {
        let directory = tempfile::tempdir()?;
        let database = match kind {
            Kind::Sqlite => None,
            Kind::Postgres => Some(Database::create().await.map_err(|error| anyhow!(error))?),
        };
        let url = match &database {
            None => format!("sqlite:{}", directory.path().join("test.sqlite").display()),
            Some(database) => database.url.clone(),
        };
        Ok(Place { kind, url, directory, database })
    }

    /// Another place with the same rows. This one must not be open.
    pub async fn copy(&self) -> anyhow::Result<Place> {
        let directory = tempfile::tempdir()?;
        let (url, database) = match &self.database {
            None => {
                let file = directory.path().join("test.sqlite");
                std::fs::copy(self.sqlite_file(), &file)?;
                (format!("sqlite:{}", file.display()), None)
            }
            Some(database) => {
                let copy = database.copy().await.map_err(|error| anyhow!(error))?;
                (copy.url.clone(), Some(copy))
            }
        };
        Ok(Place { kind: self.kind, url, directory, database })
    }

    /// A directory of this test alone.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The database file of an SQLite store.
    pub fn sqlite_file(&self) -> PathBuf {
        PathBuf::from(self.url.trim_start_matches("sqlite:"))
    }

    pub async fn store(&self) -> Result<Box<dyn Store>, StoreError> {
        countersign_store::open(&self.url).await
    }

    /// An engine on this store, set up with [`ADMIN`].
    pub async fn engine(&self, config: Config) -> anyhow::Result<Arc<Engine>> {
        engine_on(self.store().await?, config).await
    }

    /// Runs SQL by the back door.
    pub async fn sql(&self, text: &str) -> anyhow::Result<()> {
        match self.kind {
            Kind::Sqlite => Ok(rusqlite::Connection::open(self.sqlite_file())?.execute_batch(text)?),
            Kind::Postgres => {
                let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
                tokio::spawn(connection);
                client.batch_execute(text).await.with_context(|| text.to_owned())
            }
        }
    }

    /// What a query of one column of text finds, by the back door.
    pub async fn texts(&self, query: &str) -> anyhow::Result<Vec<String>> {
        match self.kind {
            Kind::Sqlite => {
                let connection = rusqlite::Connection::open(self.sqlite_file())?;
                let mut statement = connection.prepare(query)?;
                let rows = statement.query_map([], |row| row.get(0))?;
                Ok(rows.collect::<Result<_, _>>()?)
            }
            Kind::Postgres => {
                let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
                tokio::spawn(connection);
                let rows = client.query(query, &[]).await?;
                Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
            }
        }
    }

    /// The text stands nowhere: not in the bytes of an SQLite file or its log, not in any row of any table.
    pub async fn require_no_trace(&self, text: &str) -> anyhow::Result<()> {
        match self.kind {
            Kind::Sqlite => {
                for ending in ["", "-wal", "-shm", "-journal"] {
                    let file = format!("{}{ending}", self.sqlite_file().display());
                    let Ok(bytes) = std::fs::read(&file) else { continue };
                    let found = bytes.windows(text.len()).filter(|window| *window == text.as_bytes()).count();
                    ensure!(found == 0, "{text:?} stands {found} times in {file}");
                }
                Ok(())
            }
            Kind::Postgres => {
                let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
                tokio::spawn(connection);
                let tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'";
                for table in client.query(tables, &[]).await? {
                    let table: String = table.try_get(0)?;
                    // Bytes are shown as hex.
                    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
                    let sql = format!(
                        "SELECT count(*) FROM \"{table}\" t WHERE position($1 in t::text) > 0 OR position($2 in t::text) > 0"
                    );
                    let found: i64 = client.query_one(&sql, &[&text, &hex]).await?.try_get(0)?;
                    ensure!(found == 0, "{text:?} stands in {found} rows of {table}");
                }
                Ok(())
            }
        }
    }

    pub async fn remove(self) -> anyhow::Result<()> {
        match self.database {
            None => Ok(()),
            Some(database) => database.drop().await.map_err(|error| anyhow!(error)),
        }
    }
}

/// An engine on any store, set up with [`ADMIN`] unless it has been already.
pub async fn engine_on(store: Box<dyn Store>, config: Config) -> anyhow::Result<Arc<Engine>> {
    let engine = Engine::open(store, config).await?;
    engine.bootstrap(ADMIN, sha256(&[b"the administrator's token"])).await?;
    Ok(Arc::new(engine))
}

/// Commits waiting calls and closes the store. No other reference to the engine may exist.
pub async fn close(engine: Arc<Engine>) -> anyhow::Result<()> {
    let engine = Arc::into_inner(engine).ok_or_else(|| anyhow!("somebody still holds the engine"))?;
    Ok(tokio::task::spawn_blocking(move || engine.close()).await?)
}
