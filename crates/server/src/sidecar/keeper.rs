//! `[sidecar] dir`: the files of every runbook, kept up to date beside the store.
//!
//! They are written after the commit, by the node that committed, and replaced by renaming. Nothing is ever read from them: the
//! time of `state.json` is that of the record it was made at, and tells after a restart which ones are old. A failure is logged,
//! counted and tried again; no command waits for it or fails by it.

use super::{STATE_FILE, Sidecar, files, is_own_name, state};
use anyhow::Context;
use countersign_engine::Engine;
use countersign_engine::port::{Page, RunQuery, RunView};
use countersign_engine::run::records::RunbookChanges;
use countersign_kernel::lifecycle::RunState;
use countersign_kernel::{InstanceId, Time};
use fs4::FileExt;
use std::collections::{HashMap, HashSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;

const INDEX_FILE: &str = "runs.jsonl";
const LOCK_FILE: &str = "runs.lock";
/// What a run's files are written as, before they are renamed.
const TEMPORARY: &str = ".tmp-";
const FILE_MODE: u32 = 0o640;
/// Changes of a run that come closer together are written once.
const PAUSE: Duration = Duration::from_millis(200);
/// After a failure, unless something changes before.
const RETRY: Duration = Duration::from_secs(30);
const BATCH: usize = 200;
/// Another node may commit while files are written; after so many times, its own writing has to do.
const ROUNDS: usize = 5;

/// Makes the directory where it is missing. Inside of one that is there, permissions are the operator's.
pub fn open_dir(dir: &Path) -> anyhow::Result<PathBuf> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.and_then(|()| lock(dir).map(drop)).with_context(|| format!("sidecars cannot be kept in {}", dir.display()))?;
    Ok(dir.to_owned())
}

/// One node at a time changes the list of runs.
fn lock(dir: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(LOCK_FILE))?;
    FileExt::lock(&file)?;
    Ok(file)
}

/// Keeps files up to date until it is dropped.
pub struct Keeper {
    kept: Arc<Kept>,
    task: JoinHandle<()>,
}

struct Kept {
    dir: PathBuf,
    changes: Arc<RunbookChanges>,
    pending: Mutex<HashSet<InstanceId>>,
    /// The sequence that each live run's files were last written at.
    written: Mutex<HashMap<InstanceId, u64>>,
}

impl Keeper {
    pub fn start(engine: &Arc<Engine>, dir: PathBuf) -> Keeper {
        let changes = engine.runbook_changes();
        changes.follow();
        let kept = Arc::new(Kept { dir, changes, pending: Mutex::default(), written: Mutex::default() });
        let task = tokio::spawn(kept.clone().run(Arc::downgrade(engine)));
        Keeper { kept, task }
    }

    /// Writes what has changed and not been written yet, and ends.
    pub async fn finish(self, engine: &Engine) {
        self.task.abort();
        let _ = self.task.await;
        self.kept.absorb();
        for run_id in self.kept.pending() {
            self.kept.attempt(engine, run_id).await;
        }
    }
}

impl Kept {
    async fn run(self: Arc<Self>, engine: Weak<Engine>) {
        let mut is_caught_up = false;
        loop {
            if !is_caught_up {
                let Some(engine) = engine.upgrade() else { return };
                match self.catch_up(&engine).await {
                    Ok(()) => is_caught_up = true,
                    Err(error) => failed(None, &error),
                }
            }
            self.absorb();
            for run_id in self.pending() {
                let Some(engine) = engine.upgrade() else { return };
                self.attempt(&engine, run_id).await;
            }
            if self.pending().is_empty() && is_caught_up {
                self.changes.changed().await;
            } else {
                let _ = tokio::time::timeout(RETRY, self.changes.changed()).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn absorb(&self) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).extend(self.changes.take());
    }

    fn pending(&self) -> Vec<InstanceId> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    async fn attempt(&self, engine: &Engine, run_id: InstanceId) {
        match self.write(engine, run_id).await {
            Ok(()) => drop(self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&run_id)),
            Err(error) => failed(Some(run_id), &error),
        }
    }

    /// Until what is written is what the store has: of two nodes that write at the same time, the later one writes again.
    async fn write(&self, engine: &Engine, run_id: InstanceId) -> anyhow::Result<()> {
        for _ in 0..ROUNDS {
            let Some(run) = read(engine, run_id).await? else { return Ok(()) };
            let sequence = run.chain.sequence;
            let known = self.written.lock().unwrap_or_else(PoisonError::into_inner).get(&run_id).copied();
            if known == Some(sequence) {
                return Ok(());
            }
            let sidecar = files(engine, &run, None).await?;
            let (dir, is_ended) = (self.dir.clone(), RunState::parse(&run.head.state).is_some_and(RunState::is_ended));
            tokio::task::spawn_blocking(move || write_all(&dir, &sidecar)).await??;
            self.remember(run_id, sequence, is_ended);
            if read(engine, run_id).await?.is_none_or(|run| run.chain.sequence == sequence) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Of an ended run little more is to come.
    fn remember(&self, run_id: InstanceId, sequence: u64, is_ended: bool) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if is_ended {
            written.remove(&run_id)
        } else {
            written.insert(run_id, sequence)
        };
    }

    /// After a start: which files are missing or old, and the list of all runs.
    async fn catch_up(&self, engine: &Engine) -> anyhow::Result<()> {
        let names: Vec<String> = {
            let registry = engine.registry();
            let is_runbook = |name: &&str| {
                let plans = registry.definition_versions(name).iter().filter_map(|version| version.workflow.as_ref());
                plans.into_iter().any(|workflow| workflow.outline.is_runbook)
            };
            registry.definition_names().into_iter().filter(is_runbook).map(str::to_owned).collect()
        };
        let dir = self.dir.clone();
        let held = tokio::task::spawn_blocking(move || lock(&dir)).await??;
        let mut lines = String::new();
        let mut page = Page { after: None, limit: BATCH, descending: false };
        let query = RunQuery { definitions: Some(names), ..RunQuery::default() };
        loop {
            let runs = engine.own_runs(&query, &page).await?;
            for run in &runs {
                if !engine.plan_of(run).await?.is_runbook() {
                    continue;
                }
                let place = self.dir.join(state::run_name(run));
                if place.is_dir() {
                    lines.push_str(&state::index_line(run));
                }
                if !is_fresh(&place, run.chain.last_time) {
                    self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(run.row.instance_id);
                }
            }
            match runs.last() {
                Some(last) if runs.len() == BATCH => page.after = Some(last.row.instance_id.0),
                _ => break,
            }
        }
        replace(&self.dir, INDEX_FILE, &lines, None)?;
        drop(held);
        Ok(())
    }
}

async fn read(engine: &Engine, run_id: InstanceId) -> anyhow::Result<Option<RunView>> {
    let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    Ok(engine.own_runs(&query, &page).await?.into_iter().next())
}

fn failed(run_id: Option<InstanceId>, error: &anyhow::Error) {
    let run_id = run_id.map(|run_id| run_id.to_string());
    let error = format!("{error:#}");
    tracing::warn!(run_id, error, "sidecar files could not be written; trying again");
    metrics::counter!("countersign_sidecar_failures_total").increment(1);
}

fn instant(time: Time) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(time.0).unwrap_or(0))
}

fn is_fresh(place: &Path, newest: Time) -> bool {
    let modified = std::fs::metadata(place.join(STATE_FILE)).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified == instant(newest))
}

/// `state.json` comes last: where it is new, all are.
fn write_all(dir: &Path, sidecar: &Sidecar) -> anyhow::Result<()> {
    let place = dir.join(&sidecar.run_name);
    let cannot = || format!("{} cannot be written", place.display());
    list(dir, &place, &sidecar.index_line).with_context(cannot)?;
    for (name, text) in sidecar.files.iter().rev() {
        let at = (name == STATE_FILE).then(|| instant(sidecar.at));
        if at.is_some() {
            remove_others(&place, sidecar).with_context(cannot)?;
        }
        replace(&place, name, text, at).with_context(cannot)?;
    }
    metrics::counter!("countersign_sidecar_writes_total").increment(1);
    Ok(())
}

/// Whoever makes the directory of a run adds its line to the list.
fn list(dir: &Path, place: &Path, line: &str) -> std::io::Result<()> {
    if place.is_dir() {
        return Ok(());
    }
    let held = lock(dir)?;
    match std::fs::create_dir(place) {
        Ok(()) => {
            let mut index = OpenOptions::new().create(true).append(true).open(dir.join(INDEX_FILE))?;
            index.write_all(line.as_bytes())?;
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    drop(held);
    Ok(())
}

/// Reports that no longer hold, and what a killed server left half written.
fn remove_others(place: &Path, sidecar: &Sidecar) -> std::io::Result<()> {
    for entry in std::fs::read_dir(place)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let holds = sidecar.files.iter().any(|(file, _)| file == name);
        if (is_own_name(name) && !holds) || name.starts_with(TEMPORARY) {
            match std::fs::remove_file(entry.path()) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

fn replace(place: &Path, name: &str, text: &str, at: Option<SystemTime>) -> std::io::Result<()> {
    let permissions = std::fs::Permissions::from_mode(FILE_MODE);
    let mut file = tempfile::Builder::new().prefix(TEMPORARY).permissions(permissions).tempfile_in(place)?;
    file.write_all(text.as_bytes())?;
    if let Some(at) = at {
        file.as_file().set_modified(at)?;
        file.as_file().sync_all()?;
    }
    file.persist(place.join(name)).map(drop).map_err(|error| error.error)
}
