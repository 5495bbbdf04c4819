//! A process drawn for people: where it is, how it came there, its gates, and what can be done next.

use super::next::{Standing, is_terminal, next_steps};
use super::output::printable;
use super::table::{Table, Tint, tint};
use super::time::when;
use countersign_client::wire::{ApprovalState, Binding, ChainSummary, Gate, GateFate, WorkflowView};
use jiff::Timestamp;

/// The whole picture, with tints.
pub fn render(view: &WorkflowView, now: Timestamp) -> String {
    let mut sections = vec![header(view, now), path(view, now)];
    if !view.gates.is_empty() {
        sections.push(format!("{}\n{}", tint(Tint::Strong, "Gates"), gates_table(&view.gates, now)));
    }
    sections.push(next(view, now));
    sections.join("\n\n")
}

/// An ended process looks different from one that goes on.
pub fn state_tint(view: &WorkflowView) -> Tint {
    if is_terminal(view) { Tint::Strong } else { Tint::Wait }
}

fn header(view: &WorkflowView, now: Timestamp) -> String {
    let ended = if is_terminal(view) { " (ended)" } else { "" };
    let mut lines = vec![format!(
        "{} is in {}{ended}",
        tint(Tint::Strong, &view.subject_ref),
        tint(state_tint(view), &view.current_state)
    )];
    for (name, value) in [
        ("process", printable(&view.instance_id)),
        ("definition", printable(&view.declaration_ref)),
        ("started", format!("{} by {}", when(&view.started_at, now), printable(&view.initiator_ref))),
    ] {
        lines.push(format!("  {} {value}", tint(Tint::Dim, &format!("{name:<10}"))));
    }
    let chosen = match view.declaration_ref.contains('@') {
        false => Some("declared by the initiator".to_owned()),
        true if view.replaced.is_empty() => None,
        true => Some(format!("named by the initiator for {}", printable(&view.replaced.join(", ")))),
    };
    lines.extend(chosen.map(|chosen| format!("  {} {chosen}", tint(Tint::Dim, &format!("{:<10}", "approvers")))));
    lines.join("\n")
}

fn path(view: &WorkflowView, now: Timestamp) -> String {
    let title = tint(Tint::Strong, "Path so far");
    if view.transition_history.is_empty() {
        return format!("{title}\n  nothing has been fired yet");
    }
    let mut table = Table::new(["#", "action", "from → to", "who", "when", "record and gate"]);
    for entry in &view.transition_history {
        let mut evidence = format!("record {}", printable(&entry.event_id));
        if let Some(gate) = entry.step_id.as_ref().or(entry.chain_id.as_ref()) {
            evidence.push_str(&format!("\ngate   {}", printable(gate)));
        }
        table.row([
            entry.sequence_number.to_string(),
            printable(&entry.action),
            format!("{} → {}", printable(&entry.from_state), printable(&entry.to_state)),
            printable(&entry.actor_ref),
            when(&entry.fired_at, now),
            evidence,
        ]);
    }
    format!("{title}\n{table}")
}

/// Every approval step of a process or a run, one row each.
pub fn gates_table(gates: &[Gate], now: Timestamp) -> Table {
    let mut table = Table::new(["action", "guard", "approver", "state", "when", "reason", "step"]);
    for gate in gates {
        let (at, reason) = match gate.state {
            ApprovalState::Pending => (None, None),
            ApprovalState::Approved | ApprovalState::Rejected => {
                (gate.decided_at.as_ref(), gate.decision_reason.as_ref())
            }
            ApprovalState::Withdrawn => (gate.withdrawn_at.as_ref(), gate.withdrawal_reason.as_ref()),
        };
        table.row([
            printable(&gate.action),
            printable(&gate.guard),
            printable(&gate.approver_ref),
            state(gates, gate),
            when(at.unwrap_or(&gate.submitted_at), now),
            printable(reason.map_or("", String::as_str)),
            printable(&gate.step_id),
        ]);
    }
    table
}

/// `Approved, used`; and in the first row of a quorum, where the whole of it stands.
fn state(gates: &[Gate], gate: &Gate) -> String {
    let mut text = if gate.state == ApprovalState::Pending && !gate.waits() {
        tint(Tint::Dim, "Closed, not decided")
    } else {
        approval(gate.state)
    };
    let Some(chain) = &gate.chain else { return text + &fate(gate) };
    if gate.trailing {
        text.push_str(&tint(Tint::Dim, ", too late to count"));
    }
    let of_chain = |other: &&Gate| other.chain.as_ref().is_some_and(|other| other.chain_id == chain.chain_id);
    if gates.iter().find(of_chain).is_some_and(|first| first.step_id == gate.step_id) {
        text.push_str(&format!("\n{}: {}{}", progress(chain), approval(chain.state), fate(gate)));
    }
    text
}

/// What became of the gate's approval.
fn fate(gate: &Gate) -> String {
    match (gate.binding, gate.fate) {
        (Binding::Superseded, _) => tint(Tint::Dim, ", superseded"),
        (Binding::Current, GateFate::Unspent) => String::new(),
        (Binding::Current, GateFate::Consumed) => ", used".to_owned(),
        (Binding::Current, GateFate::Mooted) => ", moot".to_owned(),
    }
}

/// `2 of 3 approved`, and how many are needed while that is still open.
pub fn progress(chain: &ChainSummary) -> String {
    let needed = match chain.state {
        ApprovalState::Pending => format!(", {} needed", chain.needed),
        ApprovalState::Approved | ApprovalState::Rejected | ApprovalState::Withdrawn => String::new(),
    };
    format!("{} of {} approved{needed}", chain.approved, chain.approvers)
}

/// The state of an approval, with its colour.
pub fn approval(state: ApprovalState) -> String {
    match state {
        ApprovalState::Pending => tint(Tint::Wait, "Pending"),
        ApprovalState::Approved => tint(Tint::Good, "Approved"),
        ApprovalState::Rejected => tint(Tint::Bad, "Rejected"),
        ApprovalState::Withdrawn => tint(Tint::Dim, "Withdrawn"),
    }
}

fn next(view: &WorkflowView, now: Timestamp) -> String {
    let title = tint(Tint::Strong, "Next");
    let steps = next_steps(view);
    if steps.is_empty() {
        let why =
            if is_terminal(view) { "nothing: the process has ended" } else { "nothing is declared from this state" };
        return format!("{title}\n  {why}");
    }
    let mut lines = vec![title];
    for step in steps {
        let transition = step.transition;
        let guard =
            transition.guard.as_deref().map_or_else(String::new, |guard| format!(", guarded by {}", printable(guard)));
        let colour = match step.standing {
            Standing::Free | Standing::Cleared => Tint::Good,
            Standing::Waiting | Standing::NotOpen => Tint::Wait,
            Standing::Rejected => Tint::Bad,
            Standing::Withdrawn | Standing::Spent => Tint::Dim,
        };
        lines.push(format!(
            "  {} → {}{guard}: {}",
            tint(Tint::Strong, &transition.action),
            printable(&transition.to),
            tint(colour, &step.describe(now))
        ));
        lines.push(format!("      {}", tint(Tint::Dim, &step.command(&view.instance_id))));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
