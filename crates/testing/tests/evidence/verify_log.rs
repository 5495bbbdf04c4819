//! Edits by the back door, in the SQLite file and in PostgreSQL: verifying the log finds each of them, under its name.

use anyhow::{Context, ensure};
use countersign_engine::log::LogReport;
use countersign_engine::{Config, Engine, LogConfig};
use countersign_kernel::process::Decision;
use countersign_kernel::{EventId, GateEntry, InstanceId};
use countersign_testing::load::client::{let_do, started};
use countersign_testing::load::shapes::shape;
use countersign_testing::load::{Asker, Hand, calls};
use countersign_testing::place::{self, ADMIN, Kind, Place};
use std::sync::Arc;

/// Longer than a tile, so that there are stored subtrees.
const PROCESSES: usize = 160;

fn sealing() -> Config {
    Config { log: Some(LogConfig::new([42; 32])), ..Config::default() }
}

/// A sealed store, at rest.
async fn sealed(kind: Kind) -> anyhow::Result<Place> {
    let place = Place::new(kind).await?;
    let engine = place.engine(sealing()).await?;
    let_do(&engine, &["ines"]).await?;
    let design = shape("plain", &["a go b"], &[]);
    for n in 0..PROCESSES {
        let instance_id = started(&engine, "ines", &design).await?;
        engine.execute(calls::fire("ines", instance_id, "go", None)).await?;
        if n == PROCESSES / 2 {
            let _ = engine.seal_now().await;
        }
    }
    place::close(engine).await?;
    Ok(place)
}

async fn verify(engine: &Engine, instance_id: Option<InstanceId>) -> anyhow::Result<LogReport> {
    let (mut seen, mut total) = (0, 0);
    let report = engine.verify_log(ADMIN, instance_id, &mut |done, of| (seen, total) = (done, of)).await?;
    ensure!(seen == total || report.found > 0, "progress ended at {seen} of {total}");
    Ok(report)
}

/// Opened without the key: the sealer would stop at some of these edits.
async fn verified(place: &Place) -> anyhow::Result<LogReport> {
    let engine = place.engine(Config::default()).await?;
    let report = verify(&engine, None).await?;
    place::close(engine).await?;
    Ok(report)
}

/// The place in the log of a record that has a successor: the first record of some process.
async fn victim(place: &Place) -> anyhow::Result<(u64, EventId, InstanceId)> {
    let (_, reader) = place.store().await?.log()?;
    let entries = reader.entries(200, 50).await?;
    let first = entries.iter().filter_map(|entry| entry.record.as_ref().map(|row| (entry.log_index, row)));
    let (log_index, row) = first.into_iter().find(|(_, row)| row.sequence == 1).context("a start")?;
    Ok((log_index, row.event_id, row.instance_id))
}

struct Edit {
    what: &'static str,
    /// `{i}` is the victim's place in the log, `{r}` the condition that names its record.
    sqlite: &'static str,
    postgres: &'static str,
    codes: &'static [&'static str],
}

const EDITS: &[Edit] = &[
    Edit {
        what: "a payload",
        sqlite: "UPDATE records SET payload = CAST('{}' AS BLOB) WHERE {r}",
        postgres: "UPDATE records SET payload = '{}' WHERE {r}",
        codes: &["payload-digest-mismatch"],
    },
    Edit {
        what: "an attestation",
        sqlite: "UPDATE records SET attestation = CAST('{}' AS BLOB) WHERE {r}",
        postgres: "UPDATE records SET attestation = '{}' WHERE {r}",
        codes: &["attestation-digest-mismatch"],
    },
    Edit {
        what: "the actor, in header and column",
        sqlite: "UPDATE records SET actor_ref = 'eve', header = CAST(replace(CAST(header AS TEXT), '\"ines\"', '\"eve\"') AS BLOB) WHERE {r}",
        postgres: "UPDATE records SET actor_ref = 'eve', header = convert_to(replace(convert_from(header, 'UTF8'), '\"ines\"', '\"eve\"'), 'UTF8') WHERE {r}",
        codes: &["inclusion-invalid", "link-broken"],
    },
    Edit {
        what: "the column that is searched by",
        sqlite: "UPDATE records SET actor_ref = 'eve' WHERE {r}",
        postgres: "UPDATE records SET actor_ref = 'eve' WHERE {r}",
        codes: &["row-missing"],
    },
    Edit {
        what: "a header that is none",
        sqlite: "UPDATE records SET header = CAST('{}' AS BLOB) WHERE {r}",
        postgres: "UPDATE records SET header = '{}' WHERE {r}",
        codes: &["inclusion-invalid", "header-invalid"],
    },
    Edit {
        what: "a record gone",
        sqlite: "DELETE FROM records WHERE {r}",
        postgres: "DELETE FROM records WHERE {r}",
        codes: &["record-missing", "sequence-gap"],
    },
    Edit {
        what: "a log entry gone",
        sqlite: "DELETE FROM log_entries WHERE log_index = {i}",
        postgres: "DELETE FROM log_entries WHERE log_index = {i}",
        codes: &["inclusion-invalid", "sequence-gap"],
    },
    Edit {
        what: "record and log entry gone",
        sqlite: "DELETE FROM records WHERE {r}; DELETE FROM log_entries WHERE log_index = {i}",
        postgres: "DELETE FROM records WHERE {r}; DELETE FROM log_entries WHERE log_index = {i}",
        codes: &["inclusion-invalid", "sequence-gap"],
    },
    Edit {
        what: "the end of the log cut off",
        sqlite: "DELETE FROM log_entries WHERE log_index > {i}",
        postgres: "DELETE FROM log_entries WHERE log_index > {i}",
        codes: &["inclusion-invalid"],
    },
    Edit {
        what: "the hash of a log entry",
        sqlite: "UPDATE log_entries SET record_hash = zeroblob(32) WHERE log_index = {i}",
        postgres: "UPDATE log_entries SET record_hash = decode(repeat('00', 32), 'hex') WHERE log_index = {i}",
        codes: &["inclusion-invalid"],
    },
    Edit {
        what: "two entries swapped",
        sqlite: "UPDATE log_entries SET log_index = -1 WHERE log_index = {i}; UPDATE log_entries SET log_index = {i} WHERE log_index = {i} + 1; \
                 UPDATE log_entries SET log_index = {i} + 1 WHERE log_index = -1",
        postgres: "UPDATE log_entries SET log_index = -1 WHERE log_index = {i}; UPDATE log_entries SET log_index = {i} WHERE log_index = {i} + 1; \
                   UPDATE log_entries SET log_index = {i} + 1 WHERE log_index = -1",
        codes: &["sequence-gap", "inclusion-invalid"],
    },
    Edit {
        what: "a stored subtree",
        sqlite: "UPDATE log_nodes SET hash = zeroblob(32) WHERE level = 8 AND node_index = 0",
        postgres: "UPDATE log_nodes SET hash = decode(repeat('00', 32), 'hex') WHERE level = 8 AND node_index = 0",
        codes: &["inclusion-invalid"],
    },
    Edit {
        what: "the root of a checkpoint",
        sqlite: "UPDATE log_checkpoints SET root = zeroblob(32) WHERE size = (SELECT MIN(size) FROM log_checkpoints)",
        postgres: "UPDATE log_checkpoints SET root = decode(repeat('00', 32), 'hex') WHERE size = (SELECT MIN(size) FROM log_checkpoints)",
        codes: &["inclusion-invalid", "checkpoint-invalid"],
    },
    Edit {
        what: "the signature of a checkpoint",
        sqlite: "UPDATE log_checkpoints SET note = replace(note, '— ', '— x')",
        postgres: "UPDATE log_checkpoints SET note = replace(note, '— ', '— x')",
        codes: &["checkpoint-invalid"],
    },
    Edit {
        what: "the row that says where an instance stands",
        sqlite: "UPDATE instances SET sequence = 1 WHERE instance_id = (SELECT instance_id FROM records WHERE {r})",
        postgres: "UPDATE instances SET sequence = 1 WHERE instance_id = (SELECT instance_id FROM records WHERE {r})",
        codes: &["row-missing"],
    },
];

async fn every_edit_is_found(kind: Kind) -> anyhow::Result<()> {
    for edit in EDITS {
        let place = sealed(kind).await?;
        let honest = verified(&place).await?;
        ensure!(honest.found == 0, "an honest log: {:?}", honest.findings);
        ensure!(honest.size == honest.records && honest.size > 2 * PROCESSES as u64);
        let (log_index, event_id, _) = victim(&place).await?;
        let text = match kind {
            Kind::Sqlite => edit.sqlite,
            Kind::Postgres => edit.postgres,
        };
        let id = event_id.0.simple();
        let named = match kind {
            Kind::Sqlite => format!("event_id = X'{id}'"),
            Kind::Postgres => format!("event_id = '{id}'"),
        };
        place.sql(&text.replace("{i}", &log_index.to_string()).replace("{r}", &named)).await?;
        let report = verified(&place).await.with_context(|| edit.what)?;
        let codes: Vec<&str> = report.findings.iter().map(|finding| finding.code).collect();
        for code in edit.codes {
            ensure!(codes.contains(code), "{}: {code} is not among {:#?}", edit.what, report.findings);
        }
        ensure!(report.found < 20, "{}: one edit, {} findings: {:#?}", edit.what, report.found, report.findings);
        place.remove().await?;
    }
    Ok(())
}

/// Edits beside the ledger: rows that no hash covers. The same text for both databases.
const STORE_EDITS: &[(&str, &str)] = &[
    (
        "an approver",
        "UPDATE approval_steps SET approver_ref = 'eve' WHERE step_id = (SELECT step_id FROM approval_steps ORDER BY step_id LIMIT 1)",
    ),
    (
        "a decision",
        "UPDATE approval_steps SET state = 'Approved' WHERE step_id = (SELECT step_id FROM approval_steps WHERE state <> 'Approved' ORDER BY step_id LIMIT 1)",
    ),
    (
        "a reason",
        "UPDATE approval_steps SET ended_reason = 'as agreed' WHERE step_id = (SELECT step_id FROM approval_steps WHERE ended_reason IS NOT NULL ORDER BY step_id LIMIT 1)",
    ),
    (
        "an in-tray",
        "UPDATE assignments SET assignee_ref = 'eve' WHERE assignment_id = (SELECT assignment_id FROM assignments ORDER BY assignment_id LIMIT 1)",
    ),
    (
        "who fired",
        "UPDATE transitions SET actor_ref = 'eve' WHERE transition_id = (SELECT transition_id FROM transitions ORDER BY transition_id LIMIT 1)",
    ),
    (
        "a firing gone",
        "DELETE FROM transitions WHERE transition_id = (SELECT transition_id FROM transitions ORDER BY transition_id LIMIT 1)",
    ),
    (
        "an approval unspent",
        "UPDATE gates SET fate = 'unspent' WHERE gate_id = (SELECT gate_id FROM gates WHERE fate = 'consumed' ORDER BY gate_id LIMIT 1)",
    ),
    (
        "who opened",
        "UPDATE gates SET opened_by = 'eve' WHERE gate_id = (SELECT gate_id FROM gates ORDER BY gate_id LIMIT 1)",
    ),
    (
        "a subject",
        "UPDATE processes SET subject_ref = 'another' WHERE instance_id = (SELECT instance_id FROM processes ORDER BY instance_id LIMIT 1)",
    ),
    ("a grant gone", "DELETE FROM grants WHERE granted_seq = (SELECT MAX(granted_seq) FROM grants)"),
    (
        "a grant to another",
        "UPDATE grants SET subject_ref = 'eve' WHERE granted_seq = (SELECT MAX(granted_seq) FROM grants)",
    ),
    (
        "a grant made earlier",
        "UPDATE grants SET granted_at_us = granted_at_us - 1 WHERE granted_seq = (SELECT MAX(granted_seq) FROM grants)",
    ),
    ("an actor's name", "UPDATE actors SET display_name = 'Eve' WHERE actor_ref = 'admin'"),
    ("a definition's text", "UPDATE definitions SET source = 'kind: process'"),
];

/// Three processes with a gate each: approved and fired, rejected, waiting.
async fn gated(kind: Kind) -> anyhow::Result<Place> {
    let place = Place::new(kind).await?;
    let engine = place.engine(sealing()).await?;
    let gate = GateEntry::Single { approver_ref: "bea".to_owned(), scope: "x".to_owned(), delegable: false };
    let design = shape("gated", &["a go b g", "b back a", "b end c"], &[("g", gate)]);
    let_do(&engine, &["ines"]).await?;
    engine.execute(calls::publish(&design)).await?;
    for decided in [Some(Decision::Approve), Some(Decision::Reject), None] {
        let instance_id = started(&engine, "ines", &design).await?;
        engine.execute(calls::open("ines", instance_id, "go", None)).await?;
        if let Some(decision) = decided {
            engine.execute(calls::decide("bea", instance_id, "go", decision, Some("seen"), None)).await?;
        }
        if decided == Some(Decision::Approve) {
            engine.execute(calls::fire("ines", instance_id, "go", None)).await?;
        }
    }
    place::close(engine).await?;
    Ok(place)
}

async fn every_edit_of_the_stores_is_found(kind: Kind) -> anyhow::Result<()> {
    for (what, sql) in STORE_EDITS {
        let place = gated(kind).await?;
        let honest = verified(&place).await?;
        ensure!(honest.found == 0, "an honest store: {:?}", honest.findings);
        place.sql(sql).await.with_context(|| *what)?;
        let report = verified(&place).await.with_context(|| *what)?;
        let named = ["row-missing", "record-missing", "replay-mismatch", "document-mismatch"];
        ensure!(report.findings.iter().any(|finding| named.contains(&finding.code)), "{what}: {:?}", report.findings);
        ensure!(report.found < 20, "{what}: one edit, {:#?}", report.findings);
        place.remove().await?;
    }
    Ok(())
}

async fn an_instance_is_verified_alone(kind: Kind) -> anyhow::Result<()> {
    let place = sealed(kind).await?;
    let (_, event_id, instance_id) = victim(&place).await?;
    let engine = place.engine(sealing()).await?;
    let report = verify(&engine, Some(instance_id)).await?;
    ensure!(report.found == 0 && report.records == 2, "{report:?}");
    let report = verify(&engine, Some(InstanceId::REGISTRY)).await?;
    ensure!(report.found == 0 && report.records > 20, "{report:?}");
    let unknown = engine.verify_log(ADMIN, Some(InstanceId(uuid::Uuid::max())), &mut |_, _| {}).await;
    ensure!(unknown.is_err_and(|refusal| refusal.code.as_str() == "not-known"));
    place::close(engine).await?;
    let named = match kind {
        Kind::Sqlite => format!("event_id = X'{}'", event_id.0.simple()),
        Kind::Postgres => format!("event_id = '{}'", event_id.0.simple()),
    };
    place.sql(&format!("DELETE FROM records WHERE {named}")).await?;
    let engine = place.engine(Config::default()).await?;
    let report = verify(&engine, Some(instance_id)).await?;
    ensure!(report.findings.iter().any(|finding| finding.code == "sequence-gap"), "{report:?}");
    place::close(engine).await?;
    place.remove().await
}

/// What is not sealed yet is verified too, and says nothing bad; a live store verifies while it is written to.
async fn a_live_log_verifies(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(sealing()).await?;
    let hand = Hand::new(engine.clone(), &Asker::new(3, 0).designs).await?;
    let writing = tokio::spawn(async move {
        let mut asker = Asker::new(3, 0);
        for _ in 0..400 {
            let book = hand.book().clone();
            hand.give(&asker.next(&book)).await?;
        }
        anyhow::Ok(())
    });
    let mut rounds = 0;
    while !writing.is_finished() || rounds == 0 {
        let report = verify(&engine, None).await?;
        ensure!(report.found == 0, "{:#?}", report.findings);
        rounds += 1;
    }
    writing.await??;
    place::close(engine).await?;
    let engine: Arc<Engine> = place.engine(Config::default()).await?;
    let report = verify(&engine, None).await?;
    ensure!(report.found == 0 && report.records > 200, "{report:?}");
    place::close(engine).await?;
    place.remove().await
}

countersign_testing::on_both! {
    every_edit_is_found,
    every_edit_of_the_stores_is_found,
    an_instance_is_verified_alone,
    a_live_log_verifies,
}
