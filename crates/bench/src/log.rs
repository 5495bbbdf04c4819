//! The cost and use of the log: sealing while writing, the time until a record is under a checkpoint, verifying
//! everything, and one proof in a large log.

use crate::report::{Report, Row};
use crate::story::{Run, Story};
use crate::target::Target;
use anyhow::{Context, anyhow};
use countersign_engine::evidence::{Exporter, Scope};
use countersign_engine::port::log::{Append, CheckpointRow, Node, Unsealed, Written};
use countersign_engine::port::{LogParts, Page, Range, RecordQuery};
use countersign_engine::{Config, Engine, LogConfig, Proof};
use countersign_kernel::{EventId, Time};
use countersign_ledger::sha256;
use countersign_ledger::tiles::Frontier;
use countersign_server::evidence;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ADMIN: &str = "admin";
/// The two are measured in turns: a neighbour that wakes up in between disturbs both.
const TURNS: u32 = 3;
const LAGS: usize = 40;
const PROOFS: u64 = 2000;
const APPENDED_AT_ONCE: u64 = 20_000;

fn sealing() -> Config {
    Config { log: Some(LogConfig::new([7; 32])), ..Config::default() }
}

pub async fn measure(
    store: &str,
    clients: usize,
    time: Duration,
    entries: u64,
    exported: u64,
    report: &mut Report,
) -> anyhow::Result<()> {
    eprintln!("{store}: with and without sealing …");
    let (mut without, mut with) = (vec![], vec![]);
    for _ in 0..TURNS {
        without.push(run(store, Config::default(), clients, time / TURNS).await?);
        with.push(run(store, sealing(), clients, time / TURNS).await?);
    }
    let without = row("gated process, not sealed", store, clients, without);
    let mut with = row("gated process, sealed", store, clients, with);
    with.ratio_to_limit = Some(with.ops_per_s / without.ops_per_s);
    report.add(without);
    report.add(with);
    sealed_store(store, clients, time, report).await?;
    for instances in [exported / 10, exported] {
        if instances > 0 {
            export(store, instances, report).await?;
        }
    }
    large_log(store, entries, report).await
}

/// A bundle of everything: how many instances a second, and how much memory it takes besides what the engine holds.
async fn export(store: &str, instances: u64, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("{store}: an export of {instances} instances …");
    let target = Target::in_process_with(store, sealing()).await?;
    let engine = target.engine.clone().ok_or_else(|| anyhow!("no engine"))?;
    Story::in_process(&target).await?.fill(instances).await?;
    let _ = engine.seal_now().await;
    let exporter = Exporter { actor_ref: ADMIN.to_owned(), proof: Proof::InProcess, idempotency: None };
    let before = memory::now()?;
    memory::forget_peak()?;
    let start = Instant::now();
    let (_, summary) = evidence::export(&engine, &exporter, &Scope::Window(Range::default()), 0).await?;
    let (elapsed, peak) = (start.elapsed(), memory::peak()?);
    anyhow::ensure!(summary.instances >= instances, "{summary:?}");
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let per_s = summary.instances as f64 / elapsed.as_secs_f64();
    let work = format!("export of {instances} instances, {} MiB more at the most", peak.saturating_sub(before) >> 20);
    report.add(Row::rate(&work, store, "in process", 1, per_s));
    drop(engine);
    target.close().await
}

/// What this process holds in memory, as Linux tells it.
pub mod memory {
    use anyhow::Context;

    pub fn now() -> anyhow::Result<u64> {
        bytes("VmRSS:")
    }

    pub fn peak() -> anyhow::Result<u64> {
        bytes("VmHWM:")
    }

    pub fn forget_peak() -> anyhow::Result<()> {
        Ok(std::fs::write("/proc/self/clear_refs", "5")?)
    }

    fn bytes(name: &str) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib * 1024)
    }
}

fn row(work: &str, store: &str, clients: usize, runs: Vec<Run>) -> Row {
    let elapsed = runs.iter().map(|run| run.elapsed).sum();
    let samples: Vec<u32> = runs.into_iter().flat_map(|run| run.samples).collect();
    Row::new(work, store, "in process", clients, &samples, elapsed)
}

async fn run(store: &str, config: Config, clients: usize, time: Duration) -> anyhow::Result<Run> {
    let target = Target::in_process_with(store, config).await?;
    let run = Story::in_process(&target).await?.run(clients, time).await?;
    target.close().await?;
    Ok(run)
}

/// How long records wait under load; then the whole log, verified.
async fn sealed_store(store: &str, clients: usize, time: Duration, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("{store}: lag and verification …");
    let target = Target::in_process_with(store, sealing()).await?;
    let engine = target.engine.clone().ok_or_else(|| anyhow!("no engine"))?;
    let story = Story::in_process(&target).await?;
    let (load, lags) = tokio::join!(story.run(clients, time), lags(&engine, time));
    load?;
    let (indexed, sealed) = lags?;
    report.add(Row::new("from commit to a place in the log, under load", store, "in process", clients, &indexed, time));
    report.add(Row::new("from commit to a checkpoint, under load", store, "in process", clients, &sealed, time));
    story.run_count(clients, 200_000).await?;
    // There may be nothing left to seal.
    let _ = engine.seal_now().await;
    let bare = bare_hashing(&target.log().await?).await?;
    report.add(Row::rate("the same bytes, hashed alone", store, "raw", 1, bare));
    for (work, stores) in [("records verified", false), ("records verified, and the stores beside them", true)] {
        let start = Instant::now();
        let verified = match stores {
            false => engine.verify_records(ADMIN, &mut |_, _| {}).await?,
            true => engine.verify_log(ADMIN, None, &mut |_, _| {}).await?,
        };
        let elapsed = start.elapsed();
        anyhow::ensure!(verified.found == 0, "{:?}", verified.findings);
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let per_s = verified.records as f64 / elapsed.as_secs_f64();
        let mut row = Row::rate(work, store, "in process", 1, per_s);
        row.ratio_to_limit = Some(per_s / bare);
        report.add(row);
    }
    drop((story, engine));
    target.close().await
}

/// Microseconds until the newest record has a place, and until a checkpoint covers it.
async fn lags(engine: &Engine, time: Duration) -> anyhow::Result<(Vec<u32>, Vec<u32>)> {
    let (start, mut indexed, mut sealed) = (Instant::now(), vec![], vec![]);
    let micros = |since: Instant| u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX);
    while start.elapsed() < time && sealed.len() < LAGS {
        let page = Page { after: None, limit: 1, descending: true };
        let rows = engine.read_records(ADMIN, &RecordQuery::default(), &page).await?;
        let Some(newest) = rows.first().map(|row| row.event_id) else { continue };
        let seen = Instant::now();
        let place = loop {
            if let Some(place) = engine.log_indices(&[newest]).await?.into_iter().next().flatten() {
                break place;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        indexed.push(micros(seen));
        while engine.sealed_through().await? <= place {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        sealed.push(micros(seen));
    }
    Ok((indexed, sealed))
}

/// Records per second if verifying were nothing but hashing the bytes that it has to hash.
async fn bare_hashing(log: &LogParts) -> anyhow::Result<f64> {
    let entries = log.1.entries(0, 20_000).await?;
    let rows: Vec<_> = entries.iter().filter_map(|entry| entry.record.as_ref()).collect();
    let start = Instant::now();
    for row in &rows {
        let record = &row.record;
        std::hint::black_box(sha256(&[&[0], &record.header]));
        let Some(content) = &record.content else { continue };
        std::hint::black_box(sha256(&[&content.salt, &content.payload]));
        std::hint::black_box(sha256(&[&content.salt, &content.attestation]));
        std::hint::black_box(sha256(&[&[1], &content.salt, &content.salt]));
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    Ok(rows.len() as f64 / start.elapsed().as_secs_f64())
}

/// One proof after the other in a log of many entries, which were never records.
async fn large_log(store: &str, entries: u64, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("{store}: a log of {entries} entries …");
    let target = Target::in_process_with(store, Config::default()).await?;
    let engine: Arc<Engine> = target.engine.clone().ok_or_else(|| anyhow!("no engine"))?;
    let (mut writer, _) = target.log().await?;
    let lease = writer.take_lease("bench", Duration::from_secs(3600)).await?.context("the lease is free")?;
    let mut frontier = Frontier::default();
    while frontier.size() < entries {
        let from_index = frontier.size();
        let mut append = Append { lease, from_index, entries: vec![], nodes: vec![] };
        for n in from_index..(from_index + APPENDED_AT_ONCE).min(entries) {
            let record_hash = sha256(&[&n.to_be_bytes()]);
            frontier.push(record_hash, |level, index, hash| append.nodes.push(Node { level, index, hash }));
            append.entries.push(Unsealed { event_id: event(n), record_hash, recorded_at: Time(0) });
        }
        anyhow::ensure!(writer.append(&append).await? == Written::Done);
    }
    let row = CheckpointRow { size: entries, root: frontier.root(), note: String::new(), signed_at: Time(0) };
    anyhow::ensure!(writer.put_checkpoint(lease, &row).await? == Written::Done);
    let (start, mut samples) = (Instant::now(), vec![]);
    for n in 0..PROOFS {
        let index = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % entries;
        let before = Instant::now();
        let proof = engine.prove(event(index)).await?.context("a proof")?;
        samples.push(u32::try_from(before.elapsed().as_micros())?);
        let holds = countersign_ledger::merkle::verify_inclusion(
            &proof.record_hash,
            proof.log_index,
            proof.size,
            &proof.proof,
            &row.root,
        );
        anyhow::ensure!(holds && proof.log_index == index);
    }
    report.add(Row::new(&format!("proof in a log of {entries}"), store, "in process", 1, &samples, start.elapsed()));
    drop(engine);
    target.close().await
}

fn event(n: u64) -> EventId {
    EventId(uuid::Uuid::from_u128(u128::from(n) + 1))
}
