//! A run and its gates: a step that has one is blocked until it was approved, and no gate outlives what waits behind it.

use super::Run;
use super::machine::is_ended;
use super::read::Ranges;
use crate::finding::{Claim, Code};
use crate::json::Value;
use crate::process::gate::Fate;
use crate::process::quorum::State;
use crate::process::{Context, Process};
use crate::record::{Action, Header};

/// The gate that a cancellation needs, where it is declared.
pub(super) const CANCEL: &str = "cancel";

impl Run {
    /// A record of one of its gates.
    pub(super) fn note_gate(&mut self, header: &Header, payload: &Value, ctx: &Context<'_>) {
        let action = |name: &str| payload.text(name).unwrap_or_default().to_owned();
        match header.action {
            Action::GateOpened if ctx.registry.is_application_actor(&header.actor_ref, header.registry_seq) => {
                self.command.opened.push(action("action"));
            }
            Action::GateDecided if payload.text("decision") == Some("approve") => {
                self.command.approved.push(action("action"));
            }
            Action::TransitionFired => {
                self.command.spent.push((action("action"), payload.text("step_id").map(str::to_owned)));
                self.command.fired.push((action("action"), header.clone()));
            }
            Action::MootGateRecalled => self.command.mooted.push((action("moot_action"), header.clone())),
            _ => {}
        }
    }

    pub(super) fn note_moves(&mut self, id: &str, to: &str, from: &str, seqs: &Ranges) {
        match (id, from, to) {
            ("X8", ..) => self.command.blocked.extend(seqs.iter()),
            ("X8r", ..) => self.command.cleared.extend(seqs.iter()),
            (_, "blocked", "failed" | "skipped" | "cannot_complete" | "cancelled") => {
                self.command.dropped.extend(seqs.iter())
            }
            _ => {}
        }
    }

    fn named(&self, action: &str) -> Option<usize> {
        self.steps.iter().take(self.planned()).position(|step| step.name == action)
    }

    /// What can be judged only when all records of a command are there.
    pub(super) fn end_command(&mut self, process: &Process, ctx: &mut Context<'_>) {
        let command = std::mem::take(&mut self.command);
        let Some(last) = self.last.clone() else { return };
        let over = is_ended(self.state);
        if self.lost {
            self.ended |= over;
            return;
        }
        let name = |seq: &usize| self.steps.get(*seq).map_or("", |step| step.name.as_str());
        let mut found: Vec<(Code, Header, String)> = Vec::new();
        if let Some((seq, undone)) = command.unlisted.first() {
            let detail = format!("the compensation {seq}, of step {undone}, is due and was not listed");
            found.push((Code::CompensationOrder, last.clone(), detail));
        }
        for seq in command.blocked.iter().filter(|seq| !command.opened.iter().any(|action| action == name(seq))) {
            found.push((
                Code::BindingInvalid,
                last.clone(),
                format!("step {seq} waits for a gate that was not opened"),
            ));
        }
        let stop_guarded = super::runbook::guards(process, "resume");
        if command.stops && stop_guarded && !command.opened.iter().any(|action| action == "resume") {
            let detail = "the run stops, and its gate `resume` was not opened".to_owned();
            found.push((Code::BindingInvalid, last.clone(), detail));
        }
        for action in &command.opened {
            let stops = action == "resume" && command.stops && stop_guarded;
            // The gate of a step that is blocked was moot, and is opened anew.
            let anew = |step: &super::Step| step.state == "blocked" && step.gated;
            let again = self.named(action).and_then(|seq| self.steps.get(seq)).is_some_and(anew);
            if !command.blocked.iter().any(|seq| name(seq) == action) && !stops && !again {
                let detail = format!("the gate of `{action}` was opened, and no step waits for it");
                found.push((Code::BindingInvalid, last.clone(), detail));
            }
        }
        for seq in &command.cleared {
            ctx.findings.checked(Claim::ApprovalGated);
            let (approved, fired) = (&command.approved, &command.fired);
            let surveyed = last.action == Action::PinsSurveyed;
            if !((surveyed || approved.iter().any(|action| action == name(seq)))
                && fired.iter().any(|(action, _)| action == name(seq)))
            {
                let detail =
                    format!("step {seq} (`{}`) went on without an approval of its gate in this command", name(seq));
                found.push((Code::GateNotApproved, last.clone(), detail));
            }
        }
        for (action, header) in &command.fired {
            let cleared = command.cleared.iter().any(|seq| name(seq) == action);
            let cancels = action == CANCEL && matches!(self.state, "cancelled" | "voided") && !self.ended;
            let spent = command.spends.iter().any(|(spends, _)| spends == action);
            if !cleared && !cancels && !spent {
                let detail = format!("the gate of `{action}` was consumed, and nothing followed it");
                found.push((Code::GateNotApproved, header.clone(), detail));
            }
        }
        for (action, approval_id) in &command.spends {
            ctx.findings.checked(Claim::ApprovalGated);
            let fired = command.spent.iter().find(|(spent, _)| spent == action);
            // Of a quorum any approval is good; the chain was judged where it was resolved.
            let named = fired.is_some_and(|(_, step)| step.as_ref().is_none_or(|step| step == approval_id));
            if !named {
                let detail = format!("nothing was approved by {approval_id} for `{action}` in this command");
                found.push((Code::GateNotApproved, last.clone(), crate::json::shortened(&detail)));
            }
        }
        let guarded = process.declaration.as_ref().is_some_and(|d| d.transition("run", CANCEL).is_some());
        let voids = last.action == Action::RunVoided && !super::runbook::guards(process, "void");
        let cancelled = voids || last.action == Action::RunCancelled;
        if guarded && cancelled && !command.fired.iter().any(|(action, _)| action == CANCEL) {
            let detail = "the definition lets nobody cancel or void a run without an approval, and this has none";
            found.push((Code::GateNotApproved, last.clone(), detail.to_owned()));
        }
        for (action, header) in &command.mooted {
            let dropped = command.dropped.iter().any(|seq| name(seq) == action);
            let drifts = (command.stops && self.outcome.as_deref() == Some("drift")) || command.repinned;
            if !dropped && !command.over && !drifts {
                let detail = format!("what waits behind the gate of `{action}` has not ended in this command");
                found.push((Code::MootInvalid, header.clone(), detail));
            }
        }
        for gate in process.gates.iter().filter(|gate| gate.current && gate.fate == Fate::Unspent && gate.sure) {
            let waits = matches!(gate.status(), State::Pending | State::Approved);
            let behind = self.named(&gate.action).and_then(|seq| self.steps.get(seq));
            let of_step = gate.action.split_once(':').is_some_and(|(label, _)| matches!(label, "reopen" | "escalate"));
            let stopped = self.state == "stopped";
            // Where the world drifted, no approval of a step holds.
            let drifted = stopped && self.outcome.as_deref() == Some("drift");
            let fits = match &*gate.action {
                "void" => !over || matches!(self.state, "failed" | "cancelled"),
                CANCEL => !over,
                "resume" => stopped,
                _ => !over && (of_step || behind.is_some_and(|step| step.state == "blocked" && !drifted)),
            };
            if waits && !fits {
                let detail = format!("the gate {} of `{}` is open, and nothing waits behind it", gate.id, gate.action);
                found.push((Code::AssignmentCoverage, last.clone(), detail));
            }
        }
        if let Some(seq) = self.end_capture() {
            let detail = format!("the pins of step {seq} were captured, and it is not completed");
            found.push((Code::RunbookViolation, last.clone(), detail));
        }
        for (code, header, detail) in found {
            ctx.findings.find(code, &header, detail);
        }
        self.ended |= over;
    }
}
