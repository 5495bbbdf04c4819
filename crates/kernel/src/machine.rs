//! `fire`: the one way in which anything changes state. A user's process and the engine's own
//! lifecycles (approval step, assignment, quorum chain) are all declared machines, and all of them
//! move through this function.

use crate::declaration::{Declaration, Transition};
use crate::lifecycle::Guard;
use std::sync::LazyLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineRefusal {
    Terminal,
    InvalidTransition,
    GuardNotSatisfied,
}

/// The declared transition that `action` takes from `current_state`. A guarded one is taken only on
/// `guard_satisfied = Some(true)`; the machine judges nothing, it demands the assertion.
pub fn fire<'d>(
    declaration: &'d Declaration,
    current_state: &str,
    action: &str,
    guard_satisfied: Option<bool>,
) -> Result<&'d Transition, MachineRefusal> {
    if declaration.is_terminal(current_state) {
        return Err(MachineRefusal::Terminal);
    }
    let transition = declaration.transition(current_state, action).ok_or(MachineRefusal::InvalidTransition)?;
    if transition.guard.is_some() && guard_satisfied != Some(true) {
        return Err(MachineRefusal::GuardNotSatisfied);
    }
    Ok(transition)
}

/// A lifecycle of the engine itself, written down as data.
pub struct MachineTable {
    pub name: &'static str,
    pub states: &'static [&'static str],
    pub initial_state: &'static str,
    pub terminal_states: &'static [&'static str],
    /// (from, action, to, guards)
    pub transitions: &'static [(&'static str, &'static str, &'static str, &'static [Guard])],
}

pub const APPROVAL_STEP: MachineTable = MachineTable {
    name: "approval-step",
    states: &["Pending", "Approved", "Rejected", "Withdrawn"],
    initial_state: "Pending",
    terminal_states: &["Approved", "Rejected", "Withdrawn"],
    transitions: &[
        ("Pending", "approve", "Approved", &[Guard::ActorIsApprover]),
        ("Pending", "reject", "Rejected", &[Guard::ActorIsApprover]),
        ("Pending", "withdraw", "Withdrawn", &[Guard::ActorIsSubmitter]),
    ],
};

pub const ASSIGNMENT: MachineTable = MachineTable {
    name: "assignment",
    states: &["Active", "Recalled", "Transferred"],
    initial_state: "Active",
    terminal_states: &["Recalled", "Transferred"],
    transitions: &[
        ("Active", "recall", "Recalled", &[]),
        ("Active", "reassign", "Transferred", &[Guard::ActorIsApprover]),
    ],
};

pub const CHAIN: MachineTable = MachineTable {
    name: "approval-chain",
    states: &["Pending", "Approved", "Rejected", "Withdrawn"],
    initial_state: "Pending",
    terminal_states: &["Approved", "Rejected", "Withdrawn"],
    transitions: &[
        ("Pending", "quorum-approved", "Approved", &[Guard::QuorumRule]),
        ("Pending", "quorum-rejected", "Rejected", &[Guard::QuorumRule]),
        ("Pending", "quorum-withdrawn", "Withdrawn", &[Guard::QuorumRule]),
    ],
};

impl MachineTable {
    /// What is asked before this action is taken.
    pub fn guards(&self, action: &str) -> &'static [Guard] {
        self.transitions.iter().find(|(_, name, ..)| *name == action).map_or(&[], |(.., guards)| *guards)
    }

    pub fn declaration(&self) -> Declaration {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Declaration {
            states: owned(self.states),
            transitions: self
                .transitions
                .iter()
                .map(|(from, action, to, _)| Transition {
                    from_state: (*from).to_owned(),
                    action: (*action).to_owned(),
                    to_state: (*to).to_owned(),
                    guard: None,
                    effects: vec![],
                })
                .collect(),
            initial_state: self.initial_state.to_owned(),
            terminal_states: owned(self.terminal_states),
        }
    }
}

static APPROVAL_STEP_MACHINE: LazyLock<Declaration> = LazyLock::new(|| APPROVAL_STEP.declaration());
static ASSIGNMENT_MACHINE: LazyLock<Declaration> = LazyLock::new(|| ASSIGNMENT.declaration());
static CHAIN_MACHINE: LazyLock<Declaration> = LazyLock::new(|| CHAIN.declaration());

macro_rules! state_enum {
    ($(#[$doc:meta])* $name:ident on $machine:ident { $($state:ident),* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($state,)* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$state,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $($name::$state => stringify!($state),)* }
            }

            pub fn parse(text: &str) -> Option<Self> {
                match text { $(stringify!($state) => Some($name::$state),)* _ => None }
            }

            /// Where the declared machine goes from here on `action`; `None` where it does not go.
            pub fn after(self, action: &str) -> Option<Self> {
                fire(&$machine, self.as_str(), action, None).ok().and_then(|t| Self::parse(&t.to_state))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

state_enum!(
    /// State of one approval step.
    StepState on APPROVAL_STEP_MACHINE { Pending, Approved, Rejected, Withdrawn }
);
state_enum!(
    /// State of an entry in an in-tray.
    AssignmentStatus on ASSIGNMENT_MACHINE { Active, Recalled, Transferred }
);
state_enum!(
    /// State of a quorum.
    ChainState on CHAIN_MACHINE { Pending, Approved, Rejected, Withdrawn }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_own_machines_are_valid_declarations() {
        for table in [APPROVAL_STEP, ASSIGNMENT, CHAIN] {
            assert_eq!(table.declaration().faults(), vec![], "{}", table.name);
        }
    }

    /// Every state × action of the approval step: three moves exist, all out of Pending.
    #[test]
    fn approval_step_moves_only_as_declared() {
        for state in StepState::ALL {
            for action in ["approve", "reject", "withdraw", "reopen", ""] {
                let expected = match (state, action) {
                    (StepState::Pending, "approve") => Some(StepState::Approved),
                    (StepState::Pending, "reject") => Some(StepState::Rejected),
                    (StepState::Pending, "withdraw") => Some(StepState::Withdrawn),
                    _ => None,
                };
                assert_eq!(state.after(action), expected, "{state} {action}");
            }
        }
    }

    #[test]
    fn a_guard_wants_the_assertion_and_nothing_less() {
        let declaration = Declaration {
            states: vec!["a".into(), "b".into()],
            transitions: vec![Transition {
                from_state: "a".into(),
                action: "go".into(),
                to_state: "b".into(),
                guard: Some("g".into()),
                effects: vec![],
            }],
            initial_state: "a".into(),
            terminal_states: vec!["b".into()],
        };
        assert_eq!(fire(&declaration, "a", "go", None), Err(MachineRefusal::GuardNotSatisfied));
        assert_eq!(fire(&declaration, "a", "go", Some(false)), Err(MachineRefusal::GuardNotSatisfied));
        assert_eq!(fire(&declaration, "a", "go", Some(true)).map(|t| t.to_state.as_str()), Ok("b"));
        assert_eq!(fire(&declaration, "a", "stay", Some(true)), Err(MachineRefusal::InvalidTransition));
        assert_eq!(fire(&declaration, "b", "go", Some(true)), Err(MachineRefusal::Terminal));
    }
}
