//! Runs that start by the clock: one run for each tick, on however many nodes and in whichever version, and as much at a time
//! as the definition says.

use anyhow::ensure;
use countersign_definition::Cel;
use countersign_engine::port::{Page, RunQuery, RunView};
use countersign_engine::{Command, Config, Engine, Target};
use countersign_kernel::Time;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, Mark, MarkDefinition};
use countersign_kernel::run::{self, StartRun};
use countersign_server::schedule::Ticker;
use countersign_testing::hands::{Hand, LEASE, SECOND, call, claim, complete, publish, start, state};
use countersign_testing::on_both;
use countersign_testing::place::{Kind, Place, close};
use std::sync::Arc;
use std::time::Duration;

on_both! {
    a_tick_starts_a_run,
    a_tick_is_skipped_while_a_run_is_under_way,
    a_run_that_is_to_start_later_is_not_under_way,
    a_key_is_the_text_that_was_computed,
    ticks_that_queue_go_one_after_the_other,
    who_queues_keeps_to_the_definition_s_own_limit,
    a_new_version_loses_no_tick,
    ticks_that_were_missed_are_caught_up_once,
    a_tick_that_was_skipped_is_not_caught_up,
    what_is_paused_does_not_start,
    the_retired_starts_nothing_and_lives_again,
}

const MINUTE: i64 = 60 * SECOND;
/// Nothing comes: whoever waits for work this long has waited for the dispatcher too.
const SHORT: Duration = Duration::from_millis(300);

fn every_minute(head: &str, overlap: &str) -> String {
    format!(
        "kind: workflow\nname: clocked\nqueue: q\n{head}schedule: [{{cron: \"* * * * *\", input: {{key: k}}, overlap: {overlap}}}]\n\
         steps: [{{name: A}}]\n"
    )
}

struct Stage {
    place: Place,
    hand: Hand,
    engine: Arc<Engine>,
    ticker: Ticker,
}

impl Stage {
    /// In the middle of a minute.
    async fn new(kind: Kind, definition: &str) -> anyhow::Result<Stage> {
        let (place, hand) = (Place::new(kind).await?, Hand::default());
        hand.turn(MINUTE + MINUTE / 2 - hand.wall() % MINUTE);
        let config = Config { language: Arc::new(Cel::default()), clock: hand.clock(), ..Config::default() };
        let engine = place.engine(config).await?;
        publish(&engine, definition).await?;
        let mut ticker = Ticker::default();
        ticker.look(&engine).await;
        Ok(Stage { place, hand, engine, ticker })
    }

    async fn minutes(&mut self, minutes: i64) -> anyhow::Result<usize> {
        for _ in 0..minutes {
            self.hand.turn(MINUTE);
            self.ticker.look(&self.engine).await;
            self.engine.tick().await;
        }
        Ok(runs(&self.engine).await?.len())
    }

    async fn end(self) -> anyhow::Result<()> {
        close(self.engine).await?;
        self.place.remove().await
    }
}

async fn runs(engine: &Engine) -> anyhow::Result<Vec<RunView>> {
    let page = Page { after: None, limit: 100, descending: false };
    Ok(engine.own_runs(&RunQuery::default(), &page).await?)
}

async fn a_tick_starts_a_run(kind: Kind) -> anyhow::Result<()> {
    let mut stage = Stage::new(kind, &every_minute("", "allow")).await?;
    ensure!(runs(&stage.engine).await?.is_empty());
    ensure!(stage.minutes(3).await? == 3);
    // Within the same minute nothing more comes, nor from another node that looks at the same patterns.
    stage.ticker.look(&stage.engine).await;
    ensure!(runs(&stage.engine).await?.len() == 3);
    ensure!(runs(&stage.engine).await?.iter().all(|run| run.row.input.contains("\"k\"")));
    stage.end().await
}

async fn a_tick_is_skipped_while_a_run_is_under_way(kind: Kind) -> anyhow::Result<()> {
    let mut stage = Stage::new(kind, &every_minute("", "skip")).await?;
    ensure!(stage.minutes(3).await? == 1);
    let tasks = claim(&stage.engine, 5, LEASE, Duration::from_secs(5)).await?;
    ensure!(tasks.len() == 1, "{tasks:?}");
    complete(&stage.engine, &tasks[0], false).await?;
    ensure!(stage.minutes(2).await? == 2);
    stage.end().await
}

async fn a_run_that_is_to_start_later_is_not_under_way(kind: Kind) -> anyhow::Result<()> {
    let mut stage = Stage::new(kind, &every_minute("", "skip")).await?;
    let next_year = Time(stage.engine.now().0 + 365 * 24 * 60 * MINUTE);
    // More than are read at a time.
    for _ in 0..120 {
        let later = StartRun { start_at: Some(next_year), ..StartRun::new("clocked", "{}") };
        let command = run::Command::Start(Box::new(later));
        stage.engine.execute(call(Command::Run { target: Target::New, command })).await?;
    }
    stage.minutes(2).await?;
    let tasks = claim(&stage.engine, 5, LEASE, Duration::from_secs(5)).await?;
    ensure!(tasks.len() == 1, "{tasks:?}");
    stage.end().await
}

async fn a_key_is_the_text_that_was_computed(kind: Kind) -> anyhow::Result<()> {
    let key = r#"say "hi" \ there"#;
    let definition = every_minute("concurrency: {key: \"${input.key}\", limit: 1}\n", "queue")
        .replace("{key: k}", &serde_json::json!({"key": key}).to_string());
    let mut stage = Stage::new(kind, &definition).await?;
    ensure!(stage.minutes(1).await? == 1);
    let run = runs(&stage.engine).await?.remove(0);
    ensure!(
        run.row.concurrency_key.as_deref() == Some(&*format!("@schedule/0/{key}")),
        "{:?}",
        run.row.concurrency_key
    );
    stage.end().await
}

/// Claims everything there is, one task at a time, and completes it.
async fn one_after_the_other(engine: &Engine, times: usize) -> anyhow::Result<()> {
    for n in 0..times {
        let tasks = claim(engine, 5, 600 * SECOND, Duration::from_secs(10)).await?;
        ensure!(tasks.len() == 1, "{} at a time, at the {n}th", tasks.len());
        ensure!(claim(engine, 5, LEASE, SHORT).await?.is_empty());
        complete(engine, &tasks[0], false).await?;
        engine.tick().await;
    }
    ensure!(claim(engine, 5, LEASE, SHORT).await?.is_empty());
    Ok(())
}

async fn ticks_that_queue_go_one_after_the_other(kind: Kind) -> anyhow::Result<()> {
    let mut stage = Stage::new(kind, &every_minute("", "queue")).await?;
    ensure!(stage.minutes(3).await? == 3);
    one_after_the_other(&stage.engine, 3).await?;
    stage.end().await
}

async fn who_queues_keeps_to_the_definition_s_own_limit(kind: Kind) -> anyhow::Result<()> {
    for (limit, at_once) in [(1, 1), (5, 2)] {
        let head = format!("concurrency: {{key: \"${{input.key}}\", limit: {limit}}}\n");
        let mut stage = Stage::new(kind, &every_minute(&head, "queue")).await?;
        let by_hand = start(&stage.engine, "clocked", "{\"key\": \"k\"}").await?;
        stage.engine.tick().await;
        ensure!(state(&stage.engine, by_hand).await? == "executing");
        ensure!(stage.minutes(3).await? == 4);
        let tasks = claim(&stage.engine, 5, 600 * SECOND, Duration::from_secs(5)).await?;
        ensure!(tasks.len() == at_once, "{} instead of {at_once} at a time", tasks.len());
        for task in &tasks {
            complete(&stage.engine, task, false).await?;
        }
        stage.engine.tick().await;
        one_after_the_other(&stage.engine, 4 - at_once).await?;
        stage.end().await?;
    }
    Ok(())
}

async fn a_new_version_loses_no_tick(kind: Kind) -> anyhow::Result<()> {
    let mut stage = Stage::new(kind, &every_minute("", "allow")).await?;
    // The tick falls, and before anybody looks a new version is there.
    stage.hand.turn(MINUTE);
    publish(&stage.engine, &every_minute("priority: 7\n", "allow")).await?;
    // A node that looks for the first time begins now.
    let mut other = Ticker::default();
    other.look(&stage.engine).await;
    ensure!(runs(&stage.engine).await?.is_empty());
    stage.ticker.look(&stage.engine).await;
    let started = runs(&stage.engine).await?;
    ensure!(started.len() == 1 && started[0].row.definition_version == 2, "{started:?}");
    stage.end().await
}

/// The server is down for so long, and comes back with nothing in its memory but the store.
async fn after_a_restart(stage: Stage, minutes: i64) -> anyhow::Result<Stage> {
    let Stage { place, hand, engine, .. } = stage;
    close(engine).await?;
    hand.turn(minutes * MINUTE);
    let config = Config { language: Arc::new(Cel::default()), clock: hand.clock(), ..Config::default() };
    let engine = place.engine(config).await?;
    let mut ticker = Ticker::default();
    ticker.look(&engine).await;
    Ok(Stage { place, hand, engine, ticker })
}

fn catching_up(overlap: &str) -> String {
    every_minute("", overlap).replace("overlap:", "catchUp: 3m, overlap:")
}

async fn ticks_that_were_missed_are_caught_up_once(kind: Kind) -> anyhow::Result<()> {
    let mut stage = Stage::new(kind, &catching_up("allow")).await?;
    ensure!(stage.minutes(1).await? == 1);
    // Three of the ten lie within the window; after another restart none is started again.
    for (minutes, expected) in [(10, 4), (0, 4), (2, 6)] {
        stage = after_a_restart(stage, minutes).await?;
        let all = runs(&stage.engine).await?.len();
        ensure!(all == expected, "{all} runs in place of {expected} after {minutes} minutes");
    }
    stage.end().await
}

async fn a_tick_that_was_skipped_is_not_caught_up(kind: Kind) -> anyhow::Result<()> {
    let mut stage = Stage::new(kind, &catching_up("skip")).await?;
    ensure!(stage.minutes(3).await? == 1);
    let tasks = claim(&stage.engine, 5, 600 * SECOND, Duration::from_secs(5)).await?;
    complete(&stage.engine, &tasks[0], false).await?;
    let stage = after_a_restart(stage, 0).await?;
    ensure!(runs(&stage.engine).await?.len() == 1);
    stage.end().await
}

async fn mark(engine: &Engine, mark: Mark, reason: Option<&str>) -> Result<(), Refusal> {
    let command = MarkDefinition { mark, name: "clocked".to_owned(), reason: reason.map(str::to_owned) };
    engine.execute(call(Command::Registry(registry::Command::MarkDefinition(command)))).await.map(|_| ())
}

async fn what_is_paused_does_not_start(kind: Kind) -> anyhow::Result<()> {
    let mut stage = Stage::new(kind, &catching_up("allow")).await?;
    mark(&stage.engine, Mark::Paused, Some("the press is being cleaned")).await?;
    ensure!(stage.minutes(2).await? == 0);
    // It is paused after a restart too, and what fell in the pause is lost.
    let mut stage = after_a_restart(stage, 1).await?;
    ensure!(stage.minutes(1).await? == 0);
    mark(&stage.engine, Mark::Resumed, None).await?;
    ensure!(stage.minutes(2).await? == 2);
    let sequence = stage.engine.registry().sequence();
    mark(&stage.engine, Mark::Resumed, None).await?;
    ensure!(stage.engine.registry().sequence() == sequence, "nothing changed, and there is a record");
    stage.end().await
}

async fn the_retired_starts_nothing_and_lives_again(kind: Kind) -> anyhow::Result<()> {
    let definition = every_minute("", "allow");
    let mut stage = Stage::new(kind, &definition).await?;
    ensure!(stage.minutes(1).await? == 1);
    mark(&stage.engine, Mark::Retired, Some("replaced")).await?;
    ensure!(stage.minutes(2).await? == 1);
    let code = |refused: Result<(), Refusal>| refused.err().map(|refusal| refusal.code);
    ensure!(code(mark(&stage.engine, Mark::Retired, Some("again")).await) == Some(Code::NotActive));
    ensure!(code(mark(&stage.engine, Mark::Paused, Some("again")).await) == Some(Code::NotActive));
    let named = start(&stage.engine, "clocked", "{}").await;
    ensure!(named.is_err_and(|error| error.to_string().contains("retired")));
    // Its live run goes on.
    let tasks = claim(&stage.engine, 5, 600 * SECOND, Duration::from_secs(5)).await?;
    ensure!(tasks.len() == 1);
    complete(&stage.engine, &tasks[0], false).await?;
    // The same document again is a version of its own, and starts; the one before does not.
    let mut stage = after_a_restart(stage, 1).await?;
    ensure!(runs(&stage.engine).await?.len() == 1);
    publish(&stage.engine, &definition).await?;
    stage.ticker.look(&stage.engine).await;
    ensure!(stage.minutes(2).await? == 3);
    let newest = runs(&stage.engine).await?.pop().map(|run| run.row.definition_version);
    ensure!(newest == Some(2), "{newest:?}");
    let old = StartRun { version: Some(1), ..StartRun::new("clocked", "{}") };
    let old = Command::Run { target: Target::New, command: run::Command::Start(Box::new(old)) };
    ensure!(stage.engine.execute(call(old)).await.is_err_and(|refusal| refusal.code == Code::NotActive));
    stage.end().await
}

/// Two nodes: a pause and a retirement of the one hold on the other, which has not heard of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_on_the_other_node() -> anyhow::Result<()> {
    let mut stage = Stage::new(Kind::Postgres, &every_minute("", "allow")).await?;
    let config = Config { language: Arc::new(Cel::default()), clock: stage.hand.clock(), ..Config::default() };
    let behind = stage.place.engine(config).await?;
    let mut other = Ticker::default();
    other.look(&behind).await;
    mark(&stage.engine, Mark::Paused, Some("the press is being cleaned")).await?;
    stage.hand.turn(MINUTE);
    other.look(&behind).await;
    ensure!(runs(&stage.engine).await?.is_empty(), "it started while it was paused");
    mark(&stage.engine, Mark::Resumed, None).await?;
    mark(&stage.engine, Mark::Retired, Some("replaced")).await?;
    ensure!(start(&behind, "clocked", "{}").await.is_err(), "the other node started the retired");
    ensure!(stage.minutes(1).await? == 0);
    close(behind).await?;
    stage.end().await
}

/// Two nodes, of which one has not heard of the new version yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_know_different_versions_start_one_run() -> anyhow::Result<()> {
    let mut stage = Stage::new(Kind::Postgres, &every_minute("", "allow")).await?;
    let config = Config { language: Arc::new(Cel::default()), clock: stage.hand.clock(), ..Config::default() };
    let behind = stage.place.engine(config).await?;
    let mut other = Ticker::default();
    other.look(&behind).await;
    publish(&stage.engine, &every_minute("priority: 7\n", "allow")).await?;
    stage.ticker.look(&stage.engine).await;
    stage.hand.turn(MINUTE);
    stage.ticker.look(&stage.engine).await;
    other.look(&behind).await;
    let started = runs(&stage.engine).await?;
    ensure!(started.len() == 1, "{} runs for one tick", started.len());
    close(behind).await?;
    stage.end().await
}
