//! One sound workflow, and what each way of spoiling it is answered with: exactly these problems.

use crate::problems::{Case, check, replaced};
use crate::{listed, parsed};
use countersign_definition::{Deployment, Problem, parse, parse_resolved};
use std::collections::BTreeSet;

const SOUND: &str = "\
kind: workflow
name: order.flow
failurePolicy: compensate
timeout: 1h
gate_spec:
  lead: {approver_ref: kim, scope: s}
steps:
  - {name: a, gate: lead}
  - {name: b, dependsOn: [a], readOnly: true}
  - {name: c, dependsOn: [a]}
  - {name: d, dependsOn: [b, c], run: workflow, workflow: child}
compensation:
  - {step: a, action: Undo it, agent: undoer}
";

/// A runbook, from which all that is not allowed in one is to be kept.
const CLOSED: &str = "\
kind: workflow
name: cut
order: linear
failurePolicy: fail-closed
hardCap: 1h
gate_spec: {sovereign: {approver_ref: owner, scope: cut}}
steps:
  - {name: plan, softCap: 10m}
  - {name: cut, gate: sovereign}
";

/// Here a definition `child` is published, in two versions, and `open`, which is not fail-closed.
struct Here;

impl Deployment for Here {
    fn workflow(&mut self, name: &str, version: Option<u32>) -> Option<u32> {
        ["child", "open"].contains(&name).then(|| version.unwrap_or(2)).filter(|version| *version <= 2)
    }

    fn is_fail_closed(&self, name: &str, _: u32) -> bool {
        name != "open"
    }
}

fn problems_of(text: &str) -> Vec<Problem> {
    parse_resolved(text.as_bytes(), &mut Here).expect_err(text)
}

const TOP: &[Case] = &[
    // Two gates of one name, or of one label.
    (
        6..=10,
        "  lead: {approver_ref: kim, scope: s}\n  approval:c: {approver_ref: kim, scope: s}\nsteps:\n  - {name: a, gate: lead}\n  \
         - {name: b, dependsOn: [a], readOnly: true, gate: approval:c}\n  \
         - {name: c, dependsOn: [a], run: approval, approver_ref: lee, scope: s}",
        &[("bad-value", "gate_spec.approval:c", 7, 3)],
    ),
    (
        6..=8,
        "  lead: {approver_ref: kim, scope: s}\n  cancel: {approver_ref: kim, scope: s}\nsteps:\n  - {name: a, gate: lead}\n  \
         - {name: cancel, gate: lead}",
        &[("bad-value", "steps[1].name", 10, 12)],
    ),
    (
        6..=8,
        "  lead: {approver_ref: kim, scope: s}\n  cancel: {approver_ref: kim, scope: s}\nsteps:\n  - {name: a, gate: lead}\n  \
         - {name: cancel, run: approval, approver_ref: lee, scope: s}",
        &[("bad-value", "steps[1].name", 10, 12)],
    ),
    (4..=4, "timeuot: 1h", &[("unknown-field", "timeuot", 4, 1)]),
    (4..=4, "timeout: 1h\ntimeout: 2h", &[("duplicate-key", "timeout", 5, 1)]),
    (4..=4, "timeout: a: b", &[("yaml-syntax", "", 4, 11)]),
    (4..=4, "timeout: 60", &[("bad-value", "timeout", 4, 10)]),
    (4..=4, "timeout: 30m1h", &[("bad-value", "timeout", 4, 10)]),
    (4..=4, "timeout: 0s", &[("bad-value", "timeout", 4, 10)]),
    (4..=4, "order: circular", &[("bad-value", "order", 4, 8)]),
    (4..=4, "priority: 10", &[("bad-value", "priority", 4, 11)]),
    (4..=4, "machine: a b", &[("bad-value", "machine", 4, 10)]),
    (4..=4, "machine: mine@0", &[("bad-value", "machine", 4, 10)]),
    (4..=4, "queue: a b", &[("bad-value", "queue", 4, 8)]),
    (4..=4, "concurrency: {key: x}", &[("missing-field", "concurrency.limit", 4, 14)]),
    (4..=4, "concurrency: {key: x, limit: 0}", &[("bad-value", "concurrency.limit", 4, 30)]),
    (4..=4, "queues: {q: {rateLimit: {count: 1}}}", &[("missing-field", "queues.q.rateLimit.per", 4, 25)]),
    (4..=4, "queues: {a.b: {limit: 1}}", &[("bad-value", "queues.a.b", 4, 10)]),
    (4..=4, "blockedEscalation: {after: soon}", &[("bad-value", "blockedEscalation.after", 4, 28)]),
    (4..=4, "inputSchema: {type: thing}", &[("bad-value", "inputSchema.type", 4, 21)]),
    (
        4..=4,
        "inputSchema: {properties: {a: {type: [string, nul]}}}",
        &[("bad-value", "inputSchema.properties.a.type", 4, 38)],
    ),
    (4..=4, "inputSchema: {$ref: \"https://example.com/s\"}", &[("bad-value", "inputSchema.$ref", 4, 21)]),
    (4..=4, "retention: ''", &[("blank", "retention", 4, 12)]),
    (4..=4, "description: [x]", &[("bad-value", "description", 4, 14)]),
    (7..=11, "", &[("missing-field", "steps", 1, 1)]),
    (3..=13, "steps: []", &[("no-steps", "steps", 3, 8)]),
    (3..=13, "steps: {a: {}}", &[("bad-value", "steps", 3, 8)]),
    (4..=4, "schedule: [{cron: \"0 61 * * *\"}]", &[("bad-cron", "schedule[0].cron", 4, 22)]),
    (4..=4, "schedule: [{cron: \"0 0 30 2 *\"}]", &[("bad-cron", "schedule[0].cron", 4, 19)]),
    (4..=4, "schedule: [{cron: '0 0 6 * * *'}]", &[("bad-cron", "schedule[0].cron", 4, 19)]),
    (4..=4, "schedule: [{cron: 0 6 * * MOM}]", &[("bad-cron", "schedule[0].cron", 4, 27)]),
    (4..=4, "correlationKey: input.order_id", &[("bad-expression", "correlationKey", 4, 17)]),
    (4..=4, "concurrency: {key: input.customer, limit: 1}", &[("bad-expression", "concurrency.key", 4, 20)]),
    (4..=4, "schedule: [{cron: daily}]", &[("bad-cron", "schedule[0].cron", 4, 19)]),
    (
        4..=4,
        "schedule: [{cron: \"@daily\", timeZone: Europe/Berln}]",
        &[("bad-time-zone", "schedule[0].timeZone", 4, 39)],
    ),
    (4..=4, "schedule: [{cron: \"@daily\", overlap: drop}]", &[("bad-value", "schedule[0].overlap", 4, 38)]),
    (4..=4, "on: [{input: 1}]", &[("missing-field", "on[0].event", 4, 6)]),
    (4..=4, "hardCap: 1h", &[("fail-closed-violation", "hardCap", 4, 10)]),
];

const STEPS: &[Case] = &[
    (10..=10, "  - c", &[("bad-value", "steps[2]", 10, 5)]),
    (10..=10, "  - {dependsOn: [a]}", &[("missing-field", "steps[2].name", 10, 5)]),
    // The name hides behind a slip, so that nobody is told that `c` is not there.
    (10..=10, "  - {nmae: c, dependsOn: [a]}", &[("unknown-field", "steps[2].nmae", 10, 6)]),
    (10..=10, "  - {name: a.c, dependsOn: [a]}", &[("bad-value", "steps[2].name", 10, 12)]),
    (10..=10, "  - {name: c}\n  - {name: c}", &[("duplicate-step", "steps[3].name", 11, 12)]),
    (10..=10, "  - {name: c, dependsOn: a}", &[("bad-value", "steps[2].dependsOn", 10, 26)]),
    (10..=10, "  - {name: c, dependsOn: [a, a]}", &[("bad-value", "steps[2].dependsOn[1]", 10, 30)]),
    (10..=10, "  - {name: c, dependsOn: [aa]}", &[("unknown-dependency", "steps[2].dependsOn[0]", 10, 27)]),
    (10..=10, "  - {name: c, dependsOn: [c]}", &[("dag-cycle", "steps[2].dependsOn[0]", 10, 27)]),
    (10..=10, "  - {name: c, dependsOn: [a, d]}", &[("dag-cycle", "steps[2].dependsOn[1]", 10, 30)]),
    (
        8..=8,
        "  - {name: a, gate: lead, dependsOn: [c]}",
        &[("no-root", "steps", 8, 3), ("dag-cycle", "steps[0].dependsOn[0]", 8, 39)],
    ),
    (
        10..=10,
        "  - {name: c, dependsOn: [e]}\n  - {name: e, dependsOn: [c]}\n  - {name: f, dependsOn: [e]}",
        &[("dag-cycle", "steps[2].dependsOn[0]", 10, 27), ("unreachable-step", "steps[4].name", 12, 12)],
    ),
    (
        4..=4,
        "order: linear",
        &[
            ("linear-depends-on", "steps[1].dependsOn", 9, 26),
            ("linear-depends-on", "steps[2].dependsOn", 10, 26),
            ("linear-depends-on", "steps[3].dependsOn", 11, 26),
        ],
    ),
    // Several steps, and not a word on which goes first.
    (
        9..=11,
        "  - {name: b, readOnly: true}\n  - {name: c}\n  - {name: d, run: workflow, workflow: child}",
        &[("missing-order", "order", 7, 1)],
    ),
    // The word hides behind a slip.
    (
        9..=11,
        "  - {name: b, dependOn: [a], readOnly: true}\n  - {name: c}",
        &[("unknown-field", "steps[1].dependOn", 9, 15)],
    ),
    (
        8..=8,
        "  - {name: a, gate: leed}",
        &[("unused-gate", "gate_spec.lead", 6, 3), ("unknown-gate", "steps[0].gate", 8, 21)],
    ),
    (10..=10, "  - {name: c, dependsOn: [a], gate: boss}", &[("unknown-gate", "steps[2].gate", 10, 37)]),
    (8..=8, "  - {name: a}", &[("unused-gate", "gate_spec.lead", 6, 3)]),
    // The gate hides behind a slip, so that its entry is not called unused.
    (8..=8, "  - {name: a, gaet: lead}", &[("unknown-field", "steps[0].gaet", 8, 15)]),
    (
        6..=6,
        "  lead: {approvers: [kim], quorum: {rule: m-of-n, m: 2}, scope: s}",
        &[("bad-quorum", "gate_spec.lead.quorum.m", 6, 54)],
    ),
    (
        6..=6,
        "  lead: {approver_ref: \"${input.boss}\", scope: s}",
        &[("bad-expression", "gate_spec.lead.approver_ref", 6, 24)],
    ),
    (10..=10, "  - {name: c, optional: maybe}", &[("bad-value", "steps[2].optional", 10, 25)]),
    (10..=10, "  - {name: c, onFailure: retry}", &[("bad-value", "steps[2].onFailure", 10, 26)]),
    (10..=10, "  - {name: c, errors: {external: hold}}", &[("bad-value", "steps[2].errors.external", 10, 34)]),
    (10..=10, "  - {name: c, scheduleToStart: soon}", &[("bad-value", "steps[2].scheduleToStart", 10, 32)]),
    (
        10..=10,
        "  - {name: c, run: shell, command: x, scheduleToStart: 5s}",
        &[("field-not-for-run", "steps[2].scheduleToStart", 10, 39)],
    ),
    (10..=10, "  - {name: c, deadline: -5s}", &[("bad-value", "steps[2].deadline", 10, 25)]),
    (10..=10, "  - {name: c, softCap: 5s}", &[("fail-closed-violation", "steps[2].softCap", 10, 24)]),
    (10..=10, "  - {name: c, state: done}", &[("fail-closed-violation", "steps[2].state", 10, 22)]),
    (
        10..=10,
        "  - {name: c, run: shell, command: x, artifacts: [x]}",
        &[("fail-closed-violation", "steps[2].artifacts", 10, 50)],
    ),
    (
        10..=10,
        "  - {name: c, artifacts: [x]}",
        &[("field-not-for-run", "steps[2].artifacts", 10, 15), ("fail-closed-violation", "steps[2].artifacts", 10, 26)],
    ),
    (10..=10, "  - {name: c, request: {a: 1}}", &[("bad-value", "steps[2].request", 10, 24)]),
    (10..=10, "  - {name: c, gate: lead, request: 1}", &[("bad-value", "steps[2].request", 10, 36)]),
    (
        10..=10,
        "  - {name: c, gate: lead, request: {a: \"${steps.zz.output}\"}}",
        &[("bad-expression", "steps[2].request.a", 10, 49)],
    ),
    (
        10..=10,
        "  - {name: c, run: shell, command: x, tasks: [{name: t}]}",
        &[("field-not-for-run", "steps[2].tasks", 10, 39)],
    ),
    (10..=10, "  - {name: c, tasks: [{name: t}, {name: t}]}", &[("bad-value", "steps[2].tasks[1].name", 10, 41)]),
    (
        10..=10,
        "  - {name: c, tasks: [{name: t, run: worker, pic: kim}]}",
        &[("field-not-for-run", "steps[2].tasks[0].pic", 10, 46)],
    ),
    (
        10..=10,
        "  - {name: c, checks: {not a name: \"${true}\"}}",
        &[("bad-value", "steps[2].checks.not a name", 10, 24)],
    ),
    (10..=10, "  - {name: c, pins: {p: {run: worker}}}", &[("fail-closed-violation", "steps[2].pins", 10, 21)]),
];

const WORK: &[Case] = &[
    (10..=10, "  - {name: c, run: magic}", &[("bad-value", "steps[2].run", 10, 20)]),
    (10..=10, "  - {name: c, url: \"https://x\"}", &[("field-not-for-run", "steps[2].url", 10, 15)]),
    (10..=10, "  - {name: c, run: shell, command: ls, queue: q}", &[("field-not-for-run", "steps[2].queue", 10, 40)]),
    (10..=10, "  - {name: c, run: human, event: e, pic: kim}", &[("field-not-for-run", "steps[2].event", 10, 27)]),
    (10..=10, "  - {name: c, run: shell}", &[("missing-field", "steps[2].command", 10, 5)]),
    (10..=10, "  - {name: c, run: shell, comand: ls}", &[("unknown-field", "steps[2].comand", 10, 27)]),
    (10..=10, "  - {name: c, run: shell, command: []}", &[("bad-value", "steps[2].command", 10, 36)]),
    (10..=10, "  - {name: c, run: shell, command: [ls, 1]}", &[("bad-value", "steps[2].command[1]", 10, 41)]),
    (
        10..=10,
        "  - {name: c, run: shell, command: ls, success: [256]}",
        &[("bad-value", "steps[2].success[0]", 10, 50)],
    ),
    (10..=10, "  - {name: c, run: shell, command: ls, env: {A: 1}}", &[("bad-value", "steps[2].env.A", 10, 49)]),
    (10..=10, "  - {name: c, run: http, method: POST}", &[("missing-field", "steps[2].url", 10, 5)]),
    (10..=10, "  - {name: c, run: http, url: /path}", &[("bad-value", "steps[2].url", 10, 31)]),
    (
        10..=10,
        "  - {name: c, run: http, url: \"http://x\", method: FETCH}",
        &[("bad-value", "steps[2].method", 10, 51)],
    ),
    (
        10..=10,
        "  - {name: c, run: http, url: \"http://x\", success: [network]}",
        &[("bad-value", "steps[2].success[0]", 10, 53)],
    ),
    (
        10..=10,
        "  - {name: c, run: http, url: \"http://x\", retry: [6xx]}",
        &[("bad-value", "steps[2].retry[0]", 10, 51)],
    ),
    (10..=10, "  - {name: c, run: approval, approver_ref: kim}", &[("missing-field", "steps[2].scope", 10, 5)]),
    (10..=10, "  - {name: c, run: approval, scope: s}", &[("missing-field", "steps[2].approver_ref", 10, 5)]),
    (
        10..=10,
        "  - {name: c, run: approval, approver_ref: kim, approvers: [lee], quorum: {rule: one-of-n}, scope: s}",
        &[("bad-quorum", "steps[2].approver_ref", 10, 44)],
    ),
    (10..=10, "  - {name: c, run: wait}", &[("missing-field", "steps[2].event", 10, 5)]),
    (10..=10, "  - {name: c, run: wait, event: e, for: 5s}", &[("bad-value", "steps[2].for", 10, 41)]),
    (10..=10, "  - {name: c, run: wait, until: tomorrow}", &[("bad-value", "steps[2].until", 10, 33)]),
    (10..=10, "  - {name: c, run: wait, event: e, timeout: 0s}", &[("bad-value", "steps[2].timeout", 10, 45)]),
    (10..=10, "  - {name: c, run: human, pic: input.lead}", &[("bad-expression", "steps[2].pic", 10, 32)]),
    (10..=10, "  - {name: c, run: human}", &[("missing-pic", "steps[2].pic", 10, 5)]),
    (10..=10, "  - {name: c, run: human, pci: kim}", &[("unknown-field", "steps[2].pci", 10, 27)]),
    (10..=10, "  - {name: c, tasks: [{name: t, run: human}]}", &[("missing-pic", "steps[2].tasks[0].pic", 10, 23)]),
    (4..=4, "pic: input.lead", &[("bad-expression", "pic", 4, 6)]),
    (10..=10, "  - {name: c, run: workflow}", &[("missing-field", "steps[2].workflow", 10, 5)]),
    (10..=10, "  - {name: c, run: workflow, workflow: child@0}", &[("bad-value", "steps[2].workflow", 10, 40)]),
    (10..=10, "  - {name: c, run: workflow, workflow: child@3}", &[("unknown-workflow", "steps[2].workflow", 10, 40)]),
    (10..=10, "  - {name: c, run: workflow, workflow: chld}", &[("unknown-workflow", "steps[2].workflow", 10, 40)]),
];

const RETRY: &[Case] = &[
    (4..=4, "retryPolicy: {maxRetries: -1}", &[("bad-retry", "retryPolicy.maxRetries", 4, 27)]),
    (4..=4, "retryPolicy: {initialDelay: -5s}", &[("bad-retry", "retryPolicy.initialDelay", 4, 29)]),
    (4..=4, "retryPolicy: {initialDelay: 5s, maxDelay: 1s}", &[("bad-retry", "retryPolicy.maxDelay", 4, 43)]),
    (4..=4, "retryPolicy: {backoff: quadratic}", &[("bad-value", "retryPolicy.backoff", 4, 24)]),
    (4..=4, "retryPolicy: {retries: 1}", &[("unknown-field", "retryPolicy.retries", 4, 15)]),
    (
        10..=10,
        "  - {name: c, retryPolicy: {maxDelay: 1m, initialDelay: 2m}}",
        &[("bad-retry", "steps[2].retryPolicy.maxDelay", 10, 39)],
    ),
];

const COMPENSATION: &[Case] = &[
    (
        13..=13,
        "  - {step: aa, action: Undo it, agent: undoer}",
        &[("unknown-compensation", "compensation[0].step", 13, 12)],
    ),
    (
        13..=13,
        "  - {step: a, action: Undo it, agent: u}\n  - {step: a, action: Undo it, agent: u}",
        &[("duplicate-compensation", "compensation[1].step", 14, 12)],
    ),
    (
        13..=13,
        "  - {step: b, action: Undo it, agent: u}",
        &[("read-only-compensation", "compensation[0].step", 13, 12)],
    ),
    (12..=13, "", &[("no-compensation", "failurePolicy", 3, 16)]),
    (12..=13, "compensation: []", &[("no-compensation", "failurePolicy", 3, 16)]),
    (13..=13, "  - {step: a, agent: u}", &[("missing-field", "compensation[0].action", 13, 5)]),
    (13..=13, "  - {step: a, action: u}", &[("missing-field", "compensation[0].agent", 13, 5)]),
    (13..=13, "  - {step: a, action: u, run: http}", &[("missing-field", "compensation[0].url", 13, 5)]),
    (
        13..=13,
        "  - {step: b2, action: u, run: http, url: 'https://x/${pins.y}'}",
        &[("unknown-compensation", "compensation[0].step", 13, 12)],
    ),
    (
        13..=13,
        "  - {step: a, action: u, run: http, url: 'https://x/${steps.c.output}'}",
        &[("bad-expression", "compensation[0].url", 13, 61)],
    ),
    (13..=13, "  - {step: a, action: u, run: human}", &[("bad-value", "compensation[0].run", 13, 31)]),
    (13..=13, "  - {step: a, action: u, agent: v, timeout: soon}", &[("bad-value", "compensation[0].timeout", 13, 45)]),
    (
        13..=13,
        "  - {step: a, action: u, agent: v, onFailure: skip}",
        &[("bad-value", "compensation[0].onFailure", 13, 47)],
    ),
    (
        13..=13,
        "  - {step: a, action: u, agent: v, url: 'https://x'}",
        &[("field-not-for-run", "compensation[0].url", 13, 36)],
    ),
    (
        13..=13,
        "  - {step: a, action: \"Undo ${input.x}\", agent: u}",
        &[("bad-expression", "compensation[0].action", 13, 23)],
    ),
];

const EXPRESSIONS: &[Case] = &[
    (10..=10, "  - {name: c, dependsOn: [a], when: \"${input.}\"}", &[("bad-expression", "steps[2].when", 10, 45)]),
    // Between brackets YAML takes the brace for its own.
    (10..=10, "  - {name: c, dependsOn: [a], input: ${input.x}}", &[("yaml-syntax", "", 10, 38)]),
    (10..=10, "  - {name: c, dependsOn: [a], input: [${input.x}]}", &[("yaml-syntax", "", 10, 39)]),
    (10..=10, "  - name: c\n    when: ${input.a ? 1 : 2}", &[("yaml-syntax", "", 11, 11)]),
    (10..=10, "  - name: c\n    when: ${input.x = 3}", &[("bad-expression", "steps[2].when", 11, 21)]),
    (
        10..=10,
        "  - name: c\n    when: >-\n      ${input.x\n      == && 3}",
        &[("bad-expression", "steps[2].when", 13, 10)],
    ),
    (10..=10, "  - {name: c, input: \"${steps.a-b.output}\"}", &[("bad-expression", "steps[2].input", 10, 31)]),
    (10..=10, "  - {name: c, dependsOn: [a], when: input.ok}", &[("bad-expression", "steps[2].when", 10, 37)]),
    (
        10..=10,
        "  - {name: c, dependsOn: [a], when: \"${input.a} and ${input.b}\"}",
        &[("bad-expression", "steps[2].when", 10, 37)],
    ),
    (10..=10, "  - {name: c, dependsOn: [a], when: 1}", &[("bad-value", "steps[2].when", 10, 37)]),
    (
        10..=10,
        "  - {name: c, dependsOn: [a], input: {x: \"a ${b\"}}",
        &[("bad-expression", "steps[2].input.x", 10, 45)],
    ),
    (
        10..=10,
        "  - {name: c, dependsOn: [a], input: [\"${inputs.x}\"]}",
        &[("bad-expression", "steps[2].input[0]", 10, 42)],
    ),
    (10..=10, "  - {name: c, dependsOn: [a], input: \"${now()}\"}", &[("bad-expression", "steps[2].input", 10, 41)]),
    // Not upstream: beside it, below it, itself, and nowhere.
    (
        10..=10,
        "  - {name: c, dependsOn: [a], when: \"${steps.b.output.x}\"}",
        &[("bad-expression", "steps[2].when", 10, 46)],
    ),
    (
        10..=10,
        "  - {name: c, dependsOn: [a], when: '${steps[\"d\"].output.x}'}",
        &[("bad-expression", "steps[2].when", 10, 46)],
    ),
    (
        10..=10,
        "  - {name: c, dependsOn: [a], output: \"${steps.c.output}\"}",
        &[("bad-expression", "steps[2].output", 10, 48)],
    ),
    (
        10..=10,
        "  - {name: c, dependsOn: [a], when: \"${steps.zz.output.x}\"}",
        &[("bad-expression", "steps[2].when", 10, 46)],
    ),
    (
        10..=10,
        "  - {name: c, dependsOn: [a], when: \"${size(steps) > 1}\"}",
        &[("bad-expression", "steps[2].when", 10, 45)],
    ),
    (10..=10, "  - {name: c, dependsOn: [a], input: \"${output}\"}", &[("bad-expression", "steps[2].input", 10, 41)]),
    (
        10..=10,
        "  - {name: c, dependsOn: [a], input: \"${secrets.x}\"}",
        &[("bad-expression", "steps[2].input", 10, 41)],
    ),
    (
        10..=10,
        "  - {name: c, run: shell, command: \"echo ${secrets.x}\"}",
        &[("bad-expression", "steps[2].command", 10, 44)],
    ),
    (
        10..=10,
        "  - {name: c, run: shell, command: env, env: {A: \"${secrets[input.x]}\"}}",
        &[("bad-expression", "steps[2].env.A", 10, 53)],
    ),
    (4..=4, "correlationKey: \"${steps.a.output}\"", &[("bad-expression", "correlationKey", 4, 20)]),
    (4..=4, "on: [{event: e, input: \"${input}\"}]", &[("bad-expression", "on[0].input", 4, 27)]),
    // What a run begins with is worked out before there is one.
    (4..=4, "correlationKey: \"${run.run_id}\"", &[("bad-expression", "correlationKey", 4, 20)]),
    (4..=4, "concurrency: {key: \"${run.run_id}\", limit: 1}", &[("bad-expression", "concurrency.key", 4, 23)]),
    (4..=4, "on: [{event: e, input: \"${run.run_id}\"}]", &[("bad-expression", "on[0].input", 4, 27)]),
    (4..=4, "schedule: [{cron: \"@daily\", input: \"${run}\"}]", &[("bad-expression", "schedule[0].input", 4, 39)]),
    (4..=4, "schedule: [{cron: \"@daily\", input: \"${event}\"}]", &[("bad-expression", "schedule[0].input", 4, 39)]),
    (4..=4, "output: \"${steps.zz.output}\"", &[("bad-expression", "output", 4, 18)]),
    // Only a runbook has pins.
    (10..=10, "  - {name: c, input: \"${pins.manifest}\"}", &[("bad-expression", "steps[2].input", 10, 30)]),
    (10..=10, "  - {name: c, run: wait, event: \"${input.e}\"}", &[("bad-expression", "steps[2].event", 10, 33)]),
];

const RUNBOOK: &[Case] = &[
    (8..=8, "  - {name: plan, softCap: 2h}", &[("bad-cap", "steps[0].softCap", 8, 27)]),
    (8..=8, "  - {name: plan, softCap: 0s}", &[("bad-cap", "steps[0].softCap", 8, 27)]),
    (8..=8, "  - {name: plan, run: wait, for: 5s, softCap: 1s}", &[("bad-cap", "steps[0].softCap", 8, 47)]),
    (5..=5, "hardCap: 0s", &[("bad-cap", "hardCap", 5, 10)]),
    (3..=3, "order: dag", &[("fail-closed-violation", "order", 3, 8)]),
    (3..=3, "priority: 5", &[("fail-closed-violation", "failurePolicy", 4, 16)]),
    (8..=8, "  - {name: plan, when: \"${input.x}\"}", &[("fail-closed-violation", "steps[0].when", 8, 24)]),
    (8..=8, "  - {name: plan, onFailure: hold}", &[("fail-closed-violation", "steps[0].onFailure", 8, 29)]),
    (
        8..=8,
        "  - {name: plan, run: workflow, workflow: open}",
        &[("fail-closed-violation", "steps[0].workflow", 8, 43)],
    ),
    (8..=8, "  - {name: resume}", &[("bad-value", "steps[0].name", 8, 12)]),
    (9..=9, "  - {name: cut, gate: sovereign, request: {pins: 1}}", &[("bad-value", "steps[1].request.pins", 9, 50)]),
    (8..=8, "  - {name: plan, pins: {p: {run: human}}}", &[("bad-value", "steps[0].pins.p.run", 8, 34)]),
    (8..=8, "  - {name: plan, pins: {p: {run: shell}}}", &[("missing-field", "steps[0].pins.p.command", 8, 28)]),
    (
        8..=8,
        "  - {name: plan, pins: {p: {run: worker, retry: 1}}}",
        &[("unknown-field", "steps[0].pins.p.retry", 8, 42)],
    ),
    (
        8..=8,
        "  - {name: plan, pins: {p: {run: worker, timeout: 0s}}}",
        &[("bad-value", "steps[0].pins.p.timeout", 8, 51)],
    ),
    (
        8..=8,
        "  - {name: plan, run: shell, command: x, artifacts: [../x]}",
        &[("bad-value", "steps[0].artifacts[0]", 8, 54)],
    ),
    (5..=5, "retryPolicy: {maxRetries: 1}", &[("fail-closed-violation", "retryPolicy", 5, 14)]),
    (5..=5, "compensation: [{step: plan, action: x, agent: y}]", &[("fail-closed-violation", "compensation", 5, 15)]),
    (
        8..=8,
        "  - {name: plan, retryPolicy: {backoff: linear}}",
        &[("fail-closed-violation", "steps[0].retryPolicy", 8, 31)],
    ),
    (8..=8, "  - {name: plan, onFailure: skip}", &[("fail-closed-violation", "steps[0].onFailure", 8, 29)]),
    (8..=8, "  - {name: plan, onFailure: compensate}", &[("fail-closed-violation", "steps[0].onFailure", 8, 29)]),
    (8..=8, "  - {name: plan, optional: true}", &[("fail-closed-violation", "steps[0].optional", 8, 28)]),
    (
        8..=8,
        "  - {name: plan, errors: {external: retry}}",
        &[("fail-closed-violation", "steps[0].errors.external", 8, 37)],
    ),
    (6..=9, "steps:\n  - {name: plan}", &[("fail-closed-violation", "failurePolicy", 4, 16)]),
    (
        8..=8,
        "  - {name: plan, errors: {agent_error: skip}}",
        &[("fail-closed-violation", "steps[0].errors.agent_error", 8, 40)],
    ),
    // A pin is there once its step has completed.
    (9..=9, "  - {name: cut, input: \"${pins.schema}\"}", &[("bad-expression", "steps[1].input", 9, 32)]),
    (
        9..=9,
        "  - {name: cut, gate: sovereign, request: {x: \"${pins['schema']}\"}}",
        &[("bad-expression", "steps[1].request.x", 9, 55)],
    ),
    (
        8..=8,
        "  - {name: plan, input: \"${pins.p}\", pins: {p: {run: worker}}}",
        &[("bad-expression", "steps[0].input", 8, 33)],
    ),
    (
        8..=8,
        "  - {name: plan, checks: {x: \"${pins.p == 1}\"}, pins: {p: {run: worker}}}",
        &[("bad-expression", "steps[0].checks.x", 8, 38)],
    ),
    (
        9..=9,
        "  - {name: cut, pins: {p: {run: shell, command: [cat, \"${pins.p}\"]}}}",
        &[("bad-expression", "steps[1].pins.p.command[1]", 9, 63)],
    ),
    (5..=5, "output: \"${pins.schema}\"", &[("bad-expression", "output", 5, 17)]),
];

/// The codes that all the tables together produce.
pub fn check_all() -> BTreeSet<&'static str> {
    let mut codes = check(SOUND, &[TOP, STEPS, WORK, RETRY, COMPENSATION, EXPRESSIONS], problems_of);
    codes.extend(check(CLOSED, &[RUNBOOK], problems_of));
    codes
}

#[test]
fn the_sound_documents_are_sound() {
    assert_eq!(parsed(SOUND).name, "order.flow");
    assert_eq!(parsed(CLOSED).name, "cut");
    // What a runbook may say all the same.
    for (lines, replacement) in [
        (5..=5, "retryPolicy: {maxRetries: 0}"),
        (8..=8, "  - {name: plan, retryPolicy: {maxRetries: 0}, onFailure: abort, optional: false}"),
        (8..=8, "  - {name: plan, errors: {external: abort}, onFailure: abort}"),
        (8..=8, "  - {name: plan, run: workflow, workflow: child}"),
        (8..=9, "  - {name: a, pins: {p: {run: worker}}}\n  - {name: b, input: \"${pins.p} ${pins[\\\"p\\\"]}\"}"),
        (
            8..=9,
            "  - {name: a, pins: {p: {run: worker}}}\n  - {name: b, pins: {p: {run: shell, command: [cat, \"${pins.p}\"]}}}",
        ),
        (
            5..=8,
            "output: \"${pins.p}\"\ngate_spec: {sovereign: {approver_ref: owner, scope: cut}}\nsteps:\n  - {name: a, pins: {p: {run: worker}}}",
        ),
    ] {
        parsed(&replaced(CLOSED, &lines, replacement));
    }
}

#[test]
fn what_is_upstream_may_be_named_however_far() {
    for line in [
        "  - {name: c, dependsOn: [b], when: \"${steps.b.output.x && steps[\\\"a\\\"].state_code == 'completed'}\"}",
        "  - {name: c, dependsOn: [b], checks: {x: \"${output.n > steps.a.output.n}\"}}",
        "  - {name: c, dependsOn: [b], input: \"${event}\", output: \"${event.x}-${output}\"}",
        "  - {name: c, dependsOn: [b], input: \"${run.run_id}\"}",
    ] {
        parsed(&replaced(SOUND, &(10..=10), line));
    }
    parsed(&replaced(SOUND, &(4..=4), "output: {d: \"${steps.d.output}\"}"));
}

#[test]
fn one_onfailure_that_compensates_is_enough_to_need_a_compensation() {
    let text = SOUND
        .replace("failurePolicy: compensate", "failurePolicy: abort")
        .replace("compensation:\n  - {step: a, action: Undo it, agent: undoer}\n", "");
    parsed(&text);
    let text = text.replace("  - {name: c, dependsOn: [a]}", "  - {name: c, onFailure: compensate}");
    let found = problems_of(&text);
    let found: Vec<_> = found.iter().map(|p| (p.code.as_str(), p.path.as_str(), p.line, p.column)).collect();
    assert_eq!(found, [("no-compensation", "steps[2].onFailure", 10, 26)]);
}

#[test]
fn messages_say_what_and_how_to_mend_it() {
    for (lines, replacement, expected) in [
        (
            10..=10,
            "  - {name: c, dependsOn: [a, d]}",
            "these steps wait for one another: `c` → `d` → `c`; remove one of the dependencies",
        ),
        (13..=13, "  - {step: aa, action: x, agent: y}", "there is no step `aa`; did you mean `a`?"),
        (
            4..=4,
            "schedule: [{cron: \"@daily\", timeZone: Europe/Berln}]",
            "there is no time zone `Europe/Berln`; did you mean `Europe/Berlin`?",
        ),
        (
            10..=10,
            "  - {name: c, url: x}",
            "`url` does not belong to `run: worker` but to `http`; remove it, or change `run`",
        ),
        (10..=10, "  - {name: c, when: \"${inptu.x}\"}", "there is no variable `inptu`; did you mean `input`?"),
        (
            10..=10,
            "  - {name: c, dependsOn: [a], when: \"${steps.b.output.x}\"}",
            "`b` is not upstream of `c`, and may not have ended by then",
        ),
        (4..=4, "timeout: 60", "a duration needs its unit, such as `60s`; the units are d, h, m, s and ms"),
        (
            10..=10,
            "  - {name: c, run: workflow, workflow: child@3}",
            "there is no version 3 of a workflow `child` here",
        ),
        (
            10..=10,
            "  - {name: c, run: workflow, workflow: order.flow}",
            "`order.flow` is this workflow itself, and has no version yet that it could run",
        ),
    ] {
        assert_eq!(problems_of(&replaced(SOUND, &lines, replacement))[0].message, expected);
    }
}

#[test]
fn all_problems_of_a_workflow_are_reported_in_one_go() {
    let text = "\
kind: workflow
name: x
priority: high
steps:
  - {name: a, run: htp}
  - {name: b, dependsOn: [c], when: \"${1 +}\"}
  - {name: b, gate: g}
compensation:
  - {step: z, action: x, agent: y}
";
    let problems = parse(text.as_bytes()).expect_err("problems");
    let found: Vec<_> = problems.iter().map(|p| (p.code.as_str(), p.line, p.column)).collect();
    assert_eq!(
        found,
        [
            ("bad-value", 3, 11),
            ("bad-value", 5, 20),
            ("unknown-dependency", 6, 27),
            ("bad-expression", 6, 42),
            ("duplicate-step", 7, 12),
            ("unknown-gate", 7, 21),
            ("unknown-compensation", 9, 12),
        ],
        "{}",
        listed(&problems)
    );
}
