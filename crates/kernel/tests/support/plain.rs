//! A language in which every condition holds, templates stand for themselves, and nothing but `null` misses a schema.

use countersign_kernel::lifecycle::OwnMachine;
use countersign_kernel::plan::{Expression, ExpressionError, Language, Plan, Schema, Scope, Template};
use countersign_kernel::{Budget, Time};

pub struct Plain;

impl Language for Plain {
    fn judge(&self, _: &Expression, _: &Scope<'_>) -> Result<bool, ExpressionError> {
        Ok(true)
    }

    fn fill(&self, template: &Template, _: &Scope<'_>) -> Result<String, ExpressionError> {
        Ok(template.0.to_string())
    }

    fn moment(&self, template: &Template, _: &Scope<'_>) -> Result<Time, ExpressionError> {
        Err(ExpressionError::new(template.0.to_string()))
    }

    fn conforms(&self, _: &Schema, document: &str) -> Result<(), ExpressionError> {
        if document == "null" { Err(ExpressionError::new("nothing".to_owned())) } else { Ok(()) }
    }

    fn plan(&self, _: &[u8]) -> Result<Plan, ExpressionError> {
        Err(ExpressionError::new("not here".to_owned()))
    }

    fn machine(&self, _: &[u8]) -> Result<Option<OwnMachine>, ExpressionError> {
        Err(ExpressionError::new("not here".to_owned()))
    }

    fn prepare(&self, _: &[u8]) {}

    fn metered<'a>(&'a self, _: &'a Budget) -> Box<dyn Language + 'a> {
        Box::new(Plain)
    }
}
