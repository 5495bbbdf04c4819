//! The data of the conformance suite: the batches that an engine makes of a small story in which every kind of row
//! occurs, with names that are difficult for a database.

use crate::load::client::{held, let_do, opened, purge, records, release, started_by, told};
use crate::load::shapes::{quorum, shape, single};
use crate::load::{Design, ManualClock, calls};
use crate::place::{ADMIN, close, engine_on};
use anyhow::{Context, ensure};
use countersign_engine::port::{Batch, Unit};
use countersign_engine::{Call, Command, Config, Engine};
use countersign_kernel::process::Decision;
use countersign_kernel::registry::{self, ActorKind, RegisterActor};
use countersign_kernel::{EventId, InstanceId, QuorumRule};
use countersign_ledger::sha256;
use countersign_store::tap::{Copies, Tapped};
use std::sync::Arc;

const SEVEN_YEARS_US: i64 = 2557 * 86_400_000_000;

/// Emoji, right-to-left text, combining marks, quotes: all of it must come back byte for byte.
pub const HARD: [&str; 4] = ["Ω-🦀👩‍🔬", "مرحبا \"x\" 'y'", "e\u{301}/é\\%_", "\u{202E}batch\u{202C} 東京"];

pub struct Story {
    /// Sets the registry up; every process is decided under it as it stands after these.
    pub registry: Vec<Batch>,
    /// One unit each, in order.
    pub processes: Vec<Batch>,
    /// Registry changes after all that.
    pub afterwards: Vec<Batch>,
}

impl Story {
    pub fn all(&self) -> impl Iterator<Item = &Batch> {
        self.registry.iter().chain(&self.processes).chain(&self.afterwards)
    }

    /// The first unit of each process, in order.
    pub fn starts(&self) -> Vec<Unit> {
        self.units().filter(|unit| unit.expected_sequence == 0).cloned().collect()
    }

    /// All units of one process, in order.
    pub fn of(&self, instance_id: InstanceId) -> Vec<Unit> {
        self.units().filter(|unit| unit.instance_id == instance_id).cloned().collect()
    }

    fn units(&self) -> impl Iterator<Item = &Unit> {
        self.processes.iter().flat_map(|batch| &batch.units)
    }
}

struct Teller {
    engine: Arc<Engine>,
    clock: ManualClock,
}

impl Teller {
    /// Gives a call a moment later than the last.
    async fn say(&self, call: Call) -> anyhow::Result<()> {
        self.clock.advance(1_000);
        let told = told(&self.engine, call).await;
        ensure!(told == "ok", "the story was refused: {told}");
        Ok(())
    }

    async fn start(&self, call: Call) -> anyhow::Result<InstanceId> {
        self.clock.advance(500_000);
        started_by(&self.engine, call).await
    }
}

pub async fn tell() -> anyhow::Result<Story> {
    let clock = ManualClock::default();
    let copies = Arc::new(Copies::default());
    let inner = countersign_store::open("sqlite::memory:").await?;
    let config = Config {
        clock: clock.clock(),
        audit_failed_attempts: true,
        audit_trail_retention_policy: Some("sox_7_year".to_owned()),
        ..Config::default()
    };
    let engine = engine_on(Box::new(Tapped { inner, tap: copies.clone() }), config).await?;
    let teller = Teller { engine, clock };
    tell_registry(&teller).await?;
    let registry = copies.take();
    tell_processes(&teller).await?;
    let processes = copies.take();
    let grant = crate::load::client::granted(&teller.engine, "extra", "workflows:fire").await?;
    teller.say(calls::revoke(Some(grant))).await?;
    // A refused attempt that belongs to no process.
    let refused = told(&teller.engine, calls::start("nobody", &gated(), "s", None)).await;
    ensure!(refused == "permission-denied", "{refused}");
    let afterwards = copies.take();
    close(teller.engine).await?;
    Ok(Story { registry, processes, afterwards })
}

/// One guarded way and one free way out of the first state, and a loop.
fn gated() -> Design {
    let gates = [
        ("sign", single("bea")),
        ("two", quorum(QuorumRule::MOfN { m: 2 }, &["bea", "cleo", HARD[0]])),
        ("all", quorum(QuorumRule::AllOfN, &["bea", HARD[1]])),
    ];
    let transitions = [
        "draft release done sign",
        "draft board done two",
        "draft all done all",
        "draft skip done",
        "draft again draft sign",
    ];
    shape("gated", &transitions, &gates)
}

async fn tell_registry(teller: &Teller) -> anyhow::Result<()> {
    for (n, actor_ref) in ["ines", "bea", "Ωλ 🦀", "東京"].into_iter().enumerate() {
        let register = RegisterActor {
            actor_ref: actor_ref.to_owned(),
            kind: if n == 0 { ActorKind::Service } else { ActorKind::Human },
            display_name: (n > 0).then(|| HARD[n].to_owned()),
            key: (n > 1).then(|| key(&format!("{n}"))),
            token_hash: sha256(&[actor_ref.as_bytes()]),
        };
        teller.say(calls::by(ADMIN, Command::Registry(registry::Command::RegisterActor(register)))).await?;
    }
    tell_keys(teller).await?;
    let_do(&teller.engine, &["ines", HARD[2]]).await?;
    teller.say(calls::publish(&gated())).await?;
    teller.say(calls::publish(&Design { name: HARD[3].to_owned(), ..gated() })).await
}

fn key(name: &str) -> registry::ActorKey {
    registry::ActorKey { key_id: format!("id {name}"), public_key: format!("key {name}"), passkey: None }
}

/// Keys and tokens come and go.
async fn tell_keys(teller: &Teller) -> anyhow::Result<()> {
    let (actor_ref, token_hash) = ("bea".to_owned(), sha256(&[b"another"]));
    let revoke = |key_id: &str, reason: Option<&str>| {
        let (key_id, reason) = (key_id.to_owned(), reason.map(str::to_owned));
        registry::Command::RevokeKey(registry::RevokeKey { actor_ref: actor_ref.clone(), key_id, reason })
    };
    for command in [
        registry::Command::RegisterKey(registry::RegisterKey { actor_ref: actor_ref.clone(), key: key("first") }),
        registry::Command::RegisterKey(registry::RegisterKey { actor_ref: actor_ref.clone(), key: key(HARD[1]) }),
        revoke("id first", Some(HARD[2])),
        revoke(&key(HARD[1]).key_id, None),
        registry::Command::IssueCredential(registry::IssueCredential { actor_ref: actor_ref.clone(), token_hash }),
        registry::Command::RevokeCredential(registry::RevokeCredential {
            actor_ref: actor_ref.clone(),
            credential_id: registry::credential_id(&token_hash),
        }),
    ] {
        teller.say(calls::by(ADMIN, Command::Registry(command))).await?;
    }
    Ok(())
}

async fn tell_processes(teller: &Teller) -> anyhow::Result<()> {
    let (design, engine) = (gated(), &teller.engine);
    let decide =
        |who: &str, id, action: &str, decision, step| calls::decide(who, id, action, decision, Some(HARD[2]), step);

    let released = teller.start(calls::start("ines", &design, "subject", Some(HARD[3]))).await?;
    teller.say(calls::with_key(calls::open("ines", released, "release", Some(HARD[0])), "key 1")).await?;
    teller.say(decide("bea", released, "release", Decision::Approve, None)).await?;
    teller.say(calls::with_key(calls::fire("ines", released, "release", None), HARD[0])).await?;

    let left = teller.start(calls::with_key(calls::start("ines", &design, HARD[0], None), "key 2")).await?;
    let steps = opened(engine, "ines", left, "board").await?;
    teller.say(decide("bea", left, "board", Decision::Approve, None)).await?;
    teller.say(decide("cleo", left, "board", Decision::Approve, None)).await?;
    teller.say(calls::decide(HARD[0], left, "board", Decision::Reject, Some("late"), calls::step(steps[2]))).await?;
    opened(engine, "ines", left, "all").await?;
    teller.say(calls::open("ines", left, "again", None)).await?;
    teller.say(calls::fire("ines", left, "skip", Some("enough"))).await?;

    let waiting = teller.start(calls::start_published(HARD[2], &design, HARD[1], None)).await?;
    teller.say(calls::open("ines", waiting, "again", None)).await?;
    teller.say(decide("bea", waiting, "again", Decision::Reject, None)).await?;
    teller.say(calls::open("ines", waiting, "again", None)).await?;
    teller.say(calls::approve("bea", waiting, "again")).await?;
    teller.say(calls::fire("ines", waiting, "again", None)).await?;
    teller.say(calls::open("ines", waiting, "again", None)).await?;
    opened(engine, "ines", waiting, "board").await?;

    let withdrawn = teller.start(calls::start("ines", &design, "subject", None)).await?;
    opened(engine, "ines", withdrawn, "all").await?;
    teller.say(decide("ines", withdrawn, "all", Decision::Withdraw, None)).await?;
    opened(engine, "ines", withdrawn, "all").await?;
    teller.say(decide(HARD[1], withdrawn, "all", Decision::Reject, None)).await?;
    teller.clock.advance(1_000);
    let refused = told(engine, calls::fire("bea", withdrawn, "skip", None)).await;
    ensure!(refused == "permission-denied", "{refused}");

    let other = Design { name: HARD[3].to_owned(), ..gated() };
    for n in 0..8 {
        let subject = if n % 2 == 0 { "subject" } else { HARD[n % HARD.len()] };
        let starter = if n % 3 == 0 { HARD[2] } else { "ines" };
        let call = if n < 4 {
            calls::start(starter, &design, subject, None)
        } else {
            calls::start_published(starter, &other, subject, None)
        };
        teller.start(call).await?;
    }
    tell_retention(teller, released, left, withdrawn).await
}

/// Holds that stand and that were released; and after seven years everything whose content is repeated elsewhere is
/// purged, and after seven more the holds' own records.
async fn tell_retention(
    teller: &Teller,
    released: InstanceId,
    left: InstanceId,
    withdrawn: InstanceId,
) -> anyhow::Result<()> {
    let engine = &teller.engine;
    let record = async |process, action: &str| -> anyhow::Result<EventId> {
        Ok(records(engine, process, action).await?.first().context("no such record")?.event_id)
    };
    let start = record(released, "workflow_started").await?;
    let first = held(engine, ADMIN, start, HARD[0], Some(HARD[1])).await?;
    held(engine, ADMIN, start, "another", None).await?;
    let other = held(engine, ADMIN, record(left, "workflow_started").await?, HARD[2], Some("case")).await?;
    release(engine, ADMIN, first, HARD[3]).await?;
    release(engine, ADMIN, other, "over").await?;
    teller.clock.advance(SEVEN_YEARS_US);
    for (process, action) in [
        (released, "gate_decided"),
        (left, "workflow_started"),
        (left, "step_approved"),
        (withdrawn, "chain_withdrawn"),
        (withdrawn, "gate_decided"),
    ] {
        purge(engine, ADMIN, record(process, action).await?).await?;
    }
    teller.clock.advance(SEVEN_YEARS_US);
    for (process, action) in [(released, "hold_placed"), (left, "hold_released")] {
        purge(engine, ADMIN, record(process, action).await?).await?;
    }
    Ok(())
}
