//! A survey: the shell and http pins of a run, looked at side by side, each within its own time. What cannot be looked at has
//! no value, and the run and the log say why; a runbook that cannot see stops.

use super::Tools;
use countersign_engine::Task;
use countersign_executor::Verdict;
use countersign_executor::http::HttpJob;
use countersign_executor::mask::Mask;
use countersign_executor::shell::ShellJob;
use countersign_kernel::plan::Work;
use countersign_kernel::run::Probe;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// A pin, and its value (JSON text) or why it has none.
pub type Looked = (Arc<str>, Result<Arc<str>, String>);

/// Every pin with its value, as a JSON text, or why it has none. Dropping the future kills every probe.
pub async fn look(task: &Task, tools: &Tools) -> Vec<Looked> {
    let given: Vec<Arc<str>> = task.probes.iter().flat_map(|probe| probe.secrets.clone()).collect();
    let mask = tools.secrets.mask(&given).await;
    let mut looking = JoinSet::new();
    for probe in task.probes.clone() {
        let (tools, mask, key) = (tools.clone(), mask.clone(), task.idempotency_key());
        let (run_id, step) = (task.run_id.clone(), task.step.to_string());
        looking.spawn(async move {
            let value = one(&probe, &tools, mask, Asked { run_id, step, key }).await;
            (probe.pin, value)
        });
    }
    let mut values = Vec::with_capacity(task.probes.len());
    while let Some(looked) = looking.join_next().await {
        match looked {
            Ok((pin, Ok(value))) => values.push((pin, Ok(value.into()))),
            Ok((pin, Err(why))) => {
                tracing::warn!(task_id = task.task_id(), %pin, why = why.as_str(), "a pin has no value");
                values.push((pin, Err(why)));
            }
            Err(error) => tracing::error!(task_id = task.task_id(), %error, "a probe broke off"),
        }
    }
    values
}

/// For whom a probe looks.
struct Asked {
    run_id: String,
    step: String,
    key: String,
}

async fn one(probe: &Probe, tools: &Tools, mask: Mask, asked: Asked) -> Result<String, String> {
    let texts = probe.filled.as_ref().map_err(Clone::clone)?;
    let filled = |i: usize| texts.get(i).and_then(|text| text.as_deref());
    let timeout = Some(Duration::from_micros(probe.timeout.unsigned_abs()));
    let Asked { run_id, step, key: idempotency_key } = asked;
    match &probe.work {
        Work::Shell(_) if !tools.shell => Err("this server carries out no shell steps".to_owned()),
        Work::Shell(work) => {
            let shell = ShellJob::filled(work, filled(0).unwrap_or("null"), filled(1)).map_err(why)?;
            ShellJob { timeout, idempotency_key, run_id, step, mask, ..shell }.probe().await
        }
        Work::Http(work) => {
            let executor = tools.http.as_ref().ok_or("this server carries out no http steps")?;
            let http = HttpJob::filled(work, filled(0).unwrap_or("null"), filled(1), filled(2)).map_err(why)?;
            let allow_private = tools.allow_private;
            executor.probe(&HttpJob { timeout, idempotency_key, allow_private, mask, ..http }).await
        }
        Work::Worker | Work::Approval(_) | Work::Wait(_) | Work::Workflow { .. } | Work::Human { .. } => {
            Err("not the work of an executor".to_owned())
        }
    }
}

fn why(refused: Verdict) -> String {
    refused.error().unwrap_or_else(|| "it cannot be looked at".to_owned())
}
