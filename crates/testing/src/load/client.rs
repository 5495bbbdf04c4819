//! An engine with callers: the calls of [`super::calls`], and their answers decoded.

use super::{Design, calls};
use crate::place::ADMIN;
use anyhow::{Context, bail};
use countersign_engine::port::{Page, ProcessQuery, ProcessView, RecordQuery};
use countersign_engine::rows::RecordRow;
use countersign_engine::{Call, Engine, Outcome};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::{EventId, GrantId, HoldId, InstanceId, StepId};

/// Gives these people every scope that moves a process.
pub async fn let_do(engine: &Engine, people: &[&str]) -> anyhow::Result<()> {
    for subject_ref in people {
        for scope in calls::DOING {
            engine.execute(calls::grant(subject_ref, scope)).await?;
        }
    }
    Ok(())
}

pub async fn started(engine: &Engine, actor_ref: &str, design: &Design) -> anyhow::Result<InstanceId> {
    started_by(engine, calls::start(actor_ref, design, "subject", None)).await
}

pub async fn started_by(engine: &Engine, call: Call) -> anyhow::Result<InstanceId> {
    match engine.execute(call).await? {
        Outcome::Started { instance_id } => InstanceId::parse(&instance_id).context("no id"),
        other => bail!("not started: {other:?}"),
    }
}

/// The steps of a gate that is opened now.
pub async fn opened(
    engine: &Engine,
    actor_ref: &str,
    instance_id: InstanceId,
    action: &str,
) -> anyhow::Result<Vec<StepId>> {
    let ids = match engine.execute(calls::open(actor_ref, instance_id, action, None)).await? {
        Outcome::GateOpened { step_id, .. } => vec![step_id],
        Outcome::ChainOpened { steps, .. } => steps.into_iter().map(|step| step.step_id).collect(),
        other => bail!("not opened: {other:?}"),
    };
    ids.iter().map(|id| StepId::parse(id).context("no id")).collect()
}

pub async fn granted(engine: &Engine, subject_ref: &str, scope: &str) -> anyhow::Result<GrantId> {
    match engine.execute(calls::grant(subject_ref, scope)).await? {
        Outcome::Granted { grant_id } => GrantId::parse(&grant_id).context("no id"),
        other => bail!("not granted: {other:?}"),
    }
}

/// The answer in a word: the code of a refusal, or `ok`.
pub async fn told(engine: &Engine, call: Call) -> &'static str {
    match engine.execute(call).await {
        Ok(_) => "ok",
        Err(refusal) => refusal.code.as_str(),
    }
}

pub async fn view(engine: &Engine, instance_id: InstanceId) -> anyhow::Result<ProcessView> {
    let query = ProcessQuery { instance_id: Some(instance_id), ..ProcessQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    engine.read_workflow(ADMIN, query, &page).await?.pop().context("there is no such process")
}

/// All records of an instance with this action, in order.
pub async fn records(engine: &Engine, instance_id: InstanceId, action_ref: &str) -> anyhow::Result<Vec<RecordRow>> {
    let (instance_id, action_ref) = (Some(instance_id), Some(action_ref.to_owned()));
    let query = RecordQuery { instance_id, action_ref, ..RecordQuery::default() };
    let page = Page { after: None, limit: 10_000, descending: false };
    Ok(engine.read_records(ADMIN, &query, &page).await?)
}

/// A hold that is placed now.
pub async fn held(
    engine: &Engine,
    actor_ref: &str,
    record_ref: EventId,
    reason: &str,
    case_ref: Option<&str>,
) -> anyhow::Result<HoldId> {
    let command = engine.place_hold(&record_ref.to_string(), reason.to_owned(), case_ref.map(str::to_owned)).await?;
    match engine.execute(calls::by(actor_ref, command)).await? {
        Outcome::HoldPlaced { hold_id } => HoldId::parse(&hold_id).context("no id"),
        other => bail!("not held: {other:?}"),
    }
}

pub async fn release(engine: &Engine, actor_ref: &str, hold_id: HoldId, reason: &str) -> Result<(), Refusal> {
    let command = engine.release_hold(&hold_id.to_string(), Some(reason.to_owned())).await?;
    engine.execute(calls::by(actor_ref, command)).await.map(|_| ())
}

pub async fn purge(engine: &Engine, actor_ref: &str, event_id: EventId) -> Result<(), Refusal> {
    let command = engine.purge_record(&event_id.to_string()).await?;
    engine.execute(calls::by(actor_ref, command)).await.map(|_| ())
}
