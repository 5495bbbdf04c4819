//! The stored tree, asked through the port.

use crate::port::StoreError;
use crate::port::log::{LogReader, Span};
use countersign_ledger::tiles::{NotStored, TileId, Tiles};

/// Answers a question about the first `size` entries of the log: it is put twice, the first time to learn which hashes
/// it needs.
pub async fn ask<T>(
    log: &dyn LogReader,
    size: u64,
    question: impl Fn(&mut Tiles) -> Result<T, NotStored>,
) -> Result<T, StoreError> {
    let mut tiles = Tiles::default();
    loop {
        let answer = question(&mut tiles);
        let missing = tiles.missing();
        if missing.is_empty() {
            return answer.map_err(|error| StoreError::Corrupt(error.to_string()));
        }
        let span = |tile: &TileId| {
            let (from, to) = tile.span(size);
            Span { level: tile.level, from, to }
        };
        let spans: Vec<Span> = missing.iter().map(span).collect();
        for (tile, hashes) in missing.into_iter().zip(log.hashes(&spans).await?) {
            tiles.insert(tile, hashes);
        }
    }
}
