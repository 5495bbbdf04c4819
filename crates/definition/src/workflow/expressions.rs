//! Expressions at their places: each is CEL, the names in it exist at that place, and the steps that it needs. Steps
//! and pins are checked at the end, when all of them are known.

use crate::document::json;
use crate::fields::wrong_type;
use crate::language::diagnosis::{dashed, place_of, place_of_named, unclosed_quotation};
use crate::language::expression::{Parsed, STEP_VALUES, Unsound, Variable, Why, parse};
use crate::language::template::{Piece, Unclosed, is_template, offset, pieces, sole_expression};
use crate::problem::{Part, Position, ProblemCode, Problems, enumerated, quoted, segment};
use crate::tree::{Node, Value};
use countersign_kernel::plan::{Expression, StepSeq, Template};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// The place of an expression, which decides what it may name.
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
    /// What a shell is to run, which has `${…}` of its own.
    Command(StepSeq),
    /// What is sent out with a step and never recorded: headers, body, env.
    Sent(StepSeq),
    /// When a step has yielded something: `output`, `checks`.
    Yield(StepSeq),
    /// When this step is undone; `output` is what it had yielded.
    Undo(StepSeq),
    /// What a shell is to run then.
    UndoCommand(StepSeq),
    /// What is sent out then and never recorded.
    UndoSent(StepSeq),
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
            Place::Step(_) | Place::Command(_) => &[Input, Steps, Run, Pins, Event],
            Place::Sent(_) => &[Input, Steps, Run, Pins, Event, Secrets],
            Place::Yield(_) => &[Input, Steps, Run, Pins, Event, Output],
            Place::Undo(_) | Place::UndoCommand(_) => &[Input, Steps, Run, Event, Output],
            Place::UndoSent(_) => &[Input, Steps, Run, Event, Output, Secrets],
            Place::RunOutput => &[Input, Steps, Run, Pins],
        }
    }

    fn variables(self) -> String {
        match self.sees() {
            [] => "no variable is there".to_owned(),
            seen => format!("here are {}", enumerated(seen.iter().map(|variable| variable.as_str()))),
        }
    }

    /// The place of a shell command.
    pub fn command(self) -> Place {
        match self {
            Place::Undo(seq) => Place::UndoCommand(seq),
            place => place.step().map_or(place, Place::Command),
        }
    }

    /// Where headers, a body or an environment stand.
    pub fn sent(self) -> Place {
        match self {
            Place::Undo(seq) => Place::UndoSent(seq),
            place => place.step().map_or(place, Place::Sent),
        }
    }

    /// Whether the step has ended by then, so that it may name itself.
    pub fn undoes(self) -> bool {
        matches!(self, Place::Undo(_) | Place::UndoCommand(_) | Place::UndoSent(_))
    }

    /// The step whose upstream may be named; `None`: any step.
    pub fn step(self) -> Option<StepSeq> {
        match self {
            Place::Step(seq) | Place::Command(seq) | Place::Sent(seq) | Place::Yield(seq) => Some(seq),
            Place::Undo(seq) | Place::UndoCommand(seq) | Place::UndoSent(seq) => Some(seq),
            Place::Start | Place::Schedule | Place::Trigger | Place::RunOutput => None,
        }
    }
}

/// A step or a pin that an expression names.
pub(super) struct Use {
    variable: Variable,
    pub name: String,
    pub place: Place,
    pub path: String,
    at: Position,
    value: Arc<str>,
    /// The place of the expression in the value.
    expression: Range<usize>,
}

impl Use {
    fn of(variable: Variable, name: &str, written: Written<'_>, place: Place) -> Use {
        Use {
            variable,
            name: name.to_owned(),
            place,
            path: written.path.to_owned(),
            at: written.at,
            expression: written.span(0..written.expression.len()),
            value: written.value.clone(),
        }
    }

    fn written(&self) -> Written<'_> {
        let expression = &self.value[self.expression.clone()];
        Written { at: self.at, value: &self.value, path: &self.path, expression }
    }

    fn part(&self) -> Range<usize> {
        let place = place_of_named(self.written().expression, self.variable.as_str(), &self.name);
        place.unwrap_or(0..self.expression.len())
    }

    /// The name as it may have been meant, with the dashes that CEL takes for minuses.
    pub fn dashed(&self) -> Option<String> {
        let expression = self.written().expression;
        dashed(expression, &self.part()).map(|(_, name)| expression[name].to_owned())
    }

    pub fn report(&self, message: String, problems: &mut Problems) {
        self.written().report(self.part(), message, problems);
    }
}

/// An expression inside of a value.
#[derive(Clone, Copy)]
struct Written<'a> {
    at: Position,
    value: &'a Arc<str>,
    path: &'a str,
    expression: &'a str,
}

impl Written<'_> {
    /// The place of a part of the expression in the value.
    fn span(&self, part: Range<usize>) -> Range<usize> {
        let start = offset(self.value, self.expression);
        start + part.start..start + part.end
    }

    fn report(&self, part: Range<usize>, message: String, problems: &mut Problems) {
        let part = Part { at: self.at, value: self.value, part: self.span(part) };
        problems.add_inside(part, self.path, ProblemCode::BadExpression, message);
    }
}

/// Reads expressions and templates, and remembers which steps and pins they name.
pub(super) struct Expressions {
    pub steps: Vec<Use>,
    pub pins: Vec<Use>,
    /// What was published is not judged again; only the steps are looked for.
    trusted: bool,
    /// All texts of expressions.
    seen: HashSet<String>,
    parsed: HashMap<String, Result<Arc<Parsed>, Unsound>>,
}

impl Expressions {
    pub fn new(trusted: bool) -> Expressions {
        Expressions { steps: Vec::new(), pins: Vec::new(), trusted, seen: HashSet::new(), parsed: HashMap::new() }
    }

    /// The expressions that were read, each once.
    pub fn into_texts(self) -> Vec<String> {
        self.seen.into_iter().collect()
    }

    /// A text that is one `${…}`, or `true` or `false`.
    pub fn condition(&mut self, node: &Node, path: &str, place: Place, problems: &mut Problems) -> Option<Expression> {
        let text = match &node.value {
            Value::Bool(value) => return Some(Expression(value.to_string().into())),
            Value::String(text) => &Arc::from(text.as_str()),
            _ => {
                wrong_type(node, path, "an expression in `${…}`", problems);
                return None;
            }
        };
        if let Err(unclosed) = pieces(text) {
            report_unclosed(node.at, text, unclosed, path, problems);
            return None;
        }
        let Some(expression) = sole_expression(text) else {
            let advice = match text.as_ref() {
                "yes" | "no" | "on" | "off" => "write `true` or `false`".to_owned(),
                text if is_template(text) => "write it as one `${…}`".to_owned(),
                text => format!("write {}", quoted(&format!("${{{text}}}"))),
            };
            let message = format!("{} is not an expression; {advice}", quoted(text));
            problems.add(node.at, path, ProblemCode::BadExpression, message);
            return None;
        };
        self.expression(Written { at: node.at, value: text, path, expression }, place, problems);
        Some(Expression(expression.into()))
    }

    /// Any value, with `${…}` in its texts.
    pub fn template(&mut self, node: &Node, path: &str, place: Place, problems: &mut Problems) -> Template {
        self.texts(node, path, place, problems);
        Template(json(node).into())
    }

    fn texts(&mut self, node: &Node, path: &str, place: Place, problems: &mut Problems) {
        match &node.value {
            Value::String(text) if is_template(text) => {
                let value = &Arc::from(text.as_str());
                match pieces(value) {
                    Ok(pieces) => {
                        for piece in pieces {
                            if let Piece::Expression(expression) = piece {
                                self.expression(Written { at: node.at, value, path, expression }, place, problems);
                            }
                        }
                    }
                    Err(unclosed) => report_unclosed(node.at, value, unclosed, path, problems),
                }
            }
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

    fn expression(&mut self, written: Written<'_>, place: Place, problems: &mut Problems) {
        let text = written.expression;
        if self.trusted && !self.seen.contains(text) {
            self.seen.insert(text.to_owned());
        }
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
                let part = dashed(text, &unsound.part).map_or(unsound.part, |(_, name)| name);
                written.report(part, message, problems);
                return;
            }
        };
        let unseen = parsed.variables.iter().find(|variable| !place.sees().contains(variable));
        if let (Some(variable), false) = (unseen, self.trusted) {
            let part = place_of(text, variable.as_str(), false);
            written.report(part, misplaced(*variable, place), problems);
        } else {
            if let (Some(strange), false) = (&parsed.strange, self.trusted) {
                let advice = match problems.guess(strange, STEP_VALUES.iter().copied()) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("a step has {}", enumerated(STEP_VALUES.iter().copied())),
                };
                let part = text.find(strange.as_str()).map_or(0..text.len(), |start| start..start + strange.len());
                written.report(part, format!("there is no {} of a step; {advice}", quoted(strange)), problems);
            }
            if let (Some((pattern, why)), false) = (&parsed.bad_pattern, self.trusted) {
                let quoted_at = |quote| text.find(&format!("{quote}{pattern}{quote}")).map(|start| start + 1);
                let found = quoted_at('\'').or_else(|| quoted_at('"'));
                let part = found.map_or(0..text.len(), |start| start..start + pattern.len());
                written.report(part, format!("{} cannot be matched: {why}", quoted(pattern)), problems);
            }
            if parsed.unnamed_secret && !self.trusted {
                let part = place_of(text, Variable::Secrets.as_str(), false);
                let message =
                    "`secrets` needs the name of a secret, written out: `secrets.NAME` or `secrets[\"NAME\"]`";
                written.report(part, message.to_owned(), problems);
            }
            self.steps.extend(parsed.steps.iter().map(|name| Use::of(Variable::Steps, name, written, place)));
            if !self.trusted {
                self.pins.extend(parsed.pins.iter().map(|name| Use::of(Variable::Pins, name, written, place)));
            }
        }
    }
}

fn report_unclosed(at: Position, value: &str, unclosed: Unclosed, path: &str, problems: &mut Problems) {
    let Unclosed(start) = unclosed;
    let inside = start + 2;
    let (part, message) = match unclosed_quotation(&value[inside..]).map(|quote| inside + quote) {
        // YAML has ended the value at what it takes for a comment.
        Some(quote) if value[quote + 1..].trim().is_empty() => {
            (quote..quote + 1, "this quotation is never closed; if a ` #` follows, quote the whole value")
        }
        Some(quote) => (quote..quote + 1, "this quotation is never closed, and so the `${` before it is not either"),
        None => (start..inside, "a `${` is never closed; close it with `}`"),
    };
    problems.add_inside(Part { at, value, part }, path, ProblemCode::BadExpression, message);
}

/// A constant that was clearly meant as an expression: its value would be the same for every run.
pub(super) fn refuse_bare(node: &Node, path: &str, problems: &mut Problems) {
    if let Value::String(text) = &node.value
        && !is_template(text)
        && ["input.", "input[", "steps.", "steps["].iter().any(|start| text.starts_with(start))
    {
        let message = format!("{0} is a text here, the same for every run; write `${{{1}}}`", quoted(text), text);
        problems.add(node.at, path, ProblemCode::BadExpression, message);
    }
}

fn explain(text: &str, unsound: &Unsound, place: Place, problems: &Problems) -> String {
    let for_the_shell = matches!(place, Place::Command(_) | Place::UndoCommand(_));
    match &unsound.why {
        Why::Syntax(why) if for_the_shell => {
            let escaped = escaped(text);
            format!("{} is not an expression: {why}; for the shell's own, write {escaped}", quoted(text))
        }
        Why::Syntax(why) => format!("{} is not an expression: {why}", quoted(text)),
        Why::Unknown(name) => {
            let seen = || place.sees().iter().map(|variable| variable.as_str());
            let advice = match (dashed(text, &unsound.part), problems.guess(name, seen())) {
                (Some((path, name)), _) => bracketed(path, &text[name]),
                (None, Some(meant)) => format!("did you mean `{meant}`?"),
                (None, None) if is_step(text, unsound.part.end, place) => format!("did you mean `steps.{name}`?"),
                (None, None) if for_the_shell && text == name => {
                    format!("for the shell's own, write `${name}`, or {}", escaped(text))
                }
                (None, None) if for_the_shell => format!("for the shell's own, write {}", escaped(text)),
                (None, None) => place.variables(),
            };
            format!("there is no variable {}; {advice}", quoted(name))
        }
    }
}

/// Whether a name that ends here seems to be that of a step.
fn is_step(text: &str, end: usize, place: Place) -> bool {
    let asked = text[end..].strip_prefix('.').unwrap_or_default();
    place.sees().contains(&Variable::Steps) && STEP_VALUES.iter().any(|value| asked.starts_with(value))
}

/// How `${…}` is passed on to a shell.
fn escaped(expression: &str) -> String {
    quoted(&format!("${{'$'}}{{{expression}}}"))
}

/// What to write for a name with dashes.
pub(super) fn bracketed(path: &str, name: &str) -> String {
    format!("a name with a dash stands in brackets: write `{path}[\"{name}\"]`")
}

fn misplaced(variable: Variable, place: Place) -> String {
    let why = match variable {
        Variable::Pins if place.undoes() => "a runbook, which alone has pins, undoes nothing",
        Variable::Secrets => "it may only be used in headers, body and env",
        Variable::Output => "it is there in a step's `output` and `checks`, and in `compensation`",
        Variable::Event => "it is there in steps, and in the `input` of `on`",
        Variable::Steps | Variable::Pins => "no step has been carried out yet",
        Variable::Input | Variable::Run => "the run begins with this value",
    };
    format!("`{}` is not there at this place: {why}; {}", variable.as_str(), place.variables())
}
