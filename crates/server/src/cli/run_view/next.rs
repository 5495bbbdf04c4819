//! What can be done about a run: why, and the command that takes it further.

use super::steps::{is_claimable, is_offered, is_retrying};
use super::{is_done, is_ended, step_ended};
use crate::cli::output::{printable, shell_word};
use crate::cli::table::{Tint, tint};
use countersign_client::wire::{ApprovalState, Binding, Gate, GateFate, RunView, StepView};
use jiff::Timestamp;

const MAX_HINTS: usize = 4;

/// Why, and the command that takes the run further.
pub fn next(run: &RunView, now: Timestamp) -> Vec<(String, String)> {
    let mut hints = Hints { run, id: shell_word(&run.run_id), found: vec![] };
    match run.state.as_str() {
        "failed" if run.phase.is_some() => hints.void(),
        "failed" | "cancelled" => hints.again(),
        "queued" => hints.slot(),
        "stopped" => hints.unknown(),
        _ => {}
    }
    if is_ended(&run.state) && run.state != "failed" {
        return hints.found;
    }
    let waits = |gate: &&Gate| gate.waits();
    for gate in run.gates.iter().filter(waits) {
        let command = format!("countersign gate decide {} {} approve", hints.id, shell_word(&gate.action));
        let asks = if run.phase.is_some() { format!(" on {}", printable(&gate.action)) } else { String::new() };
        let asked = run.gates.iter().filter(waits).filter(|other| other.action == gate.action);
        let names: Vec<String> = asked.map(|gate| tint(Tint::Strong, &gate.approver_ref)).collect();
        let verb = if names.len() == 1 { "decides" } else { "decide" };
        hints.add(format!("{} {verb}{asks}", names.join(", ")), command);
    }
    if is_ended(&run.state) {
        return hints.found;
    }
    if run.state == "stopped" && run.gates.iter().any(|gate| gate.action == "resume") {
        hints.resume();
        return hints.found;
    }
    if matches!(run.state.as_str(), "paused" | "stopped") {
        // Whatever is ready, nobody gets it before that.
        let command = format!("countersign runs resume {}", hints.id);
        hints.add(format!("it is {}", printable(&run.state)), command);
        return hints.found;
    }
    for step in &run.steps {
        hints.about(step, now);
    }
    hints.found
}

struct Hints<'r> {
    run: &'r RunView,
    id: String,
    found: Vec<(String, String)>,
}

impl Hints<'_> {
    fn add(&mut self, why: String, command: String) {
        if self.found.len() < MAX_HINTS && !self.found.iter().any(|(_, known)| *known == command) {
            self.found.push((why, command));
        }
    }

    /// The gate for this action that counts, in its newest form.
    fn gate(&self, action: &str) -> Option<&Gate> {
        let counts = |gate: &&Gate| gate.action == action && gate.binding == Binding::Current;
        let unspent = |gate: &&Gate| gate.fate == GateFate::Unspent;
        let all = || self.run.gates.iter().rev().filter(counts).filter(unspent);
        all().find(|gate| gate.state == ApprovalState::Approved).or_else(|| all().next())
    }

    /// Nothing goes on before it is known what became of an attempt.
    fn unknown(&mut self) {
        for step in self.run.steps.iter().filter(|step| step.effect_unknown && step.state_code != "completed") {
            let (id, name) = (self.id.clone(), shell_word(&step.name));
            let command = format!("countersign runs declare-effect {id} {name} completed|not-done --reason …");
            self.add(format!("first say what became of {}", tint(Tint::Strong, &step.name)), command);
        }
    }

    /// A stopped run that only an approval lets go on.
    fn resume(&mut self) {
        let id = self.id.clone();
        match self.gate("resume").map(|gate| (is_cleared(gate), gate.state, gate.step_id.clone())) {
            Some((true, _, step_id)) => {
                self.add("it is approved".to_owned(), format!("countersign runs resume {id} --approval {step_id}"));
            }
            Some((false, ApprovalState::Pending | ApprovalState::Approved, step_id)) => {
                self.add("then".to_owned(), format!("countersign runs resume {id} --approval {step_id}"));
            }
            _ => self.add("ask again for an approval".to_owned(), format!("countersign gate open {id} resume")),
        }
    }

    /// A runbook that failed is not tried again; it may be voided.
    fn void(&mut self) {
        let id = self.id.clone();
        match self.gate("void").map(|gate| (is_cleared(gate), gate.state, gate.step_id.clone())) {
            Some((true, _, step_id)) => {
                let command = format!("countersign runs void {id} --approval {step_id} --reason …");
                self.add("its voiding is approved".to_owned(), command);
            }
            Some((false, ApprovalState::Pending | ApprovalState::Approved, _)) => {}
            _ => {
                let command = format!("countersign gate open {id} void --reason …");
                self.add("if it is not to count, ask for its voiding".to_owned(), command);
            }
        }
    }

    /// What failed is where to begin again; what was cancelled was so because of it.
    fn again(&mut self) {
        let undone = |step: &&StepView| step.role == "step" && step_ended(step) && !is_done(step);
        let failed = |step: &&StepView| step.state_code != "cancelled";
        let steps = || self.run.steps.iter().filter(undone);
        let Some(step) = steps().find(failed).or_else(|| steps().next()) else { return };
        let command = format!("countersign runs retry {} --from {}", self.id, shell_word(&step.name));
        self.add(format!("try again from {} in a new run", tint(Tint::Strong, &step.name)), command);
    }

    fn slot(&mut self) {
        let Some(key) = &self.run.concurrency_key else { return };
        let name = self.run.definition.split('@').next().unwrap_or_default();
        let command = format!("countersign runs list --definition {}", shell_word(name));
        self.add(format!("see which run has the slot of {}", tint(Tint::Strong, key)), command);
    }

    fn about(&mut self, step: &StepView, now: Timestamp) {
        let (id, name, strong) = (self.id.clone(), shell_word(&step.name), tint(Tint::Strong, &step.name));
        if step.effect_unknown && step.state_code != "completed" {
            let command = format!("countersign runs declare-effect {id} {name} completed|not-done --reason …");
            self.add(format!("say what became of {strong}"), command);
        }
        let who = tint(Tint::Strong, step.pic.as_deref().unwrap_or("whoever is in charge"));
        match step.state_code.as_str() {
            "waiting" => {
                let Some(event) = &step.waiting_event_type else { return };
                let command = format!("countersign events send {} --run {id} --data …", shell_word(event));
                self.add(format!("{strong} waits for an event"), command);
            }
            _ if step.run == "human" && is_offered(step) => {
                let command = format!("countersign step claim {id} {name}");
                self.add(format!("{who} begins with {}", printable(&step.name)), command);
            }
            "in_progress" | "overdue" if step.run == "human" => {
                let command = format!("countersign step complete {id} {name} --output …");
                self.add(format!("{who} is at work on {}", printable(&step.name)), command);
            }
            "blocked" if step.block_reason.is_some() => {
                let command = format!("countersign step unblock {id} {name} --evidence …");
                self.add(format!("clear what blocks {strong}"), command);
            }
            // One that waits for an approval is unblocked by it.
            "blocked" if !self.run.gates.iter().any(|gate| gate.action == step.name) => {
                let command = format!("countersign runs unblock {id} {name} --evidence …");
                self.add(format!("once what blocks {strong} is put right"), command);
            }
            "cannot_complete" => {
                let command = format!("countersign gate open {id} {}", shell_word(&format!("reopen:{}", step.name)));
                self.add(format!("ask to reopen {strong}"), command);
            }
            "ready" | "failed" | "overdue" if step.run == "worker" && is_claimable(step, now) => {
                let command = format!("countersign work {} --exec …", shell_word(&step.queue));
                let what = match &step.compensates {
                    Some(undone) => format!("undo of {}", tint(Tint::Strong, undone)),
                    None => strong,
                };
                self.add(format!("{what} waits for a worker"), command);
            }
            "failed" if step.role == "step" && !is_retrying(step) && !step.effect_unknown => self.held(step, &strong),
            _ => {}
        }
    }

    /// `onFailure: hold`: the run waits for what somebody makes of a failed step.
    fn held(&mut self, step: &StepView, strong: &str) {
        if self.run.state == "compensating" {
            return;
        }
        let (id, name) = (self.id.clone(), shell_word(&step.name));
        if matches!(step.run.as_str(), "worker" | "shell" | "http") {
            self.add(format!("have {strong} tried once more"), format!("countersign step retry {id} {name}"));
        }
        self.add(format!("or give {strong} up"), format!("countersign step escalate {id} {name}"));
        self.add("or the whole run".to_owned(), format!("countersign runs cancel {id} --reason …"));
    }
}

/// It is approved; of a quorum, as a whole.
fn is_cleared(gate: &Gate) -> bool {
    gate.outcome() == ApprovalState::Approved
}
