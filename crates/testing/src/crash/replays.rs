//! The real binary, killed between the approval of a replay and the replay. Every approved request is carried out once, and
//! its outcome is recorded once.

use super::binary;
use super::server::Server;
use crate::load::Rng;
use crate::place::{Kind, Place};
use anyhow::{Context, ensure};
use countersign_client::{Client, Format};

use countersign_client::wire::{
    ActorKind, ClaimTasks, DeadTask, DecideGate, Decision, ProblemState, ProblemsQuery, RecordQuery, RegisterActor,
    ReplayRequestFilter, ReplayRequestsQuery, RequestReplay, StartRun, VerifyLog,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const CONFIG: &str = "[governance]\nreplay_approver = \"chief\"\n";
const HELD: &str =
    "kind: workflow\nname: held\nqueue: q\nsteps: [{name: A, onFailure: hold, retryPolicy: {maxRetries: 0}}]\n";
const PAUSE: Duration = Duration::from_millis(20);
/// A loaded machine may take its time.
const LOOKS: usize = 6_000;

/// One dead step for each kill, which comes somewhere behind the approval of its replay.
pub async fn killed_after_approvals(kind: Kind, seed: u64, kills: usize) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let binary = binary::countersign()?;
    let directory = place.directory().join("node-0");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("countersign.toml"), CONFIG)?;
    let mut server = Server::start(&binary, directory.clone(), &place.url).await?;
    let token = std::fs::read_to_string(directory.join("admin.token"))?.trim().to_owned();
    let admin = Client::new(&server.url)?.with_token(&token)?;
    let chief = register(&admin, "chief").await?;
    admin.publish_definition(Format::Yaml, HELD.as_bytes()).await?;
    for _ in 0..kills {
        die(&admin).await?;
    }
    let letters = letters(&admin, kills).await?;
    let mut rng = Rng::new(seed);
    for letter in &letters {
        let admin = Client::new(&server.url)?.with_token(&token)?;
        let why = RequestReplay { reason: "put right".to_owned() };
        let request = admin.request_replay(letter, &why).await?.body;
        let decide = DecideGate { decision: Decision::Approve, reason: None, step_id: None, request_digest: None };
        let approver = Client::new(&server.url)?.with_token(&chief)?;
        approver.decide_gate(&request.dlq_replay_request_id, &request.gate.action, &decide).await?;
        tokio::time::sleep(Duration::from_micros(rng.below(4000) as u64)).await;
        server.kill()?;
        server = Server::start(&binary, directory.clone(), &place.url).await?;
    }
    let admin = Client::new(&server.url)?.with_token(&token)?;
    completed(&admin, kills).await?;
    // A second look finds nothing more to do.
    for (action, member) in [("step_retry_ordered", "replay"), ("dlq_replay_completed", "")] {
        let seen = requests_of(&admin, action, member).await?;
        let distinct: BTreeSet<&String> = seen.iter().collect();
        ensure!(seen.len() == kills && distinct.len() == kills, "{action}: {seen:?}");
    }
    let verified = admin.verify_log(&VerifyLog { instance_id: None }, |_| {}).await?.body;
    ensure!(verified.findings.is_empty(), "{:?}", verified.findings);
    let status = server.terminate().await?;
    ensure!(status.success(), "a server that was told to stop ended with {status}");
    place.remove().await
}

async fn register(admin: &Client, actor_ref: &str) -> anyhow::Result<String> {
    let request =
        RegisterActor { actor_ref: actor_ref.to_owned(), kind: ActorKind::Human, display_name: None, public_key: None };
    admin.register_actor(&request).await?.body.token.context("no token")
}

/// A run whose only step is given up.
async fn die(admin: &Client) -> anyhow::Result<()> {
    let start: StartRun = serde_json::from_value(json!({"definition": "held"}))?;
    admin.start_run(&start).await?;
    let claim = ClaimTasks { worker_id: "w".to_owned(), max: None, lease_ms: None, wait_ms: Some(10_000) };
    let task = admin.claim_tasks("q", &claim).await?.body.tasks.into_iter().next().context("no task")?;
    let dead: DeadTask = serde_json::from_value(json!({"lease_token": task.lease_token, "last_error": "broken"}))?;
    admin.dead_task(&task.task_id, &dead).await?;
    Ok(())
}

async fn letters(admin: &Client, count: usize) -> anyhow::Result<Vec<String>> {
    let query = ProblemsQuery { state: Some(ProblemState::Open), limit: Some(500), ..ProblemsQuery::default() };
    for _ in 0..LOOKS {
        let letters = admin.dead_letters(&query).await?.body.items;
        if letters.len() == count {
            return Ok(letters.into_iter().map(|letter| letter.dead_letter_id).collect());
        }
        tokio::time::sleep(PAUSE).await;
    }
    anyhow::bail!("there are not {count} dead letters")
}

async fn completed(admin: &Client, count: usize) -> anyhow::Result<()> {
    let closed = Some(ReplayRequestFilter::Closed);
    let query = ReplayRequestsQuery { state: closed, limit: Some(500), ..ReplayRequestsQuery::default() };
    for _ in 0..LOOKS {
        let requests = admin.replay_requests(&query).await?.body.items;
        if requests.iter().filter(|request| request.outcome.is_some()).count() == count {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    anyhow::bail!("what was approved is not replayed")
}

/// The requests that records of this action name, in their payload or in a member of it.
async fn requests_of(admin: &Client, action: &str, member: &str) -> anyhow::Result<Vec<String>> {
    let query: RecordQuery =
        RecordQuery { action_ref: Some(action.to_owned()), limit: Some(500), ..RecordQuery::default() };
    let records = admin.records(&query).await?.body.items;
    let named = records.iter().map(|record| {
        let holder = if member.is_empty() { &record.payload } else { &record.payload[member] };
        holder.get("dlq_replay_request_id").and_then(Value::as_str).map(str::to_owned)
    });
    named.collect::<Option<Vec<String>>>().context("a replay without its request")
}
