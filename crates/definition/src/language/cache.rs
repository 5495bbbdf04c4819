//! What was compiled last, shared between threads.

use hashlink::LruCache;
use std::sync::{Arc, Mutex, PoisonError};

/// A bounded cache by text. What cannot be compiled is not kept.
pub(super) struct Cache<T>(Mutex<LruCache<Box<str>, Arc<T>>>);

impl<T> Cache<T> {
    pub fn new(capacity: usize) -> Cache<T> {
        Cache(Mutex::new(LruCache::new(capacity)))
    }

    /// Compiles outside of the lock: two threads may compile the same text once, and neither waits.
    pub fn get<E>(&self, text: &str, compile: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(text).cloned();
        if let Some(found) = found {
            return Ok(found);
        }
        let made = Arc::new(compile()?);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(text.into(), made.clone());
        Ok(made)
    }
}
