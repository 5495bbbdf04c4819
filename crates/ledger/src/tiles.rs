//! Which parts of a tree are stored, and how a tree is read and extended from them. Stored are the leaves and the
//! complete subtrees of every eighth level. The levels between are computed from at most 256 stored hashes, a *tile*.
//! So a proof in a log of millions reads a handful of tiles, and the stored tree is 1/255 of its leaves.

use crate::merkle::{Subtrees, node_hash};
use countersign_kernel::Digest;
use std::collections::{BTreeMap, BTreeSet};

/// Levels that a tile spans.
pub const TILE_HEIGHT: u32 = 8;
/// Hashes in a complete tile.
pub const TILE_WIDTH: u64 = 1 << TILE_HEIGHT;

/// Tile `index` of the stored hashes of `level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TileId {
    pub level: u32,
    pub index: u64,
}

impl TileId {
    /// The stored hashes that it holds in a tree of `size` leaves: `from..to` of its level.
    pub fn span(self, size: u64) -> (u64, u64) {
        let from = self.index.saturating_mul(TILE_WIDTH);
        (from, from.saturating_add(TILE_WIDTH).min(size >> self.level).max(from))
    }
}

/// A stored tree, read tile by tile. Whatever is asked of it before its tiles are there gets a worthless answer and
/// is noted in [`Tiles::missing`]; what an algorithm asks never depends on hashes, so the second time all is there.
#[derive(Debug, Default)]
pub struct Tiles {
    known: BTreeMap<TileId, Vec<Digest>>,
    missing: BTreeSet<TileId>,
}

impl Tiles {
    /// The tiles to fetch before the answer is worth anything.
    pub fn missing(&mut self) -> Vec<TileId> {
        std::mem::take(&mut self.missing).into_iter().collect()
    }

    pub fn insert(&mut self, tile: TileId, hashes: Vec<Digest>) {
        self.known.insert(tile, hashes);
    }
}

/// A hash that should be stored is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored tree has no hash {index} of level {level}")]
pub struct NotStored {
    pub level: u32,
    pub index: u64,
}

impl Subtrees for Tiles {
    type Error = NotStored;

    fn hash(&mut self, level: u32, index: u64) -> Result<Digest, NotStored> {
        let stored = level / TILE_HEIGHT * TILE_HEIGHT;
        let from = index << (level - stored);
        let count = 1u64 << (level - stored);
        let tile = TileId { level: stored, index: from / TILE_WIDTH };
        let Some(hashes) = self.known.get(&tile) else {
            self.missing.insert(tile);
            return Ok(Digest([0; 32]));
        };
        let absent = || NotStored { level, index };
        let start = usize::try_from(from % TILE_WIDTH).map_err(|_| absent())?;
        let end = start + usize::try_from(count).map_err(|_| absent())?;
        let mut row = hashes.get(start..end).ok_or_else(absent)?.to_vec();
        while row.len() > 1 {
            row = row.chunks_exact(2).map(|pair| node_hash(&pair[0], &pair[1])).collect();
        }
        row.first().copied().ok_or_else(absent)
    }
}

/// The complete subtrees that make up a tree of `size` leaves, largest first, as (level, index).
pub fn complete_subtrees(size: u64) -> impl Iterator<Item = (u32, u64)> {
    (0..u64::BITS).rev().filter(move |level| size >> level & 1 == 1).map(move |level| (level, (size >> level) - 1))
}

/// The right edge of a growing tree: all that is needed to go on and to tell its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// Hashes of [`complete_subtrees`].
    hashes: Vec<Digest>,
}

impl Frontier {
    /// The edge of a stored tree.
    pub fn read<S: Subtrees>(tree: &mut S, size: u64) -> Result<Frontier, S::Error> {
        let hashes = complete_subtrees(size).map(|(level, index)| tree.hash(level, index)).collect::<Result<_, _>>()?;
        Ok(Frontier { size, hashes })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds a leaf. `stored` is called with (level, index, hash) of each subtree that it completes and that is kept.
    pub fn push(&mut self, leaf: Digest, mut stored: impl FnMut(u32, u64, Digest)) {
        let mut hash = leaf;
        // One merge for each subtree that ends here: as in binary addition, for each trailing one of the old size.
        for level in 1..=self.size.trailing_ones() {
            let Some(left) = self.hashes.pop() else { break };
            hash = node_hash(&left, &hash);
            if level.is_multiple_of(TILE_HEIGHT) {
                stored(level, self.size >> level, hash);
            }
        }
        self.hashes.push(hash);
        self.size += 1;
    }

    pub fn root(&self) -> Digest {
        let mut hashes = self.hashes.iter().rev();
        let Some(last) = hashes.next() else { return crate::merkle::empty_root() };
        hashes.fold(*last, |right, left| node_hash(left, &right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::{consistency_proof, inclusion_proof, root, verify_consistency, verify_inclusion};
    use crate::sha256;

    /// A store of leaves and of every eighth level, grown leaf by leaf.
    #[derive(Default)]
    struct Stored {
        levels: BTreeMap<u32, Vec<Digest>>,
        edge: Frontier,
    }

    impl Stored {
        fn push(&mut self, leaf: Digest) {
            self.levels.entry(0).or_default().push(leaf);
            let mut made = vec![];
            self.edge.push(leaf, |level, index, hash| made.push((level, index, hash)));
            for (level, index, hash) in made {
                let row = self.levels.entry(level).or_default();
                assert_eq!(row.len() as u64, index);
                row.push(hash);
            }
        }

        fn ask<T>(&self, size: u64, ask: impl Fn(&mut Tiles) -> Result<T, NotStored>) -> (T, usize) {
            let (mut tiles, mut fetched) = (Tiles::default(), 0);
            loop {
                let answer = ask(&mut tiles).unwrap();
                let missing = tiles.missing();
                if missing.is_empty() {
                    return (answer, fetched);
                }
                for tile in missing {
                    let (from, to) = tile.span(size);
                    let row = self.levels.get(&tile.level).map_or(&[][..], Vec::as_slice);
                    let (from, to) = (usize::try_from(from).unwrap(), usize::try_from(to).unwrap());
                    tiles.insert(tile, row[from..to].to_vec());
                    fetched += 1;
                }
            }
        }
    }

    #[test]
    fn what_is_stored_is_enough_for_every_root_proof_and_continuation() {
        let mut stored = Stored::default();
        let leaf = |i: u64| sha256(&[&[0x00], &i.to_be_bytes()]);
        let mut roots = vec![stored.edge.root()];
        for i in 0..70_000u64 {
            stored.push(leaf(i));
            roots.push(stored.edge.root());
        }
        let size = stored.edge.size();
        let root_of = |n: u64| roots[usize::try_from(n).unwrap()];
        for n in [0u64, 1, 2, 255, 256, 257, 511, 512, 65_535, 65_536, 65_537, 69_999, 70_000] {
            assert_eq!(stored.ask(size, |tiles| root(tiles, n)).0, root_of(n), "root of {n}");
            assert_eq!(stored.ask(size, |tiles| Frontier::read(tiles, n)).0.root(), root_of(n), "edge of {n}");
            for index in [0, 1, 254, 255, 256, 300, 65_535, 65_536, n.saturating_sub(1)] {
                if index < n {
                    let (proof, tiles) = stored.ask(size, |tiles| inclusion_proof(tiles, index, n));
                    assert!(verify_inclusion(&leaf(index), index, n, &proof, &root_of(n)), "{index} in {n}");
                    assert!(tiles <= 6, "{tiles} tiles for one proof");
                }
            }
            for old in [0u64, 1, 255, 256, 1000, 65_536] {
                if old <= n {
                    let (proof, _) = stored.ask(size, |tiles| consistency_proof(tiles, old, n));
                    assert!(verify_consistency(old, n, &root_of(old), &root_of(n), &proof), "{old} in {n}");
                }
            }
        }
    }

    #[test]
    fn a_hole_in_the_stored_tree_is_an_error() {
        let mut tiles = Tiles::default();
        tiles.insert(TileId { level: 0, index: 0 }, vec![Digest([1; 32]); 3]);
        assert_eq!(tiles.hash(2, 0), Err(NotStored { level: 2, index: 0 }));
        assert!(tiles.hash(1, 0).is_ok());
    }
}
