//! Retention policies: how long a record is kept, and how soon after that it must be gone.

use countersign_kernel::Time;
use std::collections::BTreeMap;

/// What an instance is kept under when the deployment names no policy: without end. Chosen so that
/// silence never destroys evidence; start-up warns and the ledger records that nobody chose.
pub const UNSET_POLICY: &str = "unset";

const DAY_US: i64 = 86_400_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `None`: kept without end.
    pub duration_us: Option<i64>,
    pub max_purge_delay_us: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    by_name: BTreeMap<String, Policy>,
}

impl Default for Policies {
    fn default() -> Self {
        let mut policies = Policies { by_name: BTreeMap::new() };
        policies.insert(UNSET_POLICY, Policy { duration_us: None, max_purge_delay_us: 0 });
        for (name, days) in [
            // Seven years and the leap days that may fall into them.
            ("sox_7_year", 2557),
            ("hipaa_6_year", 2192),
            // Part 11 defers to the predicate rule; batch records: at least a year past expiry. Five years covers common shelf lives.
            ("fda_part_11_predicate_rule", 1827),
            // Essential documents of a trial: 25 years.
            ("ich_e6_tmf", 9132),
        ] {
            policies.insert(name, Policy { duration_us: Some(days * DAY_US), max_purge_delay_us: 30 * DAY_US });
        }
        policies
    }
}

impl Policies {
    /// Adds or replaces.
    pub fn insert(&mut self, name: &str, policy: Policy) {
        self.by_name.insert(name.to_owned(), policy);
    }

    pub fn get(&self, name: &str) -> Option<&Policy> {
        self.by_name.get(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str).filter(|name| *name != UNSET_POLICY)
    }

    /// The longer of two, the first on a tie: a definition never shortens what the deployment keeps.
    pub fn longer<'n>(&self, first: &'n str, second: &'n str) -> &'n str {
        let duration = |name| self.get(name).map_or(0, |policy| policy.duration_us.unwrap_or(i64::MAX));
        if duration(second) > duration(first) { second } else { first }
    }

    /// (retention_until, purge_deadline) of something recorded at `at`. A policy that is no longer
    /// configured keeps without end.
    pub fn window(&self, name: &str, at: Time) -> (Option<Time>, Option<Time>) {
        let Some(Policy { duration_us: Some(duration), max_purge_delay_us }) = self.get(name) else {
            return (None, None);
        };
        let until = at.0.saturating_add(*duration);
        (Some(Time(until)), Some(Time(until.saturating_add(*max_purge_delay_us))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_policy_wins_and_an_endless_one_has_no_window() {
        let policies = Policies::default();
        assert_eq!(policies.longer("sox_7_year", "hipaa_6_year"), "sox_7_year");
        assert_eq!(policies.longer("hipaa_6_year", "ich_e6_tmf"), "ich_e6_tmf");
        assert_eq!(policies.longer(UNSET_POLICY, "ich_e6_tmf"), UNSET_POLICY);
        assert_eq!(policies.window(UNSET_POLICY, Time(5)), (None, None));
        let (until, deadline) = policies.window("hipaa_6_year", Time(5));
        assert_eq!(until, Some(Time(5 + 2192 * DAY_US)));
        assert_eq!(deadline, Some(Time(5 + 2222 * DAY_US)));
    }
}
