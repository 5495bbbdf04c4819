//! What the dearest commands on a run of 10,000 steps take of the processor, with the writing of their rows: the committer
//! decides nothing else meanwhile. Counted is the time of all threads of this process, so PostgreSQL's own is not in it.

use crate::report::{Report, Row};
use crate::target::Target;
use crate::workflows::{QUEUE, call, config, publish, start_named};
use anyhow::Context;
use countersign_engine::{ClaimCall, Command, Engine, Proof, Target as Aim, Task};
use countersign_kernel::InstanceId;
use countersign_kernel::run::{self, TaskRef};
use countersign_ledger::sha256;
use std::fmt::Write as _;
use std::time::Duration;

const STEPS: usize = 10_000;
const TIMES: usize = 5;
const LEASE_US: i64 = 600_000_000;
const AT_ONCE: usize = 1000;

pub async fn measure(store: &str, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("{store}: commands on runs of {STEPS} steps …");
    let target = Target::in_process_with(store, config()).await?;
    let engine = target.engine.clone().context("no engine")?;
    engine.bootstrap("admin", sha256(&[b"bench"])).await?;
    publish(&engine, &document()?).await?;
    let mut samples: Vec<(&str, Vec<u32>)> =
        ["start", "claim one", "claim 1,000", "complete one", "cancel"].map(|name| (name, vec![])).into();
    for _ in 0..TIMES {
        let (started, run_id) = spent(start_named(&engine, "wide")).await?;
        let (one, mut task) = spent(claim(&engine, QUEUE, 1)).await?;
        let (many, _) = spent(claim(&engine, QUEUE, AT_ONCE)).await?;
        let (completed, ()) = spent(complete(&engine, &task.pop().context("no task")?)).await?;
        let cancel = run::Command::Cancel { reason: Some("measured".to_owned()), approval_id: None, compensate: false };
        let (cancelled, ()) = spent(on_run(&engine, run_id, cancel)).await?;
        for ((_, samples), took) in samples.iter_mut().zip([started, one, many, completed, cancelled]) {
            samples.push(took);
        }
    }
    samples.push(("undo: the failure that begins it", vec![undo(&engine).await?]));
    for (name, samples) in samples {
        let total: u64 = samples.iter().map(|us| u64::from(*us)).sum();
        let work = format!("CPU of `{name}`, 10,000 steps");
        report.add(Row::new(&work, store, "in process", 1, &samples, Duration::from_micros(total)));
    }
    drop(engine);
    target.close().await
}

fn document() -> anyhow::Result<String> {
    let mut text = format!(
        "kind: workflow\nname: wide\nqueue: {QUEUE}\nfailurePolicy: compensate\nretryPolicy: {{maxRetries: 0}}\nsteps:\n"
    );
    (0..STEPS).try_for_each(|n| writeln!(text, "  - {{name: s{n}}}"))?;
    let names: Vec<String> = (0..STEPS).map(|n| format!("s{n}")).collect();
    writeln!(text, "  - {{name: last, queue: last, dependsOn: [{}]}}\ncompensation:", names.join(", "))?;
    (0..STEPS).try_for_each(|n| writeln!(text, "  - {{step: s{n}, action: undo, agent: {QUEUE}}}"))?;
    Ok(text)
}

/// All steps but the last one are done, the last one fails: one command lists 10,000 compensations.
async fn undo(engine: &Engine) -> anyhow::Result<u32> {
    start_named(engine, "wide").await?;
    for _ in 0..STEPS / AT_ONCE {
        for task in claim(engine, QUEUE, AT_ONCE).await? {
            complete(engine, &task).await?;
        }
    }
    let task = claim(engine, "last", 1).await?.pop().context("the last step is not ready")?;
    let dead = run::Command::Dead { task: reference(&task), error: "measured".to_owned(), category: None };
    let run_id = InstanceId::parse(&task.run_id).context("an id")?;
    Ok(spent(on_run(engine, run_id, dead)).await?.0)
}

fn reference(task: &Task) -> TaskRef {
    TaskRef { step_seq: task.step_seq, lease_token: uuid::Uuid::try_parse(&task.lease_token).ok() }
}

async fn claim(engine: &Engine, queue: &str, max: usize) -> anyhow::Result<Vec<Task>> {
    let claim = ClaimCall { queue: queue.into(), worker_id: "bench".into(), max, lease: LEASE_US };
    Ok(engine.claim("admin", Proof::InProcess, claim, Duration::from_secs(5)).await?)
}

async fn complete(engine: &Engine, task: &Task) -> anyhow::Result<()> {
    let command = run::Command::Complete {
        task: reference(task),
        output: "null".into(),
        outbound: vec![],
        claim_next: None,
        artifacts: vec![],
    };
    on_run(engine, InstanceId::parse(&task.run_id).context("an id")?, command).await
}

async fn on_run(engine: &Engine, run_id: InstanceId, command: run::Command) -> anyhow::Result<()> {
    engine.execute(call(Command::Run { target: Aim::Existing(run_id), command })).await?;
    Ok(())
}

/// Microseconds of processor time that it took, of all threads.
async fn spent<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<(u32, T)> {
    let before = processor_us()?;
    let done = work.await?;
    Ok((u32::try_from(processor_us()? - before)?, done))
}

fn processor_us() -> anyhow::Result<u64> {
    let mut total_ns = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        // A thread may have ended meanwhile.
        let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        total_ns += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).context("schedstat")?;
    }
    Ok(total_ns / 1000)
}
