//! A separate database for each test, on the server that `make test` provides.

use tokio_postgres::{Client, NoTls};

/// Names the server: a superuser's address of the database `postgres`.
pub const VARIABLE: &str = "COUNTERSIGN_TEST_POSTGRES";

/// A fresh database. It stays after a failure, to be looked at; [`Database::drop`] removes it.
pub struct Database {
    server: String,
    name: String,
    pub url: String,
}

impl Database {
    pub async fn create() -> Result<Database, String> {
        Database::create_from("template1").await
    }

    /// Another database with the same rows. No connection to this one may be open.
    pub async fn copy(&self) -> Result<Database, String> {
        Database::create_from(&self.name).await
    }

    async fn create_from(template: &str) -> Result<Database, String> {
        let server = std::env::var(VARIABLE)
            .map_err(|_| format!("{VARIABLE} names no PostgreSQL server: run through make test"))?;
        let (base, _) = server.rsplit_once('/').ok_or_else(|| format!("{VARIABLE} names no database: {server}"))?;
        let name = format!("countersign_test_{}", unique());
        let url = format!("{base}/{name}");
        execute(&server, &format!("CREATE DATABASE {name} TEMPLATE {template}")).await?;
        Ok(Database { server, name, url })
    }

    pub async fn drop(self) -> Result<(), String> {
        execute(&self.server, &format!("DROP DATABASE {} WITH (FORCE)", self.name)).await
    }
}

/// Different in every process and for every call.
fn unique() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}_{:x}_{}", since.as_nanos(), std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

async fn execute(server: &str, statement: &str) -> Result<(), String> {
    let client = connect(server).await?;
    client.batch_execute(statement).await.map_err(|error| format!("{statement}: {error}"))
}

async fn connect(server: &str) -> Result<Client, String> {
    let (client, connection) =
        tokio_postgres::connect(server, NoTls).await.map_err(|error| format!("{server}: {error}"))?;
    // Ends with its client.
    tokio::spawn(connection);
    Ok(client)
}
