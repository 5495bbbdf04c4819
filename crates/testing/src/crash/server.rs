//! A running `countersign serve`, and where its clients find it.

use super::binary;
use anyhow::{Context, bail, ensure};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Polls of a child that starts or stops; how long it takes is not what is tested.
const POLL: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    pub url: String,
    child: Child,
    log: PathBuf,
}

/// Nodes on one store sign for the engine with one key.
pub fn share_key(from: &Path, to: &Path) -> anyhow::Result<()> {
    const FILE: &str = "application.key";
    std::fs::create_dir_all(to)?;
    std::fs::copy(from.join(FILE), to.join(FILE)).context("the first node has made its key")?;
    Ok(())
}

impl Server {
    /// Serves when this returns.
    pub async fn start(program: &Path, data_dir: PathBuf, store: &str) -> anyhow::Result<Server> {
        std::fs::create_dir_all(&data_dir)?;
        // Whoever takes the port between our look and the server's: look again.
        let mut last = None;
        for _ in 0..5 {
            match Server::start_once(program, &data_dir, store).await {
                Ok(server) => return Ok(server),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("never tried")))
    }

    async fn start_once(program: &Path, data_dir: &Path, store: &str) -> anyhow::Result<Server> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let log = data_dir.join("log");
        let output = OpenOptions::new().create(true).append(true).open(&log)?;
        let child = Command::new(program)
            .args(["serve", "--listen", &address, "--store", store, "--log", "json", "--data-dir"])
            .arg(data_dir)
            // A configuration beside the data is meant for this server.
            .args(configuration(data_dir))
            .env_remove(binary::VARIABLE)
            .env("COUNTERSIGN_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output))
            .spawn()
            .with_context(|| format!("{} cannot be run", program.display()))?;
        let mut server = Server { url: format!("http://{address}"), child, log };
        let until = Instant::now() + PATIENCE;
        loop {
            server.require_alive()?;
            let address = address.clone();
            if tokio::task::spawn_blocking(move || is_ready(&address)).await? {
                return Ok(server);
            }
            ensure!(Instant::now() < until, "the server never became ready: {}", server.told());
            tokio::time::sleep(POLL).await;
        }
    }

    pub fn require_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the server ended by itself with {status}: {}", self.told()),
        }
    }

    /// The most memory that it has had so far.
    pub fn peak_rss_bytes(&self) -> anyhow::Result<u64> {
        self.memory("VmHWM:")
    }

    pub fn rss_bytes(&self) -> anyhow::Result<u64> {
        self.memory("VmRSS:")
    }

    fn memory(&self, field: &str) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)).context("the kernel does not say")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024)
    }

    /// SIGKILL: nothing is flushed, nothing is said.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM: how it ends by itself.
    pub async fn terminate(&mut self) -> anyhow::Result<ExitStatus> {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        ensure!(told.success(), "the server is not there to be told");
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(Instant::now() < until, "the server did not stop: {}", self.told());
            tokio::time::sleep(POLL).await;
        }
    }

    /// The end of its log.
    fn told(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already, mostly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(data_dir: &Path) -> Vec<std::ffi::OsString> {
    let file = data_dir.join("countersign.toml");
    if file.is_file() { vec!["--config".into(), file.into()] } else { vec![] }
}

/// Whether `/readyz` answers 200.
fn is_ready(address: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}

/// Where the servers are at the moment.
pub struct Nodes {
    urls: Mutex<Vec<Option<String>>>,
    ended: AtomicBool,
}

impl Nodes {
    pub fn new(urls: impl IntoIterator<Item = String>) -> Nodes {
        Nodes { urls: Mutex::new(urls.into_iter().map(Some).collect()), ended: AtomicBool::new(false) }
    }

    pub fn gone(&self, node: usize) {
        self.set(node, None);
    }

    pub fn back(&self, node: usize, url: String) {
        self.set(node, Some(url));
    }

    fn set(&self, node: usize, url: Option<String>) {
        self.urls.lock().unwrap_or_else(PoisonError::into_inner)[node] = url;
    }

    /// The first that is there, beginning with this one and going round.
    pub fn url(&self, first: usize) -> Option<String> {
        let urls = self.urls.lock().unwrap_or_else(PoisonError::into_inner);
        let count = urls.len();
        (0..count).find_map(|n| urls[(first + n) % count].clone())
    }

    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}
