//! `[governance]`: how often this node verifies its store by itself, who approves proposals, when workers are silent, and when
//! things wait for too long.

use super::Duration;
use anyhow::{Context, ensure};
use countersign_engine::monitor::{LagThresholds, Thresholds};
use countersign_kernel::{GateEntry, QuorumRule};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GovernanceSection {
    /// So long after the last verification the whole store is verified again; without it, only when somebody asks.
    pub verify_every: Option<Duration>,
    pub proposals: ProposalsSection,
    pub heartbeat: HeartbeatSection,
    pub event_lag: EventLagSection,
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
        self.heartbeat.check()?;
        self.event_lag.check()
    }

    /// What the engine judges workers and lag by.
    pub fn thresholds(&self) -> Thresholds {
        let default = Thresholds::default();
        let event_lag = &self.event_lag;
        let lag = LagSection::over(&event_lag.default_thresholds(), &default.lag);
        let pairs = event_lag.pairs.iter().map(|(pair, section)| (pair.clone(), LagSection::over(section, &lag)));
        Thresholds {
            heartbeat_us: self.heartbeat.threshold.map_or(default.heartbeat_us, |threshold| threshold.us),
            heartbeat_of: self.heartbeat.classes.iter().map(|(class, of)| (class.clone(), of.us)).collect(),
            lag_window_us: event_lag.window.map_or(default.lag_window_us, |window| window.us),
            lag,
            lag_of: pairs.collect(),
        }
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
const MIN_THRESHOLD_US: i64 = 1_000_000;
/// What is judged is kept for a month.
const MAX_WINDOW_US: i64 = 24 * 3_600_000_000;

/// When the workers of a class are silent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeartbeatSection {
    /// Without a successful tick for longer than this; 60s.
    pub threshold: Option<Duration>,
    /// Of some classes, by `<queue>:<kind>`.
    pub classes: BTreeMap<String, Duration>,
}

impl HeartbeatSection {
    fn check(&self) -> anyhow::Result<()> {
        const KEY: &str = "governance.heartbeat";
        for (class, threshold) in &self.classes {
            ensure!(
                class.rsplit_once(':').is_some_and(|(queue, kind)| !queue.is_empty() && !kind.is_empty()),
                "{KEY}.classes: {class:?} is no worker class: write `<queue>:<kind>`, such as orders:worker"
            );
            ensure!(threshold.us >= MIN_THRESHOLD_US, "{KEY}.classes.{class:?} must be at least 1s");
        }
        ensure!(self.threshold.is_none_or(|of| of.us >= MIN_THRESHOLD_US), "{KEY}.threshold must be at least 1s");
        Ok(())
    }
}

/// When things wait for too long, and of some pairs `<producer>-><consumer>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventLagSection {
    /// The time over which it is judged; 5m.
    pub window: Option<Duration>,
    pub p50: Option<Duration>,
    pub p95: Option<Duration>,
    pub p99: Option<Duration>,
    pub pairs: BTreeMap<String, LagSection>,
}

/// The thresholds of a pair; those that it does not name are the general ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LagSection {
    pub p50: Option<Duration>,
    pub p95: Option<Duration>,
    pub p99: Option<Duration>,
}

impl EventLagSection {
    fn default_thresholds(&self) -> LagSection {
        LagSection { p50: self.p50, p95: self.p95, p99: self.p99 }
    }

    fn check(&self) -> anyhow::Result<()> {
        const KEY: &str = "governance.event_lag";
        ensure!(
            self.window.is_none_or(|window| (MIN_US..=MAX_WINDOW_US).contains(&window.us)),
            "{KEY}.window must lie between 1m and 1d"
        );
        for pair in self.pairs.keys() {
            let producers = ["outbox", "ready", "due", "committed"];
            ensure!(
                pair.split_once("->").is_some_and(|(from, to)| producers.contains(&from) && !to.is_empty()),
                "{KEY}.pairs: {pair:?} is no pair: write `ready->QUEUE`, `outbox->SINK`, `due->fired` or `committed->sealed`"
            );
        }
        for section in self.pairs.values().chain([&self.default_thresholds()]) {
            let all = [section.p50, section.p95, section.p99];
            ensure!(all.iter().flatten().all(|of| of.us > 0), "{KEY}: a threshold must be greater than zero");
        }
        Ok(())
    }
}

impl LagSection {
    fn over(section: &LagSection, general: &LagThresholds) -> LagThresholds {
        let us = |of: Option<Duration>, general: Option<i64>| of.map(|of| of.us).or(general);
        LagThresholds {
            p50_us: us(section.p50, general.p50_us),
            p95_us: us(section.p95, general.p95_us),
            p99_us: us(section.p99, general.p99_us),
        }
    }
}

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
    fn thresholds_of_a_class_or_a_pair_take_the_place_of_the_general_ones() {
        let s = |seconds: i64| Some(Duration { us: seconds * 1_000_000 });
        let mut section = GovernanceSection::default();
        assert_eq!(section.thresholds(), Thresholds::default());
        section.heartbeat.threshold = s(30);
        section.heartbeat.classes.extend(s(300).map(|of| ("orders:batch".to_owned(), of)));
        section.event_lag.p95 = s(2);
        let slow = LagSection { p95: s(600), ..LagSection::default() };
        section.event_lag.pairs.insert("outbox->billing".to_owned(), slow);
        section.check().expect("fits");
        let made = section.thresholds();
        assert_eq!((made.heartbeat("orders:batch"), made.heartbeat("orders:worker")), (300_000_000, 30_000_000));
        let (billing, other) = (made.lag("outbox->billing"), made.lag("ready->orders"));
        assert_eq!((billing.p95_us, other.p95_us, billing.p50_us), (Some(600_000_000), Some(2_000_000), other.p50_us));

        section.event_lag.pairs.insert("billing".to_owned(), LagSection::default());
        assert!(section.check().is_err());
        let mut section = GovernanceSection::default();
        section.heartbeat.classes.extend(s(300).map(|of| ("orders".to_owned(), of)));
        assert!(section.check().is_err());
        let mut section = GovernanceSection::default();
        section.heartbeat.threshold = Some(Duration { us: 1000 });
        assert!(section.check().is_err());
    }

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
