//! What a definition may cost: bounds on schemas, patterns and expressions where they are published and where they are loaded
//! again, and one budget of steps for all that a command asks. Nothing is timed.

use crate::{parsed, problems_of};
use countersign_definition::{Body, Cel, parse};
use countersign_kernel::Budget;
use countersign_kernel::budget::STEPS_PER_COMMAND;
use countersign_kernel::plan::{Expression, Language, Schema, Scope, Template};
use serde_json::{Value, json};

/// Threads of the server have four times as much.
const SMALL_STACK: usize = 2 << 20;

/// On a thread whose stack is small: an overflow ends the test's process.
fn on_a_small_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(SMALL_STACK).spawn_scoped(scope, work);
        thread.expect("a thread").join().expect("no panic")
    })
}

fn workflow(schema: &Value) -> String {
    format!("kind: workflow\nname: w\nsteps: [{{name: a}}]\ninputSchema: {schema}\n")
}

fn reference_chain(length: usize, link: impl Fn(String) -> Value) -> Value {
    let mut defs = serde_json::Map::new();
    for i in 0..length {
        defs.insert(format!("d{i}"), link(format!("#/$defs/d{}", i + 1)));
    }
    defs.insert(format!("d{length}"), json!({"type": "object"}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

fn schema(value: &Value) -> Schema {
    Schema(value.to_string().into())
}

#[test]
fn a_schema_that_would_overflow_or_explode_is_refused_at_its_place() {
    let chain = |length| reference_chain(length, |next| json!({"$ref": next}));
    let tower = reference_chain(20, |next| json!({"anyOf": [{"$ref": next}, {"$ref": next}]}));
    let unevaluated =
        reference_chain(20, |next| json!({"allOf": [{"$ref": next}, {"$ref": next}], "unevaluatedProperties": false}));
    let long = reference_chain(10_000, |next| json!({"properties": {"next": {"$ref": next}}}));
    let many: Vec<Value> = (0..3000).map(|i| json!({"const": i})).collect();
    let words = "x".repeat(300_000);
    let cases = [
        (chain(10_000), "bytes, and a schema may have 262144"),
        (chain(3000), "may have 2048 subschemas"),
        (chain(100), "more than 64 references and combinations follow each other"),
        (tower, "unfolds into more than 4096 subschemas"),
        (unevaluated, "unfolds into more than 4096 subschemas"),
        (long, "bytes, and a schema may have 262144"),
        (json!({"anyOf": many}), "may have 2048 subschemas"),
        (json!({"description": words}), "bytes, and a schema may have 262144"),
        (json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}}), "refers to itself"),
        (json!({"$dynamicAnchor": "n", "allOf": [{"$dynamicRef": "#n"}]}), "refers to itself"),
        (json!({"$ref": "other.json"}), "leads to nothing in this schema"),
        (json!({"$ref": "#/$defs/b", "$defs": {"a": {}}}), "leads to nothing in this schema"),
        (json!({"pattern": "(a{1000}){1000}"}), "4096 positions"),
        (json!({"patternProperties": {"\\w{5000}": {}}}), "4096 positions"),
        (json!({"pattern": "(".repeat(1000) + &")".repeat(1000)}), "this is not a JSON Schema"),
    ];
    for (schema, part) in cases {
        let problems = on_a_small_stack(|| problems_of(workflow(&schema)));
        let problem = &problems[0];
        assert!(problem.message.contains(part), "{part}: {problem}");
        assert!(problem.path.starts_with("inputSchema") && problem.line == 4 && problem.column > 1, "{problem:?}");
    }
}

#[test]
fn the_place_of_a_bound_is_the_part_that_breaks_it() {
    let text = "kind: workflow\nname: w\nsteps: [{name: a}]\ninputSchema:\n  properties:\n    sku:\n      pattern: \"[a-z]{9999}\"\n";
    let problems = problems_of(text);
    let found = (problems[0].path.as_str(), problems[0].line, problems[0].column, problems[0].code.as_str());
    assert_eq!(found, ("inputSchema.properties.sku.pattern", 7, 16, "bad-value"), "{}", problems[0]);
}

#[test]
fn what_people_write_keeps_to_the_bounds() {
    let address = json!({"type": "object", "properties": {"zip": {"type": "string", "pattern": "^\\d{5}$"}}});
    let tree = json!({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/n"}}}});
    let properties: serde_json::Map<String, Value> =
        (0..200).map(|i| (format!("p{i}"), json!({"$ref": "#/$defs/address"}))).collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.org/order",
        "type": "object",
        "properties": properties,
        "oneOf": (0..50).map(|i| json!({"properties": {"kind": {"const": i}}})).collect::<Vec<_>>(),
        "if": {"required": ["a"]}, "then": {"$ref": "#/$defs/n"}, "unevaluatedProperties": true,
        "$defs": {"address": address, "n": tree, "m": {"$id": "m", "$anchor": "here", "$ref": "#here2",
            "$defs": {"x": {"$anchor": "here2"}}}},
        "allOf": [{"$ref": "m"}, {"$ref": "https://example.org/order#/$defs/n"}],
    });
    let definition = parsed(&workflow(&schema));
    let Body::Workflow { plan, document } = definition.body else { panic!("a workflow") };
    let cel = Cel::new();
    assert_eq!(cel.plan(&document).as_ref(), Ok(&plan));
    let input = json!({"kind": 3, "p1": {"zip": "12345"}, "children": [{"children": []}]}).to_string();
    assert_eq!(cel.conforms(plan.input_schema.as_ref().expect("a schema"), &input), Ok(()));
}

/// As an older version would have kept it: nothing of it was judged by the bounds of today.
#[test]
fn a_document_from_before_is_held_to_the_bounds_too() {
    for (schema, part) in [
        (reference_chain(10_000, |next| json!({"$ref": next})), "262144"),
        (reference_chain(100, |next| json!({"$ref": next})), "more than 64 references"),
        (reference_chain(20, |next| json!({"anyOf": [{"$ref": next}, {"$ref": next}]})), "unfolds into"),
    ] {
        let document = json!({"kind": "workflow", "name": "w", "steps": [{"name": "a"}], "inputSchema": schema});
        let read = on_a_small_stack(|| Cel::new().plan(document.to_string().as_bytes()));
        let error = read.expect_err("out of bounds");
        assert!(error.message.contains("inputSchema") && error.message.contains(part), "{error}");
    }
    let nested = format!("{{\"kind\":\"workflow\",\"steps\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(on_a_small_stack(|| Cel::new().plan(nested.as_bytes())).is_err());
    assert!(on_a_small_stack(|| Cel::new().machine(nested.as_bytes())).is_err());
}

/// Schemas as deep as they may be: compiled, checked against and dropped.
#[test]
fn what_keeps_to_the_bounds_overflows_nothing() {
    let longest = reference_chain(1000, |next| json!({"properties": {"n": {"$ref": next}}}));
    let in_place = reference_chain(15, |next| json!({"allOf": [{"not": {"not": {"$ref": next}}}]}));
    let deep = (0..25).fold(json!({}), |inner, _| json!({"properties": {"n": inner}}));
    let recursive = json!({"anyOf": [{"properties": {"n": {"$ref": "#"}}, "unevaluatedProperties": false}]});
    let value = (0..120).fold(json!({}), |inner, _| json!({"n": inner})).to_string();
    for schema_value in [longest, reference_chain(60, |next| json!({"$ref": next})), in_place, deep, recursive] {
        on_a_small_stack(|| {
            let cel = Cel::with_cache(0);
            let budget = Budget::default();
            // Whether it conforms or is too deep is an answer; an overflow is none.
            let _ = cel.metered(&budget).conforms(&schema(&schema_value), &value);
            let _ = parse(workflow(&schema_value).as_bytes());
        });
    }
    let brackets = json!("(".repeat(400_000)).to_string();
    on_a_small_stack(|| {
        let draft = "http://json-schema.org/draft-07/schema#";
        let schema = schema(&json!({"$schema": draft, "format": "regex"}));
        let _ = Cel::new().conforms(&schema, &brackets);
    });
}

fn spent(ask: impl FnOnce(&dyn Language)) -> u64 {
    let (cel, budget) = (Cel::new(), Budget::default());
    ask(&*cel.metered(&budget));
    STEPS_PER_COMMAND - budget.left()
}

fn judge(language: &dyn Language, expression: &str, input: &str) -> Result<bool, (bool, String)> {
    let scope = Scope { input: Some(input), ..Scope::default() };
    language.judge(&Expression(expression.into()), &scope).map_err(|error| (error.over_budget, error.message))
}

#[test]
fn all_that_a_command_asks_is_paid_from_one_budget() {
    let input = json!({"items": (0..500).collect::<Vec<_>>()}).to_string();
    let when = |i: usize| format!("input.items.map(x, x * {i}).exists(x, x == -1)");
    let one = spent(|language| assert_eq!(judge(language, &when(1), &input), Ok(false)));
    assert!(one < STEPS_PER_COMMAND / 6, "{one} steps");
    let (cel, budget) = (Cel::new(), Budget::default());
    let language = cel.metered(&budget);
    let answers: Vec<_> = (0..200).map(|i| judge(&*language, &when(i), &input)).collect();
    let held = answers.iter().take_while(|answer| answer.is_ok()).count() as u64;
    // About as many as the budget is a multiple of one; all others fail, each in next to no time.
    assert!(held >= STEPS_PER_COMMAND / one / 2 && held < 200, "{held} of 200, {one} steps each");
    for answer in &answers[held as usize..] {
        let (over_budget, message) = answer.clone().expect_err("nothing is left");
        assert!(over_budget && message.contains("more work than one command may do"), "{message}");
    }
    assert_eq!(budget.left(), 0);
}

#[test]
fn a_value_is_read_once_for_all_expressions_of_a_command() {
    let input = json!({"items": (0..10_000).collect::<Vec<_>>(), "n": 1}).to_string();
    let one = spent(|language| assert_eq!(judge(language, "input.n == 1", &input), Ok(true)));
    let hundred = spent(|language| {
        (0..100).for_each(|i| assert!(judge(language, &format!("input.n != {i}"), &input).is_ok()));
    });
    assert!(hundred < 5 * one, "{one} for one, {hundred} for a hundred");
}

#[test]
fn a_constant_pattern_is_compiled_once_and_any_other_is_paid_for() {
    let input = json!({"items": vec!["abc"; 1000], "pattern": "^[a-z]+$"}).to_string();
    let constant = spent(|language| {
        assert_eq!(judge(language, "input.items.all(x, x.matches('^[a-z]+$'))", &input), Ok(true));
    });
    let given = spent(|language| {
        assert_eq!(judge(language, "input.items.all(x, x.matches(input.pattern))", &input), Ok(true));
    });
    assert!(given > 4 * constant && given < STEPS_PER_COMMAND, "{constant} and {given} steps");
    let longest = spent(|language| {
        let nested = "input.items.all(x, input.items.all(y, x.matches(y + '{1,500}')))";
        assert!(judge(language, nested, &input).is_err_and(|(over_budget, _)| over_budget));
    });
    assert_eq!(longest, STEPS_PER_COMMAND);
    let refused = |expression: &str| judge(&Cel::new(), expression, &input).expect_err(expression);
    assert!(refused("'a'.matches('(b{4000}' + '){4000}')").1.contains("`matches` has no result"));
    assert!(refused("1.matches('a')").1.contains("there is no `matches`"));
}

#[test]
fn a_pattern_that_can_never_match_is_told_when_it_is_published() {
    for (pattern, part) in [("(", "unclosed group"), ("(a{1000}){1000}", "4096 positions")] {
        let text =
            format!("kind: workflow\nname: w\nsteps:\n- name: a\n  when: \"${{input.x.matches('{pattern}')}}\"\n");
        let problems = problems_of(&text);
        let problem = &problems[0];
        assert!(problem.message.contains(part), "{problem}");
        assert_eq!((problem.line, problem.column, problem.code.as_str()), (5, 29, "bad-expression"));
        // Where it was published before, only its step fails.
        let when = format!("${{input.x.matches('{pattern}')}}");
        let document = json!({"kind": "workflow", "name": "w", "steps": [{"name": "a", "when": when}]}).to_string();
        assert!(Cel::new().plan(document.as_bytes()).is_ok());
        let failed = judge(&Cel::new(), &format!("'a'.matches('{pattern}')"), "{}");
        assert!(
            failed.is_err_and(|(over_budget, message)| !over_budget && message.contains("`matches` has no result"))
        );
    }
}

/// Each of these took seconds.
#[test]
fn what_took_seconds_ends_with_its_budget() {
    let numbers: Vec<u32> = (0..20_000).collect();
    let items: Vec<u32> = vec![999_999; 50_000];
    let enumerated = json!({"items": {"enum": numbers}});
    let one_of: Vec<Value> = (0..60).map(|i| json!({"items": {"minimum": i}})).collect();
    let nested = json!({"items": {"oneOf": one_of}, "uniqueItems": true});
    let pattern = json!({"items": {"pattern": "^(a|b|ab)*(a|b){200}c$"}});
    let text = "ab".repeat(2000);
    let cases = [
        (enumerated, json!(items)),
        (json!({"oneOf": [nested.clone(), {"not": nested}]}), json!(items)),
        (pattern, json!(vec![text; 30])),
    ];
    for (schema_value, value) in cases {
        let (cel, budget) = (Cel::new(), Budget::default());
        let answer = cel.metered(&budget).conforms(&schema(&schema_value), &value.to_string());
        assert!(answer.as_ref().is_err_and(|error| error.over_budget), "{answer:?}, {} left", budget.left());
        assert_eq!(budget.left(), 0);
    }
}

#[test]
fn a_check_costs_in_proportion() {
    let order = json!({
        "type": "object", "required": ["items"],
        "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
        "$defs": {"item": {"type": "object", "properties": {
            "sku": {"type": "string", "pattern": "^[A-Z]{3}-\\d{1,8}$"},
            "count": {"type": "integer", "minimum": 1},
            "state": {"enum": ["new", "used", "broken"]}}}},
    });
    let cost = |count: usize| {
        let items = vec![json!({"sku": "ABC-123456", "count": 2, "state": "used"}); count];
        let document = json!({"items": items}).to_string();
        spent(|language| assert_eq!(language.conforms(&schema(&order), &document), Ok(())))
    };
    let (hundred, thousand) = (cost(100), cost(1000));
    assert!(thousand > 8 * hundred && thousand < 12 * hundred, "{hundred}, {thousand}");
    // A thousand items are a tenth of what a command may do.
    assert!(thousand < STEPS_PER_COMMAND / 8, "{thousand} steps");
}

#[test]
fn a_document_that_fails_is_told_where_as_long_as_that_can_be_paid() {
    let schema = schema(&json!({"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}));
    let few = Cel::new().conforms(&schema, "[\"a\", 1]").expect_err("1 is neither");
    assert!(few.message.starts_with("at /1: ") && !few.over_budget, "{few}");
    let many = json!(vec![1; 20_000]).to_string();
    let many = Cel::new().conforms(&schema, &many).expect_err("1 is neither");
    assert!(many.message.contains("misses the schema") && !many.over_budget, "{many}");
}

#[test]
fn what_is_kept_is_bounded_in_bytes() {
    let cel = Cel::with_cache(1 << 20);
    for i in 0..400 {
        let enumerated: Vec<String> = (0..100).map(|j| format!("{i}-{j}")).collect();
        let schema = schema(&json!({"enum": enumerated}));
        cel.conforms(&schema, &format!("\"{i}-1\"")).expect("it is one of them");
        let template = Template(format!("\"${{'{}' + '{i}'}}\"", "x".repeat(500)).into());
        cel.fill(&template, &Scope::default()).expect("a text");
        assert!(cel.cached_bytes() <= 1 << 20);
    }
    assert!(cel.cached_bytes() > 1 << 18, "something is kept: {}", cel.cached_bytes());
}
