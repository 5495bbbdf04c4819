//! A declaration is the finite map a process moves on: states, transitions, guards. It is a value:
//! checked once, then carried by the instance unchanged, in the order its author wrote it.

use crate::plan::Template;
use crate::refusal::{Code, Refusal, require_ref};
use crate::text::is_blank;
use std::collections::{HashMap, HashSet};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Declaration {
    pub states: Vec<String>,
    pub transitions: Vec<Transition>,
    pub initial_state: String,
    pub terminal_states: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transition {
    pub from_state: String,
    pub action: String,
    pub to_state: String,
    /// The label of the approval that this transition needs.
    pub guard: Option<String>,
    /// What its firing causes beside the move, committed with it.
    pub effects: Vec<Effect>,
}

/// What a firing causes. Templates name the firing as `event`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// A run of this workflow; the version was fixed when the process was published.
    Start {
        definition: String,
        version: Option<u32>,
        input: Option<Template>,
    },
    Event {
        event_type: String,
        data: Option<Template>,
    },
}

/// One fault of a declaration, at the place where its author would look for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// `states[1]`, `transitions[3].to`, `initial_state`.
    pub path: String,
    pub kind: FaultKind,
    pub message: String,
}

/// The problem codes of a process definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    NoStates,
    Blank,
    DuplicateState,
    UnknownState,
    InitialTerminal,
    ExitFromTerminal,
    DuplicateTransition,
}

impl FaultKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            FaultKind::NoStates => "no-states",
            FaultKind::Blank => "blank",
            FaultKind::DuplicateState => "duplicate-state",
            FaultKind::UnknownState => "unknown-state",
            FaultKind::InitialTerminal => "initial-terminal",
            FaultKind::ExitFromTerminal => "exit-from-terminal",
            FaultKind::DuplicateTransition => "duplicate-transition",
        }
    }
}

impl Declaration {
    /// The transition that `action` takes from `state`, if one is declared.
    pub fn transition(&self, state: &str, action: &str) -> Option<&Transition> {
        self.transitions.iter().find(|t| t.from_state == state && t.action == action)
    }

    pub fn is_terminal(&self, state: &str) -> bool {
        self.terminal_states.iter().any(|terminal| terminal == state)
    }

    /// Guard labels in the order in which they are first declared.
    pub fn guard_labels(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        self.transitions.iter().filter_map(|t| t.guard.as_deref()).filter(|label| seen.insert(*label)).collect()
    }

    /// Refuses a declaration with any fault, naming the first and how many more there are.
    pub fn validate(&self) -> Result<(), Refusal> {
        let faults = self.faults();
        let Some(first) = faults.first() else { return Ok(()) };
        let more = match faults.len() - 1 {
            0 => String::new(),
            1 => " (and 1 more fault)".to_owned(),
            n => format!(" (and {n} more faults)"),
        };
        Err(Refusal::new(Code::InvalidDeclaration, format!("{}: {}{more}", first.path, first.message))
            .at(first.path.clone()))
    }

    /// Names are indexed, shown and recorded with every step: each must be a reference like any other.
    pub fn validate_names(&self, prefix: &str) -> Result<(), Refusal> {
        for (i, state) in self.states.iter().enumerate() {
            require_ref(&format!("{prefix}states[{i}]"), state)?;
        }
        for (i, transition) in self.transitions.iter().enumerate() {
            require_ref(&format!("{prefix}transitions[{i}].action"), &transition.action)?;
            if let Some(guard) = &transition.guard {
                require_ref(&format!("{prefix}transitions[{i}].guard"), guard)?;
            }
        }
        Ok(())
    }

    /// All faults, in document order. Unreachable states, dead ends, self-loops and an empty terminal
    /// set are legal: they are the author's business.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut add = |path: String, kind, message: String| faults.push(Fault { path, kind, message });

        if self.states.is_empty() {
            add("states".into(), FaultKind::NoStates, "a process needs at least one state".into());
        }
        let mut first_at = HashMap::new();
        for (i, state) in self.states.iter().enumerate() {
            if is_blank(state) {
                add(format!("states[{i}]"), FaultKind::Blank, "a state needs a name".into());
            } else if let Some(first) = first_at.insert(state.as_str(), i) {
                add(
                    format!("states[{i}]"),
                    FaultKind::DuplicateState,
                    format!("state `{state}` is declared already at states[{first}]"),
                );
            }
        }
        let known = |state: &str| first_at.contains_key(state);

        if !known(&self.initial_state) {
            add("initial_state".into(), unknown_kind(&self.initial_state), unknown_state(&self.initial_state));
        } else if self.is_terminal(&self.initial_state) {
            add(
                "initial_state".into(),
                FaultKind::InitialTerminal,
                format!("the process would start in `{}`, which is terminal", self.initial_state),
            );
        }
        for (i, state) in self.terminal_states.iter().enumerate() {
            if !known(state) {
                add(format!("terminal_states[{i}]"), unknown_kind(state), unknown_state(state));
            }
        }

        let mut first_pair = HashMap::new();
        for (i, t) in self.transitions.iter().enumerate() {
            if is_blank(&t.action) {
                add(format!("transitions[{i}].action"), FaultKind::Blank, "a transition needs an action".into());
            }
            if !known(&t.from_state) {
                add(format!("transitions[{i}].from"), unknown_kind(&t.from_state), unknown_state(&t.from_state));
            } else if self.is_terminal(&t.from_state) {
                add(
                    format!("transitions[{i}].from"),
                    FaultKind::ExitFromTerminal,
                    format!("`{}` is terminal: nothing may leave it", t.from_state),
                );
            }
            if !known(&t.to_state) {
                add(format!("transitions[{i}].to"), unknown_kind(&t.to_state), unknown_state(&t.to_state));
            }
            if t.guard.as_deref().is_some_and(is_blank) {
                add(
                    format!("transitions[{i}].guard"),
                    FaultKind::Blank,
                    "a guard needs a label; leave the field out for an unguarded transition".into(),
                );
            }
            if let Some(first) = first_pair.insert((t.from_state.as_str(), t.action.as_str()), i) {
                add(
                    format!("transitions[{i}]"),
                    FaultKind::DuplicateTransition,
                    format!("`{}` from `{}` is declared already at transitions[{first}]", t.action, t.from_state),
                );
            }
        }
        faults
    }
}

fn unknown_kind(state: &str) -> FaultKind {
    if is_blank(state) { FaultKind::Blank } else { FaultKind::UnknownState }
}

fn unknown_state(state: &str) -> String {
    if is_blank(state) {
        "a state is missing here".into()
    } else {
        format!("`{state}` is not one of the declared states")
    }
}
