//! The real binary, killed while it purges. Every record is either purged completely, with its `record_purged`, or
//! has all its content. A purge that was answered stays purged, and at the end nothing of it is left in the file.

use super::binary;
use super::server::{Nodes, Server};
use crate::load::Rng;
use crate::place::{Kind, Place};
use crate::store_audit::{self, Summary};
use anyhow::{Context, ensure};
use countersign_client::wire::{Declaration, FireTransition, PurgeableQuery, StartProcess, Transition};
use countersign_client::{Client, Error};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const PROCESSES: usize = 30;
const MOVES: usize = 6;
const PURGERS: usize = 4;
/// In every text that is purged.
const MARKER: &str = "Z7-to-be-forgotten";
/// Everything may be purged at once.
const CONFIG: &str = "audit_trail_retention_policy = \"moment\"\n[retention.policies.moment]\nduration = \"1ms\"\n";

/// What is still to be purged, and what was answered so far.
#[derive(Default)]
struct Work {
    waiting: Mutex<VecDeque<String>>,
    purged: Mutex<Vec<String>>,
}

impl Work {
    fn take(&self) -> Option<String> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn put_back(&self, event_id: String) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(event_id);
    }

    fn answered(&self, event_id: String) {
        self.purged.lock().unwrap_or_else(PoisonError::into_inner).push(event_id);
    }

    fn count(&self) -> usize {
        self.purged.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

pub async fn killed_while_purging(kind: Kind, seed: u64, kills: usize) -> anyhow::Result<Summary> {
    let place = Place::new(kind).await?;
    let binary = binary::countersign()?;
    let directory = place.directory().join("node-0");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("countersign.toml"), CONFIG)?;
    let mut server = Server::start(&binary, directory.clone(), &place.url).await?;
    let token = std::fs::read_to_string(directory.join("admin.token"))?.trim().to_owned();
    let client = Client::new(&server.url)?.with_token(&token)?;
    fill(&client).await?;
    let work = Arc::new(Work { waiting: Mutex::new(purgeable(&client).await?.into()), purged: Mutex::default() });
    let all = PROCESSES * (MOVES + 1);
    ensure!(work.waiting.lock().unwrap_or_else(PoisonError::into_inner).len() == all, "not all can be purged");

    let nodes = Arc::new(Nodes::new([server.url.clone()]));
    let purgers: Vec<_> =
        (0..PURGERS).map(|_| tokio::spawn(purge(work.clone(), nodes.clone(), token.clone()))).collect();
    let mut rng = Rng::new(seed);
    for kill in 1..=kills {
        let goal = (all * kill / (kills + 1)).min(all);
        while work.count() < goal {
            server.require_alive()?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Somewhere within the next commits.
        tokio::time::sleep(Duration::from_micros(rng.below(3000) as u64)).await;
        nodes.gone(0);
        server.kill()?;
        server = Server::start(&binary, directory.clone(), &place.url).await?;
        nodes.back(0, server.url.clone());
    }
    for purger in purgers {
        purger.await??;
    }
    let status = server.terminate().await?;
    ensure!(status.success(), "a server that was told to stop ended with {status}");
    let summary = store_audit::require_sound(&place.url).await?;
    ensure!(summary.purged == all && work.count() == all, "{} of {all} are purged", summary.purged);
    place.require_no_trace(MARKER).await?;
    place.remove().await?;
    Ok(summary)
}

/// Processes that go round, with the marker in every text.
async fn fill(client: &Client) -> anyhow::Result<()> {
    let transition =
        Transition { from: "a".into(), action: "turn".into(), to: "a".into(), guard: None, effects: vec![] };
    for n in 0..PROCESSES {
        let request = StartProcess {
            declaration: Some(Declaration {
                states: vec!["a".to_owned()],
                transitions: vec![transition.clone()],
                initial_state: "a".to_owned(),
                terminal_states: vec![],
            }),
            definition: None,
            subject_ref: format!("{MARKER} {n}"),
            gate_spec: None,
            reason: Some(MARKER.repeat(1 + n % 5)),
        };
        let process = client.start(&request).await?.body.instance_id;
        for _ in 0..MOVES {
            let request = FireTransition { action: "turn".to_owned(), reason: Some(format!("{MARKER} turns")) };
            client.fire(&process, &request).await?;
        }
    }
    // Their time is over a millisecond later.
    tokio::time::sleep(Duration::from_millis(5)).await;
    Ok(())
}

async fn purgeable(client: &Client) -> anyhow::Result<Vec<String>> {
    let mut query = PurgeableQuery { limit: Some(100), cursor: None };
    let mut all = vec![];
    loop {
        let page = client.purgeable(&query).await?.body;
        all.extend(page.items.into_iter().map(|item| item.event_id));
        query.cursor = page.next;
        if query.cursor.is_none() {
            return Ok(all);
        }
    }
}

/// Purges until nothing is left, at whichever server is there.
async fn purge(work: Arc<Work>, nodes: Arc<Nodes>, token: String) -> anyhow::Result<()> {
    while let Some(event_id) = work.take() {
        let Some(url) = nodes.url(0) else {
            work.put_back(event_id);
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        };
        let client = Client::new(&url)?.with_token(&token)?;
        match client.purge_record(&event_id).await {
            Ok(_) => work.answered(event_id),
            // Done before the kill, and not answered.
            Err(Error::Refused(problem)) if problem.code == "not-eligible" => {
                let record = client.record(&event_id).await;
                let gone = record.as_ref().is_ok_and(|answer| answer.body.payload.is_null());
                match record {
                    Ok(_) if gone => work.answered(event_id),
                    Ok(_) => anyhow::bail!("{event_id} is not eligible, and there: {}", problem.detail),
                    Err(_) => work.put_back(event_id),
                }
            }
            Err(Error::Refused(problem)) if problem.status == 503 => work.put_back(event_id),
            Err(Error::Refused(problem)) => return Err(Error::Refused(problem)).context("a purge was refused"),
            Err(_) => {
                work.put_back(event_id);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }
    Ok(())
}
