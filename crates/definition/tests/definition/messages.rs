//! What newcomers get wrong, and the words that they are told: what it is, and what to write instead.

use crate::problems_of;

const START: &str = "kind: workflow\nname: w\n";

/// The one problem of a workflow, and the place that is marked.
fn told(rest: &str) -> String {
    let problems = problems_of(format!("{START}{rest}"));
    assert_eq!(problems.len(), 1, "{rest}\n{problems:?}");
    problems[0].message.clone()
}

#[test]
fn slips_in_expressions_are_told_with_what_to_write() {
    for (expression, expected) in [
        ("input.x = 3", "`input.x = 3` is not an expression: one `=` does not compare; did you mean `==`?"),
        ("input.x == && 3", "`input.x == && 3` is not an expression: a value is missing before `&&`"),
        ("input.a and input.b", "`input.a and input.b` is not an expression: did you mean `&&`?"),
        ("{ input.x }", "`{ input.x }` is not an expression: one pair of braces is enough: `${input.x}`"),
        (
            "len(input.x) > 0",
            "`len(input.x) > 0` is not an expression: there is no function `len`; did you mean `size`?",
        ),
        (
            "steps.get-it.output",
            "there is no variable `it`; a name with a dash stands in brackets: write `steps[\"get-it\"]`",
        ),
        (
            "input.order-id",
            "there is no variable `id`; a name with a dash stands in brackets: write `input[\"order-id\"]`",
        ),
        ("steps.GET.output", "there is no step `GET`; did you mean `get`?"),
        ("get.output.x", "there is no variable `get`; did you mean `steps.get`?"),
        ("steps.get.outputs.x", "there is no `outputs` of a step; did you mean `output`?"),
        ("steps.get.body", "there is no `body` of a step; a step has `output` and `state_code`"),
        ("input.x == \"y", "this quotation is never closed, and so the `${` before it is not either"),
        (
            "steps.check-run.output",
            "there is no step `check`; a name with a dash stands in brackets: write `steps[\"check-run\"]`",
        ),
    ] {
        let steps = format!(
            "steps:\n  - name: get\n  - name: check-run\n  - {{name: b, dependsOn: [get, check-run], input: '${{{expression}}}'}}\n"
        );
        assert_eq!(told(&steps), expected);
    }
}

#[test]
fn what_yaml_takes_for_its_own_is_to_be_quoted() {
    for (rest, expected) in [
        ("steps:\n  - {name: a, input: ${input.x}}\n", "in `{ }` a `${…}` must be quoted: `\"${input.x}\"`"),
        (
            "steps:\n  - {name: a, when: ${input.x == \"b\"}}\n",
            "in `{ }` a `${…}` must be quoted: `'${input.x == \"b\"}'`",
        ),
        ("steps:\n  - {name: a, input: [1, ${input.x}]}\n", "in `[ ]` a `${…}` must be quoted: `\"${input.x}\"`"),
        (
            "steps:\n  - name: a\n    input: ${input.x ? 'a' : 'b'}\n",
            "a `${…}` that holds `: ` must be quoted: `\"${input.x ? 'a' : 'b'}\"`",
        ),
        (
            "steps:\n  - name: a\n    when: ${input.x == ' #3'}\n",
            "this quotation is never closed; if a ` #` follows, quote the whole value",
        ),
        (
            "steps:\n  - name: a\n    when: \"${input.x == \"y\"}\"\n",
            "the quotation has ended before this; inside of `\"…\"` write `'`, or `\\\"`",
        ),
        ("steps:\n  - name: a\n    input: @x\n", "a value cannot begin with `@`; put it in quotes"),
        (
            "steps:\n  - name: a\n    input: {{input.x}}\n",
            "a key must be a string, not a mapping; an expression is written `\"${…}\"`",
        ),
    ] {
        assert_eq!(told(rest), expected);
    }
}

#[test]
fn what_a_shell_is_to_read_is_told_how_to_be_written() {
    for (command, expected) in [
        ("echo ${HOME}", "there is no variable `HOME`; for the shell's own, write `$HOME`, or `${'$'}{HOME}`"),
        (
            "echo ${HOME:-x}",
            "`HOME:-x` is not an expression: a `:` needs a `?` before it; for the shell's own, write `${'$'}{HOME:-x}`",
        ),
        ("echo ${inptu.x}", "there is no variable `inptu`; did you mean `input`?"),
    ] {
        assert_eq!(told(&format!("steps:\n  - {{name: a, run: shell, command: \"{command}\"}}\n")), expected);
    }
    crate::parsed(&format!("{START}steps:\n  - {{name: a, run: shell, command: \"echo ${{'$'}}{{HOME}}\"}}\n"));
}

#[test]
fn a_constant_that_was_meant_as_an_expression_is_refused() {
    assert_eq!(
        told("correlationKey: input.order_id\nsteps: [{name: a}]\n"),
        "`input.order_id` is a text here, the same for every run; write `${input.order_id}`"
    );
    // One that is meant is legal.
    for key in ["nightly", "input", "inputs.csv", "invoice ${input.order_id}"] {
        crate::parsed(&format!("{START}correlationKey: {key}\nsteps: [{{name: a}}]\n"));
    }
}

#[test]
fn an_unknown_field_is_answered_with_those_of_its_run() {
    let all = "`name`, `run`, `dependsOn`, `when`, `input`, `output`, `inputSchema`, `outputSchema`, `retryPolicy`, \
               `timeout`, `deadline`, `onFailure`, `optional`, `readOnly`, `idempotent`, `gate`, `request`, `checks`, \
               `pins`, `softCap`, `state`, `category`, `errors`, `priority`";
    for (run, own) in [
        ("", ", `scheduleToStart`, `tasks` and `queue`"),
        ("run: shell, command: x, ", ", `command`, `env`, `artifacts`, `success` and `retry`"),
        ("run: wait, for: 5s, ", ", `event`, `for` and `until`"),
    ] {
        let message = told(&format!("steps: [{{name: a, {run}description: x}}]\n"));
        assert_eq!(message, format!("unknown field `description`; the fields here are {all}{own}"));
    }
    assert_eq!(
        told("steps: [{name: a, run: http, url: 'http://x', methd: GET}]\n"),
        "unknown field `methd`; did you mean `method`?"
    );
}

#[test]
fn what_other_formats_call_it_is_known() {
    for (rest, expected) in [
        ("steps: [{name: a, retries: 3}]\n", "unknown field `retries`; did you mean `retryPolicy`?"),
        ("steps: [{name: a, run: shell, script: ls}]\n", "unknown field `script`; did you mean `command`?"),
        (
            "steps: [{name: a, run: approval, approver: k, scope: s}]\n",
            "unknown field `approver`; did you mean `approver_ref`?",
        ),
        ("onFailure: abort\nsteps: [{name: a}]\n", "unknown field `onFailure`; did you mean `failurePolicy`?"),
        ("steps: [{name: a, when: yes}]\n", "`yes` is not an expression; write `true` or `false`"),
        ("steps: [{name: a, when: input.x > 3}]\n", "`input.x > 3` is not an expression; write `${input.x > 3}`"),
        ("schedule: 0 6 * * *\nsteps: [{name: a}]\n", "expected a list such as `[{cron: 0 6 * * *}]`, found a string"),
        ("steps: {name: a}\n", "expected a list of steps, each with a `-` before it, found a mapping"),
        (
            "steps: [{name: a, gate: {approver_ref: k, scope: s}}]\n",
            "expected the label of an entry in gate_spec, found a mapping",
        ),
    ] {
        assert_eq!(told(rest), expected);
    }
}

#[test]
fn schemas_and_schedules_are_told_in_the_words_of_the_format() {
    for (rest, expected) in [
        (
            "inputSchema: {type: objct}\nsteps: [{name: a}]\n",
            "`objct` is not a type of JSON Schema; did you mean `object`? The types are `array`, `boolean`, `integer`, \
             `null`, `number`, `object` and `string`",
        ),
        ("schedule: [{cron: 61 6 * * *}]\nsteps: [{name: a}]\n", "minute 61 is out of range, 0 to 59"),
        (
            "schedule: [{cron: 0 0 6 * * *}]\nsteps: [{name: a}]\n",
            "six fields; there are no seconds here, only minute, hour, day, month and day of the week",
        ),
    ] {
        assert_eq!(told(rest), expected);
    }
}
