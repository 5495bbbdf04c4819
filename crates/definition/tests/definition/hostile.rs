//! Any bytes at all: an answer, never a crash, and never an answer that contradicts itself.

use crate::{Effort, SHIPPED, problems_of, process};
use countersign_definition::{Body, Cel, Kind, parse, render};
use countersign_kernel::plan::Language;
use proptest::prelude::*;
use std::time::Duration;

/// What every answer to any text must hold to.
fn check(text: &[u8]) {
    match parse(text) {
        Ok(definition) => {
            if definition.kind == Kind::Process {
                let (declaration, gate_spec) = process(&definition);
                declaration.validate().expect("a sound declaration");
                gate_spec.validate_shape().expect("sound gates");
            }
            if let Body::Workflow { plan, document } = definition.body {
                plan.gate_spec.validate_shape().expect("sound gates");
                assert_eq!(Cel::new().plan(&document).as_ref(), Ok(&plan), "{}", String::from_utf8_lossy(&document));
                let again = parse(&document).expect("the document of a definition is a definition");
                assert_eq!(again.body, Body::Workflow { plan, document });
            }
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            let shown = String::from_utf8_lossy(text);
            let shown = shown.strip_prefix('\u{FEFF}').unwrap_or(&shown);
            let shown = shown.replace("\r\n", "\n");
            let lines: Vec<&str> = shown.split(['\n', '\r']).collect();
            for problem in &problems {
                let line = lines
                    .get(problem.line as usize - 1)
                    .unwrap_or_else(|| panic!("{problem} of {} lines", lines.len()));
                assert!(
                    problem.column >= 1 && problem.column as usize <= line.chars().count() + 1,
                    "{problem}: {line:?}"
                );
                assert!(!problem.message.is_empty() && !problem.message.chars().any(char::is_control), "{problem:?}");
            }
            assert!(problems.is_sorted_by_key(|problem| (problem.line, problem.column)));
            let rendered = render("d.yaml", &String::from_utf8_lossy(text), &problems, false);
            assert!(!rendered.chars().any(|c| c.is_control() && c != '\n'), "{rendered:?}");
        }
    }
}

#[derive(Clone, Debug)]
enum Mutation {
    Flip { at: usize, bit: u8 },
    Delete { at: usize, length: usize },
    Duplicate { at: usize, length: usize, to: usize },
    Insert { at: usize, piece: &'static str },
}

/// Pieces of which documents, sound and unsound, are made.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ": ",
    ",",
    "- ",
    "? ",
    "\n",
    "\n  ",
    "\t",
    " ",
    "#",
    " # ",
    "\"",
    "'",
    "|\n",
    ">\n",
    "&a ",
    "*a",
    "!",
    "!!str ",
    "!!int ",
    "<<: ",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "~",
    "null",
    "true",
    "0x1F",
    "1e400",
    ".nan",
    "\\",
    "\\0",
    "\r",
    "\r\n",
    "\u{FEFF}",
    "\u{85}",
    "\u{2028}",
    "é",
    "kind: process\n",
    "name: a\n",
    "states: ",
    "initial_state: ",
    "transitions: ",
    "terminal_states: ",
    "gate_spec:\n",
    "from: ",
    "to: ",
    "action: ",
    "guard: ",
    "approvers: ",
    "quorum: ",
    "m: ",
    "rule: m-of-n",
    "kind: workflow\n",
    "steps:\n",
    "- {name: a",
    ", run: wait",
    ", dependsOn: [a",
    ", when: \"${",
    "steps.a.output",
    "}\"",
    "order: linear\n",
    "retryPolicy: {maxRetries: ",
    "schedule: [{cron: \"* * * * *\"}]\n",
    "compensation: ",
    "failurePolicy: fail-closed\n",
    "1h30m",
];

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = 0..2000usize;
    prop_oneof![
        (at.clone(), 0..8u8).prop_map(|(at, bit)| Mutation::Flip { at, bit }),
        (at.clone(), 1..40usize).prop_map(|(at, length)| Mutation::Delete { at, length }),
        (at.clone(), 1..80usize, at.clone()).prop_map(|(at, length, to)| Mutation::Duplicate { at, length, to }),
        (at, prop::sample::select(PIECES)).prop_map(|(at, piece)| Mutation::Insert { at, piece }),
    ]
}

fn mutate(text: &mut Vec<u8>, mutation: &Mutation) {
    let place = |at: usize, text: &[u8]| at % (text.len() + 1);
    let range = |at: usize, length: usize, text: &[u8]| {
        let start = place(at, text);
        start..(start + length).min(text.len())
    };
    match *mutation {
        Mutation::Flip { at, bit } => {
            let start = place(at, text);
            if let Some(byte) = text.get_mut(start) {
                *byte ^= 1 << bit;
            }
        }
        Mutation::Delete { at, length } => drop(text.drain(range(at, length, text))),
        Mutation::Duplicate { at, length, to } => {
            let piece = text[range(at, length, text)].to_vec();
            let to = place(to, text);
            text.splice(to..to, piece);
        }
        Mutation::Insert { at, piece } => {
            let at = place(at, text);
            text.splice(at..at, piece.bytes());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
    }

    #[test]
    fn any_text_is_answered(text in "\\PC{0,100}") {
        check(text.as_bytes());
    }

    #[test]
    fn any_heap_of_pieces_is_answered(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        check(pieces.concat().as_bytes());
    }

    #[test]
    fn a_damaged_definition_is_answered(
        (_, text) in prop::sample::select(SHIPPED),
        mutations in prop::collection::vec(mutation(), 1..8),
    ) {
        let mut bytes = text.as_bytes().to_vec();
        for mutation in &mutations {
            mutate(&mut bytes, mutation);
        }
        check(&bytes);
    }
}

#[test]
fn every_beginning_of_a_definition_is_answered() {
    for (_, text) in SHIPPED {
        for end in 0..text.len() {
            check(&text.as_bytes()[..end]);
        }
    }
}

#[test]
fn deep_nesting_is_refused_where_it_gets_too_deep() {
    for (piece, column) in [("[", 65), ("{a: ", 257), ("- ", 129), ("? ", 129), ("[{a: ", 161)] {
        for text in [piece.repeat(10_000), format!("{}{}", piece.repeat(10_000), "]".repeat(10_000))] {
            let problems = problems_of(&text);
            assert_eq!(problems.len(), 1);
            assert_eq!(
                (problems[0].code.as_str(), problems[0].line, problems[0].column),
                ("yaml-syntax", 1, column),
                "{piece}"
            );
        }
    }
    check(format!("{}1{}", "[".repeat(64), "]".repeat(64)).as_bytes());
}

#[test]
fn alias_bombs_are_refused_quickly() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..20 {
        bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
    }
    let started = Effort::begun();
    let problems = problems_of(&bomb);
    assert_eq!((problems.len(), problems[0].code.as_str()), (1, "yaml-syntax"));
    assert!(started.spent() < Duration::from_secs(10), "{:?}", started.spent());
    check(b"kind: &a [*a]\n");
}

/// A document with a list of transitions made by `line`, and a list of `states` besides.
fn long(states: usize, transitions: usize, line: impl Fn(usize) -> String) -> String {
    let names: Vec<String> = (0..states).map(|i| format!("{}{i}", "s".repeat(50))).collect();
    let lines: String = (0..transitions).map(line).collect();
    let states = names.join(", ");
    format!(
        "kind: process\nname: a\nstates: [s, {states}]\ninitial_state: s\nterminal_states: []\ntransitions:\n{lines}"
    )
}

/// A workflow of `count` steps with a field made by `field`.
fn workflow(count: usize, field: impl Fn(usize) -> String) -> String {
    let steps: String = (0..count).map(|i| format!("- {{name: s{i}, {}}}\n", field(i))).collect();
    format!("kind: workflow\nname: a\nsteps:\n{steps}")
}

/// Each step waits for the fifty before it, names one from far away, and one names what is below.
fn tangled(count: usize) -> String {
    workflow(count, |i| {
        let before: Vec<String> = (i.saturating_sub(50)..i).map(|j| format!("s{j}")).collect();
        let named = if i + 1 == count / 2 { count - 1 } else { i / 3 };
        format!("dependsOn: [{}], input: \"${{steps.s{named}.output}}\"", before.join(", "))
    })
}

/// A small text must not make for a long wait or a large answer.
#[test]
fn texts_that_are_made_to_cost_much_are_answered_in_good_time() {
    let unknown = |i| format!("  - {{from: s, action: a{i}, to: {}x{i}}}\n", "s".repeat(50));
    let misspelt = |i| format!("  - {{from: s, action: a{i}, to: s, {}: x}}\n", "g".repeat(64));
    let word = "w".repeat(1_000_000);
    let texts = [
        ("many states, many unknown", long(10_000, 10_000, unknown)),
        ("many unknown fields", long(1, 10_000, misspelt)),
        (
            "many unused gates",
            long(1, 1, unknown) + "gate_spec: {" + &(0..10_000).map(|i| format!("l{i}: 1, ")).collect::<String>() + "}",
        ),
        ("a long label with many problems", format!("? {word}\n: [{}]\n", ".nan, ".repeat(50_000))),
        (
            "a long approver list",
            format!("kind: process\ngate_spec:\n  ? {word}\n  : {{approvers: [{}]}}\n", "1, ".repeat(50_000)),
        ),
        ("a long text many times", format!("a: &a \"{word}\\n\"\nb: [{}]\n", "*a, ".repeat(50_000))),
        ("a long list", "- a\n".repeat(200_000)),
        ("many steps that name each other", tangled(2000)),
        ("one long cycle", workflow(30_000, |i| format!("dependsOn: [s{}]", (i + 1) % 30_000))),
        ("many unknown dependencies", workflow(20_000, |i| format!("dependsOn: [t{i}]"))),
        ("many broken expressions", workflow(20_000, |i| format!("when: \"${{{i} +}}\""))),
        (
            "many steps that are not upstream",
            workflow(20_000, |i| format!("when: \"${{steps.s{}.output}}\"", (i * 7919) % 20_000)),
        ),
        (
            "many schedules",
            format!(
                "kind: workflow\nname: a\nschedule:\n{}",
                "- {cron: \"0 0 30 2 *\", timeZone: Europe/X}\n".repeat(2000)
            ),
        ),
        ("many gates", workflow(20_000, |i| format!("gate: g{i}"))),
    ];
    for (what, text) in texts {
        let started = Effort::begun();
        let problems = problems_of(&text);
        let answer: usize = problems.iter().map(|problem| problem.path.len() + problem.message.len()).sum();
        assert!(started.spent() < Duration::from_secs(20), "{what}: {:?}", started.spent());
        assert!(problems.len() <= 1000 && answer < 1_000_000, "{what}: {} problems, {answer} bytes", problems.len());
    }
}
