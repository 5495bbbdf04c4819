//! The engine is the shell around the kernel: it authenticates nothing and renders nothing, but takes
//! calls of known actors, has the kernel decide them, and commits what follows (state, in-trays,
//! records, idempotency keys) in one transaction. [`port`] is what it asks of a database.
//!
//! - [`committer`]: the one writer; group commit and the version fence.
//! - [`payload`], [`project`]: from events to record payloads and rows; [`purge`]: what a purge destroys besides.
//! - [`sealer`]: gives every record its place in the log and signs checkpoints; [`log`]: proofs of that.
//! - [`outbox`]: what leaves for webhooks, and what became of it.
//! - [`reads`]: what actors may read. [`run`]: rows, records and the agenda of runs.

pub mod clock;
mod committer;
pub mod evidence;
mod holds;
mod known;
pub mod language;
pub mod log;
mod once;
mod outbox;
pub mod outcome;
pub mod payload;
pub mod port;
mod project;
pub mod purge;
pub mod reads;
pub mod retention;
pub mod rows;
pub mod run;
mod sealer;

pub use outcome::{Call, ClaimCall, Command, IdempotencyKey, OpenedStep, Outcome, Proof, SignedRequest, Target, Task};
pub use run::service::{Addressee, Sent};
pub use sealer::LogConfig;

use clock::{Clock, system_clock};
use committer::{Committer, Desk, Job, Wakes};
use countersign_kernel::plan::Language;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, ActorKey, Bootstrap, Configuration, RegisterKey, Registry};
use countersign_kernel::{Digest, Time};
use countersign_ledger::statement::{PublicKey, Signer};
use known::KnownRegistry;
use outbox::OutboxDesk;
use port::{LogReader, LogWriter, Reader, Store, StoreError};
use retention::{Policies, UNSET_POLICY};
use run::agenda::Book;
use sealer::SealerHandle;
use std::sync::{Arc, RwLockReadGuard, Weak};
use tokio::sync::{Notify, mpsc, oneshot};

/// What a deployment decides about its engine.
#[derive(Clone)]
pub struct Config {
    /// The actor in whose name the engine itself acts.
    pub application_actor_ref: String,
    /// The key with which it signs. `None` only where nothing is to be proven, as in tests of other things.
    pub application_key: Option<Signer>,
    /// The actor that signs checkpoints, and its key.
    pub server_actor_ref: String,
    pub server_key: Option<PublicKey>,
    /// Gate decisions must be signed.
    pub regulated: bool,
    /// `None`: the deployment has not chosen. Records say so.
    pub audit_trail_retention_policy: Option<String>,
    pub policies: Policies,
    /// Record attempts that were refused for want of authority.
    pub audit_failed_attempts: bool,
    pub clock: Clock,
    /// Reads the documents of workflows and computes what they say.
    pub language: Arc<dyn Language>,
    /// A JSON object, for `${secrets…}` in shell and http steps.
    pub secrets: Option<Arc<str>>,
    /// The events of transitions that somebody listens to.
    pub emitter: run::emit::Emitter,
    /// How many instances are kept in memory; never fewer than a batch needs.
    pub cached_instances: usize,
    /// `None`: this node does not seal. It may still follow a log that others seal.
    pub log: Option<LogConfig>,
    /// How many calls may wait before new ones are refused as `overloaded`.
    pub queue: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            application_actor_ref: "countersign".to_owned(),
            application_key: None,
            server_actor_ref: "countersign-log".to_owned(),
            server_key: None,
            regulated: false,
            audit_trail_retention_policy: None,
            policies: Policies::default(),
            audit_failed_attempts: false,
            clock: system_clock(),
            language: Arc::new(language::NoLanguage),
            secrets: None,
            emitter: run::emit::Emitter::default(),
            cached_instances: 100_000,
            log: None,
            queue: 16_384,
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
    reader: Arc<dyn Reader>,
    config: Arc<Config>,
    log: Arc<dyn LogReader>,
    /// For cosignatures, which come rarely.
    log_writer: tokio::sync::Mutex<Box<dyn LogWriter>>,
    outbox: OutboxDesk,
    sealer: Option<SealerHandle>,
    committer: committer::Place,
    store_kind: &'static str,
    /// Nobody else changes the store.
    exclusive: bool,
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
        let (clock, clock_offset_us) = clock::corrected(config.clock.clone());
        let config = Arc::new(Config { clock, ..config });
        let (store_kind, exclusive, in_place) = (store.kind(), store.is_exclusive(), store.commits_in_place());
        let wake = Arc::new(Notify::new());
        let opened = log::open(store.log()?, store.log()?, exclusive, &config, &wake).await?;
        let log::OpenLog { reader: log, writer: log_writer, sealer } = opened;
        let log_writer = tokio::sync::Mutex::new(log_writer);
        let outbox_wake = Arc::new(Notify::new());
        let outbox = OutboxDesk::new(store.outbox()?, outbox_wake.clone());
        let bell = store.bell();
        let (mut writer, reader) = store.into_parts();
        let registry = Arc::new(KnownRegistry::new(config.language.clone()));
        let (jobs, queue) = mpsc::channel(config.queue);
        let book = Arc::new(Book::default());
        let newest_record = newest_record(&*reader).await?;
        if exclusive {
            run::clockwork::recall(&mut *writer, &book, (config.clock)(), newest_record).await?;
        }
        let wakes = Wakes { sealer: wake, outbox: outbox_wake };
        let mut committer =
            Committer::new(writer, exclusive, registry.clone(), config.clone(), wakes, book.clone(), clock_offset_us);
        committer.newest_record = newest_record;
        let desk = Arc::new(Desk::new(committer));
        let shared = in_place.then(|| Arc::downgrade(&desk));
        let committer = committer::Place::of(desk, queue, book.clone(), exclusive).map_err(OpenError::Thread)?;
        let mut engine = Engine {
            jobs,
            book,
            background: vec![],
            desk: shared,
            registry,
            reader,
            config,
            log,
            log_writer,
            outbox,
            sealer,
            committer,
            store_kind,
            exclusive,
        };
        engine.refresh_registry().await?;
        if engine.registry().sequence() > 0 {
            engine.record_own_keys().await?;
            engine.record_configuration().await?;
        }
        engine.start_clockwork(exclusive);
        if let (Some(bell), Ok(id)) = (bell, clock::Entropy::default().take()) {
            let ringer = run::bell::Ringer::new(bell, engine.book.clone(), uuid::Uuid::from_bytes(id));
            engine.background.push(tokio::spawn(ringer.run()));
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
            application_actor_ref: self.config.application_actor_ref.clone(),
            server_actor_ref: self.config.server_actor_ref.clone(),
        });
        self.execute(self.own_call(Command::Registry(command))).await.map(|_| ())
    }

    /// A second node, or one whose data directory was lost, has keys of its own: they are registered beside the first.
    async fn record_own_keys(&self) -> Result<(), Refusal> {
        let Config { application_actor_ref, application_key, server_actor_ref, server_key, .. } = &*self.config;
        let own = [
            (application_actor_ref, application_key.as_ref().map(Signer::public_key)),
            (server_actor_ref, server_key.clone()),
        ];
        for (actor_ref, key) in own {
            let Some(key) = key.as_ref().map(actor_key) else { continue };
            match self.registry().keys().get(actor_ref, &key.key_id) {
                Some(known) if known.is_active() => continue,
                Some(_) => {
                    let detail =
                        format!("the key {} of `{actor_ref}` was revoked: put another one in its file", key.key_id);
                    return Err(Refusal::new(Code::InvalidCredential, detail));
                }
                None => {}
            }
            let command = RegisterKey { actor_ref: actor_ref.clone(), key };
            self.execute(self.own_call(Command::Registry(registry::Command::RegisterKey(command)))).await?;
        }
        Ok(())
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

    /// Gives the job back where it has to queue up.
    fn serve_here(&self, job: Job) -> Option<Job> {
        let waiting = self.jobs.capacity() < self.jobs.max_capacity();
        match self.desk.as_ref().and_then(Weak::upgrade) {
            Some(desk) if !waiting => desk.serve_here(job),
            _ => Some(job),
        }
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
        let known = |engine: &Engine| engine.registry().authenticate(token_hash).map(str::to_owned);
        if let Some(actor_ref) = known(self) {
            return Ok(actor_ref);
        }
        self.refresh_registry().await.map_err(|error| store_failure(&error))?;
        known(self).ok_or_else(|| Refusal::new(Code::InvalidCredential, "the bearer token is not known here"))
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn now(&self) -> Time {
        (self.config.clock)()
    }

    pub fn store_kind(&self) -> &'static str {
        self.store_kind
    }

    /// Answers when the store can be read and the committer lives.
    pub async fn ready(&self) -> Result<(), StoreError> {
        if self.jobs.is_closed() {
            return Err(StoreError::Transient("the committer has stopped".to_owned()));
        }
        self.reader.ping().await
    }

    /// Takes no more calls, commits those that wait, seals what was committed, and returns when all has stopped.
    pub fn close(self) {
        let Engine { jobs, book, committer, sealer, background, .. } = self;
        book.leases.end();
        background.iter().for_each(tokio::task::JoinHandle::abort);
        drop(jobs);
        committer.wait();
        if let Some(sealer) = sealer {
            sealer.close();
        }
    }
}

async fn newest_record(reader: &dyn Reader) -> Result<Time, StoreError> {
    let page = port::Page { after: None, limit: 1, descending: true };
    let found = reader.records(&port::RecordQuery::default(), &page).await?;
    Ok(found.first().map_or(Time(0), |row| row.recorded_at))
}

/// A key as the registry knows it.
pub fn actor_key(key: &PublicKey) -> ActorKey {
    ActorKey { key_id: key.key_id(), public_key: key.to_base64() }
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

/// A read or write that the store could not do.
pub fn store_failure(error: &StoreError) -> Refusal {
    tracing::error!(%error, "store failure");
    let detail = match error {
        StoreError::Conflict(_) | StoreError::Transient(_) => "the store is not available; nothing was written",
        StoreError::Rejected(_) => "the store refused the data; nothing was written",
        StoreError::Unknown(_) => {
            "the store did not confirm the commit: read before you try again, or try again with the same Idempotency-Key"
        }
        StoreError::Corrupt(_) => {
            "stored data of this instance is damaged; nothing was written. Run `countersign audit verify`"
        }
        StoreError::Unusable(_) => "the store cannot be used; nothing was written",
    };
    Refusal::new(Code::RecordingFailure, detail)
}
