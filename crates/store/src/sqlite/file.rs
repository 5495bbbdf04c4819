//! Checks that the database's files are still the ones that were opened. A deleted or replaced file can be written as
//! long as it is open, and its content is lost with the last descriptor. So the server acknowledges nothing from then
//! on.

use countersign_engine::port::StoreError;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Device and inode.
type Identity = (u64, u64);

/// The database and its write-ahead log. `None` inside: a database in memory has no files.
#[derive(Clone, Default)]
pub struct Files(Option<Arc<Watched>>);

struct Watched {
    database: File,
    log: File,
    told: AtomicBool,
}

struct File {
    path: PathBuf,
    /// As it was when it was first seen.
    opened: OnceLock<Identity>,
}

impl File {
    fn new(path: PathBuf) -> File {
        File { path, opened: OnceLock::new() }
    }

    /// What has happened to it; `None` where it is the one that was opened.
    fn fault(&self) -> Option<String> {
        let path = self.path.display();
        let Some(now) = identity(&self.path) else {
            return self.opened.get().map(|_| format!("`{path}` was deleted or moved away while it was open"));
        };
        let opened = self.opened.get_or_init(|| now);
        (*opened != now).then(|| format!("`{path}` was replaced by another file while it was open"))
    }
}

fn identity(path: &Path) -> Option<Identity> {
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Files {
    pub fn of(database: &Path, log: PathBuf) -> Files {
        let watched =
            Watched { database: File::new(database.to_owned()), log: File::new(log), told: AtomicBool::new(false) };
        // From here on the database has to be there.
        let _ = watched.database.fault();
        Files(Some(Arc::new(watched)))
    }

    /// Fails where a file is not the one that was opened. Two system calls.
    pub fn require(&self) -> Result<(), StoreError> {
        let Some(watched) = &self.0 else { return Ok(()) };
        let Some(fault) = watched.database.fault().or_else(|| watched.log.fault()) else { return Ok(()) };
        let detail = format!(
            "{fault}: nothing more is written. Stop the server, put the file back or restore a backup, and start again"
        );
        if !watched.told.swap(true, Ordering::Relaxed) {
            tracing::error!("{detail}");
        }
        Err(StoreError::Unusable(detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_replaced_or_deleted_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (database, log) = (directory.path().join("a"), directory.path().join("a-wal"));
        std::fs::write(&database, "1").expect("written");
        let files = Files::of(&database, log.clone());
        assert!(files.require().is_ok(), "the log may come later");
        std::fs::write(&log, "1").expect("written");
        assert!(files.require().is_ok());
        std::fs::write(&database, "longer").expect("the same file");
        assert!(files.require().is_ok());
        std::fs::remove_file(&log).expect("removed");
        assert!(matches!(files.require(), Err(StoreError::Unusable(why)) if why.contains("a-wal")));
        std::fs::write(&log, "another").expect("written");
        let other = directory.path().join("b");
        std::fs::write(&other, "2").expect("written");
        std::fs::rename(&other, &database).expect("renamed");
        assert!(matches!(files.require(), Err(StoreError::Unusable(why)) if why.contains("replaced")));
        assert!(Files::default().require().is_ok());
    }
}
