//! Replays of dead letters (`spec/replay.md`): what a request asks its approvers, and what is done once they have approved. Every
//! node looks for approved requests. Each is acted on once: a delivery by the row of its request, a step by an idempotency key
//! that is kept for ever.

use crate::outcome::{Command, Target};
use crate::port::outbox::DeliveryReplay;
use crate::port::{Page, ProblemQuery, ReplayQuery};
use crate::rows::{GovernanceWrite, ProblemRow, ReplayRow, SignalRow, Write};
use crate::{Call, Engine, IdempotencyKey, store_failure};
use countersign_kernel::governance::{Category, CompletedReplay, ReplayOutcome, Replayed, Signal};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::process::{Attachment, ReplayState, Request, RequestReplay};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;
use countersign_kernel::run::{self, Act, Replay, StepAct};
use countersign_kernel::{IdSource, InstanceId, ProblemId, Time};
use countersign_ledger::sha256;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The records of the governance chain.
pub(crate) const REQUESTED: &str = "dlq_replay_requested";
pub(crate) const COMPLETED: &str = "dlq_replay_completed";
/// What a request's own records say it is about.
pub const MEMBER: &str = "dead_letter";
/// The event of a completed replay.
pub const EVENT: &str = "dlq_replay.completed";
/// Approved requests that are read at a time.
const DUE: usize = 100;

/// A dead letter as the approvers are shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Letter {
    pub dead_letter_id: String,
    /// `delivery` or `step`.
    pub kind: String,
    /// The key of its problem: the event and the sink, or the run, the step and its cycle.
    pub target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_class: Option<String>,
    /// SHA-256 of what would be sent, or of what the step works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_digest: Option<String>,
    pub attempts: u64,
    pub reason: String,
}

impl Letter {
    pub fn digest_of(payload: &str) -> String {
        sha256(&[payload.as_bytes()]).to_string()
    }

    /// The command that asks for its replay. Who approves is the engine's to say.
    pub fn request(&self, dead_letter_id: ProblemId) -> RequestReplay {
        // Text and numbers always serialise.
        let text = serde_json::to_string(self).unwrap_or_default();
        RequestReplay {
            dead_letter_id,
            reason: self.reason.clone(),
            content: Attachment { member: MEMBER, text: text.as_str().into(), document: None },
            request: Request { digest: sha256(&[text.as_bytes()]), text: text.into() },
            approvers: None,
        }
    }
}

pub(crate) fn unknown() -> Refusal {
    Refusal::new(Code::NotKnown, "there is no dead letter with this id").at("dead_letter_id")
}

/// The page that holds this problem and no other of its category.
pub(crate) fn page_of(problem_id: ProblemId) -> Page {
    let before = problem_id.0.as_u128().checked_sub(1).map(Uuid::from_u128);
    Page { after: before, limit: 1, descending: false }
}

/// The run, the step and its cycle that a letter is about; nothing where it is a delivery.
pub fn step_of(row: &ProblemRow) -> Option<(InstanceId, StepSeq, u32)> {
    let subject = &row.problem.subject;
    let run_id = subject.run_id?;
    let rest = subject.key.strip_prefix(&format!("{run_id}."))?;
    let (seq, cycle) = rest.split_once('.')?;
    Some((run_id, seq.parse().ok()?, cycle.parse().ok()?))
}

/// The event and the sink of a delivery that was given up.
pub fn delivery_of(row: &ProblemRow) -> Option<(Uuid, String)> {
    if step_of(row).is_some() {
        return None;
    }
    let (id, webhook) = row.problem.subject.key.split_once('.')?;
    Some((Uuid::try_parse(id).ok()?, webhook.to_owned()))
}

/// The record that a request was made.
pub(crate) fn requested(request_id: InstanceId, letter: &ProblemRow) -> Vec<u8> {
    let payload = json!({
        "instance_id": InstanceId::GOVERNANCE.to_string(),
        "dlq_replay_request_id": request_id.to_string(),
        "dead_letter_id": letter.problem.problem_id.to_string(),
        "key": letter.problem.subject.key,
    });
    payload.to_string().into_bytes()
}

/// The record of what became of a replay.
pub(crate) fn completed(completed: &CompletedReplay) -> Vec<u8> {
    let mut payload = named(completed);
    payload.insert("instance_id".to_owned(), InstanceId::GOVERNANCE.to_string().into());
    payload.insert("at_us".to_owned(), completed.at.0.into());
    payload.insert("detail".to_owned(), completed.detail.as_str().into());
    payload.extend(completed.shown_by.map(|event_id| ("event_id".to_owned(), event_id.to_string().into())));
    Value::Object(payload).to_string().into_bytes()
}

/// The data of its event.
pub(crate) fn data(completed: &CompletedReplay) -> Map<String, Value> {
    let mut data = named(completed);
    data.insert("audit_ref".to_owned(), completed.event_id.to_string().into());
    data
}

fn named(completed: &CompletedReplay) -> Map<String, Value> {
    let text = |name: &str, value: String| (name.to_owned(), Value::String(value));
    Map::from_iter([
        text("dlq_replay_request_id", completed.request.to_string()),
        text("approval_id", completed.scheduled.approval_id.to_string()),
        text("dead_letter_id", completed.scheduled.dead_letter_id.to_string()),
        text("outcome", completed.outcome.as_str().to_owned()),
    ])
}

/// Whether one of these rows schedules a replay.
pub(crate) fn schedules(writes: &[Write]) -> bool {
    let approved = |write: &Write| {
        matches!(write, Write::Governance(GovernanceWrite::DecideReplay { state: ReplayState::Approved, .. }))
    };
    writes.iter().any(approved)
}

impl Engine {
    /// A dead letter, for the server itself, which needs no grant.
    pub async fn own_dead_letter(&self, dead_letter_id: Option<ProblemId>) -> Result<ProblemRow, Refusal> {
        let id = dead_letter_id.ok_or_else(unknown)?;
        let query = ProblemQuery { category: Category::Dlq, open: None };
        let found = self.reader.problems(&query, &page_of(id)).await.map_err(|error| store_failure(&error))?.pop();
        found.filter(|row| row.problem.problem_id == id).ok_or_else(unknown)
    }

    /// Requests to replay dead letters, by id. Needs `governance:read`.
    pub async fn replay_requests(
        &self,
        actor_ref: &str,
        query: &ReplayQuery,
        page: &Page,
    ) -> Result<Vec<ReplayRow>, Refusal> {
        self.require_scope(actor_ref, scopes::GOVERNANCE_READ).await?;
        self.reader.replay_requests(query, page).await.map_err(|error| store_failure(&error))
    }

    /// Does what was approved and not done yet. How many requests that were.
    pub async fn replay_approved(&self) -> Result<u64, Refusal> {
        let due = self.reader.due_replays(DUE).await.map_err(|error| store_failure(&error))?;
        for request in &due {
            if let Err(refusal) = self.replay(request).await {
                tracing::warn!(request_id = %request.request_id, %refusal, "an approved replay has to wait");
            }
        }
        Ok(due.len() as u64)
    }

    async fn replay(&self, request: &ReplayRow) -> Result<(), Refusal> {
        let letter = self.own_dead_letter(Some(request.dead_letter_id)).await?;
        if let Some((run_id, _, cycle)) = step_of(&letter) {
            return self.replay_step(request, &letter, run_id, cycle).await;
        }
        let Some((outbox_id, webhook)) = delivery_of(&letter) else {
            return self.replay_failed(request, &letter, "its key names neither a step nor a delivery").await;
        };
        let replay = DeliveryReplay {
            request_id: request.request_id,
            requested_by: request.requested_by.clone(),
            outbox_id,
            webhook,
            subject: letter.problem.subject,
        };
        if self.replay_delivery(&replay).await.map_err(|error| store_failure(&error))? {
            tracing::info!(request_id = %request.request_id, %outbox_id, "a dead letter is replayed");
        }
        Ok(())
    }

    /// Its key is kept for ever: asked again, on any node, it gives the first answer.
    async fn replay_step(
        &self,
        request: &ReplayRow,
        letter: &ProblemRow,
        run_id: InstanceId,
        cycle: u32,
    ) -> Result<(), Refusal> {
        let (Some(step), Some(approval_id)) = (letter.problem.subject.step.clone(), request.approval_id) else {
            return self.replay_failed(request, letter, "its step or its approval is not known").await;
        };
        let key = format!("dlq-replay:{}", request.request_id);
        let request_digest = sha256(&[key.as_bytes()]);
        let act = Act::Replay(Replay { request: request.request_id, approval_id, cycle });
        let act = StepAct { step, act, reason: None, preview: false };
        let command = Command::Run { target: Target::Existing(run_id), command: run::Command::Act(act) };
        let idempotency = Some(IdempotencyKey { key, request_digest });
        match self.execute(Call { idempotency, ..self.own_call(command) }).await {
            Ok(_) => Ok(()),
            Err(refusal) if is_final(refusal.code) => self.replay_failed(request, letter, &refusal.detail).await,
            Err(refusal) => Err(refusal),
        }
    }

    /// Nothing could be replayed: that is its outcome.
    async fn replay_failed(&self, request: &ReplayRow, letter: &ProblemRow, why: &str) -> Result<(), Refusal> {
        let at = self.now();
        let replay = Some(Replayed { request: request.request_id, outcome: ReplayOutcome::Failed });
        let detail = format!("nothing was replayed: {why}");
        let subject = letter.problem.subject.clone();
        let signal = Signal { subject, at, event_id: None, opens: true, detail, replay };
        let signal_id = IdSource::new(at, request.request_id.0.as_u64_pair().1).make();
        self.signal(&[SignalRow { signal_id, signal }]).await.map_err(|error| store_failure(&error))
    }
}

/// Whether asking again would be refused again.
const fn is_final(code: Code) -> bool {
    matches!(
        code,
        Code::NotKnown
            | Code::Terminal
            | Code::AlreadyTerminal
            | Code::InvalidTransition
            | Code::InvalidRequest
            | Code::TransitionRefusedByGuard
    )
}

/// What a signal that a step was taken up by a replay says.
pub(crate) fn resumed(replay: &Replay) -> Replayed {
    Replayed { request: replay.request, outcome: ReplayOutcome::Resumed }
}

/// When the row of a replay says it ended.
pub(crate) fn ended(completed: &CompletedReplay, at: Time) -> Write {
    let end = crate::rows::ReplayEnd { outcome: completed.outcome, event_id: completed.event_id, at };
    Write::Governance(GovernanceWrite::CompleteReplay { request_id: completed.request, end })
}
