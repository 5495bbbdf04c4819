//! Limited queues (`queues:`): who is given a slot, when it is free again, and how it passes on to the next task.

use anyhow::{Context, bail, ensure};
use countersign_definition::Cel;
use countersign_engine::{ClaimCall, Command, Config, Engine, Outcome, Proof, Target, Task};
use countersign_kernel::InstanceId;
use countersign_kernel::run::{self, StartRun};
use countersign_testing::hands::{Hand, LEASE, SECOND, call, claim, complete, held, on_run, publish, start};
use countersign_testing::on_both;
use countersign_testing::place::{ADMIN, Kind, Place, close};
use std::sync::Arc;
use std::time::{Duration, Instant};

on_both! {
    higher_priority_is_given_the_room,
    who_found_no_room_goes_before_a_lower_priority_that_came_later,
    the_best_of_several_runs_are_given_the_room,
    a_freed_slot_is_there_at_once,
    who_waits_for_a_slot_is_woken,
    the_one_free_slot_of_many_is_found,
    a_limit_holds_up_nobody_else,
    a_limit_in_another_queue_keeps_nothing_back,
    a_slot_passes_on_to_the_next_step,
    a_slot_passes_on_to_the_next_run,
    a_passed_slot_is_given_back,
    there_is_no_next_task_without_a_token,
    a_narrow_queue_is_not_slow,
}

const LONG: Duration = Duration::from_secs(15);

/// By the engine's clock nothing is tried again: it stands still until it is moved.
async fn stage(kind: Kind) -> anyhow::Result<(Place, Arc<Engine>, Hand)> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let config = Config { language: Arc::new(Cel::default()), clock: hand.clock(), ..Config::default() };
    let engine = place.engine(config).await?;
    Ok((place, engine, hand))
}

fn workflow(name: &str, head: &str, steps: &str) -> String {
    format!("kind: workflow\nname: {name}\nqueue: q\n{head}steps: [{steps}]\n")
}

/// By their ids runs stand in the order of their starts.
async fn start_with(engine: &Engine, hand: &Hand, definition: &str, priority: u8) -> anyhow::Result<InstanceId> {
    hand.turn(SECOND / 100);
    let start = StartRun { priority: Some(priority), ..StartRun::new(definition, "{}") };
    let command = run::Command::Start(Box::new(start));
    match engine.execute(call(Command::Run { target: Target::New, command })).await? {
        Outcome::RunStarted { run_id } => InstanceId::parse(&run_id).context("an id"),
        outcome => bail!("{outcome:?}"),
    }
}

async fn at_once(engine: &Engine, max: usize) -> anyhow::Result<Vec<Task>> {
    Ok(claim(engine, max, LEASE, Duration::ZERO).await?)
}

/// Of these runs, in this order and nothing else.
fn require(tasks: &[Task], runs: &[InstanceId]) -> anyhow::Result<()> {
    let (found, wanted): (Vec<&str>, Vec<String>) =
        (tasks.iter().map(|task| task.run_id.as_str()).collect(), runs.iter().map(ToString::to_string).collect());
    ensure!(found == wanted, "{found:?} instead of {wanted:?}");
    Ok(())
}

async fn higher_priority_is_given_the_room(kind: Kind) -> anyhow::Result<()> {
    for head in ["queues: {q: {limit: 1}}\n", "queues: {q: {rateLimit: {count: 1, per: 1s}}}\n"] {
        let (place, engine, hand) = stage(kind).await?;
        publish(&engine, &workflow("narrow", head, "{name: A}")).await?;
        start_with(&engine, &hand, "narrow", 1).await?;
        let high = start_with(&engine, &hand, "narrow", 9).await?;
        require(&at_once(&engine, 5).await?, &[high])?;
        close(engine).await?;
        place.remove().await?;
    }
    Ok(())
}

async fn who_found_no_room_goes_before_a_lower_priority_that_came_later(kind: Kind) -> anyhow::Result<()> {
    let (place, engine, hand) = stage(kind).await?;
    publish(&engine, &workflow("narrow", "queues: {q: {limit: 1}}\n", "{name: A}")).await?;
    start(&engine, "narrow", "{}").await?;
    let holder = at_once(&engine, 1).await?.remove(0);
    let high = start_with(&engine, &hand, "narrow", 9).await?;
    require(&at_once(&engine, 1).await?, &[])?;
    let low = start_with(&engine, &hand, "narrow", 1).await?;
    require(&at_once(&engine, 1).await?, &[])?;
    complete(&engine, &holder, false).await?;
    let first = at_once(&engine, 5).await?;
    require(&first, &[high])?;
    complete(&engine, &first[0], false).await?;
    require(&at_once(&engine, 5).await?, &[low])?;
    close(engine).await?;
    place.remove().await
}

/// Slots are given step by step, not run by run: one run's low priority does not go before another's high one.
async fn the_best_of_several_runs_are_given_the_room(kind: Kind) -> anyhow::Result<()> {
    let (place, engine, hand) = stage(kind).await?;
    let steps = "{name: HIGH, priority: 9}, {name: LOW, priority: 1}";
    publish(&engine, &workflow("narrow", "order: dag\nqueues: {q: {limit: 2}}\n", steps)).await?;
    let first = start_with(&engine, &hand, "narrow", 5).await?;
    let second = start_with(&engine, &hand, "narrow", 5).await?;
    let tasks = at_once(&engine, 4).await?;
    require(&tasks, &[first, second])?;
    ensure!(tasks.iter().all(|task| &*task.step == "HIGH"), "{tasks:?}");
    close(engine).await?;
    place.remove().await
}

async fn a_freed_slot_is_there_at_once(kind: Kind) -> anyhow::Result<()> {
    let (place, engine, hand) = stage(kind).await?;
    publish(&engine, &workflow("narrow", "queues: {q: {limit: 2}}\n", "{name: A}")).await?;
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(start_with(&engine, &hand, "narrow", 5).await?);
    }
    let mut tasks = at_once(&engine, 4).await?;
    require(&tasks, &runs[..2])?;
    require(&at_once(&engine, 4).await?, &[])?;
    for next in 2..4 {
        complete(&engine, &tasks[next - 2], false).await?;
        let found = at_once(&engine, 4).await?;
        require(&found, &runs[next..=next])?;
        tasks.extend(found);
    }
    // However a step comes to be nobody's.
    engine
        .execute(on_run(
            runs[2],
            run::Command::Cancel { reason: Some("not needed".to_owned()), approval_id: None, compensate: false },
        ))
        .await?;
    let last = start_with(&engine, &hand, "narrow", 5).await?;
    require(&at_once(&engine, 4).await?, &[last])?;
    close(engine).await?;
    place.remove().await
}

async fn who_waits_for_a_slot_is_woken(kind: Kind) -> anyhow::Result<()> {
    let (place, engine, hand) = stage(kind).await?;
    publish(&engine, &workflow("narrow", "queues: {q: {limit: 1}}\n", "{name: A}")).await?;
    start_with(&engine, &hand, "narrow", 5).await?;
    let second = start_with(&engine, &hand, "narrow", 5).await?;
    let holder = at_once(&engine, 1).await?.remove(0);
    let waiting = {
        let engine = engine.clone();
        tokio::spawn(async move { claim(&engine, 1, LEASE, LONG).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    ensure!(!waiting.is_finished());
    let freed = Instant::now();
    complete(&engine, &holder, false).await?;
    require(&waiting.await??, &[second])?;
    ensure!(freed.elapsed() < LONG / 2, "{:?}", freed.elapsed());
    close(engine).await?;
    place.remove().await
}

/// Not all of so many slots are looked at in one go.
async fn the_one_free_slot_of_many_is_found(kind: Kind) -> anyhow::Result<()> {
    const SLOTS: usize = 300;
    let (place, engine, _) = stage(kind).await?;
    let steps: Vec<String> = (0..=SLOTS + 1).map(|n| format!("{{name: S{n}}}")).collect();
    let head = format!("order: dag\nqueues: {{q: {{limit: {SLOTS}}}}}\n");
    publish(&engine, &workflow("wide", &head, &steps.join(", "))).await?;
    start(&engine, "wide", "{}").await?;
    let tasks = at_once(&engine, 1000).await?;
    ensure!(tasks.len() == SLOTS, "{}", tasks.len());
    ensure!(claim(&engine, 1, LEASE, Duration::from_millis(300)).await?.is_empty(), "more than there is room for");
    complete(&engine, &tasks[SLOTS / 2], false).await?;
    ensure!(claim(&engine, 5, LEASE, LONG).await?.len() == 1);
    ensure!(claim(&engine, 5, LEASE, Duration::from_millis(300)).await?.is_empty(), "more than there is room for");
    complete(&engine, &tasks[0], false).await?;
    ensure!(claim(&engine, 5, LEASE, LONG).await?.len() == 1);
    close(engine).await?;
    place.remove().await
}

async fn a_limit_holds_up_nobody_else(kind: Kind) -> anyhow::Result<()> {
    let (place, engine, hand) = stage(kind).await?;
    publish(&engine, &workflow("narrow", "queues: {q: {limit: 1}}\n", "{name: A}")).await?;
    publish(&engine, &workflow("other", "queues: {q: {limit: 1}}\n", "{name: A}")).await?;
    publish(&engine, &workflow("free", "", "{name: A}")).await?;
    start_with(&engine, &hand, "narrow", 9).await?;
    start_with(&engine, &hand, "narrow", 9).await?;
    ensure!(at_once(&engine, 2).await?.len() == 1);
    require(&at_once(&engine, 2).await?, &[])?;
    let free = start_with(&engine, &hand, "free", 1).await?;
    let other = start_with(&engine, &hand, "other", 5).await?;
    let later = start_with(&engine, &hand, "free", 7).await?;
    require(&at_once(&engine, 9).await?, &[later, other, free])?;
    // Another version's limit is another one, though it counts the same leases.
    publish(&engine, &workflow("narrow", "queues: {q: {limit: 2}}\n", "{name: A}")).await?;
    let wider = start_with(&engine, &hand, "narrow", 5).await?;
    require(&at_once(&engine, 9).await?, &[wider])?;
    close(engine).await?;
    place.remove().await
}

async fn a_limit_in_another_queue_keeps_nothing_back(kind: Kind) -> anyhow::Result<()> {
    let (place, engine, hand) = stage(kind).await?;
    publish(&engine, &workflow("free", "order: linear\nqueues: {other: {limit: 1}}\n", "{name: A}, {name: B}")).await?;
    let first = start_with(&engine, &hand, "free", 5).await?;
    let second = start_with(&engine, &hand, "free", 5).await?;
    let task = at_once(&engine, 1).await?.remove(0);
    let next = complete(&engine, &task, true).await?.context("no next task")?;
    require(std::slice::from_ref(&next), &[first])?;
    let next = complete(&engine, &next, true).await?.context("no next task of another run")?;
    require(&[next], &[second])?;
    close(engine).await?;
    place.remove().await
}

async fn a_slot_passes_on_to_the_next_step(kind: Kind) -> anyhow::Result<()> {
    let (place, engine, hand) = stage(kind).await?;
    let steps = "{name: A}, {name: B}, {name: C}";
    publish(&engine, &workflow("narrow", "order: linear\nqueues: {q: {limit: 1}}\n", steps)).await?;
    let first = start_with(&engine, &hand, "narrow", 5).await?;
    let second = start_with(&engine, &hand, "narrow", 5).await?;
    let mut task = at_once(&engine, 1).await?.remove(0);
    for step in ["B", "C"] {
        let next = complete(&engine, &task, true).await?.with_context(|| format!("{step} was not handed out"))?;
        ensure!(&*next.step == step && next.run_id == first.to_string(), "{next:?}");
        // Whoever lost the answer is handed the same task, and nobody is handed another.
        ensure!(complete(&engine, &task, true).await?.as_ref() == Some(&next));
        require(&at_once(&engine, 5).await?, &[])?;
        task = next;
    }
    complete(&engine, &task, false).await?;
    require(&at_once(&engine, 5).await?, &[second])?;
    close(engine).await?;
    place.remove().await
}

async fn a_slot_passes_on_to_the_next_run(kind: Kind) -> anyhow::Result<()> {
    let (place, engine, hand) = stage(kind).await?;
    publish(&engine, &workflow("narrow", "queues: {q: {limit: 1}}\n", "{name: A}")).await?;
    publish(&engine, &workflow("other", "queues: {q: {limit: 1}}\n", "{name: A}")).await?;
    start_with(&engine, &hand, "narrow", 5).await?;
    let mut task = at_once(&engine, 1).await?.remove(0);
    let low = start_with(&engine, &hand, "narrow", 1).await?;
    let high = start_with(&engine, &hand, "narrow", 9).await?;
    require(&at_once(&engine, 5).await?, &[])?;
    for run_id in [high, low] {
        let next = complete(&engine, &task, true).await?.context("no next task")?;
        require(std::slice::from_ref(&next), &[run_id])?;
        ensure!(complete(&engine, &task, true).await?.as_ref() == Some(&next));
        require(&at_once(&engine, 5).await?, &[])?;
        task = next;
    }
    // There is nothing more of its own; the room of others is not its to give.
    let other = start_with(&engine, &hand, "other", 5).await?;
    ensure!(complete(&engine, &task, true).await?.is_none());
    let narrow = start_with(&engine, &hand, "narrow", 5).await?;
    require(&at_once(&engine, 5).await?, &[other, narrow])?;
    close(engine).await?;
    place.remove().await
}

/// After any number of tasks that were handed on, there are as many slots as before.
async fn a_passed_slot_is_given_back(kind: Kind) -> anyhow::Result<()> {
    const RUNS: usize = 12;
    let (place, engine, hand) = stage(kind).await?;
    publish(&engine, &workflow("narrow", "order: linear\nqueues: {q: {limit: 3}}\n", "{name: A}, {name: B}")).await?;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(start_with(&engine, &hand, "narrow", 5).await?);
    }
    let mut line = std::collections::VecDeque::from(at_once(&engine, RUNS).await?);
    ensure!(line.len() == 3, "{}", line.len());
    let mut done = 0;
    while let Some(task) = line.pop_front() {
        done += 1;
        line.extend(complete(&engine, &task, true).await?);
        let held = held(&engine, &runs).await?;
        ensure!(held == line.len() && held <= 3, "{held} are held, {} known", line.len());
    }
    ensure!(done == 2 * RUNS, "{done}");
    let mut more = Vec::new();
    for _ in 0..4 {
        more.push(start_with(&engine, &hand, "narrow", 5).await?);
    }
    require(&at_once(&engine, RUNS).await?, &more[..3])?;
    // One that is cancelled holds what it was handed no longer.
    engine
        .execute(on_run(
            more[0],
            run::Command::Cancel { reason: Some("not needed".to_owned()), approval_id: None, compensate: false },
        ))
        .await?;
    require(&at_once(&engine, RUNS).await?, &more[3..])?;
    close(engine).await?;
    place.remove().await
}

async fn there_is_no_next_task_without_a_token(kind: Kind) -> anyhow::Result<()> {
    let (place, engine, hand) = stage(kind).await?;
    let head = "order: linear\nqueues: {q: {limit: 1, rateLimit: {count: 2, per: 10s}}}\n";
    publish(&engine, &workflow("slow", head, "{name: A}, {name: B}, {name: C}")).await?;
    start(&engine, "slow", "{}").await?;
    let a = at_once(&engine, 1).await?.remove(0);
    let b = complete(&engine, &a, true).await?.context("there was a token")?;
    ensure!(complete(&engine, &b, true).await?.is_none(), "a third one in ten seconds");
    require(&at_once(&engine, 1).await?, &[])?;
    hand.turn(11 * SECOND);
    engine.tick().await;
    let c = at_once(&engine, 1).await?;
    ensure!(c.len() == 1 && &*c[0].step == "C", "{c:?}");
    close(engine).await?;
    place.remove().await
}

/// Nobody in a queue of one waits for the clock, which stands still; how fast it is, is said.
async fn a_narrow_queue_is_not_slow(kind: Kind) -> anyhow::Result<()> {
    const RUNS: usize = 200;
    let (place, engine, _) = stage(kind).await?;
    publish(&engine, &workflow("narrow", "queues: {q: {limit: 1}}\n", "{name: A}")).await?;
    for claim_next in [false, true] {
        for _ in 0..RUNS {
            start(&engine, "narrow", "{}").await?;
        }
        let began = Instant::now();
        let mut workers = tokio::task::JoinSet::new();
        for n in 0..4 {
            let engine = engine.clone();
            workers.spawn(async move {
                let mut done = 0;
                loop {
                    let wish = ClaimCall { queue: "q".into(), worker_id: format!("w{n}").into(), max: 5, lease: LEASE };
                    let mut line = engine.claim(ADMIN, Proof::InProcess, wish, Duration::from_secs(1)).await?;
                    if line.is_empty() {
                        return anyhow::Ok(done);
                    }
                    while let Some(task) = line.pop() {
                        line.extend(complete(&engine, &task, claim_next).await?);
                        done += 1;
                    }
                }
            });
        }
        let mut done = 0;
        let mut took = began.elapsed();
        while done < RUNS {
            let ended = workers.join_next().await.context("steps were left over")?;
            done += ended??;
            // The last of a second was spent in waiting for more.
            took = began.elapsed().saturating_sub(Duration::from_secs(1));
        }
        println!("{kind:?}, claim_next {claim_next}: {:.0} steps/s", RUNS as f64 / took.as_secs_f64());
    }
    close(engine).await?;
    place.remove().await
}
