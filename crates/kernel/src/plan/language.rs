//! What a plan asks of the language of its expressions, and what an expression may see.

use super::{Expression, Micros, Plan, Schema, Template};
use crate::lifecycle::OwnMachine;
use crate::{Budget, Time};
use std::collections::BTreeMap;
use std::fmt;

/// The steps that are at hand. An expression names few of many: they are looked up, not listed.
pub trait Steps {
    /// state_code and output.
    fn step(&self, name: &str) -> Option<(&str, Option<&str>)>;
}

impl fmt::Debug for dyn Steps + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("steps")
    }
}

/// The secrets of a deployment. Each is looked up when an expression names it, and at no other time.
pub trait Secrets {
    /// The value, or why there is none: a clause that follows the secret's name and never shows a value.
    fn reveal(&self, name: &str) -> Result<String, String>;
}

impl fmt::Debug for dyn Secrets + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("secrets")
    }
}

/// What an expression may see. All values are JSON texts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    pub input: Option<&'a str>,
    pub steps: Option<&'a dyn Steps>,
    /// A JSON object about the run itself: run_id, definition, subject_ref, started_at.
    pub run: Option<&'a str>,
    pub pins: Option<&'a str>,
    pub event: Option<&'a str>,
    pub output: Option<&'a str>,
    pub secrets: Option<&'a dyn Secrets>,
}

/// Why an expression has no value, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    pub message: String,
    /// It would have taken more work than its command may do.
    pub over_budget: bool,
}

impl ExpressionError {
    pub fn new(message: impl Into<String>) -> ExpressionError {
        ExpressionError { message: message.into(), over_budget: false }
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Values that definitions compute. Pure: no clock, no randomness, no I/O; the same arguments give the same answer.
pub trait Language: Send + Sync {
    /// True, false, or why neither.
    fn judge(&self, expression: &Expression, scope: &Scope<'_>) -> Result<bool, ExpressionError>;

    /// The JSON text of a template whose `${…}` are replaced.
    fn fill(&self, template: &Template, scope: &Scope<'_>) -> Result<String, ExpressionError>;

    /// The time that a template gives, in RFC 3339.
    fn moment(&self, template: &Template, scope: &Scope<'_>) -> Result<Time, ExpressionError>;

    /// Where `document` misses the schema: the first place and what is wrong.
    fn conforms(&self, schema: &Schema, document: &str) -> Result<(), ExpressionError>;

    /// The plan that a normalised definition document holds, or why it is held back: it breaks a bound of this version.
    fn plan(&self, document: &[u8]) -> Result<Plan, ExpressionError>;

    /// The state machine that a normalised definition document holds; nothing where it is a workflow's.
    fn machine(&self, document: &[u8]) -> Result<Option<OwnMachine>, ExpressionError>;

    /// By label of the gate_spec of a published document, how long its approvers have to decide. It decides nothing: approvers
    /// are shown it.
    fn dues(&self, _source: &str) -> BTreeMap<String, Micros> {
        BTreeMap::new()
    }

    /// Compiles what a normalised definition document holds, so that no command has to wait for it.
    fn prepare(&self, document: &[u8]);

    /// The same language, in which everything that is asked is paid from this budget. Asked directly, each question has a
    /// budget of its own.
    fn metered<'a>(&'a self, budget: &'a Budget) -> Box<dyn Language + 'a>;

    /// Whether the budget is used up.
    fn is_exhausted(&self) -> bool {
        false
    }
}
