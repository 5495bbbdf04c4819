//! The Merkle tree of RFC 6962, section 2.1, over leaf hashes, without changes.
//!
//! A leaf hash is `SHA-256(0x00 ‖ leaf)`, which for a record is its `record_hash`; an inner node is `SHA-256(0x01 ‖
//! left ‖ right)`. The functions take a reader of subtree hashes instead of all leaves, so a proof in a log of
//! millions reads a few dozen of them.

use crate::sha256;
use countersign_kernel::Digest;

pub fn node_hash(left: &Digest, right: &Digest) -> Digest {
    sha256(&[&[0x01], &left.0, &right.0])
}

/// The root of the empty tree.
pub fn empty_root() -> Digest {
    sha256(&[])
}

/// The largest power of two below `n`, for `n` above 1.
fn split(n: u64) -> u64 {
    1 << (63 - (n - 1).leading_zeros())
}

/// The hash of the complete subtree of `2^level` leaves that starts at leaf `index << level`.
pub trait Subtrees {
    type Error;
    fn hash(&mut self, level: u32, index: u64) -> Result<Digest, Self::Error>;
}

/// The hash over leaves `from..to`: complete subtrees are read, the ragged right edge is computed.
pub fn range_hash<S: Subtrees>(tree: &mut S, from: u64, to: u64) -> Result<Digest, S::Error> {
    let size = to - from;
    if size == 0 {
        return Ok(empty_root());
    }
    if size.is_power_of_two() && from.is_multiple_of(size) {
        return tree.hash(size.trailing_zeros(), from / size);
    }
    let middle = from + split(size);
    let (left, right) = (range_hash(tree, from, middle)?, range_hash(tree, middle, to)?);
    Ok(node_hash(&left, &right))
}

pub fn root<S: Subtrees>(tree: &mut S, size: u64) -> Result<Digest, S::Error> {
    range_hash(tree, 0, size)
}

/// Hashes that lead from leaf `index` to the root of the first `size` leaves, bottom up (RFC 6962, 2.1.1).
pub fn inclusion_proof<S: Subtrees>(tree: &mut S, index: u64, size: u64) -> Result<Vec<Digest>, S::Error> {
    let (mut from, mut to) = (0, size);
    let mut path = Vec::new();
    while to - from > 1 {
        let middle = from + split(to - from);
        if index < middle {
            path.push(range_hash(tree, middle, to)?);
            to = middle;
        } else {
            path.push(range_hash(tree, from, middle)?);
            from = middle;
        }
    }
    path.reverse();
    Ok(path)
}

/// Shows that the tree of `old` leaves is the beginning of the tree of `new` leaves (RFC 6962, 2.1.2). Empty for
/// an empty or an unchanged tree.
pub fn consistency_proof<S: Subtrees>(tree: &mut S, old: u64, new: u64) -> Result<Vec<Digest>, S::Error> {
    let mut proof = Vec::new();
    if old > 0 && old < new {
        subproof(tree, old, 0, new, true, &mut proof)?;
    }
    Ok(proof)
}

fn subproof<S: Subtrees>(
    tree: &mut S,
    old: u64,
    from: u64,
    to: u64,
    whole: bool,
    proof: &mut Vec<Digest>,
) -> Result<(), S::Error> {
    if old == to - from {
        if !whole {
            proof.push(range_hash(tree, from, to)?);
        }
        return Ok(());
    }
    let half = split(to - from);
    if old <= half {
        subproof(tree, old, from, from + half, whole, proof)?;
        proof.push(range_hash(tree, from + half, to)?);
    } else {
        subproof(tree, old - half, from + half, to, false, proof)?;
        proof.push(range_hash(tree, from, from + half)?);
    }
    Ok(())
}

/// Whether `path` leads from the leaf hash at `index` to `root` of a tree of `size` leaves (RFC 9162, 2.1.3.2).
pub fn verify_inclusion(leaf: &Digest, index: u64, size: u64, path: &[Digest], root: &Digest) -> bool {
    if index >= size {
        return false;
    }
    let (mut node, mut last, mut hash) = (index, size - 1, *leaf);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if node & 1 == 1 || node == last {
            hash = node_hash(sibling, &hash);
            if node & 1 == 0 {
                let shift = node.trailing_zeros().min(last.trailing_zeros()).min(63);
                node >>= shift;
                last >>= shift;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    last == 0 && hash == *root
}

/// Whether `proof` shows that the tree `old_root` of `old` leaves is a beginning of `new_root` (RFC 9162, 2.1.4.2).
pub fn verify_consistency(old: u64, new: u64, old_root: &Digest, new_root: &Digest, proof: &[Digest]) -> bool {
    if old > new {
        return false;
    }
    if old == new {
        return proof.is_empty() && old_root == new_root;
    }
    if old == 0 {
        return proof.is_empty() && *old_root == empty_root();
    }
    let mut rest = proof.iter();
    let first = if old.is_power_of_two() { Some(old_root) } else { rest.next() };
    let Some(first) = first else { return false };
    let shift = (old - 1).trailing_ones();
    let (mut node, mut last) = ((old - 1) >> shift, (new - 1) >> shift);
    let (mut old_hash, mut new_hash) = (*first, *first);
    for sibling in rest {
        if last == 0 {
            return false;
        }
        if node & 1 == 1 || node == last {
            old_hash = node_hash(sibling, &old_hash);
            new_hash = node_hash(sibling, &new_hash);
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            new_hash = node_hash(&new_hash, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    last == 0 && old_hash == *old_root && new_hash == *new_root
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    struct Leaves(Vec<Digest>);

    impl Subtrees for Leaves {
        type Error = Infallible;
        fn hash(&mut self, level: u32, index: u64) -> Result<Digest, Infallible> {
            let (from, to) = (usize::try_from(index << level).unwrap(), usize::try_from((index + 1) << level).unwrap());
            Ok(naive_root(&self.0[from..to]))
        }
    }

    /// RFC 6962's definition, word for word.
    fn naive_root(leaves: &[Digest]) -> Digest {
        match leaves {
            [] => empty_root(),
            [leaf] => *leaf,
            _ => {
                let k = usize::try_from(split(leaves.len() as u64)).unwrap();
                node_hash(&naive_root(&leaves[..k]), &naive_root(&leaves[k..]))
            }
        }
    }

    fn leaves(n: u64) -> Vec<Digest> {
        (0..n).map(|i| sha256(&[&[0x00], &i.to_be_bytes()])).collect()
    }

    #[test]
    fn every_inclusion_proof_verifies_and_no_other_does() {
        for size in 1..=70u64 {
            let mut tree = Leaves(leaves(size));
            let whole = root(&mut tree, size).unwrap();
            assert_eq!(whole, naive_root(&tree.0));
            for index in 0..size {
                let proof = inclusion_proof(&mut tree, index, size).unwrap();
                let leaf = tree.0[usize::try_from(index).unwrap()];
                assert!(verify_inclusion(&leaf, index, size, &proof, &whole), "{index}/{size}");
                assert!(!verify_inclusion(&sha256(&[b"other"]), index, size, &proof, &whole));
                assert!(!verify_inclusion(&leaf, index + 1, size, &proof, &whole));
                let mut longer = proof.clone();
                longer.push(whole);
                assert!(!verify_inclusion(&leaf, index, size, &longer, &whole));
                if !proof.is_empty() {
                    assert!(!verify_inclusion(&leaf, index, size, &proof[1..], &whole));
                }
            }
        }
    }

    #[test]
    fn every_consistency_proof_verifies_and_a_forked_log_does_not() {
        for new in 1..=66u64 {
            let mut tree = Leaves(leaves(new));
            let new_root = root(&mut tree, new).unwrap();
            for old in 0..=new {
                let old_root = root(&mut tree, old).unwrap();
                let proof = consistency_proof(&mut tree, old, new).unwrap();
                assert!(verify_consistency(old, new, &old_root, &new_root, &proof), "{old}→{new}");
                if old > 0 && old < new {
                    let forked = sha256(&[b"fork"]);
                    assert!(!verify_consistency(old, new, &forked, &new_root, &proof));
                    assert!(!verify_consistency(old, new, &old_root, &forked, &proof));
                    assert!(!verify_consistency(old, new, &old_root, &new_root, &proof[1..]));
                }
            }
        }
    }
}
