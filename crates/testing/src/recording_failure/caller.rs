//! Steady work at an engine of this process.

use super::NOTHING_WRITTEN;
use crate::load::client::view;
use crate::load::shapes::{shape, single};
use crate::load::steady::{APPROVER, BACK, CLERK, Caller, SIGN, Said, Stand};
use crate::load::{Design, calls};
use async_trait::async_trait;
use countersign_engine::port::ProcessView;
use countersign_engine::{Call, Engine, Outcome};
use countersign_kernel::machine::StepState;
use countersign_kernel::process::{Decision, Fate};
use countersign_kernel::{Code, InstanceId, Refusal};
use std::sync::Arc;

pub struct EngineCaller {
    engine: Arc<Engine>,
    design: Design,
}

impl EngineCaller {
    /// `CLERK` may do everything but approve.
    pub async fn new(engine: Arc<Engine>) -> anyhow::Result<EngineCaller> {
        crate::load::client::let_do(&engine, &[CLERK]).await?;
        let transitions = [format!("draft {SIGN} signed by-name"), format!("signed {BACK} draft")];
        let transitions = transitions.each_ref().map(String::as_str);
        Ok(EngineCaller { engine, design: shape("steady", &transitions, &[("by-name", single(APPROVER))]) })
    }

    async fn give(&self, call: Call, tag: &str) -> (Said, Option<Outcome>) {
        match self.engine.execute(calls::with_key(call, tag)).await {
            Ok(outcome) => (Said::Yes, Some(outcome)),
            Err(refusal) => (said(&refusal), None),
        }
    }
}

/// A failure to record says whether something may have been written.
pub fn said(refusal: &Refusal) -> Said {
    let told = format!("{}: {}", refusal.code, refusal.detail);
    if refusal.code == Code::RecordingFailure && !refusal.detail.contains(NOTHING_WRITTEN) {
        Said::Unknown(told)
    } else {
        Said::No(told)
    }
}

fn id(instance_id: &str) -> Option<InstanceId> {
    InstanceId::parse(instance_id)
}

#[async_trait]
impl Caller for EngineCaller {
    async fn start(&self, tag: &str) -> (Said, Option<String>) {
        let (said, outcome) = self.give(calls::start(CLERK, &self.design, tag, Some(tag)), tag).await;
        match outcome {
            Some(Outcome::Started { instance_id }) => (said, Some(instance_id)),
            _ => (said, None),
        }
    }

    async fn open(&self, instance_id: &str, tag: &str) -> Said {
        self.give(calls::open(CLERK, id(instance_id), SIGN, Some(tag)), tag).await.0
    }

    async fn approve(&self, instance_id: &str, tag: &str) -> Said {
        let call = calls::decide(APPROVER, id(instance_id), SIGN, Decision::Approve, Some(tag), None);
        self.give(call, tag).await.0
    }

    async fn fire(&self, instance_id: &str, action: &str, tag: &str) -> Said {
        self.give(calls::fire(CLERK, id(instance_id), action, Some(tag)), tag).await.0
    }

    async fn stand(&self, instance_id: &str) -> anyhow::Result<Option<Stand>> {
        let Some(instance_id) = id(instance_id) else { anyhow::bail!("no id: {instance_id}") };
        match view(&self.engine, instance_id).await {
            Ok(view) => Ok(Some(stand(&view))),
            Err(error) => match error.downcast_ref::<Refusal>() {
                Some(refusal) if refusal.code == Code::RecordingFailure => Ok(None),
                _ => Err(error),
            },
        }
    }

    async fn recover(&self) -> bool {
        tokio::task::yield_now().await;
        true
    }
}

fn stand(view: &ProcessView) -> Stand {
    if view.current_state != "draft" {
        return Stand::Signed;
    }
    let current = view.gates.iter().find(|(gate, _)| gate.current && gate.fate == Fate::Unspent);
    match current.and_then(|(_, steps)| steps.first()).map(|(step, _)| step.state) {
        Some(StepState::Pending) => Stand::Waiting,
        Some(StepState::Approved) => Stand::Cleared,
        Some(StepState::Rejected | StepState::Withdrawn) | None => Stand::Draft,
    }
}
