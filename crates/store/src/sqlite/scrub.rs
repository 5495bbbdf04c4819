//! Overwrites what a purge leaves in SQLite's own files. There are three places:
//! - **Pages.** SQLite overwrites replaced content with zeros at once (`secure_delete`, only for the transaction of
//!   the purge, so other writers do not pay for it).
//! - **The write-ahead log.** It contains older pages until it is moved into the database and truncated, after each
//!   purge.
//! - **Free parts of pages.** When a page is split, rows move to another page, and SQLite leaves their bytes until it
//!   uses the space again; `secure_delete` does not reach them. Only `VACUUM` removes them. A small file is vacuumed
//!   when no more purges arrive, a larger one when the store is closed. Until then the file has a mark
//!   (`user_version`), which survives a crash.

use super::connect::{BUSY, failed};
use countersign_engine::port::StoreError;
use rusqlite::Connection;
use std::time::Duration;

/// The largest file to vacuum while the server runs: the vacuum takes little more than a second.
const SMALL_BYTES: i64 = 64 << 20;
/// The largest file to vacuum when the store is closed.
const BEARABLE_BYTES: i64 = 4 << 30;
const MARK: i64 = 1;

/// Before and after the transaction of a purge.
pub fn overwrite(connection: &Connection, on: bool) -> Result<(), StoreError> {
    connection.query_row(&format!("PRAGMA secure_delete = {}", u8::from(on)), [], |_| Ok(())).map_err(failed)
}

/// In the transaction of a purge.
pub fn mark(connection: &Connection) -> Result<(), StoreError> {
    connection.pragma_update(None, "user_version", MARK).map_err(failed)
}

/// `false`: to be called again.
pub fn scrub(connection: &Connection, purged_lately: bool) -> Result<bool, StoreError> {
    if !cut_log(connection)? {
        return Ok(false);
    }
    if !is_marked(connection)? || size(connection)? > SMALL_BYTES {
        return Ok(true);
    }
    // More purges may follow these: they share the work.
    if purged_lately {
        return Ok(false);
    }
    write_anew(connection)?;
    cut_log(connection)
}

/// No caller waits any more.
pub fn at_the_end(connection: &Connection) {
    let work = || -> Result<(), StoreError> {
        if !is_marked(connection)? {
            return Ok(());
        }
        if size(connection)? > BEARABLE_BYTES {
            tracing::warn!(
                "the database is too large to be written anew by the way: free parts of its pages may still hold purged \
                 content until somebody runs VACUUM on it"
            );
            return Ok(());
        }
        write_anew(connection)
    };
    if let Err(error) = work() {
        tracing::warn!(%error, "the database could not be written anew after purges; the next end tries again");
    }
}

fn write_anew(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch("VACUUM").map_err(failed)?;
    connection.pragma_update(None, "user_version", 0).map_err(failed)
}

fn is_marked(connection: &Connection) -> Result<bool, StoreError> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    Ok(version == MARK)
}

fn size(connection: &Connection) -> Result<i64, StoreError> {
    let value = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(failed);
    Ok(value("page_count")?.saturating_mul(value("page_size")?))
}

/// Moves the write-ahead log into the database and truncates it. `false` if a reader still reads an older state: the log is
/// truncated later, and no caller waits for it.
fn cut_log(connection: &Connection) -> Result<bool, StoreError> {
    connection.busy_timeout(Duration::ZERO).map_err(failed)?;
    let cut = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    connection.busy_timeout(BUSY).map_err(failed)?;
    match cut {
        Ok(busy) => Ok(busy == 0),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}
