//! Expressions where they stand: that each is CEL, that what it names is there at that place, and which steps it
//! needs. Steps are checked at the end, when all of them are known.

use crate::document::json;
use crate::fields::wrong_type;
use crate::language::expression::{Parsed, Unsound, Variable, parse};
use crate::language::template::{Piece, is_template, pieces, sole_expression};
use crate::problem::{Position, ProblemCode, Problems, enumerated, quoted, segment};
use crate::tree::{Node, Value};
use countersign_kernel::plan::{Expression, StepSeq, Template};
use std::collections::HashMap;
use std::sync::Arc;

/// Where an expression stands, which decides what it may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Evaluated when a run starts: `correlationKey`, `concurrency.key`.
    Start,
    /// The input that a schedule gives.
    Schedule,
    /// The input that an event gives.
    Trigger,
    /// Before or while a step is carried out.
    Step(StepSeq),
    /// What is sent out with a step and never recorded: headers, body, env.
    Sent(StepSeq),
    /// When a step has yielded something: `output`, `checks`.
    Yield(StepSeq),
    /// The output of the run as a whole.
    RunOutput,
}

impl Place {
    fn sees(self) -> &'static [Variable] {
        use Variable::{Event, Input, Output, Pins, Run, Secrets, Steps};
        match self {
            Place::Start => &[Input],
            Place::Schedule => &[],
            Place::Trigger => &[Event],
            Place::Step(_) => &[Input, Steps, Run, Pins, Event],
            Place::Sent(_) => &[Input, Steps, Run, Pins, Event, Secrets],
            Place::Yield(_) => &[Input, Steps, Run, Pins, Event, Output],
            Place::RunOutput => &[Input, Steps, Run, Pins],
        }
    }

    fn variables(self) -> String {
        match self.sees() {
            [] => "no variable is there".to_owned(),
            seen => format!("here are {}", enumerated(seen.iter().map(|variable| variable.as_str()))),
        }
    }

    /// The step whose upstream may be named; `None`: any step.
    pub fn step(self) -> Option<StepSeq> {
        match self {
            Place::Step(seq) | Place::Sent(seq) | Place::Yield(seq) => Some(seq),
            Place::Start | Place::Schedule | Place::Trigger | Place::RunOutput => None,
        }
    }
}

/// A step that an expression names.
pub(super) struct StepUse {
    pub name: String,
    pub place: Place,
    pub at: Position,
    pub path: String,
}

/// Reads expressions and templates, and remembers which steps they name.
pub(super) struct Expressions {
    pub uses: Vec<StepUse>,
    /// What was published is not judged again; only the steps are looked for.
    trusted: bool,
    parsed: HashMap<String, Result<Arc<Parsed>, Unsound>>,
}

impl Expressions {
    pub fn new(trusted: bool) -> Expressions {
        Expressions { uses: Vec::new(), trusted, parsed: HashMap::new() }
    }

    /// A text that is one `${…}`, or `true` or `false`.
    pub fn condition(&mut self, node: &Node, path: &str, place: Place, problems: &mut Problems) -> Option<Expression> {
        let text = match &node.value {
            Value::Bool(value) => return Some(Expression(value.to_string().into())),
            Value::String(text) => text,
            _ => {
                wrong_type(node, path, "an expression in `${…}`", problems);
                return None;
            }
        };
        let Some(expression) = sole_expression(text) else {
            let message = format!("{} is not an expression; write it as one `${{…}}`", quoted(text));
            problems.add(node.at, path, ProblemCode::BadExpression, message);
            return None;
        };
        self.expression(expression, node.at, path, place, problems);
        Some(Expression(expression.into()))
    }

    /// Any value, with `${…}` in its texts.
    pub fn template(&mut self, node: &Node, path: &str, place: Place, problems: &mut Problems) -> Template {
        self.texts(node, path, place, problems);
        Template(json(node).into())
    }

    fn texts(&mut self, node: &Node, path: &str, place: Place, problems: &mut Problems) {
        match &node.value {
            Value::String(text) if is_template(text) => match pieces(text) {
                Ok(pieces) => {
                    for piece in pieces {
                        if let Piece::Expression(expression) = piece {
                            self.expression(expression, node.at, path, place, problems);
                        }
                    }
                }
                Err(_) => {
                    problems.add(node.at, path, ProblemCode::BadExpression, "a `${` is never closed; close it with `}`")
                }
            },
            Value::Seq(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.texts(item, &format!("{path}[{i}]"), place, problems);
                }
            }
            Value::Map(entries) => {
                for (key, item) in entries {
                    self.texts(item, &format!("{path}.{}", segment(&key.text)), place, problems);
                }
            }
            _ => {}
        }
    }

    fn expression(&mut self, text: &str, at: Position, path: &str, place: Place, problems: &mut Problems) {
        if self.trusted && !text.contains("steps") {
            return;
        }
        let parsed = match self.parsed.get(text) {
            Some(parsed) => parsed.clone(),
            None => {
                let parsed = parse(text).map(Arc::new);
                self.parsed.insert(text.to_owned(), parsed.clone());
                parsed
            }
        };
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(unsound) => {
                let message = explain(text, &unsound, place, problems);
                problems.add(at, path, ProblemCode::BadExpression, message);
                return;
            }
        };
        let unseen = parsed.variables.iter().find(|variable| !place.sees().contains(variable));
        if let (Some(variable), false) = (unseen, self.trusted) {
            let message = misplaced(*variable, place);
            problems.add(at, path, ProblemCode::BadExpression, message);
        } else {
            let named = parsed.steps.iter();
            self.uses.extend(named.map(|name| StepUse { name: name.clone(), place, at, path: path.to_owned() }));
        }
    }
}

fn explain(text: &str, unsound: &Unsound, place: Place, problems: &Problems) -> String {
    match unsound {
        Unsound::Syntax(why) => format!("{} is not an expression: {why}", quoted(text)),
        Unsound::Unknown(name) => {
            let seen = || place.sees().iter().map(|variable| variable.as_str());
            match problems.guess(name, seen()) {
                Some(meant) => format!("there is no variable {}; did you mean `{meant}`?", quoted(name)),
                None => format!("there is no variable {}; {}", quoted(name), place.variables()),
            }
        }
    }
}

fn misplaced(variable: Variable, place: Place) -> String {
    let why = match variable {
        Variable::Secrets => "it may only be used in headers, body and env",
        Variable::Output => "it is there in a step's `output` and `checks`",
        Variable::Event => "it is there in steps, and in the `input` of `on`",
        Variable::Steps | Variable::Pins => "no step has been carried out yet",
        Variable::Input | Variable::Run => "the run begins with this value",
    };
    format!("`{}` is not there at this place: {why}; {}", variable.as_str(), place.variables())
}
