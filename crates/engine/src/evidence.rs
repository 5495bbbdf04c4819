//! Evidence to take away: what a bundle (`spec/bundle.md`) is made of, read so that it holds together. The state of an
//! instance and its chain are those of one moment; everything is under one checkpoint. Nothing grows with the size of
//! the export.

pub mod lines;
pub mod run_lines;

use crate::log::tree;
use crate::outcome::{Call, Command, IdempotencyKey, Outcome, Proof};
use crate::port::log::CheckpointRow;
use crate::port::{
    GateWithSteps, Head, Page, ProcessQuery, ProcessView, Range, RecordQuery, RunQuery, RunStepView, RunView,
    StoreError,
};
use crate::rows::{CorrectionRow, RecordRow, TransitionRow};
use crate::{Engine, store_failure};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, Grant, RecordExport, scopes};
use countersign_kernel::{Digest, EventId, InstanceId};
use countersign_ledger::document::{Document, declaration_document, published_gates_document};
use countersign_ledger::{Hashing, Unwritable, merkle};
use std::sync::Arc;

/// How often an instance may move on while its evidence is taken, before the caller is told to try again.
const ATTEMPTS: usize = 20;
const PAGE: usize = 256;
/// Steps of a run at a time.
const STEPS: usize = 1000;

/// What is to be exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Instance(InstanceId),
    /// Every instance with a record in this window.
    Window(Range),
}

/// Who exports, and how they are known.
#[derive(Clone, Debug)]
pub struct Exporter {
    pub actor_ref: String,
    pub proof: Proof,
    /// A signed request is good for one record.
    pub idempotency: Option<IdempotencyKey>,
}

/// An instance as the stores knew it at one moment.
#[derive(Clone, Debug)]
pub enum View {
    Process(Box<ProcessView>),
    Run(Box<RunState>),
    /// The governance chain, which is told by its records alone.
    Governance(Head),
}

impl View {
    pub fn head(&self) -> &Head {
        match self {
            View::Process(view) => &view.head,
            View::Run(run) => &run.view.chain,
            View::Governance(head) => head,
        }
    }

    pub fn instance_id(&self) -> InstanceId {
        match self {
            View::Process(view) => view.row.instance_id,
            View::Run(run) => run.view.row.instance_id,
            View::Governance(_) => InstanceId::GOVERNANCE,
        }
    }
}

/// A run with everything that was stored of it, and the documents that it was started under.
#[derive(Clone, Debug)]
pub struct RunState {
    pub view: RunView,
    pub history: Vec<TransitionRow>,
    pub gates: Vec<GateWithSteps>,
    pub steps: Vec<RunStepView>,
    pub corrections: Vec<CorrectionRow>,
    /// The normalised definition.
    pub document: Arc<[u8]>,
    /// That of the machine of one's own that it was started under.
    pub machine: Option<Arc<[u8]>>,
    pub declaration: Document,
    pub gate_spec: Document,
}

/// A record with its place in the log.
#[derive(Clone, Debug)]
pub struct Placed {
    pub row: RecordRow,
    pub log_index: u64,
    pub inclusion: Vec<Digest>,
}

/// What was sealed for this export.
#[derive(Clone, Debug)]
pub struct Sealed {
    pub checkpoint: CheckpointRow,
    pub origin: String,
    pub verifier_key: String,
    /// The last registry record under the checkpoint.
    pub registry_sequence: u64,
}

impl Engine {
    /// Records that the evidence of one instance is taken, and returns its state at exactly that record.
    pub async fn export_instance(
        &self,
        exporter: &Exporter,
        instance_id: InstanceId,
    ) -> Result<(View, EventId), Refusal> {
        // A statement is signed for one record, so its export is not tried again by itself.
        let attempts = if exporter.proof.is_signed() { 1 } else { ATTEMPTS };
        for _ in 0..attempts {
            let (event_id, sequence) = self.record_export(exporter, self.export_evidence(instance_id)).await?;
            let view = self.export_view(instance_id).await?;
            if view.head().sequence == sequence {
                return Ok((view, event_id));
            }
        }
        let detail = "the instance kept changing while its evidence was taken; try again in a quieter moment";
        Err(Refusal::new(Code::Overloaded, detail))
    }

    /// Records that the evidence of a window is taken; `heads` are those of all that it holds, in the order of ids.
    pub async fn export_window(&self, exporter: &Exporter, window: &Range, heads: Heads) -> Result<EventId, Refusal> {
        let export = RecordExport {
            after: window.after,
            before: window.before,
            instances: heads.count,
            heads_digest: heads.digest.digest(),
        };
        let command = Command::Registry(registry::Command::RecordExport(export));
        self.record_export(exporter, command).await.map(|(event_id, _)| event_id)
    }

    async fn record_export(&self, exporter: &Exporter, command: Command) -> Result<(EventId, u64), Refusal> {
        let Exporter { actor_ref, proof, idempotency } = exporter.clone();
        match self.execute(Call { actor_ref, proof, command, idempotency }).await? {
            Outcome::Exported { event_id, sequence } => {
                let id = EventId::parse(&event_id);
                Ok((id.ok_or_else(|| Refusal::new(Code::RecordingFailure, "the record has no id"))?, sequence))
            }
            outcome => {
                tracing::error!(?outcome, "an export was answered with something else");
                Err(Refusal::new(Code::RecordingFailure, "the export was not recorded"))
            }
        }
    }

    /// Who may take evidence away. The record that says so is refused otherwise; this is asked before anything is read.
    pub async fn require_export(&self, actor_ref: &str) -> Result<(), Refusal> {
        self.require_scope(actor_ref, scopes::AUDIT_READ).await
    }

    /// The state of one instance, with the head of its chain.
    pub async fn export_view(&self, instance_id: InstanceId) -> Result<View, Refusal> {
        if instance_id == InstanceId::GOVERNANCE {
            return self.governance_head().await.map(View::Governance).map_err(|error| store_failure(&error));
        }
        let query = ProcessQuery { instance_id: Some(instance_id), ..ProcessQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        let views = self.reader.processes(&query, &page).await.map_err(|error| store_failure(&error))?;
        if let Some(view) = views.into_iter().next() {
            return Ok(View::Process(Box::new(view)));
        }
        let Some(view) = self.run_row(instance_id).await.map_err(|error| store_failure(&error))? else {
            let detail = "there is no process and no run with this instance_id";
            return Err(Refusal::new(Code::NotKnown, detail).at("instance_id"));
        };
        match self.run_now(view).await.map_err(|error| store_failure(&error))? {
            Some(run) => Ok(View::Run(Box::new(run))),
            None => {
                let detail = "the run kept changing while it was read; try again in a quieter moment";
                Err(Refusal::new(Code::Overloaded, detail))
            }
        }
    }

    async fn run_row(&self, run_id: InstanceId) -> Result<Option<RunView>, StoreError> {
        let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        Ok(self.reader.runs(&query, &page).await?.into_iter().next())
    }

    /// A run as it stands at one moment; `None` where it never stood still, or is gone.
    pub(crate) async fn run_now(&self, view: RunView) -> Result<Option<RunState>, StoreError> {
        let run_id = view.row.instance_id;
        let mut view = Some(view);
        for _ in 0..ATTEMPTS {
            let Some(seen) = view else { return Ok(None) };
            if let Some(run) = self.run_state(seen).await? {
                return Ok(Some(run));
            }
            view = self.run_row(run_id).await?;
        }
        Ok(None)
    }

    /// All that belongs to this view of a run; `None` where the run has moved on meanwhile.
    async fn run_state(&self, view: RunView) -> Result<Option<RunState>, StoreError> {
        let run_id = view.row.instance_id;
        let mut steps: Vec<RunStepView> = Vec::new();
        loop {
            let from = steps.last().map_or(0, |step| step.step_seq + 1);
            let page = self.reader.run_steps(run_id, from, STEPS).await?;
            let count = page.len();
            steps.extend(page);
            if count < STEPS {
                break;
            }
        }
        let gates = self.reader.run_gates(run_id, None).await?;
        let history = self.reader.run_history(run_id).await?;
        let document = self.reader.document(view.row.document_digest).await?;
        let machine = match &view.row.machine {
            Some(machine) => Some(self.reader.document(machine.digest).await?),
            None => None,
        };
        let (name, version) = (view.row.definition_name.as_str(), view.row.definition_version);
        let documents = self.registry().definition(name, Some(version)).map(|definition| {
            let gate_spec = published_gates_document(&definition.gate_spec)?;
            Ok((declaration_document(&definition.declaration)?, gate_spec))
        });
        let Some(documents) = documents else {
            let detail = format!("run {run_id} names a definition that is not published: {name}@{version}");
            return Err(StoreError::Corrupt(detail));
        };
        let unwritable = |error: Unwritable| StoreError::Corrupt(format!("{name}@{version}: {error}"));
        let (declaration, gate_spec) = documents.map_err(unwritable)?;
        let corrections = self.reader.corrections(run_id).await?;
        let still = self.run_row(run_id).await?.is_some_and(|now| now.chain == view.chain);
        Ok(still.then_some(RunState {
            view,
            history,
            gates,
            steps,
            corrections,
            document,
            machine,
            declaration,
            gate_spec,
        }))
    }

    /// Instances with a record in the window, strictly after `after`, in the order of ids.
    pub async fn instances_in(&self, window: &Range, after: Option<InstanceId>) -> Result<Vec<InstanceId>, Refusal> {
        self.reader.instances_in(window, after, PAGE).await.map_err(|error| store_failure(&error))
    }

    /// Waits until this record is under a checkpoint, and says which registry goes with it.
    pub async fn seal_for_export(&self, event_id: EventId) -> Result<Sealed, Refusal> {
        let checkpoint = self.sealed(event_id).await?;
        let Some(identity) = self.log_identity().await? else {
            return Err(Refusal::new(Code::RecordingFailure, "this store has no log, so nothing can be proven"));
        };
        let registry_sequence = self.registry_under(checkpoint.size).await?;
        let (origin, verifier_key) = (identity.origin, identity.verifier_key);
        Ok(Sealed { checkpoint, origin, verifier_key, registry_sequence })
    }

    /// The last registry record among the first `size` entries. The registry stands in the log in its own order.
    async fn registry_under(&self, size: u64) -> Result<u64, Refusal> {
        let mut page = Page { after: None, limit: PAGE, descending: true };
        loop {
            let query = RecordQuery { instance_id: Some(InstanceId::REGISTRY), ..RecordQuery::default() };
            let rows = self.reader.records(&query, &page).await.map_err(|error| store_failure(&error))?;
            let ids: Vec<EventId> = rows.iter().map(|row| row.event_id).collect();
            let places = self.log_indices(&ids).await?;
            let under = rows.iter().zip(places).find(|(_, place)| place.is_some_and(|index| index < size));
            if let Some((row, _)) = under {
                return Ok(row.sequence);
            }
            match rows.last() {
                Some(last) => page.after = Some(last.event_id.0),
                None => return Ok(0),
            }
        }
    }

    /// The chain of an instance after `after`, up to `through`, each record with its proof; at most a page.
    pub async fn export_chain(
        &self,
        instance_id: InstanceId,
        after: Option<EventId>,
        through: u64,
        size: u64,
    ) -> Result<Vec<Placed>, Refusal> {
        let query = RecordQuery { instance_id: Some(instance_id), ..RecordQuery::default() };
        let page = Page { after: after.map(|id| id.0), limit: PAGE, descending: false };
        let rows = self.reader.records(&query, &page).await.map_err(|error| store_failure(&error))?;
        let rows: Vec<RecordRow> = rows.into_iter().filter(|row| row.sequence <= through).collect();
        let ids: Vec<EventId> = rows.iter().map(|row| row.event_id).collect();
        let places = self.log_indices(&ids).await?;
        let unsealed = || {
            let detail = format!("a record of {instance_id} is not under the checkpoint");
            store_failure(&StoreError::Corrupt(detail))
        };
        let places: Vec<u64> = places.into_iter().collect::<Option<_>>().ok_or_else(unsealed)?;
        if places.iter().any(|index| *index >= size) {
            return Err(unsealed());
        }
        let question = |tiles: &mut countersign_ledger::tiles::Tiles| {
            // Every one is asked, also after a hash is missing, so that all that are missing are fetched at once.
            let asked: Vec<_> = places.iter().map(|index| merkle::inclusion_proof(tiles, *index, size)).collect();
            asked.into_iter().collect::<Result<Vec<_>, _>>()
        };
        let proofs = tree::ask(&*self.log, size, question).await.map_err(|error| store_failure(&error))?;
        let placed = rows.into_iter().zip(places).zip(proofs);
        Ok(placed.map(|((row, log_index), inclusion)| Placed { row, log_index, inclusion }).collect())
    }

    /// The permission store as it stood at this registry record.
    pub fn grants_at(&self, registry_sequence: u64) -> Vec<Grant> {
        let registry = self.registry();
        let mut grants: Vec<Grant> =
            registry.grants().iter().filter(|grant| grant.granted_sequence <= registry_sequence).cloned().collect();
        grants.sort_by_key(|grant| grant.granted_sequence);
        for grant in &mut grants {
            grant.revoked = grant.revoked.filter(|(_, sequence)| *sequence <= registry_sequence);
        }
        grants
    }
}

/// Where each chain ends, as one digest: SHA-256 of their lines.
#[derive(Clone, Default)]
pub struct Heads {
    pub count: u64,
    digest: Hashing,
}

impl Heads {
    /// One more, as the line that says so.
    pub fn add(&mut self, instance_id: InstanceId, head: &Head) -> String {
        let line = format!("{instance_id} {} {}\n", head.sequence, head.record_hash);
        self.digest.add(line.as_bytes());
        self.count += 1;
        line
    }
}
