//! Opening: our own store is read back completely; a foreign store is refused with a clear message and not changed.

use super::Bench;
use crate::place::{Kind, Place};
use anyhow::{bail, ensure};
use countersign_engine::port::StoreError;

pub async fn everything_survives_reopening(place: &Place) -> anyhow::Result<()> {
    let Bench { writer, reader, story, model } = Bench::with_everything(place).await?;
    drop((writer, reader));
    let (writer, reader) = place.store().await?.into_parts();
    let mut bench = Bench { writer, reader, story, model };
    bench.require_model().await
}

fn require_unusable<T>(opened: Result<T, StoreError>, words: &str) -> anyhow::Result<()> {
    match opened {
        Err(StoreError::Unusable(told)) if told.contains(words) => Ok(()),
        Err(other) => bail!("refused, but with: {other}"),
        Ok(_) => bail!("opened"),
    }
}

pub async fn a_newer_schema_is_refused(place: &Place) -> anyhow::Result<()> {
    drop(Bench::with_registry(place).await?);
    let newer = countersign_store::SCHEMA_VERSION + 1;
    let bump = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) VALUES";
    place.sql(&format!("{bump} ({newer}, 'from_the_future', '2099-01-01T00:00:00Z', '0')")).await?;
    require_unusable(place.store().await, &format!("schema version {newer}"))?;
    require_unusable(place.store().await, "newer Countersign")?;
    place.sql(&format!("DELETE FROM refinery_schema_history WHERE version = {newer}")).await?;
    drop(place.store().await?);
    Ok(())
}

/// Only SQLite can be pointed at a file; of PostgreSQL there is nothing to show here.
pub async fn a_foreign_file_is_refused_untouched(place: &Place) -> anyhow::Result<()> {
    if place.kind == Kind::Postgres {
        return Ok(());
    }
    let file = place.directory().join("foreign.sqlite");
    let url = format!("sqlite:{}", file.display());
    rusqlite::Connection::open(&file)?.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);")?;
    let before = std::fs::read(&file)?;
    require_unusable(countersign_store::open(&url).await, "not Countersign's")?;
    ensure!(std::fs::read(&file)? == before, "somebody else's database was changed");

    let garbage = place.directory().join("garbage.sqlite");
    std::fs::write(&garbage, "this is a letter, not a database. ".repeat(200))?;
    let url = format!("sqlite:{}", garbage.display());
    require_unusable(countersign_store::open(&url).await, "not an SQLite database")?;
    let missing = format!("sqlite:{}/no/such/directory/x.sqlite", place.directory().display());
    require_unusable(countersign_store::open(&missing).await, "does not exist")?;
    require_unusable(countersign_store::open("mysql://x").await, "sqlite:PATH")
}
