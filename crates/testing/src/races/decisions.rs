//! Races for a decision.

use super::Arena;
use crate::load::client::{let_do, opened, records, started, view};
use crate::load::shapes::{quorum, shape, single};
use crate::load::{Rng, calls};
use anyhow::ensure;
use countersign_kernel::process::Decision;
use countersign_kernel::{Code, QuorumRule};

/// The approver approves and rejects, the initiator withdraws, all at once: one of them has decided it.
pub async fn a_gate_is_decided_once(arena: &Arena, seed: u64, rounds: usize) -> anyhow::Result<()> {
    let mut rng = Rng::new(seed);
    let_do(arena.engine(0), &["ines"]).await?;
    let gates = [("sign", single("bea")), ("one", quorum(QuorumRule::AllOfN, &["bea"]))];
    let design = shape("decide", &["a go b sign", "a chain b one"], &gates);
    for round in 0..rounds {
        let action = if round % 2 == 0 { "go" } else { "chain" };
        let process = started(arena.engine(round), "ines", &design).await?;
        let steps = opened(arena.engine(round), "ines", process, action).await?;
        let named = (round % 3 == 0).then(|| calls::step(steps[0])).flatten();
        let mut race = vec![];
        for (who, decision) in [("bea", Decision::Approve), ("bea", Decision::Reject), ("ines", Decision::Withdraw)] {
            let call = calls::decide(who, process, action, decision, Some(decision.as_str()), named);
            race.extend([(decision, call.clone()), (decision, call)]);
        }
        rng.shuffle(&mut race);
        let (decisions, race): (Vec<_>, Vec<_>) = race.into_iter().unzip();
        let answers = arena.at_once(race).await?;
        let winners: Vec<Decision> =
            decisions.into_iter().zip(&answers).filter(|(_, answer)| **answer == "ok").map(|(d, _)| d).collect();
        let losers = answers.iter().filter(|answer| **answer == Code::NotPending.as_str()).count();
        ensure!(winners.len() == 1 && losers == answers.len() - 1, "{answers:?}");
        let view = view(arena.engine(0), process).await?;
        let end = view.gates[0].1[0].0.clone();
        let told = end.ended.and_then(|end| end.reason).unwrap_or_default();
        ensure!(told == winners[0].as_str(), "{:?} won, but the step says {told}", winners[0]);
        ensure!(records(arena.engine(0), process, "gate_decided").await?.len() == 1, "decided twice");
    }
    Ok(())
}
