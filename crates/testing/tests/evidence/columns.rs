//! Each column of a run's tables, edited by the back door on both stores: verifying finds it, or [`NOT_COMPARED`] says why
//! nobody can. A column that a migration adds must be put into one of the two lists.

use super::runs::{call, claim, complete, config, corrected, gated, linear, of, on, publish, saga, start, verify};
use anyhow::{Context, bail, ensure};
use countersign_engine::{Call, ClaimCall, Command, Config, Engine, Outcome, Proof, Target, Task};
use countersign_kernel::InstanceId;
use countersign_kernel::run::{self, Act, Parent, SURVEY_QUEUE, StartRun, StepAct};
use countersign_testing::place::{self, Kind, Place};
use std::collections::BTreeSet;
use std::sync::Arc;

const TABLES: [&str; 5] = ["instances", "runs", "run_heads", "run_steps", "step_corrections"];

/// Table, column, what is put there, and of which rows (the first is edited).
type Edit = (&'static str, &'static str, &'static str, &'static str);

/// `{blob}` is a digest of zeros, `{id}` an id of nobody's.
const EDITS: &[Edit] = &[
    ("instances", "sequence", "sequence + 1", ""),
    ("instances", "head", "{blob}", ""),
    ("instances", "last_time_us", "last_time_us + 1", ""),
    ("instances", "state", "'paused'", "state = 'completed'"),
    ("instances", "moves", "moves + 1", ""),
    ("instances", "colour", "'green'", "colour = 'red'"),
    ("instances", "colour", "NULL", "colour = 'red'"),
    ("instances", "rollup", r#"replace(rollup, '"red"', '"green"')"#, r#"rollup LIKE '%"red"%'"#),
    ("instances", "rollup", r#"replace(rollup, '"progress":[', '"progress":[9')"#, r#"rollup LIKE '%"progress"%'"#),
    ("instances", "rollup", r#"replace(rollup, '"counts":[', '"counts":[9')"#, ""),
    ("instances", "rollup", r#"replace(rollup, '"current":', '"current":9')"#, r#"rollup LIKE '%"current":1%'"#),
    ("instances", "rollup", r#"replace(rollup, 'computed_at_us":', 'computed_at_us":9')"#, ""),
    ("runs", "definition_name", "'order'", "definition_name = 'travel'"),
    ("runs", "definition_version", "definition_version + 1", ""),
    ("runs", "document_digest", "{blob}", ""),
    ("runs", "subject_ref", "'another'", ""),
    ("runs", "initiator_ref", "'another'", ""),
    ("runs", "correlation_key", "'another'", "correlation_key IS NOT NULL"),
    ("runs", "concurrency_key", "'another'", ""),
    ("runs", "corrects", "{id}", ""),
    ("runs", "continues", "{id}", ""),
    ("runs", "parent_id", "{id}", "parent_id IS NOT NULL"),
    ("runs", "parent_step_seq", "parent_step_seq + 1", "parent_id IS NOT NULL"),
    ("runs", "started_at_us", "started_at_us + 1", ""),
    ("runs", "input", "'1'", ""),
    ("runs", "trace_id", "'4bf92f3577b34da6a3ce929d0e0e4736'", ""),
    ("run_heads", "state", "'failed'", "state = 'completed'"),
    ("run_heads", "outcome", "'partial'", ""),
    ("run_heads", "priority", "priority + 1", ""),
    ("run_heads", "start_at_us", "5", ""),
    ("run_heads", "executing_since_us", "executing_since_us + 1", "executing_since_us IS NOT NULL"),
    ("run_heads", "completed_at_us", "completed_at_us + 1", "completed_at_us IS NOT NULL"),
    ("run_heads", "failed_at_us", "5", ""),
    ("run_heads", "last_error", "'another'", ""),
    ("run_heads", "output", "'1'", "state = 'completed'"),
    ("run_heads", "definition_name", "'another'", ""),
    ("run_heads", "correlation_key", "'another'", "correlation_key IS NOT NULL"),
    ("run_heads", "concurrency_key", "'another'", ""),
    ("run_heads", "is_live", "NOT is_live", ""),
    ("run_heads", "undoing", "NOT undoing", "state = 'executing'"),
    ("run_heads", "called_off", "NOT called_off", "state = 'executing'"),
    ("run_heads", "runbook", "'no'", "runbook IS NOT NULL"),
    ("run_heads", "runbook", "replace(runbook, '41', '42')", "runbook IS NOT NULL"),
    ("run_heads", "runbook", r#"replace(runbook, '"dry_run":false', '"dry_run":true')"#, "runbook IS NOT NULL"),
    ("run_heads", "runbook", r#"replace(runbook, '["all",true]', '["all",false]')"#, "runbook IS NOT NULL"),
    ("run_heads", "runbook", r#"replace(runbook, '"since":', '"since":1')"#, "runbook IS NOT NULL"),
    ("run_heads", "runbook", r#"replace(runbook, '"drift":[', '"drift":[["p","41","42"]')"#, "runbook IS NOT NULL"),
    ("run_steps", "step_seq", "step_seq + 100", "step_seq = 2"),
    ("run_steps", "name", "'another'", ""),
    ("run_steps", "compensates", "0", "step_seq = 1"),
    ("run_steps", "queue", "'another'", ""),
    ("run_steps", "max_attempts", "max_attempts + 1", ""),
    ("run_steps", "state", "'skipped'", "state = 'completed'"),
    ("run_steps", "attempts", "attempts + 1", ""),
    ("run_steps", "next_run_at_us", "next_run_at_us + 1", "state = 'ready'"),
    ("run_steps", "next_run_at_us", "5", "state = 'failed' AND next_run_at_us IS NULL"),
    ("run_steps", "locked_by", "'another'", "state = 'in_progress' AND locked_by IS NOT NULL"),
    ("run_steps", "waiting_event_type", "'another'", "state = 'waiting'"),
    ("run_steps", "waiting_facet", "'waiting_dependency'", "waiting_facet = 'waiting_external'"),
    ("run_steps", "deadline_at_us", "5", "state = 'waiting'"),
    ("run_steps", "last_error", "'another'", ""),
    ("run_steps", "error_category", "'external'", "error_category IS NULL"),
    ("run_steps", "started_at_us", "started_at_us + 1", "started_at_us IS NOT NULL"),
    ("run_steps", "completed_at_us", "completed_at_us + 1", "completed_at_us IS NOT NULL"),
    ("run_steps", "effect_unknown", "NOT effect_unknown", ""),
    ("run_steps", "child_run_id", "{id}", "child_run_id IS NOT NULL"),
    ("run_steps", "output", "'1'", "output IS NOT NULL"),
    ("run_steps", "output_needed", "NOT output_needed", ""),
    ("run_steps", "pic", "'another'", "pic IS NOT NULL"),
    ("run_steps", "deadline_us", "deadline_us + 1", "deadline_us IS NOT NULL"),
    ("run_steps", "start_by_us", "5", ""),
    ("run_steps", "overdue_first_at_us", "5", ""),
    ("run_steps", "sla_breach_us", "5", ""),
    ("run_steps", "cycle", "7", ""),
    ("run_steps", "declared_at_us", "5", ""),
    ("run_steps", "secondary_facets", "'waiting_dependency'", "state = 'waiting'"),
    ("run_steps", "block_reason", "'config_error'", "state = 'blocked'"),
    ("run_steps", "escalated_at_us", "NULL", "escalated_at_us IS NOT NULL"),
    ("run_steps", "escalated_at_us", "5", "escalated_at_us IS NOT NULL"),
    ("run_steps", "blocked_since_us", "blocked_since_us + 1", "state = 'blocked'"),
    ("run_steps", "blocked_cause", "NULL", "blocked_cause IS NOT NULL"),
    ("run_steps", "derived_state", "'another'", ""),
    ("step_corrections", "step_seq", "step_seq + 1", ""),
    ("step_corrections", "cycle", "cycle + 1", ""),
    ("step_corrections", "from_state", "'skipped'", ""),
    ("step_corrections", "prior_event_id", "{id}", ""),
    ("step_corrections", "prior_actor_ref", "'another'", ""),
    ("step_corrections", "prior_at_us", "prior_at_us + 1", ""),
    ("step_corrections", "overdue_first_at_us", "5", ""),
    ("step_corrections", "sla_breach_us", "5", ""),
    ("step_corrections", "approval_id", "{id}", ""),
    ("step_corrections", "correction_reason", "'policy_change'", ""),
    ("step_corrections", "reopened_by", "'another'", ""),
    ("step_corrections", "reopened_at_us", "reopened_at_us + 1", ""),
    ("step_corrections", "event_id", "{id}", ""),
    ("step_corrections", "output", "'1'", ""),
];

const TOKEN: &str = "a secret of a lease, which no record may hold";
const CLOCK: &str = "when the engine looks again: it reads its rows for that, and shows it to nobody";
const GIVEN: &str = "how and with what a worker is given the step; no reader is shown it";

const NOT_COMPARED: &[(&str, &str, &str)] = &[
    ("instances", "instance_id", "it names the row"),
    ("instances", "policy_ref", "each record says itself under which policy it is kept"),
    ("instances", "beats", "prolonging a lease leaves no record"),
    ("runs", "instance_id", "it names the row"),
    ("runs", "machine", "with its digest: a machine of one's own is attacked in spec/vectors"),
    ("runs", "machine_digest", "with its name: a machine of one's own is attacked in spec/vectors"),
    ("run_heads", "instance_id", "it names the row"),
    ("run_heads", "due_at_us", CLOCK),
    ("run_steps", "instance_id", "it names the row"),
    ("run_steps", "due_at_us", CLOCK),
    ("run_steps", "locked_until_us", "prolonging a lease leaves no record"),
    ("run_steps", "lease_token", TOKEN),
    ("run_steps", "handed", TOKEN),
    ("run_steps", "task_type", GIVEN),
    ("run_steps", "event_data", GIVEN),
    ("run_steps", "child_colour", "what a child looked like when its parent last heard of it, no record says"),
    ("step_corrections", "instance_id", "it names the row"),
];

const FAMILY: &str = "
kind: workflow
name: family
steps:
  - {name: child, run: workflow, workflow: order, input: '${input}'}
";
const RUNBOOK: &str = "
kind: workflow
name: cut
order: linear
failurePolicy: fail-closed
gate_spec: {sovereign: {approver_ref: admin, scope: s}}
steps:
  - {name: A, readOnly: true, queue: book, pins: {p: {run: shell, command: [echo, x]}}, checks: {all: '${output == null}'}}
  - {name: B}
";
const HELD_UP: &str = "
kind: workflow
name: held-up
order: dag
gate_spec: {cab: {approver_ref: admin, scope: s}}
steps:
  - {name: blocked, gate: cab}
  - {name: worked, queue: worked}
  - {name: waits, run: wait, event: some.thing, timeout: 9h}
  - {name: broken, queue: broken, onFailure: hold}
";

/// Its child has completed its first step and waits.
async fn family(engine: &Engine) -> anyhow::Result<()> {
    publish(engine, FAMILY).await?;
    start(engine, "family", "{\"order\":7}").await?;
    let task = as_engine(engine, "@workflow").await?;
    let (run_id, named) = of(&task)?;
    let by = |call: Call| Call { actor_ref: engine.config().application_actor_ref.clone(), ..call };
    let parent = Some(Parent { run_id, step_seq: named.step_seq });
    let command = run::Command::Start(Box::new(StartRun { parent, ..StartRun::new("order", task.input.clone()) }));
    let started = engine.execute(by(call(Command::Run { target: Target::New, command }))).await?;
    let Outcome::RunStarted { run_id: child } = started else { bail!("no child") };
    let child = InstanceId::parse(&child).context("an id")?;
    engine.execute(by(on(run_id, run::Command::ChildStarted { task: named, child }))).await?;
    complete(engine, &claim(engine, "default").await?, "1").await
}

/// What the engine's own executor claims.
async fn as_engine(engine: &Engine, queue: &str) -> anyhow::Result<Task> {
    let actor_ref = &engine.config().application_actor_ref;
    let claim = ClaimCall { queue: queue.into(), worker_id: "w".into(), max: 1, lease: 60_000_000 };
    let wait = std::time::Duration::from_secs(20);
    engine.claim(actor_ref, Proof::InProcess, claim, wait).await?.pop().context("nothing for the engine to do")
}

/// A step of its own waits, is blocked and urgent, is at work, has failed.
async fn held_up(engine: &Engine) -> anyhow::Result<()> {
    publish(engine, HELD_UP).await?;
    let run_id = start(engine, "held-up", "{}").await?;
    claim(engine, "worked").await?;
    let (_, task) = of(&claim(engine, "broken").await?)?;
    engine.execute(on(run_id, run::Command::Dead { task, error: "no".to_owned(), category: None })).await?;
    let act = Act::BlockEscalate { approval_id: None };
    let act = StepAct { step: "blocked".to_owned(), act, reason: None, preview: false };
    engine.execute(on(run_id, run::Command::Act(act))).await?;
    Ok(())
}

/// Captured its pin; its second step is at work.
async fn runbook(engine: &Engine) -> anyhow::Result<()> {
    publish(engine, RUNBOOK).await?;
    let run_id = start(engine, "cut", "{}").await?;
    let task = claim(engine, "book").await?;
    let (_, named) = of(&task)?;
    let command = run::Command::Complete {
        task: named,
        output: "null".into(),
        outbound: vec![],
        claim_next: None,
        artifacts: vec![],
    };
    engine.execute(on(run_id, command)).await?;
    for _ in 0..2 {
        let task = as_engine(engine, SURVEY_QUEUE).await?;
        let actor_ref = engine.config().application_actor_ref.clone();
        let values = task.probes.iter().map(|probe| (probe.pin.clone(), Some(Arc::from("\"41\"")))).collect();
        let survey = run::Command::Survey { task: of(&task)?.1, values, errors: vec![] };
        engine.execute(Call { actor_ref, ..on(run_id, survey) }).await?;
    }
    claim(engine, "default").await?;
    Ok(())
}

async fn filled(engine: &Engine) -> anyhow::Result<()> {
    linear(engine).await?;
    saga(engine).await?;
    gated(engine).await?;
    corrected(engine).await?;
    family(engine).await?;
    held_up(engine).await?;
    runbook(engine).await
}

async fn columns_of(place: &Place, table: &str) -> anyhow::Result<BTreeSet<String>> {
    let sql = match place.kind {
        Kind::Sqlite => format!("SELECT name FROM pragma_table_info('{table}')"),
        Kind::Postgres => format!(
            "SELECT column_name::text FROM information_schema.columns WHERE table_schema = 'public' AND table_name = '{table}'"
        ),
    };
    Ok(place.texts(&sql).await?.into_iter().collect())
}

async fn every_column_of_a_run_is_compared(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    filled(&engine).await?;
    let _ = engine.seal_now().await;
    place::close(engine).await?;
    for table in TABLES {
        let known: BTreeSet<String> = EDITS
            .iter()
            .map(|(of, column, ..)| (of, column))
            .chain(NOT_COMPARED.iter().map(|(of, column, _)| (of, column)))
            .filter(|(of, _)| **of == table)
            .map(|(_, column)| (*column).to_owned())
            .collect();
        let there = columns_of(&place, table).await?;
        ensure!(known == there, "{table}: {:?}", known.symmetric_difference(&there).collect::<Vec<_>>());
    }
    // Nothing of it happens by itself: it is due in hours.
    let engine = place.engine(Config { log: None, ..config() }).await?;
    let honest = verify(&engine, None).await?;
    ensure!(honest.found == 0, "an honest store: {:#?}", honest.findings);
    let mut missed = vec![];
    for edit in EDITS {
        if let Some(told) = tried(&place, &engine, edit).await.with_context(|| format!("{edit:?}"))? {
            missed.push(format!("{edit:?}: {told}"));
        }
    }
    ensure!(missed.is_empty(), "{} of {} edits:\n{}", missed.len(), EDITS.len(), missed.join("\n"));
    let honest = verify(&engine, None).await?;
    ensure!(honest.found == 0, "the edits are undone: {:#?}", honest.findings);
    place::close(engine).await?;
    place.remove().await
}

/// What is wrong with how the edit was found; nothing where it was.
async fn tried(place: &Place, engine: &Engine, edit: &Edit) -> anyhow::Result<Option<String>> {
    let (table, column, value, condition) = edit;
    let (hex, blob, id) = match place.kind {
        Kind::Sqlite => ("lower(hex(instance_id))", "zeroblob(32)", "X'0000000000000000000000000000000A'"),
        Kind::Postgres => {
            ("instance_id::text", "decode(repeat('00', 32), 'hex')", "'00000000-0000-0000-0000-00000000000a'::uuid")
        }
    };
    let of_runs = "instance_id IN (SELECT instance_id FROM runs)";
    let condition = if condition.is_empty() { of_runs.to_owned() } else { format!("{of_runs} AND {condition}") };
    let found =
        place.texts(&format!("SELECT {hex} FROM {table} WHERE {condition} ORDER BY instance_id LIMIT 1")).await?;
    let Some(run_id) = found.first().and_then(|text| uuid::Uuid::parse_str(text).ok()) else {
        return Ok(Some("no such row".to_owned()));
    };
    let row = match place.kind {
        Kind::Sqlite => format!("instance_id = X'{}' AND {condition}", run_id.simple()),
        Kind::Postgres => format!("instance_id = '{run_id}' AND {condition}"),
    };
    let value = value.replace("{blob}", blob).replace("{id}", id);
    // One row of several, and as it was again afterwards.
    let kept = format!(
        "DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT * FROM {table} WHERE instance_id = {}",
        match place.kind {
            Kind::Sqlite => format!("X'{}'", run_id.simple()),
            Kind::Postgres => format!("'{run_id}'"),
        }
    );
    let seq = if matches!(*table, "run_steps" | "step_corrections") {
        format!(" AND step_seq = (SELECT MIN(step_seq) FROM {table} WHERE {row})")
    } else {
        String::new()
    };
    place.sql(&format!("{kept}; UPDATE {table} SET {column} = {value} WHERE {row}{seq}")).await?;
    let report = verify(engine, Some(InstanceId(run_id))).await?;
    place
        .sql(&format!(
            "DELETE FROM {table} WHERE instance_id IN (SELECT instance_id FROM kept); INSERT INTO {table} SELECT * FROM kept; DROP TABLE kept"
        ))
        .await?;
    Ok((report.found == 0).then(|| format!("nothing was found in {run_id}")))
}

countersign_testing::on_both! {
    every_column_of_a_run_is_compared,
}
