//! What a purge leaves: nothing of the content, everything around it. On both stores, with a clock that is moved.

use countersign_engine::port::{HoldQuery, Page};
use countersign_engine::{Config, Engine, Outcome, Target};
use countersign_kernel::process::{self, Decision};
use countersign_kernel::refusal::Code;
use countersign_kernel::{EventId, InstanceId, QuorumRule, registry};
use countersign_testing::load::client::{held, let_do, opened, purge, records, release, started_by, told, view};
use countersign_testing::load::shapes::{quorum, shape, single};
use countersign_testing::load::{Design, ManualClock, Rng, calls};
use countersign_testing::place::{ADMIN, Kind, Place, close};
use countersign_testing::store_audit;
use std::sync::Arc;

const SEVEN_YEARS_US: i64 = 2557 * 86_400_000_000;
/// In every text that is purged, and in nothing else.
const MARKER: &str = "Q9-forget-me";
const ALL: Page = Page { after: None, limit: 10_000, descending: false };

fn config(clock: &ManualClock) -> Config {
    Config {
        clock: clock.clock(),
        audit_trail_retention_policy: Some("sox_7_year".to_owned()),
        cached_instances: 1,
        ..Config::default()
    }
}

fn design() -> Design {
    let gates = [("sign", single("bea")), ("two", quorum(QuorumRule::AllOfN, &["bea", "cleo"]))];
    shape("papers", &["a sign b sign", "a both b two", "b back a", "b end c"], &gates)
}

/// One process with the marker in every text that anybody can give.
async fn marked(engine: &Engine, subject: &str) -> anyhow::Result<InstanceId> {
    let text = Some(MARKER);
    let start = calls::start("ines", &design(), &format!("{MARKER} {subject}"), text);
    let process = started_by(engine, calls::with_key(start, &format!("key {subject}"))).await?;
    for call in [
        calls::open("ines", process, "sign", text),
        calls::decide("bea", process, "sign", Decision::Reject, text, None),
        calls::open("ines", process, "sign", text),
        calls::decide("bea", process, "sign", Decision::Approve, text, None),
        calls::open("ines", process, "both", text),
        calls::decide("ines", process, "both", Decision::Withdraw, text, None),
        calls::open("ines", process, "both", text),
        calls::decide("bea", process, "both", Decision::Approve, text, None),
        calls::fire("ines", process, "sign", text),
    ] {
        engine.execute(call).await?;
    }
    let record = records(engine, process, "gate_opened").await?[0].event_id;
    let hold = held(engine, ADMIN, record, MARKER, text).await?;
    release(engine, ADMIN, hold, MARKER).await?;
    Ok(process)
}

async fn all_records(engine: &Engine, process: InstanceId) -> anyhow::Result<Vec<(EventId, String)>> {
    let query = countersign_engine::port::RecordQuery { instance_id: Some(process), ..Default::default() };
    let rows = engine.read_records(ADMIN, &query, &ALL).await?;
    Ok(rows.into_iter().map(|row| (row.event_id, row.action_ref)).collect())
}

/// Purges everything of these processes that can be; all at once, as the command line does.
async fn purge_all(engine: &Arc<Engine>, processes: &[InstanceId]) -> anyhow::Result<usize> {
    let mut purges = vec![];
    for process in processes {
        for (event_id, action_ref) in all_records(engine, *process).await? {
            if action_ref != "record_purged" {
                let engine = engine.clone();
                purges.push(tokio::spawn(async move { purge(&engine, ADMIN, event_id).await }));
            }
        }
    }
    let count = purges.len();
    for purge in purges {
        purge.await??;
    }
    Ok(count)
}

async fn nothing_is_left(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let clock = ManualClock::default();
    let engine = place.engine(config(&clock)).await?;
    let_do(&engine, &["ines"]).await?;
    // Among many others, so that pages are split and rows are moved about.
    let mut rng = Rng::new(7);
    let mut marked_ones = vec![];
    for n in 0..400 {
        clock.advance(1000);
        if n % 4 == 0 {
            marked_ones.push(marked(&engine, &format!("{:08x}", rng.below(1 << 30))).await?);
        } else {
            let subject = format!("{:08x} {}", rng.below(1 << 30), "x".repeat(rng.below(300)));
            let reason = "y".repeat(1 + rng.below(6000));
            let process = started_by(&engine, calls::start("ines", &design(), &subject, Some(&reason))).await?;
            opened(&engine, "ines", process, "sign").await?;
            engine.execute(calls::approve("bea", process, "sign")).await?;
            engine.execute(calls::fire("ines", process, "sign", Some(&reason))).await?;
        }
    }
    assert!(place.require_no_trace(MARKER).await.is_err(), "the marker is nowhere to begin with");
    clock.advance(SEVEN_YEARS_US);
    let purged = purge_all(&engine, &marked_ones).await?;
    assert!(purged > 1000, "{purged}");
    // While the store is open, soon; and at rest.
    let soon = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while let Err(error) = place.require_no_trace(MARKER).await {
        assert!(std::time::Instant::now() < soon, "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    close(engine).await?;
    place.require_no_trace(MARKER).await?;
    let summary = store_audit::require_sound(&place.url).await?;
    assert_eq!(summary.purged, purged);

    // What was purged is no obstacle: the processes load, are read, and go on to their end.
    let engine = place.engine(config(&clock)).await?;
    for process in &marked_ones {
        let before = view(&engine, *process).await?;
        assert!(before.row.subject_ref.starts_with("purged:"), "{:?}", before.row);
        engine.execute(calls::fire("ines", *process, "back", None)).await?;
        let steps = opened(&engine, "ines", *process, "sign").await?;
        let step = view(&engine, *process).await?.gates.into_iter().flat_map(|(_, steps)| steps);
        let subject = step.map(|(row, _)| row).find(|row| row.step_id == steps[0]).map(|row| row.subject_ref);
        assert_eq!(subject, Some(format!("{}:sign", before.row.subject_ref)));
        engine.execute(calls::approve("bea", *process, "sign")).await?;
        engine.execute(calls::fire("ines", *process, "sign", None)).await?;
        engine.execute(calls::fire("ines", *process, "end", None)).await?;
        assert_eq!(told(&engine, calls::fire("ines", *process, "back", None)).await, "terminal");
    }
    assert!(engine.read_purgeable(ADMIN, None, 10_000, false).await?.iter().all(|(row, _)| !row.record.is_purged()));
    close(engine).await?;
    place.require_no_trace(MARKER).await?;
    store_audit::require_sound(&place.url).await?;
    place.remove().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_on_sqlite() -> anyhow::Result<()> {
    nothing_is_left(Kind::Sqlite).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_on_postgres() -> anyhow::Result<()> {
    nothing_is_left(Kind::Postgres).await
}

/// Equal is eligible; a microsecond earlier is not.
#[tokio::test]
async fn the_period_ends_at_an_instant() -> anyhow::Result<()> {
    for kind in Kind::ALL {
        let place = Place::new(kind).await?;
        let clock = ManualClock::default();
        let engine = place.engine(config(&clock)).await?;
        clock.advance(1000);
        let process = started_by(&engine, calls::start(ADMIN, &design(), "s", None)).await?;
        let record = records(&engine, process, "workflow_started").await?[0].event_id;
        clock.advance(SEVEN_YEARS_US - 1);
        assert!(engine.read_purgeable(ADMIN, None, 10, false).await?.is_empty());
        let early = purge(&engine, ADMIN, record).await.map_err(|refusal| (refusal.code, refusal.detail));
        assert!(matches!(&early, Err((Code::NotEligible, detail)) if detail.contains("1 microseconds")), "{early:?}");
        clock.advance(1);
        assert_eq!(engine.read_purgeable(ADMIN, None, 10, false).await?.len(), 1);
        purge(&engine, ADMIN, record).await?;
        assert!(engine.read_purgeable(ADMIN, None, 10, false).await?.is_empty());
        close(engine).await?;
        place.remove().await?;
    }
    Ok(())
}

/// The answer kept under a key goes with the record of its command: the same request acts anew.
#[tokio::test]
async fn a_kept_answer_goes_with_its_record() -> anyhow::Result<()> {
    for kind in Kind::ALL {
        let place = Place::new(kind).await?;
        let clock = ManualClock::default();
        let mut config = config(&clock);
        let moment = countersign_engine::retention::Policy { duration_us: Some(1000), max_purge_delay_us: 0 };
        config.policies.insert("moment", moment);
        config.audit_trail_retention_policy = Some("moment".to_owned());
        let engine = place.engine(config).await?;
        clock.advance(1000);
        let start = || calls::with_key(calls::start(ADMIN, &design(), "s", None), "one key");
        let process = started_by(&engine, start()).await?;
        clock.advance(5000);
        assert_eq!(started_by(&engine, start()).await?, process);
        purge(&engine, ADMIN, records(&engine, process, "workflow_started").await?[0].event_id).await?;
        assert_ne!(started_by(&engine, start()).await?, process);
        close(engine).await?;
        place.remove().await?;
    }
    Ok(())
}

/// Exports are recorded where they belong, and say up to where.
#[tokio::test]
async fn an_export_is_the_last_record_of_what_is_exported() -> anyhow::Result<()> {
    let place = Place::new(Kind::Sqlite).await?;
    let clock = ManualClock::default();
    let engine = place.engine(config(&clock)).await?;
    let process = started_by(&engine, calls::start(ADMIN, &design(), "s", None)).await?;
    opened(&engine, ADMIN, process, "sign").await?;
    let exported = engine.execute(calls::by(ADMIN, engine.export_evidence(process))).await?;
    let rows = records(&engine, process, "evidence_exported").await?;
    let Outcome::Exported { event_id, sequence } = exported else { panic!("{exported:?}") };
    assert_eq!((event_id, sequence), (rows[0].event_id.to_string(), 3));
    let payload: serde_json::Value = serde_json::from_slice(rows[0].record.payload().expect("content"))?;
    assert_eq!(payload, serde_json::json!({"instance_id": process.to_string(), "through_sequence": 2}));
    let denied = told(&engine, calls::by("stranger", engine.export_evidence(process))).await;
    assert_eq!(denied, "permission-denied");
    let nowhere =
        countersign_engine::Command::Process { target: Target::Nowhere, command: process::Command::RecordExport };
    assert_eq!(told(&engine, calls::by(ADMIN, nowhere)).await, "not-known");

    let export = registry::RecordExport {
        after: None,
        before: Some(countersign_kernel::Time(5)),
        instances: 1,
        heads_digest: countersign_ledger::sha256(&[b"heads"]),
    };
    let command = countersign_engine::Command::Registry(registry::Command::RecordExport(export));
    let exported = engine.execute(calls::by(ADMIN, command)).await?;
    let rows = records(&engine, InstanceId::REGISTRY, "evidence_exported").await?;
    let expected = Outcome::Exported { event_id: rows[0].event_id.to_string(), sequence: rows[0].sequence };
    assert_eq!(exported, expected);
    close(engine).await?;
    store_audit::require_sound(&place.url).await?;
    place.remove().await
}

/// A hold is found, whoever asks, and its own words go when its records do.
#[tokio::test]
async fn the_words_of_a_hold_go_with_its_records() -> anyhow::Result<()> {
    for kind in Kind::ALL {
        let place = Place::new(kind).await?;
        let clock = ManualClock::default();
        let engine = place.engine(config(&clock)).await?;
        let process = started_by(&engine, calls::start(ADMIN, &design(), "s", None)).await?;
        let record = records(&engine, process, "workflow_started").await?[0].event_id;
        let hold_id = held(&engine, ADMIN, record, "why", Some("case")).await?;
        clock.advance(SEVEN_YEARS_US + 1000);
        // While it stands, neither what it holds nor its own record goes.
        let placed = records(&engine, process, "hold_placed").await?[0].event_id;
        for held in [record, placed] {
            let refused = purge(&engine, ADMIN, held).await.map_err(|refusal| refusal.code);
            assert_eq!(refused, Err(Code::UnderLegalHold));
        }
        let listed = engine.read_purgeable(ADMIN, None, 10, false).await?;
        assert!(listed.len() == 2 && listed.iter().all(|(_, holds)| holds.len() == 1), "{listed:?}");
        release(&engine, ADMIN, hold_id, "over").await?;
        purge(&engine, ADMIN, placed).await?;
        purge(&engine, ADMIN, record).await?;
        let query = HoldQuery { hold_id: Some(hold_id), ..HoldQuery::default() };
        let hold = engine.read_holds(ADMIN, &query, &ALL).await?.pop().expect("a hold");
        assert!(hold.reason.starts_with("purged:") && hold.case_ref.is_none(), "{hold:?}");
        close(engine).await?;
        store_audit::require_sound(&place.url).await?;
        place.remove().await?;
    }
    Ok(())
}
