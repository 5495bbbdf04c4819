//! The sealer at work, on both stores: everything committed gets its place, in order, once, and under a signature.

use anyhow::{Context, ensure};
use countersign_engine::log::Proof;
use countersign_engine::port::RecordQuery;
use countersign_engine::{Config, Engine, LogConfig};
use countersign_kernel::EventId;
use countersign_ledger::merkle;
use countersign_ledger::note::{Checkpoint, Verifier};
use countersign_testing::conformance::log::{headers, require_order};
use countersign_testing::load::client::{granted, let_do, started};
use countersign_testing::load::shapes::shape;
use countersign_testing::load::{Design, calls};
use countersign_testing::place::{self, ADMIN, Kind, Place};
use countersign_testing::races::{Arena, random_clients};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SEED: [u8; 32] = [42; 32];

fn sealing() -> Config {
    Config { log: Some(LogConfig::new(SEED)), ..Config::default() }
}

/// Signs only when it is asked to.
fn sealing_when_asked() -> Config {
    let log = LogConfig { every: Duration::from_secs(3600), records: u64::MAX, ..LogConfig::new(SEED) };
    Config { log: Some(log), ..Config::default() }
}

fn plain() -> Design {
    shape("plain", &["a go b"], &[])
}

fn code<T>(answer: Result<T, countersign_kernel::Refusal>) -> &'static str {
    answer.map_or_else(|refusal| refusal.code.as_str(), |_| "ok")
}

async fn start(engine: &Arc<Engine>, count: usize) -> anyhow::Result<()> {
    for n in 0..count {
        engine.execute(calls::start("ines", &plain(), &format!("subject {n}"), None)).await?;
    }
    Ok(())
}

async fn newest(engine: &Engine) -> anyhow::Result<EventId> {
    let page = countersign_engine::port::Page { after: None, limit: 1, descending: true };
    let rows = engine.read_records(ADMIN, &RecordQuery::default(), &page).await?;
    Ok(rows.first().context("a record")?.event_id)
}

fn require_proof(proof: &Proof, key: &str) -> anyhow::Result<()> {
    let key = Verifier::parse(key)?;
    let (text, _) = key.open(&proof.checkpoint)?;
    let checkpoint = Checkpoint::parse(text)?;
    ensure!(checkpoint.size == proof.size && checkpoint.root == proof.root);
    let Proof { record_hash, log_index, size, root, proof, .. } = proof;
    ensure!(merkle::verify_inclusion(record_hash, *log_index, *size, proof, root), "the proof does not hold");
    Ok(())
}

/// The log holds every record, in an order that the spec allows.
async fn require_whole(place: &Place) -> anyhow::Result<u64> {
    let (_, reader) = place.store().await?.log()?;
    ensure!(reader.count_unsealed(10).await? == 0, "not everything is sealed");
    ensure!(reader.skipped(10).await?.is_empty(), "something was skipped");
    let headers = headers(&*reader).await?;
    require_order(&headers)?;
    let size = headers.len() as u64;
    ensure!(reader.size().await? == size);
    ensure!(reader.latest_checkpoint().await?.is_none_or(|row| row.size <= size));
    Ok(size)
}

/// Everything is sealed, by this call or by the sealer itself: an engine's first checkpoint waits for nobody.
async fn sealed(engine: &Engine) -> anyhow::Result<u64> {
    match engine.seal_now().await {
        Ok(seal) => Ok(seal.size),
        Err(refusal) if refusal.code.as_str() == "nothing-to-seal" => Ok(engine.sealed_through().await?),
        Err(refusal) => Err(refusal.into()),
    }
}

async fn a_seal_covers_everything_and_every_record_can_be_proved(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(sealing_when_asked()).await?;
    let_do(&engine, &["ines"]).await?;
    // From here on only what is asked for is sealed.
    sealed(&engine).await?;
    start(&engine, 300).await?;
    let seal = engine.seal_now().await?;
    ensure!(code(engine.seal_now().await) == "nothing-to-seal");
    let key = engine.log_verifier_key().await?.context("a key")?;
    let identity = engine.log_identity().await?.context("a log")?;
    ensure!(seal.evidence_id == format!("{}@{}", identity.origin, seal.size));
    ensure!(engine.sealed_through().await? == seal.size);

    let last = newest(&engine).await?;
    let proof = engine.prove(last).await?.context("sealed")?;
    ensure!(proof.size == seal.size && proof.root == seal.root);
    require_proof(&proof, &key)?;

    start(&engine, 20).await?;
    ensure!(engine.prove(newest(&engine).await?).await?.is_none(), "proved before it was sealed");
    let second = engine.seal_now().await?;
    ensure!(second.size == seal.size + 20);
    let grown = engine.consistency(seal.size, second.size).await?;
    ensure!(grown.old_root == seal.root && grown.new_root == second.root);
    ensure!(merkle::verify_consistency(grown.old, grown.new, &grown.old_root, &grown.new_root, &grown.proof));
    ensure!(engine.consistency(1, second.size + 1).await.is_err() && engine.consistency(2, 1).await.is_err());
    require_proof(&engine.prove(last).await?.context("sealed")?, &key)?;
    ensure!(engine.prove(EventId(uuid::Uuid::nil())).await?.is_none());
    place::close(engine).await?;
    ensure!(require_whole(&place).await? == second.size);
    place.remove().await
}

async fn what_was_recorded_without_a_log_is_sealed_later(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(Config::default()).await?;
    let_do(&engine, &["ines"]).await?;
    start(&engine, 40).await?;
    ensure!(engine.log_identity().await?.is_none() && !engine.seals());
    place::close(engine).await?;
    // Sealed on closing, too.
    let engine = place.engine(sealing_when_asked()).await?;
    start(&engine, 1).await?;
    place::close(engine).await?;
    let size = require_whole(&place).await?;
    let engine = place.engine(sealing_when_asked()).await?;
    ensure!(engine.sealed_through().await? == size, "a store at rest is not sealed");
    start(&engine, 5).await?;
    ensure!(sealed(&engine).await? == size + 5, "the edge was not read back");
    place::close(engine).await?;
    place.remove().await
}

async fn another_key_follows_without_sealing(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    place::close(place.engine(sealing()).await?).await?;
    let size = require_whole(&place).await?;
    let other = Config { log: Some(LogConfig::new([7; 32])), ..Config::default() };
    let engine = place.engine(other).await?;
    ensure!(!engine.seals());
    let_do(&engine, &["ines"]).await?;
    ensure!(engine.sealed_through().await? == size);
    place::close(engine).await?;
    place.remove().await
}

/// A log that no longer is what was signed is not continued.
async fn a_log_that_contradicts_its_checkpoint_is_not_continued(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    place::close(place.engine(sealing()).await?).await?;
    let size = require_whole(&place).await?;
    let flip = match kind {
        Kind::Sqlite => "UPDATE log_entries SET record_hash = zeroblob(32) WHERE log_index = 1",
        Kind::Postgres => "UPDATE log_entries SET record_hash = decode(repeat('00', 32), 'hex') WHERE log_index = 1",
    };
    place.sql(flip).await?;
    let engine = place.engine(sealing()).await?;
    // The engine goes on; the log does not.
    let_do(&engine, &["ines"]).await?;
    start(&engine, 3).await?;
    place::close(engine).await?;
    let (_, reader) = place.store().await?.log()?;
    ensure!(reader.size().await? == size && reader.count_unsealed(100).await? > 0);
    place.remove().await
}

countersign_testing::on_both! {
    a_seal_covers_everything_and_every_record_can_be_proved,
    what_was_recorded_without_a_log_is_sealed_later,
    another_key_follows_without_sealing,
    a_log_that_contradicts_its_checkpoint_is_not_continued,
}

/// Two nodes, both with the key, both writing: one log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_engines_under_load_keep_one_log() -> anyhow::Result<()> {
    let place = Place::new(Kind::Postgres).await?;
    let arena = Arena::with(place, 2, |_| sealing()).await?;
    random_clients(&arena, 5, 4, 250).await?;
    // Either node answers, whoever leads.
    for n in 0..2 {
        let said = code(arena.engine(n).seal_now().await);
        ensure!(["ok", "nothing-to-seal"].contains(&said), "{said}");
    }
    let place = arena.close().await?;
    require_whole(&place).await?;
    place.remove().await
}

/// A transaction with a low number stays open while later ones commit: nothing after it is numbered before it ends,
/// and when it commits, its record is not skipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_commits_late_is_not_skipped() -> anyhow::Result<()> {
    let place = Place::new(Kind::Postgres).await?;
    let engine = place.engine(sealing()).await?;
    let_do(&engine, &["ines"]).await?;
    start(&engine, 3).await?;
    let _ = engine.seal_now().await;
    let before = engine.sealed_through().await?;

    let (late, connection) = tokio_postgres::connect(&place.url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    // It holds no lock that anybody waits for: only its number is low.
    late.batch_execute("BEGIN; SELECT pg_current_xact_id()").await?;
    start(&engine, 30).await?;
    let (_, reader) = place.store().await?.log()?;
    tokio::time::sleep(Duration::from_millis(400)).await;
    ensure!(reader.size().await? == before, "numbered while an older transaction was open");
    ensure!(reader.count_unsealed(100).await? == 30);
    // The late one writes a record of its own, then commits.
    late.batch_execute(
        "INSERT INTO records (event_id, instance_id, sequence, action_ref, actor_ref, recorded_at_us, header, payload, attestation, salt) \
         SELECT '00000000-0000-7000-8000-000000000001', '00000000-0000-7000-8000-000000000002', 1, action_ref, actor_ref, recorded_at_us, \
         header, payload, attestation, salt FROM records ORDER BY event_id DESC LIMIT 1; COMMIT",
    )
    .await?;
    let id = EventId(uuid::Uuid::parse_str("00000000-0000-7000-8000-000000000001")?);
    let size = sealed(&engine).await?;
    ensure!(size == before + 31, "{size} after {before}");
    ensure!(reader.index_of(&[id]).await? == [Some(before)], "in the order of transactions it is the first of them");
    ensure!(reader.skipped(10).await?.is_empty());
    place::close(engine).await?;
    place.remove().await
}

/// A dump that was restored on another server bears numbers that are ahead of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_dump_goes_on() -> anyhow::Result<()> {
    let place = Place::new(Kind::Postgres).await?;
    let engine = place.engine(sealing()).await?;
    let_do(&engine, &["ines"]).await?;
    start(&engine, 10).await?;
    place::close(engine).await?;
    let before = require_whole(&place).await?;
    // Some that were not sealed yet, and all from far ahead.
    let engine = place.engine(Config::default()).await?;
    start(&engine, 10).await?;
    place::close(engine).await?;
    place.sql("UPDATE records SET xact = (xact::text::numeric + 1000000000)::text::xid8").await?;
    let engine = place.engine(sealing()).await?;
    start(&engine, 10).await?;
    let size = sealed(&engine).await?;
    ensure!(size == before + 20, "{size} after {before}");
    place::close(engine).await?;
    require_whole(&place).await?;
    place.remove().await
}

/// The lease is taken away while the leader works: two believe to lead, and there is one log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_believe_to_lead_never_fork_the_log() -> anyhow::Result<()> {
    let place = Place::new(Kind::Postgres).await?;
    let log = LogConfig { every: Duration::from_millis(20), records: 10, ..LogConfig::new(SEED) };
    let arena = Arena::with(place, 2, |config| Config { log: Some(log.clone()), ..config }).await?;
    let thief = {
        let url = arena.url().to_owned();
        tokio::spawn(async move {
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            // Every few milliseconds somebody else may lead, and every other time both may: the token stays the same.
            for n in 0..150 {
                client.batch_execute("UPDATE log_lease SET expires_at_us = 0").await?;
                if n % 2 == 0 {
                    client.batch_execute("UPDATE log_lease SET token = token - 1 WHERE token > 1").await?;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        })
    };
    random_clients(&arena, 6, 4, 250).await?;
    thief.await??;
    let place = arena.close().await?;
    // Whoever starts next finishes the work.
    let engine = place.engine(sealing_when_asked()).await?;
    let _ = engine.seal_now().await;
    place::close(engine).await?;
    require_whole(&place).await?;
    place.remove().await
}

/// Grants come and go on one node while another fires: the log's registry order always holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_order_holds_while_grants_come_and_go() -> anyhow::Result<()> {
    const FIRINGS: usize = 500;
    let place = Place::new(Kind::Postgres).await?;
    let arena = Arena::with(place, 2, |_| sealing()).await?;
    let_do(arena.engine(0), &["ines"]).await?;
    let turning = shape("turning", &["a go b", "b back a", "b end c"], &[]);
    let instance_id = started(arena.engine(0), "ines", &turning).await?;
    let fired = Arc::new(AtomicUsize::new(0));
    let fires = {
        let (engine, fired) = (arena.engine(0).clone(), fired.clone());
        tokio::spawn(async move {
            let mut action = "go";
            while fired.load(Ordering::SeqCst) < FIRINGS {
                match code(engine.execute(calls::fire("ines", instance_id, action, None)).await) {
                    "ok" => {
                        fired.fetch_add(1, Ordering::SeqCst);
                        action = if action == "go" { "back" } else { "go" };
                    }
                    "permission-denied" => tokio::task::yield_now().await,
                    other => anyhow::bail!("{other}"),
                }
            }
            Ok(())
        })
    };
    // Every few firings the scope is taken away and given back.
    let other = arena.engine(1).clone();
    let scope = calls::DOING[2];
    let active = |engine: &Engine| {
        let registry = engine.registry();
        let grants = registry.grants().of_subject("ines");
        grants.filter(|grant| grant.is_active() && grant.action_scope == scope).map(|grant| grant.grant_id).next()
    };
    other.refresh_registry().await?;
    let mut grant_id = active(&other).context("a grant")?;
    for round in 1..=FIRINGS / 20 {
        while fired.load(Ordering::SeqCst) < (20 * round).min(FIRINGS) && !fires.is_finished() {
            tokio::task::yield_now().await;
        }
        other.execute(calls::revoke(Some(grant_id))).await?;
        grant_id = granted(&other, "ines", scope).await?;
    }
    fires.await??;
    drop(other);
    let report = {
        let engine = arena.engine(1);
        let _ = engine.seal_now().await;
        engine.verify_log(ADMIN, None, &mut |_, _| {}).await?
    };
    ensure!(report.found == 0, "{:#?}", report.findings);
    let place = arena.close().await?;
    require_whole(&place).await?;
    place.remove().await
}
