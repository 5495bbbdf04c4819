//! The language: what expressions, templates and schemas come to, and that nothing that is asked of it harms.

use crate::Effort;
use countersign_definition::Cel;
use countersign_kernel::plan::{Expression, Language, Schema, Scope, Secrets, Steps, Template};
use proptest::prelude::*;
use std::time::Duration;

const STEPS: &[(&str, &str, Option<&str>)] = &[
    ("PAYMENT", "completed", Some(r#"{"amount":12.5,"lines":[1,2,3]}"#)),
    ("a-b", "skipped", None),
    ("broken", "completed", Some("{")),
];

struct Known;

impl Steps for Known {
    fn step(&self, name: &str) -> Option<(&str, Option<&str>)> {
        STEPS.iter().find(|(known, ..)| *known == name).map(|(_, state_code, output)| (*state_code, *output))
    }
}

impl Secrets for Known {
    fn reveal(&self, name: &str) -> Result<String, String> {
        match name {
            "token" => Ok("hunter2".to_owned()),
            _ => Err("is not configured".to_owned()),
        }
    }
}

fn scope() -> Scope<'static> {
    Scope {
        input: Some(r#"{"plan":"pro","n":3,"big":9007199254740993,"list":["x","y"],"deep":{"z":null,"a":true}}"#),
        steps: Some(&Known),
        run: Some(r#"{"run_id":"r-1"}"#),
        secrets: Some(&Known),
        ..Scope::default()
    }
}

fn judge(text: &str) -> Result<bool, String> {
    Cel::new().judge(&Expression(text.into()), &scope()).map_err(|error| error.message)
}

fn fill(template: &str) -> Result<String, String> {
    Cel::new().fill(&Template(template.into()), &scope()).map_err(|error| error.message)
}

#[test]
fn a_condition_is_true_false_or_an_error() {
    for (text, verdict) in [
        ("true", true),
        ("input.plan != 'free'", true),
        ("input.plan in ['free', 'basic']", false),
        ("has(input.missing) && input.missing", false),
        ("steps.PAYMENT.output.amount > 12 && steps[\"a-b\"].state_code == 'skipped'", true),
        ("steps['a-b'].output == null", true),
        // No event has woken the step: there is nothing that it said.
        ("event == null", true),
        ("event != null && has(event.x)", false),
        ("input.list.exists(x, x == 'y') && input.list.all(x, size(x) == 1)", true),
        ("input.list.exists_one(x, x == 'y')", true),
        ("steps.PAYMENT.output.lines.map(x, x * 2) == [2, 4, 6]", true),
        ("steps.PAYMENT.output.lines.filter(x, x > 1) == [2, 3]", true),
        ("input.plan.matches('^p.o$') && input.plan.startsWith('p')", true),
        ("input.n == 3 && input.n < 3.5", true),
        ("input.big == 9007199254740993", true),
        ("input.big == 9007199254740992", false),
        ("type(input.n) == int && string(input.n) == '3'", true),
        ("{'a': 1}.a == 1 && 1 + 1 == 2", true),
        ("input.map(k, k) == ['big', 'deep', 'list', 'n', 'plan']", true),
        ("{3: 'c', 1: 'a', 2: 'b'}.filter(k, k > 1) == [2, 3]", true),
        ("input.deep.exists(k, k == 'z') && input.list.map(x, x).size() == 2", true),
    ] {
        assert_eq!(judge(text), Ok(verdict), "{text}");
    }
    for (text, part) in [
        ("1 + 1", "its value is a number, and neither true nor false"),
        ("input", "its value is a map"),
        ("'true'", "its value is a string"),
        ("input.missing", "missing"),
        ("event.x", "x"),
        ("nobody", "there is no variable `nobody`"),
        ("steps.never.output", "never"),
        ("steps.broken.output == 1", "`steps.broken.output` is not JSON"),
        ("1 / 0 == 1", "division by zero"),
        ("input.n + 'x' == ''", "there is no `add` for a number and a string"),
        ("9223372036854775807 + 1 == 0", "beyond 64 bits"),
        ("1 +", "1 +"),
    ] {
        let error = judge(text).expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn only_what_an_expression_names_is_read() {
    let scope = Scope { input: Some("not JSON"), run: Some("{}"), ..Scope::default() };
    let cel = Cel::new();
    assert_eq!(cel.judge(&Expression("size(run) == 0".into()), &scope), Ok(true));
    assert!(cel.judge(&Expression("input == 1".into()), &scope).is_err());
}

#[test]
fn a_template_keeps_types_or_splices() {
    for (template, expected) in [
        (r#""${input.n}""#, "3"),
        (r#""${input.list}""#, r#"["x","y"]"#),
        (r#""${input.deep}""#, r#"{"a":true,"z":null}"#),
        (r#""${input.big}""#, "9007199254740993"),
        (r#""${steps.PAYMENT.output.amount}""#, "12.5"),
        (r#""n=${input.n}, plan=${input.plan}, ${input.list} ${null}""#, r#""n=3, plan=pro, [\"x\",\"y\"] null""#),
        (r#"" ${input.n}""#, r#"" 3""#),
        (r#""$${input.n}""#, r#""$3""#),
        (r#""${'${'}""#, r#""${""#),
        (r#"{"b":["${input.n}",1.0,true],"a":{"${input.n}":null}}"#, r#"{"b":[3,1.0,true],"a":{"${input.n}":null}}"#),
        ("12345678901234567890123", "12345678901234567890123"),
        (r#""Bearer ${secrets.token}""#, r#""Bearer hunter2""#),
    ] {
        assert_eq!(fill(template).as_deref(), Ok(expected), "{template}");
    }
    for (template, part) in [
        (r#""${input.missing}""#, "missing"),
        (r#""${0.0 / 0.0}""#, "not a finite number"),
        (r#""${b'abc'}""#, "bytes"),
        (r#""${'\\u0000'}""#, "U+0000"),
        (r#""a ${'\\u0000'} b""#, "U+0000"),
        (r#"["${[{'\\u0000': 1}]}"]"#, "U+0000"),
        (r#""a ${b""#, "never closed"),
        (r#"{"${": "#, "not JSON"),
    ] {
        let error = fill(template).expect_err(template);
        assert!(error.contains(part), "{template}: {error}");
    }
}

#[test]
fn a_number_is_kept_whole_or_refused() {
    let cel = Cel::new();
    let template = Template("\"${input.n}\"".into());
    for (input, expected) in [
        (r#"{"n":9223372036854775807}"#, Some("9223372036854775807")),
        (r#"{"n":-9223372036854775808}"#, Some("-9223372036854775808")),
        (r#"{"n":18446744073709551615}"#, Some("18446744073709551615")),
        (r#"{"n":18446744073709551616}"#, None),
        (r#"{"n":"18446744073709551616"}"#, Some("\"18446744073709551616\"")),
        (r#"{"n":0.1}"#, Some("0.1")),
        (r#"{"n":1e3}"#, Some("1000.0")),
    ] {
        let filled = cel.fill(&template, &Scope { input: Some(input), ..Scope::default() });
        match expected {
            Some(expected) => assert_eq!(filled.as_deref(), Ok(expected), "{input}"),
            None => assert!(filled.is_err_and(|error| error.message.contains("more digits")), "{input}"),
        }
    }
}

#[test]
fn an_error_does_not_tell_a_secret() {
    for text in
        ["secrets.token < 1", "{secrets.token: 1}[0] == 1", "secrets.token + 1 == ''", "int(secrets.token) == 1"]
    {
        let error = judge(text).expect_err(text);
        assert!(!error.contains("hunter2"), "{text}: {error}");
    }
    let error = fill(r#""${secrets.other + secrets.token}""#).expect_err("no such secret");
    assert!(error.contains("secret `other` is not configured"), "{error}");
}

/// A secret is looked up because an expression names it, so the name is known before it is evaluated.
#[test]
fn only_the_secrets_that_are_named_are_looked_up() {
    assert_eq!(fill(r#""${secrets['token'] + '!'}""#), Ok(r#""hunter2!""#.to_owned()));
    assert_eq!(fill(r#""${[1].map(secrets, secrets)}""#), Ok("[1]".to_owned()));
    let unnamed = fill(r#""${secrets}""#).unwrap_or_default();
    assert!(!unnamed.contains("hunter2"), "{unnamed}");
}

#[test]
fn a_schema_says_where_a_document_misses_it() {
    let cel = Cel::new();
    let schema =
        Schema(r#"{"type":"object","required":["id"],"properties":{"items":{"items":{"type":"integer"}}}}"#.into());
    assert_eq!(cel.conforms(&schema, r#"{"id":1,"items":[1,2]}"#), Ok(()));
    let error = cel.conforms(&schema, r#"{"id":1,"items":[1,"x"]}"#).expect_err("a string").message;
    assert!(error.contains("/items/1") && error.contains("integer"), "{error}");
    let error = cel.conforms(&schema, "{}").expect_err("no id").message;
    assert!(error.contains("id"), "{error}");
    for (schema, document) in
        [("{", "{}"), ("{}", "{"), (r#"{"type":7}"#, "{}"), (r#"{"$ref":"file:///etc/passwd"}"#, "1")]
    {
        assert!(cel.conforms(&Schema(schema.into()), document).is_err(), "{schema}");
    }
}

/// A few words must not cost more than there is.
#[test]
fn expressions_that_are_made_to_cost_much_are_answered_in_good_time() {
    let list = (0..40).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let nested = format!("{}1{}", format!("[{list}].map(x, ").repeat(10), ")".repeat(10));
    let exists = format!("{}false{}", format!("[{list}].exists(x, ").repeat(12), ")".repeat(12));
    let doubled = format!("['xxxxxxxx']{}", ".map(a, a + a)".repeat(60));
    let wide = format!("[[1]]{}", ".map(a, [a, a, a, a, a, a, a, a])".repeat(40));
    let added = format!("[[1]]{}", ".map(a, a + a + a + a)".repeat(30));
    let big = format!("{{\"t\":\"{}\"}}", "x".repeat(1_000_000));
    let scanned = format!("[{list}].exists(x, [{list}].exists(y, input.t.matches('a|b|c')))");
    for text in
        [nested, exists, doubled, wide, added, scanned, format!("({}).size() > 0", vec!["input.t"; 60].join("+"))]
    {
        let started = Effort::begun();
        let scope = Scope { input: Some(&big), ..Scope::default() };
        let answer = Cel::new().fill(&Template(format!("\"${{{text}}}\"").into()), &scope);
        assert!(answer.is_err(), "{text:.80}: {:.80}", format!("{answer:?}"));
        assert!(started.spent() < Duration::from_secs(10), "{text:.80}: {:?}", started.spent());
    }
    // What is merely large is not refused.
    let many: Vec<String> = (0..20_000).map(|i| format!("{{\"id\":{i}}}")).collect();
    let many = format!("[{}]", many.join(","));
    let scope = Scope { input: Some(&many), ..Scope::default() };
    let cel = Cel::new();
    assert_eq!(cel.judge(&Expression("input.exists(x, x.id == 19999)".into()), &scope), Ok(true));
    assert_eq!(cel.judge(&Expression("size(input.map(x, x.id)) == 20000".into()), &scope), Ok(true));
}

/// As deep as an expression may be, on the small stack that a test's thread has.
#[test]
fn the_deepest_expressions_are_evaluated() {
    let chain = vec!["1"; 180].join("+");
    for (text, expected) in [
        (format!("{}{chain}{}", "(".repeat(16), ")".repeat(16)), "180"),
        (format!("size({}1{})", "[".repeat(15), "]".repeat(15)), "1"),
        (format!("size({}1{})", "{1: ".repeat(15), "}".repeat(15)), "1"),
        (format!("{}{}{} == []", "[1].map(x, ".repeat(15), &chain[..201], ")".repeat(15)), "false"),
        (format!("[1]{} == [1]", ".map(x, x)".repeat(150)), "true"),
        (format!("{}1", "true ? 1 : ".repeat(60)), "1"),
        (vec!["true"; 90].join("&&"), "true"),
    ] {
        assert_eq!(fill(&format!("\"${{{text}}}\"")).as_deref(), Ok(expected), "{text:.60}");
    }
}

/// The functions that may be named are there.
#[test]
fn every_function_of_the_language_is_there() {
    for text in [
        "size('abc') == 3 && 'abc'.size() == 3 && size([1]) == 1 && size({'a': 1}) == 1",
        "'abc'.contains('b') && 'abc'.startsWith('a') && 'abc'.endsWith('c') && 'abc'.matches('a.c')",
        "string(1) == '1' && int('2') == 2 && uint(3) == 3u && double('1.5') == 1.5 && bool('true')",
        "bytes('a') == b'a' && type(1) == int && dyn(1) == 1 && matches('abc', 'a')",
    ] {
        assert_eq!(judge(text), Ok(true), "{text}");
    }
}

#[test]
fn many_threads_may_use_one() {
    let cel = Cel::new();
    std::thread::scope(|threads| {
        for t in 0..4 {
            let cel = &cel;
            threads.spawn(move || {
                for i in 0..3000 {
                    let text = format!("{i} * 2 == {} && {t} >= 0", i * 2);
                    assert_eq!(cel.judge(&Expression(text.into()), &Scope::default()), Ok(true));
                }
            });
        }
    });
}

/// Pieces of which expressions, sound and unsound, are made.
const PIECES: &[&str] = &[
    "input",
    "steps",
    ".a",
    ".PAYMENT",
    ".output",
    "[0]",
    "['x']",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    "?",
    " + ",
    " - ",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    ">=",
    "&&",
    "||",
    "!",
    " in ",
    "1",
    "1u",
    "1.5",
    "-9223372036854775808",
    "18446744073709551615u",
    "1e308",
    "'a'",
    "\"b\"",
    "b'c'",
    "r'\\'",
    "'''d'''",
    "'\\u00e9'",
    "'\\x'",
    "null",
    "true",
    "false",
    "size",
    "string(",
    "int(",
    "uint(",
    "double(",
    "bytes(",
    "bool(",
    "type(",
    "dyn(",
    ".map(x, ",
    ".filter(x, ",
    ".all(x, ",
    ".exists(x, ",
    ".exists_one(x, ",
    "has(",
    ".matches('",
    ".contains(",
    "x",
    "@result",
    "__result__",
    "Foo{a: 1}",
    ".?a",
    "[?0]",
    "`",
    "$",
    "\\",
    "é",
    "\u{0}",
    "//",
    "\n",
    "0x",
    "9999999999999999999999",
    "'",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_expression_is_answered(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..24)) {
        let text = pieces.concat();
        let _ = judge(&text);
        let template = serde_json::Value::from(format!("${{{text}}} ${{{text}}}")).to_string();
        if let Ok(filled) = fill(&template) {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&filled).is_ok());
        }
    }

    #[test]
    fn any_text_is_answered(text in "\\PC{0,60}") {
        let _ = judge(&text);
        let _ = fill(&text);
        let _ = Cel::new().conforms(&Schema(text.as_str().into()), &text);
        let _ = Cel::new().plan(text.as_bytes());
    }

    #[test]
    fn the_same_question_has_the_same_answer(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12)) {
        let text = pieces.concat();
        prop_assert_eq!(judge(&text), judge(&text));
    }
}
