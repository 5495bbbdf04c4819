//! What the parser complains about, and that it reads what is written.

use super::*;

fn complaint(text: &str) -> String {
    parse("x.txt", text, |_| None).err().unwrap_or_default()
}

#[test]
fn complaints_name_file_and_line() {
    for (text, expected) in [
        ("\n\nqa fires B go -> done", "x.txt:3: no process `B` was started"),
        ("qa dances", "x.txt:1: nobody can `dances`"),
        ("definition unheard-of", "x.txt:1: no definition `unheard-of` is shipped"),
        ("  actor qa", "x.txt:1: an indented line"),
        ("declaration d:\n  states: a\n  go: a b", "x.txt:3: expected `->`, found `b`"),
        ("gates g:\n  L: ann, ben for s", "x.txt:2: expected `for`, found `ben`"),
        ("qa fires nowhere go", "x.txt:1: expected `->`, found `the end of the line`"),
        ("qa approves nowhere go -> released", "x.txt:1: `released` cannot come of this"),
        ("qa approves nowhere go step first -> approved", "x.txt:1: no gate was opened `as first`"),
        ("qa fires nowhere go -> not-known and more", "x.txt:1: `and` is not understood here"),
    ] {
        assert!(complaint(text).starts_with(expected), "{text}: {}", complaint(text));
    }
}

#[test]
fn a_declaration_and_its_gates_read_as_they_are_written() {
    let text = "declaration d:\n  states: a, b\n  initial: a\n  terminal: b\n  go: a -> b needs G\n\
                gates g:\n  G: 2 of ann, ben for \"x y\"\n\
                ann starts P on d for s with g because \"why not\" -> ok\n\
                over HTTP: ann gets /v1/processes?x=1 -> invalid-query at x\n";
    let scenario = parse("x.txt", text, |_| None).unwrap();
    let What::Act { act: Act::Start { start, .. }, expected: Expected::Ok, .. } = &scenario.lines[0].what else {
        panic!("{scenario:?}")
    };
    let Source::Declaration(declaration) = &start.from else { panic!("{start:?}") };
    assert_eq!(declaration.states, ["a", "b"]);
    assert_eq!(declaration.transitions[0].guard.as_deref(), Some("G"));
    let expected = GateEntry::Quorum {
        approvers: vec!["ann".into(), "ben".into()],
        rule: QuorumRule::MOfN { m: 2 },
        scope: "x y".into(),
        delegable: false,
    };
    assert_eq!(start.gate_spec.0["G"], expected);
    assert_eq!(start.reason.as_deref(), Some("why not"));
    assert!(scenario.lines[1].only_over_http);
    assert_eq!(scenario.lines[1].number, 9);
}
