//! The engine is the shell around the kernel: it authenticates nothing and renders nothing, but takes
//! calls of known actors, has the kernel decide them, and commits what follows (state, in-trays,
//! records, idempotency keys) in one transaction. [`port`] is what it asks of a database.
//!
//! - [`committer`]: the one writer; group commit and the version fence.
//! - [`payload`], [`project`]: from events to record payloads and rows; [`purge`]: what a purge destroys besides.
//! - [`sealer`]: gives every record its place in the log and signs checkpoints; [`log`]: proofs of that.
//! - [`proposal`]: what a proposal says.
//! - [`outbox`]: what leaves for webhooks, and what became of it.
//! - [`sessions`]: browsers that are signed in.
//! - [`stream`]: what readers follow live.
//! - [`readiness`]: whether this node can do its work. [`reads`]: what actors may read. [`run`]: rows, records and the agenda of runs.

pub mod clock;
mod committer;
mod effects;
pub mod evidence;
pub mod governance;
mod holds;
mod known;
pub mod language;
pub mod log;
pub mod monitor;
mod once;
mod outbox;
pub mod outcome;
mod own_keys;
pub mod passkey;
pub mod payload;
mod plans;
pub mod port;
mod project;
pub mod proposal;
pub mod purge;
pub mod readiness;
pub mod reads;
pub mod replay;
pub mod retention;
pub mod rows;
pub mod run;
mod sealer;
pub mod sessions;
pub mod stream;
mod substitutes;

pub use outcome::{
    Ask, Call, ClaimCall, Command, IdempotencyKey, MergeCall, Offered, OpenedStep, Outcome, Problem, Proof,
    SignedRequest, Target, Task,
};
pub use run::service::{Addressee, Sent};
pub use sealer::LogConfig;

use clock::{Clock, EngineClock};
use committer::{Committer, Desk, Job, Wakes};
use countersign_kernel::plan::{Language, Secrets};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, ActorKey, Bootstrap, Configuration, Registry};
use countersign_kernel::{Digest, GateEntry, Time};
use countersign_ledger::statement::{PublicKey, Signer};
use known::KnownRegistry;
use monitor::{Monitor, Thresholds};
use outbox::OutboxDesk;
use port::{LogReader, LogWriter, MonitorStore, Reader, Sessions, Store, StoreError};
use readiness::Readiness;
use retention::{Policies, UNSET_POLICY};
use run::agenda::Book;
use sealer::SealerHandle;
use std::sync::{Arc, RwLockReadGuard, Weak};
use stream::hub::Hub;
use stream::moves::{Key, Moves};
use tokio::sync::{Notify, mpsc, oneshot};

/// What a deployment decides about its engine.
#[derive(Clone)]
pub struct Config {
    /// The actor in whose name the engine itself acts.
    pub application_actor_ref: String,
    /// The key with which it signs. `None` only where nothing is to be proven, as in tests of other things.
    pub application_key: Option<Signer>,
    /// The key takes the place of a lost one: it is registered although the registry does not know it.
    pub application_key_is_new: bool,
    /// The actor that signs checkpoints, and its key.
    pub server_actor_ref: String,
    pub server_key: Option<PublicKey>,
    /// Gate decisions must be signed.
    pub regulated: bool,
    /// Whose other acts must be signed, on a regulated server.
    pub signatures: Option<registry::Signatures>,
    /// `None`: the deployment has not chosen. Records say so.
    pub audit_trail_retention_policy: Option<String>,
    pub policies: Policies,
    /// Record attempts that were refused for want of authority.
    pub audit_failed_attempts: bool,
    pub clock: Clock,
    /// Reads the documents of workflows and computes what they say.
    pub language: Arc<dyn Language>,
    /// For `${secrets…}` in shell and http steps. Read when a step that names one is claimed, and never kept here.
    pub secrets: Option<Arc<dyn Secrets + Send + Sync>>,
    /// The events of transitions that somebody listens to.
    pub emitter: run::emit::Emitter,
    /// What plans of definitions may take in memory, beside what `language` keeps of its own.
    pub definition_cache_bytes: usize,
    /// How many instances are kept in memory; never fewer than a batch needs.
    pub cached_instances: usize,
    /// How much memory they may take, about; a batch may need more for a moment.
    pub cache_bytes: usize,
    /// `None`: this node does not seal. It may still follow a log that others seal.
    pub log: Option<LogConfig>,
    /// How many calls may wait before new ones are refused as `overloaded`.
    pub queue: usize,
    /// When workers are silent, and when things wait for too long.
    pub thresholds: Thresholds,
    /// Who approves proposals whose target does not say it.
    pub proposal_approvers: Option<GateEntry>,
    /// Who approves replays of dead letters whose definition does not say it.
    pub replay_approvers: Option<GateEntry>,
    /// Callers inside this process act without a credential, and the log's key need not be registered: so in tests, never in
    /// a server. Where not, verifying finds such records and such a key.
    pub in_process_callers: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            application_actor_ref: "countersign".to_owned(),
            application_key: None,
            application_key_is_new: false,
            server_actor_ref: "countersign-log".to_owned(),
            server_key: None,
            regulated: false,
            signatures: None,
            audit_trail_retention_policy: None,
            policies: Policies::default(),
            audit_failed_attempts: false,
            clock: Clock::system(),
            language: Arc::new(language::NoLanguage),
            secrets: None,
            emitter: run::emit::Emitter::default(),
            definition_cache_bytes: 64 << 20,
            cached_instances: 100_000,
            cache_bytes: 256 << 20,
            log: None,
            queue: 16_384,
            thresholds: Thresholds::default(),
            proposal_approvers: None,
            replay_approvers: None,
            in_process_callers: true,
        }
    }
}

impl Config {
    pub fn deployment_policy(&self) -> &str {
        self.audit_trail_retention_policy.as_deref().unwrap_or(UNSET_POLICY)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the store could not be set up: {0}")]
    Refused(#[from] Refusal),
    #[error("the retention policy `{policy}` is not configured; known policies: {known}")]
    PolicyNotFound { policy: String, known: String },
    #[error("a thread could not be started: {0}")]
    Thread(std::io::Error),
    #[error("the log cannot be kept: {0}")]
    Log(String),
    #[error("{0}")]
    Key(String),
}

/// A running engine. Cheap to share behind an `Arc`.
pub struct Engine {
    jobs: mpsc::Sender<Job>,
    /// What is to be done with steps, and when.
    book: Arc<Book>,
    background: Vec<tokio::task::JoinHandle<()>>,
    /// The thread's own, and gone with it; `None` where the store does not commit in place.
    desk: Option<Weak<Desk>>,
    registry: Arc<KnownRegistry>,
    clock: Arc<EngineClock>,
    readiness: Arc<Readiness>,
    reader: Arc<dyn Reader>,
    config: Arc<Config>,
    log: Arc<dyn LogReader>,
    /// For cosignatures, which come rarely.
    log_writer: tokio::sync::Mutex<Box<dyn LogWriter>>,
    outbox: OutboxDesk,
    governance_wake: Arc<Notify>,
    monitor: Arc<Monitor>,
    monitor_store: Box<dyn MonitorStore>,
    /// Made for this start of this node.
    node_id: uuid::Uuid,
    opened_at: Time,
    sessions: Box<dyn Sessions>,
    sealer: Option<SealerHandle>,
    /// Why this node does not seal, where it does not.
    follows: Option<&'static str>,
    committer: committer::Place,
    store_kind: &'static str,
    /// Nobody else changes the store.
    exclusive: bool,
    /// Shared with the committer, which refuses them.
    damaged: Arc<log::Damaged>,
    runbook_changes: Arc<run::records::RunbookChanges>,
    /// Shared with the committer, which says what moved.
    hub: Arc<Hub>,
    /// Where other nodes may be there.
    ringing: Option<run::bell::Ringing>,
}

impl Engine {
    /// Loads the registry, starts the committer, and records the configuration if it changed.
    pub async fn open(store: Box<dyn Store>, config: Config) -> Result<Engine, OpenError> {
        if let Some(policy) = &config.audit_trail_retention_policy
            && config.policies.get(policy).is_none()
        {
            let known = config.policies.names().collect::<Vec<_>>().join(", ");
            return Err(OpenError::PolicyNotFound { policy: policy.clone(), known });
        }
        let config = Arc::new(config);
        let (store_kind, exclusive, in_place) = (store.kind(), store.is_exclusive(), store.commits_in_place());
        let wake = Arc::new(Notify::new());
        let (log, sealed_log) = (store.log()?, store.log()?);
        let outbox_wake = Arc::new(Notify::new());
        let outbox = OutboxDesk::new(store.outbox()?, outbox_wake.clone());
        let (sessions, bell, monitor_store) = (store.sessions(), store.bell(), store.monitor());
        let monitor = Arc::new(Monitor::default());
        let node_id = clock::Entropy::default().take().map_err(|error| StoreError::Unusable(error.to_string()))?;
        let (mut writer, reader) = store.into_parts();
        let store_ahead_us = if exclusive { 0 } else { writer.clock_offset_us().await? };
        let clock = Arc::new(EngineClock::new(config.clock.clone(), store_ahead_us));
        clock.observe(newest_record(&*reader).await?);
        let readiness = Arc::new(Readiness::default());
        let watched = log::Watched {
            clock: clock.clone(),
            wake: wake.clone(),
            readiness: readiness.clone(),
            monitor: monitor.clone(),
        };
        let opened = log::open(log, sealed_log, exclusive, &config, watched).await?;
        let log::OpenLog { reader: log, writer: log_writer, sealer, follows } = opened;
        let log_writer = tokio::sync::Mutex::new(log_writer);
        let registry =
            Arc::new(KnownRegistry::new(config.language.clone(), reader.clone(), config.definition_cache_bytes));
        let (jobs, queue) = mpsc::channel(config.queue);
        let book = Arc::new(Book::default());
        let runbook_changes = Arc::new(run::records::RunbookChanges::default());
        let hub = Arc::new(Hub::default());
        let (runbooks, moved) = (runbook_changes.clone(), hub.clone());
        let governance_wake = Arc::new(Notify::new());
        let governance = governance_wake.clone();
        let wakes = Wakes { sealer: wake, outbox: outbox_wake, governance, runbooks, hub: moved };
        let around = committer::Around {
            wakes,
            book: book.clone(),
            clock: clock.clone(),
            readiness: readiness.clone(),
            reader: reader.clone(),
            monitor: monitor.clone(),
        };
        let committer = Committer::new(writer, exclusive, registry.clone(), config.clone(), around);
        let damaged = committer.damaged.clone();
        let desk = Arc::new(Desk::new(committer));
        let shared = in_place.then(|| Arc::downgrade(&desk));
        let committer = committer::Place::of(desk, queue, book.clone(), exclusive).map_err(OpenError::Thread)?;
        let mut engine = Engine {
            opened_at: clock.now(),
            monitor,
            monitor_store,
            node_id: uuid::Uuid::from_bytes(node_id),
            jobs,
            book,
            background: vec![],
            desk: shared,
            registry,
            clock,
            readiness,
            reader,
            config,
            log,
            log_writer,
            outbox,
            governance_wake,
            sessions,
            sealer,
            follows,
            committer,
            store_kind,
            exclusive,
            damaged,
            runbook_changes,
            hub,
            ringing: None,
        };
        engine.refresh_registry().await?;
        engine.book.open_store();
        if engine.registry().sequence() > 0 {
            engine.settle_own_keys().await?;
            engine.record_configuration().await?;
        }
        engine.prepare_all();
        engine.start_clockwork(exclusive);
        engine.background.push(tokio::spawn(engine.hub.clone().pump(engine.registry.changes())));
        if let Some(sealer) = &engine.sealer {
            let (mut signed, hub) = (sealer.signed.clone(), engine.hub.clone());
            engine.background.push(tokio::spawn(async move {
                while signed.changed().await.is_ok() {
                    hub.committed(Moves::of(Key::Ledger));
                }
            }));
        }
        if let (Some(bell), Ok(id)) = (bell, clock::Entropy::default().take()) {
            let (book, hub) = (engine.book.clone(), engine.hub.clone());
            let told = run::bell::Told { book, hub, registry: engine.registry.clone(), reader: engine.reader.clone() };
            let ringer = run::bell::Ringer::new(bell, told, uuid::Uuid::from_bytes(id));
            engine.ringing = Some(ringer.start());
        }
        Ok(engine)
    }

    /// Sets up an empty store with an administrator known by this token. `false` where the store has
    /// one already, or another node was quicker.
    pub async fn bootstrap(&self, admin_ref: &str, admin_token_hash: Digest) -> Result<bool, Refusal> {
        if self.registry().sequence() > 0 {
            return Ok(false);
        }
        let command = registry::Command::Bootstrap(Bootstrap {
            admin_ref: admin_ref.to_owned(),
            admin_token_hash,
            application_key: self.config.application_key.as_ref().map(|signer| actor_key(&signer.public_key())),
            server_actor_ref: self.config.server_actor_ref.clone(),
            server_key: self.config.server_key.as_ref().map(actor_key),
        });
        match self.execute(self.own_call(Command::Registry(command))).await {
            Ok(_) => {
                self.record_configuration().await?;
                Ok(true)
            }
            Err(refusal) if refusal.code == Code::Conflict => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    async fn record_configuration(&self) -> Result<(), Refusal> {
        let command = registry::Command::RecordConfiguration(Configuration {
            audit_trail_retention_policy: self.config.audit_trail_retention_policy.clone(),
            regulated: self.config.regulated,
            signatures: self.config.signatures.filter(|_| self.config.regulated),
            application_actor_ref: self.config.application_actor_ref.clone(),
            server_actor_ref: self.config.server_actor_ref.clone(),
        });
        self.execute(self.own_call(Command::Registry(command))).await.map(|_| ())
    }

    fn own_call(&self, command: Command) -> Call {
        let actor_ref = self.config.application_actor_ref.clone();
        Call { actor_ref, proof: Proof::InProcess, command, idempotency: None }
    }

    /// Decides a call and, if it is accepted, commits it. When this returns `Ok`, it is durable.
    pub async fn execute(&self, call: Call) -> Result<Outcome, Refusal> {
        let name = call.command.name();
        let (answer, answered) = oneshot::channel();
        let sent = match self.serve_here(Job::new(call, answer)) {
            None => Ok(()),
            Some(job) => self.jobs.try_send(job),
        };
        let result = match sent {
            Ok(()) => answered.await.unwrap_or_else(|_| Err(unanswered())),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(Refusal::new(Code::Overloaded, "too many calls are waiting; try again in a moment"))
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(stopped()),
        };
        let code = result.as_ref().map_or_else(|refusal| refusal.code.as_str(), |_| "ok");
        metrics::counter!("countersign_commands_total", "command" => name, "code" => code).increment(1);
        if let Err(Refusal { code: Code::PermissionDenied | Code::Unauthorized, .. }) = &result {
            metrics::counter!("countersign_refused_authorisations_total", "command" => name, "code" => code)
                .increment(1);
        }
        result
    }

    fn committer_has_panicked(&self) -> bool {
        self.desk.as_ref().and_then(Weak::upgrade).is_some_and(|desk| desk.has_panicked())
    }

    /// Gives the job back where it has to queue up.
    fn serve_here(&self, job: Job) -> Option<Job> {
        let waiting = self.jobs.capacity() < self.jobs.max_capacity();
        match self.desk.as_ref().and_then(Weak::upgrade) {
            Some(desk) if !waiting => desk.serve_here(job),
            _ => Some(job),
        }
    }

    /// Compiles what a document holds beside everything else that goes on, so that no command has to wait for it.
    pub fn prepare(&self, document: Arc<[u8]>) {
        let language = self.config.language.clone();
        tokio::task::spawn_blocking(move || language.prepare(&document));
    }

    /// The same for the newest version of each definition.
    fn prepare_all(&self) {
        let registry = self.registry();
        let newest = registry.definition_names().into_iter().filter_map(|name| registry.definition(name, None));
        let workflows = newest.filter_map(|definition| definition.workflow.as_ref());
        let digests: Vec<Digest> = workflows.map(|workflow| workflow.document_digest).collect();
        // It does not keep the store open.
        let (language, reader) = (self.config.language.clone(), Arc::downgrade(&self.reader));
        // One after the other: they need not be in memory at once.
        tokio::spawn(async move {
            for digest in digests {
                let Some(reader) = reader.upgrade() else { return };
                let read = reader.document(digest).await;
                drop(reader);
                let Ok(document) = read else { continue };
                let language = language.clone();
                let _ = tokio::task::spawn_blocking(move || language.prepare(&document)).await;
            }
        });
    }

    /// What plans of definitions take in memory, about; runs that are in memory hold theirs besides.
    pub fn plan_bytes(&self) -> usize {
        self.registry.plan_bytes()
    }

    /// The registry as this node knows it.
    pub fn registry(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read()
    }

    /// Catches up with registry changes of other nodes.
    pub async fn refresh_registry(&self) -> Result<(), StoreError> {
        let known = self.registry().sequence();
        let delta = self.reader.registry_since(known).await?;
        self.registry.absorb(delta)
    }

    /// The same, where there can be other nodes: before a "no" is given, and before a choice is made among all there is.
    pub async fn catch_up(&self) -> Result<(), Refusal> {
        if self.exclusive {
            return Ok(());
        }
        self.refresh_registry().await.map_err(|error| store_failure(&error))
    }

    /// The actor behind a token. A token that is not known here may have been made on another node a
    /// moment ago, so the store is asked before it is refused.
    pub async fn authenticate(&self, token_hash: &Digest) -> Result<String, Refusal> {
        let known = |engine: &Engine| {
            let actor_ref = engine.registry().authenticate(token_hash).map(str::to_owned);
            actor_ref.filter(|actor_ref| !engine.is_engine_actor(actor_ref))
        };
        if let Some(actor_ref) = known(self) {
            return Ok(actor_ref);
        }
        self.refresh_registry().await.map_err(|error| store_failure(&error))?;
        known(self).ok_or_else(|| Refusal::new(Code::InvalidCredential, "the bearer token is not known here"))
    }

    /// Names this start of this node.
    pub fn node_id(&self) -> uuid::Uuid {
        self.node_id
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The time that records and time-outs go by. It may be ahead of the wall clock, see [`clock`].
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Who approves proposals whose target does not say it.
    pub fn proposal_approvers(&self) -> Option<&GateEntry> {
        self.config.proposal_approvers.as_ref()
    }

    pub fn clock(&self) -> &EngineClock {
        &self.clock
    }

    pub fn store_kind(&self) -> &'static str {
        self.store_kind
    }

    /// How many instances verifying found to be damaged; they accept no command.
    pub fn damaged_instances(&self) -> usize {
        self.damaged.count()
    }

    /// Takes no more calls, commits those that wait, seals what was committed, and returns when all has stopped.
    pub fn close(self) {
        let Engine { jobs, book, committer, sealer, background, hub, ringing, .. } = self;
        book.leases.end();
        hub.close();
        background.iter().for_each(tokio::task::JoinHandle::abort);
        drop(jobs);
        committer.wait();
        if let Some(ringing) = ringing {
            ringing.close();
        }
        if let Some(sealer) = sealer {
            sealer.close();
        }
    }
}

/// When the newest record was made: the time that all who share the store have to go on from.
pub(crate) async fn newest_record(reader: &dyn Reader) -> Result<Time, StoreError> {
    let page = port::Page { after: None, limit: 1, descending: true };
    let found = reader.records(&port::RecordQuery::default(), &page).await?;
    Ok(found.first().map_or(Time(0), |row| row.recorded_at))
}

/// A key as the registry knows it.
pub fn actor_key(key: &PublicKey) -> ActorKey {
    ActorKey { key_id: key.key_id(), public_key: key.to_base64(), passkey: None }
}

fn stopped() -> Refusal {
    Refusal::new(Code::RecordingFailure, "the engine is stopping; nothing was written")
}

/// The committer took the call and ended without an answer: it failed, perhaps after it had committed.
fn unanswered() -> Refusal {
    let detail =
        "the engine ended before it answered: read before you try again, or try again with the same Idempotency-Key";
    Refusal::new(Code::RecordingFailure, detail)
}

/// What cannot be written as JSON is not hashed, not signed and not recorded.
pub(crate) fn unwritable(error: countersign_ledger::Unwritable) -> Refusal {
    Refusal::new(Code::RecordingFailure, format!("{error}; nothing was written"))
}

/// A read or write that the store could not do.
pub fn store_failure(error: &StoreError) -> Refusal {
    tracing::error!(%error, "store failure");
    let detail = match error {
        StoreError::Quarantined(why) => {
            let detail =
                format!("the definition that this was started from is quarantined: {why}; nothing was written");
            return Refusal::new(Code::InvalidDefinition, detail);
        }
        StoreError::Conflict(_) | StoreError::Transient(_) => "the store is not available; nothing was written",
        StoreError::Rejected(_) => "the store refused the data; nothing was written",
        StoreError::Unknown(_) => {
            "the store did not confirm the commit: read before you try again, or try again with the same Idempotency-Key"
        }
        StoreError::Corrupt(what) => {
            let detail = format!(
                "stored data is damaged ({what}); nothing was written, and what is damaged accepts no command. Run `countersign \
                 audit verify` for all findings, and restore a backup that verifies"
            );
            return Refusal::new(Code::RecordingFailure, detail);
        }
        StoreError::Unusable(why) => {
            return Refusal::new(Code::RecordingFailure, format!("the store cannot be used: {why}"));
        }
    };
    Refusal::new(Code::RecordingFailure, detail)
}
