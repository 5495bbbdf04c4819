//! Several clients at random, all over the same processes. What must hold is what [`crate::store_audit`] checks.

use super::Arena;
use crate::load::{Asker, Hand};
use anyhow::ensure;
use std::collections::BTreeMap;

/// `clients` clients, each with draws of its own, going round the engines.
pub async fn random_clients(
    arena: &Arena,
    seed: u64,
    clients: usize,
    commands: usize,
) -> anyhow::Result<BTreeMap<String, usize>> {
    let first = Hand::new(arena.engine(0).clone(), &Asker::new(seed, 0).designs).await?;
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let hand = first.at(arena.engine(client).clone());
            tokio::spawn(one_client(hand, Asker::new(seed, client as u64), commands))
        })
        .collect();
    drop(first);
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for task in tasks {
        for answer in task.await?? {
            *answers.entry(answer).or_default() += 1;
        }
    }
    for failure in ["refused: recording-failure", "refused: overloaded"] {
        ensure!(!answers.contains_key(failure), "nobody should fail: {answers:?}");
    }
    Ok(answers)
}

async fn one_client(hand: Hand, mut asker: Asker, commands: usize) -> anyhow::Result<Vec<String>> {
    let mut answers = vec![];
    for _ in 0..commands {
        let book = hand.book().clone();
        let answer = hand.give(&asker.next(&book)).await?;
        answers.push(answer.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default().trim().to_owned());
    }
    Ok(answers)
}
