//! Runs as evidence, on both stores: an honest run verifies, an edit by the back door is found, and a purge leaves no trace
//! of what it destroys while everything still verifies.

use anyhow::{Context, ensure};
use countersign_definition::Cel;
use countersign_engine::log::LogReport;
use countersign_engine::port::{Page, RecordQuery};
use countersign_engine::retention::Policy;
use countersign_engine::rows::RecordRow;
use countersign_engine::{Call, ClaimCall, Command, Config, Engine, LogConfig, Outcome, Proof, Target, Task};
use countersign_kernel::process::{DecideGate, Decision};
use countersign_kernel::refusal::Code;
use countersign_kernel::registry;
use countersign_kernel::retention::PurgeRecord;
use countersign_kernel::run::{self, Act, KeptEvent, Outbound, StartRun, StepAct, TaskRef};
use countersign_kernel::{InstanceId, process};
use countersign_testing::drive::commands::publish_command;
use countersign_testing::place::{self, ADMIN, Kind, Place};
use std::sync::Arc;

const LINEAR: &str = "
kind: workflow
name: order
order: linear
correlationKey: ${input.order}
output: {paid: '${steps.PAYMENT.output.amount}'}
steps:
  - {name: VALIDATE, retryPolicy: {maxRetries: 4, initialDelay: 1ms}}
  - {name: PAYMENT, run: wait, event: payment.captured}
  - {name: SHIP}
";
const SAGA: &str = "
kind: workflow
name: travel
order: linear
failurePolicy: compensate
steps:
  - {name: hotel, onFailure: compensate}
  - {name: flight, onFailure: compensate}
  - {name: car, onFailure: compensate}
compensation:
  - {step: hotel, action: cancel-hotel, agent: undo}
  - {step: flight, action: cancel-flight, agent: undo}
";
const GATED: &str = "
kind: workflow
name: change
steps:
  - {name: build}
  - {name: deploy, dependsOn: [build], gate: cab}
gate_spec:
  cab: {approver_ref: admin, scope: 'change:cab'}
";

const CHAIN: &str = "
kind: workflow
name: chain
order: linear
steps:
  - {name: A}
  - {name: B, input: {of: '${input}', a: '${steps.A.output}'}}
";

const PEOPLE: &str = "
kind: workflow
name: inquiry
order: linear
gate_spec: {reopen: {approver_ref: admin, scope: s}}
steps:
  - {name: look, run: human, pic: admin, deadline: 1ms}
  - {name: answer, run: human, pic: admin}
";

pub(super) fn config() -> Config {
    let mut config = Config {
        log: Some(LogConfig::new([42; 32])),
        language: Arc::new(Cel::default()),
        audit_trail_retention_policy: Some("blink".to_owned()),
        ..Config::default()
    };
    config.policies.insert("blink", Policy { duration_us: Some(1), max_purge_delay_us: 1 });
    config
}

pub(super) fn call(command: Command) -> Call {
    Call { actor_ref: ADMIN.to_owned(), proof: Proof::InProcess, command, idempotency: None }
}

pub(super) fn on(run_id: InstanceId, command: run::Command) -> Call {
    call(Command::Run { target: Target::Existing(run_id), command })
}

pub(super) async fn publish(engine: &Engine, text: &str) -> anyhow::Result<()> {
    let command = publish_command(text).map_err(|failure| anyhow::anyhow!("{failure}"))?;
    engine.execute(call(Command::Registry(registry::Command::PublishDefinition(command)))).await?;
    Ok(())
}

pub(super) async fn start(engine: &Engine, definition: &str, input: &str) -> anyhow::Result<InstanceId> {
    let command =
        StartRun { subject_ref: Some(format!("subject-of-{definition}")), ..StartRun::new(definition, input) };
    let command = Command::Run { target: Target::New, command: run::Command::Start(Box::new(command)) };
    match engine.execute(call(command)).await? {
        Outcome::RunStarted { run_id } => InstanceId::parse(&run_id).context("an id"),
        outcome => anyhow::bail!("{outcome:?}"),
    }
}

pub(super) async fn claim(engine: &Engine, queue: &str) -> anyhow::Result<Task> {
    let claim = ClaimCall { queue: queue.into(), worker_id: "w-1".into(), max: 1, lease: 60_000_000 };
    let wait = std::time::Duration::from_secs(20);
    let tasks = engine.claim(ADMIN, Proof::InProcess, claim, wait).await?;
    tasks.into_iter().next().context("no task came")
}

pub(super) fn of(task: &Task) -> anyhow::Result<(InstanceId, TaskRef)> {
    let run_id = InstanceId::parse(&task.run_id).context("an id")?;
    Ok((run_id, TaskRef { step_seq: task.step_seq, lease_token: uuid::Uuid::parse_str(&task.lease_token).ok() }))
}

pub(super) async fn complete(engine: &Engine, task: &Task, output: &str) -> anyhow::Result<()> {
    let (run_id, task) = of(task)?;
    let outbound = vec![Outbound { event_type: "told".to_owned(), data: "{\"secret\":\"sent-away\"}".into() }];
    let command = run::Command::Complete { task, output: output.into(), outbound, claim_next: None, artifacts: vec![] };
    engine.execute(on(run_id, command)).await?;
    Ok(())
}

/// Tried twice, waits for an event, ends with an output of its own.
pub(super) async fn linear(engine: &Engine) -> anyhow::Result<InstanceId> {
    publish(engine, LINEAR).await?;
    let run_id = start(engine, "order", r#"{"order":"secret-order","weight":1.5}"#).await?;
    let (_, task) = of(&claim(engine, "default").await?)?;
    let retry = run::Command::Retry { task, error: "secret-error".to_owned(), backoff: None, category: None };
    engine.execute(on(run_id, retry)).await?;
    complete(engine, &claim(engine, "default").await?, r#"{"note":"secret-output","score":0.25}"#).await?;
    let data = r#"{"amount":12.5,"card":"secret-event"}"#.into();
    let event = KeptEvent { id: "evt-1".into(), event_type: "payment.captured".into(), data };
    engine.execute(on(run_id, run::Command::Receive { event, seen: false })).await?;
    complete(engine, &claim(engine, "default").await?, "\"shipped\"").await?;
    Ok(run_id)
}

pub(super) async fn saga(engine: &Engine) -> anyhow::Result<InstanceId> {
    publish(engine, SAGA).await?;
    let run_id = start(engine, "travel", "{}").await?;
    for _ in 0..2 {
        complete(engine, &claim(engine, "default").await?, "{\"booked\":true}").await?;
    }
    let (_, task) = of(&claim(engine, "default").await?)?;
    engine.execute(on(run_id, run::Command::Dead { task, error: "no car".to_owned(), category: None })).await?;
    for _ in 0..2 {
        complete(engine, &claim(engine, "undo").await?, "null").await?;
    }
    Ok(run_id)
}

pub(super) async fn gated(engine: &Engine) -> anyhow::Result<InstanceId> {
    publish(engine, GATED).await?;
    let run_id = start(engine, "change", "{}").await?;
    complete(engine, &claim(engine, "default").await?, "{}").await?;
    let decision = DecideGate {
        action: "deploy".to_owned(),
        decision: Decision::Approve,
        reason: Some("tested".to_owned()),
        step: None,
        request_digest: None,
    };
    engine.execute(on(run_id, run::Command::DecideGate(decision))).await?;
    complete(engine, &claim(engine, "default").await?, "{}").await?;
    // One that ends with its gate open.
    let other = start(engine, "change", "{}").await?;
    complete(engine, &claim(engine, "default").await?, "{}").await?;
    engine
        .execute(on(
            other,
            run::Command::Cancel { reason: Some("superseded".to_owned()), approval_id: None, compensate: false },
        ))
        .await?;
    Ok(run_id)
}

pub(super) async fn verify(engine: &Engine, instance_id: Option<InstanceId>) -> anyhow::Result<LogReport> {
    Ok(engine.verify_log(ADMIN, instance_id, &mut |_, _| ()).await?)
}

fn codes(report: &LogReport) -> Vec<&'static str> {
    let mut codes: Vec<&str> = report.findings.iter().map(|finding| finding.code).collect();
    codes.dedup();
    codes
}

async fn honest_runs_verify_and_edits_are_found(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    let run_id = linear(&engine).await?;
    let undone = saga(&engine).await?;
    gated(&engine).await?;
    let waiting = start(&engine, "order", "{\"order\":2}").await?;
    let _ = engine.seal_now().await;
    let report = verify(&engine, None).await?;
    ensure!(report.found == 0, "{:?}", report.findings);
    for id in [run_id, undone, waiting] {
        let report = verify(&engine, Some(id)).await?;
        ensure!(report.found == 0, "{:?}", report.findings);
    }
    place::close(engine).await?;
    let id = match kind {
        Kind::Sqlite => format!("instance_id = X'{}'", run_id.0.simple()),
        Kind::Postgres => format!("instance_id = '{}'", run_id.0),
    };
    let first = format!("{id} AND step_seq = 0");
    for (what, there, back, code) in [
        ("state of a step", "state = 'skipped'", "state = 'completed'", "replay-mismatch"),
        ("attempts", "attempts = attempts + 5", "attempts = attempts - 5", "row-missing"),
        ("error", "last_error = 'nothing'", "last_error = 'secret-error'", "row-missing"),
        ("completion", "completed_at_us = completed_at_us + 1", "completed_at_us = completed_at_us - 1", "row-missing"),
        (
            "output",
            "output = '{\"note\":\"other\",\"score\":0.25}'",
            "output = '{\"note\":\"secret-output\",\"score\":0.25}'",
            "row-missing",
        ),
    ] {
        edited(
            &place,
            what,
            &format!("run_steps SET {there} WHERE {first}"),
            &format!("run_steps SET {back} WHERE {first}"),
            code,
        )
        .await?;
    }
    for (what, table, there, back, code) in [
        ("state of the run", "run_heads", "state = 'failed'", "state = 'completed'", "replay-mismatch"),
        ("outcome", "run_heads", "outcome = 'partial'", "outcome = NULL", "row-missing"),
        ("the run's output", "run_heads", "output = '1'", "output = '{\"paid\":12.5}'", "row-missing"),
        (
            "end",
            "run_heads",
            "completed_at_us = completed_at_us + 1",
            "completed_at_us = completed_at_us - 1",
            "row-missing",
        ),
        ("subject", "runs", "subject_ref = 'other'", "subject_ref = 'subject-of-order'", "row-missing"),
        ("key", "runs", "correlation_key = 'other'", "correlation_key = 'secret-order'", "row-missing"),
    ] {
        edited(
            &place,
            what,
            &format!("{table} SET {there} WHERE {id}"),
            &format!("{table} SET {back} WHERE {id}"),
            code,
        )
        .await?;
    }
    place.remove().await
}

/// One edit, found; and nothing is found once it is undone.
async fn edited(place: &Place, what: &str, there: &str, back: &str, code: &str) -> anyhow::Result<()> {
    place.sql(&format!("UPDATE {there}")).await?;
    let engine = place.engine(Config { log: None, ..config() }).await?;
    let report = verify(&engine, None).await?;
    place::close(engine).await?;
    ensure!(codes(&report).contains(&code), "{what}: {:?}", report.findings);
    place.sql(&format!("UPDATE {back}")).await?;
    let engine = place.engine(Config { log: None, ..config() }).await?;
    let report = verify(&engine, None).await?;
    place::close(engine).await?;
    ensure!(report.found == 0, "{what}, undone: {:?}", report.findings);
    Ok(())
}

async fn records(engine: &Engine, run_id: InstanceId) -> anyhow::Result<Vec<RecordRow>> {
    let query = RecordQuery { instance_id: Some(run_id), ..RecordQuery::default() };
    let page = Page { after: None, limit: 1000, descending: false };
    Ok(engine.read_records(ADMIN, &query, &page).await?)
}

/// Completed late, reopened with an approval, completed again.
pub(super) async fn corrected(engine: &Engine) -> anyhow::Result<InstanceId> {
    publish(engine, PEOPLE).await?;
    let run_id = start(engine, "inquiry", "{}").await?;
    let act = async |act: Act| {
        let act = StepAct { step: "look".to_owned(), act, reason: None, preview: false };
        engine.execute(on(run_id, run::Command::Act(act))).await
    };
    let complete = |output: &str| Act::Complete { output: output.into(), outbound: vec![] };
    act(Act::Claim).await?;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    act(complete("\"secret-first\"")).await?;
    let action = "reopen:look".to_owned();
    let open = run::Command::OpenGate(process::OpenGate { action: action.clone(), reason: None, request: None });
    let opened = engine.execute(on(run_id, open)).await?;
    let Outcome::GateOpened { step_id, .. } = opened else { anyhow::bail!("{opened:?}") };
    let decide = DecideGate { action, decision: Decision::Approve, reason: None, step: None, request_digest: None };
    engine.execute(on(run_id, run::Command::DecideGate(decide))).await?;
    let prior = engine.prior(run_id, "look").await?.map(Box::new);
    let correction_reason = Some("data_error".to_owned());
    act(Act::Reopen { approval_id: Some(step_id), correction_reason, prior }).await?;
    act(complete("\"secret-second\"")).await?;
    Ok(run_id)
}

async fn corrections_verify_and_edits_of_them_are_found(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    let run_id = corrected(&engine).await?;
    let _ = engine.seal_now().await;
    let report = verify(&engine, None).await?;
    ensure!(report.found == 0, "{:?}", report.findings);
    place::close(engine).await?;
    let id = match kind {
        Kind::Sqlite => format!("instance_id = X'{}'", run_id.0.simple()),
        Kind::Postgres => format!("instance_id = '{}'", run_id.0),
    };
    for (what, table, there, back) in [
        ("breach", "run_steps", "sla_breach_us = sla_breach_us - 1", "sla_breach_us = sla_breach_us + 1"),
        ("person", "run_steps", "pic = 'somebody'", "pic = 'admin'"),
        ("cycle", "run_steps", "cycle = 2", "cycle = 1"),
        ("first output", "step_corrections", "output = '1'", "output = '\"secret-first\"'"),
        ("reason", "step_corrections", "correction_reason = 'policy_change'", "correction_reason = 'data_error'"),
    ] {
        let place_of = if table == "run_steps" { format!("{id} AND step_seq = 0") } else { id.clone() };
        let (there, back) =
            (format!("{table} SET {there} WHERE {place_of}"), format!("{table} SET {back} WHERE {place_of}"));
        edited(&place, what, &there, &back, "row-missing").await?;
    }
    place.remove().await
}

/// What a completion yielded goes with its record, wherever it is kept; what the correction yielded stays.
async fn a_purge_reaches_what_was_corrected(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    let run_id = corrected(&engine).await?;
    engine
        .execute(on(
            run_id,
            run::Command::Cancel { reason: Some("not needed".to_owned()), approval_id: None, compensate: false },
        ))
        .await?;
    let purge = async |record: &RecordRow| {
        let command = PurgeRecord::of(&record.event_id.to_string());
        let command = process::Command::PurgeRecord(command);
        engine.execute(call(Command::Process { target: Target::Existing(run_id), command })).await
    };
    let all = records(&engine, run_id).await?;
    let first = all.iter().position(|record| record.action_ref == "step_completed").context("no completion")?;
    for record in
        all.iter().skip(first).filter(|r| ["step_completed", "step_reopened"].contains(&&*r.action_ref)).take(2)
    {
        purge(record).await?;
    }
    let query = countersign_engine::port::RunQuery { instance_id: Some(run_id), ..Default::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let view = engine.own_runs(&query, &page).await?.into_iter().next().context("no run")?;
    let steps = engine.read_run_steps(&view, 0, 1).await?;
    ensure!(steps[0].state.output.as_deref() == Some("\"secret-second\""), "{steps:?}");
    let _ = engine.seal_now().await;
    let report = verify(&engine, None).await?;
    ensure!(report.found == 0, "{:?}", report.findings);
    place::close(engine).await?;
    place.require_no_trace("secret-first").await?;
    place.remove().await
}

/// A run works with what its records say: while it lives they stay, whatever their age.
async fn a_live_runs_records_stay(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    publish(&engine, CHAIN).await?;
    let run_id = start(&engine, "chain", "\"the-input\"").await?;
    complete(&engine, &claim(&engine, "default").await?, "\"the-output\"").await?;
    let all = records(&engine, run_id).await?;
    let purge = async |engine: &Engine, record: &RecordRow| {
        let command = process::Command::PurgeRecord(PurgeRecord::of(&record.event_id.to_string()));
        engine.execute(call(Command::Process { target: Target::Existing(run_id), command })).await
    };
    for record in &all {
        let refused = purge(&engine, record).await.err().context("purged while the run lives")?;
        ensure!(refused.code == Code::NotEligible, "{refused}");
    }
    ensure!(engine.read_purgeable(ADMIN, None, 100, false).await?.is_empty());
    place::close(engine).await?;

    let engine = place.engine(config()).await?;
    let task = claim(&engine, "default").await?;
    ensure!(*task.input == *r#"{"of":"the-input","a":"the-output"}"#, "{}", task.input);
    engine
        .execute(on(
            run_id,
            run::Command::Cancel { reason: Some("not needed".to_owned()), approval_id: None, compensate: false },
        ))
        .await?;
    ensure!(engine.read_purgeable(ADMIN, None, 100, false).await?.len() > all.len());
    let completed = all.iter().find(|record| record.action_ref == "step_completed").context("no completion")?;
    purge(&engine, completed).await?;

    // Nobody goes on with what is not there any more.
    let from = engine.from_step(ADMIN, run_id, "B".to_owned()).await?;
    let again = StartRun { from_step: Some(from), ..StartRun::new("chain", "1") };
    let command = Command::Run { target: Target::New, command: run::Command::Start(Box::new(again)) };
    let refused = engine.execute(call(command)).await.err().context("went on from what was purged")?;
    ensure!(refused.code == Code::InvalidRequest && refused.detail.contains("purged"), "{refused}");
    place::close(engine).await?;
    place.remove().await
}

/// An error that a record has no room for is cut short, and the step has failed all the same.
async fn a_long_error_is_recorded_in_short(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    publish(&engine, CHAIN).await?;
    let run_id = start(&engine, "chain", "1").await?;
    let (_, task) = of(&claim(&engine, "default").await?)?;
    let error = format!("boom {}", "ü".repeat(100_000));
    engine.execute(on(run_id, run::Command::Dead { task, error: error.clone(), category: None })).await?;
    let query = countersign_engine::port::RunQuery { instance_id: Some(run_id), ..Default::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let view = engine.own_runs(&query, &page).await?.into_iter().next().context("no run")?;
    let told = view.head.last_error.context("no error")?;
    ensure!(view.head.state == "failed" && told.len() <= 4096, "{} bytes", told.len());
    ensure!(told.strip_suffix('…').is_some_and(|beginning| error.starts_with(beginning)), "{told}");
    let _ = engine.seal_now().await;
    let report = verify(&engine, None).await?;
    ensure!(report.found == 0, "{:?}", report.findings);
    place::close(engine).await?;
    place.remove().await
}

async fn purged_runs_leave_no_trace_and_verify(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    let run_id = linear(&engine).await?;
    for record in records(&engine, run_id).await? {
        let command = PurgeRecord::of(&record.event_id.to_string());
        let command = process::Command::PurgeRecord(command);
        engine.execute(call(Command::Process { target: Target::Existing(run_id), command })).await?;
    }
    // The run is read again, and what it holds is what was put there.
    let late = KeptEvent { id: "evt-2".into(), event_type: "payment.captured".into(), data: "1".into() };
    engine.execute(on(run_id, run::Command::Receive { event: late, seen: false })).await?;
    let _ = engine.seal_now().await;
    let report = verify(&engine, None).await?;
    ensure!(report.found == 0, "{:?}", report.findings);
    place::close(engine).await?;
    for secret in ["secret-order", "secret-error", "secret-output", "secret-event", "sent-away", "subject-of-order"] {
        place.require_no_trace(secret).await?;
    }
    place.remove().await
}

countersign_testing::on_both! {
    honest_runs_verify_and_edits_are_found,
    purged_runs_leave_no_trace_and_verify,
    corrections_verify_and_edits_of_them_are_found,
    a_purge_reaches_what_was_corrected,
    a_live_runs_records_stay,
    a_long_error_is_recorded_in_short,
}
