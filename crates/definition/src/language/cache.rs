//! A cache of compiled values, shared between threads and limited in bytes.

use hashlink::LruCache;
use std::sync::{Arc, Mutex, PoisonError};

/// What an entry takes besides its text and its value.
const ENTRY: usize = 256;

/// A cache by text. What cannot be compiled is not kept, nor what would fill more than a quarter of it.
pub(super) struct Cache<T>(Mutex<Kept<T>>);

struct Kept<T> {
    entries: LruCache<Box<str>, (Arc<T>, usize)>,
    bytes: usize,
    max_bytes: usize,
}

impl<T> Cache<T> {
    pub fn new(max_bytes: usize) -> Cache<T> {
        Cache(Mutex::new(Kept { entries: LruCache::new_unbounded(), bytes: 0, max_bytes }))
    }

    /// Compiles outside of the lock: two threads may compile the same text once, and neither waits. `size` says how many
    /// bytes a value takes.
    pub fn get<E>(
        &self,
        text: &str,
        compile: impl FnOnce() -> Result<T, E>,
        size: impl FnOnce(&T) -> usize,
    ) -> Result<Arc<T>, E> {
        let found = self.lock().entries.get(text).map(|(value, _)| value.clone());
        if let Some(found) = found {
            return Ok(found);
        }
        let made = Arc::new(compile()?);
        let bytes = ENTRY + text.len() + size(&made);
        self.lock().insert(text, made.clone(), bytes);
        Ok(made)
    }

    /// How many bytes are taken.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Kept<T> {
    fn insert(&mut self, text: &str, value: Arc<T>, bytes: usize) {
        if bytes > self.max_bytes / 4 {
            return;
        }
        if let Some((_, replaced)) = self.entries.insert(text.into(), (value, bytes)) {
            self.bytes -= replaced;
        }
        self.bytes += bytes;
        while self.bytes > self.max_bytes
            && let Some((_, (_, freed))) = self.entries.remove_lru()
        {
            self.bytes -= freed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cache: &Cache<u8>, text: &str, bytes: usize) -> bool {
        let mut compiled = false;
        let made: Result<_, ()> = cache.get(
            text,
            || {
                compiled = true;
                Ok(0)
            },
            |_| bytes,
        );
        assert!(made.is_ok());
        compiled
    }

    #[test]
    fn what_was_used_last_is_kept_within_the_bytes() {
        let cache = Cache::new(10_000);
        assert!(put(&cache, "a", 2000) && put(&cache, "b", 2000) && put(&cache, "c", 2000));
        assert!(!put(&cache, "a", 2000));
        // `b` is the one that was not asked for since, and makes room.
        assert!(put(&cache, "d", 2000) && put(&cache, "e", 2000));
        assert!(!put(&cache, "a", 2000) && put(&cache, "b", 2000));
        assert!(cache.bytes() <= 10_000);
        // What would push out much of the rest is compiled each time.
        assert!(put(&cache, "large", 9000) && put(&cache, "large", 9000));
        assert!(!put(&cache, "b", 2000));
    }
}
