//! The language of definitions: CEL in `${…}`, JSON Schema, and plans from their documents. All of it is pure: the
//! same arguments give the same answer, with no clock and no I/O; what was parsed once is kept for the next time.
//!
//! Whatever is asked, the answer comes in bounded time and memory, and never as a panic: everything is paid from a budget of
//! steps, one for each command ([`metered`]), and what recurses is bounded in depth before it does (ADR 28).

mod budget;
mod cache;
pub(crate) mod diagnosis;
pub(crate) mod expression;
mod failure;
mod json;
mod metered;
pub(crate) mod pattern;
pub(crate) mod schema;
pub(crate) mod template;
mod tokens;

use crate::{machine, workflow};
use cache::Cache;
use countersign_kernel::lifecycle::OwnMachine;
use countersign_kernel::plan::{Expression, ExpressionError, Language, Micros, Plan, Schema, Scope, Template};
use countersign_kernel::{Budget, Time};
use expression::{Parsed, Unsound};
use metered::Metered;
use schema::{Compiled, Fault};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What compiled expressions and schemas may take together, where nothing else is said.
pub const DEFAULT_CACHE_BYTES: usize = 64 << 20;
const MAX_MESSAGE_CHARS: usize = 300;
/// What exceeds the budget of its command.
const TOO_MUCH: &str = "it takes more work than one command may do; make it smaller, or split it over several steps";

/// CEL and JSON Schema, with what was compiled last at hand.
pub struct Cel {
    programs: Cache<Parsed>,
    schemas: Cache<Compiled>,
}

impl Default for Cel {
    fn default() -> Self {
        Cel::with_cache(DEFAULT_CACHE_BYTES)
    }
}

impl Cel {
    pub fn new() -> Cel {
        Cel::default()
    }

    /// Keeps so many bytes of compiled expressions and schemas at most.
    pub fn with_cache(bytes: usize) -> Cel {
        Cel { programs: Cache::new(bytes / 2), schemas: Cache::new(bytes / 2) }
    }

    /// How many bytes the compiled expressions and schemas take, about.
    pub fn cached_bytes(&self) -> usize {
        self.programs.bytes() + self.schemas.bytes()
    }

    fn program(&self, text: &str) -> Result<Arc<Parsed>, Unsound> {
        self.programs.get(text, || expression::parse(text), Parsed::bytes)
    }

    fn schema(&self, text: &str) -> Result<Arc<Compiled>, Fault> {
        self.schemas.get(text, || schema::compile(text), Compiled::bytes)
    }
}

/// Each question has a budget of its own.
impl Language for Cel {
    fn judge(&self, expression: &Expression, scope: &Scope<'_>) -> Result<bool, ExpressionError> {
        Metered::new(self, &Budget::default()).judge(expression, scope)
    }

    fn fill(&self, template: &Template, scope: &Scope<'_>) -> Result<String, ExpressionError> {
        Metered::new(self, &Budget::default()).fill(template, scope)
    }

    fn moment(&self, template: &Template, scope: &Scope<'_>) -> Result<Time, ExpressionError> {
        Metered::new(self, &Budget::default()).moment(template, scope)
    }

    fn conforms(&self, schema: &Schema, document: &str) -> Result<(), ExpressionError> {
        Metered::new(self, &Budget::default()).conforms(schema, document)
    }

    fn plan(&self, document: &[u8]) -> Result<Plan, ExpressionError> {
        workflow::read(document).map(|read| read.plan).map_err(failure)
    }

    fn dues(&self, source: &str) -> BTreeMap<String, Micros> {
        crate::dues(source.as_bytes())
    }

    fn machine(&self, document: &[u8]) -> Result<Option<OwnMachine>, ExpressionError> {
        machine::machine(document).map_err(failure)
    }

    fn prepare(&self, document: &[u8]) {
        // What cannot be compiled says so when it is used.
        let Ok(read) = workflow::read(document) else { return };
        for expression in &read.expressions {
            let _ = self.program(expression);
        }
        for schema in &read.schemas {
            let _ = self.schema(&schema.0);
        }
    }

    fn metered<'a>(&'a self, budget: &'a Budget) -> Box<dyn Language + 'a> {
        Box::new(Metered::new(self, budget))
    }
}

fn failure(message: impl Into<String>) -> ExpressionError {
    ExpressionError::new(crate::problem::printable(&message.into(), MAX_MESSAGE_CHARS))
}

fn shortened(text: &str) -> String {
    crate::problem::printable(text, 80)
}
