//! Passes secrets on to expressions and remembers which values it passed, so that the executor that is given them can mask
//! them.

use crate::plan::Secrets;
use std::cell::RefCell;
use std::sync::Arc;

pub struct Watched<'a> {
    from: &'a dyn Secrets,
    revealed: RefCell<Vec<Arc<str>>>,
}

impl<'a> Watched<'a> {
    pub fn new(from: &'a dyn Secrets) -> Self {
        Watched { from, revealed: RefCell::default() }
    }

    /// Every value that was passed on, each once.
    pub fn into_revealed(self) -> Vec<Arc<str>> {
        let mut revealed = self.revealed.into_inner();
        revealed.sort_unstable();
        revealed.dedup();
        revealed
    }
}

impl Secrets for Watched<'_> {
    fn reveal(&self, name: &str) -> Result<String, String> {
        let value = self.from.reveal(name)?;
        self.revealed.borrow_mut().push(value.as_str().into());
        Ok(value)
    }
}
