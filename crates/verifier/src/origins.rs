//! What started what inside the engine (`spec/run.md`, *Origin*): a run that names a firing or an event as its origin names one that
//! happened, as far as the bundle holds the sender. Instances come in the order of their ids, and a sender is older than what it
//! started, so one pass is enough.

use crate::bytes::Id;
use crate::finding::{Code, Findings};
use crate::json::{Value, shortened};
use crate::process::Process;
use crate::record::Header;
use crate::run::Run;
use std::collections::{HashMap, HashSet};

/// What a `run_started` names as its origin.
#[derive(Debug)]
pub struct Origin {
    header: Header,
    instance_id: Id,
    depth: i64,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Event { outbox_id: Id },
    Effect { transition_id: Id, effect: i64 },
}

impl Origin {
    pub fn read(value: &Value, header: &Header) -> Option<Origin> {
        let id = |name: &str| Id::parse(value.text(name)?);
        let cause = match (value.given("outbox_id"), value.given("transition_id")) {
            (Some(_), None) => Cause::Event { outbox_id: id("outbox_id")? },
            (None, Some(_)) => Cause::Effect { transition_id: id("transition_id")?, effect: value.int("effect")? },
            _ => return None,
        };
        let depth = value.int("depth").filter(|depth| *depth > 0)?;
        Some(Origin { header: header.clone(), instance_id: id("instance_id")?, depth, cause })
    }
}

/// What has passed by: of senders, only what can start something.
#[derive(Debug, Default)]
pub struct Origins {
    /// Without those of which something was purged.
    seen: HashSet<Id>,
    /// Those of them that have not ended, and the time of their last record: a sender may be held up to an earlier moment than what
    /// it started.
    open: HashMap<Id, i64>,
    depths: HashMap<Id, i64>,
    /// By firing and the place of the effect: whose firing it was, and what it starts.
    starts: HashMap<(Id, i64), (Id, String)>,
    /// The types of the events that each instance sent.
    sent: HashMap<Id, HashSet<String>>,
    /// Effects that have started a run, and which.
    spent: HashMap<(Id, i64), Id>,
}

impl Origins {
    pub fn take(&mut self, process: &Process, run: Option<&Run>, findings: &mut Findings) {
        let id = process.instance_id;
        if let Some(origin) = run.and_then(|run| run.origin.as_ref()) {
            self.check(origin, process, run, findings);
            self.depths.insert(id, origin.depth);
        }
        for effect in &process.effects {
            if let Some(definition) = &effect.starts {
                self.starts.insert((effect.transition_id, effect.place), (id, definition.clone()));
            }
        }
        let sent = run.map_or(&process.sent, |run| &run.sent);
        if !sent.is_empty() {
            self.sent.insert(id, sent.clone());
        }
        if process.purged_events.is_empty() && run.is_none_or(|run| !run.lost) {
            self.seen.insert(id);
            if let Some(last_us) =
                process.last_us().filter(|_| !run.map_or_else(|| process.has_ended(), Run::has_ended))
            {
                self.open.insert(id, last_us);
            }
        }
    }

    /// Whether what this instance did until then has passed by, all of it.
    fn holds(&self, sender: Id, made: Id) -> bool {
        let in_time = self.open.get(&sender).is_none_or(|last_us| made_at(made) <= last_us / 1000);
        in_time && self.seen.contains(&sender)
    }

    fn check(&mut self, origin: &Origin, process: &Process, run: Option<&Run>, findings: &mut Findings) {
        let mut find = |detail: String| findings.find(Code::UndeclaredTransition, &origin.header, shortened(&detail));
        let sender = origin.instance_id;
        let started = process.started.as_ref().and_then(|started| started.definition.as_deref()).unwrap_or_default();
        match origin.cause {
            Cause::Effect { transition_id, effect } => {
                let is_seen = self.holds(sender, transition_id);
                let known = self.starts.get(&(transition_id, effect));
                match known.filter(|(of, _)| *of == sender) {
                    None if is_seen => {
                        find(format!(
                            "says that effect {effect} of the firing {transition_id} started it; no such firing is recorded"
                        ));
                    }
                    Some((_, definition)) if definition != started => {
                        find(format!("is a run of {started}; the firing that it names starts one of {definition}"));
                    }
                    None | Some(_) => {}
                }
                if *self.spent.entry((transition_id, effect)).or_insert(process.instance_id) != process.instance_id {
                    find(format!("effect {effect} of the firing {transition_id} started another run before"));
                }
                if origin.depth != 1 {
                    find(format!("what a firing starts has depth 1, this has {}", origin.depth));
                }
            }
            Cause::Event { outbox_id } if self.holds(sender, outbox_id) => {
                let listens = run.and_then(Run::workflow);
                let heard = |types: &HashSet<String>| {
                    listens.as_ref().is_some_and(|workflow| workflow.on.iter().any(|known| types.contains(known)))
                };
                if !self.sent.get(&sender).is_some_and(heard) {
                    find(format!("says that an event of {sender} started it, which sent none that starts such runs"));
                }
                let depth = self.depths.get(&sender).copied().unwrap_or(0) + 1;
                if origin.depth != depth {
                    find(format!("its depth is {}, that of its sender makes it {depth}", origin.depth));
                }
            }
            Cause::Event { .. } => {}
        }
    }
}

/// Milliseconds, of a UUIDv7.
fn made_at(id: Id) -> i64 {
    id.0.iter().take(6).fold(0, |ms, byte| (ms << 8) | i64::from(*byte))
}
