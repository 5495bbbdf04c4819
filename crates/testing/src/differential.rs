//! The same seeded commands, given to an engine on SQLite and to one on PostgreSQL under one clock: they must
//! answer alike, call by call, and leave the same records.

use crate::load::{Asker, Book, Hand, ManualClock};
use crate::place::{Kind, Place};
use crate::store_audit;
use anyhow::{Context, ensure};
use countersign_engine::Config;
use countersign_engine::port::{Page, ProcessQuery, ProcessView, Reader, RecordQuery};
use countersign_kernel::InstanceId;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// Longer than an idempotency key is kept.
const LONG_US: i64 = 25 * 3_600_000_000;

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub accepted: usize,
    pub refused: usize,
    pub records: usize,
    /// How often each answer was given, without its numbers.
    pub answers: BTreeMap<String, usize>,
}

/// One of the two.
struct Side {
    place: Place,
    config: Config,
    hand: Hand,
}

impl Side {
    async fn new(kind: Kind, config: Config, asker: &Asker) -> anyhow::Result<Side> {
        let place = Place::new(kind).await?;
        let hand = Hand::new(place.engine(config.clone()).await?, &asker.designs).await?;
        Ok(Side { place, config, hand })
    }

    /// Everything that was only in memory is gone.
    async fn reopen(self) -> anyhow::Result<Side> {
        let Side { place, config, hand } = self;
        let idle = hand.put_down().await?;
        let hand = idle.take_up(place.engine(config.clone()).await?);
        Ok(Side { place, config, hand })
    }

    async fn end(self) -> anyhow::Result<Left> {
        let Side { place, hand, .. } = self;
        let book = hand.book().clone();
        hand.put_down().await?;
        let summary = store_audit::require_sound(&place.url).await?;
        let (_, reader) = place.store().await?.into_parts();
        let left = Left::read(&*reader, &book).await?;
        drop(reader);
        place.remove().await?;
        ensure!(left.records.len() == summary.records, "some records belong to no instance that was ever named");
        Ok(left)
    }
}

/// Runs `commands` commands drawn from `seed`.
pub async fn run(seed: u64, commands: usize) -> anyhow::Result<Report> {
    follow(seed, commands).await.with_context(|| format!("differential, seed {seed}"))
}

async fn follow(seed: u64, commands: usize) -> anyhow::Result<Report> {
    let mut asker = Asker::new(seed, 0);
    let clock = ManualClock::default();
    let audit_failed_attempts = asker.rng().percent(50);
    let config = Config { clock: clock.clock(), audit_failed_attempts, ..Config::default() };
    let mut sqlite = Side::new(Kind::Sqlite, config.clone(), &asker).await?;
    let mut postgres = Side::new(Kind::Postgres, config, &asker).await?;
    let mut report = Report::default();
    for number in 0..commands {
        let book = sqlite.hand.book().clone();
        let asked = asker.next(&book);
        let (here, there) = (sqlite.hand.give(&asked).await?, postgres.hand.give(&asked).await?);
        ensure!(here == there, "command {number}: SQLite said «{here}», PostgreSQL «{there}» to {asked:?}");
        report.count(&here);
        clock.advance(match asker.rng().below(100) {
            0 => LONG_US,
            1..=50 => 0,
            _ => 1 + i64::try_from(asker.rng().below(2_000_000))?,
        });
        if asker.rng().percent(2) {
            (sqlite, postgres) = (sqlite.reopen().await?, postgres.reopen().await?);
        }
    }
    let (here, there) = (sqlite.end().await?, postgres.end().await?);
    report.records = here.records.len();
    here.require_same(&there)?;
    Ok(report)
}

impl Report {
    fn count(&mut self, answer: &str) {
        let refused = answer.starts_with("refused");
        *if refused { &mut self.refused } else { &mut self.accepted } += 1;
        let words = answer.split(' ').take_while(|word| refused || !word.contains(|c: char| c.is_ascii_digit()));
        *self.answers.entry(words.collect::<Vec<_>>().join(" ")).or_default() += 1;
    }
}

/// What a store holds in the end, with ids replaced by the order in which they first occur.
struct Left {
    records: Vec<String>,
    views: Vec<String>,
}

impl Left {
    async fn read(reader: &dyn Reader, book: &Book) -> anyhow::Result<Left> {
        let mut names = Names::default();
        let mut left = Left { records: vec![], views: vec![] };
        let instances = book.instances.iter().map(|known| known.instance_id);
        for instance_id in std::iter::once(InstanceId::REGISTRY).chain(instances) {
            let query = RecordQuery { instance_id: Some(instance_id), ..RecordQuery::default() };
            let mut after = None;
            loop {
                let page = Page { after, limit: 200, descending: false };
                let rows = reader.records(&query, &page).await?;
                after = rows.last().map(|row| row.event_id.0);
                for row in &rows {
                    let payload: Value = serde_json::from_slice(row.record.payload().unwrap_or(b"null"))?;
                    let told = names.rename(&payload);
                    left.records.push(format!("{} {} by {}: {told}", row.sequence, row.action_ref, row.actor_ref));
                }
                if rows.len() < page.limit {
                    break;
                }
            }
            let query = ProcessQuery { instance_id: Some(instance_id), ..ProcessQuery::default() };
            let page = Page { after: None, limit: 1, descending: false };
            left.views.extend(reader.processes(&query, &page).await?.iter().map(|view| names.view(view)));
        }
        Ok(left)
    }

    fn require_same(&self, other: &Left) -> anyhow::Result<()> {
        for (what, here, there) in [("record", &self.records, &other.records), ("view", &self.views, &other.views)] {
            for (number, (here, there)) in here.iter().zip(there).enumerate() {
                ensure!(here == there, "{what} {number} differs:\n  SQLite     {here}\n  PostgreSQL {there}");
            }
            ensure!(here.len() == there.len(), "{} {what}s on SQLite, {} on PostgreSQL", here.len(), there.len());
        }
        Ok(())
    }
}

#[derive(Default)]
struct Names(HashMap<String, usize>);

impl Names {
    fn name(&mut self, id: impl ToString) -> String {
        let next = self.0.len();
        format!("id-{}", self.0.entry(id.to_string()).or_insert(next))
    }

    fn rename(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) if uuid::Uuid::try_parse(text).is_ok_and(|_| text.len() == 36) => {
                Value::String(self.name(text))
            }
            Value::Array(items) => items.iter().map(|item| self.rename(item)).collect(),
            Value::Object(members) => {
                Value::Object(members.iter().map(|(name, value)| (name.clone(), self.rename(value))).collect())
            }
            other => other.clone(),
        }
    }

    fn view(&mut self, view: &ProcessView) -> String {
        let row = &view.row;
        let mut told =
            format!("{:?} {} by {}, in {}", row.definition, row.subject_ref, row.initiator_ref, view.current_state);
        for fired in &view.history {
            let (id, gate) = (self.name(fired.transition_id), fired.gate_id.map(|id| self.name(id)));
            told += &format!(
                "; {} {id} {}→{} by {}",
                fired.sequence_number, fired.from_state, fired.to_state, fired.actor_ref
            );
            told += &format!(" {} on {gate:?} {}", fired.guard_satisfied, fired.gate_is_chain);
        }
        let mut gates: Vec<_> = view.gates.iter().collect();
        // Gates of one microsecond have no order of their own; their first steps were opened in order.
        gates.sort_by_key(|(gate, _)| self.0.get(&gate.gate_id.to_string()).copied());
        for (gate, steps) in gates {
            let id = self.name(gate.gate_id);
            told += &format!("; gate {id} {} {} {:?}", gate.action, gate.guard, gate.rule);
            told += &format!(" {:?} {:?} current {}", gate.chain_state, gate.fate, gate.current);
            for (step, assignment) in steps {
                let end = step.ended.as_ref().map(|end| (&end.by, &end.reason));
                told += &format!(", {} {} {} {end:?}", self.name(step.step_id), step.approver_ref, step.state);
                told += &format!(" {} {}", self.name(assignment.assignment_id), assignment.status);
            }
        }
        told
    }
}
