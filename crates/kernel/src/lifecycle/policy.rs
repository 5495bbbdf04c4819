//! How the states of steps become the colour of their run, as data (seed 003, `rollup_policy_def`).

/// One row of the registry: a rule and whether it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollupPolicy {
    pub code: &'static str,
    /// optional steps never count.
    pub mandatory_only: bool,
    /// MP-D4: a block whose severity is red counts as red.
    pub blocked_escalation_treats_as_red: bool,
    pub active: bool,
}

/// The policy that runs are rolled up by. Weights are deferred (§5.4): there is no row that has any.
pub const ROLLUP_POLICY: RollupPolicy = RollupPolicy {
    code: "red_overrides_yellow_overrides_green",
    mandatory_only: true,
    blocked_escalation_treats_as_red: true,
    active: true,
};

pub const ROLLUP_POLICIES: &[RollupPolicy] = &[ROLLUP_POLICY];
