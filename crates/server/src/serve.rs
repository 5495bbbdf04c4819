//! The running server: data directory, store, engine, listener, and the way down. What was acknowledged
//! is durable before it is acknowledged, so stopping is only a matter of courtesy: requests under way
//! are answered, and the committer finishes what it has taken.

use crate::api;
use crate::config::Config;
use crate::log_key;
use crate::outbox::{self, Deliveries, Pace};
use crate::signals::Stop;
use crate::telemetry::{self, LogFormat};
use crate::{cosign, executors, keys, listen, schedule};
use anyhow::{Context, bail};
use countersign_engine::Engine;
use countersign_engine::clock::Clock;
use countersign_engine::run::emit::Emitter;
use countersign_ledger::statement::Signer;
use fs4::{FileExt, TryLockError};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The actor with every scope on a new store, and the file that its token is written to.
pub const ADMIN: &str = "admin";
const APPLICATION_KEY_FILE: &str = "application.key";
pub const ADMIN_TOKEN_FILE: &str = "admin.token";
/// Where we listen when nothing else is said.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7433";
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

const SQLITE_FILE: &str = "countersign.sqlite";
const BOOTSTRAP_LOCK_FILE: &str = "bootstrap.lock";
/// How long requests under way may take once we are asked to stop.
const GRACE: Duration = Duration::from_secs(20);
/// How long, after that, connections may take to deliver their last answer and close.
const FAREWELL: Duration = Duration::from_secs(2);

const NO_POLICY: &str = "no retention policy is configured: every record is kept without end. Choose one with \
                         `audit_trail_retention_policy` in countersign.toml, or COUNTERSIGN_AUDIT_TRAIL_RETENTION_POLICY";

#[derive(Clone)]
pub struct ServeOptions {
    /// Where everything is kept; made if it is not there.
    pub data_dir: PathBuf,
    /// `ADDRESS:PORT`; port 0 takes a free one.
    pub listen: String,
    /// `postgres://…` or `sqlite:PATH`; without it, an SQLite file in the data directory.
    pub store: Option<String>,
    pub config: Option<PathBuf>,
    /// Witnesses that cosign the log, beside the configured ones.
    pub witnesses: Vec<String>,
    /// For tests: a time that they can move. The system's clock where none is given.
    pub clock: Option<Clock>,
    /// For tests: another pace of deliveries to webhooks than the usual one.
    pub pace: Pace,
    /// For [`run`]: text on a terminal and JSON elsewhere, unless said.
    pub log: Option<LogFormat>,
}

impl ServeOptions {
    /// On this data directory, with everything else as it is by default.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        ServeOptions {
            data_dir: data_dir.into(),
            listen: DEFAULT_LISTEN.to_owned(),
            store: None,
            config: None,
            witnesses: vec![],
            clock: None,
            pace: Pace::default(),
            log: None,
        }
    }
}

/// Runs a server until the process is told to stop (SIGINT or SIGTERM).
pub async fn run(options: ServeOptions) -> anyhow::Result<()> {
    telemetry::start_log(options.log)?;
    let mut stop = Stop::listen()?;
    let running = start(options).await?;
    let how = stop.asked().await;
    tracing::info!("{how}: stopping");
    running.shutdown().await
}

/// Starts a server in this process. It serves when this returns.
pub async fn start(options: ServeOptions) -> anyhow::Result<Running> {
    let config = Config::load(options.config.as_deref())?;
    let sinks = config.sinks()?;
    telemetry::metrics();
    // Before anything is made: whoever mistyped an address has nothing to clear away.
    let socket = reserve(&options.listen).await?;
    make_data_dir(&options.data_dir)?;
    let store = options.store.unwrap_or_else(|| format!("sqlite:{}", options.data_dir.join(SQLITE_FILE).display()));
    let lock = lock_sqlite(&store)?;
    let engine = open(&store, &config, options.clock, &options.data_dir).await?;
    if config.audit_trail_retention_policy.is_none() {
        tracing::warn!("{NO_POLICY}");
    }
    bootstrap(&engine, &options.data_dir).await?;

    let listener = socket.listen(BACKLOG).with_context(|| format!("cannot listen on {}", options.listen))?;
    let addr = listener.local_addr()?;
    if !addr.ip().is_loopback() {
        tracing::warn!(%addr, "listening beyond this machine without TLS: put a proxy in front that has it");
    }
    let engine = Arc::new(engine);
    let witnesses = [config.log.witnesses.clone(), options.witnesses].concat();
    let router = api::router(&engine, config.limits.body_bytes, witnesses.len());
    let (stop, mut stopped) = watch::channel(());
    let signal = async move {
        // Ends when told to, or when whoever could tell is gone.
        let _ = stopped.changed().await;
    };
    let server = tokio::spawn(listen::serve(listener, router, signal));
    let mut upkeep = cosign::start(&engine, &witnesses);
    upkeep.push(tokio::spawn(telemetry::upkeep()));
    upkeep.extend(executors::start(&engine, &config.executors));
    upkeep.push(tokio::spawn(schedule::run(Arc::downgrade(&engine))));
    let deliveries = outbox::start(&engine, sinks, options.pace)?;
    tracing::info!(%addr, store = engine.store_kind(), version = env!("CARGO_PKG_VERSION"), "serving");
    Ok(Running { addr, stop, server, upkeep, deliveries, engine, _lock: lock })
}

/// A socket with this address. Nobody can connect to it before it listens.
async fn reserve(listen: &str) -> anyhow::Result<TcpSocket> {
    let mistyped = || format!("`{listen}` is no address to listen on: write it like {DEFAULT_LISTEN}");
    let mut result = Err(anyhow::anyhow!("it names no address"));
    for addr in tokio::net::lookup_host(listen).await.with_context(mistyped)? {
        let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A server that has just stopped may come back at once; a port that nobody named is shared with nobody.
        socket.set_reuseaddr(addr.port() != 0)?;
        match socket.bind(addr) {
            Ok(()) => return Ok(socket),
            Err(error) => result = Err(error.into()),
        }
    }
    result.with_context(|| format!("cannot listen on {listen}"))
}

/// A server in this process. Dropping it stops it without waiting; [`Running::shutdown`] waits.
pub struct Running {
    pub addr: SocketAddr,
    stop: watch::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
    upkeep: Vec<JoinHandle<()>>,
    deliveries: Deliveries,
    engine: Arc<Engine>,
    /// Held for as long as the store is ours.
    _lock: Option<File>,
}

impl Running {
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Has everything looked at that is due by the server's clock: for tests, which move it.
    pub async fn tick(&self) {
        self.engine.tick().await;
    }

    /// Takes no more requests, answers those under way, and returns when everything is committed.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        let Running { stop, mut server, upkeep, deliveries, engine, _lock, .. } = self;
        upkeep.iter().for_each(JoinHandle::abort);
        drop(stop);
        engine.stop_waiting();
        deliveries.finish().await;
        match released(engine).await {
            Some(engine) => tokio::task::spawn_blocking(move || engine.close()).await?,
            None => tracing::warn!("some requests did not end within {} s; they are given up", GRACE.as_secs()),
        }
        match tokio::time::timeout(FAREWELL, &mut server).await {
            Ok(ended) => ended.context("the listener failed")??,
            // Somebody is connected and asks nothing.
            Err(_) => server.abort(),
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// The engine, once no request holds it any more.
async fn released(mut engine: Arc<Engine>) -> Option<Engine> {
    let until = Instant::now() + GRACE;
    loop {
        match Arc::try_unwrap(engine) {
            Ok(engine) => return Some(engine),
            Err(_) if Instant::now() > until => return None,
            Err(shared) => engine = shared,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn open(store: &str, config: &Config, clock: Option<Clock>, data_dir: &Path) -> anyhow::Result<Engine> {
    let opened = countersign_store::open(store).await;
    let store = opened.with_context(|| format!("the store {} cannot be opened", without_password(store)))?;
    let (_, log) = store.log()?;
    let seed = log_key::find_or_make(&*log, data_dir).await?;
    let application_key = keys::load_or_make(&data_dir.join(APPLICATION_KEY_FILE))?;
    let mut engine = config.engine();
    engine.language = Arc::new(countersign_definition::Cel::default());
    let sinks = config.sinks()?;
    engine.emitter = Emitter::new(|event_type| sinks.iter().any(|sink| sink.wants(event_type)));
    engine.clock = clock.unwrap_or(engine.clock);
    engine.application_key = Some(Signer::from_seed(&application_key));
    engine.server_key = seed.map(|seed| Signer::from_seed(&seed).public_key());
    engine.log = seed.map(|seed| config.log(seed));
    Engine::open(store, engine).await.context("the engine cannot be started")
}

/// For messages: a database's address may hold a password.
fn without_password(store: &str) -> String {
    match (store.find("://"), store.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}://…{}", &store[..scheme], &store[at..]),
        _ => store.to_owned(),
    }
}

pub fn make_data_dir(data_dir: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
    made.with_context(|| format!("the data directory {} cannot be made", data_dir.display()))
}

/// One process per SQLite file: the engine trusts that nobody else writes to it.
fn lock_sqlite(store: &str) -> anyhow::Result<Option<File>> {
    let path = match store.strip_prefix("sqlite:") {
        None | Some(":memory:") => return Ok(None),
        Some(path) => PathBuf::from(path),
    };
    // Two ways to the same file must end at the same lock.
    let path = path.canonicalize().unwrap_or(path);
    let mut lock_path = path.clone().into_os_string();
    lock_path.push(".lock");
    let lock = open_lock(Path::new(&lock_path))?;
    match FileExt::try_lock(&lock) {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => bail!(
            "another process uses the store {}: stop it first, or give this one a data directory of its own",
            path.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("the store {} cannot be locked", path.display()))
        }
    }
}

fn open_lock(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    opened.with_context(|| format!("the lock file {} cannot be opened", path.display()))
}

/// Makes `admin` on an empty store. Its token is on disk before anything is committed: a crash leaves
/// a token that opens nothing, never a store that nobody can open.
async fn bootstrap(engine: &Engine, data_dir: &Path) -> anyhow::Result<()> {
    if engine.registry().sequence() > 0 {
        return Ok(());
    }
    // Where several nodes share a data directory, one after the other: they would overwrite each other's token.
    let lock = open_lock(&data_dir.join(BOOTSTRAP_LOCK_FILE))?;
    let lock = tokio::task::spawn_blocking(move || FileExt::lock(&lock).map(|()| lock)).await??;
    engine.refresh_registry().await?;
    if engine.registry().sequence() > 0 {
        return Ok(());
    }
    let file = data_dir.join(ADMIN_TOKEN_FILE);
    // A token that is there already was written by a start that got no further, or belongs to another store as
    // well: it is used, never overwritten, or its owner would be locked out.
    let (token, kept) = match std::fs::read_to_string(&file) {
        Ok(found) if !found.trim().is_empty() => (found.trim().to_owned(), true),
        _ => {
            let token = api::auth::new_token().map_err(|_| anyhow::anyhow!("the system gives no randomness"))?;
            write_secret(&file, &token).with_context(|| format!("{} cannot be written", file.display()))?;
            (token, false)
        }
    };
    // An error may mean that the commit was not confirmed: the token stays, since it may be the right one.
    let made = engine.bootstrap(ADMIN, api::auth::hash_token(&token)).await?;
    if made {
        tracing::info!(file = %file.display(), "a new store: the token of `{ADMIN}` is in this file");
    } else {
        tracing::info!("another node has set up the store");
        if !kept {
            std::fs::remove_file(&file).with_context(|| format!("{} cannot be removed", file.display()))?;
        }
    }
    drop(lock);
    Ok(())
}

/// All of it or nothing, readable by its owner alone, and on the disk when this returns.
pub(crate) fn write_secret(path: &Path, secret: &str) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temporary)?;
    file.write_all(format!("{secret}\n").as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_file_is_its_owners_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(ADMIN_TOKEN_FILE);
        std::fs::write(&path, "old, for all to read").expect("a file");
        write_secret(&path, "cs_1").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "cs_1\n");
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn an_sqlite_file_has_one_owner_by_whatever_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("x.sqlite");
        std::fs::write(&file, "").expect("a file");
        let store = format!("sqlite:{}", file.display());
        let other = format!(
            "sqlite:{}/../{}/x.sqlite",
            directory.path().display(),
            directory.path().file_name().expect("a name").display()
        );
        let held = lock_sqlite(&store).expect("locked");
        assert!(held.is_some());
        let told = lock_sqlite(&other).expect_err("held").to_string();
        assert!(told.contains("another process uses the store"), "{told}");
        drop(held);
        assert!(lock_sqlite(&other).expect("free again").is_some());
        assert!(lock_sqlite("sqlite::memory:").expect("nothing to lock").is_none());
        assert!(lock_sqlite("postgres://u:p@h/d").expect("nothing to lock").is_none());
    }

    #[test]
    fn passwords_stay_out_of_messages() {
        assert_eq!(without_password("postgres://u:p@h/d"), "postgres://…@h/d");
        assert_eq!(without_password("sqlite:/a/b@c"), "sqlite:/a/b@c");
    }
}
