//! One process, put together for somebody who does not believe it: its view, every record of it, and for every firing
//! what it rested on. What does not fit is a finding under the claim that it speaks against.

use super::scopes::Kind;
use super::{Check, Entry, Evidence, Finding, Permission, Registry, entries_of};
use countersign_client::wire::{
    ApprovalState, Binding, Gate, GateEntry, GateFate, HistoryEntry, LogVerification, Progress, QuorumRule, VerifyLog,
    WorkflowView,
};
use countersign_client::{Client, Error};
use serde::Serialize;
use serde_json::Value;

/// What a regulator asks, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    DeclaredPath,
    GateCleared,
    /// Acceptance check 4: who has to decide has it in their in-tray, and nobody else has.
    Assigned,
    PermissionHeld,
    RecordedOneToOne,
    SealedAndVerified,
}

/// What is reported where a purge destroyed what a claim needs.
pub const PURGED: &str = "partially-purged-coverage";

pub struct Process {
    pub view: WorkflowView,
    /// The one beside a run is judged by the scopes of runs.
    pub kind: Kind,
    /// Every record of the process, in order.
    pub entries: Vec<Entry>,
    pub registry: Registry,
    /// `verify-log` for this process alone.
    pub log: LogVerification,
}

/// One firing with everything that it rests on.
#[derive(Serialize)]
pub struct Firing {
    pub sequence_number: u64,
    pub action: String,
    pub from_state: String,
    pub to_state: String,
    pub fired_at: String,
    pub actor_ref: String,
    /// The declaration has this move, and it began where the one before it ended.
    pub declared: bool,
    /// The label of the guard; null for a free move.
    pub guard: Option<String>,
    /// The approval that it consumed.
    pub approval: Option<Approval>,
    pub permission: Option<Permission>,
    /// Its `transition_fired`.
    pub record: Option<Evidence>,
    pub findings: Vec<ClaimFinding>,
}

/// A finding and the claim that it speaks against.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimFinding {
    pub claim: Claim,
    #[serde(flatten)]
    pub finding: Finding,
}

/// A gate: one approval step, or the steps of a quorum.
#[derive(Serialize)]
pub struct Approval {
    /// The id of the step, or of the chain.
    pub gate_id: String,
    /// `step` or `chain`.
    pub kind: &'static str,
    pub action: String,
    pub from_state: String,
    pub guard: String,
    pub scope: String,
    pub state: ApprovalState,
    /// How many of `steps` have to approve.
    pub needed: usize,
    pub rule: Option<QuorumRule>,
    pub binding: Binding,
    pub fate: GateFate,
    pub opened: Option<Evidence>,
    pub opened_under: Option<Permission>,
    pub steps: Vec<Step>,
}

/// One approver's part of a gate.
#[derive(Serialize)]
pub struct Step {
    pub step_id: String,
    pub approver_ref: String,
    /// The gate_spec that the process started with names this approver for this guard.
    pub named_in_gate_spec: bool,
    /// Who wrote that entry: `definition`, `start` (the initiator, in place of the definition's) or `declaration` (the
    /// initiator's own).
    pub gate_spec_of: &'static str,
    pub state: ApprovalState,
    /// Who decided or withdrew it, when, and with which words.
    pub decided_by: Option<String>,
    /// The approver in whose place a substitute decided, as the record says.
    pub on_behalf_of: Option<String>,
    pub decided_at: Option<String>,
    pub reason: Option<String>,
    /// What the signature was said to mean, where the decision is signed.
    pub meaning: Option<String>,
    /// Its `gate_decided`.
    pub record: Option<Evidence>,
}

impl Process {
    pub async fn load(client: &Client, instance: &str, progress: impl FnMut(Progress)) -> Result<Process, Error> {
        let view = client.process(instance).await?.body;
        let entries = entries_of(client, &view.instance_id).await?;
        let request = VerifyLog { instance_id: Some(view.instance_id.clone()) };
        let log = client.verify_log(&request, progress).await?.body;
        let kind = Kind::of(&view.declaration_ref);
        Ok(Process { view, kind, entries, registry: Registry::default(), log })
    }

    /// The name of the definition, which may stand in a grant's scope.
    fn definition(&self) -> Option<String> {
        self.view.declaration_ref.split_once('@').map(|(name, _)| name.to_owned())
    }

    pub fn records_of<'p>(&'p self, action_ref: &'p str) -> impl Iterator<Item = &'p Entry> {
        self.entries.iter().filter(move |entry| entry.is(action_ref))
    }

    pub async fn permission(&mut self, client: &Client, event_id: &str) -> Result<Option<Permission>, Error> {
        let definition = self.definition();
        let Some(entry) = self.entries.iter().find(|entry| entry.record.event_id == event_id) else { return Ok(None) };
        self.registry.permission(client, entry, self.kind, definition.as_deref()).await.map(Some)
    }

    /// The gates of the process, each once, in the order of the view.
    pub fn gate_ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = Vec::new();
        for id in self.view.gates.iter().map(gate_id) {
            if !ids.iter().any(|known| known == id) {
                ids.push(id.to_owned());
            }
        }
        ids
    }

    pub async fn approval(&mut self, client: &Client, id: &str) -> Result<Option<Approval>, Error> {
        let steps: Vec<&Gate> = self.view.gates.iter().filter(|gate| gate_id(gate) == id).collect();
        let Some(first) = steps.first() else { return Ok(None) };
        let chain = first.chain.as_ref();
        let opened = self.records_of("gate_opened").find(|entry| entry.gate_id() == Some(id)).map(Entry::evidence);
        let mut approval = Approval {
            gate_id: id.to_owned(),
            kind: if chain.is_some() { "chain" } else { "step" },
            action: first.action.clone(),
            from_state: first.from_state.clone(),
            guard: first.guard.clone(),
            scope: first.scope.clone(),
            state: chain.map_or(first.state, |chain| chain.state),
            needed: match chain.map(|chain| (chain.rule, chain.m)) {
                None | Some((QuorumRule::OneOfN, _)) => 1,
                Some((QuorumRule::MOfN, Some(m))) => m as usize,
                Some((QuorumRule::MOfN | QuorumRule::AllOfN, _)) => steps.len(),
            },
            rule: chain.map(|chain| chain.rule),
            binding: first.binding,
            fate: first.fate,
            opened_under: None,
            steps: steps.iter().map(|gate| self.step(gate)).collect(),
            opened,
        };
        if let Some(opened) = &approval.opened {
            approval.opened_under = self.permission(client, &opened.event_id.clone()).await?;
        }
        Ok(Some(approval))
    }

    fn step(&self, gate: &Gate) -> Step {
        let mut decisions = self.records_of("gate_decided");
        let entry = decisions.find(|entry| entry.text("step_id") == Some(&gate.step_id));
        Step {
            step_id: gate.step_id.clone(),
            approver_ref: gate.approver_ref.clone(),
            named_in_gate_spec: self.view.gate_spec.get(&gate.guard).is_some_and(|spec| names(spec, gate)),
            gate_spec_of: self.gate_spec_of(&gate.guard),
            state: gate.state,
            decided_by: gate.decided_by.clone().or_else(|| gate.withdrawn_by.clone()),
            on_behalf_of: entry.and_then(|entry| entry.text("on_behalf_of")).map(str::to_owned),
            decided_at: gate.decided_at.clone().or_else(|| gate.withdrawn_at.clone()),
            reason: gate.decision_reason.clone().or_else(|| gate.withdrawal_reason.clone()),
            meaning: entry.and_then(Entry::meaning),
            record: entry.map(Entry::evidence),
        }
    }

    /// Whose word it is that these people approve.
    fn gate_spec_of(&self, guard: &str) -> &'static str {
        match self.view.declaration_ref.contains('@') {
            false => "declaration",
            true if self.view.replaced.iter().any(|label| label == guard) => "start",
            true => "definition",
        }
    }

    /// A firing, with what it rests on. `reached` is the state that replay had come to before it.
    pub async fn firing(&mut self, client: &Client, at: usize, reached: &str) -> Result<Option<Firing>, Error> {
        let Some(fired) = self.view.transition_history.get(at).cloned() else { return Ok(None) };
        let declaration = &self.view.declaration;
        let transition = declaration.transitions.iter().find(|transition| {
            transition.from == fired.from_state && transition.action == fired.action && transition.to == fired.to_state
        });
        let declared = transition.is_some()
            && fired.from_state == reached
            && (fired.sequence_number == at as u64 + 1
                || self.kind != Kind::Process && self.purged("transition_fired"))
            && !declaration.terminal_states.contains(&fired.from_state);
        let guard = transition.and_then(|transition| transition.guard.clone());
        let approval = match fired.step_id.as_deref().or(fired.chain_id.as_deref()) {
            Some(id) => self.approval(client, id).await?,
            None => None,
        };
        let record = self.entries.iter().find(|entry| entry.record.event_id == fired.event_id).map(Entry::evidence);
        let permission = self.permission(client, &fired.event_id).await?;
        let mut findings = Vec::new();
        if !declared {
            let detail =
                format!("{} from {} to {} is not declared there", fired.action, fired.from_state, fired.to_state);
            let finding = Finding::new("undeclared-transition", Some(&fired.event_id), detail);
            findings.push(ClaimFinding { claim: Claim::DeclaredPath, finding });
        }
        let mut claims = |claim, found: Vec<Finding>| {
            findings.extend(found.into_iter().map(|finding| ClaimFinding { claim, finding }));
        };
        claims(Claim::GateCleared, self.gate_findings(&fired, guard.as_deref(), approval.as_ref()));
        claims(Claim::PermissionHeld, permission_findings(permission.as_ref(), &fired.event_id));
        claims(Claim::RecordedOneToOne, self.record_findings(&fired));
        let HistoryEntry { sequence_number, from_state, action, to_state, fired_at, actor_ref, .. } = fired;
        Ok(Some(Firing {
            sequence_number,
            action,
            from_state,
            to_state,
            fired_at,
            actor_ref,
            declared,
            guard,
            approval,
            permission,
            record,
            findings,
        }))
    }

    /// Whether the guard was cleared: by the approval that the gate_spec asks for, given before, and used once.
    fn gate_findings(&self, fired: &HistoryEntry, guard: Option<&str>, approval: Option<&Approval>) -> Vec<Finding> {
        let event_id = Some(fired.event_id.as_str());
        let not_approved = |detail: String| Finding::new("gate-not-approved", event_id, detail);
        let bound = fired.step_id.as_ref().or(fired.chain_id.as_ref());
        let (guard, approval) = match (guard, bound, approval) {
            (None, None, _) => return vec![],
            (None, Some(_), _) => {
                return vec![Finding::new(
                    "unguarded-firing",
                    event_id,
                    "it names an approval, but no guard is declared",
                )];
            }
            (Some(guard), None, _) | (Some(guard), Some(_), None) => {
                return vec![not_approved(format!("{guard} guards it, and it rests on no approval"))];
            }
            (Some(guard), Some(_), Some(approval)) => (guard, approval),
        };
        let mut found = Vec::new();
        if fired.guard_satisfied != Some(true) || approval.state != ApprovalState::Approved {
            found.push(not_approved(format!("gate {} is {:?}", approval.gate_id, approval.state)));
        }
        if approval.action != fired.action || approval.from_state != fired.from_state || approval.guard != guard {
            found.push(not_approved(format!("gate {} was opened for something else", approval.gate_id)));
        }
        let approved = approval.steps.iter().filter(|step| step.state == ApprovalState::Approved);
        let (mut in_time, mut untrusted) = (0, Vec::new());
        for step in approved {
            // Whether the delegation carries it is checked with the log.
            let by = step.on_behalf_of.as_ref().or(step.decided_by.as_ref());
            if !step.named_in_gate_spec || by != Some(&step.approver_ref) {
                let by = step.decided_by.as_deref().unwrap_or("nobody");
                let detail =
                    format!("{by} decided, and the gate_spec asks for another (the step names {})", step.approver_ref);
                let record = step.record.as_ref().map(|record| record.event_id.as_str());
                found.push(Finding::new("wrong-approver", record.or(event_id), detail));
            }
            in_time += usize::from(self.approved_before(step, fired));
            if let Some(record) = &step.record
                && let Some(code) = record.verification.failed()
            {
                untrusted.push(Finding::new(
                    code,
                    Some(&record.event_id),
                    "the record of the decision does not verify",
                ));
            }
        }
        if in_time < approval.needed {
            let detail = format!("{in_time} of {} approvals were recorded before it fired", approval.needed);
            found.push(if self.purged("gate_decided") {
                Finding::new(PURGED, event_id, detail)
            } else {
                not_approved(detail)
            });
        }
        let uses = self
            .view
            .transition_history
            .iter()
            .filter(|other| other.step_id.as_ref().or(other.chain_id.as_ref()) == bound);
        if uses.count() > 1 {
            found.push(Finding::new("approval-reused", event_id, format!("gate {} was used twice", approval.gate_id)));
        }
        found.extend(untrusted);
        found
    }

    /// A `gate_decided` of this step by its approver or in their place, saying approve, stands before the firing.
    fn approved_before(&self, step: &Step, fired: &HistoryEntry) -> bool {
        let firing = self.entries.iter().find(|entry| entry.record.event_id == fired.event_id);
        self.records_of("gate_decided").any(|entry| {
            entry.text("step_id") == Some(&step.step_id)
                && entry.text("decision") == Some("approve")
                && entry.approver() == step.approver_ref
                && firing.is_some_and(|firing| entry.record.sequence < firing.record.sequence)
        })
    }

    pub fn purged(&self, action_ref: &str) -> bool {
        self.records_of(action_ref).any(|entry| entry.check == Check::Purged)
    }

    /// Exactly one `transition_fired`, which says what the history says.
    fn record_findings(&self, fired: &HistoryEntry) -> Vec<Finding> {
        let event_id = Some(fired.event_id.as_str());
        let Some(entry) = self.records_of("transition_fired").find(|entry| entry.record.event_id == fired.event_id)
        else {
            return vec![Finding::new(
                "record-missing",
                event_id,
                format!("firing {} has no record", fired.sequence_number),
            )];
        };
        if entry.check == Check::Purged {
            return vec![Finding::new(PURGED, event_id, "what the firing's record said was destroyed")];
        }
        let payload = &entry.record.payload;
        let same = entry.text("transition_id") == Some(&fired.transition_id)
            && payload.get("sequence_number").and_then(Value::as_u64) == Some(fired.sequence_number)
            && entry.text("from_state") == Some(&fired.from_state)
            && entry.text("action") == Some(&fired.action)
            && entry.text("new_state") == Some(&fired.to_state)
            && entry.text("step_id") == fired.step_id.as_deref()
            && entry.text("chain_id") == fired.chain_id.as_deref()
            && entry.record.actor_ref == fired.actor_ref
            && entry.record.recorded_at == fired.fired_at;
        if same {
            vec![]
        } else {
            vec![Finding::new("row-missing", event_id, "history and record do not say the same")]
        }
    }
}

/// Whether somebody was allowed to do what a record says.
pub fn permission_findings(permission: Option<&Permission>, event_id: &str) -> Vec<Finding> {
    match permission {
        None => vec![Finding::new("permission-not-held", Some(event_id), "there is no record that could tell")],
        Some(Permission::Missing { scope }) => {
            let detail = format!("the actor had no active grant of {scope}");
            vec![Finding::new("permission-not-held", Some(event_id), detail)]
        }
        Some(Permission::Held(held)) => match held.verification.failed() {
            Some(code) => vec![Finding::new(code, Some(&held.event_id), "the record of the grant does not verify")],
            None => vec![],
        },
        Some(Permission::NotNeeded { .. }) => vec![],
    }
}

fn gate_id(gate: &Gate) -> &str {
    gate.chain.as_ref().map_or(&gate.step_id, |chain| &chain.chain_id)
}

/// The gate_spec asks this approver, for this scope, under this rule.
fn names(spec: &GateEntry, gate: &Gate) -> bool {
    let approver = match (&spec.approver_ref, &spec.approvers) {
        (Some(approver), None) => *approver == gate.approver_ref && gate.chain.is_none(),
        (None, Some(approvers)) => approvers.contains(&gate.approver_ref) && gate.chain.is_some(),
        _ => false,
    };
    let rule = match (&spec.quorum, &gate.chain) {
        (Some(quorum), Some(chain)) => {
            quorum.rule == chain.rule && (quorum.rule != QuorumRule::MOfN || quorum.m == chain.m)
        }
        (None, None) => true,
        _ => false,
    };
    approver && rule && spec.scope == gate.scope
}
