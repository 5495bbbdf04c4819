//! The real binary, killed. Several clients drive `countersign serve` over HTTP and count their results
//! ([`crate::load::steady`]). The server is killed with SIGKILL at a seeded moment and started again on the same
//! store. At the end everything that was acknowledged must exist, everything that was refused must not, and the whole
//! store must verify. With SIGTERM, in addition, no work may be done without an answer.

pub(crate) mod binary;
mod http;
mod purges;
mod replays;
mod runbooks;
mod runs;
mod server;
mod stage;
mod streams;
pub mod worker;

pub use purges::killed_while_purging;
pub use replays::killed_after_approvals;
pub use runbooks::{RunbooksReport, killed_with_runbooks};
pub(crate) use runs::{Proven, require_proven};
pub use runs::{RunsReport, killed_with_runs};
pub(crate) use server::Server;
pub use streams::{StreamsReport, followed_by_many, killed_with_streams};

use crate::load::Rng;
use crate::load::steady::{Account, Witness, work};
use crate::place::{ADMIN, Kind, Place};
use crate::store_audit::{self, Summary};
use anyhow::{Context, ensure};
use countersign_engine::Config;
use http::{HttpCaller, Tokens};
use server::Nodes;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

const CLIENTS: u64 = 6;
/// Acknowledged calls between two kills, at most.
const BETWEEN: usize = 120;

#[derive(Clone, Debug)]
pub struct Report {
    pub account: Account,
    pub summary: Summary,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Account { acknowledged, refused, unknown_there, unknown_absent } = &self.account;
        write!(
            f,
            "{acknowledged} acknowledged, {refused} refused, {} unanswered ({unknown_there} done); {}",
            unknown_there + unknown_absent,
            self.summary
        )
    }
}

/// Kills with SIGKILL, again and again. With two `nodes` on one database the other one goes on.
pub async fn killed(kind: Kind, nodes: usize, seed: u64, kills: usize) -> anyhow::Result<Report> {
    let stage = Stage::new(kind, nodes, seed).await?;
    let logs = stage.logs();
    let report = kill(stage, seed, kills).await;
    report.with_context(|| format!("killed on {kind} with {nodes} nodes, seed {seed}; logs: {logs}"))
}

async fn kill(mut stage: Stage, seed: u64, kills: usize) -> anyhow::Result<Report> {
    let mut rng = Rng::new(seed);
    let clients = stage.begin();
    for _ in 0..kills {
        stage.wait_for_work(&clients, 1 + rng.below(BETWEEN)).await?;
        // Somewhere within the next commits.
        tokio::time::sleep(Duration::from_micros(rng.below(3000) as u64)).await;
        let node = rng.below(stage.servers.len());
        stage.nodes.gone(node);
        stage.servers[node].kill()?;
        stage.restart(node).await?;
    }
    stage.wait_for_work(&clients, 20).await?;
    stage.nodes.end();
    for client in clients {
        client.await??;
    }
    stage.end().await
}

/// Stops with SIGTERM under load, again and again: what was not answered was not done either.
pub async fn terminated(kind: Kind, seed: u64, times: usize) -> anyhow::Result<Report> {
    let stage = Stage::new(kind, 1, seed).await?;
    let logs = stage.logs();
    let report = terminate(stage, seed, times).await;
    report.with_context(|| format!("terminated on {kind}, seed {seed}; logs: {logs}"))
}

async fn terminate(mut stage: Stage, seed: u64, times: usize) -> anyhow::Result<Report> {
    let mut rng = Rng::new(seed);
    let clients = stage.begin();
    for _ in 0..times {
        stage.wait_for_work(&clients, 1 + rng.below(BETWEEN)).await?;
        let status = stage.servers[0].terminate().await?;
        ensure!(status.success(), "a server that was told to stop ended with {status}");
        stage.nodes.gone(0);
        stage.restart(0).await?;
    }
    stage.wait_for_work(&clients, 20).await?;
    stage.nodes.end();
    for client in clients {
        client.await??;
    }
    let causes = stage.witness.causes();
    let report = stage.end().await?;
    ensure!(report.account.unknown_there == 0, "done, but not answered: {:?}; {causes:?}", report.account);
    Ok(report)
}

/// Servers on one store, and their answers to clients.
struct Stage {
    place: Place,
    binary: PathBuf,
    servers: Vec<Server>,
    nodes: Arc<Nodes>,
    tokens: Tokens,
    witness: Arc<Witness>,
    seed: u64,
}

impl Stage {
    async fn new(kind: Kind, nodes: usize, seed: u64) -> anyhow::Result<Stage> {
        let place = Place::new(kind).await?;
        let binary = binary::countersign()?;
        let mut servers = vec![];
        for n in 0..nodes {
            let directory = place.directory().join(format!("node-{n}"));
            if n > 0 {
                server::share_key(&place.directory().join("node-0"), &directory)?;
            }
            servers.push(Server::start(&binary, directory, &place.url).await?);
        }
        let addresses = servers.iter().map(|server| server.url.clone());
        let nodes = Arc::new(Nodes::new(addresses));
        let token = std::fs::read_to_string(place.directory().join("node-0").join("admin.token"))?;
        let tokens = Tokens::set_up(&servers[0].url, token.trim()).await?;
        Ok(Stage { place, binary, servers, nodes, tokens, witness: Arc::default(), seed })
    }

    fn logs(&self) -> String {
        self.place.directory().display().to_string()
    }

    fn begin(&self) -> Vec<JoinHandle<anyhow::Result<()>>> {
        let client = |n: u64| {
            let first = usize::try_from(n).unwrap_or(0);
            let caller = HttpCaller::new(self.tokens.clone(), self.nodes.clone(), first);
            let (witness, nodes, seed) = (self.witness.clone(), self.nodes.clone(), self.seed);
            tokio::spawn(async move {
                work(&caller, &format!("client-{n}"), seed.wrapping_add(n), &witness, || nodes.ended()).await
            })
        };
        (0..CLIENTS).map(client).collect()
    }

    /// Returns after this many more successful answers.
    async fn wait_for_work(&mut self, clients: &[JoinHandle<anyhow::Result<()>>], more: usize) -> anyhow::Result<()> {
        let goal = self.witness.acknowledged() + more;
        while self.witness.acknowledged() < goal {
            ensure!(!clients.iter().any(JoinHandle::is_finished), "a client gave up");
            for server in &mut self.servers {
                server.require_alive()?;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    async fn restart(&mut self, node: usize) -> anyhow::Result<()> {
        let directory = self.place.directory().join(format!("node-{node}"));
        self.servers[node] = Server::start(&self.binary, directory, &self.place.url).await?;
        self.nodes.back(node, self.servers[node].url.clone());
        Ok(())
    }

    /// Stops everything and compares the store with the answers.
    async fn end(self) -> anyhow::Result<Report> {
        for mut server in self.servers {
            let status = server.terminate().await?;
            ensure!(status.success(), "a server that was told to stop ended with {status}");
        }
        let account = self.witness.check(&self.place.url).await?;
        let summary = store_audit::require_sound(&self.place.url).await?;
        require_log(&self.place).await?;
        self.place.remove().await?;
        Ok(Report { account, summary })
    }
}

/// The servers sealed until they were killed: what they left is a log that verifies, and it goes on.
async fn require_log(place: &Place) -> anyhow::Result<()> {
    let language = Arc::new(countersign_definition::Cel::default());
    let engine = place.engine(Config { language, ..Config::default() }).await?;
    let report = engine.verify_log(ADMIN, None, &mut |_, _| {}).await?;
    ensure!(report.found == 0, "the log does not verify: {:#?}", report.findings);
    ensure!(report.size > 0, "nothing was sealed");
    crate::place::close(engine).await
}
