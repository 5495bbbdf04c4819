//! What actors may read: each read is a permission check and one query.

use crate::outcome::{Ask, Call, Command, Offered, Outcome, Proof, Target};
use crate::port::{
    AssignmentQuery, ChargedStep, GateWithSteps, Page, ProcessQuery, ProcessView, Range, Reader, RecordQuery, RunQuery,
    RunStepView, RunView, Sight, StepQuery,
};
use crate::rows::{AssignmentRow, CorrectionRow, RecordRow, StepRow};
use crate::run::rollup::{Basis, counted, stored};
use crate::stream::{Visible, visible};
use crate::{Engine, StoreError, store_failure};
use countersign_kernel::lifecycle::OwnMachine;
use countersign_kernel::plan::{Plan, StepSeq};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{Registry, scopes};
use countersign_kernel::run::own_trace;
use countersign_kernel::{Digest, EventId, InstanceId, Time};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Somebody brought a run to a halt. What they said is gone once its record is purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halt {
    pub at: Time,
    pub actor_ref: String,
    pub reason: Option<String>,
}

impl Engine {
    /// Asks the registry; before a "no" is given, the changes of other nodes are fetched.
    pub(crate) async fn allowed<T>(
        &self,
        ask: impl Fn(&Registry) -> Option<T>,
        actor_ref: &str,
        scope: &str,
    ) -> Result<T, Refusal> {
        if let Some(allowed) = ask(&self.registry()) {
            return Ok(allowed);
        }
        self.catch_up().await?;
        ask(&self.registry()).ok_or_else(|| {
            metrics::counter!("countersign_refused_authorisations_total", "command" => "read", "code" => "permission-denied").increment(1);
            Refusal::new(Code::PermissionDenied, format!("`{actor_ref}` holds no active grant of `{scope}`"))
        })
    }

    pub async fn require_scope(&self, actor_ref: &str, scope: &str) -> Result<(), Refusal> {
        self.allowed(|registry| registry.permitted(actor_ref, scope).then_some(()), actor_ref, scope).await
    }

    /// `runs:start`, or the finer one of this definition.
    pub async fn require_start(&self, actor_ref: &str, definition: &str) -> Result<(), Refusal> {
        let scope = scopes::RUNS_START;
        let ask = |registry: &Registry| registry.permitted_on(actor_ref, scope, Some(definition)).then_some(());
        self.allowed(ask, actor_ref, scope).await
    }

    /// Whether this actor holds the scope; the changes of other nodes are fetched before a "no".
    pub async fn may(&self, actor_ref: &str, scope: &str) -> Result<bool, Refusal> {
        if self.registry().permitted(actor_ref, scope) {
            return Ok(true);
        }
        self.catch_up().await?;
        Ok(self.registry().permitted(actor_ref, scope))
    }

    /// `None`: all of them; else those that finer scopes name.
    pub async fn visible_definitions(&self, actor_ref: &str, scope: &str) -> Result<Option<Vec<String>>, Refusal> {
        self.allowed(|registry| visible(registry, actor_ref, scope), actor_ref, scope).await
    }

    /// Nothing was found where something was named: whoever may not see all does not learn whether it exists.
    pub(crate) fn unseen(actor_ref: &str, scope: &str) -> Refusal {
        let detail = format!("`{actor_ref}` holds no active grant of `{scope}` for what is asked for");
        Refusal::new(Code::PermissionDenied, detail)
    }

    /// Whoever is named by a gate of an instance, substitutes for somebody whom it names, or is in charge of a step, reads
    /// that instance without the scope.
    async fn reads_as_party(&self, actor_ref: &str, scope: &str, instance_id: InstanceId) -> Result<bool, Refusal> {
        if self.registry().permitted(actor_ref, scope) {
            return Ok(false);
        }
        let is_party = self.reader.is_party(instance_id, actor_ref).await.map_err(|error| store_failure(&error))?;
        Ok(is_party || self.is_substitute_at(actor_ref, instance_id).await?)
    }

    /// The definitions whose runs this actor may read when it names this run.
    pub(crate) async fn run_in_sight(&self, actor_ref: &str, run_id: InstanceId) -> Result<Visible, Refusal> {
        if self.reads_as_party(actor_ref, scopes::RUNS_READ, run_id).await? {
            return Ok(None);
        }
        self.visible_definitions(actor_ref, scopes::RUNS_READ).await
    }

    /// `None`: all approval steps and assignments; else those of the processes and runs that the actor may read.
    async fn approvals_in_sight(&self, actor_ref: &str) -> Result<Option<Sight>, Refusal> {
        let sight = |registry: &Registry| {
            let (processes, runs) =
                (visible(registry, actor_ref, scopes::WORKFLOWS_READ), visible(registry, actor_ref, scopes::RUNS_READ));
            match (processes, runs) {
                (None, None) => None,
                (Some(None), _) => Some(None),
                (processes, runs) => Some(Some(Sight {
                    processes: processes.flatten().unwrap_or_default(),
                    runs: runs.unwrap_or_else(|| Some(vec![])),
                })),
            }
        };
        self.allowed(sight, actor_ref, scopes::WORKFLOWS_READ).await
    }

    /// `read_workflow`. Whoever holds only `workflows:read:<definition>` sees the processes of those.
    pub async fn read_workflow(
        &self,
        actor_ref: &str,
        mut query: ProcessQuery,
        page: &Page,
    ) -> Result<Vec<ProcessView>, Refusal> {
        if let Some(instance_id) = query.instance_id
            && self.reads_as_party(actor_ref, scopes::WORKFLOWS_READ, instance_id).await?
        {
            return self.reader.processes(&query, page).await.map_err(|error| store_failure(&error));
        }
        // The definition that is asked for, if any.
        let named = query.definitions.take();
        let visible = self.visible_definitions(actor_ref, scopes::WORKFLOWS_READ).await?;
        let seen = |name: &String| visible.as_ref().is_none_or(|names| names.contains(name));
        if !named.iter().flatten().all(seen) {
            return Err(Engine::unseen(actor_ref, scopes::WORKFLOWS_READ));
        }
        query.definitions = named.or(visible);
        let found = self.reader.processes(&query, page).await.map_err(|error| store_failure(&error))?;
        let sees_all = self.registry().permitted(actor_ref, scopes::WORKFLOWS_READ);
        if found.is_empty() && !sees_all && query.instance_id.is_some() {
            return Err(Engine::unseen(actor_ref, scopes::WORKFLOWS_READ));
        }
        Ok(found)
    }

    /// Whoever holds only `runs:read:<definition>` sees the runs of those.
    pub async fn read_runs(&self, actor_ref: &str, mut query: RunQuery, page: &Page) -> Result<Vec<RunView>, Refusal> {
        query.definitions = match query.instance_id {
            Some(run_id) => self.run_in_sight(actor_ref, run_id).await?,
            None => self.visible_definitions(actor_ref, scopes::RUNS_READ).await?,
        };
        if !query.definition.as_ref().is_none_or(|name| sees(&query.definitions, name)) {
            return Err(Engine::unseen(actor_ref, scopes::RUNS_READ));
        }
        let found = self.reader.runs(&query, page).await.map_err(|error| store_failure(&error))?;
        if found.is_empty() && query.definitions.is_some() && query.instance_id.is_some() {
            return Err(Engine::unseen(actor_ref, scopes::RUNS_READ));
        }
        Ok(found)
    }

    /// For the server itself, which needs no grant.
    pub async fn own_processes(&self, query: &ProcessQuery, page: &Page) -> Result<Vec<ProcessView>, Refusal> {
        self.reader.processes(query, page).await.map_err(|error| store_failure(&error))
    }

    /// For the server itself, which needs no grant.
    pub async fn own_runs(&self, query: &RunQuery, page: &Page) -> Result<Vec<RunView>, Refusal> {
        self.reader.runs(query, page).await.map_err(|error| store_failure(&error))
    }

    /// How many runs of each of these colours the query finds, counted up to `most`.
    pub async fn count_runs(
        &self,
        actor_ref: &str,
        mut query: RunQuery,
        colours: &[&str],
        most: usize,
    ) -> Result<Vec<u64>, Refusal> {
        query.definitions = self.visible_definitions(actor_ref, scopes::RUNS_READ).await?;
        if !query.definition.as_ref().is_none_or(|name| sees(&query.definitions, name)) {
            return Err(Engine::unseen(actor_ref, scopes::RUNS_READ));
        }
        let mut counts = Vec::with_capacity(colours.len());
        for colour in colours {
            let query = RunQuery { rollup: Some((*colour).to_owned()), ..query.clone() };
            counts.push(self.reader.count_runs(&query, most).await.map_err(|error| store_failure(&error))?);
        }
        Ok(counts)
    }

    /// Who is in charge of these steps of runs that the caller was shown.
    pub async fn pics(&self, steps: &[(InstanceId, StepSeq)]) -> Result<Vec<Option<String>>, Refusal> {
        self.reader.pics(steps).await.map_err(|error| store_failure(&error))
    }

    /// Steps of a run that the caller was shown.
    pub async fn read_run_steps(&self, run: &RunView, from: u32, limit: usize) -> Result<Vec<RunStepView>, Refusal> {
        self.reader.run_steps(run.row.instance_id, from, limit).await.map_err(|error| store_failure(&error))
    }

    pub async fn read_corrections(&self, run: &RunView) -> Result<Vec<CorrectionRow>, Refusal> {
        self.reader.corrections(run.row.instance_id).await.map_err(|error| store_failure(&error))
    }

    /// What this actor is in charge of and has to do, soonest deadline first. Everybody may see their own.
    pub async fn worklist(
        &self,
        actor_ref: &str,
        after: Option<(i64, InstanceId, StepSeq)>,
        limit: usize,
    ) -> Result<Vec<ChargedStep>, Refusal> {
        self.reader.charged(actor_ref, after, limit).await.map_err(|error| store_failure(&error))
    }

    /// What this actor may do to an instance, or to a step of it, and why not. Nothing changes.
    pub async fn offers(&self, actor_ref: &str, instance_id: InstanceId, ask: Ask) -> Result<Vec<Offered>, Refusal> {
        match self.ask(actor_ref, instance_id, ask).await? {
            Outcome::Offers { offers } => Ok(offers),
            outcome => Err(unexpected(&outcome)),
        }
    }

    /// What a step of a run that the caller was shown works on: JSON text.
    pub async fn step_input(&self, actor_ref: &str, run: &RunView, step: &str) -> Result<Option<String>, Refusal> {
        match self.ask(actor_ref, run.row.instance_id, Ask::Input { step: step.to_owned() }).await? {
            Outcome::StepInput { input } => Ok(input),
            outcome => Err(unexpected(&outcome)),
        }
    }

    async fn ask(&self, actor_ref: &str, instance_id: InstanceId, ask: Ask) -> Result<Outcome, Refusal> {
        let command = Command::Ask { target: Target::Existing(instance_id), ask };
        // The caller was authenticated, and nothing is recorded of a question.
        let call = Call { actor_ref: actor_ref.to_owned(), proof: Proof::InProcess, command, idempotency: None };
        self.execute(call).await
    }

    pub async fn read_run_gates(&self, run: &RunView) -> Result<Vec<GateWithSteps>, Refusal> {
        self.reader.run_gates(run.row.instance_id, None).await.map_err(|error| store_failure(&error))
    }

    /// The gates of one step: its own, and those of reopening it and of a late escalation.
    pub async fn read_step_gates(&self, run: &RunView, step: &str) -> Result<Vec<GateWithSteps>, Refusal> {
        let actions = [step.to_owned(), format!("reopen:{step}"), format!("escalate:{step}")];
        self.reader.run_gates(run.row.instance_id, Some(&actions)).await.map_err(|error| store_failure(&error))
    }

    /// The records that tell why attempts at a step failed, oldest first.
    pub async fn read_step_errors(&self, run: &RunView, seq: StepSeq) -> Result<Vec<RecordRow>, Refusal> {
        const AT_ONCE: usize = 200;
        let mut all: Vec<RecordRow> = vec![];
        loop {
            let after = all.last().map(|row| row.event_id);
            let more = self.reader.step_errors(run.row.instance_id, seq, after, AT_ONCE).await;
            let more = more.map_err(|error| store_failure(&error))?;
            let count = more.len();
            all.extend(more);
            if count < AT_ONCE {
                return Ok(all);
            }
        }
    }

    /// The records by which this step was escalated, oldest first.
    pub async fn read_escalations(&self, run: &RunView, seq: StepSeq) -> Result<Vec<RecordRow>, Refusal> {
        const AT_ONCE: usize = 200;
        let mut all: Vec<RecordRow> = vec![];
        for action in ["step_escalated", "block_escalated"] {
            let query = RecordQuery {
                instance_id: Some(run.row.instance_id),
                action_ref: Some(action.to_owned()),
                ..RecordQuery::default()
            };
            let mut page = Page { after: None, limit: AT_ONCE, descending: false };
            loop {
                let rows = self.reader.records(&query, &page).await.map_err(|error| store_failure(&error))?;
                page.after = rows.last().filter(|_| rows.len() == AT_ONCE).map(|last| last.event_id.0);
                all.extend(rows.into_iter().filter(|row| is_of_step(row, seq)));
                if page.after.is_none() {
                    break;
                }
            }
        }
        all.sort_by_key(|row| row.event_id);
        Ok(all)
    }

    /// Who brought a run where it stands and why: for one that was cancelled, voided, paused or stopped by somebody.
    pub async fn read_halt(&self, run: &RunView) -> Result<Option<Halt>, Refusal> {
        let action = match (run.head.state.as_str(), run.head.outcome.as_deref()) {
            ("cancelled", _) => "run_cancelled",
            // It is undone because somebody cancelled it.
            ("compensating" | "blocked" | "failed", _) if run.head.called_off => "run_cancelled",
            ("voided", _) => "run_voided",
            ("paused", _) => "run_paused",
            ("stopped", Some("operator")) => "run_stopped",
            _ => return Ok(None),
        };
        let query = RecordQuery {
            instance_id: Some(run.row.instance_id),
            action_ref: Some(action.to_owned()),
            ..RecordQuery::default()
        };
        let newest = Page { after: None, limit: 1, descending: true };
        let records = self.reader.records(&query, &newest).await.map_err(|error| store_failure(&error))?;
        Ok(records.into_iter().next().map(|row| {
            let said: Option<Value> = row.record.payload().and_then(|payload| serde_json::from_slice(payload).ok());
            let reason = said.and_then(|said| said["reason"].as_str().map(str::to_owned));
            Halt { at: row.recorded_at, actor_ref: row.actor_ref, reason }
        }))
    }

    /// The machine of one's own that a run was started under. Whoever asked for the run's plan has caught up with it.
    pub fn machine_of(&self, run: &RunView) -> Option<Arc<OwnMachine>> {
        let (name, version) = run.row.machine.as_ref()?.named.rsplit_once('@')?;
        let registry = self.registry();
        let (_, own) = registry.own_machine(name, Some(version.parse().ok()?))?;
        Some(own.machine.clone())
    }

    /// The plan that a run was started with, which another node may have published a moment ago.
    pub async fn plan_of(&self, run: &RunView) -> Result<Arc<Plan>, Refusal> {
        let (name, version) = (&run.row.definition_name, run.row.definition_version);
        let plan = self.plan(name, version).await?;
        plan.ok_or_else(|| store_failure(&StoreError::Corrupt(format!("{name}@{version}, of a run, is not published"))))
    }

    pub(crate) async fn plan(&self, name: &str, version: u32) -> Result<Option<Arc<Plan>>, Refusal> {
        let known = |registry: &Registry| {
            registry.definition(name, Some(version))?.workflow.as_ref().map(|workflow| workflow.document_digest)
        };
        let mut digest = known(&self.registry());
        if digest.is_none() {
            self.catch_up().await?;
            digest = known(&self.registry());
        }
        match digest {
            Some(digest) => self.registry.plan(digest).await.map(Some).map_err(|error| store_failure(&error)),
            None => Ok(None),
        }
    }

    /// The plan of a published workflow, by the digest of its document.
    pub async fn published_plan(&self, document_digest: Digest) -> Result<Arc<Plan>, Refusal> {
        self.registry.plan(document_digest).await.map_err(|error| store_failure(&error))
    }

    /// The normalised document of a published workflow or machine, by its digest.
    pub async fn published_document(&self, digest: Digest) -> Result<Arc<[u8]>, Refusal> {
        self.reader.document(digest).await.map_err(|error| store_failure(&error))
    }

    /// A definition's document as it was published.
    pub async fn definition_source(&self, name: &str, version: u32) -> Result<Option<Arc<str>>, Refusal> {
        self.reader.definition_source(name, version).await.map_err(|error| store_failure(&error))
    }

    /// The runs of a trace: those that were started in it, and the one whose own it is. Needs `audit:read`.
    pub async fn runs_of_trace(&self, actor_ref: &str, trace_id: &str) -> Result<Vec<RunView>, Refusal> {
        const AT_ONCE: usize = 500;
        self.require_scope(actor_ref, scopes::AUDIT_READ).await?;
        let query = RunQuery { trace_id: Some(trace_id.to_owned()), ..RunQuery::default() };
        let mut page = Page { after: None, limit: AT_ONCE, descending: false };
        let mut runs: Vec<RunView> = Vec::new();
        loop {
            let more = self.reader.runs(&query, &page).await.map_err(|error| store_failure(&error))?;
            let count = more.len();
            runs.extend(more);
            if count < AT_ONCE {
                break;
            }
            page.after = runs.last().map(|run| run.row.instance_id.0);
        }
        if let Ok(own) = uuid::Uuid::try_parse(trace_id) {
            let first = self.run_of(InstanceId(own)).await?;
            runs.extend(first.filter(|run| run.row.trace_id.is_none()));
        }
        Ok(runs)
    }

    /// Records of a run that the caller was shown.
    pub async fn run_records(&self, run: &RunView, query: RecordQuery, page: &Page) -> Result<Vec<RecordRow>, Refusal> {
        let query = RecordQuery { instance_id: Some(run.row.instance_id), ..query };
        self.reader.records(&query, page).await.map_err(|error| store_failure(&error))
    }

    /// A run, for whoever reads its records. Needs `audit:read`.
    pub async fn run_for_audit(&self, actor_ref: &str, run_id: InstanceId) -> Result<Option<RunView>, Refusal> {
        self.require_scope(actor_ref, scopes::AUDIT_READ).await?;
        self.run_of(run_id).await
    }

    /// The trace that a run belongs to, for what is started on its behalf.
    pub async fn trace_of(&self, run_id: InstanceId) -> Result<Option<Arc<str>>, Refusal> {
        let run = self.run_of(run_id).await?;
        Ok(run.map(|run| run.row.trace_id.unwrap_or_else(|| own_trace(run_id))))
    }

    pub(crate) async fn run_of(&self, run_id: InstanceId) -> Result<Option<RunView>, Refusal> {
        run_of(&*self.reader, run_id).await.map_err(|error| store_failure(&error))
    }

    /// The colour of a run, as its row says; what an older version did not store is counted from its steps.
    pub async fn rollup_of(&self, run: &RunView, plan: &Plan) -> Result<Basis, Refusal> {
        let older = match stored(run)? {
            Some(basis) if basis.progress.is_some() => return Ok(basis),
            older => older,
        };
        const BATCH: usize = 5000;
        let (mut steps, mut from) = (Vec::new(), 0);
        loop {
            let some = self.read_run_steps(run, from, BATCH).await?;
            let count = some.len();
            from += StepSeq::try_from(count).unwrap_or(StepSeq::MAX);
            steps.extend(some);
            if count < BATCH {
                return Ok(counted(older, plan, &steps, run));
            }
        }
    }

    pub async fn read_approval_steps(
        &self,
        actor_ref: &str,
        query: &StepQuery,
        page: &Page,
    ) -> Result<Vec<StepRow>, Refusal> {
        let query = &StepQuery { sight: self.approvals_in_sight(actor_ref).await?, ..query.clone() };
        self.reader.approval_steps(query, page).await.map_err(|error| store_failure(&error))
    }

    /// Why the gate of each of these steps was opened, where that was said: the record of its opening has it, and a purge
    /// takes it away.
    pub async fn opening_reasons(&self, steps: &[StepRow]) -> Result<HashMap<uuid::Uuid, String>, Refusal> {
        const LOOKED_THROUGH: usize = 20;
        let mut reasons = HashMap::new();
        let mut asked = HashSet::new();
        for step in steps.iter().filter(|step| asked.insert(step.gate_id)) {
            let query = RecordQuery {
                instance_id: Some(step.instance_id),
                action_ref: Some("gate_opened".to_owned()),
                recorded: Range { after: Some(step.submitted_at), before: None },
                ..RecordQuery::default()
            };
            let page = Page { after: None, limit: LOOKED_THROUGH, descending: false };
            let records = self.reader.records(&query, &page).await.map_err(|error| store_failure(&error))?;
            let gate_id = step.gate_id.to_string();
            let said = records.iter().filter_map(|row| serde_json::from_slice::<Value>(row.record.payload()?).ok());
            let opening = said.into_iter().find(|said| said["step_id"] == gate_id || said["chain_id"] == gate_id);
            let reason = opening.and_then(|said| said["reason"].as_str().map(str::to_owned));
            reasons.extend(reason.map(|reason| (step.gate_id, reason)));
        }
        Ok(reasons)
    }

    pub async fn read_assignments(
        &self,
        actor_ref: &str,
        query: &AssignmentQuery,
        page: &Page,
    ) -> Result<Vec<(AssignmentRow, StepRow)>, Refusal> {
        let query = &AssignmentQuery { sight: self.approvals_in_sight(actor_ref).await?, ..query.clone() };
        self.reader.assignments(query, page).await.map_err(|error| store_failure(&error))
    }

    /// The record that an accepted command of the caller has written.
    pub async fn own_record(&self, event_id: EventId) -> Result<Option<RecordRow>, Refusal> {
        let query = RecordQuery { event_id: Some(event_id), ..RecordQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        Ok(self.reader.records(&query, &page).await.map_err(|error| store_failure(&error))?.into_iter().next())
    }

    /// Every record of an instance, in the order of its chain. For the server itself, which needs no grant.
    pub async fn own_records(&self, instance_id: InstanceId) -> Result<Vec<RecordRow>, Refusal> {
        const AT_ONCE: usize = 500;
        let query = RecordQuery { instance_id: Some(instance_id), ..RecordQuery::default() };
        let mut all: Vec<RecordRow> = vec![];
        loop {
            let page = Page { after: all.last().map(|row| row.event_id.0), limit: AT_ONCE, descending: false };
            let more = self.reader.records(&query, &page).await.map_err(|error| store_failure(&error))?;
            let count = more.len();
            all.extend(more);
            if count < AT_ONCE {
                return Ok(all);
            }
        }
    }

    pub async fn read_records(
        &self,
        actor_ref: &str,
        query: &RecordQuery,
        page: &Page,
    ) -> Result<Vec<RecordRow>, Refusal> {
        self.require_scope(actor_ref, scopes::AUDIT_READ).await?;
        self.reader.records(query, page).await.map_err(|error| store_failure(&error))
    }
}

/// Whether this definition is among the visible ones.
pub(crate) fn sees(visible: &Visible, definition: &str) -> bool {
    visible.as_ref().is_none_or(|names| names.iter().any(|name| name == definition))
}

fn unexpected(outcome: &Outcome) -> Refusal {
    tracing::error!(?outcome, "unexpected answer to a question");
    Refusal::new(Code::RecordingFailure, "the question was answered with something else")
}

/// The run with this id, whoever asks.
pub(crate) async fn run_of(reader: &dyn Reader, run_id: InstanceId) -> Result<Option<RunView>, StoreError> {
    let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    Ok(reader.runs(&query, &page).await?.into_iter().next())
}

/// Whether somebody acted on this step in the record; what is purged does not say.
fn is_of_step(row: &RecordRow, seq: StepSeq) -> bool {
    let payload = row.record.payload().and_then(|bytes| serde_json::from_slice::<serde_json::Value>(bytes).ok());
    payload.and_then(|payload| payload.get("step_seq")?.as_u64()) == Some(u64::from(seq))
}
