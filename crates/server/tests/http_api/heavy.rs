//! Commands that are made to take as much work as they can: each fails in its own bounds, and nobody else waits for it.

use crate::support::Server;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Its start uses up a whole budget.
const HEAVY: &str = "kind: workflow\nname: heavy\nsteps: [{name: A}]\n\
    correlationKey: \"${string(input.items.all(x, input.items.all(y, x + y >= 0)))}\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_beyond_its_budget_is_refused() {
    let server = Server::start().await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", HEAVY).await.created();
    let many = json!({"definition": "heavy", "input": {"items": (0..5000).collect::<Vec<_>>()}});
    let answer = admin.post("/v1/runs", many).await;
    answer.refused_at(400, "invalid-request", "input");
    assert!(answer.text.contains("more work than one command may do"), "{}", answer.text);
    let few = json!({"definition": "heavy", "input": {"items": [1, 2, 3]}});
    admin.post("/v1/runs", few).await.created();
}

/// Of the steps that become ready in one command, those that find the budget used up fail; the others have had their share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_conditions_share_the_budget_of_their_command() {
    let server = Server::start().await;
    let admin = server.admin();
    let steps: String = (0..200)
        .map(|i| format!("- {{name: s{i}, onFailure: hold, when: \"${{input.items.all(x, x != -{i})}}\"}}\n"))
        .collect();
    admin
        .post_bytes("/v1/definitions", format!("kind: workflow\nname: many\norder: dag\nqueue: q\nsteps:\n{steps}"))
        .await
        .created();
    let start = json!({"definition": "many", "input": {"items": (1..1000).collect::<Vec<_>>()}});
    let run = admin.post("/v1/runs", start).await.created();
    let run_id = run["run_id"].as_str().expect("an id").to_owned();
    let run = admin.get(&format!("/v1/runs/{run_id}")).await.ok();
    let steps = run["steps"].as_array().expect("steps");
    let failed = steps.iter().filter(|step| {
        let error = step["last_error"].as_str().unwrap_or_default();
        error.starts_with("EXPRESSION_ERROR: when: ") && error.contains("more work than one command may do")
    });
    let failed = failed.count();
    assert!(failed > 0 && failed < 200, "{failed} of {} failed", steps.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_answered_while_heavy_commands_wait_for_each_other() {
    const FLOOD: usize = 40;
    let server = Server::start().await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", HEAVY).await.created();
    let heavy = json!({"definition": "heavy", "input": {"items": (0..5000).collect::<Vec<_>>()}});
    let answered = Arc::new(AtomicUsize::new(0));
    let flood: Vec<_> = (0..FLOOD)
        .map(|_| {
            let (admin, heavy, answered) = (server.admin(), heavy.clone(), answered.clone());
            tokio::spawn(async move {
                admin.post("/v1/runs", heavy).await.refused_at(400, "invalid-request", "input");
                answered.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    // While the first is answered, the others wait.
    while answered.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    for path in ["/healthz", "/readyz", "/healthz"] {
        admin.get(path).await.ok();
    }
    let before = answered.load(Ordering::SeqCst);
    assert!(before < FLOOD, "all {FLOOD} heavy commands went before");
    for call in flood {
        call.await.expect("an answer");
    }
    assert_eq!(answered.load(Ordering::SeqCst), FLOOD);
}
