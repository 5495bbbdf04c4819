//! The acceptance checks of seed 000 ("Generation acceptance", 1 to 5), made as an outside auditor would make them:
//! from the reads alone, without the engine's own judgement.

use crate::drive::{ADMIN, APPLICATION, Driver, Failure, GateStep, Record, View};
use countersign_kernel::gate_spec::{GateEntry, QuorumRule};
use std::collections::{BTreeMap, BTreeSet};

pub async fn audit(driver: &mut dyn Driver, instance_id: &str) -> Result<(), String> {
    let works = |failure: Failure| failure.to_string();
    let view = driver.read(ADMIN, instance_id).await.map_err(works)?;
    let records = driver.records(instance_id).await.map_err(works)?;
    examine(&view, &records)?;
    permitted(driver, &view, &records).await?;
    stores_agree(driver, &view).await?;
    driver.verify(instance_id).await.map_err(works)
}

/// What the view and the records say for themselves.
pub fn examine(view: &View, records: &[Record]) -> Result<(), String> {
    // A check that needs destroyed content is not possible any more.
    let whole = !records.iter().any(|record| record.payload.is_null());
    numbered(records)?;
    if whole {
        gated(view, records)?;
    }
    declared(view)?;
    if whole {
        complete(view, records)?;
    }
    covered(view)?;
    attributed(records)
}

fn numbered(records: &[Record]) -> Result<(), String> {
    let sequences: Vec<u64> = records.iter().map(|record| record.sequence).collect();
    if sequences == (1..=records.len() as u64).collect::<Vec<_>>() {
        Ok(())
    } else {
        Err(format!("gaps: {sequences:?}"))
    }
}

fn member<'r>(record: &'r Record, name: &str) -> Option<&'r str> {
    record.payload.get(name).and_then(|value| value.as_str())
}

/// Check 1: every guarded entry of the history has its approval, by those whom the gate_spec names.
fn gated(view: &View, records: &[Record]) -> Result<(), String> {
    let mut spent = BTreeSet::new();
    for entry in &view.history {
        let finding = |what: &str| Err(format!("check 1: entry {} ({}): {what}", entry.sequence_number, entry.action));
        let transition = view.declaration.transition(&entry.from_state, &entry.action);
        let Some(guard) = transition.and_then(|transition| transition.guard.as_ref()) else {
            if entry.guard_satisfied.is_some() || entry.gate_id.is_some() {
                return finding("a free move that claims an approval");
            }
            continue;
        };
        let (Some(true), Some(gate_id)) = (entry.guard_satisfied, &entry.gate_id) else {
            return finding("a guarded move without an approval");
        };
        if !spent.insert(gate_id) {
            return finding("its approval served another firing");
        }
        let Some(record) = records.iter().find(|record| record.event_id == entry.event_id) else {
            return finding("its record is missing");
        };
        if member(record, "step_id").or(member(record, "chain_id")) != Some(gate_id) {
            return finding("its record names another approval");
        }
        let steps: Vec<&GateStep> = view.gates.iter().filter(|gate| gate.gate_id() == gate_id).collect();
        let bound = steps.iter().all(|gate| gate.from_state == entry.from_state && gate.step.action == entry.action);
        if steps.is_empty() || !bound || steps.iter().any(|gate| gate.guard != *guard) {
            return finding("its gate is bound to something else");
        }
        if !approved(&view.gate_spec.0[guard], &steps) {
            return finding("those whom the gate_spec names did not approve");
        }
    }
    Ok(())
}

fn approved(entry: &GateEntry, steps: &[&GateStep]) -> bool {
    let named = entry.approvers();
    let approvals = steps.iter().filter(|gate| {
        let step = &gate.step;
        step.state == "Approved"
            && step.ended_by.as_ref() == Some(&step.approver_ref)
            && named.contains(&step.approver_ref)
    });
    let needed = match entry {
        GateEntry::Single { .. } | GateEntry::Quorum { rule: QuorumRule::OneOfN, .. } => 1,
        GateEntry::Quorum { rule: QuorumRule::AllOfN, approvers, .. } => approvers.len(),
        GateEntry::Quorum { rule: QuorumRule::MOfN { m }, .. } => *m as usize,
    };
    steps.len() == named.len() && approvals.count() >= needed
}

/// Check 2: only declared transitions, and the history replays to the current state.
fn declared(view: &View) -> Result<(), String> {
    let mut state = &view.declaration.initial_state;
    for (number, entry) in (1..).zip(&view.history) {
        let declared = view.declaration.transition(&entry.from_state, &entry.action);
        let fits = declared.is_some_and(|transition| transition.to_state == entry.to_state);
        if entry.sequence_number != number || entry.from_state != *state || !fits {
            return Err(format!("check 2: entry {number} is {entry:?}, after `{state}`"));
        }
        state = &entry.to_state;
    }
    if *state == view.current_state {
        Ok(())
    } else {
        Err(format!("check 2: replays to `{state}`, not to `{}`", view.current_state))
    }
}

/// Check 3: one record for every start, opening, decision and firing, and none for anything else.
fn complete(view: &View, records: &[Record]) -> Result<(), String> {
    let of = |action_ref: &str| records.iter().filter(|r| r.action_ref == action_ref).collect::<Vec<_>>();
    let finding = |what: String| Err(format!("check 3: {what}"));
    if of("workflow_started").len() != 1 || records[0].action_ref != "workflow_started" {
        return finding("the records do not begin with one start".into());
    }
    let gates: BTreeSet<&str> = view.gates.iter().map(GateStep::gate_id).collect();
    let gate_of = |record: &&Record| member(record, "chain_id").or(member(record, "step_id")).map(str::to_owned);
    let opened: Vec<String> = of("gate_opened").iter().filter_map(gate_of).collect();
    if opened.len() != gates.len() || opened.iter().any(|id| !gates.contains(id.as_str())) {
        return finding(format!("{} gates, but openings of {opened:?}", gates.len()));
    }
    let fired: Vec<&str> = of("transition_fired").iter().map(|record| record.event_id.as_str()).collect();
    let history: Vec<&str> = view.history.iter().map(|entry| entry.event_id.as_str()).collect();
    if fired != history {
        return finding(format!("the history names the records {history:?}, recorded are {fired:?}"));
    }
    for action_ref in ["gate_decided", "moot_gate_recalled"] {
        if let Some(stray) = of(action_ref).iter().filter_map(gate_of).find(|id| !gates.contains(id.as_str())) {
            return finding(format!("{action_ref} of a gate that there is not: {stray}"));
        }
    }
    let mut decisions: BTreeMap<&str, usize> = BTreeMap::new();
    for record in of("gate_decided") {
        *decisions.entry(member(record, "step_id").unwrap_or_default()).or_default() += 1;
    }
    for gate in view.gates.iter().filter(|gate| matches!(gate.step.state.as_str(), "Approved" | "Rejected")) {
        if decisions.get(gate.step.step_id.as_str()) != Some(&1) {
            return finding(format!("{:?} is decided, but not by one gate_decided", gate.step));
        }
    }
    Ok(())
}

/// Check 4: what waits is in exactly one in-tray, what is decided in none, and nothing waits in a state
/// that was left. A chain's steps count while the chain is Pending.
fn covered(view: &View) -> Result<(), String> {
    for gate in &view.gates {
        let waits = gate.step.state == "Pending" && gate.gate_state() == "Pending";
        let active = gate.assignment_status == "Active";
        let left = gate.from_state != view.current_state;
        if waits != active || (left && gate.step.state == "Pending") {
            return Err(format!("check 4: {gate:?} while the process is in `{}`", view.current_state));
        }
    }
    Ok(())
}

/// The application actor recalls and resolves; every other act is by another actor.
fn attributed(records: &[Record]) -> Result<(), String> {
    for record in records {
        let own = match record.action_ref.as_str() {
            "moot_gate_recalled" | "chain_resolved" => true,
            "step_withdrawn" => record.actor_ref == APPLICATION,
            _ => false,
        };
        if own != (record.actor_ref == APPLICATION) {
            return Err(format!("{} is attributed to {}", record.action_ref, record.actor_ref));
        }
    }
    Ok(())
}

/// Check 5: the actor who started, opened or fired held the scope at that time, the general or the finer one.
async fn permitted(driver: &mut dyn Driver, view: &View, records: &[Record]) -> Result<(), String> {
    let definition = records.first().and_then(|record| member(record, "definition"));
    let name = definition.and_then(|definition| definition.rsplit_once('@')).map(|(name, _)| name);
    for record in records {
        let scope = match record.action_ref.as_str() {
            "workflow_started" => "workflows:start",
            "gate_opened" => "workflows:open-gate",
            "transition_fired" => "workflows:fire",
            _ => continue,
        };
        let mut held = false;
        for scope in [Some(scope.to_owned()), name.map(|name| format!("{scope}:{name}"))].into_iter().flatten() {
            held |= driver.held(&record.actor_ref, &scope, record).await.map_err(|failure| failure.to_string())?;
        }
        if !held {
            let Record { action_ref, actor_ref, sequence, .. } = record;
            let id = &view.instance_id;
            return Err(format!(
                "check 5: {actor_ref} did not hold {scope} for {action_ref}, record {sequence} of {id}"
            ));
        }
    }
    Ok(())
}

/// The composed view says what the constituent stores say.
async fn stores_agree(driver: &mut dyn Driver, view: &View) -> Result<(), String> {
    let works = |failure: Failure| failure.to_string();
    let mut stored = driver.approval_steps(&view.instance_id).await.map_err(works)?;
    let mut shown: Vec<_> = view.gates.iter().map(|gate| gate.step.clone()).collect();
    stored.sort_by(|a, b| a.step_id.cmp(&b.step_id));
    shown.sort_by(|a, b| a.step_id.cmp(&b.step_id));
    if stored != shown {
        return Err(format!("the approval steps are {stored:?}, the view shows {shown:?}"));
    }
    for gate in &view.gates {
        let assignments = driver.assignments(&gate.step.step_id).await.map_err(works)?;
        let [assignment] = assignments.as_slice() else {
            return Err(format!("{} assignments of {:?}", assignments.len(), gate.step));
        };
        if assignment.assignee_ref != gate.step.approver_ref || assignment.status != gate.assignment_status {
            return Err(format!("{assignment:?}, but the view shows {gate:?}"));
        }
        if gate.step.submitter_ref != view.initiator_ref {
            return Err(format!("submitted in the name of {}, not of the initiator", gate.step.submitter_ref));
        }
    }
    Ok(())
}
