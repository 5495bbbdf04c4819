//! Races for an idempotency key, and for rows that several batches write in different orders.

use super::{Arena, counted};
use crate::load::client::{let_do, started, view};
use crate::load::shapes::{shape, single};
use crate::load::{Design, Rng, calls};
use crate::place::ADMIN;
use anyhow::ensure;
use countersign_engine::port::{Page, ProcessQuery};
use countersign_engine::{Call, Outcome};
use std::collections::HashSet;

const REPEATS: usize = 12;

/// The same request under the same key, many times at once: one effect, and everybody gets the same answer.
pub async fn one_key_one_effect(arena: &Arena, rounds: usize) -> anyhow::Result<()> {
    let_do(arena.engine(0), &["ines"]).await?;
    let design = shape("turn", &["a turn a", "a go b sign"], &[("sign", single("bea"))]);
    let process = started(arena.engine(0), "ines", &design).await?;
    for round in 0..rounds {
        let subject = format!("once {round}");
        let start = calls::with_key(calls::start("ines", &design, &subject, None), &format!("start {round}"));
        require_one_answer(arena, &start).await?;
        let query = ProcessQuery { subject_ref: Some(subject), ..ProcessQuery::default() };
        let page = Page { after: None, limit: 10, descending: false };
        let found = arena.engine(0).read_workflow(ADMIN, query, &page).await?.len();
        ensure!(found == 1, "{found} processes under one key");

        let fire = calls::with_key(calls::fire("ines", process, "turn", None), &format!("fire {round}"));
        require_one_answer(arena, &fire).await?;
        let moves = view(arena.engine(0), process).await?.history.len();
        ensure!(moves == round + 1, "{moves} moves under {} keys", round + 1);
    }
    let grant = calls::with_key(calls::grant("bea", "workflows:read"), "grant");
    require_one_answer(arena, &grant).await
}

async fn require_one_answer(arena: &Arena, call: &Call) -> anyhow::Result<()> {
    let tasks: Vec<_> = (0..REPEATS)
        .map(|n| {
            let (engine, call) = (arena.engine(n).clone(), call.clone());
            tokio::spawn(async move { engine.execute(call).await })
        })
        .collect();
    let mut answers: HashSet<String> = HashSet::new();
    for task in tasks {
        let answer: Outcome = task.await??;
        answers.insert(format!("{answer:?}"));
    }
    ensure!(answers.len() == 1, "one key, several answers: {answers:?}");
    Ok(())
}

/// Two nodes use the same keys in opposite orders: no call fails, and every key has one effect.
pub async fn keys_in_any_order(arena: &Arena, seed: u64, rounds: usize) -> anyhow::Result<()> {
    const KEYS: usize = 40;
    let mut rng = Rng::new(seed);
    let_do(arena.engine(0), &["ines"]).await?;
    let design = shape("plain", &["a go b"], &[]);
    for round in 0..rounds {
        let call = |n: &usize| {
            let subject = format!("keyed {round}.{n}");
            calls::with_key(calls::start("ines", &design, &subject, None), &subject)
        };
        // Neighbours go to different engines, so each engine sees the keys in an order of its own.
        let (mut here, mut there): (Vec<usize>, Vec<usize>) = ((0..KEYS).collect(), (0..KEYS).rev().collect());
        rng.shuffle(&mut here);
        rng.shuffle(&mut there);
        let race = here.iter().zip(&there).flat_map(|(here, there)| [call(here), call(there)]).collect();
        let answers = counted(&arena.at_once(race).await?);
        ensure!(answers.get("ok") == Some(&(2 * KEYS)), "{answers:?}");
    }
    let page = Page { after: None, limit: 10_000, descending: false };
    let found = arena.engine(0).read_workflow(ADMIN, ProcessQuery::default(), &page).await?.len();
    ensure!(found == rounds * KEYS, "{found} processes under {} keys", rounds * KEYS);
    Ok(())
}

/// Two nodes start processes from the same new declarations in opposite orders: no call fails.
pub async fn fresh_documents_in_any_order(arena: &Arena, rounds: usize) -> anyhow::Result<()> {
    const DESIGNS: usize = 30;
    let_do(arena.engine(0), &["ines"]).await?;
    for round in 0..rounds {
        let design = |n: usize| -> Design {
            let transition = format!("a{round}x{n} go b sign");
            shape("fresh", &[&transition], &[("sign", single(&format!("approver {round} {n}")))])
        };
        let start = |n: usize| calls::start("ines", &design(n), "subject", None);
        let race = (0..DESIGNS).flat_map(|n| [start(n), start(DESIGNS - 1 - n)]).collect();
        let answers = counted(&arena.at_once(race).await?);
        ensure!(answers.get("ok") == Some(&(2 * DESIGNS)), "{answers:?}");
    }
    Ok(())
}
