//! Brings what a batch needs from the store into memory: instances, within a bound in bytes, and the plans of runs that are
//! started.

use super::{Committer, Instance, Job};
use crate::outcome::Command;
use crate::port::{Loaded, LoadedBody, LoadedRun, StoreError};
use crate::run::assemble::assemble;
use countersign_kernel::InstanceId;
use countersign_kernel::run::{self, PinnedMachine};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// How many instances a batch loads before it knows how large they are.
const FIRST_LOADED: usize = 8;

impl Committer {
    /// Loads what is not in memory, a few instances at a time, until the bound in bytes is reached. Calls on the others wait for
    /// the next batch; a claim goes without them.
    pub(super) async fn load_within_room(
        &mut self,
        mut missing: Vec<InstanceId>,
        jobs: &mut VecDeque<Job>,
    ) -> Result<(), StoreError> {
        let mut needed = HashSet::with_capacity(missing.len());
        missing.retain(|id| needed.insert(*id) && !self.cache.contains_key(id));
        let (mut loaded, mut bytes, mut at_once) = (0, 0, FIRST_LOADED);
        while !missing.is_empty() && at_once > 0 {
            let mut some: Vec<InstanceId> = missing.drain(..at_once.min(missing.len())).collect();
            let before = self.cache.bytes();
            loaded += some.len();
            self.load(&mut some, jobs).await?;
            bytes += self.cache.bytes().saturating_sub(before);
            self.cache.trim_besides(&needed);
            at_once = self.cache.room_for(loaded, bytes);
        }
        if missing.is_empty() {
            return Ok(());
        }
        let unloaded: HashSet<InstanceId> = missing.into_iter().collect();
        for mut job in std::mem::take(jobs) {
            self.give_back_unloaded(&mut job, &unloaded);
            match job.instance_id() {
                Some(instance_id) if unloaded.contains(&instance_id) => self.deferred.push(job),
                _ => jobs.push_back(job),
            }
        }
        Ok(())
    }

    pub(super) async fn load(
        &mut self,
        missing: &mut Vec<InstanceId>,
        jobs: &mut VecDeque<Job>,
    ) -> Result<(), StoreError> {
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort_unstable();
        missing.dedup();
        let loaded = self.writer.load(missing).await;
        match loaded.and_then(|loaded| loaded.into_iter().try_for_each(|loaded| self.remember(loaded))) {
            Ok(()) => Ok(()),
            Err(StoreError::Corrupt(_) | StoreError::Quarantined(_)) => self.load_one_by_one(missing, jobs).await,
            Err(error) => Err(error),
        }
    }

    /// One damaged instance must not stop its neighbours: its calls are refused, the others go on.
    async fn load_one_by_one(&mut self, missing: &[InstanceId], jobs: &mut VecDeque<Job>) -> Result<(), StoreError> {
        for instance_id in missing {
            let loaded = self.writer.load(&[*instance_id]).await;
            match loaded.and_then(|loaded| loaded.into_iter().try_for_each(|loaded| self.remember(loaded))) {
                Ok(()) => {}
                Err(error @ (StoreError::Corrupt(_) | StoreError::Quarantined(_))) => {
                    tracing::error!(%instance_id, %error, "instance quarantined");
                    let (damaged, mut others): (VecDeque<Job>, VecDeque<Job>) =
                        jobs.drain(..).partition(|job| job.instance_id() == Some(*instance_id));
                    // Its steps cannot be claimed: a worker that was offered one takes others.
                    others.iter_mut().for_each(|job| job.offered.retain(|(run_id, _)| run_id != instance_id));
                    *jobs = others;
                    self.fail_all(damaged, &error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn remember(&mut self, loaded: Loaded) -> Result<(), StoreError> {
        let Loaded { body, head, policy_ref, beats } = loaded;
        self.clock.observe(head.last_time);
        let (process, run) = match body {
            LoadedBody::Process(process) => (process, None),
            LoadedBody::Run(loaded) => {
                let plan = self.registry.plan_of(loaded.row.document_digest, &loaded.document)?;
                let machine = self.machine(&loaded)?;
                let (shell, run) = assemble(*loaded, plan, machine)?;
                (shell, Some(Box::new(run)))
            }
        };
        self.cache.insert(process.instance_id, Instance { process, run, head, policy_ref, beats });
        Ok(())
    }

    /// A start is decided on the plan of the version that it starts. One that cannot be read leaves the start without.
    pub(super) async fn bring_plans(&mut self, jobs: &mut VecDeque<Job>) -> Result<(), StoreError> {
        for job in jobs {
            let Command::Run { command: run::Command::Start(start), .. } = &mut job.call.command else { continue };
            let digest = {
                let registry = self.registry.read();
                let definition = registry.definition(&start.definition, start.version);
                definition.and_then(|definition| definition.workflow.as_ref()).map(|workflow| workflow.document_digest)
            };
            start.plan = match digest {
                None => None,
                Some(digest) => match self.registry.plan(digest).await {
                    Ok(plan) => Some((digest, plan)),
                    Err(error @ (StoreError::Corrupt(_) | StoreError::Quarantined(_))) => {
                        tracing::error!(definition = start.definition, %error, "a plan cannot be read");
                        None
                    }
                    Err(error) => return Err(error),
                },
            };
        }
        Ok(())
    }

    /// The machine that a run was started under, read again from its document.
    fn machine(&self, loaded: &LoadedRun) -> Result<Option<Arc<PinnedMachine>>, StoreError> {
        let (Some(row), Some(document)) = (&loaded.row.machine, &loaded.machine) else { return Ok(None) };
        let damaged = |why: String| StoreError::Quarantined(format!("its machine {} cannot be read: {why}", row.named));
        let read = self.config.language.machine(document).map_err(|error| damaged(error.to_string()))?;
        let machine = read.ok_or_else(|| damaged("it is none".to_owned()))?;
        let (name, version) = row.named.rsplit_once('@').ok_or_else(|| damaged("it has no version".to_owned()))?;
        Ok(Some(Arc::new(PinnedMachine {
            name: name.into(),
            version: version.parse().map_err(|_| damaged("it has no version".to_owned()))?,
            document_digest: row.digest,
            machine: Arc::new(machine),
        })))
    }
}
