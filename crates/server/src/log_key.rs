//! The log's private key: 32 bytes, base64, in the data directory of each node that seals, and never in the database.

use crate::keys;
use countersign_engine::port::LogReader;
use countersign_engine::port::log::LogIdentity;
use countersign_ledger::note::NoteSigner;
use std::path::Path;

pub const LOG_KEY_FILE: &str = "log.key";

/// The seed that this node signs checkpoints with. A store without a log gets a new key; a node that has none for a log
/// that is there follows without sealing.
pub async fn find_or_make(log: &dyn LogReader, data_dir: &Path) -> anyhow::Result<Option<[u8; 32]>> {
    let file = data_dir.join(LOG_KEY_FILE);
    let identity = log.identity().await?;
    if let Some(identity) = &identity
        && let Some(next) = keys::load(&keys::next(&file))?
        && is_key_of(identity, &next)
    {
        // A rotation was recorded, and the files were not changed any more.
        keys::adopt_next(&file)?;
    }
    find_or_make_at(&file, async { Ok(identity.map(|identity| identity.origin)) }).await
}

fn is_key_of(identity: &LogIdentity, seed: &[u8; 32]) -> bool {
    let signer = NoteSigner::log(&identity.origin, seed);
    signer.is_ok_and(|signer| signer.verifier().to_string() == identity.verifier_key)
}

async fn find_or_make_at(
    file: &Path,
    origin: impl Future<Output = anyhow::Result<Option<String>>>,
) -> anyhow::Result<Option<[u8; 32]>> {
    if let Some(seed) = keys::load(file)? {
        return Ok(Some(seed));
    }
    if let Some(origin) = origin.await? {
        tracing::warn!(
            origin,
            "this node has no key of the log and follows without sealing. To let it seal, copy {LOG_KEY_FILE} from the \
             data directory of a node that seals to {} (readable by its owner alone), and start again",
            file.display()
        );
        return Ok(None);
    }
    let seed = keys::load_or_make(file)?;
    tracing::info!(file = %file.display(), "a new log: its key is in this file. Whoever has it can sign for this log; keep a copy");
    Ok(Some(seed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn a_key_is_made_once_and_only_for_a_new_log() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join(LOG_KEY_FILE);
        let follows = find_or_make_at(&file, async { Ok(Some("a log".to_owned())) }).await.expect("no key");
        assert!(follows.is_none() && !file.exists());
        let made = find_or_make_at(&file, async { Ok(None) }).await.expect("a key").expect("made");
        assert_eq!(std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
        let again = find_or_make_at(&file, async { Ok(Some("a log".to_owned())) }).await.expect("a key");
        assert_eq!(again, Some(made));
        std::fs::write(&file, "not a key").expect("written");
        assert!(find_or_make_at(&file, async { Ok(None) }).await.is_err());
    }
}
