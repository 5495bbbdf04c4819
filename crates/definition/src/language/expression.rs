//! One CEL expression: parsed within bounds, and what it asks for. The parser and the interpreter descend as
//! deep as an expression is nested, so that is bounded before either sees the text.

use super::budget::{self, Patterns, TURN};
use super::{diagnosis, pattern};
use crate::problem::enumerated;
use crate::suggest::closest;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::{Env, IdedExpr as Ast};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

/// The longest expression, in bytes.
pub(crate) const MAX_BYTES: usize = 4096;
/// How deep brackets may be nested.
const MAX_NESTING: usize = 16;
/// How many operators, selections and indexings there may be: a chain of them is as deep as it is long.
const MAX_LINKS: usize = 200;

/// The functions of CEL that are there. The operators and macros are syntax.
pub(crate) const FUNCTIONS: &[&str] = &[
    "bool",
    "bytes",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "int",
    "matches",
    "size",
    "startsWith",
    "string",
    "type",
    "uint",
];

/// What there is to know of a step.
pub(crate) const STEP_VALUES: &[&str] = &["output", "state_code"];

/// What looks like a function and is syntax.
const MACROS: &[&str] = &["all", "exists", "exists_one", "filter", "has", "map"];

/// What CEL calls its types; `type(x) == int`.
const TYPES: &[&str] = &["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

/// What an expression may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Variable {
    Input,
    Steps,
    Run,
    Pins,
    Event,
    Output,
    Secrets,
}

impl Variable {
    pub const ALL: &'static [(&'static str, Variable)] = &[
        ("input", Variable::Input),
        ("steps", Variable::Steps),
        ("run", Variable::Run),
        ("pins", Variable::Pins),
        ("event", Variable::Event),
        ("output", Variable::Output),
        ("secrets", Variable::Secrets),
    ];

    pub fn as_str(self) -> &'static str {
        Variable::ALL.iter().find(|(_, variable)| *variable == self).map_or("", |(name, _)| name)
    }
}

/// A sound expression.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// With the calls that keep its evaluation within its budget.
    pub ast: Ast,
    /// Steps that an evaluation takes in any case.
    pub cost: u64,
    /// The constant patterns of `matches`.
    pub patterns: Arc<Patterns>,
    /// Why one of them can never be matched.
    pub bad_pattern: Option<(String, String)>,
    /// Ascending, each once.
    pub variables: Vec<Variable>,
    /// The steps it names, ascending, each once.
    pub steps: Vec<String>,
    /// The pins it names, ascending, each once.
    pub pins: Vec<String>,
    /// What it asks of a step that no step has.
    pub strange: Option<String>,
    /// The secrets it names, ascending, each once.
    pub secrets: Vec<String>,
    /// Whether it uses `secrets` without the name of one.
    pub unnamed_secret: bool,
}

impl Parsed {
    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let patterns = self.patterns.values().map(|known| 4096 + 256 * known.weight.positions as usize);
        10 * self.cost as usize + patterns.sum::<usize>()
    }
}

/// Why an expression is none, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsound {
    pub why: Why,
    pub part: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Syntax(String),
    /// A name that is not a variable.
    Unknown(String),
}

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::default().with_optional_support(false).with_stdlib();
    budget::declare(&mut env);
    Arc::new(env)
});

pub(super) fn env() -> Arc<Env> {
    ENV.clone()
}

/// The expression, or what is wrong with it, in words for its author.
pub(crate) fn parse(text: &str) -> Result<Parsed, Unsound> {
    let unsound = |part: Range<usize>, message: String| Unsound { why: Why::Syntax(message), part };
    check_size(text).map_err(|message| unsound(0..text.len(), message))?;
    // The generated parser is large and not ours: should it panic, the text is not an expression.
    let parser = cel::parser::Parser::new();
    let parsed = catch_unwind(AssertUnwindSafe(|| parser.parse(text)));
    let mut ast = match parsed {
        Ok(Ok(ast)) => ast,
        Ok(Err(_)) | Err(_) => {
            let (part, message) =
                diagnosis::fault(text).unwrap_or_else(|| (0..text.len(), "it cannot be read".to_owned()));
            return Err(unsound(part, message));
        }
    };
    let mut walk = Walk { text, ..Walk::default() };
    walk.expression(&ast)?;
    let cost = TURN * budget::parts(&ast);
    let (mut patterns, mut bad_pattern) = (Patterns::new(), None);
    for constant in budget::guard(&mut ast) {
        match pattern::compile(&constant) {
            Ok(compiled) => drop(patterns.insert(constant, compiled)),
            Err(why) => bad_pattern = bad_pattern.or(Some((constant, why))),
        }
    }
    let Walk { variables, steps, pins, strange, secrets, unnamed_secret, .. } = walk;
    let (variables, steps) = (each_once(variables), each_once(steps));
    let (pins, secrets) = (each_once(pins), each_once(secrets));
    let patterns = Arc::new(patterns);
    Ok(Parsed { ast, cost, patterns, bad_pattern, variables, steps, pins, strange, secrets, unnamed_secret })
}

fn each_once<T: Ord>(mut found: Vec<T>) -> Vec<T> {
    found.sort_unstable();
    found.dedup();
    found
}

fn check_size(text: &str) -> Result<(), String> {
    if text.len() > MAX_BYTES {
        return Err(format!("it is longer than {MAX_BYTES} bytes"));
    }
    if text.trim().is_empty() {
        return Err("there is nothing between the braces".to_owned());
    }
    let (mut nesting, mut deepest, mut links) = (0_usize, 0_usize, 0_usize);
    // Brackets inside of strings are counted too: rather a little too strict than a way around.
    for byte in text.bytes() {
        match byte {
            b'(' | b'{' => nesting += 1,
            b'[' => {
                nesting += 1;
                links += 1;
            }
            b')' | b']' | b'}' => nesting = nesting.saturating_sub(1),
            b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'&' | b'|' | b'?' | b'.' => links += 1,
            _ => {}
        }
        deepest = deepest.max(nesting);
    }
    links += text.match_indices("in").filter(|(at, _)| !continues_a_word(text, at + 2)).count();
    if deepest > MAX_NESTING {
        return Err(format!("its brackets are nested more than {MAX_NESTING} deep"));
    }
    if links > MAX_LINKS {
        return Err(format!("it has more than {MAX_LINKS} operators; split it up"));
    }
    Ok(())
}

fn continues_a_word(text: &str, at: usize) -> bool {
    text.as_bytes().get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Finds the names that an expression does not bind itself.
#[derive(Default)]
struct Walk<'t> {
    text: &'t str,
    /// The variables of the macros around, innermost last.
    bound: Vec<String>,
    variables: Vec<Variable>,
    steps: Vec<String>,
    pins: Vec<String>,
    strange: Option<String>,
    secrets: Vec<String>,
    unnamed_secret: bool,
}

impl Walk<'_> {
    fn expression(&mut self, node: &IdedExpr) -> Result<(), Unsound> {
        if let Some((step, field)) = named_step(&node.expr)
            && named_step(step).is_some_and(|(operand, _)| self.is_variable(operand, Variable::Steps))
            && !STEP_VALUES.contains(&field)
        {
            self.strange.get_or_insert_with(|| field.to_owned());
        }
        if let Some((operand, name)) = named_step(&node.expr) {
            if self.is_variable(operand, Variable::Steps) {
                self.variables.push(Variable::Steps);
                self.steps.push(name.to_owned());
                return Ok(());
            }
            if self.is_variable(operand, Variable::Secrets) {
                self.variables.push(Variable::Secrets);
                self.secrets.push(name.to_owned());
                return Ok(());
            }
            if self.is_variable(operand, Variable::Pins) {
                self.variables.push(Variable::Pins);
                self.pins.push(name.to_owned());
                return Ok(());
            }
        }
        match &node.expr {
            Expr::Unspecified => Err(self.unsound(0..self.text.len(), "it cannot be read")),
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.identifier(name),
            Expr::Select(select) => self.expression(&select.operand),
            Expr::List(list) => list.elements.iter().try_for_each(|element| self.expression(element)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr)),
            Expr::Struct(message) => {
                let told = format!("there is no type `{}`; write a map, with quoted keys", message.type_name);
                Err(self.unsound(diagnosis::place_of(self.text, &message.type_name, false), &told))
            }
            Expr::Call(call) => {
                let name = call.func_name.as_str();
                let is_operator = name.starts_with(['_', '@', '!', '-']);
                if !is_operator && !FUNCTIONS.contains(&name) {
                    return Err(self.unsound(diagnosis::place_of(self.text, name, true), &no_function(name)));
                }
                call.target.iter().try_for_each(|target| self.expression(target))?;
                call.args.iter().try_for_each(|argument| self.expression(argument))
            }
            Expr::Comprehension(loops) => {
                self.expression(&loops.iter_range)?;
                self.expression(&loops.accu_init)?;
                let before = self.bound.len();
                self.bound.push(loops.iter_var.clone());
                self.bound.extend(loops.iter_var2.clone());
                self.bound.push(loops.accu_var.clone());
                let inner = [&loops.loop_cond, &loops.loop_step, &loops.result];
                let found = inner.into_iter().try_for_each(|part| self.expression(part));
                self.bound.truncate(before);
                found
            }
        }
    }

    fn entry(&mut self, entry: &EntryExpr) -> Result<(), Unsound> {
        match entry {
            EntryExpr::StructField(field) => self.expression(&field.value),
            EntryExpr::MapEntry(entry) => {
                self.expression(&entry.key)?;
                self.expression(&entry.value)
            }
        }
    }

    fn is_bound(&self, name: &str) -> bool {
        self.bound.iter().any(|bound| bound == name)
    }

    fn is_variable(&self, operand: &Expr, variable: Variable) -> bool {
        matches!(operand, Expr::Ident(name) if name == variable.as_str() && !self.is_bound(name))
    }

    fn identifier(&mut self, name: &str) -> Result<(), Unsound> {
        if self.is_bound(name) || TYPES.contains(&name) {
            return Ok(());
        }
        match Variable::ALL.iter().find(|(known, _)| *known == name) {
            Some((_, Variable::Steps)) => Err(self.unsound(
                diagnosis::place_of(self.text, name, false),
                "`steps` needs the name of a step, written out: `steps.NAME` or `steps[\"NAME\"]`",
            )),
            Some((_, variable)) => {
                self.unnamed_secret |= *variable == Variable::Secrets;
                self.variables.push(*variable);
                Ok(())
            }
            None => {
                let part = diagnosis::place_of(self.text, name, false);
                Err(Unsound { why: Why::Unknown(name.to_owned()), part })
            }
        }
    }

    fn unsound(&self, part: Range<usize>, message: &str) -> Unsound {
        Unsound { why: Why::Syntax(message.to_owned()), part }
    }
}

/// What other languages call a function of this one goes before a slip of the pen.
fn no_function(name: &str) -> String {
    let meant = match name {
        "len" | "length" | "count" => Some("size"),
        "str" | "toString" => Some("string"),
        "includes" => Some("contains"),
        "parseInt" | "number" => Some("int"),
        "float" => Some("double"),
        _ => closest(name, FUNCTIONS.iter().chain(MACROS).copied()),
    };
    match meant {
        Some(meant) => format!("there is no function `{name}`; did you mean `{meant}`?"),
        None => {
            let all = enumerated(FUNCTIONS.iter().chain(MACROS).copied());
            format!("there is no function `{name}`; there are {all}")
        }
    }
}

/// `X.name` or `X["name"]`.
fn named_step(expr: &Expr) -> Option<(&Expr, &str)> {
    match expr {
        Expr::Select(select) => Some((&select.operand.expr, &select.field)),
        Expr::Call(call) if call.func_name == operators::INDEX => match call.args.as_slice() {
            [operand, index] => match &index.expr {
                Expr::Literal(LiteralValue::String(name)) => Some((&operand.expr, name.inner())),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> (Vec<Variable>, Vec<String>) {
        let parsed = parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        (parsed.variables, parsed.steps)
    }

    #[test]
    fn the_names_that_are_not_bound_are_found() {
        use Variable::{Event, Input, Run, Steps};
        let cases: &[(&str, &[Variable], &[&str])] = &[
            ("1 + 2", &[], &[]),
            ("input.plan != 'free'", &[Input], &[]),
            ("steps.PAYMENT.output.amount", &[Steps], &["PAYMENT"]),
            ("steps[\"a-b\"].state_code == steps.c.state_code", &[Steps], &["a-b", "c"]),
            ("has(steps.a.output.x) && has(steps.b)", &[Steps], &["a", "b"]),
            ("[1, 2].exists(steps, steps > 1)", &[], &[]),
            ("input.items.all(x, x.n > run.n)", &[Input, Run], &[]),
            ("input.map(x, input.map(y, x + y + event.z))", &[Input, Event], &[]),
            ("{'a': input}['a']", &[Input], &[]),
            ("type(input) == map", &[Input], &[]),
            ("input == null ? [event] : []", &[Input, Event], &[]),
        ];
        for (text, variables, steps) in cases {
            let expected = (variables.to_vec(), steps.iter().map(|step| (*step).to_owned()).collect());
            assert_eq!(found(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_an_expression_is_said() {
        for (text, part) in [
            ("", "nothing between"),
            ("input.", "a name is missing after the `.`"),
            ("1 +", "a value is missing after `+`"),
            ("steps", "steps.NAME"),
            ("steps[input.x]", "steps.NAME"),
            ("size(steps)", "steps.NAME"),
            ("now()", "no function `now`"),
            ("input.x.lower()", "no function `lower`"),
            ("Thing{a: 1}", "no type `Thing`"),
            ("input.?a", "a name is missing after the `.`"),
            ("len(input.x)", "did you mean `size`?"),
        ] {
            match parse(text) {
                Err(Unsound { why: Why::Syntax(message), .. }) => assert!(message.contains(part), "{text}: {message}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        for (text, name) in [("inputs.x", "inputs"), ("[1].map(x, y)", "y"), ("input.b + size(b)", "b")] {
            let unsound = parse(text).expect_err(text);
            assert_eq!((&unsound.why, &text[unsound.part]), (&Why::Unknown(name.to_owned()), name), "{text}");
        }
    }

    #[test]
    fn nothing_is_nested_deeper_than_the_parser_can_go() {
        for text in [
            "(".repeat(2000),
            format!("{}1{}", "[".repeat(1000), "]".repeat(1000)),
            vec!["1"; 2000].join("+"),
            format!("input{}", ".a".repeat(2000)),
            "!".repeat(4000),
            format!("1{}", "in(1)".repeat(800)),
            format!("0xa{}", "in 0xa".repeat(600)),
            "x".repeat(5000),
        ] {
            assert!(matches!(parse(&text), Err(Unsound { why: Why::Syntax(_), .. })));
        }
        let deepest = format!("{}{}{}", "(".repeat(MAX_NESTING), vec!["1"; 190].join("+"), ")".repeat(MAX_NESTING));
        parse(&deepest).unwrap_or_else(|error| panic!("{error:?}"));
    }
}
