//! Registry commands: one change, one transaction, every other batch excluded.

use super::decide::{RecordDraft, expect_sequence, vouch};
use super::round::{idempotency_row, replay};
use super::{Answer, Committer, IDEMPOTENCY_WINDOW_US, Job, MAX_ROUNDS};
use crate::outcome::{Call, Command, Outcome};
use crate::payload::{self, Digests};
use crate::port::{Batch, Committed, Head, RegistryDelta, StoreError, Unit, Verdict};
use crate::{project, store_failure, unwritable};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, Registry};
use countersign_kernel::{IdSource, InstanceId, Time};
use countersign_ledger::document::{declaration_document, published_gates_document};

impl Committer {
    /// One registry change, one transaction, every other batch excluded.
    pub(super) async fn serve_registry(&mut self, job: Job) {
        for _ in 0..MAX_ROUNDS {
            match self.try_registry(&job).await {
                Ok(Some(answer)) => {
                    if let Some(follow_up) = self.registry_refusal(&job, &answer) {
                        let recorded = Job { refused: answer.err(), ..Job::new(follow_up, job.answer) };
                        return Box::pin(self.serve_registry(recorded)).await;
                    }
                    return job.give(answer);
                }
                Ok(None) => {}
                Err(error) => return job.give(Err(store_failure(&error))),
            }
        }
        job.give(Err(Refusal::new(Code::Overloaded, "the registry kept changing; try again")));
    }

    fn registry_refusal(&self, job: &Job, answer: &Answer) -> Option<Call> {
        let Err(refusal @ Refusal { code: Code::PermissionDenied | Code::Unauthorized, .. }) = answer else {
            return None;
        };
        if !self.config.audit_failed_attempts || job.refused.is_some() {
            return None;
        }
        let command = registry::RecordRefusedAttempt {
            attempted: job.call.command.name().to_owned(),
            code: refusal.code,
            detail: refusal.detail.clone(),
        };
        let command = Command::Registry(registry::Command::RecordRefusedAttempt(command));
        Some(Call { command, idempotency: None, ..job.call.clone() })
    }

    /// `None`: the registry moved meanwhile, try again.
    async fn try_registry(&mut self, job: &Job) -> Result<Option<Answer>, StoreError> {
        if let Command::Merge(merge) = &job.call.command {
            return self.try_merge(job, merge).await;
        }
        if let Command::RequestReplay(command) = &job.call.command {
            return self.try_request_replay(job, command).await;
        }
        let Command::Registry(command) = &job.call.command else {
            return Ok(Some(Err(Refusal::new(Code::InvalidRequest, "not a registry call"))));
        };
        let head = self.refresh_registry().await?;
        if let Some(idempotency) = &job.call.idempotency {
            let key = (job.call.actor_ref.clone(), idempotency.key.clone());
            if let Some(row) = self.writer.recall(&[key], self.now()).await?.into_iter().next() {
                return Ok(Some(replay(&row, idempotency.request_digest)));
            }
        }
        let command = self.with_facts(command).await?;
        match self.registry_unit(job, &command, head) {
            Err(refusal) => Ok(Some(Err(refusal))),
            Ok((answer, None)) => Ok(Some(Ok(answer))),
            Ok((answer, Some((unit, events)))) => {
                let first = unit.expected_sequence + 1;
                let batch = Batch {
                    registry_sequence: unit.expected_sequence,
                    changes_registry: true,
                    units: vec![unit],
                    checks: vec![],
                };
                let committed = self.writer.commit(&batch).await;
                self.readiness.wrote(&committed);
                let committed = match committed {
                    Err(StoreError::Conflict(_)) => return Ok(None),
                    committed => committed?,
                };
                match committed {
                    Committed::Done(verdicts) if verdicts == [Verdict::Won] => {
                        self.wakes.sealer.notify_one();
                        let events = (first..).zip(events).collect();
                        let head = batch.units[0].head.clone();
                        let sequence = head.sequence;
                        self.registry.absorb(RegistryDelta { events, workflows: vec![], head })?;
                        self.tell_registry_moved(sequence);
                        Ok(Some(Ok(answer)))
                    }
                    Committed::Done(_) | Committed::RegistryMoved => Ok(None),
                }
            }
        }
    }

    /// Decides a registry command on the registry as it stands, and lays out what it writes.
    #[expect(clippy::type_complexity, reason = "one private caller; a named type would say less")]
    fn registry_unit(
        &mut self,
        job: &Job,
        command: &registry::Command,
        head: Head,
    ) -> Result<(Outcome, Option<(Unit, Vec<registry::Event>)>), Refusal> {
        let call = &job.call;
        let entropy = u64::from_le_bytes(self.random()?);
        let now = self.now().max(Time(head.last_time.0 + 1));
        let mut ids = IdSource::new(now, entropy);
        let (events, answer, registry_seq) = {
            let registry = self.registry.read();
            self.own_key_ended = self.has_own_key_ended(&registry);
            vouch(call, &registry)?;
            expect_sequence(call, registry.sequence())?;
            let mut ctx = registry::Context {
                actor_ref: &call.actor_ref,
                signed: call.proof.is_signed(),
                application_actor_ref: &self.config.application_actor_ref,
                server_actor_ref: &self.config.server_actor_ref,
                now,
                ids: &mut ids,
            };
            let events = registry::decide(&registry, command, &mut ctx)?;
            let answer = registry_outcome(command, &events, &registry);
            (events, answer, registry.sequence())
        };
        if events.is_empty() {
            return Ok((answer, None));
        }
        let mut unit = Unit::new(InstanceId::REGISTRY, head.sequence);
        unit.head = head;
        let exported = self.write_registry(call, &events, registry_seq, &mut ids, &mut unit)?;
        let answer = exported.unwrap_or(answer);
        if let Some(i) = &call.idempotency {
            let expires_at = Time(now.0.saturating_add(IDEMPOTENCY_WINDOW_US));
            let row = idempotency_row(call, &i.key, InstanceId::REGISTRY, i.request_digest, &answer, expires_at)?;
            unit.idempotency.push(row);
        }
        Ok((answer, Some((unit, events))))
    }

    /// The records and rows of these events. Answers where an export stands, if one is among them.
    pub(super) fn write_registry(
        &mut self,
        call: &Call,
        events: &[registry::Event],
        registry_seq: u64,
        ids: &mut IdSource,
        unit: &mut Unit,
    ) -> Result<Option<Outcome>, Refusal> {
        unit.policy_ref = self.config.deployment_policy().to_owned();
        let mut exported = None;
        for event in events {
            let documents = match &event.body {
                registry::EventBody::DefinitionPublished(d) => {
                    let declaration = declaration_document(&d.declaration).map_err(unwritable)?;
                    Some((declaration, published_gates_document(&d.gate_spec).map_err(unwritable)?))
                }
                _ => None,
            };
            let document = match &event.body {
                registry::EventBody::DefinitionPublished(d) => d.document_digest().copied(),
                _ => None,
            };
            let publish = match &event.body {
                registry::EventBody::DefinitionPublished(d) => {
                    payload::publish_text(d.publish.as_ref()).map_err(unwritable)?
                }
                _ => None,
            };
            let digests = documents.as_ref().map(|(d, g)| Digests {
                declaration: d.digest,
                gate_spec: g.digest,
                document,
                publish: publish.clone(),
            });
            let policy_ref = unit.policy_ref.clone();
            let record = self.record(RecordDraft {
                event_id: ids.make(),
                instance_id: InstanceId::REGISTRY,
                head: &mut unit.head,
                action_ref: payload::registry_action(&event.body),
                actor_ref: &event.actor_ref,
                at: event.at,
                registry_seq,
                policy_ref: &policy_ref,
                proof: &call.proof,
                payload: payload::registry_payload(event, digests.as_ref()),
            })?;
            if let registry::EventBody::EvidenceExported(_) = &event.body {
                exported = Some(Outcome::Exported { event_id: record.event_id.to_string(), sequence: record.sequence });
            }
            project::registry_writes(event, record.sequence, documents.as_ref(), publish.as_deref(), &mut unit.writes);
            unit.records.push(record);
        }
        Ok(exported)
    }
}

fn registry_outcome(command: &registry::Command, events: &[registry::Event], registry: &Registry) -> Outcome {
    match (command, events.first().map(|event| &event.body)) {
        (_, Some(registry::EventBody::GrantMade { grant_id, .. })) => {
            Outcome::Granted { grant_id: grant_id.to_string() }
        }
        (
            _,
            Some(
                registry::EventBody::GrantRevoked { .. }
                | registry::EventBody::DelegationRevoked { .. }
                | registry::EventBody::KeyRevoked { .. }
                | registry::EventBody::CredentialRevoked(_),
            ),
        ) => Outcome::Revoked,
        (_, Some(registry::EventBody::DelegationMade(delegation))) => {
            Outcome::DelegationMade { delegation_id: delegation.delegation_id.to_string() }
        }
        (_, Some(registry::EventBody::KeyRegistered { key, .. })) => {
            Outcome::KeyRegistered { key_id: key.key_id.clone() }
        }
        (_, Some(registry::EventBody::CredentialIssued(credential))) => {
            Outcome::CredentialIssued { credential_id: registry::credential_id(&credential.token_hash) }
        }
        (_, Some(registry::EventBody::HoldPlaced { hold_id, .. })) => {
            Outcome::HoldPlaced { hold_id: hold_id.to_string() }
        }
        (_, Some(registry::EventBody::HoldReleased { .. })) => Outcome::HoldReleased,
        (registry::Command::RegisterActor(command), _) => {
            Outcome::ActorRegistered { actor_ref: command.actor_ref.clone() }
        }
        (_, Some(registry::EventBody::DefinitionPublished(d))) => {
            Outcome::Published { name: d.name.clone(), version: d.version, digest: d.digest.to_string(), created: true }
        }
        (registry::Command::PublishDefinition(command), None) => Outcome::Published {
            name: command.name.clone(),
            version: registry.definition(&command.name, None).map_or(1, |d| d.version),
            digest: command.digest.to_string(),
            created: false,
        },
        _ => Outcome::Done,
    }
}
