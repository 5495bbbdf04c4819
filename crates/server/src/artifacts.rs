//! Files that steps left go with the record that names them. A purge marks them first, so that a crash in between is made up for;
//! [`settle`] then removes what no other record names.

use countersign_engine::Engine;
use countersign_executor::artifact::ArtifactStore;
use countersign_kernel::Digest;
use std::io;
use std::sync::Weak;
use std::time::Duration;

/// A younger file may belong to a step that is about to report it.
const YOUNG: Duration = Duration::from_secs(3600);
const EVERY: Duration = Duration::from_secs(600);

/// Notes the files that this record names, before it is purged.
pub async fn mark(store: &ArtifactStore, named: Vec<Digest>) {
    if named.is_empty() {
        return;
    }
    let store = store.clone();
    let marked = blocking(move || named.iter().try_for_each(|sha256| store.mark(sha256))).await;
    if let Err(error) = marked {
        tracing::warn!(%error, "files of a purged record could not be marked: they stay until they are removed by hand");
    }
}

/// Removes the marked files that no record names any more.
pub async fn settle(engine: &Engine, store: &ArtifactStore) {
    let from = store.clone();
    let marked = match blocking(move || from.marked()).await {
        Ok(marked) => marked,
        Err(error) => return tracing::warn!(%error, "marked files cannot be listed"),
    };
    for sha256 in marked {
        let named = match engine.names_artifact(&sha256).await {
            Ok(named) => named,
            Err(error) => return tracing::warn!(%error, "purged files are not removed yet"),
        };
        let store = store.clone();
        let settled =
            blocking(move || if named || store.remove(&sha256, YOUNG)? { store.unmark(&sha256) } else { Ok(()) });
        if let Err(error) = settled.await {
            tracing::warn!(%sha256, %error, "a purged file could not be removed; trying again");
        }
    }
}

/// What an earlier purge left to do: at the start, and now and then.
pub async fn run(engine: Weak<Engine>, store: ArtifactStore) {
    loop {
        match engine.upgrade() {
            Some(engine) => settle(&engine, &store).await,
            None => return,
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
