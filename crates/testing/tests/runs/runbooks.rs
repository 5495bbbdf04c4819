//! Runbooks where a scenario does not reach: what a survey costs, what voiding gives back, and what is decided on a request.

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use countersign_definition::Cel;
use countersign_engine::port::{Batch, Committed, Page, RecordQuery, StoreError, Writer};
use countersign_engine::{Call, ClaimCall, Command, Config, Engine, IdempotencyKey, Outcome, Proof, Target, Task};
use countersign_kernel::process::{DecideGate, Decision, OpenGate};
use countersign_kernel::refusal::Code;
use countersign_kernel::run::{self, SURVEY_QUEUE, StartRun};
use countersign_kernel::{Digest, InstanceId};
use countersign_ledger::sha256;
use countersign_store::tap::{Tap, Tapped};
use countersign_testing::hands::{Hand, LEASE, SECOND, call, claim, complete, on_run, publish, start, state, task_ref};
use countersign_testing::on_both;
use countersign_testing::place::{ADMIN, Kind, Place, close, engine_on};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

on_both! {
    ten_pins_cost_one_claim_and_one_record,
    whoever_voids_a_run_can_start_it_anew,
    a_decision_is_bound_to_what_was_read,
    a_survey_that_was_lost_is_not_answered_late,
    a_survey_of_ten_pins_adds_two_commits,
}

const NOW: Duration = Duration::ZERO;

fn config(hand: &Hand) -> Config {
    Config { language: Arc::new(Cel::default()), clock: hand.clock(), ..Config::default() }
}

fn runbook(name: &str, head: &str, steps: &str) -> String {
    format!(
        "kind: workflow\nname: {name}\nqueue: q\norder: linear\nfailurePolicy: fail-closed\n\
         gate_spec: {{sovereign: {{approver_ref: {ADMIN}, scope: s}}}}\n{head}steps:\n{steps}"
    )
}

async fn survey(engine: &Engine) -> anyhow::Result<Task> {
    let actor_ref = engine.config().application_actor_ref.clone();
    let claim = ClaimCall { queue: SURVEY_QUEUE.into(), worker_id: "w".into(), max: 1, lease: LEASE };
    engine.claim(&actor_ref, Proof::InProcess, claim, NOW).await?.pop().context("no survey")
}

fn answer(engine: &Engine, task: &Task, value: Option<&str>) -> Call {
    let values = task.probes.iter().map(|probe| (probe.pin.clone(), value.map(Arc::from))).collect();
    let run_id = InstanceId::parse(&task.run_id).unwrap_or(InstanceId::REGISTRY);
    let actor_ref = engine.config().application_actor_ref.clone();
    Call { actor_ref, ..on_run(run_id, run::Command::Survey { task: task_ref(task), values, errors: vec![] }) }
}

async fn records(engine: &Engine, run_id: InstanceId) -> anyhow::Result<Vec<String>> {
    let query = RecordQuery { instance_id: Some(run_id), ..RecordQuery::default() };
    let all = Page { after: None, limit: 500, descending: false };
    Ok(engine.read_records(ADMIN, &query, &all).await?.into_iter().map(|row| row.action_ref).collect())
}

async fn ten_pins_cost_one_claim_and_one_record(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    let pins: Vec<String> =
        (0..10).map(|n| format!("p{n}: {{run: shell, command: [echo, \"${{input.n}}\"], timeout: 7s}}")).collect();
    let steps = format!("  - {{name: A, readOnly: true, pins: {{{}}}}}\n  - {{name: B}}\n", pins.join(", "));
    publish(&engine, &runbook("ten", "", &steps)).await?;
    let run_id = start(&engine, "ten", "{\"n\": 4}").await?;
    let task = claim(&engine, 1, LEASE, NOW).await?.pop().context("A")?;
    complete(&engine, &task, false).await?;

    let task = survey(&engine).await?;
    ensure!(task.task_type == "SURVEY" && task.probes.len() == 10, "{task:?}");
    let probe = &task.probes[0];
    ensure!(
        matches!(probe.filled.as_deref(), Ok([Some(command), ..]) if ["[\"echo\",4]", "[\"echo\",\"4\"]"].contains(&&**command))
    );
    ensure!(probe.timeout == 7 * SECOND);
    engine.execute(answer(&engine, &task, Some("1"))).await?;
    let before = records(&engine, run_id).await?;
    ensure!(before.ends_with(&["pins_captured".to_owned(), "step_completed".to_owned()]), "{before:?}");
    ensure!(claim(&engine, 1, LEASE, NOW).await?.is_empty(), "B before its survey");
    let task = survey(&engine).await?;
    ensure!(records(&engine, run_id).await? == before, "a claim of pins leaves no record");
    engine.execute(answer(&engine, &task, Some("1"))).await?;
    let after = records(&engine, run_id).await?;
    ensure!(after.len() == before.len() + 1 && after.ends_with(&["pins_surveyed".to_owned()]), "{after:?}");
    // The same answer again is answered as before.
    engine.execute(answer(&engine, &task, Some("2"))).await?;
    ensure!(claim(&engine, 1, LEASE, NOW).await?.len() == 1);
    close(engine).await?;
    place.remove().await
}

/// The commits that concern a run.
#[derive(Default)]
struct Counts(Mutex<HashMap<InstanceId, usize>>);

impl Counts {
    fn of(&self, run_id: InstanceId) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&run_id).copied().unwrap_or_default()
    }
}

#[async_trait]
impl Tap for Counts {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError> {
        for unit in &batch.units {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(unit.instance_id).or_default() += 1;
        }
        writer.commit(batch).await
    }
}

/// "A survey of 10 pins adds one commit and at most one claim round trip to a step": the claim is one commit, the answer is the other, and
/// with it the step is there. Pins that nobody looks at cost nothing.
async fn a_survey_of_ten_pins_adds_two_commits(kind: Kind) -> anyhow::Result<()> {
    let (place, hand, counts) = (Place::new(kind).await?, Hand::default(), Arc::new(Counts::default()));
    let store = Tapped { inner: place.store().await?, tap: counts.clone() };
    let engine = engine_on(Box::new(store), config(&hand)).await?;
    let mut cost = Vec::new();
    for pins in [0, 1, 10] {
        let all: Vec<String> = (0..pins).map(|n| format!("p{n}: {{run: shell, command: [echo, x]}}")).collect();
        let pinned = if pins == 0 { String::new() } else { format!(", pins: {{{}}}", all.join(", ")) };
        let name = format!("pins-{pins}");
        let steps = format!("  - {{name: A, readOnly: true{pinned}}}\n  - {{name: B}}\n");
        publish(&engine, &runbook(&name, "", &steps)).await?;
        let run_id = start(&engine, &name, "{}").await?;
        let task = claim(&engine, 1, LEASE, NOW).await?.pop().context("A")?;
        complete(&engine, &task, false).await?;
        if pins > 0 {
            let task = survey(&engine).await?;
            engine.execute(answer(&engine, &task, Some("1"))).await?;
        }
        // A is completed.
        let before = counts.of(run_id);
        let mut claims = 0;
        if pins > 0 {
            let task = survey(&engine).await?;
            claims = counts.of(run_id) - before;
            ensure!(task.probes.len() == pins, "all in one claim: {task:?}");
            engine.execute(answer(&engine, &task, Some("1"))).await?;
        }
        let surveyed = counts.of(run_id) - before - claims;
        ensure!(claim(&engine, 1, LEASE, NOW).await?.pop().is_some_and(|task| &*task.step == "B"), "B is not there");
        cost.push((claims, surveyed));
    }
    ensure!(cost == [(0, 0), (1, 1), (1, 1)], "commits of claims and of answers: {cost:?}");
    close(engine).await?;
    place.remove().await
}

async fn open_and_approve(engine: &Engine, run_id: InstanceId, action: &str) -> anyhow::Result<String> {
    let open = OpenGate { action: action.to_owned(), reason: Some("wrong".to_owned()), request: None };
    let opened = engine.execute(on_run(run_id, run::Command::OpenGate(open))).await?;
    let Outcome::GateOpened { step_id, .. } = opened else { bail!("{opened:?}") };
    engine.execute(on_run(run_id, decision(action, None))).await?;
    Ok(step_id)
}

fn decision(action: &str, request_digest: Option<Digest>) -> run::Command {
    run::Command::DecideGate(DecideGate {
        action: action.to_owned(),
        decision: Decision::Approve,
        reason: None,
        step: None,
        request_digest,
    })
}

async fn whoever_voids_a_run_can_start_it_anew(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, &runbook("cut", "concurrency: {key: one, limit: 1}\n", "  - {name: A, readOnly: true}\n")).await?;
    let start = || {
        let idempotency = Some(IdempotencyKey { key: "k".to_owned(), request_digest: sha256(&[b"body"]) });
        let command = run::Command::Start(Box::new(StartRun::new("cut", "{}")));
        Call { idempotency, ..call(Command::Run { target: Target::New, command }) }
    };
    let id = |outcome: Outcome| match outcome {
        Outcome::RunStarted { run_id } => InstanceId::parse(&run_id).context("an id"),
        outcome => bail!("{outcome:?}"),
    };
    let first = id(engine.execute(start()).await?)?;
    engine.tick().await;
    ensure!(id(engine.execute(start()).await?)? == first, "the same request, the same run");
    let waiting = countersign_testing::hands::start(&engine, "cut", "{}").await?;
    engine.tick().await;
    let stop = run::Command::Stop { reason: Some("wait".to_owned()) };
    engine.execute(on_run(first, stop)).await?;
    engine.tick().await;
    ensure!(state(&engine, waiting).await? == "queued", "a stopped run keeps its slot");
    let approval_id = Some(open_and_approve(&engine, first, "void").await?);
    let void = run::Command::Void { approval_id, reason: Some("wrong".to_owned()) };
    engine.execute(on_run(first, void)).await?;
    engine.tick().await;
    ensure!(state(&engine, first).await? == "voided");
    ensure!(state(&engine, waiting).await? == "executing", "its slot is free");
    let anew = id(engine.execute(start()).await?)?;
    ensure!(anew != first, "its key is free");
    close(engine).await?;
    place.remove().await
}

async fn a_decision_is_bound_to_what_was_read(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    let steps = "  - {name: A, gate: sovereign, request: {rows: \"${input.n}\", text: ok}}\n";
    publish(&engine, &runbook("asks", "", steps)).await?;
    let run_id = start(&engine, "asks", "{\"n\": 4}").await?;
    let stale = engine.execute(on_run(run_id, decision("A", Some(sha256(&[b"another"]))))).await;
    let refusal = stale.err().context("a stale digest")?;
    ensure!(refusal.code == Code::Conflict && refusal.field.as_deref() == Some("request_digest"), "{refusal}");
    let read = sha256(&[b"{\"rows\":4,\"text\":\"ok\"}"]);
    engine.execute(on_run(run_id, decision("A", Some(read)))).await?;
    ensure!(state(&engine, run_id).await? == "executing");
    close(engine).await?;
    place.remove().await
}

async fn a_survey_that_was_lost_is_not_answered_late(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    let steps = "  - {name: A, readOnly: true, pins: {p: {run: shell, command: date}}}\n  - {name: B}\n";
    publish(&engine, &runbook("lost", "", steps)).await?;
    let run_id = start(&engine, "lost", "{}").await?;
    let task = claim(&engine, 1, LEASE, NOW).await?.pop().context("A")?;
    complete(&engine, &task, false).await?;
    let task = survey(&engine).await?;
    engine.execute(answer(&engine, &task, Some("1"))).await?;
    let task = survey(&engine).await?;
    // The server is gone with its executor, and comes back.
    close(engine).await?;
    let engine = place.engine(config(&hand)).await?;
    hand.turn(60 * SECOND);
    // Where nodes share a store, what is due is found a moment later.
    for _ in 0..300 {
        engine.tick().await;
        if state(&engine, run_id).await? == "stopped" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(state(&engine, run_id).await? == "stopped");
    let refusal = engine.execute(answer(&engine, &task, Some("1"))).await.err().context("too late")?;
    ensure!(refusal.code == Code::LeaseLost, "{refusal}");
    ensure!(claim(&engine, 1, LEASE, NOW).await?.is_empty());
    close(engine).await?;
    place.remove().await
}
