//! Our tree against a public implementation of the same RFC: roots and proofs, byte for byte, for 1 to 1000 leaves.

use countersign_kernel::Digest;
use countersign_ledger::merkle::{Subtrees, consistency_proof, inclusion_proof, node_hash, root};
use countersign_ledger::sha256;
use ct_merkle::mem_backed_tree::MemoryBackedTree;
use sha2::Sha256;
use std::convert::Infallible;

/// Complete subtrees by level, as a log would store them.
#[derive(Default)]
struct Log(Vec<Vec<Digest>>);

impl Log {
    fn push(&mut self, leaf: Digest) {
        let mut hash = leaf;
        for level in 0.. {
            if self.0.len() == level {
                self.0.push(vec![]);
            }
            self.0[level].push(hash);
            match self.0[level].as_slice() {
                [.., left, right] if self.0[level].len().is_multiple_of(2) => hash = node_hash(left, right),
                _ => return,
            }
        }
    }
}

impl Subtrees for Log {
    type Error = Infallible;
    fn hash(&mut self, level: u32, index: u64) -> Result<Digest, Infallible> {
        #[expect(clippy::cast_possible_truncation, reason = "a thousand leaves")]
        Ok(self.0[level as usize][index as usize])
    }
}

fn joined(proof: &[Digest]) -> Vec<u8> {
    proof.iter().flat_map(|digest| digest.0).collect()
}

#[test]
fn roots_and_proofs_are_the_same_for_1_to_1000_leaves() {
    let mut theirs = MemoryBackedTree::<Sha256, Vec<u8>>::new();
    let mut ours = Log::default();
    for size in 1..=1000u64 {
        let leaf = size.to_be_bytes().to_vec();
        ours.push(sha256(&[&[0x00], &leaf]));
        theirs.push(leaf);
        assert_eq!(root(&mut ours, size).unwrap().0.as_slice(), theirs.root().as_bytes().as_slice(), "root of {size}");
        for index in [0, size / 3, size / 2, size - 1] {
            let proof = joined(&inclusion_proof(&mut ours, index, size).unwrap());
            assert_eq!(proof, theirs.prove_inclusion(usize::try_from(index).unwrap()).as_bytes(), "{index} of {size}");
        }
        for old in [1, size / 3, size / 2, size.saturating_sub(1)].into_iter().filter(|old| *old > 0 && *old < size) {
            let proof = joined(&consistency_proof(&mut ours, old, size).unwrap());
            let additions = usize::try_from(size - old).unwrap();
            assert_eq!(proof, theirs.prove_consistency(additions).as_bytes(), "{old} to {size}");
        }
    }
}
