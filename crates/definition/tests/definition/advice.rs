//! Warnings: what a workflow's author should think of again. They never refuse.

use crate::{SHIPPED, parsed, problems_of};
use countersign_definition::{ProblemCode, Severity};
use std::collections::BTreeSet;

/// The warnings of a workflow with this top level and these steps.
fn warned(top: &str, steps: &str) -> Vec<String> {
    let definition = parsed(&format!("kind: workflow\nname: w\norder: linear\n{top}\nsteps:\n{steps}\n"));
    definition.warnings.iter().map(|warning| format!("{} {}", warning.code, warning.path)).collect()
}

#[test]
fn steps_without_order_are_an_error_that_names_both_ways_out() {
    let problems = problems_of("kind: workflow\nname: w\nsteps: [{name: check}, {name: pay}]\n");
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert_eq!((problem.code, problem.line), (ProblemCode::MissingOrder, 3));
    assert!(
        problem.message.contains("say `order: linear`, or `order: dag` for steps that run side by side"),
        "{problem}"
    );
    for ordered in ["order: dag\n", "order: linear\n"] {
        parsed(&format!("kind: workflow\nname: w\n{ordered}steps: [{{name: check}}, {{name: pay}}]\n"));
    }
    parsed("kind: workflow\nname: w\nsteps: [{name: check}, {name: pay, dependsOn: [check]}, {name: side}]\n");
}

#[test]
fn the_definition_may_name_who_is_in_charge() {
    let text = "kind: workflow\nname: w\norder: linear\npic: '${input.owner}'\nsteps:\n  - {name: a, run: human}\n  \
                - {name: b, run: human, pic: ann, tasks: [{name: t, run: human}]}\n";
    let plan = crate::workflows::plan_of(text);
    let pics: Vec<_> = plan
        .steps
        .iter()
        .map(|step| &step.work)
        .chain(plan.steps[1].tasks.iter().map(|task| &task.work))
        .map(|work| match work {
            countersign_kernel::plan::Work::Human { pic: Some(pic) } => &*pic.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(pics, ["\"${input.owner}\"", "\"ann\"", "\"${input.owner}\""]);
}

#[test]
fn what_the_guidelines_advise_against_is_a_warning() {
    let many: String = (0..11).map(|n| format!("  - {{name: s{n}}}\n")).collect();
    let grouped: String = (0..11).map(|n| format!("  - {{name: s{n}, category: all}}\n")).collect();
    let undo = "timeout: 1h\ncompensation: [{step: a, action: x, agent: y}]";
    let undo_twice = "timeout: 1h\ncompensation: [{step: a, action: x, agent: y, idempotent: true}]";
    let post = "run: http, method: POST, url: 'https://x'";
    let gated = "timeout: 1h\ngate_spec: {go: {approver_ref: kim, scope: s}}";
    let cases: &[(&str, &str, &[&str])] = &[
        ("", "  - {name: a}", &["no-timeout steps[0].timeout"]),
        ("", "  - {name: a, timeout: 1h}\n  - {name: b}", &["no-timeout steps[1].timeout"]),
        ("", "  - {name: a, run: human, pic: kim, deadline: 1h}", &[]),
        ("", "  - {name: a, run: wait, event: e, timeout: 1h}\n  - {name: b, run: wait, for: 1h}", &[]),
        ("", "  - {name: a, run: wait, event: e}", &["no-timeout steps[0].timeout"]),
        ("timeout: 1h", "  - {name: a}", &[]),
        (undo, "  - {name: a}", &["compensation-not-idempotent compensation[0].idempotent"]),
        (undo_twice, "  - {name: a}", &[]),
        ("timeout: 1h", "  - {name: a, run: shell, command: x}", &["ungated-effect steps[0].gate"]),
        ("timeout: 1h", "  - {name: a, run: shell, command: x, readOnly: true}", &[]),
        ("timeout: 1h", &format!("  - {{name: a, {post}}}"), &["ungated-effect steps[0].gate"]),
        ("timeout: 1h", "  - {name: a, run: http, url: 'https://x'}", &[]),
        (undo_twice, &format!("  - {{name: a, {post}}}"), &[]),
        (gated, &format!("  - {{name: a, gate: go, {post}}}\n  - {{name: b, {post}}}"), &[]),
        ("timeout: 1h", &many, &["large-ungrouped steps"]),
        ("timeout: 1h", &grouped, &[]),
    ];
    let mut seen = BTreeSet::new();
    for (top, steps, expected) in cases {
        let warned = warned(top, steps);
        assert_eq!(warned, *expected, "{top}\n{steps}");
        seen.extend(warned.iter().filter_map(|warning| warning.split(' ').next().map(str::to_owned)));
    }
    let warnings = ProblemCode::ALL.iter().filter(|code| code.severity() == Severity::Warning);
    assert_eq!(seen, warnings.map(|code| code.as_str().to_owned()).collect());
}

/// In a graph, only what comes before counts as an approval.
#[test]
fn an_approval_beside_a_step_does_not_gate_it() {
    let text = "kind: workflow\nname: w\ntimeout: 1h\nsteps:\n  - {name: ask, run: approval, approver_ref: kim, scope: s}\n  \
                - {name: after, dependsOn: [ask], run: shell, command: x}\n  - {name: beside, run: shell, command: x}\n";
    let warnings = parsed(text).warnings;
    let paths: Vec<&str> = warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(paths, ["steps[2].gate"]);
}

#[test]
fn the_shipped_definitions_follow_the_guidelines() {
    // A backup is made before anybody is asked.
    let expected = |name: &str| if name == "db-migrate" { vec!["ungated-effect steps[1].gate"] } else { vec![] };
    for (name, text) in SHIPPED {
        let told = parsed(text)
            .warnings
            .iter()
            .map(|warning| format!("{} {}", warning.code, warning.path))
            .collect::<Vec<_>>();
        assert_eq!(told, expected(name), "{name}");
    }
}
