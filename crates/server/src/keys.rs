//! Private keys of the server itself: files beside its data, readable by their owner alone, never in the database.
//! Whoever can edit the tables cannot sign.

use crate::serve::write_secret;
use anyhow::{Context, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What is behind a file's name while another key takes its place.
const NEXT: &str = "next";

/// The seed in this file, made now if there is none.
pub fn load_or_make(path: &Path) -> anyhow::Result<[u8; 32]> {
    match load(path)? {
        Some(seed) => Ok(seed),
        None => make(path),
    }
}

/// A new seed in this file.
pub fn make(path: &Path) -> anyhow::Result<[u8; 32]> {
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

/// Where the next key is kept until it is in force: on the disk before anything says that it is.
pub fn next(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(NEXT);
    PathBuf::from(name)
}

/// The next key takes the place of the old one, whose file is gone with it.
pub fn adopt_next(path: &Path) -> anyhow::Result<()> {
    let adopted = std::fs::rename(next(path), path);
    adopted.with_context(|| format!("{} cannot take the place of {}", next(path).display(), path.display()))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(directory)?.sync_all().context("the data directory cannot be flushed")
}

/// Whoever can read a key can sign with it. Files that others than their owner can read are named in a warning; a
/// regulated server does not start with them.
pub fn require_private(files: &[PathBuf], regulated: bool) -> anyhow::Result<()> {
    let mut loose = Vec::new();
    for file in files {
        let mode = match std::fs::metadata(file) {
            Ok(metadata) => metadata.permissions().mode() & 0o777,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("{} cannot be looked at", file.display())),
        };
        if mode & 0o077 != 0 {
            tracing::warn!(file = %file.display(), mode = format!("{mode:o}"), "others than its owner can read or \
                 change this secret: chmod 600 {}", file.display());
            loose.push(file.display().to_string());
        }
    }
    if regulated && !loose.is_empty() {
        let files = loose.join(" ");
        bail!(
            "this server is regulated, and others than their owner can read or change its secrets: chmod 600 {files}"
        );
    }
    Ok(())
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

    #[test]
    fn the_next_key_waits_beside_the_old_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log.key");
        let (old, new) = (make(&path).expect("made"), make(&next(&path)).expect("made"));
        assert_ne!(old, new);
        assert_eq!(load(&path).expect("readable"), Some(old));
        adopt_next(&path).expect("adopted");
        assert_eq!(load(&path).expect("readable"), Some(new));
        assert!(!next(&path).exists());
        assert!(adopt_next(&path).is_err(), "there is no other");
    }

    #[test]
    fn a_secret_that_others_can_read_stops_a_regulated_server() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("application.key");
        make(&path).expect("made");
        let files = [path.clone(), directory.path().join("not-there")];
        assert!(require_private(&files, true).is_ok());
        for mode in [0o640, 0o604, 0o620, 0o666] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("changed");
            assert!(require_private(&files, false).is_ok(), "{mode:o}: a warning");
            let told = require_private(&files, true).expect_err("refused").to_string();
            assert!(told.contains(&format!("chmod 600 {}", path.display())), "{told}");
        }
    }
}
