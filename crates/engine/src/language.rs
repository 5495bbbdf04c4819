//! The language of an engine that runs no workflows: it knows no document and computes nothing.

use countersign_kernel::lifecycle::OwnMachine;
use countersign_kernel::plan::{Expression, ExpressionError, Language, Plan, Schema, Scope, Template};
use countersign_kernel::{Budget, Time};

pub struct NoLanguage;

fn none<T>() -> Result<T, ExpressionError> {
    Err(ExpressionError::new("this engine was opened without a language for workflows".to_owned()))
}

impl Language for NoLanguage {
    fn judge(&self, _: &Expression, _: &Scope<'_>) -> Result<bool, ExpressionError> {
        none()
    }

    fn fill(&self, _: &Template, _: &Scope<'_>) -> Result<String, ExpressionError> {
        none()
    }

    fn moment(&self, _: &Template, _: &Scope<'_>) -> Result<Time, ExpressionError> {
        none()
    }

    fn conforms(&self, _: &Schema, _: &str) -> Result<(), ExpressionError> {
        none()
    }

    fn plan(&self, _: &[u8]) -> Result<Plan, ExpressionError> {
        none()
    }

    fn machine(&self, _: &[u8]) -> Result<Option<OwnMachine>, ExpressionError> {
        none()
    }

    fn prepare(&self, _: &[u8]) {}

    fn metered<'a>(&'a self, _: &'a Budget) -> Box<dyn Language + 'a> {
        Box::new(NoLanguage)
    }
}
