//! Who approves what: for each guard label of a declaration, the named approver or quorum and the
//! scope under which they decide. Fixed at start, like the declaration.

use crate::declaration::Declaration;
use crate::refusal::{Code, Refusal, require_ref};
use crate::text::is_blank;
use std::collections::{BTreeMap, HashSet};

/// More people than can be asked by name is a mistake, not a quorum.
pub const MAX_APPROVERS: usize = 1000;

/// Guard label → who must approve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GateSpec(pub BTreeMap<String, GateEntry>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GateEntry {
    Single { approver_ref: String, scope: String, delegable: bool },
    Quorum { approvers: Vec<String>, rule: QuorumRule, scope: String, delegable: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuorumRule {
    AllOfN,
    MOfN { m: u32 },
    OneOfN,
}

impl QuorumRule {
    pub const fn as_str(self) -> &'static str {
        match self {
            QuorumRule::AllOfN => "all-of-n",
            QuorumRule::MOfN { .. } => "m-of-n",
            QuorumRule::OneOfN => "one-of-n",
        }
    }

    pub const fn m(self) -> Option<u32> {
        match self {
            QuorumRule::MOfN { m } => Some(m),
            QuorumRule::AllOfN | QuorumRule::OneOfN => None,
        }
    }

    /// How many of so many approvers have to approve.
    pub const fn needed(self, approvers: u32) -> u32 {
        match self {
            QuorumRule::AllOfN => approvers,
            QuorumRule::MOfN { m } => m,
            QuorumRule::OneOfN => 1,
        }
    }
}

impl GateEntry {
    pub fn scope(&self) -> &str {
        match self {
            GateEntry::Single { scope, .. } | GateEntry::Quorum { scope, .. } => scope,
        }
    }

    pub fn approvers(&self) -> &[String] {
        match self {
            GateEntry::Single { approver_ref, .. } => std::slice::from_ref(approver_ref),
            GateEntry::Quorum { approvers, .. } => approvers,
        }
    }

    /// Whether an approver may name a substitute ahead.
    pub fn is_delegable(&self) -> bool {
        match self {
            GateEntry::Single { delegable, .. } | GateEntry::Quorum { delegable, .. } => *delegable,
        }
    }

    /// The same approvers, with a substitute allowed or not.
    #[must_use]
    pub fn with_delegable(mut self, allowed: bool) -> Self {
        match &mut self {
            GateEntry::Single { delegable, .. } | GateEntry::Quorum { delegable, .. } => *delegable = allowed,
        }
        self
    }

    /// What can be said of an entry without its declaration. `path` is where it stands.
    pub fn validate(&self, path: &str) -> Result<(), Refusal> {
        require_ref(&format!("{path}.scope"), self.scope())?;
        match self {
            GateEntry::Single { approver_ref, .. } => require_ref(&format!("{path}.approver_ref"), approver_ref),
            GateEntry::Quorum { approvers, rule, .. } => validate_quorum(path, approvers, *rule),
        }
    }
}

fn validate_quorum(path: &str, approvers: &[String], rule: QuorumRule) -> Result<(), Refusal> {
    let refuse = |field: String, detail: String| Err(Refusal::new(Code::InvalidRequest, detail).at(field));
    if approvers.is_empty() {
        return refuse(format!("{path}.approvers"), "a quorum needs at least one approver".into());
    }
    if approvers.len() > MAX_APPROVERS {
        return refuse(
            format!("{path}.approvers"),
            format!("a quorum has at most {MAX_APPROVERS} approvers, this one {}", approvers.len()),
        );
    }
    let mut seen = HashSet::new();
    for (i, approver) in approvers.iter().enumerate() {
        require_ref(&format!("{path}.approvers[{i}]"), approver)?;
        if !seen.insert(approver) {
            return refuse(format!("{path}.approvers[{i}]"), format!("`{approver}` is named twice in one quorum"));
        }
    }
    match rule {
        QuorumRule::MOfN { m } if m == 0 || m as usize > approvers.len() => refuse(
            format!("{path}.quorum.m"),
            format!("m must be between 1 and the number of approvers ({}), but is {m}", approvers.len()),
        ),
        QuorumRule::AllOfN | QuorumRule::MOfN { .. } | QuorumRule::OneOfN => Ok(()),
    }
}

impl GateSpec {
    /// Blank and contradictory entries; needs no declaration.
    pub fn validate_shape(&self) -> Result<(), Refusal> {
        for (label, entry) in &self.0 {
            require_ref("gate_spec", label)?;
            entry.validate(&entry_path(label))?;
        }
        Ok(())
    }

    /// An entry for every guard label of the declaration, and none besides.
    pub fn validate_coverage(&self, declaration: &Declaration) -> Result<(), Refusal> {
        // A blank label is a fault of the declaration, which has its own answer.
        let labels: Vec<&str> = declaration.guard_labels().into_iter().filter(|label| !is_blank(label)).collect();
        for label in &labels {
            if !self.0.contains_key(*label) {
                return Err(Refusal::new(
                    Code::InvalidRequest,
                    format!("gate_spec has no entry for the guard `{label}`: name its approver, or nobody could ever clear it"),
                )
                .at(entry_path(label)));
            }
        }
        match self.0.keys().find(|label| !labels.contains(&label.as_str())) {
            None => Ok(()),
            Some(unused) => Err(Refusal::new(
                Code::InvalidRequest,
                format!("gate_spec names the guard `{unused}`, which no transition of the declaration carries"),
            )
            .at(entry_path(unused))),
        }
    }
}

pub(crate) fn entry_path(label: &str) -> String {
    format!("gate_spec.{label}")
}
