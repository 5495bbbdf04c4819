//! A step that is a run of its own: the child is started once per attempt, whatever happens in between; its end ends the
//! step (the engine's clockwork sees to that).

use super::{own_call, report};
use countersign_engine::{Call, Engine, IdempotencyKey, Outcome, Target, Task};
use countersign_kernel::InstanceId;
use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::run::{self, Parent, StartRun};
use countersign_ledger::sha256;
use std::sync::Weak;

pub async fn start(engine: &Weak<Engine>, task: &Task, name: &str, version: Option<u32>) {
    let (Some(held), Some(run_id)) = (engine.upgrade(), InstanceId::parse(&task.run_id)) else { return };
    let command = run::Command::Start(Box::new(StartRun {
        definition: name.to_owned(),
        version,
        input: task.input.clone(),
        subject_ref: None,
        priority: None,
        start_at: None,
        corrects: None,
        from_step: None,
        parent: Some(Parent { run_id, step_seq: task.step_seq }),
        concurrency_key: None,
        trace_id: held.trace_of(run_id).await.ok().flatten(),
    }));
    let key = format!("child/{}/{}", task.task_id(), task.attempt);
    let request_digest = sha256(&[key.as_bytes()]);
    let call = own_call(&held, Target::New, command);
    let call = Call { idempotency: Some(IdempotencyKey { key, request_digest }), ..call };
    let started = held.execute(call).await;
    drop(held);
    match started {
        Ok(Outcome::RunStarted { run_id }) => {
            let Some(child) = InstanceId::parse(&run_id) else { return };
            report(engine, task, |task| run::Command::ChildStarted { task, child }).await;
        }
        Ok(outcome) => tracing::error!(?outcome, "a child run was not started"),
        Err(refusal) => {
            let error = format!("the child run of `{name}` could not be started: {refusal}");
            let category = Some(FailureCategory::Validation);
            report(engine, task, |task| run::Command::Dead { task, error, category }).await;
        }
    }
}
