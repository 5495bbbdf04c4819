//! The sealer: gives every committed record its place in the log, and signs checkpoints. One thread per node that has
//! the log's key; of all nodes, the one that holds the lease works and the others wait.
//!
//! It never holds anybody up: it works on its own connection, behind the commits. What it fails to do is logged and
//! tried again. Only if the stored log contradicts itself it stops, for a signature would hide that.

use crate::clock::EngineClock;
use crate::log::{LogKeys, tree};
use crate::monitor::{COMMITTED, Monitor, SEALED};
use crate::port::StoreError;
use crate::port::log::{Append, CheckpointRow, LeaseToken, LogReader, LogWriter, Node, Unsealed, Written};
use crate::readiness::Readiness;
use countersign_kernel::Time;
use countersign_ledger::merkle;
use countersign_ledger::note::{Checkpoint, NoteSigner};
use countersign_ledger::tiles::Frontier;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, watch};

/// What a deployment decides about its log.
#[derive(Clone)]
pub struct LogConfig {
    /// The log's name, if the store has none yet. `None`: one is made.
    pub origin: Option<String>,
    /// The Ed25519 seed that checkpoints are signed with.
    pub seed: [u8; 32],
    /// A checkpoint is signed this long after the last one, if there is something new …
    pub every: Duration,
    /// … or when this many entries are new.
    pub records: u64,
    /// How long the lease of a node that vanished stands.
    pub lease: Duration,
}

impl LogConfig {
    pub fn new(seed: [u8; 32]) -> Self {
        LogConfig { origin: None, seed, every: Duration::from_secs(1), records: 1000, lease: Duration::from_secs(5) }
    }
}

/// Records are indexed at most this often, in batches.
const INDEX_EVERY: Duration = Duration::from_millis(40);
/// How often a shared store is asked for records of other nodes: at first, and when nothing has come for a while.
const POLL: Duration = Duration::from_millis(500);
const IDLE_POLL: Duration = Duration::from_secs(5);
/// Passes after which it asks as rarely as that.
const LONG_IDLE: u32 = 4;
/// For this long after a commit it is asked often: an older transaction may still hold the new record back.
const POLL_OFTEN_FOR: Duration = Duration::from_millis(500);
/// Entries per transaction. Short enough that the committer of an SQLite store hardly notices.
const BATCH: usize = 1000;
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// How long closing waits for the last checkpoint.
const LAST_SEAL: Duration = Duration::from_secs(10);
/// How often the store may fail meanwhile.
const LAST_TRIES: u32 = 3;
/// The lag is counted up to this.
const COUNTED_LAG: u64 = 1_000_000;

/// What the engine holds of its sealer.
pub struct SealerHandle {
    /// A message asks for a checkpoint now; when the sender is gone, the sealer ends.
    urge: mpsc::Sender<()>,
    /// The size of the last checkpoint that was signed here.
    pub signed: watch::Receiver<u64>,
    /// Why it has stopped for good, once it has.
    halted: Arc<OnceLock<&'static str>>,
    thread: std::thread::JoinHandle<()>,
}

impl SealerHandle {
    pub fn urge(&self) {
        // A full queue is an urge that waits already.
        let _ = self.urge.try_send(());
    }

    pub fn halted(&self) -> Option<&'static str> {
        self.halted.get().copied()
    }

    /// Seals what there is and ends.
    pub fn close(self) {
        let SealerHandle { urge, thread, .. } = self;
        drop(urge);
        if thread.join().is_err() {
            tracing::error!("the sealer thread panicked");
        }
    }
}

pub struct Sealer {
    pub writer: Box<dyn LogWriter>,
    pub reader: Arc<dyn LogReader>,
    pub signer: NoteSigner,
    pub origin: String,
    pub config: LogConfig,
    pub clock: Arc<EngineClock>,
    /// No other process writes to the store: every new record is announced by `wake`.
    pub exclusive: bool,
    pub wake: Arc<Notify>,
    pub readiness: Arc<Readiness>,
    pub monitor: Arc<Monitor>,
    /// Names this node in the lease.
    pub holder: String,
}

enum Fault {
    Store(StoreError),
    /// Another key has taken over the log.
    Rotated,
    /// The stored log contradicts itself.
    Contradiction(String),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Corrupt(what) => Fault::Contradiction(what),
            error => Fault::Store(error),
        }
    }
}

/// What the leader knows of the log.
struct Edge {
    frontier: Frontier,
    /// Size of the last checkpoint.
    signed: u64,
    /// When the first entry that no checkpoint covers was recorded.
    oldest_unsigned: Option<Time>,
}

struct Work {
    sealer: Sealer,
    lease: Option<(LeaseToken, Instant)>,
    edge: Option<Edge>,
    last_signed: Option<Instant>,
    /// Somebody waits for a checkpoint.
    urgent: bool,
    last_wake: Option<Instant>,
    /// Passes since there was anything to do, or somebody called.
    idle: u32,
    last_look: Option<Instant>,
    last_count: Option<Instant>,
    signed: watch::Sender<u64>,
    halted: Arc<OnceLock<&'static str>>,
}

const CONTRADICTION: &str = "the stored log contradicts itself: nothing is sealed. Run `countersign audit verify`";
const ROTATED: &str = "another key has taken over the log: this node does not seal until it has the new log.key";

impl Sealer {
    pub fn start(self) -> std::io::Result<SealerHandle> {
        let (urge, urges) = mpsc::channel(1);
        let (signed, watching) = watch::channel(0);
        let halted = Arc::new(OnceLock::new());
        let work = Work {
            sealer: self,
            lease: None,
            edge: None,
            last_signed: None,
            urgent: false,
            last_wake: None,
            idle: 0,
            last_look: None,
            last_count: None,
            signed,
            halted: halted.clone(),
        };
        let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(work.run(urges)),
            Err(error) => tracing::error!(%error, "the sealer could not start: records are not sealed"),
        };
        let thread = std::thread::Builder::new().name("sealer".to_owned()).spawn(run)?;
        Ok(SealerHandle { urge, signed: watching, halted, thread })
    }
}

impl Work {
    async fn run(mut self, mut urges: mpsc::Receiver<()>) {
        let mut failures = 0u32;
        loop {
            let began = Instant::now();
            let pause = match self.pass().await {
                Ok(pause) => {
                    failures = 0;
                    let leads = self.lease.is_some();
                    self.sealer.readiness.sealer(|seal| (seal.failures, seal.leads) = (0, leads));
                    pause
                }
                Err(Fault::Store(error)) => {
                    failures += 1;
                    tracing::warn!(%error, failures, "sealing failed; it is tried again");
                    let why = error.to_string();
                    self.sealer.readiness.sealer(|seal| (seal.failures, seal.last_error) = (failures, Some(why)));
                    self.edge = None;
                    (INDEX_EVERY * 2u32.pow(failures.min(10))).min(LONGEST_BACKOFF)
                }
                Err(Fault::Contradiction(what)) => {
                    tracing::error!(
                        what,
                        "THE LOG CONTRADICTS ITSELF: nothing is sealed any more. Run `countersign audit verify`"
                    );
                    metrics::gauge!("countersign_seal_halted").set(1.0);
                    self.sealer.readiness.sealer(|seal| seal.last_error = Some(what));
                    return self.halt(CONTRADICTION, urges).await;
                }
                Err(Fault::Rotated) => {
                    tracing::error!("{ROTATED}");
                    return self.halt(ROTATED, urges).await;
                }
            };
            let leads = self.lease.is_some() && failures == 0;
            tokio::select! {
                urge = urges.recv() => {
                    if urge.is_none() {
                        return self.end().await;
                    }
                    self.urgent = true;
                    self.idle = 0;
                }
                () = self.sealer.wake.notified(), if leads => {
                    self.last_wake = Some(Instant::now());
                    self.idle = 0;
                    tokio::time::sleep(INDEX_EVERY.saturating_sub(began.elapsed())).await;
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Seals nothing more, and waits for the end.
    async fn halt(mut self, why: &'static str, mut urges: mpsc::Receiver<()>) {
        let _ = self.halted.set(why);
        self.step_down().await;
        while urges.recv().await.is_some() {}
    }

    /// One round: keep the lease, index what is new, sign what is due. Returns when to look again at the latest.
    async fn pass(&mut self) -> Result<Duration, Fault> {
        let ttl = self.sealer.config.lease;
        if !self.keep_lease().await? {
            metrics::gauge!("countersign_seal_leader").set(0.0);
            return Ok((ttl / 4).max(INDEX_EVERY));
        }
        metrics::gauge!("countersign_seal_leader").set(1.0);
        self.load_edge().await?;
        // Only the lease had to be kept.
        let looked_lately = self.last_look.is_some_and(|at| at.elapsed() + INDEX_EVERY < IDLE_POLL);
        if self.idle > LONG_IDLE && looked_lately && !self.urgent {
            return Ok(self.pause());
        }
        self.idle += 1;
        self.last_look = Some(Instant::now());
        loop {
            let found = self.sealer.writer.unsealed(BATCH).await?;
            let more = found.len() == BATCH;
            if !found.is_empty() {
                self.idle = 0;
            }
            if !found.is_empty() && !self.index(found).await? {
                return Ok(Duration::ZERO);
            }
            if self.is_due() && !self.sign().await? {
                return Ok(Duration::ZERO);
            }
            if !more {
                break;
            }
            if !self.keep_lease().await? {
                return Ok(Duration::ZERO);
            }
        }
        self.urgent = false;
        self.measure().await?;
        Ok(self.pause())
    }

    /// Whether this node leads, after taking or renewing the lease where that is due.
    async fn keep_lease(&mut self) -> Result<bool, Fault> {
        let ttl = self.sealer.config.lease;
        let asked = Instant::now();
        self.lease = match self.lease {
            Some((token, renewed)) if renewed.elapsed() < ttl / 2 => Some((token, renewed)),
            Some((token, _)) => self.sealer.writer.renew_lease(token, ttl).await?.then_some((token, asked)),
            None => self.sealer.writer.take_lease(&self.sealer.holder, ttl).await?.map(|token| (token, asked)),
        };
        if self.lease.is_none() {
            self.edge = None;
        }
        Ok(self.lease.is_some())
    }

    async fn step_down(&mut self) {
        metrics::gauge!("countersign_seal_leader").set(0.0);
        if let Some((token, _)) = self.lease.take()
            && let Err(error) = self.sealer.writer.release_lease(token).await
        {
            tracing::warn!(%error, "the lease of the log could not be released; it ends by itself");
        }
    }

    /// A last checkpoint, so that a store at rest is sealed.
    async fn end(mut self) {
        let last = async {
            let mut failures = 0;
            loop {
                self.urgent = true;
                match self.pass().await {
                    // Another node leads, and goes on.
                    Ok(_) if self.lease.is_none() => break,
                    // An older transaction may still hold back what was committed last.
                    Ok(_) if matches!(self.sealer.reader.count_unsealed(1).await, Ok(1)) => {}
                    Err(Fault::Store(error)) if failures < LAST_TRIES => {
                        tracing::debug!(%error, "sealing the last records is tried again");
                        self.edge = None;
                        failures += 1;
                    }
                    Err(Fault::Store(error)) => {
                        tracing::warn!(%error, "the last records could not be sealed; the next start does it");
                        break;
                    }
                    Ok(_) | Err(Fault::Contradiction(_) | Fault::Rotated) => break,
                }
                tokio::time::sleep(INDEX_EVERY).await;
            }
            self.step_down().await;
        };
        if tokio::time::timeout(LAST_SEAL, last).await.is_err() {
            tracing::warn!("the last records were not sealed in time; the next start does it");
        }
    }

    /// Reads where the log ends, and checks that it is the one whose checkpoint was signed last.
    async fn load_edge(&mut self) -> Result<(), Fault> {
        if self.edge.is_some() {
            return Ok(());
        }
        let log = &*self.sealer.reader;
        let keys = self.keys().await?;
        let latest = log.latest_checkpoint().await?;
        let size = log.size().await?;
        let signed = latest.as_ref().map_or(0, |row| row.size);
        if signed > size {
            return Err(Fault::Contradiction(format!("a checkpoint of {signed} entries, but only {size} are there")));
        }
        if let Some(row) = latest {
            self.require_own(&row, &keys)?;
            let root = tree::ask(log, size, |tiles| merkle::root(tiles, signed)).await?;
            if root != row.root {
                let what = format!("the {signed} entries have root {root}, the checkpoint over them says {}", row.root);
                return Err(Fault::Contradiction(what));
            }
        }
        let frontier = tree::ask(log, size, |tiles| Frontier::read(tiles, size)).await?;
        let oldest_unsigned = (signed < size).then(|| self.sealer.clock.now());
        self.edge = Some(Edge { frontier, signed, oldest_unsigned });
        let _ = self.signed.send(signed);
        Ok(())
    }

    /// The keys of the log, if this node still has the last one.
    async fn keys(&self) -> Result<LogKeys, Fault> {
        let log = &*self.sealer.reader;
        let own = self.sealer.signer.verifier();
        let identity = log.identity().await?;
        if identity.is_none_or(|identity| identity.verifier_key != own.to_string()) {
            return Err(Fault::Rotated);
        }
        LogKeys::read(own, &log.rotations().await?).map_err(Fault::Contradiction)
    }

    fn require_own(&self, row: &CheckpointRow, keys: &LogKeys) -> Result<(), Fault> {
        let bad = |what: String| Fault::Contradiction(format!("the checkpoint of {} entries: {what}", row.size));
        let (text, _) = keys.at(row.size).open(&row.note).map_err(|error| bad(error.to_string()))?;
        let checkpoint = Checkpoint::parse(text).map_err(|error| bad(error.to_string()))?;
        let expected = Checkpoint { origin: self.sealer.origin.clone(), size: row.size, root: row.root };
        if checkpoint == expected { Ok(()) } else { Err(bad("its note says something else".to_owned())) }
    }

    /// Appends these records. `false`: somebody else was there, or the lease has ended.
    async fn index(&mut self, found: Vec<Unsealed>) -> Result<bool, Fault> {
        let (Some((lease, _)), Some(edge)) = (self.lease, &mut self.edge) else { return Ok(false) };
        let mut frontier = edge.frontier.clone();
        let mut nodes = Vec::new();
        for entry in &found {
            frontier.push(entry.record_hash, |level, index, hash| nodes.push(Node { level, index, hash }));
        }
        let (count, first) = (found.len() as u64, found.first().map(|entry| entry.recorded_at));
        let append = Append { lease, from_index: edge.frontier.size(), entries: found, nodes };
        match self.sealer.writer.append(&append).await? {
            Written::Done => {
                edge.frontier = frontier;
                edge.oldest_unsigned = edge.oldest_unsigned.or(first);
                metrics::counter!("countersign_sealed_total").increment(count);
                Ok(true)
            }
            refused => Ok(self.give_way(refused)),
        }
    }

    fn is_due(&self) -> bool {
        let Some(edge) = &self.edge else { return false };
        let unsigned = edge.frontier.size().saturating_sub(edge.signed);
        unsigned > 0 && (self.urgent || unsigned >= self.sealer.config.records || self.until_due().is_zero())
    }

    fn until_due(&self) -> Duration {
        self.last_signed.map_or(Duration::ZERO, |at| self.sealer.config.every.saturating_sub(at.elapsed()))
    }

    async fn sign(&mut self) -> Result<bool, Fault> {
        let (Some((lease, _)), Some(edge)) = (self.lease, &mut self.edge) else { return Ok(false) };
        let (size, root) = (edge.frontier.size(), edge.frontier.root());
        let text = Checkpoint { origin: self.sealer.origin.clone(), size, root }.text();
        let note = format!("{text}\n{}", self.sealer.signer.sign(&text, 0));
        let row = CheckpointRow { size, root, note, signed_at: self.sealer.clock.now() };
        match self.sealer.writer.put_checkpoint(lease, &row).await? {
            Written::Done => {
                edge.signed = size;
                // A checkpoint counts as the record that waited for it the longest.
                if let Some(oldest) = edge.oldest_unsigned.take() {
                    let waited_us = row.signed_at.0 - oldest.0;
                    self.sealer.monitor.lag(COMMITTED, SEALED, row.signed_at, waited_us);
                }
                self.last_signed = Some(Instant::now());
                #[expect(clippy::cast_precision_loss, reason = "a gauge")]
                metrics::gauge!("countersign_checkpoint_size").set(size as f64);
                let _ = self.signed.send(size);
                Ok(true)
            }
            refused => Ok(self.give_way(refused)),
        }
    }

    /// Another node writes to the log: read again where it stands.
    fn give_way(&mut self, refused: Written) -> bool {
        tracing::info!(?refused, "another node writes to the log");
        self.edge = None;
        if refused == Written::LeaseLost {
            self.lease = None;
        }
        false
    }

    async fn measure(&mut self) -> Result<(), Fault> {
        let Some(edge) = &self.edge else { return Ok(()) };
        // Counting asks the database; once in a while is enough.
        let every = if self.idle > 1 { IDLE_POLL * 3 } else { Duration::from_secs(1) };
        if self.last_count.is_some_and(|at| at.elapsed() < every) {
            return Ok(());
        }
        self.last_count = Some(Instant::now());
        let waiting = self.sealer.reader.count_unsealed(COUNTED_LAG).await?;
        let unsigned = edge.frontier.size().saturating_sub(edge.signed) + waiting;
        self.sealer.readiness.sealer(|seal| seal.unsigned = unsigned);
        let now = self.sealer.clock.now();
        let lag_us = edge.oldest_unsigned.map_or(0, |at| now.0.saturating_sub(at.0).max(0));
        #[expect(clippy::cast_precision_loss, reason = "gauges")]
        {
            metrics::gauge!("countersign_seal_lag_records").set(unsigned as f64);
            metrics::gauge!("countersign_seal_lag_seconds").set(lag_us as f64 / 1e6);
        }
        Ok(())
    }

    fn pause(&self) -> Duration {
        let mut pause = self.sealer.config.lease / 2;
        if !self.sealer.exclusive {
            let often = self.last_wake.is_some_and(|at| at.elapsed() < POLL_OFTEN_FOR);
            let patient = POLL * 2u32.pow(self.idle.min(8));
            pause = pause.min(if often { INDEX_EVERY } else { patient.min(IDLE_POLL) });
        }
        if self.edge.as_ref().is_some_and(|edge| edge.frontier.size() > edge.signed) {
            pause = pause.min(self.until_due().max(Duration::from_millis(1)));
        }
        pause
    }
}
