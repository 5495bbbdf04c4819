//! What one record tells, in names: who moved, why an attempt ended, and what was decided at a gate.

use super::{items, text};
use countersign_client::wire;
use countersign_engine::purge::ranges;
use countersign_engine::rows::RecordRow;
use countersign_kernel::lifecycle::{RUN_TRANSITIONS, STEP_TRANSITIONS};
use countersign_kernel::plan::{Plan, StepSeq};
use serde_json::Value;
use std::collections::HashMap;

/// Of steps that stand together, so many are named.
const NAMED: usize = 10;
/// Steps of an entry that are looked at, however many there are.
const MOST: usize = 1_000_000;

/// The names of steps in one record. What undoes a step has no name of its own: the record tells that of the step.
pub struct Names<'r> {
    plan: Option<&'r Plan>,
    told: HashMap<u64, &'r str>,
}

impl<'r> Names<'r> {
    pub fn of(plan: Option<&'r Plan>, payload: &'r Value) -> Names<'r> {
        let told = items(payload, "transitions")
            .filter_map(|made| Some((made.get("step_seq")?.as_u64()?, made.get("step")?.as_str()?)))
            .collect();
        Names { plan, told }
    }

    /// The step that this one undoes, where it does.
    fn undone(&self, seq: u64) -> Option<&'r str> {
        let cells = u64::try_from(self.plan?.cell_count()).unwrap_or(u64::MAX);
        if seq < cells { None } else { self.told.get(&seq).copied() }
    }

    fn name(&self, seq: u64) -> String {
        let planned = || self.plan?.step(StepSeq::try_from(seq).ok()?).map(|step| step.name.to_string());
        match (self.undone(seq), self.told.get(&seq)) {
            (Some(undone), _) => format!("undo:{undone}"),
            (None, Some(told)) => (*told).to_owned(),
            (None, None) => planned().unwrap_or_else(|| format!("step {seq}")),
        }
    }

    /// The step of an entry, or those that share it.
    fn of_entry(&self, entry: &Value) -> Option<String> {
        if let Some(seq) = entry.get("step_seq").and_then(Value::as_u64) {
            return Some(self.name(seq));
        }
        let seqs = ranges(entry.get("step_seqs")?.as_str()?, MOST);
        let named: Vec<String> = seqs.iter().take(NAMED).map(|seq| self.name(*seq as u64)).collect();
        let more = match seqs.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("{}{more}", named.join(", ")))
    }
}

pub fn one_move(value: &Value, names: &Names<'_>) -> wire::TimelineMove {
    let member = |name: &str| text(value, name).unwrap_or_default();
    let id = member("id");
    let of_step = value.get("actor_class").is_some();
    let emits = if of_step {
        let of_task = text(value, "step").is_some_and(|step| step.contains('/'));
        let emits = STEP_TRANSITIONS.iter().find(|row| row.id == id).map(|row| row.emits);
        emits.map(|emits| if of_task { emits.replacen("step.", "task.", 1) } else { emits.to_owned() })
    } else {
        RUN_TRANSITIONS.iter().find(|row| row.id == id).map(|row| row.emits().to_owned())
    };
    let undone = value.get("step_seq").and_then(Value::as_u64).and_then(|seq| names.undone(seq));
    wire::TimelineMove {
        step: text(value, "step").or_else(|| names.of_entry(value)),
        compensates: undone.map(str::to_owned),
        from_state: member("from"),
        to_state: member("to"),
        actor_class: text(value, "actor_class"),
        trigger_ref: member("trigger"),
        emitted_event_type: emits,
        transition_id: id,
    }
}

/// The attempts that ended without success.
pub fn errors(payload: &Value, names: &Names<'_>) -> Vec<wire::TimelineError> {
    let one = |error: &Value| {
        Some(wire::TimelineError {
            step: names.of_entry(error)?,
            attempt: error.get("attempts").and_then(Value::as_u64).unwrap_or_default().max(1),
            error: text(error, "last_error"),
            error_category: text(error, "error_category"),
            retried: error.get("next_run_at_us").is_some(),
        })
    };
    items(payload, "errors").filter_map(one).collect()
}

/// What the record says of a gate, if it is about one.
pub fn gate(row: &RecordRow, payload: &Value) -> Option<wire::TimelineGate> {
    let (approvers, decision) = match row.action_ref.as_str() {
        "gate_opened" => {
            let of_chain = items(payload, "steps").filter_map(|step| text(step, "approver_ref"));
            (text(payload, "approver_ref").into_iter().chain(of_chain).collect(), None)
        }
        "gate_decided" => (vec![], text(payload, "decision")),
        "chain_resolved" => (vec![], text(payload, "outcome")),
        "moot_gate_recalled" => (vec![], Some("recalled".to_owned())),
        _ => return None,
    };
    Some(wire::TimelineGate { action: text(payload, "action")?, approvers, decision })
}
