//! Opening SQLite: settings, migrations, checkpoints, and what errors mean.

use super::file::Files;
use crate::{SCHEMA_VERSION, newer_schema};
use countersign_engine::port::StoreError;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

mod migrations {
    refinery::embed_migrations!("migrations/sqlite");
}

/// Frames after which the writer moves the log into the database itself. The checkpointer does that long before,
/// beside the writer; this bounds the log where it cannot keep up.
const WRITER_CHECKPOINT_PAGES: u32 = 65_536;
/// The page cache of a connection. Small on purpose: every commit walks all of it, and what is not in it comes from
/// the system's cache.
const CACHE_KIB: i32 = 8192;
/// How often the checkpointer looks whether anything was written.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(250);
/// Passes of one checkpoint: each has less to move than the one before.
const PASSES: u32 = 4;
/// What came in during a pass as short as this is little enough for the writer to move itself.
const SHORT_PASS: Duration = Duration::from_millis(5);

/// How long a connection waits for another.
pub const BUSY: Duration = Duration::from_secs(30);

/// Where the database is; readers are opened like the writer.
#[derive(Clone)]
pub struct Location {
    uri: String,
    in_memory: bool,
    /// The files behind it, as they were opened.
    pub files: Files,
}

impl Location {
    pub fn parse(path: &str) -> Result<Self, StoreError> {
        if path == ":memory:" {
            // Shared by the connections of this process, gone with the last of them.
            let mut name = [0u8; 8];
            getrandom::fill(&mut name).map_err(|e| StoreError::Transient(e.to_string()))?;
            return Ok(Location {
                uri: format!("file:/countersign-{:016x}?vfs=memdb", u64::from_le_bytes(name)),
                in_memory: true,
                files: Files::default(),
            });
        }
        let path = path.trim_start_matches("//");
        if path.is_empty() {
            return Err(StoreError::Unusable("`sqlite:` needs a path after the colon".to_owned()));
        }
        if let Some(parent) =
            Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir())
        {
            return Err(StoreError::Unusable(format!("the directory `{}` does not exist", parent.display())));
        }
        make_private(path)?;
        let files = Files::of(Path::new(path), PathBuf::from(format!("{path}-wal")));
        Ok(Location { uri: path.to_owned(), in_memory: false, files })
    }

    /// The write-ahead log of a database that is a file.
    pub fn wal(&self) -> Option<PathBuf> {
        (!self.in_memory).then(|| PathBuf::from(format!("{}-wal", self.uri)))
    }

    pub fn connect(&self, read_only: bool) -> Result<Connection, StoreError> {
        let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // A file was made when the store was opened. One that is gone is not made again.
        flags |= match (self.in_memory, read_only) {
            (true, _) => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_URI,
            (false, true) => OpenFlags::SQLITE_OPEN_READ_ONLY,
            (false, false) => OpenFlags::SQLITE_OPEN_READ_WRITE,
        };
        let connection = Connection::open_with_flags(&self.uri, flags)
            .map_err(|e| StoreError::Unusable(format!("`{}` cannot be opened as an SQLite database: {e}", self.uri)))?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        if !read_only {
            // Before the first change: another program's database stays as it is.
            recognise(&connection)?;
            let mode: String =
                connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(not_a_store)?;
            if !self.in_memory && mode != "wal" {
                return Err(StoreError::Unusable(format!(
                    "`{}` cannot use a write-ahead log (journal mode is `{mode}`)",
                    self.uri
                )));
            }
            connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
            connection.pragma_update(None, "wal_autocheckpoint", WRITER_CHECKPOINT_PAGES).map_err(failed)?;
        }
        connection.pragma_update(None, "cache_size", -CACHE_KIB).map_err(failed)?;
        connection.pragma_update(None, "temp_store", "MEMORY").map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(128);
        Ok(connection)
    }
}

/// Refuses what is not ours, or not ours yet.
fn recognise(connection: &Connection) -> Result<(), StoreError> {
    let known: bool = connection
        .query_row("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'refinery_schema_history')", [], |row| {
            row.get(0)
        })
        .map_err(not_a_store)?;
    if known {
        let found: Option<u32> = connection
            .query_row("SELECT MAX(version) FROM refinery_schema_history", [], |row| row.get(0))
            .map_err(failed)?;
        if let Some(found) = found.filter(|found| *found > SCHEMA_VERSION) {
            return Err(newer_schema(found));
        }
    } else {
        let tables: i64 = connection
            .query_row("SELECT COUNT(*) FROM sqlite_master WHERE type = 'table'", [], |row| row.get(0))
            .map_err(failed)?;
        if tables > 0 {
            return Err(StoreError::Unusable(
                "this SQLite file holds tables that are not Countersign's; name another file".to_owned(),
            ));
        }
    }
    Ok(())
}

/// A new database is its owner's alone; SQLite gives its log the same mode.
fn make_private(path: &str) -> Result<(), StoreError> {
    use std::os::unix::fs::OpenOptionsExt;
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(StoreError::Unusable(format!("`{path}` cannot be created: {error}")))
        }
        _ => Ok(()),
    }
}

pub fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    migrations::migrations::runner()
        .run(connection)
        .map(|_| ())
        .map_err(|e| StoreError::Unusable(format!("the schema could not be brought up to date: {e}")))
}

pub fn failed(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            StoreError::Corrupt(error.to_string())
        }
        Some(
            rusqlite::ErrorCode::ConstraintViolation | rusqlite::ErrorCode::TooBig | rusqlite::ErrorCode::TypeMismatch,
        ) => StoreError::Rejected(error.to_string()),
        _ => StoreError::Transient(error.to_string()),
    }
}

fn not_a_store(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => {
            StoreError::Unusable("the file is not an SQLite database".to_owned())
        }
        _ => failed(error),
    }
}

/// The checkpointer, as the writer sees it. It ends when this is dropped.
pub struct Checkpointer {
    running: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
    nearly_done: Arc<AtomicBool>,
}

impl Checkpointer {
    /// Moves what the checkpointer left, if it has just been through. Only the writer can move the last frames, for it
    /// always adds new ones; and only a log that was moved to its end is written from its beginning again. That
    /// matters: to flush a file that grows takes twice as long as to flush one that is overwritten.
    pub fn finish(&self, writer: &Connection) {
        if self.nearly_done.swap(false, Ordering::Relaxed) {
            checkpoint(writer);
        }
    }

    /// Ends it, and returns when its connection is closed.
    pub fn end(&mut self) {
        if let Some((running, thread)) = self.running.take() {
            drop(running);
            if thread.join().is_err() {
                tracing::error!("the thread of the checkpoints panicked");
            }
        }
    }
}

/// Moves the write-ahead log into the database and truncates it, so that a closed store is one file that can be copied.
/// Waits for current readers, for a limited time.
pub fn cut_off(connection: &Connection) {
    const TRIES: usize = 200;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..TRIES {
        match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>("busy")) {
            Ok(0) => return,
            Ok(_) => std::thread::sleep(PAUSE),
            Err(error) => {
                tracing::warn!(%error, "the log could not be moved into the database; the next start does it");
                return;
            }
        }
    }
    tracing::warn!("somebody reads on: the log could not be moved into the database; the next start does it");
}

/// Never waits; what cannot be moved now is moved by the next one.
fn checkpoint(connection: &Connection) {
    let moved = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)");
    if let Err(error) = moved.and_then(|mut moved| moved.query_row([], |_| Ok(()))) {
        tracing::warn!(%error, "a checkpoint failed; the next one tries again");
    }
}

/// Moves the log into the database beside the writer, so that no commit waits for it.
pub fn checkpoint_beside(location: &Location) -> Result<Checkpointer, StoreError> {
    let (running, ended) = mpsc::channel();
    let nearly_done = Arc::new(AtomicBool::new(false));
    if location.in_memory {
        return Ok(Checkpointer { running: None, nearly_done });
    }
    let told = nearly_done.clone();
    let connection = location.connect(false)?;
    let log = location.wal().unwrap_or_default();
    let files = location.files.clone();
    let work = move || {
        let mut seen = None;
        while let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(CHECKPOINT_INTERVAL) {
            // Reports it also without a write.
            if files.require().is_err() {
                continue;
            }
            let written = std::fs::metadata(&log).and_then(|log| log.modified()).ok();
            if written == seen {
                continue;
            }
            seen = written;
            for _ in 0..PASSES {
                let start = Instant::now();
                checkpoint(&connection);
                if start.elapsed() < SHORT_PASS {
                    told.store(true, Ordering::Relaxed);
                    break;
                }
            }
        }
    };
    let spawned = std::thread::Builder::new().name("checkpointer".to_owned()).spawn(work);
    let thread = spawned.map_err(|e| StoreError::Transient(format!("no thread for checkpoints: {e}")))?;
    Ok(Checkpointer { running: Some((running, thread)), nearly_done })
}
