//! What the step model promises beyond one step's way: events that fit their schemas or are refused, histories that outlive a
//! purge, verdicts that outlive a restart, and clocks that cost a commit, not one for each step. On both stores, with a clock
//! that is moved.

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use countersign_definition::Cel;
use countersign_engine::port::{Batch, Committed, Page, RecordQuery, RunQuery, RunView, StoreError, Writer};
use countersign_engine::rows::{RecordRow, Write};
use countersign_engine::run::emit::Emitter;
use countersign_engine::{
    Call, ClaimCall, Command, Config, Engine, IdempotencyKey, LogConfig, Outcome, Proof, Target, Task,
};
use countersign_kernel::lifecycle::{Guard, event_type};
use countersign_kernel::process::{DecideGate, Decision, OpenGate};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::run::{self, Act, StartRun, StepAct, TaskRef};
use countersign_kernel::{InstanceId, registry};
use countersign_ledger::sha256;
use countersign_store::tap::{Copies, Tap, Tapped};
use countersign_testing::drive::commands::publish_command;
use countersign_testing::load::ManualClock;
use countersign_testing::load::client::purge;
use countersign_testing::place::{ADMIN, Kind, Place, close, engine_on};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

countersign_testing::on_both! {
    an_event_that_misses_its_schema_is_refused_and_recorded,
    what_the_engine_itself_may_not_tell_is_recorded_once,
    late_completions_and_corrections_tell_what_they_carry,
    a_purge_keeps_every_visit,
    a_purge_takes_what_transitions_told_the_world,
    a_failure_names_the_attempt_that_failed,
    a_verdict_outlives_a_restart,
    ten_thousand_steps_turn_overdue_in_one_commit,
    ten_thousand_runs_turn_overdue_in_a_few_commits,
}

const HOUR: i64 = 3_600_000_000;
const SEVEN_YEARS: i64 = 2557 * 24 * HOUR;
/// In every text that is purged, and in nothing else.
const MARKER: &str = "Q7-forget-me";
const ALL: Page = Page { after: None, limit: 10_000, descending: false };

const PEOPLE: &str = r#"
kind: workflow
name: people
order: linear
queue: q
gate_spec: {reopen: {approver_ref: admin, scope: s}}
steps:
  - {name: A, run: human, pic: admin, deadline: 1h}
  - {name: B, onFailure: hold, retryPolicy: {maxRetries: 0}}
"#;

fn config(clock: &ManualClock) -> Config {
    Config {
        clock: clock.clock(),
        audit_trail_retention_policy: Some("sox_7_year".to_owned()),
        language: Arc::new(Cel::default()),
        log: Some(LogConfig::new([7; 32])),
        ..Config::default()
    }
}

fn call(command: Command) -> Call {
    Call { actor_ref: ADMIN.to_owned(), proof: Proof::InProcess, command, idempotency: None }
}

fn on_run(run_id: InstanceId, command: run::Command) -> Call {
    call(Command::Run { target: Target::Existing(run_id), command })
}

fn acting(run_id: InstanceId, step: &str, act: Act, reason: Option<&str>) -> Call {
    let act = StepAct { step: step.to_owned(), act, reason: reason.map(str::to_owned), preview: false };
    on_run(run_id, run::Command::Act(act))
}

fn completing(output: &str) -> Act {
    Act::Complete { output: output.into(), outbound: vec![] }
}

async fn publish(engine: &Engine, text: &str) -> anyhow::Result<()> {
    let command = publish_command(text).map_err(|failure| anyhow::anyhow!("{failure}"))?;
    engine.execute(call(Command::Registry(registry::Command::PublishDefinition(command)))).await?;
    Ok(())
}

async fn start(engine: &Engine, definition: &str) -> anyhow::Result<InstanceId> {
    let command = run::Command::Start(Box::new(StartRun::new(definition, "{}")));
    match engine.execute(call(Command::Run { target: Target::New, command })).await? {
        Outcome::RunStarted { run_id } => InstanceId::parse(&run_id).context("an id"),
        outcome => bail!("{outcome:?}"),
    }
}

async fn claim(engine: &Engine, max: usize) -> anyhow::Result<Vec<Task>> {
    let claim = ClaimCall { queue: "q".into(), worker_id: "w".into(), max, lease: 20 * HOUR };
    Ok(engine.claim(ADMIN, Proof::InProcess, claim, Duration::ZERO).await?)
}

fn dead(task: &Task, error: &str) -> anyhow::Result<Call> {
    let of = TaskRef { step_seq: task.step_seq, lease_token: uuid::Uuid::try_parse(&task.lease_token).ok() };
    let command = run::Command::Dead { task: of, error: error.to_owned(), category: None };
    Ok(on_run(InstanceId::parse(&task.run_id).context("an id")?, command))
}

async fn reopen(engine: &Engine, run_id: InstanceId, step: &str) -> anyhow::Result<String> {
    let action = format!("reopen:{step}");
    let open = OpenGate { action: action.clone(), reason: None, request: None };
    let opened = engine.execute(on_run(run_id, run::Command::OpenGate(open))).await?;
    let Outcome::GateOpened { step_id, .. } = opened else { bail!("{opened:?}") };
    let decide = DecideGate { action, decision: Decision::Approve, reason: None, step: None, request_digest: None };
    engine.execute(on_run(run_id, run::Command::DecideGate(decide))).await?;
    let prior = engine.prior(run_id, step).await?.context("nothing closed the step")?;
    let act = Act::Reopen {
        approval_id: Some(step_id.clone()),
        correction_reason: Some("data_error".to_owned()),
        prior: Some(Box::new(prior)),
    };
    engine.execute(acting(run_id, step, act, Some(MARKER))).await?;
    Ok(step_id)
}

async fn view(engine: &Engine, run_id: InstanceId) -> anyhow::Result<RunView> {
    let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
    engine.own_runs(&query, &ALL).await?.into_iter().next().context("no such run")
}

async fn records(engine: &Engine, run_id: InstanceId) -> anyhow::Result<Vec<RecordRow>> {
    let query = RecordQuery { instance_id: Some(run_id), ..RecordQuery::default() };
    Ok(engine.read_records(ADMIN, &query, &ALL).await?)
}

async fn require_sound(engine: &Engine) -> anyhow::Result<()> {
    let report = engine.verify_log(ADMIN, None, &mut |_, _| ()).await?;
    ensure!(report.findings.is_empty(), "{:?}", report.findings);
    Ok(())
}

/// Nothing is ever complete enough for this listener.
fn asks_for_more(name: &str) -> anyhow::Result<Emitter> {
    let row = event_type(name).context("no such event")?;
    Ok(Emitter::new(|wanted| wanted == name).hold_to(row, r#"{"type":"object","required":["colour"]}"#))
}

/// "A schema violation is refused and recorded": nothing changes, nothing is sent, and the ledger says who tried what.
async fn an_event_that_misses_its_schema_is_refused_and_recorded(kind: Kind) -> anyhow::Result<()> {
    let (place, clock) = (Place::new(kind).await?, ManualClock::default());
    let copies = Arc::new(Copies::default());
    let store = Box::new(Tapped { inner: place.store().await?, tap: copies.clone() });
    let engine = engine_on(store, Config { emitter: asks_for_more("step.completed")?, ..config(&clock) }).await?;
    publish(&engine, PEOPLE).await?;
    let run_id = start(&engine, "people").await?;
    engine.execute(acting(run_id, "A", Act::Claim, None)).await?;
    let before = records(&engine, run_id).await?.len();
    let preview = StepAct { step: "A".to_owned(), act: completing("1"), reason: None, preview: true };
    let preview = engine.execute(on_run(run_id, run::Command::Act(preview))).await?;
    ensure!(format!("{preview:?}").contains("event_schema"), "{preview:?}");
    let refused: Refusal = match engine.execute(acting(run_id, "A", completing("1"), None)).await {
        Err(refusal) => refusal,
        Ok(outcome) => bail!("{outcome:?}"),
    };
    ensure!(refused.code == Code::TransitionRefusedByGuard && refused.is_by_guard(Guard::EventSchema), "{refused}");

    let after = records(&engine, run_id).await?;
    ensure!(after.len() == before + 1, "{} records", after.len());
    let last = after.last().context("no record")?;
    let payload: Value = serde_json::from_slice(last.record.payload().context("no payload")?)?;
    ensure!(last.action_ref == "attempt_refused" && last.actor_ref == ADMIN, "{last:?}");
    ensure!(payload["attempted"] == "complete_step" && payload["code"] == "transition_refused_by_guard", "{payload}");
    ensure!(payload["detail"].as_str().is_some_and(|detail| detail.contains("step.completed")), "{payload}");
    let steps = engine.read_run_steps(&view(&engine, run_id).await?, 0, 10).await?;
    ensure!(steps[0].state.state.as_str() == "in_progress", "{:?}", steps[0].state.state);
    let sent = |batch: &Batch| batch.units.iter().any(|u| u.writes.iter().any(|w| matches!(w, Write::Outbox(_))));
    ensure!(!copies.take().iter().any(sent), "something was sent");
    require_sound(&engine).await?;
    close(engine).await?;
    place.remove().await
}

/// The clock would try for ever: that it may not is recorded once.
async fn what_the_engine_itself_may_not_tell_is_recorded_once(kind: Kind) -> anyhow::Result<()> {
    let (place, clock) = (Place::new(kind).await?, ManualClock::default());
    let engine = place.engine(Config { emitter: asks_for_more("step.overdue")?, ..config(&clock) }).await?;
    publish(&engine, PEOPLE).await?;
    let run_id = start(&engine, "people").await?;
    engine.execute(acting(run_id, "A", Act::Claim, None)).await?;
    for _ in 0..3 {
        clock.advance(2 * HOUR);
        let due = run::Command::Due { steps: vec![0], run: false };
        let target = Target::Existing(run_id);
        let own = Call { actor_ref: "countersign".to_owned(), ..call(Command::Run { target, command: due }) };
        ensure!(engine.execute(own).await.is_err_and(|refusal| refusal.is_by_guard(Guard::EventSchema)));
    }
    let refused = records(&engine, run_id).await?;
    let refused: Vec<_> = refused.iter().filter(|record| record.action_ref == "attempt_refused").collect();
    ensure!(refused.len() == 1 && refused[0].actor_ref == "countersign", "{refused:?}");
    require_sound(&engine).await?;
    close(engine).await?;
    place.remove().await
}

/// MP-D2 and MP-D3: `step.completed` carries the three SLA fields of T7, `step.reopened_for_correction` what it reopens and why.
async fn late_completions_and_corrections_tell_what_they_carry(kind: Kind) -> anyhow::Result<()> {
    let (place, clock) = (Place::new(kind).await?, ManualClock::default());
    let copies = Arc::new(Copies::default());
    let store = Box::new(Tapped { inner: place.store().await?, tap: copies.clone() });
    let emitter = Emitter::new(|name| name.starts_with("step."));
    let engine = engine_on(store, Config { emitter, ..config(&clock) }).await?;
    publish(&engine, PEOPLE).await?;
    let run_id = start(&engine, "people").await?;
    engine.execute(acting(run_id, "A", Act::Claim, None)).await?;
    clock.advance(3 * HOUR);
    engine.tick().await;
    clock.advance(HOUR);
    engine.execute(acting(run_id, "A", completing("1"), None)).await?;
    let closed = records(&engine, run_id).await?.last().context("no record")?.event_id;
    let approval_id = reopen(&engine, run_id, "A").await?;
    engine.execute(acting(run_id, "A", completing("2"), None)).await?;
    let give_up = Act::CannotComplete { evidence_ref: Some("mail".to_owned()) };
    ensure!(engine.execute(acting(run_id, "A", give_up, None)).await.is_err());

    let sent: Vec<(String, Value)> = copies
        .take()
        .iter()
        .flat_map(|batch| batch.units.iter().flat_map(|unit| unit.writes.clone()))
        .filter_map(|write| match write {
            Write::Outbox(row) => Some((row.event_type, serde_json::from_str(&row.data).unwrap_or_default())),
            _ => None,
        })
        .collect();
    let of = |name: &str| sent.iter().filter(|(event, _)| event == name).map(|(_, data)| data).collect::<Vec<_>>();
    let completed = of("step.completed");
    ensure!(completed.len() == 2, "{sent:?}");
    let late = completed[0];
    ensure!(late["transition_id"] == "T7" && late["completed_after_deadline"] == true, "{late}");
    // Four hours after it was started, but for the microseconds of the start itself.
    ensure!(late["sla_breach_duration"] == "2h59m59s999ms", "{late}");
    // 1,800,000,000 s after 1970, and three hours.
    ensure!(late["overdue_first_at"].as_str().is_some_and(|at| at.starts_with("2027-01-15T11:00:00")), "{late}");
    ensure!(completed[1].get("completed_after_deadline").is_none(), "{}", completed[1]);
    let reopened = of("step.reopened_for_correction");
    ensure!(reopened.len() == 1, "{sent:?}");
    for (name, value) in [
        ("prior_audit_id", json!(closed.to_string())),
        ("prior_completed_audit_id", json!(closed.to_string())),
        ("original_output_snapshot_id", json!(format!("{run_id}.0.1"))),
        ("correction_reason", json!("data_error")),
        ("approval_id", json!(approval_id)),
        ("cycle", json!(1)),
    ] {
        ensure!(reopened[0][name] == value, "{name}: {}", reopened[0]);
    }
    close(engine).await?;
    place.remove().await
}

async fn purge_all(engine: &Engine, run_id: InstanceId) -> anyhow::Result<usize> {
    let mut purged = 0;
    for record in records(engine, run_id).await? {
        if record.action_ref != "record_purged" {
            purge(engine, ADMIN, record.event_id).await?;
            purged += 1;
        }
    }
    Ok(purged)
}

/// "`step_run_state_history` retains every state visit including `overdue`": what a record said of it outlives its purge,
/// and nothing else of it does.
async fn a_purge_keeps_every_visit(kind: Kind) -> anyhow::Result<()> {
    let (place, clock) = (Place::new(kind).await?, ManualClock::default());
    let engine = place.engine(config(&clock)).await?;
    publish(&engine, PEOPLE).await?;
    let run_id = start(&engine, "people").await?;
    engine.execute(acting(run_id, "A", Act::Claim, Some(MARKER))).await?;
    clock.advance(3 * HOUR);
    engine.tick().await;
    engine.execute(acting(run_id, "A", completing(&json!({"text": MARKER}).to_string()), Some(MARKER))).await?;
    reopen(&engine, run_id, "A").await?;
    engine.execute(acting(run_id, "A", completing("2"), None)).await?;
    clock.advance(1000);
    engine.tick().await;
    let task = claim(&engine, 1).await?.into_iter().next().context("no task")?;
    engine.execute(dead(&task, MARKER)?).await?;
    // What belongs to a run that lives is not purged.
    engine
        .execute(on_run(
            run_id,
            run::Command::Cancel { reason: Some("not needed".to_owned()), approval_id: None, compensate: false },
        ))
        .await?;

    let run = view(&engine, run_id).await?;
    let before = [engine.step_history(&run, 0).await?, engine.step_history(&run, 1).await?];
    let states: Vec<&str> = before[0].visits.iter().map(|visit| visit.to.as_str()).collect();
    let way = ["ready", "in_progress", "overdue", "completed", "in_progress", "completed"];
    ensure!(states == way, "{states:?}");
    clock.advance(SEVEN_YEARS + 24 * HOUR);
    ensure!(purge_all(&engine, run_id).await? > 5);
    for (seq, before) in (0..).zip(&before) {
        let after = engine.step_history(&view(&engine, run_id).await?, seq).await?;
        ensure!(!after.is_purged, "step {seq} is said to have gaps");
        // What somebody gave as a reason is content, and gone.
        let visits = before
            .visits
            .iter()
            .cloned()
            .map(|visit| countersign_engine::run::history::Visit { reason: None, ..visit });
        ensure!(after.visits == visits.collect::<Vec<_>>(), "{:?}\n{:?}", after.visits, before.visits);
    }
    require_sound(&engine).await?;
    close(engine).await?;
    place.require_no_trace(MARKER).await?;
    place.remove().await
}

/// What a transition tells the world repeats what its record says: it goes with the record.
async fn a_purge_takes_what_transitions_told_the_world(kind: Kind) -> anyhow::Result<()> {
    let (place, clock) = (Place::new(kind).await?, ManualClock::default());
    let emitter = Emitter::new(|name| name == "step.failed");
    let engine = place.engine(Config { emitter, ..config(&clock) }).await?;
    publish(&engine, &PEOPLE.replace("  - {name: A, run: human, pic: admin, deadline: 1h}\n", "")).await?;
    let run_id = start(&engine, "people").await?;
    clock.advance(1000);
    engine.tick().await;
    let task = claim(&engine, 1).await?.into_iter().next().context("no task")?;
    engine.execute(dead(&task, MARKER)?).await?;
    engine
        .execute(on_run(
            run_id,
            run::Command::Cancel { reason: Some("not needed".to_owned()), approval_id: None, compensate: false },
        ))
        .await?;
    clock.advance(SEVEN_YEARS + 24 * HOUR);
    let failed = records(&engine, run_id).await?;
    let failed = failed.iter().find(|record| record.action_ref == "step_failed").context("no failure")?.event_id;
    close(engine).await?;
    let told = place.texts("SELECT data FROM outbox").await?;
    ensure!(told.len() == 1 && told[0].contains(MARKER), "{told:?}");
    let engine = place.engine(config(&clock)).await?;
    purge(&engine, ADMIN, failed).await?;
    close(engine).await?;
    let told = place.texts("SELECT data FROM outbox").await?;
    ensure!(told.len() == 1 && told[0].contains(&format!("purged:{failed}")), "{told:?}");
    place.require_no_trace(MARKER).await?;
    place.remove().await
}

async fn a_failure_names_the_attempt_that_failed(kind: Kind) -> anyhow::Result<()> {
    let (place, clock) = (Place::new(kind).await?, ManualClock::default());
    let emitter = Emitter::new(|name| name == "step.failed");
    let engine = place.engine(Config { emitter, ..config(&clock) }).await?;
    publish(&engine, "kind: workflow\nname: twice\nqueue: q\nsteps: [{name: A, retryPolicy: {maxRetries: 1}}]\n")
        .await?;
    start(&engine, "twice").await?;
    for _ in 0..2 {
        clock.advance(HOUR);
        engine.tick().await;
        let task = claim(&engine, 1).await?.into_iter().next().context("no task")?;
        let of = TaskRef { step_seq: task.step_seq, lease_token: uuid::Uuid::try_parse(&task.lease_token).ok() };
        let retry = run::Command::Retry { task: of, error: "busy".to_owned(), backoff: None, category: None };
        engine.execute(on_run(InstanceId::parse(&task.run_id).context("an id")?, retry)).await?;
    }
    close(engine).await?;
    let told = place.texts("SELECT data FROM outbox ORDER BY created_at_us").await?;
    let told: Vec<Value> = told.iter().map(|data| serde_json::from_str(data)).collect::<Result<_, _>>()?;
    let attempts: Vec<_> = told.iter().map(|data| (&data["attempt"], &data["max_attempts"])).collect();
    ensure!(attempts == [(&json!(1), &json!(2)), (&json!(2), &json!(2))], "{told:?}");
    place.remove().await
}

/// The same key is answered with the first verdict by whoever opens the store next: no second record, no second event.
async fn a_verdict_outlives_a_restart(kind: Kind) -> anyhow::Result<()> {
    let (place, clock) = (Place::new(kind).await?, ManualClock::default());
    let config = || Config { emitter: Emitter::new(|name| name == "step.completed"), ..config(&clock) };
    let engine = place.engine(config()).await?;
    publish(&engine, PEOPLE).await?;
    let run_id = start(&engine, "people").await?;
    engine.execute(acting(run_id, "A", Act::Claim, None)).await?;
    let keyed = |digest: &[u8]| Call {
        idempotency: Some(IdempotencyKey { key: "k1".to_owned(), request_digest: sha256(&[digest]) }),
        ..acting(run_id, "A", completing("1"), None)
    };
    let first = engine.execute(keyed(b"complete")).await?;
    let told = records(&engine, run_id).await?.len();
    close(engine).await?;
    // For ever: not only for the day that other answers are kept.
    clock.advance(400 * 24 * HOUR);
    let engine = place.engine(config()).await?;
    ensure!(engine.execute(keyed(b"complete")).await? == first);
    let other = engine.execute(keyed(b"another body")).await;
    ensure!(other.as_ref().is_err_and(|refusal| refusal.code == Code::Conflict), "{other:?}");
    ensure!(records(&engine, run_id).await?.len() == told);
    close(engine).await?;
    ensure!(place.texts("SELECT data FROM outbox").await?.len() == 1);
    place.remove().await
}

/// Counts the transactions that write something of a run.
#[derive(Default)]
struct Count(AtomicUsize);

#[async_trait]
impl Tap for Count {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError> {
        if !batch.units.is_empty() {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        writer.commit(batch).await
    }
}

const MANY: usize = 10_000;

async fn counted(place: &Place, clock: &ManualClock) -> anyhow::Result<(Arc<Engine>, Arc<Count>)> {
    let count = Arc::new(Count::default());
    let store = Box::new(Tapped { inner: place.store().await?, tap: count.clone() });
    let config = Config { log: None, cached_instances: 2 * MANY, ..config(clock) };
    Ok((engine_on(store, config).await?, count))
}

/// How many steps are overdue, and how many commits that took.
async fn turn_overdue(engine: &Engine, clock: &ManualClock, count: &Count) -> anyhow::Result<(usize, usize)> {
    clock.advance(2 * HOUR);
    count.0.store(0, Ordering::SeqCst);
    engine.tick().await;
    let commits = count.0.load(Ordering::SeqCst);
    let mut overdue = 0;
    let mut page = Page { after: None, limit: 500, descending: false };
    loop {
        let runs = engine.own_runs(&RunQuery::default(), &page).await?;
        for run in &runs {
            let steps = engine.read_run_steps(run, 0, MANY).await?;
            overdue += steps.iter().filter(|step| step.state.state.as_str() == "overdue").count();
        }
        match runs.last() {
            Some(last) if runs.len() == 500 => page.after = Some(last.row.instance_id.0),
            _ => return Ok((overdue, commits)),
        }
    }
}

async fn claim_many(engine: &Engine) -> anyhow::Result<()> {
    let mut claimed = 0;
    while claimed < MANY {
        let tasks = claim(engine, 1000).await?.len();
        ensure!(tasks > 0, "{claimed} were claimed, and there are no more");
        claimed += tasks;
    }
    Ok(())
}

/// "10,000 steps turning overdue at once cost one batch, not 10,000 transactions."
async fn ten_thousand_steps_turn_overdue_in_one_commit(kind: Kind) -> anyhow::Result<()> {
    let (place, clock) = (Place::new(kind).await?, ManualClock::default());
    let (engine, count) = counted(&place, &clock).await?;
    let mut text = "kind: workflow\nname: wide\norder: dag\nqueue: q\nsteps:\n".to_owned();
    for n in 0..MANY {
        writeln!(text, "  - {{name: S{n}, deadline: 1h}}")?;
    }
    publish(&engine, &text).await?;
    start(&engine, "wide").await?;
    clock.advance(1_000_000);
    engine.tick().await;
    claim_many(&engine).await?;
    let (overdue, commits) = turn_overdue(&engine, &clock, &count).await?;
    println!("{kind}: {overdue} steps of one run in {commits} commits");
    ensure!(overdue == MANY, "{overdue} are overdue");
    ensure!(commits <= 3, "{commits} commits");
    close(engine).await?;
    place.remove().await
}

async fn ten_thousand_runs_turn_overdue_in_a_few_commits(kind: Kind) -> anyhow::Result<()> {
    let (place, clock) = (Place::new(kind).await?, ManualClock::default());
    let (engine, count) = counted(&place, &clock).await?;
    publish(&engine, "kind: workflow\nname: small\nqueue: q\nsteps: [{name: A, deadline: 1h}]\n").await?;
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..MANY {
        let engine = engine.clone();
        starts.spawn(async move { start(&engine, "small").await });
    }
    while let Some(started) = starts.join_next().await {
        started??;
    }
    clock.advance(1_000_000);
    engine.tick().await;
    claim_many(&engine).await?;
    let (overdue, commits) = turn_overdue(&engine, &clock, &count).await?;
    println!("{kind}: {overdue} runs in {commits} commits");
    ensure!(overdue == MANY, "{overdue} are overdue");
    // As many runs as a batch holds go together; the first batch is what was there when the clock began to ask.
    // How many go into one depends on who gets the processor.
    ensure!(commits <= MANY / 100, "{commits} commits");
    close(engine).await?;
    place.remove().await
}
