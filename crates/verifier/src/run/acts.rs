//! What people and operators say with what they do to a step (`spec/run.md`, section 6, *Evidence* and *Escalations*), in runs of
//! the fourth edition: what shows that a block is resolved, to whom a step is escalated, and why a block is red.

use super::Run;
use super::read::Moves;
use crate::finding::Code;
use crate::process::{Context, Process};
use crate::record::{Action, Header};

/// From this edition of `record.md` on these members are there.
const SINCE: i64 = 4;

impl Run {
    pub(super) fn judge_acts(&mut self, header: &Header, moves: &Moves<'_>, process: &Process, ctx: &mut Context<'_>) {
        let since = process.rules() >= SINCE;
        let mut find = |detail: String| ctx.findings.find(Code::UndeclaredTransition, header, detail);
        let shown = matches!(header.action, Action::StepUnblocked | Action::StepCannotComplete);
        if since && shown && moves.evidence_ref.is_none() {
            find(format!("a `{}` without what shows it", header.action.as_str()));
        }
        if let Some(fault) = self.escalation_fault(header, moves, process, since) {
            find(format!("an escalation: {fault}"));
        }
        if header.action == Action::BlockEscalated
            && let Some(step) = moves.acted.and_then(|seq| self.steps.get_mut(seq))
        {
            step.escalated = true;
        }
        let (at, red_after) = (header.recorded_at_us, self.workflow.as_ref().map(|workflow| workflow.red_after_us));
        for (seq, _, cause) in moves.severities.iter().filter(|_| since) {
            let Some(step) = self.steps.get(*seq) else { continue };
            let lasted = step.blocked_since_us.map(|since| at - since);
            let true_cause = match *cause {
                Some("threshold") => lasted.zip(red_after).is_some_and(|(lasted, after)| lasted > after),
                Some("deadline") => step.charge.deadline_us.is_some_and(|deadline| at > deadline),
                Some("escalated") => step.escalated,
                _ => true,
            };
            if !true_cause {
                find(format!("the block of step {seq} is red by {}, which is not so", cause.unwrap_or_default()));
            }
        }
    }

    /// Who escalates says in which chain and to whom; and a block that has lasted is escalated only with an approval.
    fn escalation_fault(&self, header: &Header, moves: &Moves<'_>, process: &Process, since: bool) -> Option<String> {
        let label = match header.action {
            Action::StepEscalated => "reopen",
            Action::BlockEscalated => "escalate",
            _ => return moves.escalation.is_some().then(|| "this record makes none".to_owned()),
        };
        let Some(escalation) = &moves.escalation else {
            return since.then(|| "it does not say in which chain and to whom".to_owned());
        };
        let Some((seq, step)) = moves.acted.and_then(|seq| Some((seq, self.steps.get(seq)?))) else {
            return Some("it does not say of which step".to_owned());
        };
        if escalation.chain != format!("{}.{seq}", header.instance_id) {
            return Some(format!("its chain is not that of step {seq}"));
        }
        let named = process.approvers_of(label);
        if escalation.to != named {
            return Some(format!("the approvers of `{label}` are {named:?}"));
        }
        let lasted = step.blocked_since_us.map(|since| header.recorded_at_us - since);
        let review_after = self.workflow.as_ref().map(|workflow| workflow.review_after_us);
        let reviewed = label == "escalate" && lasted.zip(review_after).is_some_and(|(lasted, after)| lasted > after);
        (reviewed && moves.approval_id.is_none()).then(|| "the block has lasted, and nobody has approved it".to_owned())
    }
}
