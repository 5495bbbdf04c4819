//! Deadlines: T5 when one passes, T6 when it is put off, and what a late completion leaves behind for ever (MP-D3).

use super::flow::{By, Flow, SYSTEM};
use super::{Action, StepAct};
use crate::Time;
use crate::lifecycle::{FailureCategory, StepCode};
use crate::plan::{StepSeq, StepSpec, Work};
use crate::refusal::{Code, Refusal};

impl Flow<'_, '_, '_> {
    /// The step is somebody's turn: who is in charge, and by when. False where that cannot be worked out; the step has
    /// failed then.
    pub fn put_in_charge(&mut self, seq: StepSeq, spec: &StepSpec) -> Result<bool, Refusal> {
        let pic = match &spec.work {
            Work::Human { pic: Some(pic) } => {
                match self.with_scope(None, None, |scope| self.ctx.language.fill(pic, scope)) {
                    Ok(filled) => super::person::named_person(&filled),
                    Err(error) => Err(error.to_string()),
                }
            }
            _ => Ok(None),
        };
        let pic = match pic {
            Ok(pic) => pic,
            Err(error) => {
                let error = format!("EXPRESSION_ERROR: pic: {error}");
                self.fail(seq, &error, FailureCategory::Validation, By(SYSTEM, "expression_error"))?;
                return Ok(false);
            }
        };
        let deadline = spec.deadline.map(|length| self.now().after(length));
        if pic.is_some() || deadline.is_some() {
            let docket = self.edit(seq)?.docket.get_or_insert_default();
            docket.pic = pic;
            docket.deadline = deadline;
        }
        Ok(true)
    }

    /// T5. When it was first overdue stays written.
    pub fn pass_deadline(&mut self, seq: StepSeq) -> Result<(), Refusal> {
        let now = self.now();
        self.move_step(seq, StepCode::Overdue, By(SYSTEM, "deadline_passed"))?;
        self.edit(seq)?.docket.get_or_insert_default().overdue_first_at.get_or_insert(now);
        Ok(())
    }

    /// A step that is completed late has been overdue, whether the clock came by or not, and says how late it was.
    pub fn note_breach(&mut self, seq: StepSeq) -> Result<(), Refusal> {
        let now = self.now();
        let Some(cell) = self.cell(seq).filter(|cell| cell.is_late(now)) else { return Ok(()) };
        let deadline = cell.deadline().unwrap_or(now);
        if cell.state == StepCode::InProgress {
            self.pass_deadline(seq)?;
        }
        self.edit(seq)?.docket.get_or_insert_default().sla_breach = Some(now.0 - deadline.0);
        Ok(())
    }
}

/// A later deadline; a step that was overdue is not so any more (T6).
pub fn extend(flow: &mut Flow<'_, '_, '_>, command: &StepAct, seq: StepSeq, deadline: Time) -> Result<Action, Refusal> {
    let cell = flow.cell(seq).filter(|cell| !cell.is_ended() && cell.deadline().is_some());
    let Some((state, old)) = cell.and_then(|cell| Some((cell.state, cell.deadline()?))) else {
        let detail = format!("`{}` has no deadline that could be put off now", command.step);
        return Err(Refusal::new(Code::InvalidTransition, detail).at("step"));
    };
    if deadline <= old || deadline <= flow.now() {
        let detail = "a deadline is put off to a later time, and to one that lies ahead";
        return Err(Refusal::by_guard("deadline_updated", detail).at("deadline"));
    }
    flow.edit(seq)?.docket.get_or_insert_default().deadline = Some(deadline);
    if state == StepCode::Overdue {
        flow.move_step(seq, StepCode::InProgress, By(SYSTEM, "deadline_extended"))?;
    }
    Ok(Action::DeadlineExtended)
}
