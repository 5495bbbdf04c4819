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

fn drawn(run: &RunView, rows: usize) -> String {
    plain(&render(run, rows, NOW.parse().expect("a time")))
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
            step(
                3,
                "LABEL",
                "failed",
                json!({"attempts": 2, "next_run_at": "2026-11-15T19:47:38Z",
                "last_error": "no paper\u{1b}[2J"}),
            ),
            step(4, "SHIP", "not_started", json!({})),
        ],
    );
    let text = drawn(&run, MAX_ROWS);
    for part in [
        "order-1001 is executing",
        "order-process@1",
        "1/5, green",
        "VALIDATE  Completed    2/5",
        "waiting external, for payment.captured, until in 2 h",
        "In progress  1/5      held by w-1 until in 30 s",
        "2/5      again in 10 s · 2026-11-15 19:47:38Z, no paper\\u{1b}[2J",
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
    assert!(text.contains("… and 60 completed, 39 not started"), "{text}");
    assert!(text.lines().count() < 15, "{text}");
    assert!(drawn(&run, usize::MAX).contains("s99"));
    assert!(drawn(&run, 0).contains("60 completed, 1 in progress, 39 not started"));
}

#[test]
fn a_failed_run_can_be_tried_again_from_where_it_failed() {
    let steps = vec![
        step(0, "a", "completed", json!({})),
        step(1, "b", "failed", json!({"attempts": 5, "last_error": "no"})),
        step(2, "c", "not_started", json!({})),
    ];
    let failed = run("failed", steps);
    assert_eq!(next(&failed)[0].1, "countersign runs retry r-1 --from b");
    assert!(!succeeded(&failed) && is_ended(&failed.state));
    let rolled_back = RunView { outcome: Some("rolled_back".into()), state: "completed".into(), ..failed.clone() };
    assert!(!succeeded(&rolled_back));
    assert!(plain(&state_text("completed", Some("rolled_back"))).contains("completed (rolled_back)"));
    assert!(succeeded(&RunView { outcome: None, ..rolled_back }));
}

#[test]
fn what_waits_for_a_worker_is_said_once_per_queue() {
    let ready = (0..3).map(|seq| step(seq, &format!("s{seq}"), "ready", json!({}))).collect();
    let next = next(&run("executing", ready));
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].1, "countersign work orders");
}
