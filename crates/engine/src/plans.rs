//! Plans by the digest of their document, those that were used last, within a bound in bytes. Runs that are in memory hold
//! theirs besides.

use countersign_kernel::Digest;
use countersign_kernel::plan::Plan;
use hashlink::LruCache;
use std::sync::Arc;

/// A plan takes about so many times the bytes of its document.
const PER_BYTE: usize = 6;
/// What a plan takes besides.
const OVERHEAD: usize = 4096;

pub struct Plans {
    kept: LruCache<Digest, (Arc<Plan>, usize)>,
    bytes: usize,
    max_bytes: usize,
}

impl Plans {
    pub fn new(max_bytes: usize) -> Plans {
        Plans { kept: LruCache::new_unbounded(), bytes: 0, max_bytes }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&mut self, digest: &Digest) -> Option<Arc<Plan>> {
        self.kept.get(digest).map(|(plan, _)| plan.clone())
    }

    /// Makes room first. The one that was asked for last is kept whatever it takes.
    pub fn insert(&mut self, digest: Digest, plan: Arc<Plan>, document_bytes: usize) {
        let bytes = OVERHEAD + PER_BYTE * document_bytes;
        if let Some((_, replaced)) = self.kept.remove(&digest) {
            self.bytes -= replaced;
        }
        while self.bytes + bytes > self.max_bytes
            && let Some((_, (_, freed))) = self.kept.remove_lru()
        {
            self.bytes -= freed;
        }
        self.bytes += bytes;
        self.kept.insert(digest, (plan, bytes));
    }
}
