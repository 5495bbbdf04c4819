//! When is a quorum decided? A function of the counts alone.

use crate::gate_spec::QuorumRule;
use crate::machine::{ChainState, StepState};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub approved: u32,
    pub rejected: u32,
    pub withdrawn: u32,
    pub pending: u32,
}

impl Counts {
    pub fn of(states: impl Iterator<Item = StepState>) -> Self {
        states.fold(Counts::default(), |mut counts, state| {
            match state {
                StepState::Approved => counts.approved += 1,
                StepState::Rejected => counts.rejected += 1,
                StepState::Withdrawn => counts.withdrawn += 1,
                StepState::Pending => counts.pending += 1,
            }
            counts
        })
    }

    fn total(self) -> u32 {
        self.approved + self.rejected + self.withdrawn + self.pending
    }
}

pub fn evaluate(rule: QuorumRule, counts: Counts) -> ChainState {
    match rule {
        QuorumRule::AllOfN => all_of_n(counts),
        QuorumRule::MOfN { m } => m_of_n(m, counts),
        QuorumRule::OneOfN => m_of_n(1, counts),
    }
}

fn all_of_n(counts: Counts) -> ChainState {
    if counts.approved == counts.total() {
        ChainState::Approved
    } else if counts.rejected >= 1 {
        ChainState::Rejected
    } else if counts.withdrawn >= 1 {
        ChainState::Withdrawn
    } else {
        ChainState::Pending
    }
}

fn m_of_n(m: u32, counts: Counts) -> ChainState {
    if counts.approved >= m {
        return ChainState::Approved;
    }
    let still_possible = counts.total() - counts.rejected - counts.withdrawn;
    if still_possible >= m {
        ChainState::Pending
    } else if counts.rejected >= 1 {
        ChainState::Rejected
    } else {
        ChainState::Withdrawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_on_counts() {
        let counts = |approved, rejected, withdrawn, pending| Counts { approved, rejected, withdrawn, pending };
        let two_of_three = QuorumRule::MOfN { m: 2 };
        for (rule, counts, expected) in [
            (QuorumRule::AllOfN, counts(0, 0, 0, 2), ChainState::Pending),
            (QuorumRule::AllOfN, counts(1, 0, 0, 1), ChainState::Pending),
            (QuorumRule::AllOfN, counts(2, 0, 0, 0), ChainState::Approved),
            (QuorumRule::AllOfN, counts(1, 1, 0, 0), ChainState::Rejected),
            (QuorumRule::AllOfN, counts(0, 1, 1, 1), ChainState::Rejected),
            (QuorumRule::AllOfN, counts(1, 0, 1, 1), ChainState::Withdrawn),
            (two_of_three, counts(1, 1, 0, 1), ChainState::Pending),
            (two_of_three, counts(2, 1, 0, 0), ChainState::Approved),
            (two_of_three, counts(2, 0, 0, 1), ChainState::Approved),
            (two_of_three, counts(1, 2, 0, 0), ChainState::Rejected),
            (two_of_three, counts(0, 1, 1, 1), ChainState::Rejected),
            (two_of_three, counts(0, 0, 2, 1), ChainState::Withdrawn),
            (QuorumRule::OneOfN, counts(0, 1, 0, 1), ChainState::Pending),
            (QuorumRule::OneOfN, counts(1, 1, 0, 0), ChainState::Approved),
            (QuorumRule::OneOfN, counts(0, 2, 0, 0), ChainState::Rejected),
            (QuorumRule::OneOfN, counts(0, 1, 1, 0), ChainState::Rejected),
            (QuorumRule::OneOfN, counts(0, 0, 2, 0), ChainState::Withdrawn),
        ] {
            assert_eq!(evaluate(rule, counts), expected, "{rule:?} {counts:?}");
        }
    }
}
