//! What the checks do not cover: what rests on a word that no signature backs, and what the bundle cannot show. Facts for people;
//! nothing here is a fault.

use super::{RunLog, Spec};
use crate::record::{Assurance, Header};
use crate::registry::Registry;
use crate::run::Run;
use std::collections::{BTreeMap, BTreeSet};

/// At most this many names are listed.
const MOST_NAMES: usize = 12;
/// So many are kept while records are read.
const MOST_ACTORS: usize = 10_000;

#[derive(Debug, Default)]
pub struct Cover {
    records: u64,
    /// Records that rest on a token, by actor.
    by_token: BTreeMap<String, u64>,
    actors: BTreeSet<String>,
    /// Values of which the records hold only the digest.
    by_digest: u64,
    /// A run began steps, and no record says what they were given.
    without_inputs: bool,
    has_outputs: bool,
    /// The run that it continues.
    continues: Option<String>,
}

impl Cover {
    pub fn record(&mut self, header: &Header) {
        self.records += 1;
        if self.actors.len() < MOST_ACTORS {
            self.actors.insert(header.actor_ref.to_string());
            if header.assurance == Assurance::ServerAttested {
                *self.by_token.entry(header.actor_ref.to_string()).or_default() += 1;
            }
        }
    }

    pub(super) fn of_run(&mut self, log: &RunLog, run: &Run) {
        self.continues = run.begin.as_ref().and_then(|begin| begin.texts.get("continues").cloned());
        self.by_digest = log.by_digest;
        self.has_outputs = log.has_outputs();
        self.without_inputs = log.has_begun() && !log.has_inputs();
    }

    /// Sentences, the most important first. `named` are the gate_specs, each with the registry record that its process began under.
    pub(super) fn sentences<'s>(
        &'s self,
        named: impl Iterator<Item = &'s Spec> + Clone,
        registry: &Registry,
    ) -> Vec<String> {
        let mut said = Vec::new();
        self.tokens(&mut said);
        self.keys(named.clone(), registry, &mut said);
        later(named, registry, &mut said);
        if self.by_digest > 0 {
            said.push(format!(
                "{} stand in the records by their digest alone. The bundle proves their digests and does not hold their texts.",
                plural(self.by_digest, "value")
            ));
        }
        if self.without_inputs {
            said.push("These records do not say which input each step was given.".to_owned());
        }
        if let Some(continued) = &self.continues {
            said.push(format!(
                "Steps that ended in the run {continued} are shown by the bundle of that run, and not by this one."
            ));
        }
        if self.has_outputs {
            said.push("An output is what the worker or the person reported. That it is true in the world outside is not checked.".to_owned());
        }
        said.push(format!(
            "The registry is shown up to its record {}. What was registered, granted or revoked later is not in this bundle.",
            registry.sequence
        ));
        said
    }

    fn tokens(&self, said: &mut Vec<String>) {
        let count: u64 = self.by_token.values().sum();
        if count == 0 {
            return;
        }
        let mut by: Vec<(&String, &u64)> = self.by_token.iter().collect();
        by.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        said.push(format!(
            "{count} of {} are server-attested: they rest on a bearer token. The server says that the actor sent them, and no signature \
             of the actor shows it. By {}.",
            plural(self.records, "record"),
            names(by.into_iter().map(|(actor, count)| format!("{actor} ({count})")))
        ));
    }

    fn keys<'s>(&'s self, named: impl Iterator<Item = &'s Spec>, registry: &Registry, said: &mut Vec<String>) {
        let mut actors: BTreeSet<&str> = self.actors.iter().map(String::as_str).collect();
        actors.extend(named.flat_map(Spec::approvers));
        let keyless = |actor: &&str| registry.actor(actor, u64::MAX).is_some_and(|known| known.keys.is_empty());
        let keyless: Vec<&str> = actors.into_iter().filter(keyless).collect();
        if !keyless.is_empty() {
            said.push(format!(
                "No key is registered for {}. Nothing that these actors do can be checked by a signature.",
                names(keyless.into_iter().map(str::to_owned))
            ));
        }
    }
}

/// Approvers whom the registry did not know when what names them began.
fn later<'s>(named: impl Iterator<Item = &'s Spec>, registry: &Registry, said: &mut Vec<String>) {
    let (mut late, mut unknown) = (BTreeMap::new(), BTreeSet::new());
    for spec in named {
        for approver in spec.approvers() {
            match registry.actor(approver, u64::MAX) {
                None => _ = unknown.insert(approver),
                Some(actor) if actor.registered > spec.began_under => _ = late.insert(approver, actor),
                Some(_) => {}
            }
        }
    }
    if !late.is_empty() {
        let told = late.into_iter().map(|(approver, actor)| {
            format!("{approver} ({}, registry record {})", crate::time::utc(actor.registered_at_us), actor.registered)
        });
        said.push(format!(
            "These approvers were registered only after what names them had begun: {}. Until then the name meant nobody.",
            names(told)
        ));
    }
    if !unknown.is_empty() {
        said.push(format!(
            "The registry of this bundle does not know these approvers: {}.",
            names(unknown.into_iter().map(str::to_owned))
        ));
    }
}

fn plural(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn names(all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    match all.get(..MOST_NAMES) {
        Some(first) if all.len() > MOST_NAMES => format!("{} and {} more", first.join(", "), all.len() - MOST_NAMES),
        _ => all.join(", "),
    }
}
