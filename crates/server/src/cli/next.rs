//! What can be done with a process now, and what stands in the way: the declared transitions from its
//! current state, each with the standing of its gate. Derived from the view alone; the server has the
//! last word.

use super::output::{printable, shell_word};
use super::time::ago;
use super::view::progress;
use countersign_client::wire::{ApprovalState, Binding, Gate, GateFate, Transition, WorkflowView};
use jiff::Timestamp;

pub struct NextStep<'a> {
    pub transition: &'a Transition,
    pub standing: Standing,
    /// The gate that a firing would look at: one approval step, or all of a quorum.
    gates: Vec<&'a Gate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Needs no approval.
    Free,
    NotOpen,
    Waiting,
    Cleared,
    Rejected,
    Withdrawn,
    /// Approved, but used by a firing or left behind: one approval, one firing.
    Spent,
}

pub fn is_terminal(view: &WorkflowView) -> bool {
    view.declaration.terminal_states.contains(&view.current_state)
}

/// The transitions from the current state, in the order of the declaration.
pub fn next_steps(view: &WorkflowView) -> Vec<NextStep<'_>> {
    let from_here = view.declaration.transitions.iter().filter(|transition| transition.from == view.current_state);
    from_here
        .map(|transition| {
            let bound = |gate: &&Gate| {
                gate.action == transition.action
                    && gate.from_state == transition.from
                    && gate.binding == Binding::Current
            };
            let gates: Vec<&Gate> = view.gates.iter().filter(bound).collect();
            let standing = if transition.guard.is_none() { Standing::Free } else { standing(&gates) };
            NextStep { transition, standing, gates }
        })
        .collect()
}

fn standing(gates: &[&Gate]) -> Standing {
    let Some(first) = gates.first() else { return Standing::NotOpen };
    match first.outcome() {
        ApprovalState::Pending => Standing::Waiting,
        ApprovalState::Rejected => Standing::Rejected,
        ApprovalState::Withdrawn => Standing::Withdrawn,
        ApprovalState::Approved => match first.fate {
            GateFate::Unspent => Standing::Cleared,
            GateFate::Consumed | GateFate::Mooted => Standing::Spent,
        },
    }
}

impl NextStep<'_> {
    /// The standing for people, printable.
    pub fn describe(&self, now: Timestamp) -> String {
        let by = |name: fn(&Gate) -> Option<&String>, state: ApprovalState| {
            let counts = |gate: &&&Gate| gate.state == state && !gate.trailing;
            let shown = |gate: &Gate| {
                let approver = gate.on_behalf_of.as_ref().map(|approver| format!(" on behalf of {approver}"));
                name(gate).map(|name| printable(&(name.clone() + &approver.unwrap_or_default())))
            };
            let names: Vec<String> = self.gates.iter().filter(counts).filter_map(|gate| shown(gate)).collect();
            if names.is_empty() { String::new() } else { format!(" by {}", names.join(", ")) }
        };
        match self.standing {
            Standing::Free => "free to fire".to_owned(),
            Standing::NotOpen => "its gate is not open".to_owned(),
            Standing::Waiting => self.waiting(now),
            Standing::Cleared => format!("approved{}", by(|gate| gate.decided_by.as_ref(), ApprovalState::Approved)),
            Standing::Rejected => format!("rejected{}", by(|gate| gate.decided_by.as_ref(), ApprovalState::Rejected)),
            Standing::Withdrawn => {
                format!("withdrawn{}", by(|gate| gate.withdrawn_by.as_ref(), ApprovalState::Withdrawn))
            }
            Standing::Spent => "its approval is spent".to_owned(),
        }
    }

    fn waiting(&self, now: Timestamp) -> String {
        let undecided: Vec<String> =
            self.gates.iter().filter(|gate| gate.waits()).map(|gate| printable(&gate.approver_ref)).collect();
        let since =
            self.gates.first().map_or_else(String::new, |gate| format!(", opened {}", ago(&gate.submitted_at, now)));
        let progress = match self.gates.first().and_then(|gate| gate.chain.as_ref()) {
            Some(chain) => format!("{}, ", progress(chain)),
            None => String::new(),
        };
        format!("{progress}waiting for {}{since}", undecided.join(", "))
    }

    /// The command that takes it further.
    pub fn command(&self, instance_id: &str) -> String {
        let (instance, action) = (shell_word(instance_id), shell_word(&self.transition.action));
        match self.standing {
            Standing::Free | Standing::Cleared => format!("countersign fire {instance} {action}"),
            Standing::Waiting => format!("countersign gate decide {instance} {action} approve"),
            Standing::NotOpen | Standing::Rejected | Standing::Withdrawn | Standing::Spent => {
                format!("countersign gate open {instance} {action}")
            }
        }
    }
}
