//! PostgreSQL fails in the middle of a commit: its connection is cut at any byte, or its backend is killed.

use super::caller::EngineCaller;
use super::proxy::{Proxy, Side};
use crate::load::Rng;
use crate::load::client::granted;
use crate::load::steady::{Account, Caller, SIGN, Said, Stand, Witness, work};
use crate::place::{Kind, Place, close, engine_on};
use crate::store_audit;
use anyhow::{Context, ensure};
use countersign_engine::Config;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_postgres::NoTls;

/// More than a commit sends.
const MUCH: i64 = 1 << 40;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    pub calls: usize,
    pub cut: usize,
    /// Cut, and answered all the same.
    pub found_out: usize,
    pub refused: usize,
}

/// One call after the other, each with its connection cut somewhere in its traffic.
pub async fn connection_cut_at_any_byte(seed: u64, calls: usize) -> anyhow::Result<Cuts> {
    cut(seed, calls).await.with_context(|| format!("connections cut, seed {seed}"))
}

async fn cut(seed: u64, calls: usize) -> anyhow::Result<Cuts> {
    let mut rng = Rng::new(seed);
    let place = Place::new(Kind::Postgres).await?;
    let proxy = Proxy::new(&place.url)?;
    let engine = engine_on(countersign_store::open(&proxy.url).await?, Config::default()).await?;
    let caller = EngineCaller::new(engine.clone()).await?;
    let witness = Witness::default();
    let mut cuts = Cuts::default();
    // What one call sends and gets, whole.
    let mut traffic = [1i64, 1];
    for side in [Side::Client, Side::Server] {
        proxy.cut_after(side, MUCH);
        undisturbed(&caller, &witness, &format!("measured {side:?}")).await?;
        traffic[side as usize] = proxy.disarm(side, MUCH);
    }
    let mut instance_id: Option<String> = None;
    for n in 0..calls {
        let (tag, before) = (format!("cut-{n}"), proxy.cuts());
        let side = if rng.percent(50) { Side::Client } else { Side::Server };
        let whole = usize::try_from(traffic[side as usize])?;
        // Reads and set-up are not what this is about: there is a connection, and the next step is known,
        // before the trap is set.
        undisturbed(&caller, &witness, &format!("before-{n}")).await?;
        let stand = match &instance_id {
            Some(id) if !rng.percent(10) => caller.stand(id).await?,
            _ => None,
        };
        proxy.cut_after(side, i64::try_from(rng.below(whole + whole / 4))?);
        let said = match (&instance_id, stand) {
            (Some(id), Some(Stand::Draft)) => caller.open(id, &tag).await,
            (Some(id), Some(Stand::Waiting)) => caller.approve(id, &tag).await,
            (Some(id), Some(Stand::Cleared)) => caller.fire(id, SIGN, &tag).await,
            _ => {
                let (said, started) = caller.start(&tag).await;
                instance_id = started.or(instance_id);
                said
            }
        };
        proxy.disarm(side, 0);
        witness.note(&tag, &said);
        let was_cut = proxy.cuts() > before;
        cuts.calls += 1;
        cuts.cut += usize::from(was_cut);
        match said {
            Said::Yes => cuts.found_out += usize::from(was_cut),
            Said::No(_) | Said::Unsent | Said::Unknown(_) => cuts.refused += 1,
        }
    }
    drop(caller);
    close(engine).await?;
    witness.check(&place.url).await?;
    store_audit::require_sound(&place.url).await?;
    drop(proxy);
    place.remove().await?;
    Ok(cuts)
}

/// A node falls silent in the middle of a commit, its connection open: the others go on all the same, the
/// registry included, and what it was doing is found out when it comes back.
pub async fn a_silent_node_holds_nobody_up(seed: u64, times: usize) -> anyhow::Result<Cuts> {
    fall_silent(seed, times).await.with_context(|| format!("silent nodes, seed {seed}"))
}

async fn fall_silent(seed: u64, times: usize) -> anyhow::Result<Cuts> {
    let mut rng = Rng::new(seed);
    let place = Place::new(Kind::Postgres).await?;
    let proxy = Proxy::new(&place.url)?;
    let silent = engine_on(countersign_store::open(&proxy.url).await?, Config::default()).await?;
    let other = place.engine(Config::default()).await?;
    let caller = Arc::new(EngineCaller::new(silent.clone()).await?);
    let there = EngineCaller::new(other.clone()).await?;
    let witness = Witness::default();
    proxy.cut_after(Side::Client, MUCH);
    undisturbed(&caller, &witness, "measured").await?;
    let whole = usize::try_from(proxy.disarm(Side::Client, MUCH))?;
    let mut cuts = Cuts::default();
    for n in 0..times {
        undisturbed(&caller, &witness, &format!("before-{n}")).await?;
        proxy.silence(true);
        proxy.cut_after(Side::Client, i64::try_from(rng.below(whole))?);
        let (tag, at) = (format!("silent-{n}"), caller.clone());
        let call = tokio::spawn(async move { at.start(&tag).await.0 });
        while proxy.cuts() == n {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        undisturbed(&there, &witness, &format!("meanwhile-{n}")).await?;
        // The registry wants everybody's lock.
        granted(&other, "somebody", "workflows:read").await?;
        proxy.silence(false);
        let said = call.await?;
        cuts.calls += 1;
        cuts.cut += 1;
        cuts.found_out += usize::from(said == Said::Yes);
        witness.note(&format!("silent-{n}"), &said);
    }
    drop((caller, there));
    for engine in [silent, other] {
        close(engine).await?;
    }
    witness.check(&place.url).await?;
    store_audit::require_sound(&place.url).await?;
    drop(proxy);
    place.remove().await?;
    Ok(cuts)
}

async fn undisturbed(caller: &EngineCaller, witness: &Witness, tag: &str) -> anyhow::Result<()> {
    let (said, _) = caller.start(tag).await;
    witness.note(tag, &said);
    ensure!(said == Said::Yes, "{tag}: {said:?}");
    Ok(())
}

/// Several clients at work while the engine's backends are terminated again and again.
pub async fn backends_killed_under_load(seed: u64, kills: usize) -> anyhow::Result<Account> {
    kill(seed, kills).await.with_context(|| format!("backends killed, seed {seed}"))
}

async fn kill(seed: u64, kills: usize) -> anyhow::Result<Account> {
    const CLIENTS: u64 = 6;
    /// Work between two kills, in acknowledged calls.
    const BETWEEN: usize = 12;
    let mut rng = Rng::new(seed);
    let place = Place::new(Kind::Postgres).await?;
    let engine = place.engine(Config::default()).await?;
    let caller = Arc::new(EngineCaller::new(engine.clone()).await?);
    let (witness, over) = (Arc::new(Witness::default()), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let (caller, witness, over) = (caller.clone(), witness.clone(), over.clone());
            tokio::spawn(async move {
                let name = format!("client {n}");
                work(&*caller, &name, seed ^ n, &witness, || over.load(Ordering::SeqCst) > 0).await
            })
        })
        .collect();
    let (killer, connection) = tokio_postgres::connect(&place.url, NoTls).await?;
    let connection = tokio::spawn(connection);
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                     AND application_name = 'countersign'";
    for _ in 0..kills {
        let goal = witness.acknowledged() + rng.below(BETWEEN);
        while witness.acknowledged() < goal {
            ensure!(!tasks.iter().any(|task| task.is_finished()), "a client gave up");
            // Only the pace: a kill may come at any moment.
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        killer.query(terminate, &[]).await?;
    }
    over.store(1, Ordering::SeqCst);
    for task in tasks {
        task.await??;
    }
    drop((killer, caller));
    connection.await??;
    close(engine).await?;
    let account = witness.check(&place.url).await?;
    store_audit::require_sound(&place.url).await?;
    place.remove().await?;
    Ok(account)
}
