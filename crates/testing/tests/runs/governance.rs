//! Problems first (seed 003, 7.1 to 7.3): what went wrong is a problem until an event puts it right, and no light turns green
//! without one.

use anyhow::{Context, bail, ensure};
use countersign_definition::Cel;
use countersign_engine::evidence::Exporter;
use countersign_engine::port::{Page, ProblemQuery, Range, RecordQuery};
use countersign_engine::rows::ProblemRow;
use countersign_engine::{Command, Config, Engine, LogConfig, Outcome, Proof, Target, Task};
use countersign_kernel::governance::Category;
use countersign_kernel::run::{self, Act, StartRun, StepAct};
use countersign_kernel::{EventId, InstanceId};
use countersign_testing::hands::{
    Hand, LEASE, SECOND, call, claim, complete, on_run, publish, run_of, start, state, task_ref,
};
use countersign_testing::on_both;
use countersign_testing::place::{ADMIN, Kind, Place, close};
use std::sync::Arc;
use std::time::Duration;

on_both! {
    a_failed_run_is_a_problem_until_its_correction_completes,
    a_dead_step_of_a_held_run_is_a_dead_letter_until_it_is_tried_again,
    an_overdue_step_is_a_problem_until_it_has_ended,
    a_run_without_a_problem_signals_nothing,
    many_signals_are_one_commit,
    the_store_takes_no_row_that_is_resolved_without_an_event,
    a_row_that_turned_green_by_itself_is_found,
    a_window_holds_the_governance_chain,
}

const LONG: Duration = Duration::from_secs(15);
const BRITTLE: &str = "kind: workflow\nname: brittle\nqueue: q\nsteps: [{name: A, retryPolicy: {maxRetries: 0}}]\n";
const HELD: &str =
    "kind: workflow\nname: held\nqueue: q\nsteps: [{name: A, onFailure: hold, retryPolicy: {maxRetries: 0}}]\n";
const LATE: &str = "kind: workflow\nname: late\nqueue: q\nsteps: [{name: A, run: human, pic: admin, deadline: 1h}]\n";

fn config() -> Config {
    Config { language: Arc::new(Cel::default()), log: Some(LogConfig::new([7; 32])), ..Config::default() }
}

async fn problems(engine: &Engine, category: Category) -> anyhow::Result<Vec<ProblemRow>> {
    let page = Page { after: None, limit: 100, descending: false };
    Ok(engine.problems(ADMIN, &ProblemQuery { category, open: None }, &page).await?)
}

async fn open(engine: &Engine, category: Category) -> anyhow::Result<u64> {
    let counts = engine.problem_counts().await?;
    ensure!(counts.len() == 8, "always all eight: {counts:?}");
    counts.into_iter().find(|(of, _)| *of == category).map(|(_, open)| open).context("every category is counted")
}

async fn chain(engine: &Engine) -> anyhow::Result<Vec<String>> {
    let query = RecordQuery { instance_id: Some(InstanceId::GOVERNANCE), ..RecordQuery::default() };
    let page = Page { after: None, limit: 1000, descending: false };
    Ok(engine.read_records(ADMIN, &query, &page).await?.into_iter().map(|row| row.action_ref).collect())
}

/// The newest record of a run: what was signalled last.
async fn newest(engine: &Engine, run_id: InstanceId) -> anyhow::Result<EventId> {
    let query = RecordQuery { instance_id: Some(run_id), ..RecordQuery::default() };
    let page = Page { after: None, limit: 1, descending: true };
    Ok(engine.read_records(ADMIN, &query, &page).await?.first().context("a record")?.event_id)
}

async fn dead(engine: &Engine, task: &Task) -> anyhow::Result<()> {
    let command = run::Command::Dead { task: task_ref(task), error: "broken".to_owned(), category: None };
    engine.execute(on_run(run_of(task), command)).await?;
    Ok(())
}

/// A run whose only step is dead.
async fn fail(engine: &Engine, definition: &str) -> anyhow::Result<InstanceId> {
    let run_id = start(engine, definition, "{}").await?;
    let task = claim(engine, 1, LEASE, LONG).await?.pop().context("a task")?;
    ensure!(run_of(&task) == run_id);
    dead(engine, &task).await?;
    Ok(run_id)
}

async fn sound(engine: &Engine) -> anyhow::Result<()> {
    let report = engine.verify_log(ADMIN, None, &mut |_, _| {}).await?;
    ensure!(report.findings.is_empty(), "{:?}", report.findings);
    Ok(())
}

async fn a_failed_run_is_a_problem_until_its_correction_completes(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    publish(&engine, BRITTLE).await?;
    let failed = fail(&engine, "brittle").await?;
    ensure!(state(&engine, failed).await? == "failed");
    let opening = newest(&engine, failed).await?;
    engine.weigh_signals().await?;
    ensure!(open(&engine, Category::FailedRuns).await? == 1);
    let [problem] = &problems(&engine, Category::FailedRuns).await?[..] else { bail!("one problem") };
    ensure!(problem.problem.opened_event_id == opening && problem.resolved.is_none(), "{problem:?}");
    ensure!(problem.problem.subject.run_id == Some(failed));

    let mut command = StartRun::new("brittle", "{}");
    command.corrects = Some(failed);
    let command = run::Command::Start(Box::new(command));
    let Outcome::RunStarted { run_id } = engine.execute(call(Command::Run { target: Target::New, command })).await?
    else {
        bail!("no run")
    };
    let task = claim(&engine, 1, LEASE, LONG).await?.pop().context("a task")?;
    engine.weigh_signals().await?;
    ensure!(open(&engine, Category::FailedRuns).await? == 1, "the correction has not completed");
    complete(&engine, &task, false).await?;
    engine.weigh_signals().await?;
    ensure!(open(&engine, Category::FailedRuns).await? == 0);
    let correction = InstanceId::parse(&run_id).context("an id")?;
    let [problem] = &problems(&engine, Category::FailedRuns).await?[..] else { bail!("one problem") };
    let end = problem.resolved.context("resolved")?;
    ensure!(end.event_id == newest(&engine, correction).await?, "{problem:?}");
    ensure!(chain(&engine).await? == ["problem_opened", "problem_resolved"]);
    // Weighed once more, nothing happens.
    ensure!(engine.weigh_signals().await? == 0);
    sound(&engine).await?;
    close(engine).await?;
    place.remove().await
}

async fn a_dead_step_of_a_held_run_is_a_dead_letter_until_it_is_tried_again(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    publish(&engine, HELD).await?;
    let run_id = fail(&engine, "held").await?;
    engine.weigh_signals().await?;
    ensure!(open(&engine, Category::Dlq).await? == 1 && open(&engine, Category::FailedRuns).await? == 0);
    let [problem] = &problems(&engine, Category::Dlq).await?[..] else { bail!("one problem") };
    ensure!(problem.problem.subject.step.as_deref() == Some("A"), "{problem:?}");
    let act = StepAct { step: "A".to_owned(), act: Act::Retry, reason: None, preview: false };
    engine.execute(on_run(run_id, run::Command::Act(act))).await?;
    let task = claim(&engine, 1, LEASE, LONG).await?.pop().context("another attempt")?;
    engine.weigh_signals().await?;
    ensure!(open(&engine, Category::Dlq).await? == 0);
    // It dies again: that is another problem.
    dead(&engine, &task).await?;
    engine.weigh_signals().await?;
    ensure!(open(&engine, Category::Dlq).await? == 1);
    ensure!(problems(&engine, Category::Dlq).await?.len() == 2);
    sound(&engine).await?;
    close(engine).await?;
    place.remove().await
}

async fn an_overdue_step_is_a_problem_until_it_has_ended(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(Config { clock: hand.clock(), ..config() }).await?;
    publish(&engine, LATE).await?;
    let run_id = start(&engine, "late", "{}").await?;
    let act = |act| run::Command::Act(StepAct { step: "A".to_owned(), act, reason: None, preview: false });
    engine.execute(on_run(run_id, act(Act::Claim))).await?;
    hand.turn(7200 * SECOND);
    engine.tick().await;
    engine.weigh_signals().await?;
    ensure!(open(&engine, Category::OverdueSteps).await? == 1);
    // Blocked, it is still past its deadline (seed 003, 7.2).
    engine.execute(on_run(run_id, act(Act::Block { block_reason: Some("missing_input".to_owned()) }))).await?;
    engine.weigh_signals().await?;
    ensure!(open(&engine, Category::OverdueSteps).await? == 1);
    engine.execute(on_run(run_id, act(Act::Unblock { evidence_ref: Some("mail:7".to_owned()) }))).await?;
    engine.execute(on_run(run_id, act(Act::Complete { output: "null".into(), outbound: vec![] }))).await?;
    engine.weigh_signals().await?;
    ensure!(open(&engine, Category::OverdueSteps).await? == 0);
    sound(&engine).await?;
    close(engine).await?;
    place.remove().await
}

async fn a_run_without_a_problem_signals_nothing(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    publish(&engine, BRITTLE).await?;
    start(&engine, "brittle", "{}").await?;
    let task = claim(&engine, 1, LEASE, LONG).await?.pop().context("a task")?;
    complete(&engine, &task, false).await?;
    ensure!(place.texts("SELECT key FROM problem_signals").await?.is_empty());
    ensure!(engine.weigh_signals().await? == 0 && chain(&engine).await?.is_empty());
    close(engine).await?;
    place.remove().await
}

async fn many_signals_are_one_commit(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    publish(&engine, BRITTLE).await?;
    for _ in 0..20 {
        fail(&engine, "brittle").await?;
    }
    ensure!(engine.weigh_signals().await? == 20);
    ensure!(chain(&engine).await? == ["problem_opened"], "twenty problems are one record");
    ensure!(open(&engine, Category::FailedRuns).await? == 20);
    close(engine).await?;
    place.remove().await
}

/// "Summarizer that flips a problem to OK without such an event MUST be refused at write-time" (MP-D9).
async fn the_store_takes_no_row_that_is_resolved_without_an_event(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    publish(&engine, BRITTLE).await?;
    fail(&engine, "brittle").await?;
    engine.weigh_signals().await?;
    let flipped = place.sql("UPDATE problems SET resolved_at_us = 1").await;
    ensure!(flipped.is_err(), "the store took it");
    ensure!(open(&engine, Category::FailedRuns).await? == 1);
    close(engine).await?;
    place.remove().await
}

/// "Any governance row whose state flipped to green without a corresponding source event reference is an integrity violation."
async fn a_row_that_turned_green_by_itself_is_found(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    publish(&engine, BRITTLE).await?;
    fail(&engine, "brittle").await?;
    engine.weigh_signals().await?;
    sound(&engine).await?;
    // An event of its own making.
    place.sql("UPDATE problems SET resolved_at_us = 1, resolved_event_id = opened_event_id").await?;
    let report = engine.verify_log(ADMIN, None, &mut |_, _| {}).await?;
    let codes: Vec<&str> = report.findings.iter().map(|finding| finding.code).collect();
    ensure!(codes == ["governance-invalid"], "{:?}", report.findings);
    // It is raised, and healed only by a verification that finds nothing.
    engine.weigh_signals().await?;
    ensure!(open(&engine, Category::IntegrityWarnings).await? == 1);
    let [warning] = &problems(&engine, Category::IntegrityWarnings).await?[..] else { bail!("one warning") };
    ensure!(warning.problem.subject.key == InstanceId::GOVERNANCE.to_string(), "{warning:?}");
    place
        .sql("UPDATE problems SET resolved_at_us = NULL, resolved_event_id = NULL WHERE category = 'failed_runs'")
        .await?;
    engine.weigh_signals().await?;
    ensure!(open(&engine, Category::IntegrityWarnings).await? == 1);
    sound(&engine).await?;
    engine.weigh_signals().await?;
    ensure!(open(&engine, Category::IntegrityWarnings).await? == 0);
    sound(&engine).await?;
    let told = ["problem_opened", "condition_observed", "problem_opened", "condition_observed", "problem_resolved"];
    ensure!(chain(&engine).await? == told);
    place.sql("UPDATE problem_counts SET open_count = 0").await?;
    let report = engine.verify_log(ADMIN, Some(InstanceId::GOVERNANCE), &mut |_, _| {}).await?;
    ensure!(report.findings.iter().any(|finding| finding.code == "row-missing"), "{:?}", report.findings);
    // Whoever looks into it can go on.
    fail(&engine, "brittle").await?;
    ensure!(engine.weigh_signals().await? == 1);
    close(engine).await?;
    place.remove().await
}

async fn a_window_holds_the_governance_chain(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    publish(&engine, BRITTLE).await?;
    // A signal that changes nothing leaves a chain without a record: it is in no window.
    let done = start(&engine, "brittle", "{}").await?;
    complete(&engine, &claim(&engine, 1, LEASE, LONG).await?.pop().context("a task")?, false).await?;
    let mut command = StartRun::new("brittle", "{}");
    command.corrects = Some(done);
    let command = run::Command::Start(Box::new(command));
    let Outcome::RunStarted { run_id } = engine.execute(call(Command::Run { target: Target::New, command })).await?
    else {
        bail!("no run")
    };
    let again = InstanceId::parse(&run_id).context("an id")?;
    complete(&engine, &claim(&engine, 1, LEASE, LONG).await?.pop().context("a task")?, false).await?;
    engine.weigh_signals().await?;
    ensure!(chain(&engine).await?.is_empty() && place.texts("SELECT key FROM problem_signals").await?.is_empty());
    let held = engine.instances_in(&Range::default(), None).await?;
    ensure!(held == [done, again], "{held:?}");

    let failed = fail(&engine, "brittle").await?;
    engine.weigh_signals().await?;
    let held = engine.instances_in(&Range::default(), None).await?;
    ensure!(held == [InstanceId::GOVERNANCE, done, again, failed], "{held:?}");
    let view = engine.export_view(InstanceId::GOVERNANCE).await?;
    ensure!(view.instance_id() == InstanceId::GOVERNANCE && view.head().sequence == 1);
    let exporter = Exporter { actor_ref: ADMIN.to_owned(), proof: Proof::InProcess, idempotency: None };
    let alone = engine.export_instance(&exporter, InstanceId::GOVERNANCE).await;
    ensure!(alone.is_err(), "it is taken with a window, not alone");
    close(engine).await?;
    place.remove().await
}

/// Two servers: one opens a problem once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_open_a_problem_once() -> anyhow::Result<()> {
    let place = Place::new(Kind::Postgres).await?;
    let (here, there) = (place.engine(config()).await?, place.engine(config()).await?);
    publish(&here, BRITTLE).await?;
    for _ in 0..5 {
        fail(&here, "brittle").await?;
        let (one, other) = tokio::join!(here.weigh_signals(), there.weigh_signals());
        one?;
        other?;
    }
    ensure!(open(&there, Category::FailedRuns).await? == 5);
    ensure!(problems(&here, Category::FailedRuns).await?.len() == 5);
    ensure!(chain(&here).await?.len() == 5);
    sound(&here).await?;
    close(here).await?;
    close(there).await?;
    place.remove().await
}
