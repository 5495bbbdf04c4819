//! The running server: data directory, store, engine, listener, and the way down. What was acknowledged
//! is durable before it is acknowledged, so stopping is only a matter of courtesy: requests under way
//! are answered, and the committer finishes what it has taken.

use crate::api;
use crate::config::Config;
use crate::log_key::{self, LOG_KEY_FILE};
use crate::outbox::{self, Deliveries, Pace};
use crate::signals::Stop;
use crate::store_guard::{NewStore, lock_sqlite, open_lock};
use crate::telemetry::{self, LogFormat};
use crate::{artifacts, cosign, executors, keys, listen, schedule, sidecar, store_guard};
use anyhow::{Context, bail};
use countersign_engine::Engine;
use countersign_engine::clock::Clock;
use countersign_engine::governance;
use countersign_engine::monitor;
use countersign_engine::run::emit::Emitter;
use countersign_executor::artifact::ArtifactStore;
use countersign_ledger::statement::Signer;
use fs4::FileExt;
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
pub(crate) const APPLICATION_KEY_FILE: &str = "application.key";
pub const ADMIN_TOKEN_FILE: &str = "admin.token";
/// Where we listen when nothing else is said.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7433";
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

const SQLITE_FILE: &str = "countersign.sqlite";
const ARTIFACTS_DIR: &str = "artifacts";
const BOOTSTRAP_LOCK_FILE: &str = "bootstrap.lock";
/// How long requests under way may take once we are asked to stop.
const GRACE: Duration = Duration::from_secs(20);
/// How long, after that, connections may take to deliver their last answer and close.
const FAREWELL: Duration = Duration::from_secs(2);

const NO_POLICY: &str = "no retention policy is configured: every record is kept without end. Choose one with \
                         `audit_trail_retention_policy` in ./countersign.toml (or another file, with --config), or by \
                         COUNTERSIGN_AUDIT_TRAIL_RETENTION_POLICY";

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
    /// An empty store is meant, although there are keys of an earlier one.
    pub new_store: bool,
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
            new_store: false,
            clock: None,
            pace: Pace::default(),
            log: None,
        }
    }
}

/// Runs a server until the process is told to stop (SIGINT or SIGTERM).
pub async fn run(options: ServeOptions) -> anyhow::Result<()> {
    telemetry::start_log(options.log)?;
    listen::raise_file_limit();
    let mut stop = Stop::listen()?;
    let running = start(options).await?;
    let how = stop.asked().await;
    tracing::info!("{how}: stopping");
    running.shutdown().await
}

/// Starts a server in this process. It serves when this returns.
pub async fn start(options: ServeOptions) -> anyhow::Result<Running> {
    let config = Config::load(options.config.as_deref())?;
    if let Some(file) = &options.config {
        tracing::info!(file = %file.display(), "configuration read");
    }
    let (sinks, tls) = (config.sinks()?, config.tls.acceptor()?);
    config.secrets().check()?;
    telemetry::metrics();
    // Before anything is made: whoever mistyped an address has nothing to clear away.
    let socket = reserve(&options.listen).await?;
    make_data_dir(&options.data_dir)?;
    let store = options.store.unwrap_or_else(|| default_store(&options.data_dir));
    keys::require_private(&secrets(&options.data_dir, &config), config.regulated.enabled)?;
    let keys = [LOG_KEY_FILE, APPLICATION_KEY_FILE, ADMIN_TOKEN_FILE];
    let guard = NewStore::look(&store, &options.data_dir, &keys, options.new_store)?;
    let lock = lock_sqlite(&store)?;
    let kept_files = open_artifacts(&config, &options.data_dir)?;
    let sidecars = config.sidecar.dir.as_deref().map(sidecar::open_dir).transpose()?;
    let engine = open(&store, &config, options.clock, &options.data_dir, Some(&guard)).await?;
    if config.audit_trail_retention_policy.is_none() {
        tracing::warn!("{NO_POLICY}");
    }
    bootstrap(&engine, &options.data_dir).await?;
    guard.done()?;
    let (place, needed) = (store_guard::directory(&store, &options.data_dir), config.limits.body_bytes);
    engine.readiness().add(move || store_guard::room(&place, needed as u64));

    let listener = socket.listen(BACKLOG).with_context(|| format!("cannot listen on {}", options.listen))?;
    let addr = listener.local_addr()?;
    if !addr.ip().is_loopback() && tls.is_none() && !config.console.is_https() {
        tracing::warn!(
            %addr,
            "listening beyond this machine without TLS, so browsers cannot sign in: configure [tls], or a proxy that has TLS and \
             `console.origin`"
        );
    }
    let engine = Arc::new(engine);
    let witnesses = [config.log.witnesses.clone(), options.witnesses].concat();
    let (body_bytes, token) = (config.limits.body_bytes, config.metrics_token()?);
    let console = api::session::Console::new(&config.console, addr.ip().is_loopback(), tls.is_some());
    let streams = api::StreamLimits { topics: config.limits.stream_topics, per_actor: config.limits.streams_per_actor };
    let router = api::router(&engine, body_bytes, witnesses.len(), token, &kept_files, console, streams);
    let (stop, mut stopped) = watch::channel(());
    let signal = async move {
        // Ends when told to, or when whoever could tell is gone.
        let _ = stopped.changed().await;
    };
    let limits =
        listen::Limits { connections: config.limits.connections, per_address: config.limits.connections_per_address };
    let is_tls = tls.is_some();
    let server = tokio::spawn(listen::serve(listener, router, limits.within_files(), tls, signal));
    let mut upkeep = cosign::start(&engine, &witnesses);
    upkeep.push(tokio::spawn(telemetry::upkeep()));
    upkeep.extend(executors::start(&engine, &config, &kept_files));
    upkeep.push(tokio::spawn(schedule::run(Arc::downgrade(&engine))));
    upkeep.push(tokio::spawn(governance::govern(Arc::downgrade(&engine), engine.governance_wake())));
    upkeep.push(tokio::spawn(monitor::watch(Arc::downgrade(&engine))));
    if let Some(every) = config.governance.verify_every() {
        upkeep.push(tokio::spawn(governance::verify(Arc::downgrade(&engine), every)));
    }
    upkeep.push(tokio::spawn(artifacts::run(Arc::downgrade(&engine), kept_files)));
    let deliveries = outbox::start(&engine, sinks, options.pace)?;
    let sidecars = sidecars.map(|dir| sidecar::Keeper::start(&engine, dir));
    tracing::info!(%addr, store = engine.store_kind(), version = env!("CARGO_PKG_VERSION"), "serving");
    Ok(Running { addr, is_tls, stop, server, upkeep, deliveries, sidecars, engine, _lock: lock })
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
    is_tls: bool,
    stop: watch::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
    upkeep: Vec<JoinHandle<()>>,
    deliveries: Deliveries,
    sidecars: Option<sidecar::Keeper>,
    engine: Arc<Engine>,
    /// Held for as long as the store is ours.
    _lock: Option<[File; 2]>,
}

impl Running {
    pub fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.addr)
    }

    /// Has everything looked at that is due by the server's clock: for tests, which move it.
    pub async fn tick(&self) {
        self.engine.tick().await;
        for done in [self.engine.write_monitor().await, self.engine.observe_monitor().await] {
            if let Err(error) = done {
                tracing::warn!(%error, "workers and lag could not be watched");
            }
        }
        if let Err(refusal) = self.engine.weigh_signals().await {
            tracing::warn!(%refusal, "signals could not be weighed");
        }
    }

    /// Takes no more requests, answers those under way, and returns when everything is committed.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        let Running { stop, mut server, upkeep, deliveries, sidecars, engine, _lock, .. } = self;
        upkeep.iter().for_each(JoinHandle::abort);
        drop(stop);
        engine.stop_waiting();
        deliveries.finish().await;
        engine.end_monitor().await;
        if let Some(sidecars) = sidecars {
            sidecars.finish(&engine).await;
        }
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

/// The file in this directory, where nobody names another store.
pub(crate) fn default_store(data_dir: &Path) -> String {
    format!("sqlite:{}", data_dir.join(SQLITE_FILE).display())
}

/// The files that only their owner may read.
fn secrets(data_dir: &Path, config: &Config) -> Vec<PathBuf> {
    let own = [APPLICATION_KEY_FILE, LOG_KEY_FILE, ADMIN_TOKEN_FILE].map(|name| data_dir.join(name));
    let next = [APPLICATION_KEY_FILE, LOG_KEY_FILE].map(|name| keys::next(&data_dir.join(name)));
    own.into_iter().chain(next).chain(config.metrics_token_file()).chain(config.tls.key.clone()).collect()
}

/// The private keys of this node.
#[derive(Clone, Copy)]
pub(crate) struct OwnKeys {
    pub application: [u8; 32],
    /// It takes the place of a lost one.
    pub is_new: bool,
    /// `None`: the node follows without sealing.
    pub log: Option<[u8; 32]>,
}

/// Opens the store with the keys of this data directory. They are made only for a store that is empty, and that the
/// guard lets pass.
pub(crate) async fn open(
    store: &str,
    config: &Config,
    clock: Option<Clock>,
    data_dir: &Path,
    guard: Option<&NewStore>,
) -> anyhow::Result<Engine> {
    let file = data_dir.join(APPLICATION_KEY_FILE);
    let own = {
        let opened = open_store(store).await?;
        let (_, log) = opened.log()?;
        if let Some(guard) = guard {
            guard.check(&*log).await?;
        }
        let application = match keys::load(&file)? {
            Some(seed) => seed,
            None if log.newest().await?.is_none() => keys::make(&file)?,
            None => bail!(
                "{} is missing: with it this server signs what the engine itself does. Restore it from a backup, or copy \
                 it from the data directory of another node. If it is lost: `countersign keys rotate application --lost`, \
                 which leaves a record of that",
                file.display()
            ),
        };
        OwnKeys { application, is_new: false, log: log_key::find_or_make(&*log, data_dir).await? }
    };
    match (open_with(store, config, clock.clone(), own).await, keys::load(&keys::next(&file))?) {
        // A rotation was recorded, and the files were not changed any more.
        (Err(error), Some(next)) if error.chain().any(is_key_error) => {
            let opened = open_with(store, config, clock, OwnKeys { application: next, ..own }).await;
            let Ok(engine) = opened else { return Err(error) };
            keys::adopt_next(&file)?;
            Ok(engine)
        }
        (opened, _) => opened,
    }
}

fn is_key_error(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(|error| matches!(error, countersign_engine::OpenError::Key(_)))
}

async fn open_store(store: &str) -> anyhow::Result<Box<dyn countersign_engine::port::Store>> {
    let opened = countersign_store::open(store).await;
    opened.with_context(|| format!("the store {} cannot be opened", without_password(store)))
}

pub(crate) async fn open_with(
    store: &str,
    config: &Config,
    clock: Option<Clock>,
    own: OwnKeys,
) -> anyhow::Result<Engine> {
    let store = open_store(store).await?;
    let seed = own.log;
    let mut engine = config.engine();
    engine.language = Arc::new(countersign_definition::Cel::with_cache(config.definition_cache_bytes()));
    engine.secrets = Some(Arc::new(config.secrets()));
    let sinks = config.sinks()?;
    engine.emitter = Emitter::new(|event_type| sinks.iter().any(|sink| sink.wants(event_type)));
    engine.clock = clock.unwrap_or(engine.clock);
    engine.application_key = Some(Signer::from_seed(&own.application));
    engine.application_key_is_new = own.is_new;
    engine.server_key = seed.map(|seed| Signer::from_seed(&seed).public_key());
    engine.log = seed.map(|seed| config.log(seed));
    engine.proposal_approvers = config.governance.proposals.entry()?;
    engine.thresholds = config.governance.thresholds();
    engine.replay_approvers = config.governance.replay_approvers()?;
    engine.in_process_callers = false;
    Engine::open(store, engine).await.context("the engine cannot be started")
}

fn open_artifacts(config: &Config, data_dir: &Path) -> anyhow::Result<ArtifactStore> {
    let dir = config.artifacts.dir.clone().unwrap_or_else(|| data_dir.join(ARTIFACTS_DIR));
    ArtifactStore::open(&dir, config.artifacts.max_bytes)
        .with_context(|| format!("artifacts cannot be kept in {}", dir.display()))
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
        return Ok(engine.settle_own_keys().await?);
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
        engine.settle_own_keys().await?;
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
    fn passwords_stay_out_of_messages() {
        assert_eq!(without_password("postgres://u:p@h/d"), "postgres://…@h/d");
        assert_eq!(without_password("sqlite:/a/b@c"), "sqlite:/a/b@c");
    }
}
