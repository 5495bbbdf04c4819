//! Deadlines: T5 when one passes, T6 when it is put off or the person in charge re-engages, and what a late completion leaves behind for ever (MP-D3).

use super::flow::{By, Flow, SYSTEM};
use super::guard::Given;
use super::person::in_charge;
use super::{Action, Cell, Docket, StepAct};
use crate::Time;
use crate::lifecycle::{ActorClass, FailureCategory, StepCode};
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

    /// X14: nobody has claimed it in time. It can be claimed as before.
    pub fn pass_start(&mut self, seq: StepSeq) -> Result<(), Refusal> {
        let now = self.now();
        let by = self.cell(seq).and_then(Cell::claim_by).unwrap_or(now);
        let docket = self.edit(seq)?.docket.get_or_insert_default();
        docket.start_by = Some(by);
        docket.overdue_first_at.get_or_insert(now);
        self.move_step(seq, StepCode::Overdue, By(SYSTEM, "start_deadline_passed"))
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

impl Cell {
    /// By when something is to be done with it: by when it is to be claimed, where nobody has claimed it yet.
    pub(super) fn promised(&self) -> Option<Time> {
        if self.is_offered() { self.claim_by() } else { self.deadline() }
    }

    /// Begins or ends the wait for a claim. (A later start is set by the command that moves it.)
    pub(super) fn note_start(&mut self, was_offered: bool, by: Option<Time>) {
        let by = match self.state {
            StepCode::Ready => by,
            StepCode::Overdue if was_offered => return,
            _ => None,
        };
        if by.is_some() || self.docket.as_ref().is_some_and(|docket| docket.start_by.is_some()) {
            self.docket.get_or_insert_default().start_by = by;
            if self.docket.as_deref() == Some(&Docket::default()) {
                self.docket = None;
            }
        }
    }
}

/// A later deadline; a step that was overdue is not so any more (T6).
pub fn extend(flow: &mut Flow<'_, '_, '_>, command: &StepAct, seq: StepSeq, deadline: Time) -> Result<Action, Refusal> {
    let cell = flow.cell(seq).filter(|cell| !cell.is_ended());
    let Some((state, unclaimed)) =
        cell.filter(|cell| cell.promised().is_some()).map(|cell| (cell.state, cell.is_unclaimed()))
    else {
        let detail = format!("`{}` has no deadline that could be put off now", command.step);
        return Err(Refusal::new(Code::InvalidTransition, detail).at("step"));
    };
    let given = Given { deadline: Some(deadline), ..Given::default() };
    flow.allow(seq, "deadline_extend", &given)?;
    let recovers = match (state, unclaimed) {
        (StepCode::Overdue, true) => Some(StepCode::Ready),
        (StepCode::Overdue, false) => Some(StepCode::InProgress),
        _ => None,
    };
    let by = By(SYSTEM, "deadline_extended");
    let fired = recovers.map(|to| flow.fire(seq, to, by, &given)).transpose()?;
    let docket = flow.edit(seq)?.docket.get_or_insert_default();
    docket.deadline = docket.deadline.map(|old| old.max(deadline));
    if let Some(fired) = fired {
        flow.make(fired)?;
    }
    if let Some(by) = flow.edit(seq)?.docket.as_mut().and_then(|docket| docket.start_by.as_mut()) {
        *by = deadline;
    }
    Ok(Action::DeadlineExtended)
}

/// T6 by the person in charge (ADR 57): the step has the time that its definition gives it once more, and no more.
pub fn reengage(flow: &mut Flow<'_, '_, '_>, seq: StepSeq) -> Result<Action, Refusal> {
    in_charge(flow, seq)?;
    let deadline = flow.spec(seq).and_then(|spec| spec.deadline).map(|length| flow.now().after(length));
    let given = Given { deadline, ..Given::default() };
    let fired = flow.fire(seq, StepCode::InProgress, By(ActorClass::PicHuman, "step_reengage"), &given)?;
    flow.edit(seq)?.docket.get_or_insert_default().deadline = deadline;
    flow.make(fired)?;
    Ok(Action::StepReengaged)
}
