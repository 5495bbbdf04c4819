//! `[governance]`: how often this node verifies its store by itself, and who approves proposals.

use super::Duration;
use anyhow::{Context, ensure};
use countersign_kernel::{GateEntry, QuorumRule};
use serde::Deserialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GovernanceSection {
    /// So long after the last verification the whole store is verified again; without it, only when somebody asks.
    pub verify_every: Option<Duration>,
    pub proposals: ProposalsSection,
    /// Who approves replays of dead letters: one name, or a list of which one approves.
    pub replay_approver: Option<Approver>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Approver {
    One(String),
    AnyOf(Vec<String>),
}

impl GovernanceSection {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.verify_every.is_none_or(|every| every.us >= MIN_US),
            "governance.verify_every must be at least 1m: every verification reads the whole store"
        );
        self.proposals.entry()?;
        self.replay_approvers()?;
        Ok(())
    }

    pub fn replay_approvers(&self) -> anyhow::Result<Option<GateEntry>> {
        let scope = REPLAY_SCOPE.to_owned();
        let entry = match &self.replay_approver {
            None => return Ok(None),
            Some(Approver::One(approver_ref)) => {
                GateEntry::Single { approver_ref: approver_ref.clone(), scope, delegable: false }
            }
            Some(Approver::AnyOf(approvers)) => {
                ensure!(!approvers.is_empty(), "{REPLAY_KEY} names nobody: name one person, or a list");
                GateEntry::Quorum { approvers: approvers.clone(), rule: QuorumRule::OneOfN, scope, delegable: false }
            }
        };
        entry.validate(REPLAY_KEY)?;
        Ok(Some(entry))
    }

    pub fn verify_every(&self) -> Option<std::time::Duration> {
        self.verify_every.and_then(|every| u64::try_from(every.us).ok()).map(std::time::Duration::from_micros)
    }
}

const MIN_US: i64 = 60_000_000;

/// Who approves proposals whose target does not say it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProposalsSection {
    pub approvers: Vec<String>,
    /// How many of several approvers: `all-of-n` (default), `m-of-n` with `m`, `one-of-n`.
    pub rule: Option<String>,
    pub m: Option<u32>,
    /// The scope of their approvals.
    pub scope: Option<String>,
}

const SCOPE: &str = "proposals:approve";
const KEY: &str = "governance.proposals";
const REPLAY_SCOPE: &str = "dead-letters:replay";
const REPLAY_KEY: &str = "governance.replay_approver";

impl ProposalsSection {
    pub fn entry(&self) -> anyhow::Result<Option<GateEntry>> {
        let scope = self.scope.clone().unwrap_or_else(|| SCOPE.to_owned());
        if self.approvers.is_empty() {
            ensure!(*self == ProposalsSection::default(), "{KEY}: `approvers` says who approves; name at least one");
            return Ok(None);
        }
        let rule = self.rule.as_deref();
        let entry = match (self.approvers.as_slice(), rule) {
            ([approver_ref], None) => {
                ensure!(self.m.is_none(), "{KEY}.m belongs to the rule m-of-n");
                GateEntry::Single { approver_ref: approver_ref.clone(), scope, delegable: false }
            }
            _ => {
                let rule = quorum_rule(rule.unwrap_or("all-of-n"), self.m)?;
                GateEntry::Quorum { approvers: self.approvers.clone(), rule, scope, delegable: false }
            }
        };
        entry.validate(KEY)?;
        Ok(Some(entry))
    }
}

fn quorum_rule(rule: &str, m: Option<u32>) -> anyhow::Result<QuorumRule> {
    countersign_ledger::document::parse_rule(rule, m)
        .with_context(|| format!("{KEY}.rule = {rule:?}: the rules are all-of-n, one-of-n, and m-of-n with `m`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replays_are_approved_by_one_person_or_by_one_of_several() {
        let section = |text: &str| toml::from_str::<GovernanceSection>(text).expect("a section");
        let entry = |text: &str| section(text).replay_approvers();
        assert!(entry("").expect("nothing").is_none());
        assert!(matches!(entry("replay_approver = 'ann'"), Ok(Some(GateEntry::Single { .. }))));
        let any = entry("replay_approver = ['ann', 'ben']").expect("two");
        assert!(matches!(any, Some(GateEntry::Quorum { rule: QuorumRule::OneOfN, .. })));
        for wrong in ["replay_approver = []", "replay_approver = ' '", "replay_approver = ['ann', 'ann']"] {
            assert!(entry(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn approvers_are_one_person_or_a_quorum() {
        let section = |approvers: &[&str], rule: Option<&str>, m| ProposalsSection {
            approvers: approvers.iter().map(|name| (*name).to_owned()).collect(),
            rule: rule.map(str::to_owned),
            m,
            scope: None,
        };
        assert!(section(&[], None, None).entry().expect("nothing").is_none());
        assert!(section(&["ann"], None, None).entry().expect("one").is_some());
        let quorum = section(&["ann", "ben"], Some("m-of-n"), Some(1)).entry().expect("a quorum");
        assert!(matches!(quorum, Some(GateEntry::Quorum { rule: QuorumRule::MOfN { m: 1 }, .. })));
        for wrong in [
            section(&[], Some("one-of-n"), None),
            section(&["ann"], None, Some(1)),
            section(&["ann", "ann"], None, None),
            section(&["ann", "ben"], Some("most"), None),
            section(&["ann", "ben"], Some("m-of-n"), Some(3)),
            section(&["ann", " "], None, None),
        ] {
            assert!(wrong.entry().is_err(), "{wrong:?}");
        }
    }
}
