//! People, deadlines and corrections (`spec/run.md`, section 6): only the person in charge acts as one, what is late is
//! recorded as late and stays so, and nothing is reopened but with an approval and beside what it reopens.

use super::follow::Made;
use super::read::{Moves, Told};
use super::{Run, Step};
use crate::bytes::Id;
use crate::finding::{Code, Findings};
use crate::json::Value;
use crate::process::Context;
use crate::record::{Action, Header};
use crate::replays::Retry;

const REASONS: [&str; 4] = ["data_error", "policy_change", "downstream_dependency_failed", "regulatory_recall"];

/// Who is in charge of a step, what was promised, and what was missed.
#[derive(Debug, Default)]
pub struct Charge {
    pub pic: Option<String>,
    pub deadline_us: Option<i64>,
    /// By when it is to be claimed, while nobody has.
    pub start_by_us: Option<i64>,
    pub overdue_first_at_us: Option<i64>,
    pub sla_breach_us: Option<i64>,
    pub cycle: i64,
    /// The record in which it was completed, or declared impossible.
    pub closed: Option<Id>,
}

impl Charge {
    /// Whether the stores say the same; nothing, where there is nothing.
    pub fn is(&self, stored: Option<&Value>) -> bool {
        let text = |name: &str| stored.and_then(|stored| stored.given(name)).map(|value| value.as_text());
        let int = |name: &str| stored.and_then(|stored| stored.given(name)).map(|value| value.as_int());
        text("pic") == self.pic.as_deref().map(Some)
            && int("deadline_us") == self.deadline_us.map(Some)
            && int("start_by_us") == self.start_by_us.map(Some)
            && int("overdue_first_at_us") == self.overdue_first_at_us.map(Some)
            && int("sla_breach_us") == self.sla_breach_us.map(Some)
            && int("cycle").unwrap_or(Some(0)) == Some(self.cycle)
    }
}

impl Step {
    /// A transition of this step, which stands in its new state already.
    pub(super) fn follow_person(
        &mut self,
        seq: usize,
        header: &Header,
        id: &'static str,
        class: &str,
        ctx: &mut Context<'_>,
    ) {
        let (at, charge) = (header.recorded_at_us, &mut self.charge);
        if class == "pic_human" && charge.pic.as_deref() != Some(&*header.actor_ref) {
            let pic = charge.pic.as_deref().unwrap_or("nobody");
            let detail = format!("{id} of step {seq} by `{}`, but in charge of it is `{pic}`", header.actor_ref);
            ctx.findings.find(Code::StatementMismatch, header, detail);
        }
        let wrong = |what: &str, findings: &mut Findings| {
            findings.find(Code::UndeclaredTransition, header, format!("{id} of step {seq}: {what}"));
        };
        let late = charge.deadline_us.is_some_and(|deadline| at > deadline);
        match id {
            "T5" => {
                if !late {
                    wrong("its deadline has not passed", ctx.findings);
                }
                charge.overdue_first_at_us.get_or_insert(at);
            }
            "X14" => {
                let by = charge.start_by_us.into_iter().chain(charge.deadline_us).min();
                if by.is_none_or(|by| at <= by) {
                    wrong("the time to claim it has not passed", ctx.findings);
                }
                charge.overdue_first_at_us.get_or_insert(at);
            }
            "X16" if late || charge.start_by_us.is_some_and(|by| at > by) => {
                wrong("its deadline lies behind", ctx.findings);
            }
            "T6" if late => wrong("its deadline lies behind", ctx.findings),
            "T7" => charge.sla_breach_us = charge.deadline_us.map(|deadline| at - deadline),
            "T8" if late => wrong("it is late, and was not completed as such", ctx.findings),
            "T8r" | "T12r" => {
                charge.cycle += 1;
                (self.attempts, self.last_error, self.category) = (0, None, None);
                self.started_at_us = Some(at);
            }
            _ => {}
        }
        if matches!(id, "T7" | "T8" | "T11" | "T12" | "X13") {
            charge.closed = Some(header.event_id);
        }
    }
}

impl Run {
    /// Before the transitions of the record are followed: they are made under what it says of its steps.
    pub(super) fn take_charges(&mut self, header: &Header, moves: &Moves<'_>, ctx: &mut Context<'_>) {
        for (seqs, pic, [deadline, start_by]) in &moves.charges {
            if seqs.last().is_some_and(|last| last >= self.steps.len()) {
                let detail = "somebody is put in charge of a step that the run does not have";
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
                continue;
            }
            for seq in seqs.iter() {
                if let Some(step) = self.steps.get_mut(seq) {
                    step.charge.pic = pic.map(str::to_owned);
                    step.charge.deadline_us = *deadline;
                    step.charge.start_by_us = *start_by;
                }
            }
        }
    }

    /// `closed` is the record that had closed the step that somebody acted on.
    pub(super) fn judge_people(
        &mut self,
        header: &Header,
        moves: &Moves<'_>,
        made: &[Made],
        closed: Option<Id>,
        ctx: &mut Context<'_>,
    ) {
        let mut expected: Vec<(usize, i64, i64)> = made
            .iter()
            .filter(|made| made.id == "T7")
            .filter_map(|made| {
                let charge = &self.steps.get(made.seq)?.charge;
                Some((made.seq, charge.overdue_first_at_us?, charge.sla_breach_us?))
            })
            .collect();
        let mut said = moves.late.clone();
        expected.sort_unstable();
        said.sort_unstable();
        if expected != said {
            let detail = "what was completed late, since when and by how much, is not what its records say";
            ctx.findings.find(Code::UndeclaredTransition, header, detail);
        }
        let acted = moves.acted.and_then(|seq| Some((seq, self.steps.get(seq)?.charge.cycle)));
        if let (Some(step), Some(approval_id)) = (moves.acted.and_then(|seq| self.steps.get(seq)), moves.approval_id) {
            let label = if header.action == Action::StepReopened { "reopen" } else { "escalate" };
            // That of a task is its step's.
            let whole = step.name.split('/').next().unwrap_or_default();
            self.command.spends.push((format!("{label}:{whole}"), approval_id.to_owned()));
        }
        match header.action {
            Action::StepReopened => {
                let fault = match (acted, &moves.correction, moves.approval_id) {
                    (None, ..) => Some("it does not say of which step"),
                    (_, None, _) => Some("it has no `correction`"),
                    (.., None) => Some("it has no `approval_id`"),
                    (Some((seq, _)), ..) if !made.iter().any(|m| m.seq == seq && matches!(m.id, "T8r" | "T12r")) => {
                        Some("the step is not reopened")
                    }
                    (_, Some(correction), _) if !REASONS.contains(&correction.reason) => {
                        Some("its reason is not in the vocabulary")
                    }
                    (Some((_, cycle)), Some(correction), _) if correction.cycle != cycle => {
                        Some("its cycle is not the next")
                    }
                    (_, Some(correction), _) if Some(correction.prior) != closed => {
                        Some("it does not name the record that closed the step")
                    }
                    _ => None,
                };
                if let Some(fault) = fault {
                    ctx.findings.find(Code::UndeclaredTransition, header, format!("a reopening: {fault}"));
                }
                self.judge_kept_output(header, moves, made, ctx);
            }
            Action::StepRetryOrdered => {
                self.note_replay(header, moves, ctx);
                if let Some(step) = moves.acted.and_then(|seq| self.steps.get_mut(seq)) {
                    step.started_at_us = None;
                }
            }
            _ => {}
        }
    }

    /// A retry by the engine is a replay, and a replay is the engine's.
    fn note_replay(&mut self, header: &Header, moves: &Moves<'_>, ctx: &mut Context<'_>) {
        let Some((request, approval)) = moves.replay else { return };
        if !ctx.registry.is_application_actor(&header.actor_ref, header.registry_seq) {
            let detail = format!("`{}` replays a dead letter; that is the engine's", header.actor_ref);
            ctx.findings.find(Code::GovernanceInvalid, header, detail);
        }
        let acted = moves.acted.and_then(|seq| Some((seq, self.steps.get(seq)?.charge.cycle)));
        let key = acted.map_or_else(String::new, |(seq, cycle)| format!("{}.{seq}.{cycle}", header.instance_id));
        self.retries.push(Retry { header: header.clone(), request, approval, key });
    }

    /// What is kept beside a correction is what the completion recorded.
    fn judge_kept_output(&self, header: &Header, moves: &Moves<'_>, made: &[Made], ctx: &mut Context<'_>) {
        let reopened = made.iter().find(|made| made.id == "T8r").and_then(|made| self.steps.get(made.seq));
        let Some(step) = reopened else { return };
        let kept = moves.correction.as_ref().and_then(|correction| correction.output.as_ref());
        let same = match (kept, &step.output) {
            (Some(Told::Value(kept)), Some(Told::Value(output))) => kept == output,
            (Some(Told::Digest(kept)), Some(Told::Digest(output))) => kept == output,
            // Where one found no room in its record, the stores tell.
            (Some(_), Some(_)) => true,
            _ => false,
        };
        if !same {
            let detail = "what the step had yielded is not what its completion recorded";
            ctx.findings.find(Code::OutputMissing, header, detail);
        }
    }
}
