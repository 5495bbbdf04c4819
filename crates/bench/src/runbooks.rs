//! The cost of a step of a runbook compared with a plain step: before each step a survey of ten pins is claimed and
//! answered. The probes take no time here.

use crate::report::{Report, Row};
use crate::workflows::{Place, QUEUE, STEPS, call, publish, rate, work};
use countersign_engine::{ClaimCall, Command, Engine, Proof, Target};
use countersign_kernel::InstanceId;
use countersign_kernel::run::{self, SURVEY_QUEUE, StartRun, TaskRef};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

const PINS: usize = 10;
/// Of runbooks and plain runs, one after the other: the machine is not the same from one moment to the next.
const TURNS: usize = 3;

/// `ratio_to_limit` is the rate of a runbook's steps by that of plain ones.
pub async fn measure(
    place: &Place,
    store: &str,
    runs: usize,
    workers: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    eprintln!("{store}: runbooks with {PINS} pins …");
    publish(&place.engine, &definition()).await?;
    book(&place.engine, runs.min(20), workers).await?;
    let (mut books, mut plain) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..TURNS {
        books += book(&place.engine, runs, workers).await?;
        plain += place.w1(runs, workers, STEPS).await?;
    }
    let steps = runs * STEPS * TURNS;
    let mut row = Row::rate("step of a runbook, 10 pins", store, "in process", workers, rate(steps, books));
    row.ratio_to_limit = Some(plain.as_secs_f64() / books.as_secs_f64());
    report.add(row);
    Ok(())
}

fn definition() -> String {
    let mut text = format!(
        "kind: workflow\nname: book\norder: linear\nqueue: {QUEUE}\nfailurePolicy: fail-closed\n\
         gate_spec: {{sovereign: {{approver_ref: admin, scope: bench}}}}\nsteps:\n  - name: s0\n    pins:\n"
    );
    for n in 0..PINS {
        let _ = writeln!(text, "      p{n}: {{run: shell, command: [echo, \"1\"]}}");
    }
    for n in 1..STEPS {
        let _ = writeln!(text, "  - {{name: s{n}}}");
    }
    text
}

/// Starts all runs; workers work, and as many others look at pins, until all have ended.
async fn book(engine: &Arc<Engine>, runs: usize, workers: usize) -> anyhow::Result<Duration> {
    let left = Arc::new(AtomicI64::new(i64::try_from(runs * STEPS)?));
    let begin = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..workers {
        let (engine, own) = (engine.clone(), (n..runs).step_by(workers).len());
        tasks.spawn(async move {
            for _ in 0..own {
                let command = run::Command::Start(Box::new(StartRun::new("book", "null")));
                engine.execute(call(Command::Run { target: Target::New, command })).await?;
            }
            anyhow::Ok(())
        });
    }
    for n in 0..workers {
        let (worker, left_of) = (engine.clone(), left.clone());
        tasks.spawn(async move { work(&worker, n, &left_of).await });
        let (looker, left_of) = (engine.clone(), left.clone());
        tasks.spawn(async move { look(&looker, &left_of).await });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(begin.elapsed())
}

async fn look(engine: &Engine, left: &AtomicI64) -> anyhow::Result<()> {
    let actor_ref = engine.config().application_actor_ref.clone();
    while left.load(Ordering::Relaxed) > 0 {
        let claim = ClaimCall { queue: SURVEY_QUEUE.into(), worker_id: "w".into(), max: 1, lease: 60_000_000 };
        let claimed = engine.claim(&actor_ref, Proof::InProcess, claim, Duration::from_millis(200)).await?;
        for task in claimed {
            let values = task.probes.iter().map(|probe| (probe.pin.clone(), Some(Arc::from("1")))).collect();
            let lease_token = uuid::Uuid::try_parse(&task.lease_token).ok();
            let task_ref = TaskRef { step_seq: task.step_seq, lease_token };
            let run_id = InstanceId::parse(&task.run_id).unwrap_or(InstanceId::REGISTRY);
            let command = run::Command::Survey { task: task_ref, values, errors: Vec::new() };
            let target = Target::Existing(run_id);
            let answer =
                countersign_engine::Call { actor_ref: actor_ref.clone(), ..call(Command::Run { target, command }) };
            engine.execute(answer).await?;
        }
    }
    Ok(())
}
