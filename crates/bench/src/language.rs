//! The largest cost of one command: expressions and schemas that use up a whole budget, without a store. The p99 of
//! each row must stay below 50 ms.

use crate::report::{Report, Row};
use countersign_definition::Cel;
use countersign_kernel::Budget;
use countersign_kernel::budget::STEPS_PER_COMMAND;
use countersign_kernel::plan::{Expression, Language, Schema, Scope};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

enum Ask {
    Judge(String),
    Conforms(Value),
}

/// The dearest that are known for what they cost, each with the value that it is asked about.
fn worst() -> Vec<(&'static str, Ask, Value)> {
    let judge = |text: &str| Ask::Judge(text.to_owned());
    let few = json!({"items": (0..5000).collect::<Vec<_>>(), "text": "ab".repeat(4000)});
    let same = |count: usize| json!(vec![7; count]);
    let objects: Vec<Value> = (0..60_000).map(|i| json!({"a": i, "b": "xyz"})).collect();
    let any_of: Vec<Value> = (0..50).map(|_| json!({"$ref": "#/$defs/a"})).collect();
    let tower = json!({
        "items": {"allOf": [{"$ref": "#/$defs/a"}, {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}],
            "unevaluatedProperties": false},
        "$defs": {"a": {"properties": {"x": {"type": "integer"}}, "unevaluatedProperties": {"type": "integer"}}},
    });
    let properties: Value = (0..60_000).map(|i| (format!("p{i}"), json!(i))).collect::<serde_json::Map<_, _>>().into();
    vec![
        ("reading a large value", judge("size(input) == 1"), json!((0..400_000).collect::<Vec<_>>())),
        ("loops in loops", judge("input.items.all(x, input.items.all(y, x + y >= 0))"), few.clone()),
        ("`in` a list", judge("input.items.all(x, x in input.items)"), few.clone()),
        ("equal lists", judge("input.items.all(x, input.items == input.items)"), few.clone()),
        ("maps", judge("input.items.map(x, {'a': x, 'b': [x, x]}).map(y, y).exists(y, y.a == -1)"), few.clone()),
        ("a pattern", judge(r"input.items.all(x, !input.text.matches('(\\w|b|ab)*(\\w|b){100}\\d$'))"), few.clone()),
        ("patterns made up", judge(r"input.items.all(x, 'a'.matches('\\w{' + string(x % 30 + 1) + '}') || true)"), few),
        ("items", Ask::Conforms(json!({"items": {"minimum": 1}})), same(140_000)),
        ("unique items", Ask::Conforms(json!({"uniqueItems": true})), json!(objects)),
        ("properties", Ask::Conforms(json!({"additionalProperties": {"type": "integer", "minimum": 0}})), properties),
        ("an enum", Ask::Conforms(json!({"items": {"enum": (100..1100).collect::<Vec<_>>()}})), same(5000)),
        ("anyOf", Ask::Conforms(json!({"items": {"anyOf": any_of}, "$defs": {"a": {"minimum": 100}}})), same(4000)),
        ("unevaluated", Ask::Conforms(tower), json!(vec![json!({"x": 1, "y": 2}); 8000])),
    ]
}

pub fn measure(time: Duration, report: &mut Report) {
    eprintln!("the dearest commands …");
    let all = worst();
    let share = time / u32::try_from(all.len()).unwrap_or(1);
    for (name, ask, value) in all {
        let (cel, value) = (Cel::new(), value.to_string());
        let (begun, mut samples) = (Instant::now(), Vec::new());
        while samples.len() < 5 || begun.elapsed() < share {
            let budget = Budget::default();
            let before = Instant::now();
            let language = cel.metered(&budget);
            // Most of them fail: that is what is measured.
            match &ask {
                Ask::Judge(text) => {
                    let scope = Scope { input: Some(&value), ..Scope::default() };
                    let _ = language.judge(&Expression(text.as_str().into()), &scope);
                }
                Ask::Conforms(schema) => drop(language.conforms(&Schema(schema.to_string().into()), &value)),
            }
            samples.push(u32::try_from(before.elapsed().as_micros()).unwrap_or(u32::MAX));
            if samples.len() == 1 {
                let spent = 100 * (STEPS_PER_COMMAND - budget.left()) / STEPS_PER_COMMAND;
                eprintln!("       {name}: {spent} % of the budget");
            }
        }
        // The first one also compiled.
        samples.remove(0);
        report.add(Row::new(&format!("dearest command: {name}"), "none", "in process", 1, &samples, begun.elapsed()));
    }
}
