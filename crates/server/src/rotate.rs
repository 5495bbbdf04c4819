//! `countersign keys rotate`: another key takes the place of one of the server's own, with the server stopped. The new
//! key is on the disk before the store names it, so a crash at any point leaves a server that starts: with the old key,
//! or with the new one.

use crate::config::Config;
use crate::serve::{self, APPLICATION_KEY_FILE, OwnKeys};
use crate::{keys, log_key::LOG_KEY_FILE};
use anyhow::{Context, bail, ensure};
use countersign_engine::Engine;
use countersign_engine::port::log::{LeaseToken, LogIdentity, RotationRow, Written};
use countersign_engine::port::{LogReader, LogWriter};
use countersign_ledger::note::{Checkpoint, NoteSigner, Rotation, Verifier};
use countersign_ledger::statement::Signer;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a node that has just stopped may still hold the log.
const LEASE_WAIT: Duration = Duration::from_secs(12);
const LEASE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnKey {
    /// Signs what the engine itself records.
    Application,
    /// Signs checkpoints.
    Log,
}

pub struct RotateOptions {
    pub data_dir: PathBuf,
    pub store: Option<String>,
    pub config: Option<PathBuf>,
    pub which: OwnKey,
    /// The private key is gone: the new one takes its place without its signature, and a record says so.
    pub lost: bool,
    /// With `lost`: the application key that is gone, where there are several.
    pub key_id: Option<String>,
}

/// What became of a rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotated {
    /// The keys that ended, by their ids in the registry.
    pub ended: Vec<String>,
    pub key_id: String,
    /// Of the log: the new verifier key, and the note with which it took over.
    pub verifier_key: Option<String>,
    pub note: Option<String>,
}

pub async fn rotate(options: RotateOptions) -> anyhow::Result<Rotated> {
    let config = Config::load(options.config.as_deref())?;
    let store = options.store.clone().unwrap_or_else(|| serve::default_store(&options.data_dir));
    if let Some(path) = store.strip_prefix("sqlite:") {
        ensure!(Path::new(path).exists(), "there is no store at {path}: name the server's --data-dir or --store");
    }
    // The running server has it: nobody rotates under its hands.
    let _lock = crate::store_guard::lock_sqlite(&store)?;
    let place = Place { config, store, data_dir: options.data_dir.clone() };
    match (options.which, options.lost) {
        (OwnKey::Application, false) => place.rotate_application().await,
        (OwnKey::Application, true) => place.replace_application(options.key_id.as_deref()).await,
        (OwnKey::Log, lost) => place.rotate_log(lost).await,
    }
}

struct Place {
    config: Config,
    store: String,
    data_dir: PathBuf,
}

impl Place {
    async fn open(&self) -> anyhow::Result<Engine> {
        let engine = serve::open(&self.store, &self.config, None, &self.data_dir, None).await?;
        ensure!(engine.registry().sequence() > 0, "the store is empty: there is no key to rotate");
        Ok(engine)
    }

    async fn open_with(&self, own: OwnKeys) -> anyhow::Result<Engine> {
        serve::open_with(&self.store, &self.config, None, own).await
    }

    async fn rotate_application(&self) -> anyhow::Result<Rotated> {
        let file = self.data_dir.join(APPLICATION_KEY_FILE);
        let engine = self.open().await?;
        let next = Signer::from_seed(&keys::make(&keys::next(&file))?).public_key();
        let ended = engine.rotate_application_key(&next).await?;
        keys::adopt_next(&file)?;
        close(engine).await?;
        Ok(Rotated { ended: vec![ended], key_id: next.key_id(), verifier_key: None, note: None })
    }

    /// A new key registers itself, and the lost one ends by its signature.
    async fn replace_application(&self, lost: Option<&str>) -> anyhow::Result<Rotated> {
        let file = self.data_dir.join(APPLICATION_KEY_FILE);
        let own = match (keys::load(&file)?, lost) {
            // Another node's key is gone; this one is at hand and signs that.
            (Some(seed), Some(_)) => self.own_keys(seed)?,
            (here, _) => {
                if let Some(seed) = here {
                    self.require_foreign(seed).await?;
                }
                OwnKeys { is_new: true, ..self.own_keys(keys::make(&keys::next(&file))?)? }
            }
        };
        let (is_new, key_id) = (own.is_new, Signer::from_seed(&own.application).public_key().key_id());
        let engine = self.open_with(own).await?;
        if is_new {
            keys::adopt_next(&file)?;
        }
        let others: Vec<String> = engine.application_keys().into_iter().filter(|id| *id != key_id).collect();
        let ended = match (lost, others.as_slice()) {
            (Some(lost), _) => vec![lost.to_owned()],
            (None, [one]) => vec![one.clone()],
            (None, []) => vec![],
            (None, several) => {
                let several = several.join(", ");
                close(engine).await?;
                bail!(
                    "the new key {key_id} is registered. There are several others ({several}): say which one is lost with \
                     --lost --key-id ID"
                );
            }
        };
        for lost in &ended {
            engine.end_lost_application_key(lost).await?;
        }
        close(engine).await?;
        Ok(Rotated { ended, key_id, verifier_key: None, note: None })
    }

    /// A key that opens the store is not lost.
    async fn require_foreign(&self, seed: [u8; 32]) -> anyhow::Result<()> {
        let key_id = Signer::from_seed(&seed).public_key().key_id();
        if let Ok(engine) = self.open_with(self.own_keys(seed)?).await {
            close(engine).await?;
            bail!(
                "the key {key_id} is here and in force: rotate it without --lost, or name the lost one with --key-id"
            );
        }
        Ok(())
    }

    fn own_keys(&self, application: [u8; 32]) -> anyhow::Result<OwnKeys> {
        Ok(OwnKeys { application, is_new: false, log: keys::load(&self.data_dir.join(LOG_KEY_FILE))? })
    }

    async fn rotate_log(&self, lost: bool) -> anyhow::Result<Rotated> {
        let file = self.data_dir.join(LOG_KEY_FILE);
        // Everything is sealed with the old key, as far as it is at hand.
        close(self.open().await?).await?;
        let old = keys::load(&file)?.filter(|_| !lost);
        ensure!(
            lost || old.is_some(),
            "there is no {} here. Copy it from a node that seals; if it is lost: countersign keys rotate log --lost",
            file.display()
        );
        let store = countersign_store::open(&self.store).await.context("the store cannot be opened")?;
        let (mut writer, reader) = store.log()?;
        let identity = reader.identity().await?.context("this store has no log")?;
        let seed = keys::make(&keys::next(&file))?;
        let new = NoteSigner::log(&identity.origin, &seed)?;
        let handover = Handover { identity, old, new };
        let lease = lease(&mut *writer).await?;
        let written = handover.write(&mut *writer, &*reader, lease).await;
        writer.release_lease(lease).await?;
        let note = written?;
        drop((writer, reader, store));
        keys::adopt_next(&file)?;
        // The registry learns of it.
        let engine = self.open().await?;
        let _ = engine.seal_now().await;
        close(engine).await?;
        let key_id = handover.new.verifier().public_key_id();
        let ended = Verifier::parse(&handover.identity.verifier_key)?.public_key_id();
        let verifier_key = Some(handover.new.verifier().to_string());
        Ok(Rotated { ended: vec![ended], key_id, verifier_key, note: Some(note) })
    }
}

/// From one log key to the next.
struct Handover {
    identity: LogIdentity,
    /// `None` where it was lost.
    old: Option<[u8; 32]>,
    new: NoteSigner,
}

impl Handover {
    async fn write(
        &self,
        writer: &mut dyn LogWriter,
        reader: &dyn LogReader,
        lease: LeaseToken,
    ) -> anyhow::Result<String> {
        let from = Verifier::parse(&self.identity.verifier_key)?;
        let latest = reader.latest_checkpoint().await?.context("nothing was sealed yet: start the server once")?;
        ensure!(
            from.open(&latest.note).is_ok(),
            "the newest checkpoint is not signed by the log's key: start the server once, so that it is"
        );
        let checkpoint = Checkpoint { origin: self.identity.origin.clone(), size: latest.size, root: latest.root };
        let rotation = Rotation { checkpoint, from, to: self.new.verifier() };
        let text = rotation.text();
        let mut note = format!("{text}\n");
        if let Some(seed) = &self.old {
            let old = NoteSigner::log(&self.identity.origin, seed)?;
            ensure!(old.verifier() == rotation.from, "log.key is not the key that this log is signed with");
            note.push_str(&old.sign(&text, 0));
        }
        note.push_str(&self.new.sign(&text, 0));
        let row =
            RotationRow { size: latest.size, note, rotated_at: countersign_engine::clock::Clock::system().read().wall };
        match writer.rotate(lease, &self.identity, &self.new.verifier().to_string(), &row).await? {
            Written::Done => Ok(row.note),
            Written::LeaseLost => bail!("another node took the log over meanwhile; nothing was changed"),
            Written::Overtaken => bail!("the log has another key by now; nothing was changed"),
        }
    }
}

/// No other node seals meanwhile.
async fn lease(writer: &mut dyn LogWriter) -> anyhow::Result<LeaseToken> {
    let until = tokio::time::Instant::now() + LEASE_WAIT;
    loop {
        if let Some(lease) = writer.take_lease("countersign keys rotate", LEASE).await? {
            return Ok(lease);
        }
        if tokio::time::Instant::now() > until {
            bail!(
                "another node seals this log: stop every node that has its log.key, rotate, and give them the new one"
            );
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

async fn close(engine: Engine) -> anyhow::Result<()> {
    Ok(tokio::task::spawn_blocking(move || engine.close()).await?)
}
