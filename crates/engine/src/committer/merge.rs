//! The merge of a proposal: the version that it publishes and the end of the proposal are one transaction, which excludes
//! every other batch as any change of the registry does.

use super::decide::{expect_sequence, vouch};
use super::round::{Round, idempotency_row, replay};
use super::{Answer, Committer, IDEMPOTENCY_WINDOW_US, Job};
use crate::outcome::{Call, MergeCall, Outcome};
use crate::port::{Batch, Committed, Head, RegistryDelta, StoreError, Unit, Verdict};
use crate::proposal::{Content, MERGED};
use countersign_kernel::process::{self, Attachment, Context, Process};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, Merged, PublishDefinition, Registry, scopes};
use countersign_kernel::{IdSource, InstanceId, Time};
use serde_json::json;
use std::collections::{HashMap, HashSet, VecDeque};

/// What is written together.
struct Prepared {
    batch: Batch,
    events: Vec<registry::Event>,
    answer: Outcome,
}

impl Committer {
    /// `None`: something moved meanwhile, try again.
    pub(super) async fn try_merge(&mut self, job: &Job, merge: &MergeCall) -> Result<Option<Answer>, StoreError> {
        let head = self.refresh_registry().await?;
        if let Some(idempotency) = &job.call.idempotency {
            let key = (job.call.actor_ref.clone(), idempotency.key.clone());
            if let Some(row) = self.writer.recall(&[key], self.now()).await?.into_iter().next() {
                return Ok(Some(replay(&row, idempotency.request_digest)));
            }
        }
        if !self.exclusive {
            // Another node may have moved it: nobody is refused on a stale cache.
            self.cache.remove(&merge.proposal);
        }
        if !self.cache.contains_key(&merge.proposal) {
            self.load(&mut vec![merge.proposal], &mut VecDeque::new()).await?;
        }
        let first = head.sequence + 1;
        let prepared = match self.prepare_merge(&job.call, merge, head) {
            Err(refusal) => return Ok(Some(Err(refusal))),
            Ok(Err(answer)) => return Ok(Some(Ok(answer))),
            Ok(Ok(prepared)) => prepared,
        };
        let Prepared { batch, events, answer } = prepared;
        let committed = self.writer.commit(&batch).await;
        self.readiness.wrote(&committed);
        let won = match &committed {
            Ok(Committed::Done(verdicts)) => verdicts.iter().all(|verdict| *verdict == Verdict::Won),
            _ => false,
        };
        if !won {
            self.evict(&batch);
        }
        match committed {
            Ok(Committed::Done(verdicts)) if won => {
                self.wakes.committed(&batch);
                self.tell_moved(&batch, &verdicts);
                batch.units.iter().for_each(|unit| self.cache.wrote(unit));
                if let Some(unit) = batch.units.iter().find(|unit| unit.instance_id == InstanceId::REGISTRY) {
                    let (head, sequence) = (unit.head.clone(), unit.head.sequence);
                    let events = (first..).zip(events).collect();
                    self.registry.absorb(RegistryDelta { events, workflows: vec![], head })?;
                    self.tell_registry_moved(sequence);
                }
                Ok(Some(Ok(answer)))
            }
            Ok(_) | Err(StoreError::Conflict(_)) => Ok(None),
            Err(error) => {
                if matches!(error, StoreError::Unknown(_)) {
                    self.tell_perhaps_moved(&batch);
                }
                Err(error)
            }
        }
    }

    /// What the merge writes; or the answer, where it was merged before. Permission comes before existence.
    fn prepare_merge(
        &mut self,
        call: &Call,
        merge: &MergeCall,
        registry_head: Head,
    ) -> Result<Result<Prepared, Outcome>, Refusal> {
        let registry = self.registry.clone();
        let registry = registry.read();
        self.own_key_ended = self.has_own_key_ended(&registry);
        vouch(call, &registry)?;
        require_writer(call, &registry)?;
        let held = self.cache.get(&merge.proposal).map(|instance| (instance.process.clone(), instance.head.clone()));
        let held = held.filter(|(process, _)| process.is_proposal());
        let (process, head) =
            held.ok_or_else(|| Refusal::new(Code::NotKnown, "there is no proposal with this id").at("id"))?;
        expect_sequence(call, head.sequence)?;
        if process.current_state == MERGED {
            return Ok(Err(answer(&approved(&process)?, false)));
        }
        if process.is_terminal() {
            let detail = format!("the proposal has ended in `{}`", process.current_state);
            return Err(Refusal::new(Code::Terminal, detail));
        }
        let now = self.now().max(Time(head.last_time.0 + 1)).max(Time(registry_head.last_time.0 + 1));
        let mut ids = IdSource::new(now, u64::from_le_bytes(self.random()?));
        let approved = approved(&process)?;
        let publish = published(&approved, &process, merge, &registry)?;
        let mut registry_events = vec![];
        if let Some(publish) = &publish {
            let mut ctx = registry::Context {
                actor_ref: &call.actor_ref,
                signed: call.proof.is_signed(),
                application_actor_ref: &self.config.application_actor_ref,
                server_actor_ref: &self.config.server_actor_ref,
                now,
                ids: &mut ids,
            };
            let command = registry::Command::PublishDefinition(publish.clone());
            registry_events = registry::decide(&registry, &command, &mut ctx)?;
            if registry_events.is_empty() {
                let detail = format!("the newest version of `{}` has these very bytes", publish.name);
                return Err(Refusal::new(Code::Conflict, detail).at("document"));
            }
        }
        let answer = answer(&approved, true);
        let mut ctx = Context {
            actor_ref: &call.actor_ref,
            now,
            registry: &registry,
            application_actor_ref: &self.config.application_actor_ref,
            ids,
        };
        let (class, attachment) = (approved.class()?, attachment(&approved, merge));
        let events = process::merge_proposal(Some(&process), class, merge.reason.clone(), attachment, &mut ctx)?;
        let ids = ctx.ids;
        let (batch, events) =
            self.lay_out(call, merge, (&events, registry_events), ids, registry_head, &registry, &answer)?;
        Ok(Ok(Prepared { batch, events, answer }))
    }

    #[expect(clippy::too_many_arguments, reason = "one private caller; all of it is what a merge is written with")]
    fn lay_out(
        &mut self,
        call: &Call,
        merge: &MergeCall,
        (events, registry_events): (&[process::Event], Vec<registry::Event>),
        mut ids: IdSource,
        registry_head: Head,
        registry: &Registry,
        answer: &Outcome,
    ) -> Result<(Batch, Vec<registry::Event>), Refusal> {
        let now = events.first().map_or(Time(0), |event| event.at);
        let mut units = vec![];
        if !registry_events.is_empty() {
            let mut unit = Unit::new(InstanceId::REGISTRY, registry_head.sequence);
            unit.head = registry_head;
            self.write_registry(call, &registry_events, registry.sequence(), &mut ids, &mut unit)?;
            unit.stands_with.push(merge.proposal);
            units.push(unit);
        }
        // The merge is recorded under the registry that has the version.
        let mut after = Registry::clone(registry);
        for (sequence, event) in (registry.sequence() + 1..).zip(&registry_events) {
            after.apply(sequence, event);
        }
        let mut round = Round {
            batch: Batch {
                registry_sequence: registry.sequence(),
                changes_registry: !units.is_empty(),
                units,
                checks: vec![],
            },
            unit_of: HashMap::new(),
            recalled: HashMap::new(),
            purged: HashSet::new(),
            opened: HashSet::new(),
        };
        // The answer kept under the key is that of the merge.
        let unkeyed = Call {
            command: crate::outcome::Command::Process {
                target: crate::outcome::Target::Existing(merge.proposal),
                command: process::Command::MoveProposal(process::MoveProposal {
                    act: process::ProposalAct::Comment,
                    reason: None,
                    next: None,
                }),
            },
            idempotency: None,
            ..call.clone()
        };
        let (_, index) = self.accept(&unkeyed, events, ids, &after, &mut round)?;
        if let Some(i) = &call.idempotency {
            let expires_at = Time(now.0.saturating_add(IDEMPOTENCY_WINDOW_US));
            let row = idempotency_row(call, &i.key, merge.proposal, i.request_digest, answer, expires_at);
            match row {
                Ok(row) => round.batch.units[index].idempotency.push(row),
                Err(refusal) => {
                    self.evict(&round.batch);
                    return Err(refusal);
                }
            }
        }
        Ok((round.batch, registry_events))
    }
}

fn require_writer(call: &Call, registry: &Registry) -> Result<(), Refusal> {
    match registry.permitted(&call.actor_ref, scopes::PROPOSALS_WRITE) {
        true => Ok(()),
        false => {
            let detail = format!("`{}` holds no active grant of `{}`", call.actor_ref, scopes::PROPOSALS_WRITE);
            Err(Refusal::new(Code::PermissionDenied, detail))
        }
    }
}

/// Asked again, a merge is answered again: it happened once.
fn answer(approved: &Content, created: bool) -> Outcome {
    let of_definition = approved.is_of_definition();
    Outcome::Merged {
        name: of_definition.then(|| approved.target.clone()),
        version: of_definition.then(|| approved.next_version()),
        digest: approved.digest.clone().filter(|_| of_definition),
        created,
    }
}

/// What was approved, as its approvers were asked.
fn approved(process: &Process) -> Result<Content, Refusal> {
    let nothing = |detail: &str| Refusal::new(Code::GateNotCleared, detail.to_owned());
    let gate = process.proposal_approval();
    let gate = gate.ok_or_else(|| nothing("this proposal has no approval: ask for it with `review`"))?;
    let request = gate.request.as_ref();
    Content::parse(&request.ok_or_else(|| nothing("what was approved has been purged: propose it again"))?.text)
}

/// The publication of exactly what was approved, on the version that it was approved for.
fn published(
    approved: &Content,
    process: &Process,
    merge: &MergeCall,
    registry: &Registry,
) -> Result<Option<PublishDefinition>, Refusal> {
    if !approved.is_of_definition() {
        return Ok(None);
    }
    let newest = registry.definition(&approved.target, None).map_or(0, |newest| newest.version);
    if newest != approved.base_version {
        let detail = format!(
            "the newest version of `{}` is {newest}, and this was approved for {}: change the proposal to that base, and \
             ask for approval again",
            approved.target, approved.base_version
        );
        return Err(Refusal::new(Code::Conflict, detail).at("base_version"));
    }
    let same =
        |publish: &&PublishDefinition| Some(publish.digest) == approved.document() && publish.name == approved.target;
    let publish = merge.publish.as_ref().filter(same);
    let publish =
        publish.ok_or_else(|| Refusal::new(Code::Conflict, "the proposal has moved on: read it again").at("next"))?;
    let approval = process.proposal_approval().map(process::Gate::gate_ref);
    let approval = approval.ok_or_else(|| Refusal::new(Code::GateNotCleared, "this proposal has no approval"))?;
    let merged = Some(Merged { proposal: process.instance_id, approval });
    Ok(Some(PublishDefinition { merged, ..PublishDefinition::clone(publish) }))
}

/// What the record of the merge says of it.
fn attachment(approved: &Content, merge: &MergeCall) -> Attachment {
    let text = match approved.is_of_definition() {
        true => json!({"name": approved.target, "version": approved.next_version(), "digest": approved.digest}),
        false => json!({"evidence_ref": merge.evidence_ref}),
    };
    Attachment { member: MERGED, text: text.to_string().into(), document: None }
}
