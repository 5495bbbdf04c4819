//! Sound workflows, and the plans they come to.

use crate::{Effort, listed, parsed};
use countersign_definition::{Body, Cel, Kind, parse, parse_resolved};
use countersign_kernel::GateEntry;
use countersign_kernel::plan::*;
use proptest::prelude::*;

const SECOND: Micros = 1_000_000;
const MINUTE: Micros = 60 * SECOND;
const HOUR: Micros = 60 * MINUTE;

pub fn plan_of(text: &str) -> Plan {
    match parsed(text).body {
        Body::Workflow { plan, document } => {
            let again = Cel::new().plan(&document).unwrap_or_else(|error| panic!("{text}\n{error}"));
            assert_eq!(plan, again, "{text}");
            plan
        }
        Body::Process { .. } | Body::Machine { .. } => panic!("no workflow"),
    }
}

fn template(text: &str) -> Option<Template> {
    Some(Template(text.into()))
}

fn expression(text: &str) -> Option<Expression> {
    Some(Expression(text.into()))
}

#[test]
fn a_step_has_the_defaults_of_the_format() {
    let plan = plan_of("kind: workflow\nname: a\nsteps: [{name: only}]\n");
    assert_eq!((plan.order, plan.failure_policy, plan.priority), (Order::Dag, FailurePolicy::Abort, 5));
    assert_eq!(plan.blocked_escalation, BlockedEscalation { after: 4 * HOUR, review_after: None, critical_path: None });
    let step = &plan.steps[0];
    assert_eq!((&*step.name, &step.work, &*step.queue), ("only", &Work::Worker, "default"));
    let RetryPolicy { max_retries, backoff, initial_delay, max_delay, jitter } = step.retry;
    assert_eq!(
        (max_retries, backoff, initial_delay, max_delay, jitter),
        (3, Backoff::Exponential, SECOND, MINUTE, false)
    );
    assert_eq!((step.on_failure, step.optional, step.input.clone()), (OnFailure::Abort, false, None));
}

#[test]
fn a_chain_is_read_as_it_is_written() {
    let plan = plan_of(
        r#"
kind: workflow
name: order.process
order: linear
queue: orders
correlationKey: ${input.order_id}
steps:
  - name: VALIDATE
    retryPolicy: {maxRetries: 4, backoff: linear, initialDelay: 5s, maxDelay: 1m}
  - {name: PAYMENT, run: wait, event: payment.captured, timeout: 2h}
  - {name: SHIP, input: {paid: "${steps.PAYMENT.output.amount}"}}
"#,
    );
    assert_eq!(plan.order, Order::Linear);
    assert_eq!(plan.correlation_key, template("\"${input.order_id}\""));
    let names: Vec<_> = plan.steps.iter().map(|step| (&*step.name, &*step.queue, step.depends_on.clone())).collect();
    assert_eq!(names, [("VALIDATE", "orders", vec![]), ("PAYMENT", "orders", vec![0]), ("SHIP", "orders", vec![1])]);
    assert_eq!(
        plan.steps[0].retry,
        RetryPolicy {
            max_retries: 4,
            backoff: Backoff::Linear,
            initial_delay: 5 * SECOND,
            max_delay: MINUTE,
            jitter: false
        }
    );
    // The timeout of a wait is the wait's own: late is WAITING_TIMEOUT and not STEP_TIMEOUT.
    let wait = Work::Wait(WaitWork::Event { event_type: "payment.captured".into(), timeout: Some(2 * HOUR) });
    assert_eq!((&plan.steps[1].work, plan.steps[1].timeout), (&wait, None));
    assert_eq!(plan.steps[2].input, template(r#"{"paid":"${steps.PAYMENT.output.amount}"}"#));
    assert_eq!(plan.referenced, [1]);
}

#[test]
fn a_graph_is_read_as_it_is_written() {
    let plan = plan_of(
        r#"
kind: workflow
name: onboarding
timeout: 30m
failurePolicy: compensate
concurrency: {key: "${input.customer}", limit: 1}
schedule: [{cron: "0 6 * * MON-FRI", timeZone: Europe/Berlin}]
steps:
  - {name: account, run: http, method: POST, url: "https://crm.example/a", body: "${input}"}
  - {name: workspace, dependsOn: [account], queue: product}
  - {name: analytics, dependsOn: [account], when: "${input.plan != 'free'}"}
  - {name: welcome, dependsOn: [workspace, analytics], onFailure: skip, optional: true}
compensation:
  - {step: workspace, action: Delete workspace, agent: product-analyst}
  - {step: account, action: Deactivate account, agent: growth}
"#,
    );
    assert_eq!((plan.timeout, plan.failure_policy), (Some(30 * MINUTE), FailurePolicy::Compensate));
    assert_eq!(plan.concurrency.as_ref().map(|found| found.limit), Some(1));
    let schedule = &plan.schedule[0];
    assert_eq!((schedule.time_zone.as_str(), schedule.overlap), ("Europe/Berlin", Overlap::Skip));
    let Work::Http(http) = &plan.steps[0].work else { panic!("http") };
    assert_eq!((http.method.as_str(), http.body.clone()), ("POST", template("\"${input}\"")));
    assert_eq!(http.success, [StatusClass::Hundred(2)]);
    use StatusClass::{Code, Hundred, Network};
    assert_eq!(http.retry, [Code(408), Code(429), Hundred(5), Network]);
    let depends: Vec<_> = plan.steps.iter().map(|step| step.depends_on.clone()).collect();
    assert_eq!(depends, [vec![], vec![0], vec![0], vec![1, 2]]);
    assert_eq!(plan.steps[2].when, expression("input.plan != 'free'"));
    let on_failure: Vec<_> = plan.steps.iter().map(|step| step.on_failure).collect();
    use OnFailure::{Compensate, Skip};
    assert_eq!(on_failure, [Compensate, Compensate, Compensate, Skip]);
    let compensation: Vec<_> =
        plan.compensation.iter().map(|entry| (entry.step, entry.action.as_str(), &*entry.agent)).collect();
    assert_eq!(compensation, [(1, "Delete workspace", "product-analyst"), (0, "Deactivate account", "growth")]);
    let as_before = |entry: &CompensationSpec| entry.work == Work::Worker && entry.timeout.is_none() && !entry.hold;
    assert!(plan.compensation.iter().all(as_before));
    assert_eq!(plan.referenced, [0, 1]);
}

#[test]
fn a_compensation_is_carried_out_like_a_step() {
    let plan = plan_of(
        r#"
kind: workflow
name: undo
order: linear
failurePolicy: compensate
steps: [{name: a}, {name: b}, {name: c}, {name: d}]
compensation:
  - {step: a, action: Delete, run: http, method: DELETE, url: "https://x/${output.id}", headers: {auth: "${secrets.KEY}"}, timeout: 5m}
  - {step: b, action: Remove, run: shell, command: [rm, "${steps.a.output.file}"], onFailure: hold}
  - {step: c, action: Revoke, run: worker, agent: growth, queue: crew}
"#,
    );
    let queues: Vec<&str> = plan.compensation.iter().map(CompensationSpec::claim_queue).collect();
    assert_eq!(queues, ["@http", "@shell", "crew"]);
    assert_eq!(plan.compensation[0].timeout, Some(5 * MINUTE));
    assert_eq!(plan.compensation.iter().map(|entry| entry.hold).collect::<Vec<_>>(), [false, true, false]);
    let Work::Http(http) = &plan.compensation[0].work else { panic!("http") };
    assert_eq!(Some(http.url.clone()), template(r#""https://x/${output.id}""#));
}

#[test]
fn a_runbook_retries_nothing() {
    let plan = plan_of(
        r#"
kind: workflow
name: document-cut
order: linear
failurePolicy: fail-closed
hardCap: 60m
gate_spec: {sovereign: {approver_ref: owner, scope: cut}}
steps:
  - name: cutplan
    softCap: 10m
    state: planned
    pins:
      manifest: {run: shell, command: sha256sum manifest.json}
      region: {run: worker, queue: probes, timeout: 5s}
    checks: {bounded: "${output.rows > 0 && output.rows <= 1000}"}
  - name: cut
    run: shell
    command: cut
    gate: sovereign
    request: {rows: "${steps.cutplan.output.rows}", was: "${pins.manifest}"}
    artifacts: [cut.gpg]
    checks: {all: "${output.n == steps.cutplan.output.rows}"}
"#,
    );
    assert_eq!((plan.failure_policy, plan.hard_cap), (FailurePolicy::FailClosed, Some(HOUR)));
    assert!(plan.steps.iter().all(|step| step.retry.max_retries == 0 && step.on_failure == OnFailure::Abort));
    let PinSpec { name, work: Work::Shell(pin), timeout, .. } = &plan.steps[0].pins[0] else { panic!("a pin") };
    assert_eq!((&**name, &*pin.command.0), ("manifest", "\"sha256sum manifest.json\""));
    assert_eq!((&pin.success[..], *timeout), (&[0][..], 30 * SECOND));
    let PinSpec { work: Work::Worker, queue, timeout, .. } = &plan.steps[0].pins[1] else { panic!("a worker's") };
    assert_eq!((&**queue, *timeout), ("probes", 5 * SECOND));
    assert_eq!((plan.steps[0].phase.as_deref(), &*plan.steps[1].artifacts[0]), (Some("planned"), "cut.gpg"));
    assert_eq!(plan.steps[1].request, template(r#"{"rows":"${steps.cutplan.output.rows}","was":"${pins.manifest}"}"#));
    assert_eq!(plan.steps[1].gate.as_deref(), Some("sovereign"));
    assert_eq!(&*plan.steps[1].checks[0].0, "all");
    assert_eq!(plan.referenced, [0]);
}

pub const EVERYTHING: &str = r##"
kind: workflow
name: everything
description: All that a definition may say.
order: dag
queue: main
priority: 9
retryPolicy: {maxRetries: 1, initialDelay: 2m, jitter: true}
failurePolicy: abort
timeout: 1d
correlationKey: "order-${input.id}"
concurrency: {key: "${input.id}", limit: 3}
queues: {main: {limit: 5, rateLimit: {count: 10, per: 1s}}, other: {}}
schedule:
  - {cron: "@daily", input: {by: clock}, overlap: queue}
on: [{event: order.created, input: "${event}"}, {event: order.changed}]
blockedEscalation: {after: 1h, criticalPath: true}
machine: reviewed-step@2
inputSchema: {type: object, required: [id]}
output: {first: "${steps.a.output}", plain: 1.5}
retention: seven_years
scheduleToStart: 1h
gate_spec:
  go: {approvers: [kim, lee], quorum: {rule: one-of-n}, scope: s}
  reopen: {approver_ref: kim, scope: s}
  cancel: {approver_ref: kim, scope: s}
steps:
  - name: a
    queue: q
    idempotent: true
    readOnly: true
    errors: {agent_error: skip, external: retry}
    inputSchema: true
    outputSchema: {type: object}
    deadline: 90s
    scheduleToStart: 250ms
    priority: 0
    output: {n: "${output.n}", why: "${event}"}
    retryPolicy: {backoff: constant}
    tasks: [{name: count, pic: "${input.clerk}"}, {name: file, run: worker}]
  - {name: b, run: shell, command: [echo, "${input.id}"], env: {TOKEN: "${secrets.token}"}, success: [0, 3], retry: [], when: true}
  - {name: c, run: http, url: "${input.url}", headers: {A: "Bearer ${secrets.token}"}, success: [2xx, 404], retry: [network, 503], onFailure: hold}
  - {name: d, run: approval, approver_ref: kim, scope: s, dependsOn: [a]}
  - {name: e, run: approval, approvers: [kim, lee], quorum: {rule: m-of-n, m: 2}, scope: s}
  - {name: f, run: wait, for: 1h30m, dependsOn: [e]}
  - {name: g, run: wait, until: "${steps.a.output.due}", dependsOn: [d]}
  - {name: h, run: wait, until: "2030-01-31T09:00:00+01:00", gate: go}
  - {name: i, run: workflow, workflow: child.flow, input: {x: "${steps['a'].state_code}"}, dependsOn: [g, h]}
  - {name: j, run: workflow, workflow: child.flow@2}
  - {name: k, run: human, pic: kim, optional: true}
"##;

#[test]
fn every_field_of_the_format_has_its_place() {
    let plan = plan_of(EVERYTHING);
    assert_eq!(parsed(EVERYTHING).retention.as_deref(), Some("seven_years"));
    assert_eq!(plan.priority, 9);
    assert_eq!(plan.correlation_key, template("\"order-${input.id}\""));
    let main = plan.queues["main"];
    assert_eq!((main.limit, main.rate), (Some(5), Some(Rate { count: 10, per: SECOND })));
    assert_eq!(plan.schedule[0].overlap, Overlap::Queue);
    assert_eq!(
        (plan.schedule[0].time_zone.as_str(), plan.schedule[0].input.clone()),
        ("UTC", template(r#"{"by":"clock"}"#))
    );
    assert_eq!((plan.on[0].event_type.as_str(), plan.on[0].input.clone()), ("order.created", template("\"${event}\"")));
    assert_eq!(plan.on[1].input, None);
    assert_eq!(
        plan.machine.as_ref().map(|machine| (machine.name.as_str(), machine.version)),
        Some(("reviewed-step", Some(2)))
    );
    assert_eq!(
        plan.blocked_escalation,
        BlockedEscalation { after: HOUR, review_after: None, critical_path: Some(true) }
    );
    assert_eq!(plan.output, template(r#"{"first":"${steps.a.output}","plain":1.5}"#));
    assert_eq!(plan.gate_spec.0.len(), 3);
    let step = |name: &str| &plan.steps[plan.step_named(name).expect(name) as usize];
    let a = step("a");
    // The step's word, then the definition's, then the format's; a delay that nobody wrote makes way.
    assert_eq!(
        a.retry,
        RetryPolicy {
            max_retries: 1,
            backoff: Backoff::Constant,
            initial_delay: 2 * MINUTE,
            max_delay: 2 * MINUTE,
            jitter: true
        }
    );
    assert_eq!((&*a.queue, a.idempotent, a.read_only, a.priority), ("q", true, true, Some(0)));
    assert_eq!(
        a.errors,
        ErrorResponses { agent_error: Some(ErrorResponse::Skip), external: Some(ErrorResponse::Retry) }
    );
    assert_eq!((a.deadline, a.schedule_to_start), (Some(90 * SECOND), Some(SECOND / 4)));
    // The definition's own is that of the steps which somebody claims.
    let of = |name: &str| step(name).schedule_to_start;
    assert_eq!((of("k"), of("b"), of("c"), of("d"), of("f"), of("i")), (Some(HOUR), None, None, None, None, None));
    assert_eq!(a.tasks[0].work, Work::Human { pic: template("\"${input.clerk}\"") });
    assert_eq!(a.tasks[1].work, Work::Worker);
    let Work::Shell(shell) = &step("b").work else { panic!("shell") };
    assert_eq!(
        (&*shell.command.0, &shell.success[..], &shell.retry[..]),
        (r#"["echo","${input.id}"]"#, &[0, 3][..], &[][..])
    );
    assert_eq!(step("b").when, expression("true"));
    let Work::Http(http) = &step("c").work else { panic!("http") };
    assert_eq!(
        (http.method.as_str(), &http.success[..]),
        ("GET", &[StatusClass::Hundred(2), StatusClass::Code(404)][..])
    );
    assert_eq!(http.retry, [StatusClass::Network, StatusClass::Code(503)]);
    assert_eq!(step("c").on_failure, OnFailure::Hold);
    let single = GateEntry::Single { approver_ref: "kim".into(), scope: "s".into(), delegable: false };
    assert_eq!(step("d").work, Work::Approval(single));
    assert!(matches!(&step("e").work, Work::Approval(GateEntry::Quorum { approvers, .. }) if approvers.len() == 2));
    assert_eq!(step("f").work, Work::Wait(WaitWork::For(90 * MINUTE)));
    assert_eq!(step("g").work, Work::Wait(WaitWork::Until(Template("\"${steps.a.output.due}\"".into()))));
    assert_eq!(step("i").work, Work::Workflow { name: "child.flow".into(), version: None });
    assert_eq!(step("j").work, Work::Workflow { name: "child.flow".into(), version: Some(2) });
    assert_eq!(step("k").on_failure, OnFailure::Skip);
    assert_eq!(plan.referenced, [0]);
}

#[test]
fn the_document_is_a_definition_that_says_the_same() {
    let Body::Workflow { plan, document } = parsed(EVERYTHING).body else { panic!("a workflow") };
    let text = String::from_utf8(document.clone()).expect("UTF-8");
    assert!(text.starts_with(r#"{"kind":"workflow","name":"everything","description":"#), "{text}");
    let again = parsed(&text);
    assert_eq!(again.kind, Kind::Workflow);
    assert_eq!(again.body, Body::Workflow { plan, document });
}

/// Fields that a sound step may have, by their `run`; values of every type that JSON has.
const SNIPPETS: &[&str] = &[
    "queue: q, idempotent: true",
    "input: {n: 1, f: -0.5, e: 1.0e-7, t: true, z: null, l: [1, [], {}], 'a \u{85}\u{2028}\u{feff}é': '\u{1F600}\\ \"'}",
    "when: \"${input.x == '}' && {'a': 1}.a > 0}\", onFailure: skip",
    "run: shell, command: 'echo \"$HOME\" | wc', env: {A: \"${secrets.a} b\"}",
    "run: http, url: 'https://x.example/${input.id}', body: [\"${input}\", 2.50]",
    "run: wait, for: 5s",
    "run: human, pic: '${input.who}'",
    "run: workflow, workflow: child",
    "outputSchema: {type: [object, 'null'], minProperties: 1}, priority: 3",
    "checks: {ok: \"${output.n >= 0}\"}, timeout: 1d2h",
    "retryPolicy: {maxRetries: 0, jitter: true}, deadline: 250ms, tasks: [{name: t, pic: kim}]",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_that_of_its_document(
        steps in prop::collection::vec((prop::sample::select(SNIPPETS), any::<prop::sample::Index>(), any::<bool>()), 1..12),
        linear in any::<bool>(),
    ) {
        let mut text = format!("kind: workflow\nname: p\norder: {}\nsteps:\n", if linear { "linear" } else { "dag" });
        for (i, (snippet, before, depends)) in steps.iter().enumerate() {
            let depends = match (i, linear, depends) {
                (1.., false, true) => format!("dependsOn: [s-{}], ", before.index(i)),
                _ => String::new(),
            };
            text += &format!("  - {{name: s-{i}, {depends}{snippet}}}\n");
        }
        let Body::Workflow { plan, document } = parsed(&text).body else { panic!("a workflow") };
        prop_assert_eq!(Cel::new().plan(&document), Ok(plan.clone()));
        let again = parse(&document).map_err(|problems| TestCaseError::fail(listed(&problems)))?;
        prop_assert_eq!(again.body, Body::Workflow { plan, document });
    }
}

#[test]
fn versions_of_children_are_fixed_when_they_are_resolved() {
    let mut asked = Vec::new();
    let resolved = parse_resolved(EVERYTHING.as_bytes(), &mut |name: &str, version: Option<u32>| {
        asked.push((name.to_owned(), version));
        Some(version.unwrap_or(7))
    });
    let Ok(Body::Workflow { plan, document }) = resolved.map(|definition| definition.body) else { panic!("sound") };
    assert_eq!(asked, [("child.flow".to_owned(), None), ("child.flow".to_owned(), Some(2))]);
    let child = |version| Work::Workflow { name: "child.flow".into(), version: Some(version) };
    assert_eq!((&plan.steps[8].work, &plan.steps[9].work), (&child(7), &child(2)));
    let text = String::from_utf8(document.clone()).expect("UTF-8");
    assert!(text.contains(r#""workflow":"child.flow@7""#) && text.contains(r#""workflow":"child.flow@2""#), "{text}");
    assert_eq!(Cel::new().plan(&document).as_ref(), Ok(&plan));
    assert_eq!(parsed(&text).body, Body::Workflow { plan, document });

    let problems =
        parse_resolved(EVERYTHING.as_bytes(), &mut |_: &str, version: Option<u32>| version.is_none().then_some(1));
    let problems = problems.expect_err("version 2 is not there");
    let found: Vec<_> = problems.iter().map(|p| (p.code.as_str(), p.path.as_str(), p.line, p.column)).collect();
    assert_eq!(found, [("unknown-workflow", "steps[9].workflow", 49, 40)], "{}", listed(&problems));
}

#[test]
fn a_document_that_is_no_plan_is_refused_with_its_reason() {
    for document in
        ["", "{", "[]", "{}", r#"{"kind":"process"}"#, r#"{"kind":"workflow","steps":[{"name":"a","run":"fly"}]}"#]
    {
        assert!(Cel::new().plan(document.as_bytes()).is_err(), "{document}");
    }
}

/// A hundred thousand steps one after the other, ten thousand side by side: read in seconds, whole.
#[test]
fn large_definitions_are_read() {
    let started = Effort::begun();
    let steps: String = (0..100_000).map(|i| format!("- {{name: s{i}}}\n")).collect();
    let chain = format!("kind: workflow\nname: chain\norder: linear\nsteps:\n{steps}");
    assert_eq!(plan_of(&chain).steps.len(), 100_000);
    let steps: String = (0..10_000).map(|i| format!("- {{name: s{i}, dependsOn: [root]}}\n")).collect();
    let names: Vec<String> = (0..10_000).map(|i| format!("s{i}")).collect();
    let wide = format!(
        "kind: workflow\nname: wide\nsteps:\n- {{name: root}}\n{steps}- {{name: join, dependsOn: [{}], when: \"${{steps.root.output.ok}}\"}}\n",
        names.join(", ")
    );
    let plan = plan_of(&wide);
    assert_eq!((plan.steps.len(), plan.steps[10_001].depends_on.len(), plan.referenced), (10_002, 10_000, vec![0]));
    let deep: String = (1..50_000)
        .map(|i| format!("- {{name: s{i}, dependsOn: [s{}], when: \"${{steps.s{}.output.ok}}\"}}\n", i - 1, i / 2))
        .collect();
    let deep = format!("kind: workflow\nname: deep\nsteps:\n- {{name: s0}}\n{deep}");
    assert_eq!(parse(deep.as_bytes()).map(|definition| definition.kind).map_err(|p| listed(&p)), Ok(Kind::Workflow));
    assert!(started.spent() < std::time::Duration::from_secs(60), "{:?}", started.spent());
}
