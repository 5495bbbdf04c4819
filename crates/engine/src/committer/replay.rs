//! A request to replay a dead letter: the process of the request with its gate, and the record of the governance chain that says
//! of which letter it is, are one transaction. The chain's fence lets one of two requests for a letter through.

use super::decide::vouch;
use super::governance::Draft;
use super::round::{Round, idempotency_row, replay};
use super::{Answer, Committer, IDEMPOTENCY_WINDOW_US, Job};
use crate::governance::{self, Recorded};
use crate::outcome::{Call, Outcome};
use crate::port::{Batch, Committed, Head, Page, ProblemQuery, ReplayQuery, StoreError, Verdict};
use crate::replay as letters;
use crate::rows::{GovernanceWrite, ProblemRow, ReplayRow, Write};
use countersign_kernel::gate_spec::GateEntry;
use countersign_kernel::governance::Category;
use countersign_kernel::process::{self, Context, Event, EventBody, GateRef, REPLAY_GUARD, ReplayState, RequestReplay};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::{IdSource, InstanceId, ProblemId, Time};
use std::collections::{HashMap, HashSet, VecDeque};

impl Committer {
    /// `None`: something moved meanwhile, try again.
    pub(super) async fn try_request_replay(
        &mut self,
        job: &Job,
        command: &RequestReplay,
    ) -> Result<Option<Answer>, StoreError> {
        self.refresh_registry().await?;
        if let Some(idempotency) = &job.call.idempotency {
            let key = (job.call.actor_ref.clone(), idempotency.key.clone());
            if let Some(row) = self.writer.recall(&[key], self.now()).await?.into_iter().next() {
                return Ok(Some(replay(&row, idempotency.request_digest)));
            }
        }
        // The head comes first: whatever is read behind it and changes has moved it.
        let head = governance::head(&*self.reader).await?;
        let letter = self.dead_letter(command.dead_letter_id).await?;
        let query = ReplayQuery { dead_letter_id: Some(command.dead_letter_id), open: Some(true) };
        let page = Page { after: None, limit: 1, descending: false };
        let open = self.reader.replay_requests(&query, &page).await?.pop();
        let named = match letter.as_ref().and_then(letters::step_of) {
            Some((run_id, ..)) => self.named_by_run(run_id).await?,
            None => None,
        };
        let laid_out = self.lay_out_replay(&job.call, command, head, letter.as_ref(), open.as_ref(), named);
        let (batch, answer) = match laid_out {
            Err(refusal) => return Ok(Some(Err(refusal))),
            Ok(laid_out) => laid_out,
        };
        let committed = self.writer.commit(&batch).await;
        self.readiness.wrote(&committed);
        match committed {
            Ok(Committed::Done(verdicts)) if verdicts.iter().all(|verdict| *verdict == Verdict::Won) => {
                self.wakes.committed(&batch);
                self.tell_moved(&batch, &verdicts);
                batch.units.iter().for_each(|unit| self.cache.wrote(unit));
                Ok(Some(Ok(answer)))
            }
            lost => {
                self.evict(&batch);
                match lost {
                    Ok(_) | Err(StoreError::Conflict(_)) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        }
    }

    async fn dead_letter(&mut self, dead_letter_id: ProblemId) -> Result<Option<ProblemRow>, StoreError> {
        let page = letters::page_of(dead_letter_id);
        let found = self.reader.problems(&ProblemQuery { category: Category::Dlq, open: None }, &page).await?.pop();
        Ok(found.filter(|row| row.problem.problem_id == dead_letter_id))
    }

    /// Whom the definition of the run names for replays of its steps.
    async fn named_by_run(&mut self, run_id: InstanceId) -> Result<Option<GateEntry>, StoreError> {
        if !self.cache.contains_key(&run_id) {
            self.load(&mut vec![run_id], &mut VecDeque::new()).await?;
        }
        let run = self.cache.get(&run_id).and_then(|instance| instance.run.as_deref());
        Ok(run.and_then(|run| run.plan.gate_spec.0.get(REPLAY_GUARD).cloned()))
    }

    fn lay_out_replay(
        &mut self,
        call: &Call,
        command: &RequestReplay,
        head: Head,
        letter: Option<&ProblemRow>,
        open: Option<&ReplayRow>,
        named: Option<GateEntry>,
    ) -> Result<(Batch, Outcome), Refusal> {
        let registry = self.registry.clone();
        let registry = registry.read();
        self.own_key_ended = self.has_own_key_ended(&registry);
        vouch(call, &registry)?;
        let mut draft = self.governance_draft(head, Time(0))?;
        let entropy = u64::from_le_bytes(self.random()?);
        let mut ctx = Context {
            actor_ref: &call.actor_ref,
            now: draft.at,
            registry: &registry,
            application_actor_ref: &self.config.application_actor_ref,
            ids: IdSource::new(draft.at, entropy),
        };
        // Permission comes before existence.
        process::admit_replay(&command.reason, &ctx)?;
        let letter = require_open(letter, open)?;
        let approvers = named.or_else(|| self.config.replay_approvers.clone());
        let events = process::request_replay(&RequestReplay { approvers, ..command.clone() }, &mut ctx)?;
        let ids = ctx.ids;
        let (request_id, answer) = requested(&events)?;
        self.write_request(call, &mut draft, request_id, letter)?;
        let mut round = Round {
            batch: Batch {
                registry_sequence: registry.sequence(),
                changes_registry: false,
                units: vec![draft.unit],
                checks: vec![],
            },
            unit_of: HashMap::new(),
            recalled: HashMap::new(),
            purged: HashSet::new(),
            opened: HashSet::new(),
        };
        // The answer kept under the key is that of the request, not of the start.
        let unkeyed = Call { idempotency: None, ..call.clone() };
        let (_, index) = self.accept(&unkeyed, &events, ids, &registry, &mut round)?;
        round.batch.units[index].stands_with.push(InstanceId::GOVERNANCE);
        if let Some(i) = &call.idempotency {
            let expires_at = Time(draft.at.0.saturating_add(IDEMPOTENCY_WINDOW_US));
            match idempotency_row(call, &i.key, request_id, i.request_digest, &answer, expires_at) {
                Ok(row) => round.batch.units[index].idempotency.push(row),
                Err(refusal) => {
                    self.evict(&round.batch);
                    return Err(refusal);
                }
            }
        }
        Ok((round.batch, answer))
    }

    /// The record and the row on the governance chain.
    fn write_request(
        &mut self,
        call: &Call,
        draft: &mut Draft,
        request_id: InstanceId,
        letter: &ProblemRow,
    ) -> Result<(), Refusal> {
        let payload = letters::requested(request_id, letter);
        let recorded = Recorded { action: letters::REQUESTED, event_id: None, payload };
        let own = self.config.application_actor_ref.clone();
        self.governance_record(&own, &call.proof, draft, recorded)?;
        draft.unit.writes.push(Write::Governance(GovernanceWrite::RequestReplay(ReplayRow {
            request_id,
            dead_letter_id: letter.problem.problem_id,
            requested_by: call.actor_ref.clone(),
            requested_at: draft.at,
            state: ReplayState::Requested,
            approval_id: None,
            completed: None,
        })));
        Ok(())
    }
}

fn require_open<'l>(letter: Option<&'l ProblemRow>, open: Option<&ReplayRow>) -> Result<&'l ProblemRow, Refusal> {
    let letter = letter.ok_or_else(letters::unknown)?;
    if letter.resolved.is_some() {
        let detail = "this dead letter is resolved: there is nothing to replay";
        return Err(Refusal::new(Code::Conflict, detail).at("dead_letter_id"));
    }
    if let Some(open) = open {
        let how = match open.state {
            ReplayState::Requested => "waits for its approval",
            _ => "is approved, and its outcome is not known yet",
        };
        let detail = format!("request {} for this dead letter {how}", open.request_id);
        return Err(Refusal::new(Code::AlreadyOpen, detail).at("dead_letter_id"));
    }
    Ok(letter)
}

/// The request that these events begin, and what is answered.
fn requested(events: &[Event]) -> Result<(InstanceId, Outcome), Refusal> {
    let begun = events.first().and_then(process::Process::begin);
    let gate = events.iter().find_map(|event| match &event.body {
        EventBody::GateOpened { gate, .. } => Some(gate),
        _ => None,
    });
    let nothing = || Refusal::new(Code::RecordingFailure, "a request without a process or a gate");
    let (begun, gate) = begun.zip(gate).ok_or_else(nothing)?;
    let named = gate.gate_ref();
    let answer = Outcome::ReplayRequested {
        request_id: begun.instance_id.to_string(),
        step_id: named.step_id().map(|id| id.to_string()),
        chain_id: named.chain_id().map(|id| id.to_string()),
        approvers: gate.steps.iter().map(|step| step.approver_ref.clone()).collect(),
    };
    Ok((begun.instance_id, answer))
}

/// What the decision on a request's gate comes to, as its row says it: an approval schedules the replay.
pub(super) fn decided(request_id: InstanceId, event: &Event) -> Option<Write> {
    let EventBody::TransitionFired { to_state, gate, .. } = &event.body else { return None };
    let state = ReplayState::parse(to_state)?;
    let approval_id = gate.map(GateRef::id);
    Some(Write::Governance(GovernanceWrite::DecideReplay { request_id, state, approval_id }))
}
