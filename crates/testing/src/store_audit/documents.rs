//! Declarations and gate_specs, read from their bytes as `spec/record.md` section 6 describes them.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    pub states: Vec<String>,
    pub transitions: Vec<Transition>,
    pub initial_state: String,
    pub terminal_states: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transition {
    pub from: String,
    pub action: String,
    pub to: String,
    pub guard: Option<String>,
}

pub type GateSpec = BTreeMap<String, Entry>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub approver_ref: Option<String>,
    pub approvers: Option<Vec<String>>,
    pub quorum: Option<Quorum>,
    pub scope: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quorum {
    pub rule: String,
    pub m: Option<u64>,
}

impl Declaration {
    pub fn transition(&self, from: &str, action: &str) -> Option<&Transition> {
        self.transitions.iter().find(|t| t.from == from && t.action == action)
    }
}

impl Entry {
    /// Everybody it names, in order.
    pub fn approvers(&self) -> Vec<&str> {
        let several = self.approvers.iter().flatten();
        self.approver_ref.iter().chain(several).map(String::as_str).collect()
    }

    /// How many of them must approve.
    pub fn needed(&self) -> usize {
        let all = self.approvers().len();
        match &self.quorum {
            None => 1,
            Some(quorum) => match (quorum.rule.as_str(), quorum.m) {
                ("one-of-n", None) => 1,
                ("m-of-n", Some(m)) => usize::try_from(m).unwrap_or(usize::MAX),
                ("all-of-n", None) => all,
                // No rule that anybody could satisfy.
                _ => usize::MAX,
            },
        }
    }

    /// What a quorum with these counts has come to: decided as soon as nothing could change it.
    pub fn outcome(&self, approved: usize, rejected: usize, withdrawn: usize) -> &'static str {
        let all = self.approvers().len();
        let all_of_n = self.quorum.as_ref().is_some_and(|quorum| quorum.rule == "all-of-n");
        let undecided = if all_of_n { rejected + withdrawn == 0 } else { all - rejected - withdrawn >= self.needed() };
        if approved >= self.needed() {
            "Approved"
        } else if undecided {
            "Pending"
        } else if rejected > 0 {
            "Rejected"
        } else {
            "Withdrawn"
        }
    }
}
