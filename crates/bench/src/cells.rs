//! What it costs to draw a run of 10,000 steps, and to follow it: all cells, and what changed after one completion.

use crate::report::{Report, Row};
use crate::target::Target;
use crate::workflows::{QUEUE, config, publish, start_named};
use anyhow::{Context, ensure};
use countersign_engine::{Call, ClaimCall, Command, Engine, Proof, Target as Aim};
use countersign_kernel::InstanceId;
use countersign_kernel::run::{self, TaskRef};
use countersign_ledger::sha256;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const STEPS: usize = 10_000;
const DELTAS: usize = 200;
const WHOLE: usize = 20;
const LEASE_US: i64 = 600_000_000;

pub async fn measure(store: &str, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("{store}: cells of a run of {STEPS} steps …");
    let target = Target::in_process_with(store, config()).await?;
    let engine = target.engine.clone().context("no engine")?;
    engine.bootstrap("admin", sha256(&[b"bench"])).await?;
    let mut text = format!("kind: workflow\nname: wide\norder: dag\nqueue: {QUEUE}\nsteps:\n");
    (0..STEPS).try_for_each(|n| writeln!(text, "  - {{name: s{n}}}"))?;
    publish(&engine, &text).await?;
    let run_id = start_named(&engine, "wide").await?;
    let (mut deltas, mut since) = (vec![], None);
    for _ in 0..DELTAS {
        since = Some(engine.read_cells("admin", run_id, since).await?.run.chain.sequence);
        complete_one(&engine).await?;
        let before = Instant::now();
        let delta = engine.read_cells("admin", run_id, since).await?;
        deltas.push(u32::try_from(before.elapsed().as_micros())?);
        ensure!(!delta.full && delta.steps.len() == 1, "{} steps changed", delta.steps.len());
    }
    let mut whole = vec![];
    for _ in 0..WHOLE {
        let before = Instant::now();
        ensure!(engine.read_cells("admin", run_id, None).await?.steps.len() == STEPS);
        whole.push(u32::try_from(before.elapsed().as_micros())?);
    }
    for (work, samples) in [("cells: delta of one in 10,000", deltas), ("cells: all of 10,000", whole)] {
        let total: u64 = samples.iter().map(|us| u64::from(*us)).sum();
        report.add(Row::new(work, store, "in process", 1, &samples, Duration::from_micros(total)));
    }
    drop(engine);
    target.close().await
}

async fn complete_one(engine: &Engine) -> anyhow::Result<()> {
    let claim = ClaimCall { queue: QUEUE.into(), worker_id: "bench".into(), max: 1, lease: LEASE_US };
    let task = engine.claim("admin", Proof::InProcess, claim, Duration::ZERO).await?.pop().context("no task")?;
    let of = TaskRef { step_seq: task.step_seq, lease_token: uuid::Uuid::try_parse(&task.lease_token).ok() };
    let command = run::Command::Complete {
        task: of,
        output: "null".into(),
        outbound: vec![],
        claim_next: None,
        artifacts: vec![],
    };
    let target = Aim::Existing(InstanceId::parse(&task.run_id).context("an id")?);
    let command = Command::Run { target, command };
    engine.execute(Call { actor_ref: "admin".to_owned(), proof: Proof::InProcess, command, idempotency: None }).await?;
    Ok(())
}
