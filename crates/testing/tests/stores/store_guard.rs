//! A server does not mistake an empty store for its own, notices that its file has gone, and shares it with nobody.

use anyhow::{Context, ensure};
use countersign_client::{Client, wire};
use countersign_server::serve::{self, ADMIN_TOKEN_FILE, Running, ServeOptions};
use countersign_testing::place::{Kind, Place};
use std::path::Path;
use tempfile::TempDir;

async fn start(data: &Path, store: &str, new_store: bool) -> anyhow::Result<Running> {
    let options = ServeOptions {
        listen: "127.0.0.1:0".into(),
        store: Some(store.to_owned()),
        new_store,
        ..ServeOptions::new(data)
    };
    serve::start(options).await
}

fn admin(data: &Path, server: &Running) -> anyhow::Result<Client> {
    let token = std::fs::read_to_string(data.join(ADMIN_TOKEN_FILE))?;
    Ok(Client::new(&server.url())?.with_token(token.trim())?)
}

async fn refused(data: &Path, store: &str) -> anyhow::Result<String> {
    match start(data, store, false).await {
        Ok(server) => {
            server.shutdown().await?;
            anyhow::bail!("the server has started")
        }
        Err(error) => Ok(format!("{error:#}")),
    }
}

/// An empty store beside keys is refused; `new_store` means it.
async fn an_empty_store_beside_keys_is_refused(kind: Kind) -> anyhow::Result<()> {
    let (data, place, other) = (TempDir::new()?, Place::new(kind).await?, Place::new(kind).await?);
    let data = data.path();
    start(data, &place.url, false).await?.shutdown().await?;
    start(data, &place.url, false).await?.shutdown().await?;
    ensure!(refused(data, &other.url).await?.contains("--new-store"));
    if kind == Kind::Sqlite {
        ensure!(!other.sqlite_file().exists(), "a file was made in its place");
        let file = place.sqlite_file();
        let whole = std::fs::read(&file)?;
        std::fs::write(&file, b"")?;
        ensure!(refused(data, &place.url).await?.contains("missing or empty"));
        ensure!(std::fs::metadata(&file)?.len() == 0);
        std::fs::write(&file, whole)?;
    }
    // The rows are gone, the tables are there.
    place
        .sql("DELETE FROM records; DELETE FROM log_entries; DELETE FROM log_nodes; DELETE FROM log_checkpoints")
        .await?;
    ensure!(refused(data, &place.url).await?.contains("holds no record"));
    let server = start(data, &other.url, true).await?;
    let report = admin(data, &server)?.verify_log(&wire::VerifyLog::default(), |_| ()).await?.body;
    ensure!(report.findings.is_empty(), "{:?}", report.findings);
    server.shutdown().await?;
    start(data, &other.url, false).await?.shutdown().await?;
    place.remove().await?;
    other.remove().await
}

/// A first start that made its keys and got no further may be tried again.
async fn a_setup_that_crashed_is_finished(kind: Kind) -> anyhow::Result<()> {
    let (data, place, empty) = (TempDir::new()?, Place::new(kind).await?, Place::new(kind).await?);
    let data = data.path();
    start(data, &place.url, false).await?.shutdown().await?;
    std::fs::write(data.join("setup.begun"), "")?;
    start(data, &empty.url, false).await?.shutdown().await?;
    ensure!(!data.join("setup.begun").exists());
    place.remove().await?;
    empty.remove().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_goes_while_it_is_open_ends_all_writing() -> anyhow::Result<()> {
    for replaced in [false, true] {
        let (data, place) = (TempDir::new()?, Place::new(Kind::Sqlite).await?);
        let data = data.path();
        let server = start(data, &place.url, false).await?;
        let client = admin(data, &server)?;
        let register = async |who: &str| {
            let request = wire::RegisterActor {
                actor_ref: who.to_owned(),
                kind: wire::ActorKind::Human,
                display_name: None,
                public_key: None,
            };
            client.register_actor(&request).await
        };
        register("before").await?;
        let ready = format!("{}/readyz", server.url());
        ensure!(reqwest::get(&ready).await?.status() == 200);
        let file = place.sqlite_file();
        let away = data.join("away.sqlite");
        if replaced {
            std::fs::copy(&file, &away)?;
            std::fs::rename(&away, &file)?;
        } else {
            std::fs::rename(&file, &away)?;
        }
        let error = register("after").await.err().context("it was acknowledged")?.to_string();
        ensure!(error.contains("while it was open"), "{error}");
        ensure!(reqwest::get(&ready).await?.status() == 503);
        if !replaced {
            std::fs::rename(&away, &file)?;
            register("again").await?;
        }
        server.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_is_refused_by_whatever_name() -> anyhow::Result<()> {
    let (data, other, place) = (TempDir::new()?, TempDir::new()?, Place::new(Kind::Sqlite).await?);
    let server = start(data.path(), &place.url, false).await?;
    let (hard, soft) = (other.path().join("hard.sqlite"), other.path().join("soft.sqlite"));
    std::fs::hard_link(place.sqlite_file(), &hard)?;
    std::os::unix::fs::symlink(place.sqlite_file(), &soft)?;
    for path in [&hard, &soft] {
        let told = refused(other.path(), &format!("sqlite:{}", path.display())).await?;
        ensure!(told.contains("another process uses the store"), "{told}");
    }
    // The first one is not disturbed.
    let report = admin(data.path(), &server)?.verify_log(&wire::VerifyLog::default(), |_| ()).await?.body;
    ensure!(report.findings.is_empty(), "{:?}", report.findings);
    server.shutdown().await
}

countersign_testing::on_both! {
    an_empty_store_beside_keys_is_refused,
    a_setup_that_crashed_is_finished,
}
