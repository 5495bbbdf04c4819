//! A damaged instance is reported, whatever is wrong with it, and accepts no command; its neighbours go on.

use anyhow::{Context, ensure};
use countersign_engine::log::{LogReport, Strictness, Verification};
use countersign_engine::{Config, Engine, LogConfig};
use countersign_kernel::refusal::Code;
use countersign_kernel::{EventId, InstanceId};
use countersign_testing::load::calls;
use countersign_testing::load::client::{let_do, records, started};
use countersign_testing::load::shapes::shape;
use countersign_testing::place::{self, ADMIN, Kind, Place};
use std::sync::Arc;

fn sealing() -> Config {
    Config { log: Some(LogConfig::new([42; 32])), ..Config::default() }
}

/// Two processes, each with a firing behind it and one before it.
async fn two(place: &Place) -> anyhow::Result<(Arc<Engine>, InstanceId, InstanceId)> {
    let engine = place.engine(sealing()).await?;
    let_do(&engine, &["ines"]).await?;
    let design = shape("plain", &["a go b", "b go c"], &[]);
    let mut ids = vec![];
    for _ in 0..2 {
        let id = started(&engine, "ines", &design).await?;
        engine.execute(calls::fire("ines", id, "go", None)).await?;
        ids.push(id);
    }
    engine.seal_now().await?;
    Ok((engine, ids[0], ids[1]))
}

async fn verify(engine: &Engine, instance_id: Option<InstanceId>) -> anyhow::Result<LogReport> {
    Ok(engine.verify_log(ADMIN, instance_id, &mut |_, _| {}).await?)
}

fn named(kind: Kind, event_id: EventId) -> String {
    match kind {
        Kind::Sqlite => format!("event_id = X'{}'", event_id.0.simple()),
        Kind::Postgres => format!("event_id = '{}'", event_id.0),
    }
}

async fn require_refused(engine: &Engine, id: InstanceId, why: &str) -> anyhow::Result<()> {
    let refusal = engine.execute(calls::fire("ines", id, "go", None)).await.err().context("the fire was accepted")?;
    ensure!(refusal.code == Code::RecordingFailure, "{refusal:?}");
    let detail = refusal.detail.clone();
    ensure!(detail.contains(why) && detail.contains("audit verify"), "{why} is not in: {detail}");
    Ok(())
}

/// The record of the log's last entry is gone: the log can still be verified, and the cut instance takes nothing more.
async fn a_missing_tail_is_reported_and_refused(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let (engine, sound, cut) = two(&place).await?;
    let last = records(&engine, cut, "transition_fired").await?.last().context("a record")?.event_id;
    place::close(engine).await?;
    place.sql(&format!("DELETE FROM records WHERE {}", named(kind, last))).await?;
    let engine = place.engine(sealing()).await?;
    require_refused(&engine, cut, "its last record, number 2, is missing").await?;
    let report = verify(&engine, None).await?;
    let codes: Vec<&str> = report.findings.iter().map(|finding| finding.code).collect();
    ensure!(codes.contains(&"record-missing") && codes.contains(&"row-missing"), "{:?}", report.findings);
    ensure!(report.findings.iter().all(|finding| finding.instance_id != Some(sound)), "{:?}", report.findings);
    ensure!(engine.damaged_instances() == 1);
    let report = verify(&engine, Some(cut)).await?;
    ensure!(report.found > 0, "{report:?}");
    require_refused(&engine, cut, "damaged").await?;
    engine.execute(calls::fire("ines", sound, "go", None)).await?;
    place::close(engine).await?;
    place.remove().await
}

/// A head that disagrees with the last record is noticed when the instance is loaded.
async fn a_head_that_disagrees_is_refused(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let (engine, sound, moved) = two(&place).await?;
    place::close(engine).await?;
    let (id, hash) = match kind {
        Kind::Sqlite => (format!("X'{}'", moved.0.simple()), "zeroblob(32)"),
        Kind::Postgres => (format!("'{}'", moved.0), "decode(repeat('00', 32), 'hex')"),
    };
    place.sql(&format!("UPDATE instances SET head = {hash} WHERE instance_id = {id}")).await?;
    let engine = place.engine(sealing()).await?;
    require_refused(&engine, moved, "its last record, number 2, has the hash").await?;
    engine.execute(calls::fire("ines", sound, "go", None)).await?;
    place::close(engine).await?;
    place.remove().await
}

/// What verifying finds is refused although it is in the cache, until verifying finds nothing.
async fn findings_end_an_instance_and_a_repair_revives_it(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let (engine, sound, edited) = two(&place).await?;
    let first = records(&engine, edited, "workflow_started").await?.first().context("a record")?.clone();
    let at = named(kind, first.event_id);
    let bytes = |bytes: &[u8]| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match kind {
            Kind::Sqlite => format!("X'{hex}'"),
            Kind::Postgres => format!("decode('{hex}', 'hex')"),
        }
    };
    let set = |payload: String| format!("UPDATE records SET payload = {payload} WHERE {at}");
    place.sql(&set(bytes(b"{}"))).await?;
    ensure!(verify(&engine, None).await?.found > 0);
    require_refused(&engine, edited, "payload-digest-mismatch").await?;
    engine.execute(calls::fire("ines", sound, "go", None)).await?;
    engine.execute(calls::grant("zoe", "workflows:read")).await?;
    place.sql(&set(bytes(first.record.payload().context("a payload")?))).await?;
    let report = verify(&engine, Some(edited)).await?;
    ensure!(report.found == 0, "{:?}", report.findings);
    engine.execute(calls::fire("ines", edited, "go", None)).await?;
    place::close(engine).await?;
    place.remove().await
}

/// Content that vanished without a purge is not `purged`.
async fn a_hole_is_no_purge(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let (engine, _, holed) = two(&place).await?;
    let first = records(&engine, holed, "workflow_started").await?.first().context("a record")?.event_id;
    let at = named(kind, first);
    place.sql(&format!("UPDATE records SET payload = NULL, attestation = NULL, salt = NULL WHERE {at}")).await?;
    let verified = engine.verify_record(ADMIN, Some(first), b"null", Strictness::Strict).await?;
    ensure!(verified == Verification::Failed("seal-record-set-mismatch"), "{verified:?}");
    let report = verify(&engine, None).await?;
    ensure!(report.findings.iter().any(|finding| finding.code == "destruction-invalid"), "{:?}", report.findings);
    place::close(engine).await?;
    place.remove().await
}

/// Rows that cannot be read are findings, and the rest is verified all the same.
async fn what_cannot_be_read_is_a_finding(kind: Kind) -> anyhow::Result<()> {
    let (id, short) = match kind {
        Kind::Sqlite => ("instance_id <> zeroblob(16)", "X'00'"),
        Kind::Postgres => ("instance_id <> '00000000-0000-0000-0000-000000000000'", "'\\x00'"),
    };
    for edit in [
        format!("UPDATE log_entries SET record_hash = {short} WHERE log_index = 3"),
        format!("UPDATE log_checkpoints SET root = {short}"),
        format!("UPDATE instances SET head = {short} WHERE {id}"),
        format!("UPDATE records SET salt = {short} WHERE {id} AND sequence = 1"),
        "UPDATE instances SET state = 'nowhere' WHERE state = 'b'".to_owned(),
        "UPDATE processes SET definition_name = 'half'".to_owned(),
        "DELETE FROM processes".to_owned(),
        "DELETE FROM documents".to_owned(),
        "DELETE FROM log_entries WHERE log_index > 2".to_owned(),
        "DELETE FROM grants".to_owned(),
    ] {
        let place = Place::new(kind).await?;
        let (engine, ..) = two(&place).await?;
        place.sql(&edit).await?;
        let report = verify(&engine, None).await.with_context(|| edit.clone())?;
        ensure!(report.found > 0, "{edit}: nothing was found");
        place::close(engine).await?;
        place.remove().await?;
    }
    Ok(())
}

countersign_testing::on_both! {
    a_missing_tail_is_reported_and_refused,
    a_head_that_disagrees_is_refused,
    findings_end_an_instance_and_a_repair_revives_it,
    a_hole_is_no_purge,
    what_cannot_be_read_is_a_finding,
}
