//! What an author sees in the terminal.

use crate::problems_of;
use countersign_definition::render;

#[test]
fn problems_are_shown_with_file_line_column_and_caret() {
    let text = "\
kind: process
name: leave-request
states: [draft, granted]
initial_state: drafft
terminal_states: [granted]
transitions:
  - {from: draft, action: grant, to: \"grantéd\", gaurd: manager}
";
    let expected = "\
error[unknown-state]: `drafft` is not one of the declared states; did you mean `draft`?
 --> leave.yaml:4:16
  |
4 | initial_state: drafft
  |                ^^^^^^ initial_state

error[unknown-state]: `grantéd` is not one of the declared states; did you mean `granted`?
 --> leave.yaml:7:38
  |
7 |   - {from: draft, action: grant, to: \"grantéd\", gaurd: manager}
  |                                      ^^^^^^^^^ transitions[0].to

error[unknown-field]: unknown field `gaurd`; did you mean `guard`?
 --> leave.yaml:7:49
  |
7 |   - {from: draft, action: grant, to: \"grantéd\", gaurd: manager}
  |                                                 ^^^^^ transitions[0].gaurd
";
    assert_eq!(render("leave.yaml", text, &problems_of(text), false), expected);
}

#[test]
fn nothing_to_report_is_shown_as_nothing() {
    assert_eq!(render("leave.yaml", "kind: process\n", &[], false), "");
}

#[test]
fn colour_is_only_used_when_asked_for() {
    let text = "kind: machine\n";
    let problems = problems_of(text);
    assert!(render("d.yaml", text, &problems, true).contains("\u{1b}["));
    assert!(!render("d.yaml", text, &problems, false).contains('\u{1b}'));
}

#[test]
fn a_document_cannot_write_to_the_terminal() {
    for text in [
        "kind: \"\u{9b}31m\"\n",
        "kind: process\n\"\\e[2J\\x9b31m\": x\n",
        "kind: \"\\e[2J\"\n",
        "# \u{1b}[2J\nkind: [\n",
    ] {
        let rendered = render("\u{1b}[2Jd.yaml", text, &problems_of(text), false);
        assert!(!rendered.chars().any(|c| c.is_control() && c != '\n'), "{rendered:?}");
    }
}

#[test]
fn the_end_of_the_text_can_be_pointed_at() {
    for text in ["", "# nothing but this\n", "kind: \"process", "\u{FEFF}"] {
        let problems = problems_of(text);
        let rendered = render("d.yaml", text, &problems, false);
        assert!(rendered.contains(&format!("d.yaml:{}:{}", problems[0].line, problems[0].column)), "{rendered}");
        assert!(rendered.contains('^'), "{rendered}");
    }
}

/// What stands under the caret, of the first problem.
fn marked(text: &str) -> String {
    let rendered = render("d.yaml", text, &problems_of(text)[..1], false);
    let lines: Vec<&str> = rendered.lines().collect();
    let (source, carets) = (lines[3], lines[4]);
    let start = carets.find('^').expect("a caret");
    source.chars().skip(start).take(carets.matches('^').count()).collect()
}

#[test]
fn the_caret_is_under_what_is_wrong_all_of_it_and_nothing_else() {
    const STEPS: &str = "kind: workflow\nname: w\nsteps:\n";
    for (line, expected) in [
        ("  - {name: a, retryPolicy: {maxRetries: -1}}", "-1"),
        ("  - {name: a, run: http, url: htp://x}", "htp://x"),
        ("  - {name: a, run: wait, for: 5s, until: 2027-01-01T00:00:00Z}", "2027-01-01T00:00:00Z"),
        ("  - {name: a, when: '${input.x = 3}'}", "="),
        ("  - {name: a, when: \"${input.x == 'a' && }\"}", "&&"),
        ("  - {name: a, input: [1, \"a ${inptu.x}\"]}", "inptu"),
        ("  - {name: a, when: \"${steps.a-b.output == 1}\"}", "a-b"),
        ("  - {name: a, when: \"${'\\u00e9' == secrets.x}\"}", "secrets"),
        ("  - {name: a, when: \"${steps.zz.output}\"}", "zz"),
        ("  - {name: a, when: '${steps[\"zz\"].output}'}", "\"zz\""),
        ("  - {name: a, input: \"x ${input.x\"}", "${"),
        ("  - {name: a, inputSchema: {type: objct}}", "objct"),
    ] {
        assert_eq!(marked(&format!("{STEPS}{line}\n")), expected, "{line}");
    }
    let schedule = "kind: workflow\nname: w\nschedule:\n  - cron: \"0 6 * 13 *\"\nsteps: [{name: a}]\n";
    assert_eq!(marked(schedule), "13");
}
