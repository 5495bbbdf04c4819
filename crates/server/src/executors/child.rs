//! A step that is a run of its own: the child is started once, however many attempts that takes; its end ends the step (the
//! engine's clockwork sees to that). Only where the step has to be done again is there another child.

use super::{Done, PAUSE, own_call};
use countersign_engine::{Call, Engine, IdempotencyKey, Outcome, Target, Task};
use countersign_executor::Verdict;
use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::run::{self, Job, Parent, StartRun};
use countersign_kernel::{InstanceId, Refusal};
use countersign_ledger::sha256;
use std::sync::Weak;

pub async fn start(engine: &Weak<Engine>, task: &Task, job: &Job, name: &str, version: Option<u32>) -> Done {
    loop {
        let why = match try_start(engine, task, job, name, version).await {
            Ok(child) => return Done::Child(child),
            Err(Some(refusal)) if refusal.passes() => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(Some(refusal)) => refusal.to_string(),
            Err(None) => "the engine did not start it".to_owned(),
        };
        return Done::Verdict(Verdict::Dead {
            last_error: format!("the child run of `{name}` could not be started: {why}"),
            category: Some(FailureCategory::Validation),
        });
    }
}

async fn try_start(
    engine: &Weak<Engine>,
    task: &Task,
    job: &Job,
    name: &str,
    version: Option<u32>,
) -> Result<InstanceId, Option<Refusal>> {
    let (held, run_id) = engine.upgrade().zip(InstanceId::parse(&task.run_id)).ok_or(None)?;
    let command = run::Command::Start(Box::new(StartRun {
        version,
        parent: Some(Parent { run_id, step_seq: task.step_seq }),
        trace_id: held.trace_of(run_id).await?,
        ..StartRun::new(name, task.input.clone())
    }));
    // Whoever tries again, after a lost lease or a crash, finds the child that there is.
    let after = job.last_child.map_or_else(|| "none".to_owned(), |child| child.to_string());
    let key = format!("child/{}/{}/{after}", task.task_id(), task.cycle);
    let request_digest = sha256(&[key.as_bytes()]);
    let call = own_call(&held, Target::New, command);
    match held.execute(Call { idempotency: Some(IdempotencyKey { key, request_digest }), ..call }).await? {
        Outcome::RunStarted { run_id } => InstanceId::parse(&run_id).ok_or(None),
        outcome => {
            tracing::error!(?outcome, "a child run was not started");
            Err(None)
        }
    }
}
