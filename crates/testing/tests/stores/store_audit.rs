//! The checker is checked: a sound store passes, and every kind of damage is found.

use async_trait::async_trait;
use countersign_engine::Config;
use countersign_engine::port::{Batch, Committed, Head, StoreError, Writer};
use countersign_engine::rows::Write;
use countersign_store::tap::{Tap, Tapped};
use countersign_testing::load::client::{let_do, opened, started, told};
use countersign_testing::load::shapes::{quorum, shape, single};
use countersign_testing::load::{Asker, Hand, ManualClock, calls};
use countersign_testing::place::{Kind, Place, close, engine_on};
use countersign_testing::store_audit::{self, Summary};
use std::path::Path;
use std::sync::Arc;

/// A store with a bit of everything in it.
async fn fill(place: &Place) -> anyhow::Result<Summary> {
    let mut asker = Asker::new(3, 0);
    let clock = ManualClock::default();
    let config = Config { clock: clock.clock(), audit_failed_attempts: true, ..Config::default() };
    let hand = Hand::new(place.engine(config).await?, &asker.designs).await?;
    for _ in 0..600 {
        let book = hand.book().clone();
        hand.give(&asker.next(&book)).await?;
        clock.advance(1000);
    }
    let engine = hand.engine.clone();
    let gates = [("sign", single("bea")), ("two", quorum(countersign_kernel::QuorumRule::AllOfN, &["bea", "cleo"]))];
    let design = shape("plain", &["a go b sign", "a both b two", "a skip b"], &gates);
    // One that waits for three decisions.
    let waiting = started(&engine, "admin", &design).await?;
    opened(&engine, "admin", waiting, "go").await?;
    opened(&engine, "admin", waiting, "both").await?;
    drop(engine);
    hand.put_down().await?;
    store_audit::require_sound(&place.url).await
}

/// Damage by the back door, one row each where one is enough.
const DAMAGE: &[(&str, &str)] = &[
    ("a state", "UPDATE instances SET state = 'elsewhere' WHERE sequence > 3 AND state <> ''"),
    (
        "a head",
        "UPDATE instances SET sequence = sequence + 1 WHERE instance_id IN (SELECT instance_id FROM processes LIMIT 1)",
    ),
    ("the registry's head", "UPDATE instances SET head = zeroblob(32) WHERE instance_id = zeroblob(16)"),
    ("a missing record", "DELETE FROM records WHERE position = (SELECT MAX(position) - 20 FROM records)"),
    ("the first record", "DELETE FROM records WHERE sequence = 1 AND instance_id <> zeroblob(16)"),
    ("the last record", "DELETE FROM records WHERE position = (SELECT MAX(position) FROM records)"),
    (
        "a payload",
        "UPDATE records SET payload = CAST(replace(CAST(payload AS TEXT), 'instance_id', 'instance-id') AS BLOB) WHERE action_ref = 'gate_decided'",
    ),
    ("an actor", "UPDATE records SET actor_ref = 'mallory' WHERE action_ref = 'transition_fired'"),
    ("a time", "UPDATE records SET recorded_at_us = recorded_at_us + 1 WHERE action_ref = 'gate_opened'"),
    ("a salt", "UPDATE records SET salt = zeroblob(32) WHERE action_ref = 'workflow_started'"),
    ("a missing transition", "DELETE FROM transitions WHERE sequence_number = 1"),
    ("who fired", "UPDATE transitions SET actor_ref = 'mallory' WHERE sequence_number = 1"),
    ("which approval", "UPDATE transitions SET gate_id = randomblob(16) WHERE guard_satisfied = 1"),
    ("an approval", "UPDATE approval_steps SET state = 'Approved' WHERE state = 'Pending'"),
    ("who approved", "UPDATE approval_steps SET ended_by = 'mallory' WHERE state = 'Approved'"),
    ("a missing step", "DELETE FROM approval_steps WHERE state = 'Approved'"),
    ("an in-tray", "DELETE FROM assignments WHERE status = 'Active'"),
    (
        "an entry that came back",
        "UPDATE assignments SET status = 'Active', ended_at_us = NULL WHERE status = 'Recalled'",
    ),
    ("whose in-tray", "UPDATE assignments SET assignee_ref = 'mallory' WHERE status = 'Active'"),
    ("an unspent gate", "UPDATE gates SET fate = 'unspent' WHERE fate = 'consumed'"),
    ("a missing gate", "DELETE FROM gates WHERE gate_id IN (SELECT gate_id FROM gates LIMIT 1)"),
    ("a chain", "UPDATE gates SET chain_state = 'Approved' WHERE chain_state = 'Pending'"),
    ("a missing process", "DELETE FROM processes WHERE instance_id IN (SELECT instance_id FROM processes LIMIT 1)"),
    ("a subject", "UPDATE processes SET subject_ref = 'another'"),
    ("a declaration", "UPDATE documents SET body = CAST(replace(CAST(body AS TEXT), 's1', 's0') AS BLOB)"),
    ("a missing grant", "DELETE FROM grants WHERE subject_ref = 'ines'"),
    ("a grant that came back", "UPDATE grants SET revoked_at_us = NULL, revoked_by = NULL, revoked_seq = NULL"),
    ("a missing actor", "DELETE FROM actors WHERE actor_ref = 'admin'"),
];

#[tokio::test]
async fn every_damage_is_found() -> anyhow::Result<()> {
    let place = Place::new(Kind::Sqlite).await?;
    let summary = fill(&place).await?;
    assert!(summary.guarded > 10 && summary.steps > 30 && summary.registry_records > 40, "{summary}");
    let whole = place.sqlite_file();
    for (what, sql) in DAMAGE {
        let copy = place.directory().join("damaged.sqlite");
        remove_with_log(&copy);
        rusqlite::Connection::open(&whole)?.execute("VACUUM INTO ?1", [copy.display().to_string()])?;
        let changed = rusqlite::Connection::open(&copy)?.execute(sql, [])?;
        assert!(changed > 0, "{what}: nothing to damage");
        let store = countersign_store::open(&format!("sqlite:{}", copy.display())).await?;
        let found = store_audit::check_store(store).await;
        assert!(found.is_err(), "{what} was damaged and not found: {sql}");
    }
    Ok(())
}

fn remove_with_log(file: &Path) {
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{ending}", file.display()));
    }
}

/// An engine gone wrong: it leaves something out of what it commits, with every hash in order.
struct Forger {
    /// Takes the last record of such a commit away.
    drop_record: Option<&'static str>,
    drop_write: fn(&Write) -> bool,
}

#[async_trait]
impl Tap for Forger {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError> {
        let mut batch = batch.clone();
        for unit in &mut batch.units {
            unit.writes.retain(|write| !(self.drop_write)(write));
            let last = unit.records.last().map(|row| row.action_ref.as_str());
            if unit.records.len() > 1 && last == self.drop_record && last.is_some() {
                unit.records.pop();
                if let Some(row) = unit.records.last() {
                    let (sequence, record_hash) = (row.sequence, row.record.record_hash);
                    unit.head = Head { sequence, record_hash, last_time: row.recorded_at };
                }
            }
        }
        writer.commit(&batch).await
    }
}

/// What it leaves out: in words, as a record, as rows.
type Forgery = (&'static str, Option<&'static str>, fn(&Write) -> bool);

#[tokio::test]
async fn an_engine_that_forgets_is_found_out() -> anyhow::Result<()> {
    let keep = |_: &Write| false;
    let forgers: [Forgery; 8] = [
        ("nothing", None, keep),
        ("the record of a moot gate", Some("moot_gate_recalled"), keep),
        ("the outcome of a quorum", Some("chain_resolved"), keep),
        ("the gate's own record", Some("gate_decided"), keep),
        ("the recall of an entry", None, |write| matches!(write, Write::EndAssignment { .. })),
        ("the end of a step", None, |write| matches!(write, Write::EndStep { .. })),
        ("a move", None, |write| matches!(write, Write::Transition(_))),
        ("that an approval is spent", None, |write| matches!(write, Write::SpendGate { .. })),
    ];
    for (what, drop_record, drop_write) in forgers {
        let place = Place::new(Kind::Sqlite).await?;
        let tap = Arc::new(Forger { drop_record, drop_write });
        let store = Tapped { inner: place.store().await?, tap };
        let engine = engine_on(Box::new(store), Config::default()).await?;
        let_do(&engine, &["ines"]).await?;
        let gates =
            [("sign", single("bea")), ("two", quorum(countersign_kernel::QuorumRule::AllOfN, &["bea", "cleo"]))];
        let design = shape("plain", &["a go b sign", "a both b two", "a skip b"], &gates);
        // Each on a process of its own, so that what is left out of one shows there.
        let (left, quorum, single) = (
            started(&engine, "ines", &design).await?,
            started(&engine, "ines", &design).await?,
            started(&engine, "ines", &design).await?,
        );
        opened(&engine, "ines", left, "go").await?;
        told(&engine, calls::fire("ines", left, "skip", None)).await;
        opened(&engine, "ines", quorum, "both").await?;
        told(&engine, calls::approve("bea", quorum, "both")).await;
        told(&engine, calls::approve("cleo", quorum, "both")).await;
        opened(&engine, "ines", single, "go").await?;
        told(&engine, calls::approve("bea", single, "go")).await;
        told(&engine, calls::fire("ines", single, "go", None)).await;
        close(engine).await?;
        let found = store_audit::check_store(place.store().await?).await;
        assert_eq!(found.is_ok(), what == "nothing", "left out: {what}");
    }
    Ok(())
}
