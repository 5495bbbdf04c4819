//! The language for one command: all its evaluations charge one budget, and a value that several expressions read is
//! parsed from JSON once.

use super::expression::{Parsed, Variable, Why};
use super::template::{self, Piece, pieces};
use super::{Cel, TOO_MUCH, budget, expression, failure, json, shortened};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{Context, Value};
use countersign_kernel::lifecycle::OwnMachine;
use countersign_kernel::plan::{Expression, ExpressionError, Language, Plan, Schema, Scope, Template};
use countersign_kernel::{Budget, Time};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// How many values are kept for the next expression of the same command.
const KEPT_VALUES: usize = 16;

/// A JSON text that was read, and its value.
type Known = (Box<str>, Arc<dyn Val>);

pub(super) struct Metered<'a> {
    cel: &'a Cel,
    budget: &'a Budget,
    /// JSON texts and their values, those that were read last at the end.
    values: Mutex<Vec<Known>>,
}

/// The variables of one evaluation.
struct Variables(Vec<(&'static str, Arc<dyn Val>)>);

impl VariableResolver for Variables {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let (_, value) = self.0.iter().find(|(name, _)| *name == variable)?;
        Some(CowVal::Borrowed(&**value))
    }
}

impl<'a> Metered<'a> {
    pub fn new(cel: &'a Cel, budget: &'a Budget) -> Metered<'a> {
        Metered { cel, budget, values: Mutex::default() }
    }

    fn spend(&self, steps: u64) -> Result<(), ExpressionError> {
        if self.budget.spend(steps) { Ok(()) } else { Err(too_much(None)) }
    }

    fn evaluate(&self, text: &str, scope: &Scope<'_>) -> Result<Value, ExpressionError> {
        let named = |why: &str| failure(format!("`{}`: {why}", shortened(text)));
        let program = self.cel.program(text).map_err(|unsound| match unsound.why {
            Why::Syntax(why) => named(&why),
            Why::Unknown(name) => named(&format!("there is no variable `{name}`")),
        })?;
        let beyond =
            |error: ExpressionError| if error.over_budget { too_much(Some(text)) } else { named(&error.message) };
        self.spend(program.cost).map_err(beyond)?;
        let mut variables = Vec::with_capacity(program.variables.len());
        for variable in &program.variables {
            variables.push((variable.as_str(), self.variable(*variable, &program, scope).map_err(beyond)?));
        }
        let variables = Variables(variables);
        budget::begin(self.budget.left(), &program.patterns);
        // The interpreter is not ours; should it panic, the expression has no value.
        let evaluated = catch_unwind(AssertUnwindSafe(|| {
            let mut context = Context::with_env(expression::env());
            context.set_variable_resolver(&variables);
            Value::resolve(&program.ast, &context)
        }));
        let left = budget::end();
        self.budget.set_left(left);
        match evaluated {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) if left == 0 => Err(too_much(Some(text))),
            // A message may name a key, and a secret is never recorded.
            Ok(Err(_)) if program.variables.contains(&Variable::Secrets) => Err(named("it has no value")),
            Ok(Err(error)) => Err(named(&super::failure::explain(&error))),
            Err(_) => Err(named("it cannot be evaluated")),
        }
    }

    /// The value of a variable, made of as much of the scope as the expression names.
    fn variable(
        &self,
        variable: Variable,
        program: &Parsed,
        scope: &Scope<'_>,
    ) -> Result<Arc<dyn Val>, ExpressionError> {
        let text = match variable {
            Variable::Steps => return self.steps(&program.steps, scope),
            Variable::Secrets => return self.secrets(&program.secrets, scope),
            Variable::Input => scope.input,
            Variable::Run => scope.run,
            Variable::Pins => scope.pins,
            // A step that no event has woken was told nothing.
            Variable::Event => scope.event.or(Some("null")),
            Variable::Output => scope.output,
        };
        let name = variable.as_str();
        self.value(name, text.ok_or_else(|| ExpressionError::new(format!("there is no `{name}` here")))?)
    }

    /// A step that is not at hand is absent, as a key that is not in a map; one that yielded nothing has the output null.
    fn steps(&self, names: &[String], scope: &Scope<'_>) -> Result<Arc<dyn Val>, ExpressionError> {
        let mut steps = Vec::new();
        for name in names {
            let Some((state_code, output)) = scope.steps.and_then(|steps| steps.step(name)) else { continue };
            let text = output.unwrap_or("null");
            let output = self.value(&format!("steps.{name}.output"), text)?;
            // It is copied: the map holds it.
            self.spend(json::reading(text) / 2)?;
            let state_code: Box<dyn Val> = Box::new(cel::common::types::CelString::from(state_code.to_owned()));
            let fields = [("state_code".to_owned(), state_code), ("output".to_owned(), output.clone_as_boxed())];
            steps.push((name.clone(), json::map(fields.into_iter())));
        }
        Ok(Arc::from(json::map(steps.into_iter())))
    }

    /// Only those that the expression names are looked up, and none is kept.
    fn secrets(&self, names: &[String], scope: &Scope<'_>) -> Result<Arc<dyn Val>, ExpressionError> {
        let secrets = scope.secrets.ok_or_else(|| ExpressionError::new("there is no `secrets` here"))?;
        let mut revealed: Vec<(String, Box<dyn Val>)> = Vec::new();
        for name in names {
            let value = secrets.reveal(name).map_err(|why| ExpressionError::new(format!("secret `{name}` {why}")))?;
            self.spend(16 + value.len() as u64)?;
            revealed.push((name.clone(), Box::new(cel::common::types::CelString::from(value))));
        }
        Ok(Arc::from(json::map(revealed.into_iter())))
    }

    /// The value of a JSON text, read once.
    fn value(&self, name: &str, text: &str) -> Result<Arc<dyn Val>, ExpressionError> {
        let known = {
            let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
            values.iter().find(|(known, _)| **known == *text).map(|(_, value)| value.clone())
        };
        if let Some(known) = known {
            self.spend(16 + text.len() as u64 / 16)?;
            return Ok(known);
        }
        self.spend(json::reading(text))?;
        let value: Arc<dyn Val> = Arc::from(json::value(name, text).map_err(ExpressionError::new)?);
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        if values.len() == KEPT_VALUES {
            values.remove(0);
        }
        values.push((text.into(), value.clone()));
        Ok(value)
    }

    fn fill_text(&self, text: &str, scope: &Scope<'_>, out: &mut String) -> Result<(), ExpressionError> {
        let pieces = pieces(text).map_err(|_| failure(format!("`{}`: a `${{` is never closed", shortened(text))))?;
        let named = |expression: &str, why: String| failure(format!("`{}`: {why}", shortened(expression)));
        if let [Piece::Expression(expression)] = pieces.as_slice() {
            let value = self.evaluate(expression, scope)?;
            let text = json::text(&value).map_err(|why| named(expression, why))?;
            self.spend(text.len() as u64)?;
            out.push_str(&text);
            return Ok(());
        }
        let mut spliced = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => spliced.push_str(text),
                Piece::Expression(expression) => match self.evaluate(expression, scope)? {
                    Value::String(text) if text.contains('\0') => {
                        return Err(named(expression, json::NUL.to_owned()));
                    }
                    Value::String(text) => spliced.push_str(&text),
                    value => spliced.push_str(&json::text(&value).map_err(|why| named(expression, why))?),
                },
            }
            if spliced.len() > json::MAX_BYTES {
                return Err(failure(format!("a text becomes larger than {} bytes", json::MAX_BYTES)));
            }
        }
        self.spend(spliced.len() as u64)?;
        out.push_str(&serde_json::Value::from(spliced).to_string());
        Ok(())
    }

    /// A template is a part of a document, whose depth is bounded.
    fn fill_value(
        &self,
        value: &serde_json::Value,
        scope: &Scope<'_>,
        out: &mut String,
    ) -> Result<(), ExpressionError> {
        match value {
            serde_json::Value::String(text) if template::is_template(text) => self.fill_text(text, scope, out)?,
            serde_json::Value::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    self.fill_value(item, scope, out)?;
                }
                out.push(']');
            }
            serde_json::Value::Object(entries) => {
                out.push('{');
                for (i, (key, item)) in entries.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(&serde_json::Value::from(key.as_str()).to_string());
                    out.push(':');
                    self.fill_value(item, scope, out)?;
                }
                out.push('}');
            }
            plain => out.push_str(&plain.to_string()),
        }
        if out.len() > json::MAX_BYTES {
            return Err(failure(format!("the value becomes larger than {} bytes", json::MAX_BYTES)));
        }
        Ok(())
    }
}

impl Language for Metered<'_> {
    fn judge(&self, expression: &Expression, scope: &Scope<'_>) -> Result<bool, ExpressionError> {
        match self.evaluate(&expression.0, scope)? {
            Value::Bool(verdict) => Ok(verdict),
            other => Err(failure(format!(
                "`{}`: its value is {}, and neither true nor false",
                shortened(&expression.0),
                json::describe(&other)
            ))),
        }
    }

    fn fill(&self, template: &Template, scope: &Scope<'_>) -> Result<String, ExpressionError> {
        if !template::is_template(&template.0) {
            return Ok(template.0.to_string());
        }
        self.spend(json::reading(&template.0))?;
        let value: serde_json::Value = serde_json::from_str(&template.0)
            .map_err(|error| failure(format!("a template that is not JSON: {error}")))?;
        let mut out = String::new();
        self.fill_value(&value, scope, &mut out)?;
        Ok(out)
    }

    fn moment(&self, template: &Template, scope: &Scope<'_>) -> Result<Time, ExpressionError> {
        let filled = self.fill(template, scope)?;
        let text: String = serde_json::from_str(&filled)
            .map_err(|_| failure(format!("{} is not a text such as \"2026-01-31T08:00:00Z\"", shortened(&filled))))?;
        let moment: jiff::Timestamp = text
            .parse()
            .map_err(|_| failure(format!("`{}` is not a time such as 2026-01-31T08:00:00Z", shortened(&text))))?;
        Ok(Time(moment.as_microsecond()))
    }

    fn conforms(&self, schema: &Schema, document: &str) -> Result<(), ExpressionError> {
        let compiled = self.cel.schema(&schema.0).map_err(|fault| failure(fault.message))?;
        self.spend(json::reading(document))?;
        match compiled.check(document, self.budget) {
            Ok(()) => Ok(()),
            Err(error) => Err(ExpressionError { over_budget: error.over_budget, ..failure(error.message) }),
        }
    }

    fn plan(&self, document: &[u8]) -> Result<Plan, ExpressionError> {
        self.cel.plan(document)
    }

    fn machine(&self, document: &[u8]) -> Result<Option<OwnMachine>, ExpressionError> {
        self.cel.machine(document)
    }

    fn prepare(&self, document: &[u8]) {
        self.cel.prepare(document);
    }

    fn is_exhausted(&self) -> bool {
        self.budget.left() == 0
    }

    fn metered<'b>(&'b self, budget: &'b Budget) -> Box<dyn Language + 'b> {
        Box::new(Metered::new(self.cel, budget))
    }
}

fn too_much(expression: Option<&str>) -> ExpressionError {
    let message = match expression {
        Some(expression) => format!("`{}`: {TOO_MUCH}", shortened(expression)),
        None => TOO_MUCH.to_owned(),
    };
    ExpressionError { message, over_budget: true }
}
