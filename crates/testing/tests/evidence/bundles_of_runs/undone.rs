//! Runs that are undone: one because a step failed, one because it was cancelled with `compensate`.

use super::Works;
use anyhow::{Context, ensure};
use countersign_client::wire;
use serde_json::json;

const SAGA: &str = "
kind: workflow
name: travel
order: linear
failurePolicy: compensate
steps:
  - {name: hotel, onFailure: compensate}
  - {name: flight, onFailure: compensate}
  - {name: car, onFailure: compensate, timeout: 700ms, retryPolicy: {maxRetries: 0}}
compensation:
  - {step: hotel, action: cancel-hotel, agent: undo}
  - {step: flight, action: cancel-flight, agent: undo}
  - {step: car, action: cancel-car, agent: undo}
";

pub async fn runs(works: &Works) -> anyhow::Result<[String; 2]> {
    Ok([saga(works).await?, called_off(works).await?])
}

/// The last step times out, nobody knows whether it happened, somebody says that it did; all is undone.
async fn saga(works: &Works) -> anyhow::Result<String> {
    works.publish(SAGA).await?;
    let run_id = works.start("travel", json!({})).await?;
    let first = works.claim("default").await?;
    let second = works.complete(&first, json!({"room": 1})).await?.next.context("the next step")?;
    works.complete(&second, json!({"seat": 2})).await?;
    works.state(&run_id, "blocked").await?;
    let declared = wire::DeclareEffect {
        result: wire::DeclaredResult::Completed,
        output: Some(json!({"car": "red"})),
        reason: "the agency confirms it".to_owned(),
    };
    works.ines.declare_effect(&run_id, "car", &declared).await?;
    for _ in 0..3 {
        let task = works.claim("undo").await?;
        let request = wire::CompleteTask { lease_token: task.lease_token.clone(), ..Default::default() };
        works.admin.complete_task(&task.task_id, &request).await?;
    }
    works.state(&run_id, "completed").await?;
    Ok(run_id)
}

/// One step is done and the next at work when the cancel, which is signed, takes it away.
async fn called_off(works: &Works) -> anyhow::Result<String> {
    let run_id = works.start("travel", json!({})).await?;
    let first = works.claim("default").await?;
    works.complete(&first, json!({"room": 7})).await?.next.context("the next step")?;
    let request = wire::ControlRun { reason: Some("no visa".to_owned()), approval_id: None, compensate: true };
    let moved = works.ines.control_run(&run_id, "cancel", &request).await?.body;
    ensure!(moved.state == "blocked", "nobody knows what became of the flight: {moved:?}");
    let result = wire::DeclaredResult::NotDone;
    let declared = wire::DeclareEffect { result, output: None, reason: "no ticket".to_owned() };
    works.ines.declare_effect(&run_id, "flight", &declared).await?;
    let task = works.claim("undo").await?;
    let request = wire::CompleteTask { lease_token: task.lease_token.clone(), ..Default::default() };
    works.admin.complete_task(&task.task_id, &request).await?;
    works.state(&run_id, "cancelled").await?;
    Ok(run_id)
}
