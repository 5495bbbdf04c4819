//! The gates of a process or a run from its records alone: whom they name, and who approved before what.

use super::scopes::Kind;
use super::{Entry, Finding, Pager};
use crate::cli::time::at;
use countersign_client::wire::RecordQuery;
use countersign_client::{Client, Error};
use serde_json::Value;
use std::collections::HashMap;

/// What is remembered of a process or a run.
#[derive(Default)]
pub struct Known {
    pub kind: Kind,
    /// The name of its definition.
    pub definition: Option<String>,
    pub gates: HashMap<String, Gate>,
    /// An opening or a decision was purged or is damaged, and nobody can tell any more of which gate it was.
    lost: bool,
}

#[derive(Default)]
pub struct Gate {
    /// step_id → approver_ref.
    approvers: HashMap<String, String>,
    submitter: String,
    needed: usize,
    /// Approvals by the step's approver or in their place: sequence, who, time.
    approvals: Vec<(u64, String, String)>,
}

impl Known {
    /// Reads what the process's records say.
    pub async fn read(client: &Client, instance_id: &str) -> Result<Known, Error> {
        let mut known = Known::default();
        for action_ref in ["workflow_started", "run_started", "chain_initiated", "gate_opened", "gate_decided"] {
            let query = RecordQuery {
                instance_id: Some(instance_id.to_owned()),
                action_ref: Some(action_ref.to_owned()),
                ..RecordQuery::default()
            };
            let mut pager = Pager::new(client, query);
            loop {
                let page = match pager.next().await {
                    Err(Error::Refused(problem)) if problem.status >= 500 => {
                        known.lost = true;
                        break;
                    }
                    page => page?,
                };
                if page.is_empty() {
                    break;
                }
                page.iter().for_each(|entry| known.note(entry));
            }
        }
        Ok(known)
    }

    fn note(&mut self, entry: &Entry) {
        let text = |name: &str| entry.text(name).unwrap_or_default().to_owned();
        if entry.is("workflow_started") || entry.is("run_started") {
            self.kind = match (entry.is("run_started"), entry.text("parent_run_id")) {
                (false, _) => Kind::of(entry.text("definition").unwrap_or_default()),
                (true, None) => Kind::Run,
                (true, Some(_)) => Kind::Child,
            };
            let named = entry.text("definition").and_then(|text| text.split_once('@'));
            self.definition = named.map(|(name, _)| name.to_owned());
            return;
        }
        self.lost |= entry.record.payload.is_null();
        let Some(gate_id) = entry.gate_id() else { return };
        let gate = self.gates.entry(gate_id.to_owned()).or_default();
        let payload = &entry.record.payload;
        match entry.record.action_ref.as_str() {
            "chain_initiated" => {
                let all = payload.get("steps").and_then(Value::as_array).map_or(0, Vec::len);
                gate.needed = match (entry.text("quorum_rule"), payload.get("m").and_then(Value::as_u64)) {
                    (Some("one-of-n"), _) => 1,
                    (Some("m-of-n"), Some(m)) => usize::try_from(m).unwrap_or(all),
                    _ => all,
                };
            }
            "gate_opened" => {
                gate.submitter = text("submitter_ref");
                gate.needed = gate.needed.max(1);
                if let Some(step_id) = entry.text("step_id") {
                    gate.approvers.insert(step_id.to_owned(), text("approver_ref"));
                }
                for step in payload.get("steps").and_then(Value::as_array).into_iter().flatten() {
                    let member = |name: &str| step.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                    gate.approvers.insert(member("step_id"), member("approver_ref"));
                }
            }
            _ => {
                let named = gate.approvers.get(&text("step_id")).map(String::as_str);
                if entry.text("decision") == Some("approve") && named == Some(entry.approver()) {
                    let by = format!("{}{}", entry.record.actor_ref, entry.in_place_of());
                    gate.approvals.push((entry.record.sequence, by, entry.record.recorded_at.clone()));
                }
            }
        }
    }
}

impl Gate {
    /// As many have approved as have to.
    pub fn is_cleared(&self) -> bool {
        self.needed > 0 && self.approvals.len() >= self.needed
    }
}

/// For a decision: that it is by whom the gate names. For a guarded firing: who had approved it.
pub fn approval(entry: &Entry, known: &Known, gate_id: &str) -> Result<String, Finding> {
    let event_id = Some(entry.record.event_id.as_str());
    let Some(gate) = known.gates.get(gate_id).filter(|gate| !gate.approvers.is_empty()) else {
        let never = Finding::new("binding-invalid", event_id, format!("no record opened gate {gate_id}"));
        return if known.lost {
            Ok(", the opening of its gate cannot be read any more".to_owned())
        } else {
            Err(never)
        };
    };
    let actor = &entry.record.actor_ref;
    if entry.is("gate_decided") {
        let named = match entry.text("decision") {
            Some("withdraw") => gate.submitter == *actor,
            _ => entry
                .text("step_id")
                .and_then(|step_id| gate.approvers.get(step_id))
                .is_some_and(|named| named == entry.approver()),
        };
        let wrong = || Finding::new("wrong-approver", event_id, format!("{actor} is not whom the gate names"));
        return if named { Ok(String::new()) } else { Err(wrong()) };
    }
    let before: Vec<String> = gate
        .approvals
        .iter()
        .filter(|(sequence, ..)| *sequence < entry.record.sequence)
        .map(|(_, by, time)| format!("{by} ({})", at(time)))
        .collect();
    if before.len() >= gate.needed {
        return Ok(format!(", approved by {}", before.join(" and ")));
    }
    if known.lost {
        return Ok(", its approval cannot be read any more".to_owned());
    }
    let detail = format!("it fired with {} of {} approvals", before.len(), gate.needed);
    Err(Finding::new("gate-not-approved", event_id, detail))
}
