//! Who approves, as a definition publishes it. An entry is fixed unless it says that a start may replace it; a start then
//! names other approvers, or the first ones where the definition names none, but never the person who starts the process,
//! unless the entry allows that too. The scope stays the definition's: it says what the approvers decide on. So does
//! whether they may name a substitute.

use crate::gate_spec::{GateEntry, GateSpec, entry_path};
use crate::refusal::{Code, Refusal};
use std::collections::BTreeMap;

/// Guard label → who must approve, and whether a start may say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PublishedGates(pub BTreeMap<String, PublishedGate>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PublishedGate {
    Fixed(GateEntry),
    /// `self_approval`: the person who starts the process may name herself.
    Replaceable {
        preset: GateEntry,
        self_approval: bool,
    },
    /// A start has to name the approvers.
    Open {
        scope: String,
        self_approval: bool,
        delegable: bool,
    },
}

impl PublishedGate {
    /// Who approves where a start says nothing.
    pub fn preset(&self) -> Option<&GateEntry> {
        match self {
            PublishedGate::Fixed(entry) | PublishedGate::Replaceable { preset: entry, .. } => Some(entry),
            PublishedGate::Open { .. } => None,
        }
    }

    pub fn scope(&self) -> &str {
        match self {
            PublishedGate::Fixed(entry) | PublishedGate::Replaceable { preset: entry, .. } => entry.scope(),
            PublishedGate::Open { scope, .. } => scope,
        }
    }

    /// Whether approvers may name a substitute ahead; also those that a start names.
    pub fn is_delegable(&self) -> bool {
        match self {
            PublishedGate::Fixed(entry) | PublishedGate::Replaceable { preset: entry, .. } => entry.is_delegable(),
            PublishedGate::Open { delegable, .. } => *delegable,
        }
    }

    /// `None` where nothing may replace it; otherwise whether the starter may be among the approvers.
    pub fn self_approval(&self) -> Option<bool> {
        match self {
            PublishedGate::Fixed(_) => None,
            PublishedGate::Replaceable { self_approval, .. } | PublishedGate::Open { self_approval, .. } => {
                Some(*self_approval)
            }
        }
    }
}

impl From<GateSpec> for PublishedGates {
    fn from(GateSpec(entries): GateSpec) -> Self {
        PublishedGates(entries.into_iter().map(|(label, entry)| (label, PublishedGate::Fixed(entry))).collect())
    }
}

impl PublishedGates {
    /// The gate_spec of a process that `starter` starts with these entries, and the labels whose entry is not the
    /// published one.
    pub fn started_with(&self, given: &GateSpec, starter: &str) -> Result<(GateSpec, Vec<String>), Refusal> {
        let refuse = |label: &str, place: &str, detail: String| {
            Err(Refusal::new(Code::InvalidRequest, detail).at(format!("{}{place}", entry_path(label))))
        };
        for (label, entry) in &given.0 {
            let Some(published) = self.0.get(label) else {
                let detail = format!("the definition has no gate_spec entry `{label}` that a start could replace");
                return refuse(label, "", detail);
            };
            if entry.is_delegable() && !published.is_delegable() {
                let detail = format!("the definition lets no approver of `{label}` name a substitute");
                return refuse(label, ".delegable", detail);
            }
            let entry = &entry.clone().with_delegable(published.is_delegable());
            if published.preset() == Some(entry) {
                continue;
            }
            let Some(self_approval) = published.self_approval() else {
                let detail = format!(
                    "the definition fixes who approves `{label}`; only an entry with `replaceable: true` can be replaced"
                );
                return refuse(label, "", detail);
            };
            if entry.scope() != published.scope() {
                let detail = format!("the scope of `{label}` is the definition's: `{}`", published.scope());
                return refuse(label, ".scope", detail);
            }
            if !self_approval && entry.approvers().iter().any(|approver| approver == starter) {
                let detail = format!(
                    "`{starter}` starts the process and cannot name themselves an approver of `{label}`: name others"
                );
                return refuse(label, "", detail);
            }
        }
        let mut entries = BTreeMap::new();
        for (label, published) in &self.0 {
            let Some(entry) = given.0.get(label).or_else(|| published.preset()) else {
                let detail = format!("the definition leaves open who approves `{label}`: name an approver");
                return refuse(label, "", detail);
            };
            entries.insert(label.clone(), entry.clone().with_delegable(published.is_delegable()));
        }
        let spec = GateSpec(entries);
        let replaced = self.replaced_in(&spec);
        Ok((spec, replaced))
    }

    /// The labels whose entry in this gate_spec is not the published one, ascending.
    pub fn replaced_in(&self, spec: &GateSpec) -> Vec<String> {
        let published = |label: &str| self.0.get(label).and_then(PublishedGate::preset);
        spec.0.iter().filter(|(label, entry)| published(label) != Some(entry)).map(|(label, _)| label.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(approver: &str, scope: &str) -> GateEntry {
        GateEntry::Single { approver_ref: approver.to_owned(), scope: scope.to_owned(), delegable: false }
    }

    fn board(approvers: &[&str]) -> GateEntry {
        let approvers = approvers.iter().map(|name| (*name).to_owned()).collect();
        GateEntry::Quorum { approvers, rule: crate::QuorumRule::OneOfN, scope: "s".to_owned(), delegable: false }
    }

    fn published() -> PublishedGates {
        let replaceable = |self_approval| PublishedGate::Replaceable { preset: single("boss", "s"), self_approval };
        PublishedGates(BTreeMap::from([
            ("fixed".to_owned(), PublishedGate::Fixed(single("boss", "s"))),
            ("open".to_owned(), PublishedGate::Open { scope: "s".to_owned(), self_approval: false, delegable: false }),
            ("own".to_owned(), replaceable(true)),
            ("preset".to_owned(), replaceable(false)),
        ]))
    }

    fn start(entries: &[(&str, GateEntry)]) -> Result<Vec<String>, Option<String>> {
        let mut given: BTreeMap<String, GateEntry> =
            entries.iter().map(|(label, entry)| ((*label).to_owned(), entry.clone())).collect();
        given.entry("open".to_owned()).or_insert_with(|| single("zoe", "s"));
        let started = published().started_with(&GateSpec(given), "ines");
        started.map(|(_, replaced)| replaced).map_err(|refusal| refusal.field)
    }

    #[test]
    fn a_start_replaces_only_what_the_definition_leaves_to_it() {
        let at = |place: &str| Err(Some(format!("gate_spec.{place}")));
        let labels = |labels: &[&str]| Ok(labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>());
        for (entries, expected) in [
            (vec![], labels(&["open"])),
            (vec![("fixed", single("boss", "s"))], labels(&["open"])),
            (vec![("fixed", single("zoe", "s"))], at("fixed")),
            (vec![("preset", single("boss", "s"))], labels(&["open"])),
            (vec![("preset", single("zoe", "s"))], labels(&["open", "preset"])),
            (vec![("preset", board(&["zoe", "boss"]))], labels(&["open", "preset"])),
            (vec![("preset", single("zoe", "other"))], at("preset.scope")),
            (vec![("preset", single("ines", "s"))], at("preset")),
            (vec![("preset", board(&["zoe", "ines"]))], at("preset")),
            (vec![("open", board(&["ines", "zoe"]))], at("open")),
            (vec![("own", single("ines", "s"))], labels(&["open", "own"])),
            (vec![("own", board(&["zoe", "ines"]))], labels(&["open", "own"])),
            (vec![("unheard-of", single("zoe", "s"))], at("unheard-of")),
        ] {
            assert_eq!(start(&entries), expected, "{entries:?}");
        }
        assert_eq!(start(&[("preset", single("zoe", "s").with_delegable(true))]), at("preset.delegable"));
        let unfilled = published().started_with(&GateSpec::default(), "ines").expect_err("open");
        assert_eq!(unfilled.field.as_deref(), Some("gate_spec.open"));
    }
    #[test]
    fn whether_a_substitute_may_be_named_is_the_definitions_to_say() {
        let preset = single("boss", "s").with_delegable(true);
        let gates = BTreeMap::from([
            ("fixed".to_owned(), PublishedGate::Fixed(preset.clone())),
            ("own".to_owned(), PublishedGate::Replaceable { preset, self_approval: false }),
        ]);
        // A start that repeats or replaces an entry need not repeat `delegable`.
        let given = [("fixed".to_owned(), single("boss", "s")), ("own".to_owned(), single("zoe", "s"))];
        let (spec, replaced) = PublishedGates(gates).started_with(&GateSpec(given.into()), "ines").expect("a start");
        assert!(spec.0.values().all(GateEntry::is_delegable), "{spec:?}");
        assert_eq!(replaced, ["own"]);
    }
}
