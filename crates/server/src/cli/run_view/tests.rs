//! A run as a person sees it, as plain text.

use super::super::output::plain;
use super::*;
use serde_json::json;

const NOW: &str = "2026-11-15T19:47:28Z";

fn step(seq: u32, name: &str, state: &str, more: Value) -> Value {
    let (icon, label, colour) = match state {
        "completed" => ("✓", "Completed", "green_deep"),
        "in_progress" => ("►", "In progress", "green"),
        "waiting" => ("⏳", "Waiting", "yellow"),
        "failed" => ("✕", "Failed", "red"),
        "blocked" => ("⚠", "Blocked", "yellow_dark"),
        "cancelled" => ("⊘", "Cancelled", "red_dark"),
        "ready" => ("▶", "Ready", "green_pale"),
        _ => ("○", "Not started", "gray"),
    };
    let mut step = json!({
        "name": name, "step_seq": seq, "role": "step", "run": "worker", "queue": "orders", "state_code": state,
        "attempts": 0, "max_attempts": 5, "optional": false, "depends_on": [],
        "appearance": {"color_token": format!("ui.traffic_light.{colour}"), "icon": icon, "label": label},
        "views": {"linear": "READY", "dag": "pending"},
    });
    if let (Value::Object(step), Value::Object(more)) = (&mut step, more) {
        step.extend(more);
    }
    step
}

fn run(state: &str, steps: Vec<Value>) -> RunView {
    let run = json!({
        "run_id": "r-1", "definition": "order-process@1", "subject_ref": "order-1001", "initiator_ref": "shop",
        "state": state, "views": {"linear": "RUNNING"}, "priority": 5, "started_at": "2026-11-15T19:47:18Z",
        "rollup": {"state_code": "green", "counts": {"red": 0, "yellow": 0, "green": 1, "skipped": 0, "optional_excluded": 0}},
        "steps": steps, "gates": [],
    });
    serde_json::from_value(run).expect("a run")
}

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

/// As it is piped, and so with no end to its lines.
fn drawn(run: &RunView, rows: usize) -> String {
    plain(&super::drawn(run, rows, None, now()))
}

fn drawn_in(run: &RunView, width: usize) -> String {
    plain(&super::drawn(run, MAX_ROWS, Some(width), now()))
}

/// Why and what, as one text.
fn hints(run: &RunView) -> Vec<String> {
    next(run, now()).iter().map(|(why, command)| plain(&format!("{why}: {command}"))).collect()
}

fn retrying(seq: u32, name: &str, at: &str) -> Value {
    let looks = json!({"color_token": "ui.traffic_light.red", "icon": "↻", "label": "Retrying (attempt 2/3)"});
    let more = json!({"attempts": 1, "max_attempts": 3, "next_run_at": at, "last_error": "busy", "appearance": looks});
    step(seq, name, "failed", more)
}

#[test]
fn the_picture_says_who_holds_what_and_what_waits() {
    let run = run(
        "executing",
        vec![
            step(0, "VALIDATE", "completed", json!({"attempts": 1})),
            step(
                1,
                "PAYMENT",
                "waiting",
                json!({"run": "wait", "waiting_event_type": "payment.captured",
                "waiting_facet": "waiting_external", "deadline_at": "2026-11-15T21:47:28Z"}),
            ),
            step(2, "PACK", "in_progress", json!({"locked_by": "w-1", "locked_until": "2026-11-15T19:47:58Z"})),
            step(3, "LABEL", "failed", json!({"attempts": 2, "last_error": "no paper\u{1b}[2J"})),
            step(4, "SHIP", "not_started", json!({})),
        ],
    );
    let text = drawn(&run, MAX_ROWS);
    for part in [
        "order-1001 is executing",
        "order-process@1",
        "1/5, 1 failed, green",
        "VALIDATE  Completed    2/5",
        "waits for the event payment.captured, until 2026-11-15 21:47:28Z (in 2 h)",
        "In progress  1/5      held by w-1, 30 s left",
        "Failed       2/5      no paper\\u{1b}[2J",
        "countersign events send payment.captured --run r-1",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn many_steps_are_folded() {
    let mut steps: Vec<Value> = (0..60).map(|seq| step(seq, &format!("s{seq}"), "completed", json!({}))).collect();
    steps.push(step(60, "now", "in_progress", json!({"locked_by": "w-1"})));
    steps.extend((61..100).map(|seq| step(seq, &format!("s{seq}"), "not_started", json!({}))));
    let run = run("executing", steps);
    let text = drawn(&run, MAX_ROWS);
    assert!(text.contains("60/100") && text.contains("held by w-1"), "{text}");
    assert!(text.contains("… and 60 completed, 39 not started (runs show --all-steps lists them)"), "{text}");
    assert!(text.lines().count() < 15, "{text}");
    assert!(drawn(&run, usize::MAX).contains("s99"));
    let nothing = drawn(&run, 0);
    assert!(nothing.contains("\n 60 completed, 1 in progress, 39 not started (runs"), "{nothing}");
}

#[test]
fn what_stands_in_the_way_is_shown_first_however_many_steps_there_are() {
    let cancelled = |seq: u32| step(seq, &format!("s{seq}"), "cancelled", json!({}));
    let mut steps: Vec<Value> = (0..199).map(cancelled).collect();
    steps.push(step(199, "last", "failed", json!({"attempts": 3, "last_error": "out of paper"})));
    let failed = run("failed", steps);
    for rows in [0, MAX_ROWS] {
        let text = drawn(&failed, rows);
        assert!(text.contains("✕  last  Failed") && text.contains("out of paper"), "{text}");
        assert!(text.contains("… and 199 cancelled"), "{text}");
        assert!(text.contains("░ 0/200, 1 failed, 199 cancelled"), "{text}");
    }
    assert_eq!(hints(&failed), ["try again from last in a new run: countersign runs retry r-1 --from last"]);
}

#[test]
fn what_was_undone_again_is_no_progress() {
    let undo = |seq, of: &str, state| step(seq, of, state, json!({"role": "compensation", "compensates": of}));
    let steps = vec![
        step(0, "one", "completed", json!({})),
        step(1, "two", "completed", json!({})),
        step(2, "three", "failed", json!({"attempts": 1, "last_error": "no"})),
        undo(3, "two", "completed"),
        undo(4, "one", "ready"),
    ];
    let undoing = run("compensating", steps);
    let text = drawn(&undoing, MAX_ROWS);
    assert!(text.contains("░ 1/3, 1 failed, 1 of 2 undone, green"), "{text}");
    assert_eq!(hints(&undoing), ["undo of one waits for a worker: countersign work orders --exec …"]);
}

#[test]
fn every_step_that_a_machine_carries_out_has_its_attempts() {
    let text = |kind: &str, state: &str, more: Value| {
        let mut more = more;
        more["run"] = kind.into();
        attempts(&serde_json::from_value(step(0, "a", state, more)).expect("a step"))
    };
    for kind in ["worker", "shell", "http", "workflow"] {
        assert_eq!(text(kind, "in_progress", json!({"attempts": 1})), "2/5", "{kind}");
        assert_eq!(text(kind, "failed", json!({"attempts": 5})), "5/5", "{kind}");
        assert_eq!(text(kind, "failed", json!({"attempts": 1, "next_run_at": NOW})), "2/5", "{kind}");
        assert_eq!(text(kind, "not_started", json!({})), "", "{kind}");
    }
    assert_eq!(text("workflow", "waiting", json!({"child_run_id": "r-2"})), "1/5");
    for kind in ["wait", "approval", "human"] {
        assert_eq!(text(kind, "completed", json!({})), "", "{kind}");
    }
}

#[test]
fn a_retry_is_no_end() {
    let ahead = run("executing", vec![retrying(0, "do", "2026-11-15T19:47:31Z")]);
    let text = drawn(&ahead, MAX_ROWS);
    assert!(text.contains("↻  do    Retrying  2/3      in 3 s · 2026-11-15 19:47:31Z, busy"), "{text}");
    assert!(hints(&ahead).is_empty());
    let due = run("executing", vec![retrying(0, "do", "2026-11-15T19:46:52Z")]);
    let text = drawn(&due, MAX_ROWS);
    assert!(text.contains("Retrying  2/3      in queue orders, busy") && !text.contains("failed"), "{text}");
    assert_eq!(hints(&due), ["do waits for a worker: countersign work orders --exec …"]);
}

const REMEDY: &str = "SHELL_DISABLED: this server runs no shell steps; whoever runs it allows them with \
                      [executors.shell] enabled = true in countersign.toml, and starts it again";

#[test]
fn what_blocks_is_never_cut_off() {
    let more = json!({"run": "shell", "queue": "@shell", "last_error": REMEDY, "blocked_since": NOW});
    let blocked = run("blocked", vec![step(0, "build", "blocked", more), step(1, "ship", "not_started", json!({}))]);
    assert!(drawn(&blocked, MAX_ROWS).contains(REMEDY));
    for width in [40, 80, 140] {
        let text = drawn_in(&blocked, width);
        let table = text.split("\n\n").nth(1).expect("the steps");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert!(words(table).contains(&words(REMEDY)), "{width}:\n{text}");
        assert!(table.lines().all(|line| terminal::columns(line) <= width), "{width}:\n{text}");
        // What is said of one step stands above the next.
        assert!(table.find("again") < table.find("ship"), "{width}:\n{text}");
    }
    assert_eq!(
        hints(&blocked),
        ["once what blocks build is put right: countersign runs unblock r-1 build --evidence …"]
    );
}

#[test]
fn a_long_command_goes_on_as_a_shell_takes_it() {
    let long = RunView { run_id: "0".repeat(36), ..run("paused", vec![]) };
    let text = drawn_in(&long, 60);
    assert!(text.contains("      countersign runs resume \\\n        000000"), "{text}");
}

#[test]
fn who_ended_or_halted_a_run_and_why() {
    let at = Some("2026-11-15T19:44:28Z".to_owned());
    let (by, reason) = (Some("admin".to_owned()), Some("wrong customer".to_owned()));
    let cancelled = run("cancelled", vec![step(0, "a", "cancelled", json!({}))]);
    let cancelled = RunView { ended_at: at.clone(), ended_by: by.clone(), reason: reason.clone(), ..cancelled };
    let text = drawn(&cancelled, MAX_ROWS);
    assert!(text.contains("cancelled  3 min ago · 2026-11-15 19:44:28Z by admin: wrong customer"), "{text}");
    let paused =
        RunView { halted_at: at, halted_by: by, reason, ..run("paused", vec![step(0, "a", "ready", json!({}))]) };
    let text = drawn(&paused, MAX_ROWS);
    assert!(text.contains("paused     3 min ago · 2026-11-15 19:44:28Z by admin: wrong customer"), "{text}");
    // What is ready is handed to nobody.
    assert_eq!(hints(&paused), ["it is paused: countersign runs resume r-1"]);
}

#[test]
fn a_rejection_says_who_and_why() {
    let gate = json!({"action": "go", "from_state": "run", "guard": "boss", "step_id": "g-1", "approver_ref": "boss",
        "state": "Rejected", "binding": "current", "fate": "unspent", "scope": "s", "subject_ref": "x",
        "submitter_ref": "shop", "submitted_at": NOW, "decided_at": NOW, "decided_by": "boss",
        "decision_reason": "too risky", "assignment": {"assignment_id": "a-1", "task_ref": "g-1",
        "assignee_ref": "boss", "assigned_at": NOW, "status": "Active"}});
    let failed = step(0, "go", "failed", json!({"last_error": "REJECTED"}));
    let mut view = serde_json::to_value(run("failed", vec![failed])).expect("JSON");
    view["gates"] = json!([gate]);
    view["last_error"] = "REJECTED".into();
    let text = drawn(&serde_json::from_value(view).expect("a run"), MAX_ROWS);
    assert_eq!(text.matches("REJECTED by boss: too risky").count(), 2, "{text}");
}

#[test]
fn a_failure_that_is_held_waits_for_somebody() {
    let held = run("executing", vec![step(0, "a", "failed", json!({"attempts": 1, "last_error": "no"}))]);
    let commands: Vec<String> = next(&held, now()).into_iter().map(|(_, command)| command).collect();
    let expected = ["step retry r-1 a", "step escalate r-1 a", "runs cancel r-1 --reason …"];
    assert_eq!(commands, expected.map(|command| format!("countersign {command}")));
}

#[test]
fn what_failed_is_tried_again_and_not_what_was_cancelled_because_of_it() {
    let steps = vec![step(0, "l", "cancelled", json!({})), step(1, "r", "failed", json!({"last_error": "no"}))];
    assert_eq!(hints(&run("failed", steps)), ["try again from r in a new run: countersign runs retry r-1 --from r"]);
}

#[test]
fn a_queued_run_says_what_it_waits_for() {
    let queued = RunView { concurrency_key: Some("k-1".into()), ..run("queued", vec![]) };
    let text = drawn(&queued, MAX_ROWS);
    assert!(text.contains("waits      for a slot: key k-1"), "{text}");
    assert!(text.contains("countersign runs list --definition order-process"), "{text}");
    let later = RunView { start_at: Some("2026-11-15T21:47:27.9Z".into()), ..queued.clone() };
    let text = drawn(&later, MAX_ROWS);
    assert!(text.contains("not before in 2 h") && !text.contains("for a slot"), "{text}");
    assert!(!drawn(&RunView { start_at: Some(NOW.into()), ..queued }, MAX_ROWS).contains("not before"));
}

#[test]
fn a_failed_run_can_be_tried_again_from_where_it_failed() {
    let steps = vec![
        step(0, "a", "completed", json!({})),
        step(1, "b", "failed", json!({"attempts": 5, "last_error": "no"})),
        step(2, "c", "not_started", json!({})),
    ];
    let failed = run("failed", steps);
    assert_eq!(next(&failed, now())[0].1, "countersign runs retry r-1 --from b");
    assert!(!succeeded(&failed) && is_ended(&failed.state));
    let rolled_back = RunView { outcome: Some("rolled_back".into()), state: "completed".into(), ..failed.clone() };
    assert!(!succeeded(&rolled_back));
    assert!(plain(&state_text("completed", Some("rolled_back"))).contains("completed (rolled_back)"));
    assert!(succeeded(&RunView { outcome: None, ..rolled_back }));
}

#[test]
fn what_waits_for_a_worker_is_said_once_per_queue() {
    let ready = (0..3).map(|seq| step(seq, &format!("s{seq}"), "ready", json!({}))).collect();
    let next = next(&run("executing", ready), now());
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].1, "countersign work orders --exec …");
}

fn book_gate(action: &str, state: &str) -> Value {
    json!({"action": action, "from_state": "run", "guard": "sovereign", "step_id": "g-1", "approver_ref": "dba_lead",
        "state": state, "binding": "current", "fate": "unspent", "scope": "prod:resume", "submitter_ref": "op",
        "submitted_at": NOW, "assignment": {"assignment_id": "a-1", "status": "Active"}})
}

fn runbook(state: &str, more: Value) -> RunView {
    let mut view = serde_json::to_value(run(state, vec![])).expect("JSON");
    view["phase"] = "backup_taken".into();
    if let (Value::Object(view), Value::Object(more)) = (&mut view, more) {
        view.extend(more);
    }
    serde_json::from_value(view).expect("a run")
}

#[test]
fn a_runbook_shows_its_checks_pins_caps_and_files() {
    let (pinned, digest) = ("9f2c".repeat(16), "41ab".repeat(16));
    let steps = vec![
        step(
            0,
            "pin",
            "completed",
            json!({"checks": [{"name": "exists", "held": true}, {"name": "few", "held": false}],
            "artifacts": [{"path": "pre_write.gpg", "sha256": digest, "size_bytes": 12}]}),
        ),
        step(1, "migrate", "in_progress", json!({"soft_cap_at": "2026-11-15T19:57:28Z", "locked_by": "w"})),
    ];
    let pins = json!([{"pin": "schema", "step": "pin", "value": pinned, "digest": digest}]);
    let view = runbook(
        "executing",
        json!({"steps": steps, "pins": pins, "executing_ms": 61_000, "hard_cap_ms": 3_600_000, "dry_run": true,
        "pin_errors": [{"pin": "grants", "error": "exit code 3"}]}),
    );
    let text = drawn(&view, MAX_ROWS);
    for part in [
        "phase      backup_taken",
        "hard cap   58m59s of 1h executing time left",
        "dry run",
        "grants could not be looked at: exit code 3",
        "✓ exists, ✕ few, left pre_write.gpg (12 bytes, 41ab41ab41ab…)",
        "soft cap: 10 min left",
        "schema  9f2c9f2c9f2c…  41ab41ab41ab…  pin",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_stopped_runbook_shows_the_difference_who_decides_and_what_comes_then() {
    let drift = json!([
        {"pin": "schema", "pinned": "9f2c".repeat(16), "live": "41ab".repeat(16)},
        {"pin": "rows", "pinned": 7, "live": null},
    ]);
    let errors = json!([{"pin": "rows", "error": "exit code 1: no such table"}]);
    let stopped = json!({"outcome": "drift", "drift": drift, "pin_errors": errors});
    let of = |gates: Value| {
        let mut more = stopped.clone();
        more["gates"] = gates;
        runbook("stopped", more)
    };
    let text = drawn(&of(json!([book_gate("resume", "Pending")])), MAX_ROWS);
    assert!(text.contains("  schema  pinned 9f2c9f2c9f2c…  live 41ab41ab41ab…\n"), "{text}");
    assert!(text.contains("  rows    pinned 7  live no value (exit code 1: no such table)"), "{text}");
    let resume = "countersign runs resume r-1 --approval g-1";
    assert_eq!(
        hints(&of(json!([book_gate("resume", "Pending")]))),
        ["dba_lead decides on resume: countersign gate decide r-1 resume approve", &format!("then: {resume}")]
    );
    assert_eq!(hints(&of(json!([book_gate("resume", "Approved")]))), [format!("it is approved: {resume}")]);
    let refused = hints(&of(json!([book_gate("resume", "Rejected")])));
    assert_eq!(refused, ["ask again for an approval: countersign gate open r-1 resume"]);
    let lost = step(0, "migrate", "ready", json!({"effect_unknown": true}));
    let unknown = runbook(
        "stopped",
        json!({"outcome": "lease_expired", "steps": [lost], "gates": [book_gate("resume", "Approved")]}),
    );
    assert_eq!(
        hints(&unknown),
        [
            "first say what became of migrate: countersign runs declare-effect r-1 migrate completed|not-done --reason …",
            &format!("it is approved: {resume}"),
        ]
    );
}

#[test]
fn a_failed_runbook_is_voided_and_not_tried_again() {
    let failed = |gates: Value| runbook("failed", json!({"gates": gates}));
    let ask = "if it is not to count, ask for its voiding: countersign gate open r-1 void --reason …";
    assert_eq!(hints(&failed(json!([]))), [ask]);
    let waits = hints(&failed(json!([book_gate("void", "Pending")])));
    assert_eq!(waits, ["dba_lead decides on void: countersign gate decide r-1 void approve"]);
    let approved = hints(&failed(json!([book_gate("void", "Approved")])));
    assert_eq!(approved, ["its voiding is approved: countersign runs void r-1 --approval g-1 --reason …"]);
}

#[test]
fn values_that_look_alike_are_shown_in_full() {
    let (a, b) = (format!("{}1", "x".repeat(50)), format!("{}2", "x".repeat(50)));
    let drift = json!([{"pin": "p", "pinned": a, "live": b}]);
    let drift: Vec<countersign_client::wire::DriftView> = serde_json::from_value(drift).expect("drift");
    assert_eq!(
        drift_lines(&drift, &[]).iter().map(|line| plain(line)).collect::<Vec<_>>(),
        [format!("p  pinned {a}  live {b}")]
    );
}

#[test]
fn a_quorum_is_named_as_a_whole() {
    let mut second = book_gate("migrate", "Pending");
    second["approver_ref"] = "owner".into();
    let waits = runbook("blocked", json!({"gates": [book_gate("migrate", "Pending"), second]}));
    assert_eq!(hints(&waits), ["dba_lead, owner decide on migrate: countersign gate decide r-1 migrate approve"]);
}

#[test]
fn the_file_behind_a_digest_stays() {
    let printed = json!(format!("{}  /etc/hosts", "9f2c".repeat(16)));
    assert_eq!(short(&printed), "9f2c9f2c9f2c…  /etc/hosts");
}
