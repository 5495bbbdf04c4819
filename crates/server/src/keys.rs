//! Private keys of the server itself: files beside its data, readable by their owner alone, never in the database.
//! Whoever can edit the tables cannot sign.

use crate::serve::write_secret;
use anyhow::{Context, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::path::Path;

/// The seed in this file, made now if there is none.
pub fn load_or_make(path: &Path) -> anyhow::Result<[u8; 32]> {
    if let Some(seed) = load(path)? {
        return Ok(seed);
    }
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|_| anyhow::anyhow!("the system gives no randomness"))?;
    write_secret(path, &BASE64_STANDARD.encode(seed))
        .with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(seed)
}

/// The seed in this file, if there is one.
pub fn load(path: &Path) -> anyhow::Result<Option<[u8; 32]>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("the key {} cannot be read", path.display())),
    };
    match BASE64_STANDARD.decode(text.trim()).ok().and_then(|bytes| bytes.try_into().ok()) {
        Some(seed) => Ok(Some(seed)),
        None => bail!("{} is no key: the base64 of 32 bytes is expected. Restore it from a backup", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_a_damaged_one_is_not_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("application.key");
        assert_eq!(load(&path).expect("readable"), None);
        let seed = load_or_make(&path).expect("made");
        assert_eq!(load_or_make(&path).expect("kept"), seed);
        std::fs::write(&path, "not a key").expect("written");
        assert!(load_or_make(&path).expect_err("refused").to_string().contains("no key"));
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "not a key");
    }
}
