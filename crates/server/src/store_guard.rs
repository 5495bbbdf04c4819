//! Which store a server may open: one that no other server has open, and not an empty one where another one was. Keys beside
//! an empty store mean that the store vanished, was truncated, or is not the one that was meant: serving it would present a
//! history that never happened as complete.

use anyhow::{Context, bail};
use countersign_engine::port::LogReader;
use countersign_engine::readiness::Check;
use fs4::{FileExt, TryLockError};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Made before the first key of a new store, and removed when the store is set up: a start that got no further may be tried
/// again.
const SETUP_FILE: &str = "setup.begun";

/// The file of an SQLite store; `None` for all others.
fn sqlite_file(store: &str) -> Option<PathBuf> {
    match store.strip_prefix("sqlite:") {
        None | Some(":memory:") => None,
        Some(path) => Some(PathBuf::from(path.trim_start_matches("//"))),
    }
}

/// Whether a store may be empty.
pub struct NewStore {
    allowed: bool,
    setup: PathBuf,
    keys: Vec<PathBuf>,
}

impl NewStore {
    /// Looks at what is beside the store, before anything is made. A database in memory is new at every start.
    pub fn look(store: &str, data_dir: &Path, keys: &[&str], meant: bool) -> anyhow::Result<NewStore> {
        let found = keys.iter().map(|name| data_dir.join(name)).filter(|key| key.exists()).collect();
        let setup = data_dir.join(SETUP_FILE);
        let guard = NewStore { allowed: meant || store == "sqlite::memory:" || setup.exists(), setup, keys: found };
        // A file that is not there or holds nothing is not even opened, so that nothing is made in its place.
        let holds_something = |file: &Path| std::fs::metadata(file).is_ok_and(|metadata| metadata.len() > 0);
        match sqlite_file(store) {
            Some(file) if !holds_something(&file) => {
                guard.require(&format!("{} is missing or empty", file.display()))?
            }
            _ => {}
        }
        Ok(guard)
    }

    /// The same for a store that was opened. Where it is empty and may be, its setup begins here.
    pub async fn check(&self, log: &dyn LogReader) -> anyhow::Result<()> {
        if log.newest().await?.is_some() {
            return Ok(());
        }
        self.require("the store holds no record")?;
        let made = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&self.setup);
        made.with_context(|| format!("{} cannot be made", self.setup.display())).map(|_| ())
    }

    fn require(&self, what: &str) -> anyhow::Result<()> {
        let Some(key) = self.keys.first().filter(|_| !self.allowed) else { return Ok(()) };
        bail!(
            "{what}, but {} is there: this server has had a store. It was deleted, truncated, or is not the one that was meant. \
             Restore it or correct `--store`; to begin a new history with these keys, say `--new-store`",
            key.display()
        )
    }

    /// The store is set up.
    pub fn done(&self) -> anyhow::Result<()> {
        match std::fs::remove_file(&self.setup) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("{} cannot be removed", self.setup.display()))
            }
            _ => Ok(()),
        }
    }
}

/// One process per SQLite file: the engine trusts that nobody else writes to it. One lock is on the file's name, so that
/// nobody opens a new file in place of one that was replaced; one is on the file itself, whatever it is called.
pub fn lock_sqlite(store: &str) -> anyhow::Result<Option<[File; 2]>> {
    let Some(path) = sqlite_file(store) else { return Ok(None) };
    let path = path.canonicalize().unwrap_or(path);
    let mut name = path.clone().into_os_string();
    name.push(".lock");
    let name = take(&path, open_lock(Path::new(&name))?)?;
    let file = take(&path, open_lock(&path)?)?;
    Ok(Some([name, file]))
}

/// A process that a server is just starting holds its locks for the moment between fork and exec, also after that server has
/// ended: so it is tried for half a second.
fn take(store: &Path, lock: File) -> anyhow::Result<File> {
    const TRIES: u32 = 10;
    let mut tries = 1;
    let error = loop {
        match FileExt::try_lock(&lock) {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if tries < TRIES => std::thread::sleep(std::time::Duration::from_millis(50)),
            Err(error) => break error,
        }
        tries += 1;
    };
    // To close the database's file would take away the locks that SQLite has on it, where this very process has it open.
    Box::leak(Box::new(lock));
    match error {
        TryLockError::WouldBlock => bail!(
            "another process uses the store {}: stop it first, or give this one a data directory of its own",
            store.display()
        ),
        TryLockError::Error(error) => {
            Err(error).with_context(|| format!("the store {} cannot be locked", store.display()))
        }
    }
}

pub fn open_lock(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    opened.with_context(|| format!("{} cannot be opened to lock it", path.display()))
}

/// Where the store's files grow: beside the SQLite file, otherwise in the data directory.
pub fn directory(store: &str, data_dir: &Path) -> PathBuf {
    let file = sqlite_file(store);
    let parent = file.as_deref().and_then(Path::parent).filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(data_dir).to_owned()
}

/// Whether the largest request that is taken still finds room there.
pub fn room(directory: &Path, needed: u64) -> Check {
    let check = |ok, detail| Check::required("disk", ok, detail);
    match rustix::fs::statvfs(directory) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            check(free >= needed, format!("{} KiB are free in {}", free / 1024, directory.display()))
        }
        Err(error) => check(false, format!("{} cannot be looked at: {error}", directory.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sqlite_file_has_one_owner_by_whatever_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let store = |path: PathBuf| format!("sqlite:{}", path.display());
        std::fs::write(at("x.sqlite"), "").expect("a file");
        std::fs::create_dir(at("elsewhere")).expect("a directory");
        std::fs::hard_link(at("x.sqlite"), at("elsewhere/hard.sqlite")).expect("a hard link");
        std::os::unix::fs::symlink(at("x.sqlite"), at("elsewhere/soft.sqlite")).expect("a symbolic link");
        let others = [at("elsewhere/../x.sqlite"), at("elsewhere/hard.sqlite"), at("elsewhere/soft.sqlite")].map(store);
        let held = lock_sqlite(&store(at("x.sqlite"))).expect("locked");
        assert!(held.is_some());
        for other in &others {
            let told = lock_sqlite(other).expect_err("held").to_string();
            assert!(told.contains("another process uses the store"), "{told}");
        }
        drop(held);
        for other in &others {
            assert!(lock_sqlite(other).expect("free again").is_some());
        }
        assert!(lock_sqlite("sqlite::memory:").expect("nothing to lock").is_none());
        assert!(lock_sqlite("postgres://u:p@h/d").expect("nothing to lock").is_none());
    }

    #[test]
    fn a_file_that_is_gone_is_not_made_anew_beside_keys() {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path();
        let file = data.join("x.sqlite");
        let store = format!("sqlite:{}", file.display());
        let look = |meant: bool| NewStore::look(&store, data, &["a.key", "b.key"], meant);
        assert!(look(false).is_ok(), "nothing is there at all");
        std::fs::write(data.join("b.key"), "k").expect("a key");
        let told = look(false).err().expect("a refusal").to_string();
        assert!(told.contains("x.sqlite is missing or empty") && told.contains("--new-store"), "{told}");
        std::fs::write(&file, "").expect("truncated");
        assert!(look(false).is_err());
        assert!(look(true).is_ok());
        assert!(NewStore::look("sqlite::memory:", data, &["b.key"], false).is_ok());
        std::fs::write(data.join(SETUP_FILE), "").expect("a start that got no further");
        let guard = look(false).expect("tried again");
        guard.done().expect("removed");
        guard.done().expect("twice");
        assert!(look(false).is_err());
        std::fs::write(&file, "something").expect("a file");
        assert!(look(false).is_ok());
    }
}
