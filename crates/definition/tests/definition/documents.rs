//! Sound documents, and what they come to.

use crate::{SHIPPED, parsed, problems_of, process};
use countersign_definition::{Body, Definition, Kind};
use countersign_kernel::{GateEntry, PublishedGate, QuorumRule};

fn minimal(states: &str) -> String {
    format!("kind: process\nname: x\nstates: {states}\ninitial_state: start\nterminal_states: []\ntransitions: []\n")
}

#[test]
fn the_shipped_definitions_are_sound_and_named_after_their_files() {
    for (file, text) in SHIPPED {
        let definition = parsed(text);
        assert_eq!(definition.name, *file);
        if definition.kind == Kind::Process {
            let (declaration, gate_spec) = process(&definition);
            declaration.validate().expect("a sound declaration");
            gate_spec.validate_shape().expect("sound gates");
            gate_spec.validate_coverage(declaration).expect("an approver for every guard");
        }
        assert!(text.starts_with("# "), "{file} begins with a comment that says what it shows");
    }
}

#[test]
fn every_file_among_the_definitions_is_checked_here() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../definitions");
    let mut unchecked = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder of definitions") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a definition");
        if !SHIPPED.iter().any(|(_, shipped)| *shipped == text) {
            unchecked.push(path);
        }
    }
    assert!(unchecked.is_empty(), "{unchecked:?}");
}

#[test]
fn a_definition_holds_what_was_written_in_the_order_it_was_written() {
    let (_, text) = SHIPPED.iter().find(|(name, _)| *name == "batch-release").expect("batch-release");
    let definition = parsed(text);
    let (declaration, gate_spec) = process(&definition);
    assert_eq!(declaration.states, ["sampled", "testing", "qp-review", "released", "rejected"]);
    assert_eq!(declaration.initial_state, "sampled");
    assert_eq!(declaration.terminal_states, ["released", "rejected"]);
    assert_eq!(declaration.guard_labels(), ["QP-sign-off", "QP-rejection"]);
    let release = declaration.transition("qp-review", "release").expect("the release");
    assert_eq!((release.to_state.as_str(), release.guard.as_deref()), ("released", Some("QP-sign-off")));
    assert_eq!(
        gate_spec.0["QP-sign-off"],
        GateEntry::Single {
            approver_ref: "qp_director_santos".into(),
            scope: "pharma:batch-release:qp-sign-off".into(),
            delegable: false,
        }
    );
    assert_eq!(definition.retention.as_deref(), Some("fda_part_11_predicate_rule"));
}

#[test]
fn quorums_are_read_with_their_rule() {
    for (quorum, rule) in [
        ("{rule: all-of-n}", QuorumRule::AllOfN),
        ("{rule: one-of-n}", QuorumRule::OneOfN),
        ("{rule: m-of-n, m: 2}", QuorumRule::MOfN { m: 2 }),
    ] {
        let text = minimal("[start, end]")
            .replace("transitions: []", "transitions: [{from: start, action: go, to: end, guard: g}]")
            + &format!("gate_spec:\n  g: {{approvers: [a, b, c], quorum: {quorum}, scope: s}}\n");
        let expected = GateEntry::Quorum {
            approvers: vec!["a".into(), "b".into(), "c".into()],
            rule,
            scope: "s".into(),
            delegable: false,
        };
        assert_eq!(process(&parsed(&text)).1.0["g"], expected);
    }
}

#[test]
fn a_guard_may_wait_for_its_approver_until_the_start() {
    let text = minimal("[start]")
        .replace("transitions: []", "transitions: [{from: start, action: again, to: start, guard: g}]")
        + "gate_spec:\n  g: {scope: s, replaceable: true}\n";
    let definition = parsed(&text);
    let Body::Process { gate_spec, .. } = &definition.body else { panic!("a process") };
    assert_eq!(gate_spec.0["g"], PublishedGate::Open { scope: "s".into(), self_approval: false, delegable: false });
    assert_eq!(definition.retention, None);
}

#[test]
fn words_that_were_once_booleans_are_states() {
    let definition = parsed(&minimal("[start, no, yes, on, off, y, n]"));
    assert_eq!(process(&definition).0.states, ["start", "no", "yes", "on", "off", "y", "n"]);
}

#[test]
fn a_description_is_allowed_and_ignored() {
    let plain = minimal("[start]");
    let described = format!("description: |\n  What this is for.\n{plain}");
    assert_eq!(parsed(&described), parsed(&plain));
}

#[test]
fn names_are_letters_first_and_may_have_dots() {
    let longest = "a".repeat(64);
    for name in ["a", "order.process", "A-1_b.c", longest.as_str()] {
        assert_eq!(parsed(&minimal("[start]").replace("name: x", &format!("name: {name}"))).name, name);
    }
    for name in ["\"\"", "1a", "-a", "a b", "a.", ".a", "a..b", "é", "a/b", &"a".repeat(65)] {
        let problems = problems_of(minimal("[start]").replace("name: x", &format!("name: {name}")));
        assert_eq!((problems.len(), problems[0].path.as_str()), (1, "name"), "{name}");
    }
}

#[test]
fn json_and_yaml_say_the_same() {
    for (_, text) in SHIPPED {
        let value: serde_json::Value = serde_saphyr::from_str(text).expect("YAML");
        let compact = value.to_string();
        let pretty = serde_json::to_string_pretty(&value).expect("JSON");
        for json in [
            &compact,
            &pretty,
            &pretty.replace("  ", "\t"),
            &format!("\u{FEFF}{pretty}\n"),
            &pretty.replace('\n', "\r\n"),
        ] {
            assert!(without_places(parsed(json)) == without_places(parsed(text)), "{json}");
        }
    }
}

/// A warning names a line and a column, which the form of the document decides.
fn without_places(mut definition: Definition) -> Definition {
    for warning in &mut definition.warnings {
        (warning.line, warning.column, warning.width) = (0, 0, None);
    }
    definition
}

#[test]
fn json_escapes_mean_what_they_mean_in_json() {
    let states = r#"["start", "\u00e9\/\"\\", "\ud83d\ude00"]"#;
    assert_eq!(process(&parsed(&minimal(states))).0.states, ["start", "é/\"\\", "😀"]);
}

#[test]
fn many_comments_and_all_line_ends_are_fine() {
    let plain = minimal("[start]");
    let comments = "# a line of the licence\n".repeat(500);
    for text in
        [format!("{comments}{plain}{comments}"), plain.replace('\n', "\r\n"), format!("---\n{plain}...\n# the end\n")]
    {
        assert_eq!(parsed(&text), parsed(&plain));
    }
}

#[test]
fn anchors_and_aliases_may_be_used() {
    let text = minimal("&all [start, end]")
        .replace("initial_state: start", "initial_state: &first start")
        .replace("transitions: []", "transitions: [{from: *first, action: go, to: end}]");
    assert_eq!(process(&parsed(&text)).0.transitions[0].from_state, "start");
}

#[test]
fn the_guide_shows_definitions_that_are_sound() {
    let guide = include_str!("../../../../docs/guides/expressions.md");
    let shown: Vec<&str> = guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(shown.len(), 2);
    shown.into_iter().for_each(|document| drop(parsed(document)));
}

/// Who approves the next version is no gate of what is started: no guard needs the label, and no start runs under it.
#[test]
fn labels_that_govern_the_definition_need_no_guard() {
    let entry = "{approver_ref: kim, scope: s}";
    let process = format!(
        "kind: process\nname: p\nstates: [a, b]\ninitial_state: a\nterminal_states: [b]\n\
         transitions: [{{from: a, action: go, to: b, guard: g}}]\ngate_spec: {{g: {entry}, publish: {entry}, replay: {entry}}}\n"
    );
    let guarded = process.replace("guard: g", "guard: publish").replace(&format!("g: {entry}, "), "");
    let workflow =
        format!("kind: workflow\nname: w\nqueue: q\ngate_spec: {{publish: {entry}}}\nsteps: [{{name: A}}]\n");
    for (text, labels) in [(&process, &["g"][..]), (&guarded, &["publish"]), (&workflow, &[])] {
        let command = crate::parsed(text).published_as(text.as_str(), |_| countersign_kernel::Digest([0; 32]));
        let known: Vec<&str> = command.gate_spec.0.keys().map(String::as_str).collect();
        assert_eq!(known, labels, "{text}");
        let publish = command.publish.expect("who approves the next version");
        assert_eq!(publish.preset().expect("an entry").approvers(), ["kim"]);
    }
}
