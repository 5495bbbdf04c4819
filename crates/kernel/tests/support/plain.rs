//! A language in which every condition holds, templates stand for themselves, and nothing but `null` misses a schema.

use countersign_kernel::Time;
use countersign_kernel::lifecycle::OwnMachine;
use countersign_kernel::plan::{Expression, ExpressionError, Language, Plan, Schema, Scope, Template};

pub struct Plain;

impl Language for Plain {
    fn judge(&self, _: &Expression, _: &Scope<'_>) -> Result<bool, ExpressionError> {
        Ok(true)
    }

    fn fill(&self, template: &Template, _: &Scope<'_>) -> Result<String, ExpressionError> {
        Ok(template.0.to_string())
    }

    fn moment(&self, template: &Template, _: &Scope<'_>) -> Result<Time, ExpressionError> {
        Err(ExpressionError(template.0.to_string()))
    }

    fn conforms(&self, _: &Schema, document: &str) -> Result<(), ExpressionError> {
        if document == "null" { Err(ExpressionError("nothing".to_owned())) } else { Ok(()) }
    }

    fn plan(&self, _: &[u8]) -> Result<Plan, ExpressionError> {
        Err(ExpressionError("not here".to_owned()))
    }

    fn machine(&self, _: &[u8]) -> Result<Option<OwnMachine>, ExpressionError> {
        Err(ExpressionError("not here".to_owned()))
    }
}
