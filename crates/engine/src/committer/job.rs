//! A call on its way through the committer, and who waits for its answer.

use super::Answer;
use crate::outcome::{Call, Command, Target};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::process::{self, DecideGate, StepChoice};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::{InstanceId, StepId, Time, run};
use tokio::sync::oneshot;

pub struct Job {
    pub(super) call: Call,
    pub(super) answer: oneshot::Sender<Answer>,
    /// Set where this job only records that its caller was refused: the answer is this refusal.
    pub(super) refused: Option<Refusal>,
    /// The step that the caller named. What it is at the moment is found out in every round.
    pub(super) named_step: Option<StepId>,
    /// Steps taken out of the agenda for a claim.
    pub(super) offered: Vec<(InstanceId, StepSeq)>,
    /// As of when the kernel was last asked what is due.
    pub(super) looked_at: Time,
}

impl Job {
    pub fn new(call: Call, answer: oneshot::Sender<Answer>) -> Self {
        let named_step = match &call.command {
            Command::Process { command: process::Command::DecideGate(DecideGate { step, .. }), .. } => match step {
                Some(StepChoice::Id(step_id)) => Some(*step_id),
                Some(StepChoice::Ended | StepChoice::Unknown) | None => None,
            },
            Command::Run { command: run::Command::DecideGate(DecideGate { step, .. }), .. } => match step {
                Some(StepChoice::Id(step_id)) => Some(*step_id),
                Some(StepChoice::Ended | StepChoice::Unknown) | None => None,
            },
            Command::Process { .. }
            | Command::Run { .. }
            | Command::Claim(_)
            | Command::Registry(_)
            | Command::Governance(_)
            | Command::Merge(_)
            | Command::RequestReplay(_)
            | Command::Ask { .. } => None,
        };
        Job { call, answer, refused: None, named_step, offered: vec![], looked_at: Time(0) }
    }

    pub(super) fn give(self, answer: Answer) {
        let answer = match (self.refused, answer) {
            (None, answer) => answer,
            (Some(refusal), Ok(_)) => Err(refusal),
            (Some(refusal), Err(failure)) => {
                tracing::error!(%failure, attempt = %refusal, "a refused attempt could not be recorded");
                Err(refusal)
            }
        };
        // The caller may have gone away; what was committed stays committed.
        let _ = self.answer.send(answer);
    }

    pub(super) fn is_registry(&self) -> bool {
        matches!(self.call.command, Command::Registry(_) | Command::Merge(_) | Command::RequestReplay(_))
    }

    /// It is decided and committed by itself.
    pub(super) fn is_alone(&self) -> bool {
        self.is_registry() || matches!(self.call.command, Command::Governance(_))
    }

    pub(super) fn instance_id(&self) -> Option<InstanceId> {
        match &self.call.command {
            Command::Process { target: Target::Existing(instance_id), .. }
            | Command::Run { target: Target::Existing(instance_id), .. }
            | Command::Ask { target: Target::Existing(instance_id), .. } => Some(*instance_id),
            Command::Process { target: Target::New | Target::Nowhere, .. }
            | Command::Run { target: Target::New | Target::Nowhere, .. }
            | Command::Ask { target: Target::New | Target::Nowhere, .. }
            | Command::Claim(_)
            | Command::Governance(_)
            | Command::Merge(_)
            | Command::RequestReplay(_)
            | Command::Registry(_) => None,
        }
    }
}
