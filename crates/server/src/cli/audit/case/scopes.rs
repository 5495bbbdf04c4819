//! Who needs which scope for which record (`spec/record.md`, section 5.5; `spec/run.md`, section 2). The verifier has its own
//! table, written from the same pages; a test holds the two against each other.

use countersign_kernel::process::{PROPOSAL, REPLAY};
use countersign_kernel::registry::scopes;

/// What a chain of records is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A process, or the registry.
    #[default]
    Process,
    Run,
    /// A run that is a step of another one.
    Child,
    Proposal,
    /// A request to replay a dead letter.
    Replay,
}

impl Kind {
    /// Of a process that was not started for a run, by what it was started from (`name@version`).
    pub fn of(definition: &str) -> Kind {
        match definition.split_once('@').map_or(definition, |(name, _)| name) {
            PROPOSAL => Kind::Proposal,
            REPLAY => Kind::Replay,
            _ => Kind::Process,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    pub scope: &'static str,
    /// Another scope that does as well.
    pub instead: Option<&'static str>,
    /// Whether the scope of one definition does as well: `<scope>:<definition name>`.
    pub by_definition: bool,
}

/// The scope that a record needs, or why it needs none. `class` is the class of the transition of a machine of one's own.
pub fn needed(action_ref: &str, kind: Kind, application: bool, class: Option<&str>) -> Result<Needed, &'static str> {
    let run = matches!(kind, Kind::Run | Kind::Child);
    let own_work = "the software's own work";
    let scope = match action_ref {
        "transition_fired" if matches!(kind, Kind::Proposal | Kind::Replay) && application => {
            return Err("it follows the gate of the approval");
        }
        "workflow_started" | "gate_opened" | "chain_initiated" | "transition_fired" if kind == Kind::Proposal => {
            scopes::PROPOSALS_WRITE
        }
        "workflow_started" | "gate_opened" | "chain_initiated" if kind == Kind::Replay => scopes::GOVERNANCE_ACT,
        "step_retry_ordered" if run && application => return Err("a replay that was approved"),
        "gate_opened" | "chain_initiated" if run && application => return Err("the gates of a run open by themselves"),
        "gate_opened" | "chain_initiated" if run => scopes::RUNS_CONTROL,
        "transition_fired" if run => return Err("the gates of a run are passed by themselves"),
        "workflow_started" => scopes::WORKFLOWS_START,
        "gate_opened" | "chain_initiated" => scopes::WORKFLOWS_OPEN_GATE,
        "transition_fired" => scopes::WORKFLOWS_FIRE,
        "run_started" if application => return Err("a child, or what a schedule asked for"),
        "run_started" => scopes::RUNS_START,
        "steps_claimed" | "step_completed" | "step_waiting" | "step_retried" | "step_failed" | "step_yielded"
        | "pins_captured" | "pins_surveyed" | "child_started"
            if application =>
        {
            return Err(own_work);
        }
        "run_cancelled" | "run_stopped" if application && kind == Kind::Child => {
            return Err("a child follows the run that it is a step of");
        }
        "step_transitioned" => match class {
            Some("reviewer") => scopes::RUNS_CONTROL,
            Some("escalation_handler") => scopes::GOVERNANCE_ACT,
            _ => scopes::TASKS_WORK,
        },
        "steps_claimed"
        | "step_completed"
        | "step_waiting"
        | "step_retried"
        | "step_failed"
        | "step_claimed"
        | "step_reengaged"
        | "step_released"
        | "step_blocked"
        | "step_cannot_complete"
        | "step_yielded"
        | "pins_captured"
        | "pins_surveyed"
        | "child_started" => scopes::TASKS_WORK,
        "step_escalated" => scopes::GOVERNANCE_ACT,
        "run_cancelled" | "run_paused" | "run_resumed" | "run_stopped" | "run_voided" | "step_unblocked"
        | "effect_declared" | "step_retry_ordered" | "block_escalated" | "step_reopened" | "deadline_extended" => {
            scopes::RUNS_CONTROL
        }
        "evidence_exported" => scopes::AUDIT_READ,
        "hold_placed" | "hold_released" => scopes::AUDIT_HOLD,
        "record_purged" => scopes::AUDIT_PURGE,
        "actor_registered" | "credential_issued" | "credential_revoked" | "key_registered" | "key_revoked" => {
            scopes::ACTORS_MANAGE
        }
        "grant_made" | "grant_revoked" => scopes::PERMISSIONS_MANAGE,
        "definition_retired" => scopes::DEFINITIONS_PUBLISH,
        "schedule_paused" | "schedule_resumed" => scopes::RUNS_CONTROL,
        "worker_class_frozen" | "worker_class_thawed" => scopes::GOVERNANCE_ACT,
        "definition_published" => scopes::DEFINITIONS_PUBLISH,
        "delegation_made" | "delegation_revoked" => return Err("every approver names their own substitutes"),
        "gate_decided" | "step_approved" | "step_rejected" | "step_withdrawn" | "chain_withdrawn" => {
            return Err("the gate names who decides it");
        }
        "event_received" => return Err("anybody may send an event that is known"),
        "attempt_refused" => return Err("it was refused"),
        _ => return Err("the software's own record"),
    };
    let instead = match action_ref {
        "step_unblocked" => Some(scopes::TASKS_WORK),
        "block_escalated" => Some(scopes::GOVERNANCE_ACT),
        _ => None,
    };
    let families = ["workflows:", "runs:", "tasks:", "governance:"];
    // A worker class takes work of many definitions.
    let of_class = matches!(action_ref, "worker_class_frozen" | "worker_class_thawed");
    let by_definition = !of_class && families.iter().any(|family| scope.starts_with(family));
    Ok(Needed { scope, instead, by_definition })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const VERIFIER: &str = include_str!("../../../../../verifier/src/permission.rs");
    const ACTIONS: &str = include_str!("../../../../../verifier/src/record.rs");

    /// `RunStarted` → `run_started`, as the verifier names its actions.
    fn actions() -> BTreeMap<String, String> {
        let listed = ACTIONS.split("actions! {").nth(1).and_then(|rest| rest.split("\n}").next()).expect("the actions");
        let one = |line: &str| {
            let (name, rest) = line.trim().split_once(" = \"")?;
            Some((name.to_owned(), rest.split('"').next()?.to_owned()))
        };
        listed.lines().filter_map(one).collect()
    }

    /// What the verifier's function says of each action, in the arms of its `match`: the scope, and whether that of a
    /// definition does.
    fn table(function: &str) -> BTreeMap<String, Option<(String, bool)>> {
        let body = VERIFIER.split(function).nth(1).and_then(|rest| rest.split("\n}").next()).expect("the function");
        let (mut found, mut names) = (BTreeMap::new(), Vec::new());
        for line in body.lines().filter(|line| !line.trim().starts_with("//")) {
            let (left, right) = line.split_once("=>").map_or((line, None), |(left, right)| (left, Some(right)));
            names.extend(
                left.split("Action::")
                    .skip(1)
                    .map(|name| name.chars().take_while(char::is_ascii_alphanumeric).collect::<String>()),
            );
            let Some(right) = right else { continue };
            let scope = right.split('"').nth(1).map(|scope| (scope.to_owned(), right.contains("true")));
            found.extend(names.drain(..).map(|name| (name, scope.clone())));
        }
        found
    }

    #[test]
    fn it_says_what_the_verifiers_table_says() {
        let (actions, theirs, instead) =
            (actions(), table("fn needed(action: Action)"), table("const fn instead(action: Action)"));
        assert!(actions.len() > 55 && theirs.len() == actions.len(), "{} of {}", theirs.len(), actions.len());
        for (name, action_ref) in &actions {
            let ours = needed(action_ref, Kind::Process, false, None);
            let said = ours.ok().map(|needed| (needed.scope.to_owned(), needed.by_definition));
            assert_eq!(said, theirs[name], "{action_ref}");
            let other = instead.get(name).cloned().flatten().map(|(scope, _)| scope);
            assert_eq!(ours.ok().and_then(|needed| needed.instead).map(str::to_owned), other, "{action_ref}");
        }
    }

    #[test]
    fn a_run_asks_for_its_own_scopes() {
        let of =
            |action_ref, kind, application| needed(action_ref, kind, application, None).ok().map(|needed| needed.scope);
        // What `check` of the verifier exempts, and nothing else.
        for (action_ref, kind, application, scope) in [
            ("gate_opened", Kind::Run, true, None),
            ("gate_opened", Kind::Run, false, Some("runs:control")),
            ("chain_initiated", Kind::Child, false, Some("runs:control")),
            ("gate_opened", Kind::Process, true, Some("workflows:open-gate")),
            ("transition_fired", Kind::Run, true, None),
            ("transition_fired", Kind::Process, false, Some("workflows:fire")),
            ("run_started", Kind::Child, true, None),
            ("steps_claimed", Kind::Run, true, None),
            ("pins_surveyed", Kind::Run, true, None),
            ("pins_surveyed", Kind::Run, false, Some("tasks:work")),
            ("run_stopped", Kind::Child, true, None),
            ("run_cancelled", Kind::Child, true, None),
            ("run_stopped", Kind::Run, true, Some("runs:control")),
            ("run_resumed", Kind::Child, true, Some("runs:control")),
            ("effect_declared", Kind::Run, true, Some("runs:control")),
            ("workflow_started", Kind::Proposal, false, Some("proposals:write")),
            ("transition_fired", Kind::Proposal, false, Some("proposals:write")),
            ("transition_fired", Kind::Proposal, true, None),
            ("workflow_started", Kind::Replay, false, Some("governance:act")),
            ("gate_opened", Kind::Replay, false, Some("governance:act")),
            ("transition_fired", Kind::Replay, true, None),
            ("step_retry_ordered", Kind::Run, true, None),
            ("step_retry_ordered", Kind::Run, false, Some("runs:control")),
        ] {
            assert_eq!(of(action_ref, kind, application), scope, "{action_ref} {kind:?} {application}");
        }
        let class = |class| needed("step_transitioned", Kind::Run, false, Some(class)).map(|needed| needed.scope);
        assert_eq!(class("reviewer"), Ok("runs:control"));
        assert_eq!(class("escalation_handler"), Ok("governance:act"));
        assert_eq!(class("pic_human"), Ok("tasks:work"));
    }
}
