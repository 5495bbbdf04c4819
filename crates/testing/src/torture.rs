//! The long form of everything that is random: the parts of a round, each repeatable from its seed. What the
//! tests run briefly, this runs with large numbers.

use crate::large::{self, Shape};
use crate::load::Rng;
use crate::place::{Kind, Place};
use crate::races::{self, Arena};
use crate::{crash, differential, recording_failure};
use std::collections::BTreeMap;

/// One kind of ordeal on one kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Differential,
    Races { kind: Kind, engines: usize },
    BothForms(Kind),
    Cuts,
    Kills,
    Silence,
    Crash { kind: Kind, nodes: usize },
    Stop(Kind),
    CrashRuns { kind: Kind, nodes: usize },
    CrashRunbooks { kind: Kind, nodes: usize },
    Parallel(Kind),
    Sequential(Kind),
    Undone(Kind),
}

pub const PARTS: &[Part] = &[
    Part::Differential,
    Part::Races { kind: Kind::Sqlite, engines: 1 },
    Part::Races { kind: Kind::Postgres, engines: 1 },
    Part::Races { kind: Kind::Postgres, engines: 2 },
    Part::BothForms(Kind::Sqlite),
    Part::BothForms(Kind::Postgres),
    Part::Cuts,
    Part::Kills,
    Part::Silence,
    Part::Crash { kind: Kind::Sqlite, nodes: 1 },
    Part::Crash { kind: Kind::Postgres, nodes: 1 },
    Part::Crash { kind: Kind::Postgres, nodes: 2 },
    Part::Stop(Kind::Sqlite),
    Part::Stop(Kind::Postgres),
    Part::CrashRuns { kind: Kind::Sqlite, nodes: 1 },
    Part::CrashRuns { kind: Kind::Postgres, nodes: 1 },
    Part::CrashRuns { kind: Kind::Postgres, nodes: 2 },
    Part::CrashRunbooks { kind: Kind::Sqlite, nodes: 1 },
    Part::CrashRunbooks { kind: Kind::Postgres, nodes: 1 },
    Part::CrashRunbooks { kind: Kind::Postgres, nodes: 2 },
    Part::Parallel(Kind::Sqlite),
    Part::Parallel(Kind::Postgres),
    Part::Sequential(Kind::Sqlite),
    Part::Sequential(Kind::Postgres),
    Part::Undone(Kind::Sqlite),
    Part::Undone(Kind::Postgres),
];

impl Part {
    pub fn name(self) -> String {
        match self {
            Part::Differential => "differential".to_owned(),
            Part::Races { kind, engines } => format!("races-{kind}-{engines}"),
            Part::BothForms(kind) => format!("both-forms-{kind}"),
            Part::Cuts => "connections-cut".to_owned(),
            Part::Kills => "backends-killed".to_owned(),
            Part::Silence => "silent-nodes".to_owned(),
            Part::Crash { kind, nodes } => format!("crash-{kind}-{nodes}"),
            Part::Stop(kind) => format!("stop-{kind}"),
            Part::CrashRuns { kind, nodes } => format!("crash-runs-{kind}-{nodes}"),
            Part::CrashRunbooks { kind, nodes } => format!("crash-runbooks-{kind}-{nodes}"),
            Part::Parallel(kind) => format!("parallel-steps-{kind}"),
            Part::Sequential(kind) => format!("sequential-steps-{kind}"),
            Part::Undone(kind) => format!("undone-steps-{kind}"),
        }
    }

    /// Whether it can be run with these stores alone.
    pub fn needs_only(self, stores: &[Kind]) -> bool {
        match self {
            Part::Differential => Kind::ALL.iter().all(|kind| stores.contains(kind)),
            Part::Races { kind, .. } | Part::BothForms(kind) | Part::Crash { kind, .. } | Part::Stop(kind) => {
                stores.contains(&kind)
            }
            Part::CrashRuns { kind, .. } | Part::CrashRunbooks { kind, .. } => stores.contains(&kind),
            Part::Parallel(kind) | Part::Sequential(kind) | Part::Undone(kind) => stores.contains(&kind),
            Part::Cuts | Part::Kills | Part::Silence => stores.contains(&Kind::Postgres),
        }
    }

    /// Runs it; what it says is for people.
    pub async fn run(self, seed: u64) -> anyhow::Result<String> {
        match self {
            Part::Differential => {
                let report = differential::run(seed, 1500).await?;
                Ok(format!("{} accepted, {} refused, {} records", report.accepted, report.refused, report.records))
            }
            Part::Races { kind, engines } => all_races(kind, engines, seed).await,
            Part::BothForms(kind) => {
                let place = Place::new(kind).await?;
                recording_failure::every_command_in_both_forms(&place).await?;
                place.remove().await.map(|()| "every command in both forms".to_owned())
            }
            Part::Cuts => Ok(format!("{:?}", recording_failure::connection_cut_at_any_byte(seed, 400).await?)),
            Part::Kills => Ok(format!("{:?}", recording_failure::backends_killed_under_load(seed, 300).await?)),
            Part::Silence => Ok(format!("{:?}", recording_failure::a_silent_node_holds_nobody_up(seed, 5).await?)),
            Part::Crash { kind, nodes } => Ok(crash::killed(kind, nodes, seed, 20).await?.to_string()),
            Part::Stop(kind) => Ok(crash::terminated(kind, seed, 10).await?.to_string()),
            Part::CrashRuns { kind, nodes } => {
                let own = std::env::current_exe()?;
                Ok(crash::killed_with_runs(&own, kind, nodes, seed, 50).await?.to_string())
            }
            Part::CrashRunbooks { kind, nodes } => {
                let own = std::env::current_exe()?;
                Ok(crash::killed_with_runbooks(&own, kind, nodes, seed, 12).await?.to_string())
            }
            Part::Parallel(kind) => Ok(large::run(kind, Shape::Parallel, 10_000).await?.to_string()),
            Part::Sequential(kind) => Ok(large::run(kind, Shape::Sequential, 100_000).await?.to_string()),
            Part::Undone(kind) => Ok(large::run(kind, Shape::Undone, 10_000).await?.to_string()),
        }
    }
}

/// The seed of a part in a round.
pub fn seed_of(seed: u64, round: u64, part: usize) -> u64 {
    Rng::fork(Rng::fork(seed, round).draw(), part as u64).draw()
}

async fn all_races(kind: Kind, engines: usize, seed: u64) -> anyhow::Result<String> {
    let arena = Arena::new(kind, engines).await?;
    races::one_approval_one_firing(&arena, 20).await?;
    races::every_turn_of_a_loop_counts(&arena, 40).await?;
    races::a_gate_is_decided_once(&arena, seed, 150).await?;
    races::no_firing_after_a_revocation(&arena, seed, 50).await?;
    races::one_key_one_effect(&arena, 50).await?;
    races::fresh_documents_in_any_order(&arena, 30).await?;
    arena.end().await?;
    // These look at everything there is, so they have a store to themselves.
    let arena = Arena::new(kind, engines).await?;
    races::nothing_waits_in_a_state_that_was_left(&arena, 2000).await?;
    arena.end().await?;
    let arena = Arena::new(kind, engines).await?;
    races::keys_in_any_order(&arena, seed, 40).await?;
    arena.end().await?;
    let arena = Arena::new(kind, engines).await?;
    let answers: BTreeMap<String, usize> = races::random_clients(&arena, seed, 4, 1500).await?;
    let summary = arena.end().await?;
    Ok(format!("{} kinds of answers; {summary}", answers.len()))
}
