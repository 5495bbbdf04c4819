//! The engine over a real store, called from inside the process.

use super::commands::{
    decide_command, fire_command, grant_command, open_command, publish_command, register_command, revoke_command,
    start_command,
};
use super::follow::Picture;
use super::{
    ADMIN, APPLICATION, Assignment, Chain, Decided, Driver, Firing, GateStep, HoldOn, InboxItem, Level, On, Opened,
    OpenedStep, Record, Said, Shifted, Start, Step, View, broken,
};
use async_trait::async_trait;
use countersign_engine::port::{AssignmentQuery, Page, ProcessQuery, ProcessView, RecordQuery, StepQuery};
use countersign_engine::rows::{RecordRow, StepRow, TransitionRow};
use countersign_engine::{Call, Command, Config, Engine, Outcome, Proof, Target};
use countersign_kernel::process::{self, Decision, Fate, StepChoice};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry;
use countersign_kernel::{Digest, InstanceId, StepId};
use countersign_ledger::check_link;
use countersign_ledger::document::{parse_declaration, parse_gate_spec};
use countersign_ledger::record::Header;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// More than any scenario makes.
pub(super) const ALL: Page = Page { after: None, limit: 10_000, descending: false };

pub struct EngineDriver {
    level: Level,
    url: String,
    engine: Option<Engine>,
    time: Shifted,
    policy: Option<String>,
    /// The followed runs.
    pub(super) pictures: HashMap<InstanceId, Picture>,
}

impl EngineDriver {
    /// On an empty store.
    pub async fn open(level: Level, url: &str) -> Said<Self> {
        let time = Shifted::default();
        let engine = open(url, &time, None).await?;
        engine.bootstrap(ADMIN, Digest([0; 32])).await?;
        Ok(EngineDriver {
            level,
            url: url.to_owned(),
            engine: Some(engine),
            time,
            policy: None,
            pictures: HashMap::new(),
        })
    }

    pub async fn close(mut self) -> Said<()> {
        close(self.engine.take()).await
    }

    pub(super) fn engine(&self) -> Said<&Engine> {
        self.engine.as_ref().ok_or_else(|| broken("the engine is closed"))
    }

    pub(super) async fn execute(&self, by: &str, command: Command) -> Said<Outcome> {
        let call = Call { actor_ref: by.to_owned(), proof: Proof::InProcess, command, idempotency: None };
        Ok(self.engine()?.execute(call).await?)
    }

    async fn change_registry(&self, by: &str, command: registry::Command) -> Said<Outcome> {
        self.execute(by, Command::Registry(command)).await
    }

    async fn ask(&self, by: &str, instance_id: &str, command: process::Command) -> Said<Outcome> {
        let target = match InstanceId::parse(instance_id) {
            None | Some(InstanceId::REGISTRY) => Target::Nowhere,
            Some(id) => Target::Existing(id),
        };
        let expected = self.expect_process(by, instance_id, &command).await?;
        let said = self.execute(by, Command::Process { target, command }).await;
        Self::compare(expected.as_ref(), &said)?;
        said
    }

    async fn rows(&self, instance_id: &str) -> Said<Vec<RecordRow>> {
        let query = RecordQuery { instance_id: InstanceId::parse(instance_id), ..RecordQuery::default() };
        Ok(self.engine()?.read_records(ADMIN, &query, &ALL).await?)
    }
}

async fn open(url: &str, time: &Shifted, policy: Option<&str>) -> Said<Engine> {
    let store = countersign_store::open(url).await.map_err(broken)?;
    let config = Config {
        application_actor_ref: APPLICATION.to_owned(),
        audit_trail_retention_policy: policy.map(str::to_owned),
        clock: time.clock(),
        language: Arc::new(countersign_definition::Cel::default()),
        ..Config::default()
    };
    Engine::open(store, config).await.map_err(broken)
}

async fn close(engine: Option<Engine>) -> Said<()> {
    match engine {
        None => Ok(()),
        Some(engine) => tokio::task::spawn_blocking(move || engine.close()).await.map_err(broken),
    }
}

pub(super) fn unexpected<T>(outcome: Outcome) -> Said<T> {
    Err(broken(format!("unexpected answer {outcome:?}")))
}

pub(super) fn opened(outcome: Outcome) -> Said<Opened> {
    match outcome {
        Outcome::GateOpened { step_id, .. } => {
            Ok(Opened { chain_id: None, steps: vec![OpenedStep { step_id, approver_ref: String::new() }] })
        }
        Outcome::ChainOpened { chain_id, steps } => {
            let step = |step: countersign_engine::OpenedStep| OpenedStep {
                step_id: step.step_id,
                approver_ref: step.approver_ref,
            };
            Ok(Opened { chain_id: Some(chain_id), steps: steps.into_iter().map(step).collect() })
        }
        other => unexpected(other),
    }
}

#[async_trait]
impl Driver for EngineDriver {
    fn level(&self) -> Level {
        self.level
    }

    async fn register(&mut self, actor_ref: &str) -> Said<()> {
        self.change_registry(ADMIN, register_command(actor_ref)).await.map(|_| ())
    }

    async fn grant(&mut self, by: &str, subject_ref: &str, scope: &str) -> Said<String> {
        match self.change_registry(by, grant_command(subject_ref, scope)).await? {
            Outcome::Granted { grant_id } => Ok(grant_id),
            other => unexpected(other),
        }
    }

    async fn revoke(&mut self, by: &str, grant_id: &str) -> Said<()> {
        self.change_registry(by, revoke_command(grant_id)).await.map(|_| ())
    }

    async fn publish(&mut self, by: &str, document: &str) -> Said<()> {
        let command = publish_command(document)?;
        self.change_registry(by, registry::Command::PublishDefinition(command)).await.map(|_| ())
    }

    async fn start(&mut self, by: &str, start: &Start) -> Said<String> {
        let command = Command::Process { target: Target::New, command: start_command(start)? };
        match self.execute(by, command).await? {
            Outcome::Started { instance_id } => Ok(instance_id),
            other => unexpected(other),
        }
    }

    async fn open_gate(&mut self, by: &str, on: On<'_>) -> Said<Opened> {
        opened(self.ask(by, on.instance_id, open_command(on)).await?)
    }

    async fn decide_gate(&mut self, by: &str, on: On<'_>, decision: Decision, step: Option<&str>) -> Said<Decided> {
        let step = step.map(|text| StepId::parse(text).map_or(StepChoice::Unknown, StepChoice::Id));
        match self.ask(by, on.instance_id, decide_command(on, decision, step)).await? {
            Outcome::Decided { outcome, chain_state, .. } => Ok(Decided { outcome, chain_state }),
            other => unexpected(other),
        }
    }

    async fn fire(&mut self, by: &str, on: On<'_>) -> Said<String> {
        match self.ask(by, on.instance_id, fire_command(on)).await? {
            Outcome::Fired { new_state, .. } => Ok(new_state),
            other => unexpected(other),
        }
    }

    async fn place_hold(&mut self, by: &str, hold: HoldOn<'_>) -> Said<String> {
        let (reason, case_ref) = (hold.reason.to_owned(), hold.case_ref.map(str::to_owned));
        let command = self.engine()?.place_hold(hold.record_ref, reason, case_ref).await?;
        match self.execute(by, command).await? {
            Outcome::HoldPlaced { hold_id } => Ok(hold_id),
            other => unexpected(other),
        }
    }

    async fn release_hold(&mut self, by: &str, hold_id: &str, reason: Option<&str>) -> Said<()> {
        let command = self.engine()?.release_hold(hold_id, reason.map(str::to_owned)).await?;
        self.execute(by, command).await.map(|_| ())
    }

    async fn purge(&mut self, by: &str, event_id: &str) -> Said<()> {
        let command = self.engine()?.purge_record(event_id).await?;
        self.execute(by, command).await.map(|_| ())
    }

    async fn read(&mut self, by: &str, instance_id: &str) -> Said<View> {
        let query = ProcessQuery {
            instance_id: InstanceId::parse(instance_id).or(Some(InstanceId(uuid::Uuid::max()))),
            ..ProcessQuery::default()
        };
        let views = self.engine()?.read_workflow(by, query, &ALL).await?;
        let view = views.into_iter().next();
        view.map_or_else(|| Err(Refusal::new(Code::NotKnown, "no such process").into()), to_view)
    }

    async fn inbox(&mut self, by: &str) -> Said<Vec<InboxItem>> {
        let rows = self.engine()?.inbox(by, None, ALL.limit).await?;
        Ok(rows
            .into_iter()
            .map(|waiting| waiting.step)
            .map(|step| InboxItem {
                instance_id: step.instance_id.to_string(),
                action: step.action,
                step_id: step.step_id.to_string(),
            })
            .collect())
    }

    async fn approval_steps(&mut self, instance_id: &str) -> Said<Vec<Step>> {
        let query = StepQuery { instance_id: InstanceId::parse(instance_id), ..StepQuery::default() };
        let rows = self.engine()?.read_approval_steps(ADMIN, &query, &ALL).await?;
        Ok(rows.into_iter().map(to_step).collect())
    }

    async fn assignments(&mut self, step_id: &str) -> Said<Vec<Assignment>> {
        let query = AssignmentQuery { task_ref: StepId::parse(step_id), ..AssignmentQuery::default() };
        let rows = self.engine()?.read_assignments(ADMIN, &query, &ALL).await?;
        Ok(rows
            .into_iter()
            .map(|(row, _)| Assignment {
                task_ref: row.task_ref.to_string(),
                assignee_ref: row.assignee_ref,
                status: row.status.to_string(),
            })
            .collect())
    }

    async fn records(&mut self, instance_id: &str) -> Said<Vec<Record>> {
        let record = |row: RecordRow| {
            let header = Header::parse(&row.record.header).map_err(broken)?;
            Ok(Record {
                event_id: row.event_id.to_string(),
                sequence: row.sequence,
                action_ref: row.action_ref,
                actor_ref: row.actor_ref,
                payload: serde_json::from_slice(row.record.payload().unwrap_or(b"null")).map_err(broken)?,
                registry_seq: header.registry_seq,
                recorded_at: header.recorded_at_us.to_string(),
            })
        };
        self.rows(instance_id).await?.into_iter().map(record).collect()
    }

    async fn held(&mut self, actor_ref: &str, scope: &str, record: &Record) -> Said<bool> {
        Ok(self.engine()?.registry().grants().permitted_under(actor_ref, scope, record.registry_seq))
    }

    async fn restart(&mut self) -> Said<()> {
        close(self.engine.take()).await?;
        let engine = open(&self.url, &self.time, self.policy.as_deref()).await?;
        engine.tick().await;
        self.engine = Some(engine);
        Ok(())
    }

    async fn keep_under(&mut self, policy: &str) -> Said<()> {
        self.policy = Some(policy.to_owned());
        self.restart().await
    }

    async fn pass(&mut self, us: i64) -> Said<()> {
        self.time.pass(us);
        self.engine()?.tick().await;
        Ok(())
    }

    async fn pass_until(&mut self, at_us: i64) -> Said<()> {
        self.time.stand_at(at_us);
        self.engine()?.tick().await;
        Ok(())
    }

    /// The chain of records holds, link by link, and the columns beside the bytes say what the header says.
    async fn verify(&mut self, instance_id: &str) -> Said<()> {
        let mut previous = None;
        for row in self.rows(instance_id).await? {
            let (header, hash) = check_link(previous, &row.record).map_err(broken)?;
            let columns = (row.event_id.to_string(), row.sequence, row.action_ref, row.actor_ref, row.recorded_at.0);
            let said = (header.event_id, header.sequence, header.action_ref, header.actor_ref, header.recorded_at_us);
            if columns != said || hash != row.record.record_hash {
                return Err(broken(format!("the row says {columns:?}, its header {said:?}")));
            }
            previous = Some((header.sequence, hash));
        }
        Ok(())
    }

    async fn request(&mut self, _: &str, _: &str, _: Option<&str>) -> Said<Value> {
        Err(broken("the engine takes no requests"))
    }
}

fn to_view(view: ProcessView) -> Said<View> {
    let firing = |row: TransitionRow| Firing {
        sequence_number: row.sequence_number,
        from_state: row.from_state,
        action: row.action,
        to_state: row.to_state,
        actor_ref: row.actor_ref,
        guard_satisfied: row.gate_id.map(|_| row.guard_satisfied),
        gate_id: row.gate_id.map(|id| id.to_string()),
        event_id: row.event_id.to_string(),
    };
    let mut gates = vec![];
    for (gate, steps) in view.gates {
        for (step, assignment) in steps {
            gates.push(GateStep {
                step: to_step(step),
                from_state: gate.from_state.clone(),
                guard: gate.guard.clone(),
                chain: gate
                    .chain_state
                    .map(|state| Chain { chain_id: gate.gate_id.to_string(), state: state.to_string() }),
                assignment_status: assignment.status.to_string(),
                is_current: gate.current,
                fate: match gate.fate {
                    Fate::Unspent => "unspent",
                    Fate::Consumed => "consumed",
                    Fate::Mooted => "mooted",
                }
                .to_owned(),
            });
        }
    }
    Ok(View {
        instance_id: view.row.instance_id.to_string(),
        subject_ref: view.row.subject_ref,
        initiator_ref: view.row.initiator_ref,
        declaration: parse_declaration(&view.declaration).map_err(broken)?,
        gate_spec: parse_gate_spec(&view.gate_spec).map_err(broken)?,
        current_state: view.current_state,
        history: view.history.into_iter().map(firing).collect(),
        gates,
    })
}

fn to_step(row: StepRow) -> Step {
    let (ended_by, reason) = row.ended.map_or((None, None), |end| (Some(end.by), end.reason));
    Step {
        step_id: row.step_id.to_string(),
        action: row.action,
        subject_ref: row.subject_ref,
        approver_ref: row.approver_ref,
        submitter_ref: row.submitter_ref,
        scope: row.scope,
        state: row.state.to_string(),
        ended_by,
        reason,
    }
}
