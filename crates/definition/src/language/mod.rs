//! The language of definitions: CEL in `${…}`, JSON Schema, and plans from their documents. All of it is pure: the
//! same arguments give the same answer, with no clock and no I/O; what was parsed once is kept for the next time.
//!
//! Whatever is asked, the answer comes in bounded time and memory, and never as a panic.

mod budget;
mod cache;
pub(crate) mod diagnosis;
pub(crate) mod expression;
mod failure;
mod json;
pub(crate) mod schema;
pub(crate) mod template;
mod tokens;

use crate::{machine, workflow};
use cache::Cache;
use cel::{Context, Value};
use countersign_kernel::Time;
use countersign_kernel::lifecycle::OwnMachine;
use countersign_kernel::plan::{Expression, ExpressionError, Language, Plan, Schema, Scope, Template};
use expression::{Parsed, Variable, Why};
use jsonschema::Validator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use template::{Piece, pieces};

const CACHED_PROGRAMS: usize = 4096;
const CACHED_SCHEMAS: usize = 512;
const MAX_MESSAGE_CHARS: usize = 300;

/// CEL and JSON Schema, with what was compiled last at hand.
pub struct Cel {
    programs: Cache<Parsed>,
    schemas: Cache<Validator>,
}

impl Default for Cel {
    fn default() -> Self {
        Cel { programs: Cache::new(CACHED_PROGRAMS), schemas: Cache::new(CACHED_SCHEMAS) }
    }
}

impl Cel {
    pub fn new() -> Cel {
        Cel::default()
    }

    fn evaluate(&self, text: &str, scope: &Scope<'_>) -> Result<Value, ExpressionError> {
        let named = |why: &str| failure(format!("`{}`: {why}", shortened(text)));
        let program = self.programs.get(text, || expression::parse(text)).map_err(|unsound| match unsound.why {
            Why::Syntax(why) => named(&why),
            Why::Unknown(name) => named(&format!("there is no variable `{name}`")),
        })?;
        let mut context = Context::with_env(expression::env());
        for variable in &program.variables {
            let value = variable_value(*variable, &program, scope).map_err(|why| named(&why))?;
            context.add_variable_from_value(variable.as_str(), value);
        }
        budget::refill();
        // The interpreter is not ours; should it panic, the expression has no value.
        let evaluated = catch_unwind(AssertUnwindSafe(|| Value::resolve(&program.ast, &context)));
        match evaluated {
            Ok(Ok(value)) => Ok(value),
            // A message may name a key, and a secret is never recorded.
            Ok(Err(_)) if program.variables.contains(&Variable::Secrets) => Err(named("it has no value")),
            Ok(Err(error)) => Err(named(&failure::explain(&error))),
            Err(_) => Err(named("it cannot be evaluated")),
        }
    }

    fn fill_text(&self, text: &str, scope: &Scope<'_>, out: &mut String) -> Result<(), ExpressionError> {
        let pieces = pieces(text).map_err(|_| failure(format!("`{}`: a `${{` is never closed", shortened(text))))?;
        let named = |expression: &str, why: String| failure(format!("`{}`: {why}", shortened(expression)));
        if let [Piece::Expression(expression)] = pieces.as_slice() {
            let value = self.evaluate(expression, scope)?;
            out.push_str(&json::text(&value).map_err(|why| named(expression, why))?);
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
        out.push_str(&serde_json::Value::from(spliced).to_string());
        Ok(())
    }

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

impl Language for Cel {
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
        let validator =
            self.schemas.get(&schema.0, || schema::compile(&schema.0)).map_err(|fault| failure(fault.message))?;
        schema::check(&validator, document).map_err(failure)
    }

    fn plan(&self, document: &[u8]) -> Result<Plan, ExpressionError> {
        workflow::plan(document).map_err(failure)
    }

    fn machine(&self, document: &[u8]) -> Result<Option<OwnMachine>, ExpressionError> {
        machine::machine(document).map_err(failure)
    }
}

/// The value of a variable, made of as much of the scope as the expression names.
fn variable_value(variable: Variable, program: &Parsed, scope: &Scope<'_>) -> Result<Value, String> {
    let text = match variable {
        Variable::Steps => return steps_value(&program.steps, scope),
        Variable::Input => scope.input,
        Variable::Run => scope.run,
        Variable::Pins => scope.pins,
        // A step that no event has woken was told nothing.
        Variable::Event => scope.event.or(Some("null")),
        Variable::Output => scope.output,
        Variable::Secrets => scope.secrets,
    };
    let name = variable.as_str();
    json::value(name, text.ok_or_else(|| format!("there is no `{name}` here"))?)
}

/// A step that is not at hand is absent, as a key that is not in a map; one that yielded nothing has the output null.
fn steps_value(names: &[String], scope: &Scope<'_>) -> Result<Value, String> {
    let mut steps = Vec::new();
    for name in names {
        let Some((state_code, output)) = scope.steps.and_then(|steps| steps.step(name)) else { continue };
        let output = match output {
            Some(output) => json::value(&format!("steps.{name}.output"), output)?,
            None => Value::Null,
        };
        let state_code = Value::String(state_code.to_owned().into());
        let fields = [("state_code".to_owned(), state_code), ("output".to_owned(), output)];
        steps.push((name.clone(), json::map(fields.into_iter())));
    }
    Ok(json::map(steps.into_iter()))
}

fn failure(message: impl Into<String>) -> ExpressionError {
    ExpressionError(crate::problem::printable(&message.into(), MAX_MESSAGE_CHARS))
}

fn shortened(text: &str) -> String {
    crate::problem::printable(text, 80)
}
