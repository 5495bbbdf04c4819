//! A batch in one statement: its fence and all its rows, in one round trip and without a transaction block. That is half of
//! the time that a single call waits for.
//!
//! The parts of a statement do not see what the others write, so each table is written by one part. The fence is the
//! statement's result: where an instance has moved it divides by zero, and nothing was written. Then the batch goes the
//! longer way, which finds out whose turn it is.
//!
//! The registry is fenced by its row and not by the advisory lock, which a statement could take only after its snapshot.
//! A lock on the row reads its current version, and a registry change locks that row with its first statement.

use super::values::RowSet;
use super::{CommitError, Session, row_sets, run, unconfirmed};
use crate::statement::{Kind, Name, STATEMENTS};
use countersign_engine::port::{Batch, Unit};
use countersign_kernel::{Digest, InstanceId};
use std::collections::{HashMap, HashSet};
use tokio_postgres::Statement as Prepared;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

/// Statements kept, one for each set of tables that batches write.
const SHAPES: usize = 256;

#[derive(Default)]
pub struct Shapes(HashMap<u128, Prepared>);

const _: () = assert!(STATEMENTS.len() <= 128, "a set of names is kept as bits");

pub enum AtOnce {
    Committed(Vec<Digest>),
    /// Nothing was written: it does not fit into one statement, or the fence did not hold.
    NotThisWay,
}

impl Session {
    pub async fn commit_at_once(&mut self, batch: &Batch, known: &HashSet<Digest>) -> Result<AtOnce, CommitError> {
        let is_plain = |unit: &Unit| unit.idempotency.is_empty() && unit.instance_id != InstanceId::REGISTRY;
        if batch.changes_registry || !batch.checks.is_empty() || !batch.units.iter().all(is_plain) {
            return Ok(AtOnce::NotThisWay);
        }
        let mut units: Vec<&Unit> = batch.units.iter().collect();
        // Locked in one order on every node, or two of them could wait for each other.
        units.sort_unstable_by_key(|unit| unit.instance_id);
        let steps = run::Steps::of(&units);
        let (rows, documents) = row_sets(&units, known);
        if steps.ahead().next().is_some() {
            return Ok(AtOnce::NotThisWay);
        }
        let sets: Vec<(Name, RowSet<'_>)> = steps.at_last().chain(rows).collect();
        let Some(shape) = shape(&sets) else { return Ok(AtOnce::NotThisWay) };
        let prepared = match self.shapes.0.get(&shape) {
            Some(prepared) => prepared.clone(),
            None => {
                let names: Vec<Name> = sets.iter().map(|(name, _)| *name).collect();
                let prepared = self.client.prepare(&sql(&names)).await.map_err(unconfirmed)?;
                if self.shapes.0.len() >= SHAPES {
                    self.shapes.0.clear();
                }
                self.shapes.0.insert(shape, prepared.clone());
                prepared
            }
        };
        let moved = || units.iter().filter(|unit| !unit.is_new());
        let expected = |of: fn(&Unit) -> u64| -> Vec<i64> { moved().map(|unit| count(of(unit))).collect() };
        let sequences = expected(|unit| unit.expected_sequence);
        let beats = expected(|unit| unit.expected_beats);
        let (registry, at, moves) =
            (InstanceId::REGISTRY.0, count(batch.registry_sequence), count(moved().count() as u64));
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&registry, &at, &moves, &sequences, &beats];
        params.extend(sets.iter().map(|(_, set)| set as &(dyn ToSql + Sync)));
        match self.client.execute(&prepared, &params).await {
            Ok(_) => Ok(AtOnce::Committed(documents)),
            Err(error) if error.code().is_some_and(lost_a_race) => Ok(AtOnce::NotThisWay),
            Err(error) => Err(unconfirmed(error)),
        }
    }
}

fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn lost_a_race(state: &SqlState) -> bool {
    [SqlState::DIVISION_BY_ZERO, SqlState::UNIQUE_VIOLATION, SqlState::T_R_DEADLOCK_DETECTED].contains(state)
}

/// The names as bits, where each table is written once. New instances and steps are other rows than those that change.
fn shape(sets: &[(Name, RowSet<'_>)]) -> Option<u128> {
    let (mut names, mut tables) = (0, HashSet::new());
    for (name, _) in sets {
        let statement = &STATEMENTS[*name as usize];
        let bit = 1 << (*name as u32);
        let is_apart = matches!(name, Name::Instance | Name::NewRunStep) || tables.insert(statement.table);
        if names & bit != 0 || !is_apart || matches!(statement.kind, Kind::Redact | Kind::Delete) {
            return None;
        }
        names |= bit;
    }
    Some(names)
}

fn sql(names: &[Name]) -> String {
    let mut parts =
        vec!["registry AS (SELECT 1 FROM instances WHERE instance_id = $1 AND sequence = $2 FOR SHARE)".to_owned()];
    // The types of these two are said even where no instance moves.
    let mut fence = "$3::int8 = 0 AND $4::int8[] IS NOT NULL AND $5::int8[] IS NOT NULL";
    for (parameter, name) in (6..).zip(names) {
        let write = STATEMENTS[*name as usize].postgres_with(parameter);
        if *name == Name::MoveInstance {
            parts.push(format!(
                "moved AS ({write} AND t.sequence = ($4::int8[])[u.ordinality] AND t.beats = ($5::int8[])[u.ordinality] \
                 AND EXISTS (SELECT 1 FROM registry) RETURNING 1)"
            ));
            fence = "(SELECT count(*) FROM moved) = $3";
        } else {
            parts.push(format!("w{parameter} AS ({write})"));
        }
    }
    format!("WITH {} SELECT 1 / (EXISTS (SELECT 1 FROM registry) AND {fence})::int", parts.join(", "))
}
