//! The governance chain: one command, one transaction. It stands in no cache: its head and what is open are read again for every
//! command, and the fence finds out whether another node has written meanwhile.

use super::decide::RecordDraft;
use super::{Answer, Committer, Job, MAX_ROUNDS};
use crate::governance::{self, MOST_SIGNALS, Recorded};
use crate::outcome::{Command, Governance, Outcome, Proof};
use crate::port::{Batch, Committed, Head, StoreError, Unit, Verdict};
use crate::rows::{GovernanceWrite, ProblemEnd, SignalRow, Write};
use crate::{replay, store_failure};
use countersign_kernel::governance::{Category, Open, Replays, Signal, Weighed, require_engine, weigh};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::{IdSource, InstanceId, Time};
use std::collections::BTreeMap;

/// What is written to the chain, and what is answered.
type Decided = (Unit, Outcome);

impl Committer {
    pub(super) async fn serve_governance(&mut self, job: Job) {
        for _ in 0..MAX_ROUNDS {
            match self.try_governance(&job).await {
                Ok(Some(answer)) => return job.give(answer),
                Ok(None) => {}
                Err(error) => return job.give(Err(store_failure(&error))),
            }
        }
        job.give(Err(Refusal::new(Code::Overloaded, "the governance chain kept changing; try again")));
    }

    /// `None`: the chain or the registry moved meanwhile, try again.
    async fn try_governance(&mut self, job: &Job) -> Result<Option<Answer>, StoreError> {
        let Command::Governance(command) = &job.call.command else {
            return Ok(Some(Err(Refusal::new(Code::InvalidRequest, "not a call of governance"))));
        };
        self.refresh_registry().await?;
        // The head comes first: whatever is read behind it and changes has moved it.
        let head = governance::head(&*self.reader).await?;
        let decided = match command {
            Governance::Weigh => self.weigh_signals(job, head).await?,
        };
        match decided {
            Err(refusal) => Ok(Some(Err(refusal))),
            Ok((unit, answer)) if unit.records.is_empty() && unit.writes.is_empty() => Ok(Some(Ok(answer))),
            Ok((unit, answer)) => Ok(self.commit_governance(unit).await?.then_some(Ok(answer))),
        }
    }

    async fn weigh_signals(&mut self, job: &Job, head: Head) -> Result<Result<Decided, Refusal>, StoreError> {
        let signals = self.reader.problem_signals(MOST_SIGNALS).await?;
        let subjects: Vec<(Category, String)> =
            signals.iter().map(|row| (row.signal.subject.category, row.signal.subject.key.clone())).collect();
        let open = if subjects.is_empty() { Open::new() } else { self.reader.open_problems(&subjects).await? };
        let requests: Vec<InstanceId> =
            signals.iter().filter_map(|row| row.signal.replay.map(|replay| replay.request)).collect();
        let replays =
            if requests.is_empty() { Replays::new() } else { self.reader.scheduled_replays(&requests).await? };
        let counts: BTreeMap<Category, u64> = self.reader.count_problems().await?.into_iter().collect();
        Ok(self.weighed(job, head, &signals, (open, replays), counts))
    }

    fn weighed(
        &mut self,
        job: &Job,
        head: Head,
        signals: &[SignalRow],
        (open, replays): (Open, Replays),
        counts: BTreeMap<Category, u64>,
    ) -> Result<Decided, Refusal> {
        require_engine(&job.call.actor_ref, &self.config.application_actor_ref)?;
        // What is weighed came before the record of it, whatever another node's clock says.
        let newest = signals.iter().map(|row| row.signal.at.0 + 1).max().unwrap_or(0);
        let mut draft = self.governance_draft(head, Time(newest))?;
        let given: Vec<Signal> = signals.iter().map(|row| row.signal.clone()).collect();
        let registry = self.registry.clone();
        let registry = registry.read();
        let is_frozen = |class: &str| registry.freeze_of(class).is_some();
        let weighed = weigh(open, replays, &given, &is_frozen, &mut draft.ids)?;
        drop(registry);
        let answer = Outcome::Weighed {
            signals: weighed.taken as u64,
            opened: weighed.opened.len() as u64,
            resolved: weighed.resolved.len() as u64,
        };
        for recorded in governance::payloads(&weighed) {
            self.governance_record(&job.call.actor_ref, &job.call.proof, &mut draft, recorded)?;
        }
        let at = draft.at;
        let writes = &mut draft.unit.writes;
        writes.extend(
            signals
                .iter()
                .take(weighed.taken)
                .map(|row| Write::Governance(GovernanceWrite::TakeSignal { signal_id: row.signal_id })),
        );
        writes.extend(counted(&weighed, counts));
        for completed in &weighed.completed {
            let event = self.config.emitter.replay_row(completed, &*self.config.language, &mut draft.ids)?;
            writes.extend(event);
            writes.push(replay::ended(completed, at));
        }
        let Weighed { opened, resolved, .. } = weighed;
        writes.extend(opened.into_iter().map(|problem| Write::Governance(GovernanceWrite::Problem(problem))));
        writes.extend(resolved.into_iter().map(|resolved| {
            let end = ProblemEnd { event_id: resolved.resolved_event_id, at };
            Write::Governance(GovernanceWrite::ResolveProblem { problem_id: resolved.problem_id, end })
        }));
        Ok((draft.unit, answer))
    }

    pub(super) fn governance_draft(&mut self, head: Head, earliest: Time) -> Result<Draft, Refusal> {
        let at = self.now().max(Time(head.last_time.0 + 1)).max(self.registry.newest()).max(earliest);
        let ids = IdSource::new(at, u64::from_le_bytes(self.random()?));
        let mut unit = Unit::new(InstanceId::GOVERNANCE, head.sequence);
        unit.head = head;
        self.config.deployment_policy().clone_into(&mut unit.policy_ref);
        Ok(Draft { unit, ids, at })
    }

    pub(super) fn governance_record(
        &mut self,
        actor_ref: &str,
        proof: &Proof,
        draft: &mut Draft,
        Recorded { action, event_id, payload }: Recorded,
    ) -> Result<(), Refusal> {
        let registry_seq = self.registry.read().sequence();
        let policy_ref = draft.unit.policy_ref.clone();
        let record = self.record(RecordDraft {
            event_id: event_id.unwrap_or_else(|| draft.ids.make()),
            instance_id: InstanceId::GOVERNANCE,
            head: &mut draft.unit.head,
            action_ref: action,
            actor_ref,
            at: draft.at,
            registry_seq,
            policy_ref: &policy_ref,
            proof,
            payload,
        })?;
        draft.unit.records.push(record);
        Ok(())
    }

    /// `false`: another node was quicker.
    async fn commit_governance(&mut self, unit: Unit) -> Result<bool, StoreError> {
        let batch = Batch {
            registry_sequence: self.registry.read().sequence(),
            changes_registry: false,
            units: vec![unit],
            checks: vec![],
        };
        let committed = self.writer.commit(&batch).await;
        self.readiness.wrote(&committed);
        match committed {
            Err(StoreError::Conflict(_)) => Ok(false),
            Err(error) => Err(error),
            Ok(Committed::RegistryMoved) => Ok(false),
            Ok(Committed::Done(verdicts)) if verdicts == [Verdict::Won] => {
                self.wakes.committed(&batch);
                self.tell_moved(&batch, &verdicts);
                Ok(true)
            }
            Ok(Committed::Done(_)) => Ok(false),
        }
    }
}

/// Records of the chain under construction.
pub(super) struct Draft {
    pub unit: Unit,
    pub ids: IdSource,
    pub at: Time,
}

/// How many are open afterwards, where that changes.
fn counted(weighed: &Weighed, counts: BTreeMap<Category, u64>) -> impl Iterator<Item = Write> {
    let opened = |category| weighed.opened.iter().filter(|problem| problem.subject.category == category).count() as u64;
    let resolved = |category| weighed.resolved.iter().filter(|resolved| resolved.category == category).count() as u64;
    let changed: Vec<Write> = Category::ALL
        .iter()
        .map(|category| (*category, opened(*category), resolved(*category)))
        .filter(|(_, opened, resolved)| opened != resolved)
        .map(|(category, opened, resolved)| {
            let before = counts.get(&category).copied().unwrap_or(0);
            let open = (before + opened).saturating_sub(resolved);
            Write::Governance(GovernanceWrite::CountProblems { category, open })
        })
        .collect();
    changed.into_iter()
}
