//! Servers on one store and workers in separate processes. Any of them may be killed.

use super::binary;
use super::server::{Server, share_key};
use super::worker::Yard;
use crate::place::{Kind, Place};
use anyhow::ensure;
use countersign_client::Client;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

pub struct Stage {
    pub place: Place,
    pub servers: Vec<Server>,
    /// Where each server is; none while it is gone.
    pub urls: Arc<Mutex<Vec<Option<String>>>>,
    pub yard: Yard,
    pub token: String,
    pub crew: Crew,
    program: PathBuf,
    binary: PathBuf,
    hired: usize,
    seed: u64,
}

/// The workers that are alive; none outlives the test.
pub struct Crew(pub Vec<Child>);

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

impl Stage {
    /// Servers with this configuration, and no workers yet. `program` is what can be a worker.
    pub async fn new(program: &Path, kind: Kind, nodes: usize, seed: u64, config: &str) -> anyhow::Result<Stage> {
        let place = Place::new(kind).await?;
        let binary = binary::countersign()?;
        let mut servers = vec![];
        for n in 0..nodes {
            let directory = place.directory().join(format!("node-{n}"));
            std::fs::create_dir_all(&directory)?;
            if n > 0 {
                share_key(&place.directory().join("node-0"), &directory)?;
            }
            std::fs::write(directory.join("countersign.toml"), config)?;
            servers.push(Server::start(&binary, directory, &place.url).await?);
        }
        let token = std::fs::read_to_string(place.directory().join("node-0").join("admin.token"))?.trim().to_owned();
        let yard = Yard::new(place.directory().join("yard"), &token)?;
        let urls = Arc::new(Mutex::new(servers.iter().map(|server| Some(server.url.clone())).collect()));
        let (program, crew) = (program.to_owned(), Crew(vec![]));
        let stage = Stage { place, servers, urls, yard, token, crew, program, binary, hired: 0, seed };
        stage.say_where()?;
        Ok(stage)
    }

    pub fn logs(&self) -> String {
        self.place.directory().display().to_string()
    }

    fn say_where(&self) -> anyhow::Result<()> {
        self.yard.servers(&self.urls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, node: usize, url: Option<String>) -> anyhow::Result<()> {
        self.urls.lock().unwrap_or_else(PoisonError::into_inner)[node] = url;
        self.say_where()
    }

    pub fn hire(&mut self, workers: usize) -> anyhow::Result<()> {
        for _ in 0..workers {
            let worker = self.another()?;
            self.crew.0.push(worker);
        }
        Ok(())
    }

    fn another(&mut self) -> anyhow::Result<Child> {
        self.hired += 1;
        self.yard.spawn(&self.program, self.hired, self.seed)
    }

    pub fn client(&self, node: usize) -> anyhow::Result<Client> {
        Ok(Client::new(&self.servers[node].url)?.with_token(&self.token)?)
    }

    pub async fn kill_server(&mut self, node: usize) -> anyhow::Result<()> {
        self.set(node, None)?;
        self.servers[node].kill()?;
        let directory = self.place.directory().join(format!("node-{node}"));
        self.servers[node] = Server::start(&self.binary, directory, &self.place.url).await?;
        self.set(node, Some(self.servers[node].url.clone()))
    }

    pub fn kill_worker(&mut self, n: usize) -> anyhow::Result<()> {
        let worker = self.another()?;
        self.crew.0[n].kill()?;
        self.crew.0[n].wait()?;
        self.crew.0[n] = worker;
        Ok(())
    }

    /// Every server stops when it is told to, and what they left is a log that verifies.
    pub async fn end(self) -> anyhow::Result<()> {
        // A killed server holds the sealer's lease for a moment, so a short test may have sealed nothing. What this leaves is checked below.
        drop(self.client(0)?.seal().await);
        let Stage { place, servers, crew, .. } = self;
        drop(crew);
        for mut server in servers {
            let status = server.terminate().await?;
            ensure!(status.success(), "a server that was told to stop ended with {status}");
        }
        super::require_log(&place).await?;
        place.remove().await
    }
}
