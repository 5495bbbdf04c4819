//! What is measured: an engine or a server on a fresh store.

use crate::report::Written;
use anyhow::{Context, anyhow};
use countersign_engine::port::{LogParts, Store};
use countersign_engine::{Config, Engine};
use countersign_server::serve::{Running, ServeOptions};
use std::sync::Arc;
use std::time::Duration;

pub struct Target {
    pub engine: Option<Arc<Engine>>,
    pub server: Option<Running>,
    place: Place,
}

/// A fresh store: a temporary directory, or a database of its own on the test server.
pub struct Place {
    pub url: String,
    directory: tempfile::TempDir,
    database: Option<(String, String)>,
}

impl Place {
    pub async fn new(store: &str) -> anyhow::Result<Place> {
        let directory = tempfile::tempdir_in(std::env::var_os("BENCH_DIR").unwrap_or_else(|| "target".into()))?;
        match store {
            "sqlite" => {
                let url = format!("sqlite:{}", directory.path().join("bench.sqlite").display());
                Ok(Place { url, directory, database: None })
            }
            "postgres" => {
                let server = std::env::var("COUNTERSIGN_TEST_POSTGRES")
                    .context("run through `make bench`: it starts a PostgreSQL")?;
                let name = format!("countersign_bench_{}", uuid::Uuid::from_u128(random()?).simple());
                admin(&server, &format!("CREATE DATABASE {name}")).await?;
                let base = server
                    .rsplit_once('/')
                    .map(|(base, _)| base)
                    .ok_or_else(|| anyhow!("COUNTERSIGN_TEST_POSTGRES is no URL"))?;
                Ok(Place { url: format!("{base}/{name}"), directory, database: Some((server.clone(), name)) })
            }
            other => Err(anyhow!("unknown store `{other}`: sqlite or postgres")),
        }
    }

    pub async fn remove(self) -> anyhow::Result<()> {
        match &self.database {
            Some((server, name)) => admin(server, &format!("DROP DATABASE {name} WITH (FORCE)")).await,
            None => Ok(()),
        }
    }
}

fn random() -> anyhow::Result<u128> {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    Ok(seed ^ (u128::from(std::process::id()) << 96))
}

async fn admin(server: &str, sql: &str) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(sql).await?;
    Ok(())
}

impl Target {
    pub async fn in_process(store: &str) -> anyhow::Result<Target> {
        Target::in_process_with(store, Config::default()).await
    }

    pub async fn in_process_with(store: &str, config: Config) -> anyhow::Result<Target> {
        Target::on(Place::new(store).await?, config, |store| store).await
    }

    /// An engine on the store as `wrap` gives it back.
    pub async fn on(
        place: Place,
        config: Config,
        wrap: impl FnOnce(Box<dyn Store>) -> Box<dyn Store>,
    ) -> anyhow::Result<Target> {
        let engine = Engine::open(wrap(countersign_store::open(&place.url).await?), config).await?;
        Ok(Target { engine: Some(Arc::new(engine)), server: None, place })
    }

    pub fn url(&self) -> &str {
        &self.place.url
    }

    /// The log of this store, beside the engine.
    pub async fn log(&self) -> anyhow::Result<LogParts> {
        Ok(countersign_store::open(&self.place.url).await?.log()?)
    }

    /// Every command on an old instance reads it from the store.
    pub async fn in_process_without_cache(store: &str) -> anyhow::Result<Target> {
        Target::in_process_with(store, Config { cached_instances: 0, ..Config::default() }).await
    }

    pub async fn http(store: &str) -> anyhow::Result<Target> {
        Target::serve(Place::new(store).await?).await
    }

    /// A server on a store that may hold something already.
    pub async fn serve(place: Place) -> anyhow::Result<Target> {
        let mut options = ServeOptions::new(place.directory.path());
        options.listen = "127.0.0.1:0".to_owned();
        options.store = Some(place.url.clone());
        let server = countersign_server::serve::start(options).await?;
        Ok(Target { engine: None, server: Some(server), place })
    }

    /// A second node on the same database, with this configuration; it ends before its directory.
    pub async fn beside(&self, config: &str) -> anyhow::Result<(Running, tempfile::TempDir)> {
        let directory = tempfile::tempdir_in(std::env::var_os("BENCH_DIR").unwrap_or_else(|| "target".into()))?;
        for key in ["application.key", "log.key"] {
            std::fs::copy(self.place.directory.path().join(key), directory.path().join(key))?;
        }
        let mut options = ServeOptions::new(directory.path());
        options.listen = "127.0.0.1:0".to_owned();
        options.store = Some(self.place.url.clone());
        let file = directory.path().join("countersign.toml");
        std::fs::write(&file, config)?;
        options.config = Some(file);
        Ok((countersign_server::serve::start(options).await?, directory))
    }

    /// The administrator's token of a served target.
    pub fn admin_token(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.place.directory.path().join("admin.token"))?.trim().to_owned())
    }

    /// What PostgreSQL has written up to now; nothing for other stores.
    pub async fn written(&self) -> anyhow::Result<Option<Counters>> {
        match &self.place.database {
            Some((server, name)) => Ok(Some(Counters::read(server, name).await?)),
            None => Ok(None),
        }
    }

    pub async fn close(self) -> anyhow::Result<()> {
        self.stop().await?.remove().await
    }

    /// Stops what runs, and leaves the store.
    pub async fn stop(self) -> anyhow::Result<Place> {
        if let Some(server) = self.server {
            server.shutdown().await?;
        }
        if let Some(engine) = self.engine.and_then(Arc::into_inner) {
            tokio::task::spawn_blocking(|| engine.close()).await?;
        }
        Ok(self.place)
    }
}

/// A backend of PostgreSQL reports what it counted at the latest when it has been idle for ten seconds.
const REPORTED: Duration = Duration::from_secs(11);

/// Counters of PostgreSQL: WAL of the whole server, commits of one database.
pub struct Counters {
    wal_syncs: i64,
    wal_bytes: i64,
    commits: i64,
}

impl Counters {
    async fn read(server: &str, database: &str) -> anyhow::Result<Counters> {
        tokio::time::sleep(REPORTED).await;
        let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        let version: i32 =
            client.query_one("SELECT current_setting('server_version_num')::int", &[]).await?.try_get(0)?;
        let syncs = match version {
            ..180_000 => "wal_sync",
            _ => "(SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal')",
        };
        let sql = format!(
            "SELECT {syncs}, wal_bytes::bigint, xact_commit FROM pg_stat_wal, pg_stat_database WHERE datname = $1"
        );
        let row = client.query_one(&sql, &[&database]).await?;
        Ok(Counters { wal_syncs: row.try_get(0)?, wal_bytes: row.try_get(1)?, commits: row.try_get(2)? })
    }

    /// Commits since `earlier`.
    pub fn transactions_since(&self, earlier: &Counters) -> f64 {
        self.since(earlier, 1).commits
    }

    /// Of each of `count`, since `earlier`.
    pub fn since(&self, earlier: &Counters, count: usize) -> Written {
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let each = |now: i64, then: i64| (now - then) as f64 / count as f64;
        Written {
            wal_syncs: each(self.wal_syncs, earlier.wal_syncs),
            wal_kib: each(self.wal_bytes, earlier.wal_bytes) / 1024.0,
            commits: each(self.commits, earlier.commits),
        }
    }
}
