//! The server in this process, over HTTP, as each actor with its own token.

use super::{
    ADMIN, Assignment, Chain, Decided, Driver, Failure, Firing, GateStep, HoldOn, InboxItem, Level, On, Opened,
    OpenedStep, Record, Said, Shifted, Source, Start, Step, View, broken,
};
use async_trait::async_trait;
use countersign_client::{Client, Error, Format, wire};
use countersign_kernel::process::Decision;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::{Declaration, GateEntry, GateSpec, QuorumRule, Transition};
use countersign_server::serve::{ADMIN_TOKEN_FILE, Running, ServeOptions, start};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// As many as a page may hold; more than any scenario makes.
const LIMIT: Option<u32> = Some(500);
/// The server's configuration, once there is one.
const CONFIG: &str = "countersign.toml";
/// The token of an actor that is not registered.
const FORGED: &str = "cs_forged";

pub struct HttpDriver {
    data_dir: PathBuf,
    server: Option<Running>,
    url: String,
    /// Without a token.
    nobody: Client,
    tokens: HashMap<String, String>,
    pub(super) time: Shifted,
}

impl HttpDriver {
    /// A server on an empty SQLite store in this directory.
    pub async fn open(data_dir: &Path) -> Said<Self> {
        let time = Shifted::default();
        let (server, url) = serve(data_dir, &time).await?;
        let token = std::fs::read_to_string(data_dir.join(ADMIN_TOKEN_FILE)).map_err(broken)?;
        let tokens = HashMap::from([(ADMIN.to_owned(), token.trim().to_owned())]);
        let nobody = Client::new(&url).map_err(broken)?;
        Ok(HttpDriver { data_dir: data_dir.to_owned(), server: Some(server), url, nobody, tokens, time })
    }

    pub async fn close(mut self) -> Said<()> {
        match self.server.take() {
            None => Ok(()),
            Some(server) => server.shutdown().await.map_err(broken),
        }
    }

    /// Evidence of everything so far, as an auditor would get it, and the log's key.
    pub async fn evidence(&self) -> Said<(Vec<u8>, String)> {
        let admin = self.client(ADMIN)?;
        let mut bundle = Vec::new();
        let take = |piece: &[u8], _| {
            bundle.extend_from_slice(piece);
            Ok(())
        };
        admin.export(&wire::ExportQuery::default(), take).await.map_err(broken)?;
        let key = admin.log_key().await.map_err(broken)?;
        Ok((bundle, key.trim().to_owned()))
    }

    pub(super) fn client(&self, by: &str) -> Said<Client> {
        let token = self.tokens.get(by).map_or(FORGED, String::as_str);
        self.nobody.clone().with_token(token).map_err(broken)
    }
}

async fn serve(data_dir: &Path, time: &Shifted) -> Said<(Running, String)> {
    let config = Some(data_dir.join(CONFIG)).filter(|file| file.is_file());
    let options = ServeOptions {
        listen: "127.0.0.1:0".to_owned(),
        config,
        clock: Some(time.clock()),
        ..ServeOptions::new(data_dir)
    };
    let server = start(options).await.map_err(|error| broken(format!("{error:#}")))?;
    let url = server.url();
    Ok((server, url))
}

pub(super) fn refused(error: Error) -> Failure {
    match error {
        Error::Refused(problem) => match Code::parse(&problem.code) {
            Some(code) => Refusal { field: problem.field, ..Refusal::new(code, problem.detail) }.into(),
            None => broken(format!("a code that the kernel does not have: {problem:?}")),
        },
        other => broken(format!("{other:?}")),
    }
}

pub(super) fn opened(opened: wire::GateOpened) -> Opened {
    let chain = opened.steps.unwrap_or_default();
    let single = opened.step_id.map(|step_id| OpenedStep { step_id, approver_ref: String::new() });
    let of_chain = chain.into_iter().map(|s| OpenedStep { step_id: s.step_id, approver_ref: s.approver_ref });
    Opened { chain_id: opened.chain_id, steps: single.into_iter().chain(of_chain).collect() }
}

#[async_trait]
impl Driver for HttpDriver {
    fn level(&self) -> Level {
        Level::Http
    }

    async fn register(&mut self, actor_ref: &str) -> Said<()> {
        let request = wire::RegisterActor {
            actor_ref: actor_ref.to_owned(),
            kind: wire::ActorKind::Human,
            display_name: None,
            public_key: None,
        };
        let registered = self.client(ADMIN)?.register_actor(&request).await.map_err(refused)?.body;
        let token = registered.token.ok_or_else(|| broken("an actor without a token"))?;
        self.tokens.insert(actor_ref.to_owned(), token);
        Ok(())
    }

    async fn grant(&mut self, by: &str, subject_ref: &str, scope: &str) -> Said<String> {
        let request = wire::GrantScope { subject_ref: subject_ref.to_owned(), action_scope: scope.to_owned() };
        Ok(self.client(by)?.grant(&request).await.map_err(refused)?.body.grant_id)
    }

    async fn revoke(&mut self, by: &str, grant_id: &str) -> Said<()> {
        self.client(by)?.revoke(grant_id).await.map_err(refused).map(|_| ())
    }

    async fn publish(&mut self, by: &str, document: &str) -> Said<()> {
        self.client(by)?.publish_definition(Format::Yaml, document.as_bytes()).await.map_err(refused).map(|_| ())
    }

    async fn start(&mut self, by: &str, start: &Start) -> Said<String> {
        let (declaration, definition) = match &start.from {
            Source::Declaration(declaration) => (Some(to_wire(declaration)), None),
            Source::Definition(name) => (None, Some(name.clone())),
        };
        let gate_spec: wire::GateSpec = start.gate_spec.0.iter().map(|(k, v)| (k.clone(), entry_to_wire(v))).collect();
        let request = wire::StartProcess {
            declaration,
            definition,
            subject_ref: start.subject_ref.clone(),
            gate_spec: (!gate_spec.is_empty()).then_some(gate_spec),
            reason: start.reason.clone(),
        };
        Ok(self.client(by)?.start(&request).await.map_err(refused)?.body.instance_id)
    }

    async fn open_gate(&mut self, by: &str, on: On<'_>) -> Said<Opened> {
        let request =
            wire::OpenGate { action: on.action.to_owned(), reason: on.reason.map(str::to_owned), request: None };
        let opened = self.client(by)?.open_gate(on.instance_id, &request).await.map_err(refused)?.body;
        Ok(self::opened(opened))
    }

    async fn decide_gate(&mut self, by: &str, on: On<'_>, decision: Decision, step: Option<&str>) -> Said<Decided> {
        let request = wire::DecideGate {
            decision: match decision {
                Decision::Approve => wire::Decision::Approve,
                Decision::Reject => wire::Decision::Reject,
                Decision::Withdraw => wire::Decision::Withdraw,
            },
            reason: on.reason.map(str::to_owned),
            step_id: step.map(str::to_owned),
            request_digest: None,
        };
        let decided = self.client(by)?.decide_gate(on.instance_id, on.action, &request).await.map_err(refused)?.body;
        Ok(Decided { outcome: word(decided.outcome)?, chain_state: decided.chain_state.map(word).transpose()? })
    }

    async fn fire(&mut self, by: &str, on: On<'_>) -> Said<String> {
        let request = wire::FireTransition { action: on.action.to_owned(), reason: on.reason.map(str::to_owned) };
        Ok(self.client(by)?.fire(on.instance_id, &request).await.map_err(refused)?.body.new_state)
    }

    async fn place_hold(&mut self, by: &str, hold: HoldOn<'_>) -> Said<String> {
        let request = wire::PlaceHold {
            record_ref: hold.record_ref.to_owned(),
            reason: hold.reason.to_owned(),
            case_ref: hold.case_ref.map(str::to_owned),
        };
        Ok(self.client(by)?.place_hold(&request).await.map_err(refused)?.body.hold_id)
    }

    async fn release_hold(&mut self, by: &str, hold_id: &str, reason: Option<&str>) -> Said<()> {
        let request = wire::ReleaseHold { reason: reason.map(str::to_owned) };
        self.client(by)?.release_hold(hold_id, &request).await.map_err(refused).map(|_| ())
    }

    async fn purge(&mut self, by: &str, event_id: &str) -> Said<()> {
        self.client(by)?.purge_record(event_id).await.map_err(refused).map(|_| ())
    }

    async fn read(&mut self, by: &str, instance_id: &str) -> Said<View> {
        to_view(self.client(by)?.process(instance_id).await.map_err(refused)?.body)
    }

    async fn inbox(&mut self, by: &str) -> Said<Vec<InboxItem>> {
        let query = wire::InboxQuery { limit: LIMIT, ..wire::InboxQuery::default() };
        let items = self.client(by)?.inbox(&query).await.map_err(refused)?.body.items;
        Ok(items
            .into_iter()
            .map(|item| InboxItem { instance_id: item.instance_id, action: item.action, step_id: item.task_ref })
            .collect())
    }

    async fn approval_steps(&mut self, instance_id: &str) -> Said<Vec<Step>> {
        let query = wire::ApprovalStepQuery {
            instance_id: Some(instance_id.to_owned()),
            limit: LIMIT,
            ..wire::ApprovalStepQuery::default()
        };
        let steps = self.client(ADMIN)?.approval_steps(&query).await.map_err(refused)?.body.items;
        steps
            .into_iter()
            .map(|step| {
                Ok(Step {
                    step_id: step.step_id,
                    action: step.action.unwrap_or_default(),
                    subject_ref: step.subject_ref,
                    approver_ref: step.approver_ref,
                    submitter_ref: step.submitter_ref,
                    scope: step.scope,
                    state: word(step.state)?,
                    ended_by: step.decided_by.or(step.withdrawn_by),
                    reason: step.decision_reason.or(step.withdrawal_reason),
                })
            })
            .collect()
    }

    async fn assignments(&mut self, step_id: &str) -> Said<Vec<Assignment>> {
        let query = wire::AssignmentQuery {
            task_ref: Some(step_id.to_owned()),
            limit: LIMIT,
            ..wire::AssignmentQuery::default()
        };
        let items = self.client(ADMIN)?.assignments(&query).await.map_err(refused)?.body.items;
        items
            .into_iter()
            .map(|item| {
                let status = word(item.status)?;
                Ok(Assignment { task_ref: item.task_ref, assignee_ref: item.assignee_ref, status })
            })
            .collect()
    }

    async fn records(&mut self, instance_id: &str) -> Said<Vec<Record>> {
        let query = wire::RecordQuery {
            instance_id: Some(instance_id.to_owned()),
            limit: LIMIT,
            ..wire::RecordQuery::default()
        };
        let items = self.client(ADMIN)?.records(&query).await.map_err(refused)?.body.items;
        Ok(items
            .into_iter()
            .map(|item| Record {
                event_id: item.event_id,
                sequence: item.sequence,
                action_ref: item.action_ref,
                actor_ref: item.actor_ref,
                payload: item.payload,
                registry_seq: item.registry_seq,
                recorded_at: item.recorded_at,
            })
            .collect())
    }

    /// By time, as an auditor without the registry's records would: granted at or before it, and not
    /// revoked by then. Times have one form, so their text sorts as they do.
    async fn held(&mut self, actor_ref: &str, scope: &str, record: &Record) -> Said<bool> {
        let query = wire::GrantQuery {
            subject_ref: Some(actor_ref.to_owned()),
            action_scope: Some(scope.to_owned()),
            limit: LIMIT,
            ..wire::GrantQuery::default()
        };
        let grants = self.client(ADMIN)?.grants(&query).await.map_err(refused)?.body.items;
        Ok(grants.iter().any(|grant| {
            grant.granted_at <= record.recorded_at
                && grant.revoked_at.as_ref().is_none_or(|revoked_at| record.recorded_at < *revoked_at)
        }))
    }

    async fn restart(&mut self) -> Said<()> {
        if let Some(server) = self.server.take() {
            server.shutdown().await.map_err(broken)?;
        }
        let (server, url) = serve(&self.data_dir, &self.time).await?;
        server.tick().await;
        self.server = Some(server);
        self.nobody = Client::new(&url).map_err(broken)?;
        self.url = url;
        Ok(())
    }

    async fn keep_under(&mut self, policy: &str) -> Said<()> {
        let toml = format!("audit_trail_retention_policy = {policy:?}\n");
        std::fs::write(self.data_dir.join(CONFIG), toml).map_err(broken)?;
        self.restart().await
    }

    async fn pass(&mut self, us: i64) -> Said<()> {
        self.time.pass(us);
        if let Some(server) = &self.server {
            server.tick().await;
        }
        Ok(())
    }

    async fn pass_until(&mut self, at_us: i64) -> Said<()> {
        self.time.stand_at(at_us);
        if let Some(server) = &self.server {
            server.tick().await;
        }
        Ok(())
    }

    /// Each record names the hash of the one before it.
    async fn verify(&mut self, instance_id: &str) -> Said<()> {
        let query = wire::RecordQuery {
            instance_id: Some(instance_id.to_owned()),
            limit: LIMIT,
            ..wire::RecordQuery::default()
        };
        let items = self.client(ADMIN)?.records(&query).await.map_err(refused)?.body.items;
        let mut previous = "0".repeat(64);
        for (sequence, item) in (1..).zip(items) {
            if item.sequence != sequence || item.prev != previous {
                return Err(broken(format!("record {sequence} does not follow its predecessor: {item:?}")));
            }
            previous = item.record_hash;
        }
        Ok(())
    }

    async fn request(&mut self, by: &str, path: &str, body: Option<&str>) -> Said<Value> {
        let token = self.tokens.get(by).map_or(FORGED, String::as_str);
        // Our client prepares TLS for the whole program, which `reqwest` needs even without it.
        self.client(by)?;
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().map_err(broken)?;
        let url = format!("{}{path}", self.url);
        let request = match body {
            None => http.get(url),
            Some(body) => http.post(url).header("content-type", "application/json").body(body.to_owned()),
        };
        let response = request.bearer_auth(token).send().await.map_err(broken)?;
        let (status, bytes) = (response.status(), response.bytes().await.map_err(broken)?);
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(broken);
        }
        let problem: wire::Problem = serde_json::from_slice(&bytes)
            .map_err(|error| broken(format!("{status}: {error}: {}", String::from_utf8_lossy(&bytes))))?;
        if problem.status != status.as_u16() {
            return Err(broken(format!("status {status}, but the problem says {}", problem.status)));
        }
        Err(refused(Error::Refused(Box::new(problem))))
    }
}

/// The text that a word of the wire has.
pub(super) fn word(value: impl serde::Serialize) -> Said<String> {
    match serde_json::to_value(value).map_err(broken)? {
        Value::String(text) => Ok(text),
        other => Err(broken(format!("not a word: {other}"))),
    }
}

fn to_wire(declaration: &Declaration) -> wire::Declaration {
    let transition = |t: &Transition| wire::Transition {
        from: t.from_state.clone(),
        action: t.action.clone(),
        to: t.to_state.clone(),
        guard: t.guard.clone(),
        effects: vec![],
    };
    wire::Declaration {
        states: declaration.states.clone(),
        transitions: declaration.transitions.iter().map(transition).collect(),
        initial_state: declaration.initial_state.clone(),
        terminal_states: declaration.terminal_states.clone(),
    }
}

fn entry_to_wire(entry: &GateEntry) -> wire::GateEntry {
    match entry {
        GateEntry::Single { approver_ref, scope, delegable } => wire::GateEntry {
            approver_ref: Some(approver_ref.clone()),
            approvers: None,
            quorum: None,
            scope: scope.clone(),
            delegable: delegable.then_some(true),
        },
        GateEntry::Quorum { approvers, rule, scope, delegable } => wire::GateEntry {
            approver_ref: None,
            approvers: Some(approvers.clone()),
            quorum: Some(wire::Quorum {
                rule: match rule {
                    QuorumRule::AllOfN => wire::QuorumRule::AllOfN,
                    QuorumRule::MOfN { .. } => wire::QuorumRule::MOfN,
                    QuorumRule::OneOfN => wire::QuorumRule::OneOfN,
                },
                m: rule.m(),
            }),
            scope: scope.clone(),
            delegable: delegable.then_some(true),
        },
    }
}

fn from_wire(declaration: wire::Declaration) -> Declaration {
    let transition = |t: wire::Transition| Transition {
        from_state: t.from,
        action: t.action,
        to_state: t.to,
        guard: t.guard,
        effects: vec![],
    };
    Declaration {
        states: declaration.states,
        transitions: declaration.transitions.into_iter().map(transition).collect(),
        initial_state: declaration.initial_state,
        terminal_states: declaration.terminal_states,
    }
}

fn entry_from_wire(entry: wire::GateEntry) -> Said<GateEntry> {
    let wire::GateEntry { approver_ref, approvers, quorum, scope, delegable } = entry;
    let delegable = delegable.unwrap_or_default();
    match (approver_ref, approvers, quorum) {
        (Some(approver_ref), None, None) => Ok(GateEntry::Single { approver_ref, scope, delegable }),
        (None, Some(approvers), Some(wire::Quorum { rule, m })) => {
            let rule = match (rule, m) {
                (wire::QuorumRule::AllOfN, None) => QuorumRule::AllOfN,
                (wire::QuorumRule::OneOfN, None) => QuorumRule::OneOfN,
                (wire::QuorumRule::MOfN, Some(m)) => QuorumRule::MOfN { m },
                other => return Err(broken(format!("a quorum that no kernel knows: {other:?}"))),
            };
            Ok(GateEntry::Quorum { approvers, rule, scope, delegable })
        }
        other => Err(broken(format!("a gate that names nobody, or too many: {other:?}"))),
    }
}

fn to_view(view: wire::WorkflowView) -> Said<View> {
    let gate_spec: Said<_> =
        view.gate_spec.into_iter().map(|(label, entry)| Ok((label, entry_from_wire(entry)?))).collect();
    let firing = |entry: wire::HistoryEntry| Firing {
        sequence_number: entry.sequence_number,
        from_state: entry.from_state,
        action: entry.action,
        to_state: entry.to_state,
        actor_ref: entry.actor_ref,
        guard_satisfied: entry.guard_satisfied,
        gate_id: entry.step_id.or(entry.chain_id),
        event_id: entry.event_id,
    };
    let gate = |gate: wire::Gate| {
        Ok(GateStep {
            step: Step {
                step_id: gate.step_id,
                subject_ref: format!("{}:{}", view.subject_ref, gate.action),
                action: gate.action,
                approver_ref: gate.approver_ref,
                submitter_ref: gate.submitter_ref,
                scope: gate.scope,
                state: word(gate.state)?,
                ended_by: gate.decided_by.or(gate.withdrawn_by),
                reason: gate.decision_reason.or(gate.withdrawal_reason),
            },
            from_state: gate.from_state,
            guard: gate.guard,
            chain: match gate.chain {
                None => None,
                Some(chain) => Some(Chain { chain_id: chain.chain_id, state: word(chain.state)? }),
            },
            assignment_status: word(gate.assignment.status)?,
            is_current: gate.binding == wire::Binding::Current,
            fate: word(gate.fate)?,
        })
    };
    Ok(View {
        instance_id: view.instance_id,
        declaration: from_wire(view.declaration),
        gate_spec: GateSpec(gate_spec?),
        initiator_ref: view.initiator_ref,
        current_state: view.current_state,
        history: view.transition_history.into_iter().map(firing).collect(),
        gates: view.gates.into_iter().map(gate).collect::<Said<_>>()?,
        subject_ref: view.subject_ref,
    })
}
