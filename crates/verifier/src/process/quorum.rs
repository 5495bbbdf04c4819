//! When is a gate approved? States of steps and chains, and the quorum rules as functions of counts.

use crate::json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    Pending,
    Approved,
    Rejected,
    Withdrawn,
}

impl State {
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Pending => "Pending",
            State::Approved => "Approved",
            State::Rejected => "Rejected",
            State::Withdrawn => "Withdrawn",
        }
    }

    pub fn parse(text: &str) -> Option<State> {
        [State::Pending, State::Approved, State::Rejected, State::Withdrawn].into_iter().find(|s| s.as_str() == text)
    }

    /// Where a decision leads.
    pub fn decided(decision: &str) -> Option<State> {
        match decision {
            "approve" => Some(State::Approved),
            "reject" => Some(State::Rejected),
            "withdraw" => Some(State::Withdrawn),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    All,
    One,
    Of(u64),
    /// The record that states it was purged.
    Unknown,
}

impl Rule {
    pub fn read(rule: Option<&str>, m: Option<&Value>) -> Option<Rule> {
        match (rule?, m) {
            ("all-of-n", None) => Some(Rule::All),
            ("one-of-n", None) => Some(Rule::One),
            ("m-of-n", Some(m)) => u64::try_from(m.as_int()?).ok().filter(|m| *m > 0).map(Rule::Of),
            _ => None,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::All => "all-of-n",
            Rule::One => "one-of-n",
            Rule::Of(_) => "m-of-n",
            Rule::Unknown => "unknown",
        }
    }

    pub const fn m(self) -> Option<u64> {
        match self {
            Rule::Of(m) => Some(m),
            Rule::All | Rule::One | Rule::Unknown => None,
        }
    }

    /// Whether these steps approve. Of an unknown rule only that somebody did.
    pub fn met(self, steps: &[State]) -> bool {
        match self {
            Rule::Unknown => steps.contains(&State::Approved),
            rule => rule.outcome(steps) == State::Approved,
        }
    }

    /// The outcome that the steps' states amount to.
    pub fn outcome(self, steps: &[State]) -> State {
        let count = |state| steps.iter().filter(|s| **s == state).count() as u64;
        let (approved, rejected, withdrawn) = (count(State::Approved), count(State::Rejected), count(State::Withdrawn));
        let needed = match self {
            Rule::All => steps.len() as u64,
            Rule::One => 1,
            Rule::Of(m) => m,
            Rule::Unknown => return State::Pending,
        };
        let still_possible = steps.len() as u64 - rejected - withdrawn;
        if approved >= needed && !steps.is_empty() {
            State::Approved
        } else if still_possible >= needed {
            State::Pending
        } else if rejected > 0 {
            State::Rejected
        } else {
            State::Withdrawn
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_on_counts() {
        let steps = |text: &str| -> Vec<State> {
            text.chars()
                .map(|c| match c {
                    'a' => State::Approved,
                    'r' => State::Rejected,
                    'w' => State::Withdrawn,
                    _ => State::Pending,
                })
                .collect()
        };
        for (rule, given, expected) in [
            (Rule::All, "a.", State::Pending),
            (Rule::All, "aa", State::Approved),
            (Rule::All, "ar", State::Rejected),
            (Rule::All, "aw.", State::Withdrawn),
            (Rule::All, "rw.", State::Rejected),
            (Rule::One, "r.", State::Pending),
            (Rule::One, "ra", State::Approved),
            (Rule::One, "rr", State::Rejected),
            (Rule::One, "ww", State::Withdrawn),
            (Rule::Of(2), "ar.", State::Pending),
            (Rule::Of(2), "aar", State::Approved),
            (Rule::Of(2), "rra", State::Rejected),
            (Rule::Of(2), "ww.", State::Withdrawn),
        ] {
            assert_eq!(rule.outcome(&steps(given)), expected, "{rule:?} {given}");
        }
    }
}
