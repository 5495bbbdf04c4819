//! Holds and purges among random histories, beside an oracle of their own that was written from the contracts of legal
//! hold and retention: what each must answer, what is held at every moment, and that nothing is destroyed under a hold.

use crate::generate::{self, Draw, PEOPLE, World};
use crate::support::decide;
use crate::{Run, action_ref};
use countersign_kernel::process::{Command, Event, EventBody, Process};
use countersign_kernel::refusal::Code;
use countersign_kernel::retention::{HoldFacts, PlaceHold, PurgeRecord, RecordFacts, ReleaseHold};
use countersign_kernel::{Digest, EventId, HoldId, IdSource, InstanceId, Time};
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeMap;

/// How long a record is kept; every third one without end.
const KEPT: i64 = 12;
const SCOPES: [&str; 2] = ["audit:hold", "audit:purge"];

#[derive(Clone, Debug)]
enum Ask {
    /// The record by its number; beyond the last: one that there is not. A blank name, where `None`.
    Hold {
        record: Option<Index>,
        reason: &'static str,
        case: Option<&'static str>,
    },
    Release {
        hold: Option<Index>,
        reason: Option<&'static str>,
    },
    Purge {
        record: Option<Index>,
    },
    /// The process goes on meanwhile.
    Move(Draw),
}

fn asks() -> impl Strategy<Value = Vec<(usize, Ask)>> {
    let name = || prop_oneof![15 => any::<Index>().prop_map(Some), 1 => Just(None)];
    let reason = || prop_oneof![6 => Just("because"), 1 => Just(" ")];
    let hold = (name(), reason(), prop_oneof![4 => Just(None), 2 => Just(Some("case")), 1 => Just(Some(""))])
        .prop_map(|(record, reason, case)| Ask::Hold { record, reason, case });
    let release = (name(), prop_oneof![1 => Just(None), 6 => reason().prop_map(Some)])
        .prop_map(|(hold, reason)| Ask::Release { hold, reason });
    let purge = name().prop_map(|record| Ask::Purge { record });
    let moves = any::<Index>().prop_map(|index| Ask::Move(Draw::Sensible(index)));
    // The first one holds both scopes, the others one or none.
    let actor = prop_oneof![6 => Just(0usize), 2 => Just(1usize), 1 => Just(2usize), 1 => Just(3usize)];
    proptest::collection::vec((actor, prop_oneof![2 => hold, 2 => release, 3 => purge, 3 => moves]), 1..60)
}

/// What must be, by the contracts.
#[derive(Default)]
struct Expected {
    /// (record, active), in the order of placing.
    holds: Vec<(usize, bool)>,
    purged: Vec<usize>,
}

struct Game {
    run: Run,
    oracle: crate::oracle::Oracle,
    expected: Expected,
    hold_ids: Vec<HoldId>,
}

fn may(actor: usize, scope: &str) -> bool {
    match actor {
        0 => true,
        1 => scope == SCOPES[0],
        2 => scope == SCOPES[1],
        _ => false,
    }
}

fn event_id(record: usize) -> EventId {
    IdSource::new(Time(1), record as u64).make()
}

fn until(event: &Event, record: usize) -> Option<Time> {
    (record % 3 != 2).then(|| Time(event.at.0 + KEPT))
}

impl Game {
    fn new(world: &World) -> Game {
        let mut world = world.clone();
        for (n, name) in PEOPLE.iter().enumerate() {
            for scope in SCOPES.iter().filter(|scope| may(n, scope)) {
                world.grants.insert(((*name).to_owned(), scope));
            }
        }
        let (run, oracle) = Run::start(&world);
        Game { run, oracle, expected: Expected::default(), hold_ids: vec![] }
    }

    fn facts(&self, record: usize) -> Option<RecordFacts> {
        let event = self.run.events.get(record)?;
        Some(RecordFacts {
            event_id: event_id(record),
            instance_id: self.run.process.instance_id,
            sequence: record as u64 + 1,
            action_ref: action_ref(&event.body).to_owned(),
            actor_ref: event.actor_ref.clone(),
            record_hash: Digest([1; 32]),
            attestation_digest: Digest([2; 32]),
            policy_ref: "policy".to_owned(),
            retention_until: until(event, record),
            purged: self.expected.purged.contains(&record),
            places: self.placed_by(record),
        })
    }

    /// The hold that this record placed.
    fn placed_by(&self, record: usize) -> Option<HoldId> {
        match self.run.events.get(record).map(|event| &event.body) {
            Some(EventBody::HoldPlaced { hold_id, .. }) => Some(*hold_id),
            _ => None,
        }
    }

    fn play(&mut self, actor: usize, ask: &Ask) {
        let records = self.run.events.len();
        let pick = |index: &Option<Index>, len: usize| index.as_ref().map(|index| index.index(len + 1));
        let name = |n: Option<usize>| n.map_or(" ".to_owned(), |n| event_id(n).to_string());
        let (command, expected) = match ask {
            Ask::Move(draw) => {
                let (actor, ask, exists) = generate::command(&self.oracle, draw);
                return self.run.give(&mut self.oracle, &actor, &ask, exists);
            }
            Ask::Hold { record, reason, case } => {
                let record = pick(record, records);
                let command = Command::PlaceHold(PlaceHold {
                    record_ref: name(record),
                    reason: (*reason).to_owned(),
                    case_ref: case.map(str::to_owned),
                    record: record.and_then(|record| self.facts(record)),
                });
                (command, self.expect_hold(actor, record, reason, *case))
            }
            Ask::Release { hold, reason } => {
                let hold = pick(hold, self.hold_ids.len());
                let facts = hold.and_then(|n| self.hold_ids.get(n)).zip(hold.and_then(|n| self.expected.holds.get(n)));
                let command = Command::ReleaseHold(ReleaseHold {
                    hold_id: name(hold),
                    reason: reason.map(str::to_owned),
                    hold: facts.map(|(hold_id, (record, active))| HoldFacts {
                        hold_id: *hold_id,
                        record_ref: event_id(*record),
                        instance_id: self.run.process.instance_id,
                        released: !active,
                    }),
                });
                (command, self.expect_release(actor, hold, *reason))
            }
            Ask::Purge { record } => {
                let record = pick(record, records);
                let facts = record.and_then(|record| self.facts(record));
                let command = Command::PurgeRecord(PurgeRecord { record: facts, ..PurgeRecord::of(&name(record)) });
                (command, self.expect_purge(actor, record))
            }
        };
        self.run.clock += 1;
        let now = Time(self.run.clock);
        let answer = decide(&self.run.registry, Some(&self.run.process), PEOPLE[actor], now, &command);
        match (answer, expected) {
            (Err(refusal), Err(code)) => assert_eq!(refusal.code, code, "{ask:?}: {refusal}"),
            (Ok(events), Ok(owed)) => {
                if let Some(EventBody::HoldPlaced { hold_id, .. }) = events.first().map(|event| &event.body) {
                    self.hold_ids.push(*hold_id);
                }
                self.run.accept(events, vec![(owed, PEOPLE[actor].to_owned())]);
            }
            (answer, expected) => panic!("{actor}: {ask:?}\nthe kernel: {answer:#?}\nthe oracle: {expected:?}"),
        }
    }

    fn expect_hold(
        &mut self,
        actor: usize,
        record: Option<usize>,
        reason: &str,
        case: Option<&str>,
    ) -> Result<&'static str, Code> {
        let blank = |text: &str| text.trim().is_empty();
        let Some(record) = record else { return Err(Code::InvalidRequest) };
        if blank(reason) || case.is_some_and(blank) {
            return Err(Code::InvalidRequest);
        }
        if !may(actor, SCOPES[0]) {
            return Err(Code::PermissionDenied);
        }
        if record >= self.run.events.len() {
            return Err(Code::NotKnown);
        }
        self.expected.holds.push((record, true));
        Ok("hold_placed")
    }

    fn expect_release(
        &mut self,
        actor: usize,
        hold: Option<usize>,
        reason: Option<&str>,
    ) -> Result<&'static str, Code> {
        let Some(hold) = hold else { return Err(Code::InvalidRequest) };
        if !may(actor, SCOPES[0]) {
            return Err(Code::PermissionDenied);
        }
        let (_, active) = self.expected.holds.get_mut(hold).ok_or(Code::NotKnown)?;
        if !*active {
            return Err(Code::AlreadyReleased);
        }
        if reason.is_none_or(|reason| reason.trim().is_empty()) {
            return Err(Code::InvalidRequest);
        }
        *active = false;
        Ok("hold_released")
    }

    fn expect_purge(&mut self, actor: usize, record: Option<usize>) -> Result<&'static str, Code> {
        let Some(record) = record else { return Err(Code::InvalidRequest) };
        if !may(actor, SCOPES[1]) {
            return Err(Code::PermissionDenied);
        }
        let event = self.run.events.get(record).ok_or(Code::NotKnown)?;
        // It is decided a moment later.
        let elapsed = until(event, record).is_some_and(|until| until.0 <= self.run.clock + 1);
        let destruction = matches!(event.body, EventBody::RecordPurged { .. });
        if self.expected.purged.contains(&record) || destruction || !elapsed {
            return Err(Code::NotEligible);
        }
        // Its own hold, where it placed one, keeps it too.
        let own = self.placed_by(record).and_then(|id| self.hold_ids.iter().position(|known| *known == id));
        let own_stands = own.is_some_and(|own| self.expected.holds[own].1);
        if own_stands || self.expected.holds.contains(&(record, true)) {
            return Err(Code::UnderLegalHold);
        }
        self.expected.purged.push(record);
        Ok("record_purged")
    }

    /// The process holds what is held, and forgets what was purged.
    fn compare(&self) {
        let active = self.hold_ids.iter().zip(&self.expected.holds).filter(|(_, (_, active))| *active);
        let active: BTreeMap<HoldId, EventId> = active.map(|(id, (record, _))| (*id, event_id(*record))).collect();
        assert_eq!(self.run.process.holds, active);
        let subject = &self.run.process.subject_ref;
        let gone = self.expected.purged.contains(&0);
        assert_eq!(*subject == format!("purged:{}", event_id(0)), gone, "{subject}");
        assert_eq!(*subject == "subject", !gone, "{subject}");
    }

    /// From the records alone: no hold stood on a record when it was purged.
    fn audit(&self) {
        let mut standing: BTreeMap<HoldId, EventId> = BTreeMap::new();
        for event in &self.run.events {
            match &event.body {
                EventBody::HoldPlaced { hold_id, record_ref, .. } => drop(standing.insert(*hold_id, *record_ref)),
                EventBody::HoldReleased { hold_id, .. } => drop(standing.remove(hold_id)),
                EventBody::RecordPurged { record } => {
                    assert!(standing.values().all(|held| *held != record.event_id), "purged under a hold");
                    assert!(record.retention_until.is_some_and(|until| until <= event.at), "purged too early");
                }
                _ => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn holds_and_purges_agree_with_their_contracts(world in generate::world(), asks in asks()) {
        let mut game = Game::new(&world);
        for (actor, ask) in &asks {
            game.play(*actor, ask);
            game.compare();
            game.run.replay();
        }
        game.audit();
    }
}

/// A record of the registry is never purged, however old it is and whoever asks; and a process other than the record's own
/// cannot be asked for it.
#[test]
fn whose_record_it_is_matters() {
    let registry = crate::support::registry_with(&[("pat", SCOPES[0]), ("pat", SCOPES[1])]);
    let process: Option<&Process> = None;
    let facts = |instance_id, retention_until| RecordFacts {
        event_id: event_id(0),
        instance_id,
        sequence: 1,
        action_ref: "grant_made".to_owned(),
        actor_ref: "admin".to_owned(),
        record_hash: Digest([1; 32]),
        attestation_digest: Digest([2; 32]),
        policy_ref: "policy".to_owned(),
        retention_until,
        purged: false,
        places: None,
    };
    let other = InstanceId(event_id(7).0);
    for (instance_id, until, expected) in [
        (InstanceId::REGISTRY, Some(Time(1)), Code::NotEligible),
        (InstanceId::REGISTRY, None, Code::NotEligible),
        (other, Some(Time(1)), Code::NotKnown),
    ] {
        let record = Some(facts(instance_id, until));
        let command =
            Command::PurgeRecord(PurgeRecord { record: record.clone(), ..PurgeRecord::of(&event_id(0).to_string()) });
        let answer = decide(&registry, process, "pat", Time(1000), &command);
        assert_eq!(answer.map_err(|refusal| refusal.code).map(|_| ()), Err(expected));
        let command = Command::PlaceHold(PlaceHold {
            record_ref: event_id(0).to_string(),
            reason: "because".to_owned(),
            case_ref: None,
            record,
        });
        let answer = decide(&registry, process, "pat", Time(1000), &command);
        assert_eq!(answer.map_err(|refusal| refusal.code).map(|_| ()), Err(Code::NotKnown));
    }
}
