//! Connecting to PostgreSQL: settings, TLS, migrations, and what errors mean.

use crate::{SCHEMA_VERSION, newer_schema};
use countersign_engine::port::StoreError;
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

mod migrations {
    refinery::embed_migrations!("migrations/postgres");
}

#[derive(Clone)]
pub struct Settings {
    pub config: Config,
    pub tls: Option<MakeRustlsConnect>,
}

impl Settings {
    pub fn parse(url: &str) -> Result<Self, StoreError> {
        let mut config: Config = url
            .parse()
            .map_err(|e| StoreError::Unusable(format!("the PostgreSQL address is not readable: {}", explain(&e))))?;
        config.application_name("countersign");
        config.connect_timeout(Duration::from_secs(10));
        // A network that died in silence must show: the committer waits for nothing else.
        config.tcp_user_timeout(Duration::from_secs(15));
        config
            .keepalives_idle(Duration::from_secs(15))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3);
        let tls = if config.get_ssl_mode() == SslMode::Disable { None } else { Some(tls()?) };
        Ok(Settings { config, tls })
    }

    /// A client whose connection is driven by the runtime that calls this.
    pub async fn connect(&self) -> Result<Client, StoreError> {
        let client = match &self.tls {
            None => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(failed)?;
                tokio::spawn(async move { log_end(connection.await) });
                client
            }
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await.map_err(failed)?;
                tokio::spawn(async move { log_end(connection.await) });
                client
            }
        };
        insist_on_durability(&client).await?;
        Ok(client)
    }

    /// Brings the schema up to date. Two nodes that start at once do it one after the other.
    pub async fn migrate(&self, lock: i64) -> Result<(), StoreError> {
        let mut client = self.connect().await?;
        // The runner asks for its table to be made where it is not there, and PostgreSQL notes each time that it is.
        client.batch_execute("SET client_min_messages = warning").await.map_err(failed)?;
        client.execute("SELECT pg_advisory_lock($1)", &[&lock]).await.map_err(failed)?;
        let known: bool = client
            .query_one("SELECT to_regclass('refinery_schema_history') IS NOT NULL", &[])
            .await
            .and_then(|row| row.try_get(0))
            .map_err(failed)?;
        if known {
            let found: Option<i32> = client
                .query_one("SELECT MAX(version) FROM refinery_schema_history", &[])
                .await
                .and_then(|row| row.try_get(0))
                .map_err(failed)?;
            if let Some(found) = found.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > SCHEMA_VERSION) {
                return Err(newer_schema(found));
            }
        }
        migrations::migrations::runner()
            .run_async(&mut client)
            .await
            .map_err(|e| StoreError::Unusable(format!("the schema could not be brought up to date: {e}")))?;
        super::log::adopt(&mut client).await?;
        client.execute("SELECT pg_advisory_unlock($1)", &[&lock]).await.map_err(failed)?;
        Ok(())
    }
}

fn tls() -> Result<MakeRustlsConnect, StoreError> {
    let mut roots = rustls::RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| StoreError::Unusable(format!("TLS cannot be set up: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn log_end(ended: Result<(), tokio_postgres::Error>) {
    if let Err(error) = ended {
        tracing::warn!(error = explain(&error), "a PostgreSQL connection ended");
    }
}

/// A commit that was acknowledged must survive the loss of power.
async fn insist_on_durability(client: &Client) -> Result<(), StoreError> {
    let row = client
        .query_one("SELECT current_setting('synchronous_commit'), current_setting('fsync')", &[])
        .await
        .map_err(failed)?;
    let (synchronous, fsync): (String, String) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
    if synchronous == "off" {
        client.batch_execute("SET synchronous_commit = on").await.map_err(failed)?;
    }
    if fsync == "off" {
        tracing::warn!("PostgreSQL runs with fsync = off: a power failure can lose acknowledged records");
    }
    Ok(())
}

pub fn failed(error: tokio_postgres::Error) -> StoreError {
    let text = explain(&error);
    match error.code() {
        // Data that cannot be stored, limits of the database, broken constraints.
        Some(code) if matches!(&code.code()[..2], "22" | "23" | "54") => StoreError::Rejected(text),
        Some(code) if code.code().starts_with("40") => StoreError::Conflict(text),
        Some(code) if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED => {
            StoreError::Corrupt(text)
        }
        _ => StoreError::Transient(text),
    }
}

/// The driver's own text says only "db error"; the cause says what.
fn explain(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(db), _) => format!("{} ({})", db.message(), db.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}
