//! Inclusion in the log's Merkle tree (`spec/checkpoint.md`, section 2; verification as in RFC 9162, 2.1.3.2).

use crate::bytes::{Digest, sha256};

fn node(left: &Digest, right: &Digest) -> Digest {
    sha256(&[&[1], &left.0, &right.0])
}

/// The root that a proof leads to from `leaf` at `index` in a tree of `size` leaves; None where the proof has not the
/// length that such a place has.
pub fn root_of(leaf: &Digest, index: u64, size: u64, proof: &[Digest]) -> Option<Digest> {
    if index >= size {
        return None;
    }
    let (mut position, mut last) = (index, size - 1);
    let mut hash = *leaf;
    for sibling in proof {
        if last == 0 {
            return None;
        }
        if position & 1 == 1 || position == last {
            hash = node(sibling, &hash);
            while position & 1 == 0 && position != 0 {
                position >>= 1;
                last >>= 1;
            }
        } else {
            hash = node(&hash, sibling);
        }
        position >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}

/// Whether the tree of `old` leaves is the beginning of the one of `new` leaves (RFC 9162, 2.1.4.2).
pub fn is_consistent(old: u64, new: u64, old_root: &Digest, new_root: &Digest, proof: &[Digest]) -> bool {
    if old == 0 || old > new {
        return false;
    }
    if old == new {
        return proof.is_empty() && old_root == new_root;
    }
    let mut path = proof.iter();
    let first = if old.is_power_of_two() { Some(old_root) } else { path.next() };
    let Some(first) = first else { return false };
    let (mut position, mut last) = (old - 1, new - 1);
    while position & 1 == 1 {
        position >>= 1;
        last >>= 1;
    }
    let (mut from_old, mut from_new) = (*first, *first);
    for hash in path {
        if last == 0 {
            return false;
        }
        if position & 1 == 1 || position == last {
            from_old = node(hash, &from_old);
            from_new = node(hash, &from_new);
            while position & 1 == 0 && position != 0 {
                position >>= 1;
                last >>= 1;
            }
        } else {
            from_new = node(&from_new, hash);
        }
        position >>= 1;
        last >>= 1;
    }
    last == 0 && from_old == *old_root && from_new == *new_root
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(i: u64) -> Digest {
        sha256(&[&[0], &i.to_be_bytes()])
    }

    fn split(n: u64) -> u64 {
        (1..).map(|k| 1 << k).find(|p| *p >= n).map_or(1, |p: u64| p / 2)
    }

    fn root(from: u64, to: u64) -> Digest {
        if to - from == 1 {
            return leaf(from);
        }
        let middle = from + split(to - from);
        node(&root(from, middle), &root(middle, to))
    }

    fn proof(index: u64, from: u64, to: u64) -> Vec<Digest> {
        if to - from == 1 {
            return vec![];
        }
        let middle = from + split(to - from);
        let (mut path, sibling) = if index < middle {
            (proof(index, from, middle), root(middle, to))
        } else {
            (proof(index, middle, to), root(from, middle))
        };
        path.push(sibling);
        path
    }

    /// RFC 6962, 2.1.2.
    fn consistency(m: u64, from: u64, to: u64, whole: bool) -> Vec<Digest> {
        if m == to - from {
            return if whole { vec![] } else { vec![root(from, to)] };
        }
        let k = split(to - from);
        let (mut path, other) = if m <= k {
            (consistency(m, from, from + k, whole), root(from + k, to))
        } else {
            (consistency(m - k, from + k, to, false), root(from, from + k))
        };
        path.push(other);
        path
    }

    #[test]
    fn every_small_tree_goes_on_from_every_smaller_one() {
        for new in 1..34 {
            for old in 1..=new {
                let path = consistency(old, 0, new, true);
                assert!(is_consistent(old, new, &root(0, old), &root(0, new), &path), "{old} to {new}");
                assert!(!is_consistent(old, new, &leaf(99), &root(0, new), &path));
                assert!(!is_consistent(old, new, &root(0, old), &leaf(99), &path));
                let mut longer = path.clone();
                longer.push(leaf(99));
                assert!(!is_consistent(old, new, &root(0, old), &root(0, new), &longer));
            }
        }
    }

    #[test]
    fn every_place_of_every_small_tree() {
        for size in 1..40 {
            for index in 0..size {
                let path = proof(index, 0, size);
                assert_eq!(root_of(&leaf(index), index, size, &path), Some(root(0, size)), "{index} of {size}");
                let mut longer = path.clone();
                longer.push(leaf(99));
                assert_eq!(root_of(&leaf(index), index, size, &longer), None);
                if size > 1 {
                    assert_ne!(root_of(&leaf(index), (index + 1) % size, size, &path), Some(root(0, size)));
                    assert_eq!(root_of(&leaf(index), index, size, &path[1..]), None);
                }
            }
        }
        assert_eq!(root_of(&leaf(0), 0, 0, &[]), None);
        assert_eq!(root_of(&leaf(0), 1, 1, &[]), None);
    }
}
