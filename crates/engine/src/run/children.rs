//! What a run and the run that it is a step of have to tell each other. The clockwork asks, whichever of the two moved; should
//! that be lost with a node, it asks again.

use super::clockwork::Clockwork;
use super::rollup::Basis;
use crate::port::{RunView, StoreError};
use crate::reads::run_of;
use crate::rows::StepState;
use countersign_kernel::lifecycle::{RunState, StepCode};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::run::{self, Parent};
use countersign_kernel::{InstanceId, Time};
use std::sync::Arc;

/// How often either asks after the other, should its end have gone unnoticed.
const CHECK_US: i64 = 30_000_000;

impl Clockwork {
    /// The step waits for this child: it ends with it, and until then shows its colour.
    pub(super) async fn ask_after_child(&self, run_id: InstanceId, step_seq: StepSeq, child: &str) {
        let Some(child) = InstanceId::parse(child) else { return };
        let heard = self.hear_of_child(&Parent { run_id, step_seq }, child).await;
        if let Err(error) = &heard {
            tracing::warn!(%error, "a child run could not be read");
        }
        if !heard.is_ok_and(|ended| ended) {
            self.book.remind_by((run_id, Some(step_seq)), self.later());
        }
    }

    /// The run is a runbook that was stopped, and so is the run that does the work of its step. It goes on with an approval of
    /// its own only.
    pub(super) async fn stop_child(&self, run_id: InstanceId, child: &str) {
        let Some(child) = InstanceId::parse(child) else { return };
        // What has ended, or is stopped already, stays as it is.
        let reason = Some(format!("run {run_id}, which it is a step of, was stopped"));
        self.told(child, run::Command::Stop { reason }).await;
    }

    /// True where the child has ended, and the step has been told.
    async fn hear_of_child(&self, parent: &Parent, child: InstanceId) -> Result<bool, StoreError> {
        let (run_id, step_seq) = (parent.run_id, parent.step_seq);
        let mut shown = None;
        loop {
            let Some(view) = run_of(&*self.reader, child).await? else { return Ok(false) };
            if let Some((completed, output)) = end_of(&view, parent) {
                let command = run::Command::ChildEnded { step_seq, child, completed, output };
                return Ok(self.told(run_id, command).await);
            }
            let basis = view.head.rollup.as_deref().and_then(Basis::parse);
            let looks = basis.map(|basis| (basis.rollup.colour, basis.waits));
            let Some((colour, waits)) = looks.filter(|_| looks != shown) else { return Ok(false) };
            self.told(run_id, run::Command::ChildColoured { step_seq, child, colour, waits }).await;
            // Whatever the child did meanwhile, its reminder went under with that.
            shown = looks;
        }
    }

    /// This run is a step of another one. Where that step has ended without it, nobody waits for it: it is cancelled.
    pub(super) async fn ask_after_parent(&self, run_id: InstanceId, parent: &str, step_seq: StepSeq) {
        let Some(parent) = InstanceId::parse(parent) else { return };
        let settled = match self.reader.run_steps(parent, step_seq, 1).await {
            Ok(found) => match found.first().filter(|step| step.step_seq == step_seq).map(|step| &step.state) {
                Some(step) if run::is_over(step.state, step.next_run_at.is_some()) => {
                    // A cancel that is guarded, or a run that undoes its work, has its own way to end.
                    let reason = format!("run {parent}, which it was a step of, went on without it");
                    let cancel = run::Command::Cancel { reason: Some(reason), approval_id: None, compensate: false };
                    self.told(run_id, cancel).await
                }
                // It was told of another child, or of none: whoever ends it will not know of this one.
                Some(step) if step.child_run_id != Some(run_id) => false,
                // Whoever ends the step says so.
                _ => true,
            },
            Err(error) => {
                tracing::warn!(%error, "the parent of a run could not be read");
                false
            }
        };
        if !settled {
            self.book.remind_by((run_id, None), self.later());
        }
    }

    async fn told(&self, run_id: InstanceId, command: run::Command) -> bool {
        match self.send(run_id, command).await {
            Some(answer) => matches!(answer.await, Ok(Ok(_))),
            None => false,
        }
    }

    fn later(&self) -> Time {
        Time((self.now)().0 + CHECK_US)
    }
}

/// The run that a step began and waits for no more: it asks, and hears so.
pub fn left_behind(step: &StepState) -> Option<InstanceId> {
    let over = run::is_over(step.state, step.next_run_at.is_some()) && step.state != StepCode::Completed;
    step.child_run_id.filter(|_| over)
}

/// Whether the child has completed, and its output or its last error; `None` while it lives.
fn end_of(view: &RunView, parent: &Parent) -> Option<(bool, Arc<str>)> {
    let state = RunState::parse(&view.head.state).filter(|state| state.is_ended())?;
    if view.row.parent != Some((parent.run_id, parent.step_seq)) {
        return None;
    }
    let completed = state == RunState::Completed && view.head.outcome.is_none();
    let said = if completed { &view.head.output } else { &view.head.last_error };
    Some((completed, said.clone().unwrap_or_else(|| Arc::from(if completed { "null" } else { "ended" }))))
}
