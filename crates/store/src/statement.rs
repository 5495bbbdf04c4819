//! Every write, as data: a table, its columns, and whether rows are added or changed. Each dialect
//! derives its SQL from this: one prepared statement per row on SQLite, one statement for all rows of a
//! batch (`UNNEST`) on PostgreSQL.

mod governance;
mod run;

pub use governance::signal_values;
pub use run::{UNDER_WAY, latest_writes, step_values};

use crate::outbox::delivery_values;
use crate::value::{Type, Value};
use countersign_engine::passkey;
use countersign_engine::port::Unit;
use countersign_engine::rows::{RecordRow, Write};
use countersign_kernel::process::Fate;
use countersign_kernel::registry::Signatures;
use countersign_ledger::Content;

#[derive(Debug)]
pub struct Statement {
    pub table: &'static str,
    /// For an update the first ones are the key; for a deletion all of them are.
    pub columns: &'static [(&'static str, Type)],
    pub kind: Kind,
    /// How many columns of an update are its key.
    pub keys: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Insert,
    InsertIfAbsent,
    Update,
    /// An update that leaves nothing where nothing was.
    Redact,
    Delete,
}

impl Kind {
    /// Whether it adds rows: such statements run first.
    pub const fn adds(self) -> bool {
        matches!(self, Kind::Insert | Kind::InsertIfAbsent)
    }
}

use Type::{Bool, Bytes, Id, Int, Text};

macro_rules! statements {
    (@keys) => { 1 };
    (@keys $keys:literal) => { $keys };
    ($($name:ident: $kind:ident $([$keys:literal])? $table:literal ($($column:literal $type:ident),* $(,)?);)*) => {
        /// Inserts come before updates: a batch runs them in this order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Name { $($name,)* }

        impl Name {
            pub const ALL: &'static [Name] = &[$(Name::$name,)*];
        }

        pub const STATEMENTS: &[Statement] = &[$(Statement {
            table: $table,
            columns: &[$(($column, $type),)*],
            kind: Kind::$kind,
            keys: statements!(@keys $($keys)?),
        },)*];
    };
}

statements! {
    Instance: Insert "instances" ("instance_id" Id, "sequence" Int, "head" Bytes, "last_time_us" Int, "state" Text, "moves" Int, "policy_ref" Text, "beats" Int, "rollup" Text, "colour" Text);
    Document: InsertIfAbsent "documents" ("digest" Bytes, "body" Bytes);
    Process: Insert "processes" ("instance_id" Id, "definition_name" Text, "definition_version" Int, "subject_ref" Text, "initiator_ref" Text,
        "declaration_digest" Bytes, "gate_spec_digest" Bytes, "started_at_us" Int);
    Transition: Insert "transitions" ("instance_id" Id, "sequence_number" Int, "transition_id" Id, "from_state" Text, "action" Text, "to_state" Text,
        "fired_at_us" Int, "actor_ref" Text, "guard_satisfied" Bool, "gate_id" Id, "gate_is_chain" Bool, "event_id" Id);
    Gate: Insert "gates" ("gate_id" Id, "instance_id" Id, "from_state" Text, "action" Text, "guard" Text, "scope" Text, "opened_at_us" Int, "opened_by" Text,
        "rule" Text, "m" Int, "chain_state" Text, "chain_terminal_at_us" Int, "fate" Text, "is_current" Bool);
    Step: Insert "approval_steps" ("step_id" Id, "gate_id" Id, "instance_id" Id, "slot" Int, "action" Text, "subject_ref" Text, "approver_ref" Text,
        "submitter_ref" Text, "scope" Text, "submitted_at_us" Int, "state" Text, "ended_by" Text, "ended_at_us" Int, "ended_reason" Text, "request" Text);
    Assignment: Insert "assignments" ("assignment_id" Id, "task_ref" Id, "assignee_ref" Text, "assigned_at_us" Int, "status" Text, "ended_at_us" Int);
    Record: Insert "records" ("event_id" Id, "instance_id" Id, "sequence" Int, "action_ref" Text, "actor_ref" Text, "recorded_at_us" Int, "header" Bytes,
        "payload" Bytes, "attestation" Bytes, "salt" Bytes, "purgeable_from_us" Int);
    Actor: Insert "actors" ("actor_ref" Text, "kind" Text, "display_name" Text, "registered_at_us" Int, "registered_by" Text, "registry_seq" Int);
    Credential: Insert "credentials" ("token_hash" Bytes, "actor_ref" Text, "issued_at_us" Int, "issued_by" Text, "registry_seq" Int);
    Key: Insert "actor_keys" ("key_id" Text, "actor_ref" Text, "public_key" Text, "registered_at_us" Int, "registered_by" Text, "registry_seq" Int, "passkey" Text);
    Grant: Insert "grants" ("grant_id" Id, "subject_ref" Text, "action_scope" Text, "granted_at_us" Int, "granted_by" Text, "granted_seq" Int);
    Definition: Insert "definitions" ("name" Text, "version" Int, "digest" Bytes, "source" Text, "declaration_digest" Bytes, "gate_spec_digest" Bytes,
        "retention" Text, "published_at_us" Int, "published_by" Text, "registry_seq" Int, "document_digest" Bytes, "publish" Text, "proposal_id" Id, "approval_id" Id, "approval_is_chain" Bool);
    Delegation: Insert "delegations" ("delegation_id" Id, "delegator_ref" Text, "delegate_ref" Text, "scope" Text, "from_us" Int, "until_us" Int,
        "reason" Text, "made_at_us" Int, "made_seq" Int);
    DefinitionMark: Insert "definition_marks" ("registry_seq" Int, "mark" Text, "name" Text, "version" Int, "reason" Text, "marked_at_us" Int, "marked_by" Text);
    WorkerClassMark: Insert "worker_class_marks" ("registry_seq" Int, "mark" Text, "worker_class" Text, "reason" Text, "marked_at_us" Int, "marked_by" Text);
    Configuration: Insert "configurations" ("registry_seq" Int, "policy" Text, "recorded_at_us" Int, "recorded_by" Text, "regulated" Bool,
        "application_actor_ref" Text, "server_actor_ref" Text, "signatures" Text);

    Hold: Insert "holds" ("hold_id" Id, "record_ref" Id, "instance_id" Id, "placed_at_us" Int, "placed_by" Text, "reason" Text, "case_ref" Text);
    Run: Insert "runs" ("instance_id" Id, "definition_name" Text, "definition_version" Int, "document_digest" Bytes, "subject_ref" Text, "initiator_ref" Text,
        "correlation_key" Text, "concurrency_key" Text, "corrects" Id, "continues" Id, "parent_id" Id, "parent_step_seq" Int, "started_at_us" Int, "input" Text, "trace_id" Text, "machine" Text, "machine_digest" Bytes);
    NewRunHead: Insert "run_heads" ("instance_id" Id, "state" Text, "outcome" Text, "last_error" Text, "priority" Int, "start_at_us" Int,
        "executing_since_us" Int, "completed_at_us" Int, "failed_at_us" Int, "output" Text, "due_at_us" Int, "is_live" Bool, "runbook" Text, "undoing" Bool, "called_off" Bool,
        "definition_name" Text, "correlation_key" Text, "concurrency_key" Text);
    NewRunStep: Insert "run_steps" ("instance_id" Id, "step_seq" Int, "state" Text, "attempts" Int, "next_run_at_us" Int, "locked_by" Text,
        "locked_until_us" Int, "lease_token" Id, "waiting_event_type" Text, "waiting_facet" Text, "deadline_at_us" Int, "last_error" Text,
        "error_category" Text, "event_data" Text, "started_at_us" Int, "completed_at_us" Int, "effect_unknown" Bool, "child_run_id" Id,
        "task_type" Text, "output" Text, "output_needed" Bool, "due_at_us" Int, "handed" Text, "blocked_since_us" Int, "blocked_cause" Text,
        "child_colour" Text, "pic" Text, "deadline_us" Int, "overdue_first_at_us" Int, "sla_breach_us" Int, "cycle" Int, "declared_at_us" Int,
        "secondary_facets" Text, "block_reason" Text, "escalated_at_us" Int, "derived_state" Text, "start_by_us" Int,
        "name" Text, "compensates" Int, "queue" Text, "max_attempts" Int);
    RunEvent: Insert "run_events" ("instance_id" Id, "event_id" Text, "event_type" Text, "data" Text, "received_at_us" Int, "taken" Bool);
    Correction: Insert "step_corrections" ("instance_id" Id, "step_seq" Int, "cycle" Int, "from_state" Text, "prior_event_id" Id, "prior_actor_ref" Text,
        "prior_at_us" Int, "output" Text, "overdue_first_at_us" Int, "sla_breach_us" Int, "approval_id" Id, "correction_reason" Text,
        "reopened_by" Text, "reopened_at_us" Int, "event_id" Id);
    StepError: Insert "step_errors" ("instance_id" Id, "step_seq" Int, "event_id" Id);
    Visits: Insert "step_visits" ("instance_id" Id, "event_id" Id, "visits" Text);
    Outbox: Insert "outbox" ("outbox_id" Id, "instance_id" Id, "event_type" Text, "data" Text, "created_at_us" Int, "next_attempt_at_us" Int, "step" Text);
    Delivery: Insert [2] "deliveries" ("outbox_id" Id, "webhook" Text, "state" Text, "attempts" Int, "next_attempt_at_us" Int);
    ProblemSignal: Insert "problem_signals" ("signal_id" Id, "category" Text, "key" Text, "opens" Bool, "at_us" Int, "event_id" Id, "run_id" Id,
        "step" Text, "worker_class" Text, "detail" Text, "replay_request_id" Id, "replay_outcome" Text);
    ReplayRequest: Insert "replay_requests" ("request_id" Id, "problem_id" Id, "requested_by" Text, "requested_at_us" Int, "state" Text);
    Problem: Insert "problems" ("problem_id" Id, "category" Text, "key" Text, "since_us" Int, "opened_event_id" Id, "run_id" Id,
        "step" Text, "worker_class" Text, "detail" Text);

    MoveInstance: Update "instances" ("instance_id" Id, "sequence" Int, "head" Bytes, "last_time_us" Int, "state" Text, "moves" Int, "policy_ref" Text, "beats" Int, "rollup" Text, "colour" Text);
    SupersedeGate: Update "gates" ("gate_id" Id, "is_current" Bool);
    SpendGate: Update "gates" ("gate_id" Id, "fate" Text);
    EndChain: Update "gates" ("gate_id" Id, "chain_state" Text, "chain_terminal_at_us" Int);
    EndStep: Update "approval_steps" ("step_id" Id, "state" Text, "ended_by" Text, "ended_at_us" Int, "ended_reason" Text);
    AssignmentDue: Update "assignments" ("assignment_id" Id, "due_at_us" Int);
    EndAssignment: Update "assignments" ("assignment_id" Id, "status" Text, "ended_at_us" Int);
    RevokeCredential: Update "credentials" ("token_hash" Bytes, "revoked_at_us" Int, "revoked_by" Text, "revoked_seq" Int);
    RevokeKey: Update "actor_keys" ("key_id" Text, "revoke_reason" Text, "revoked_at_us" Int, "revoked_by" Text, "revoked_seq" Int);
    RevokeDelegation: Update "delegations" ("delegation_id" Id, "revoked_at_us" Int, "revoked_seq" Int);
    RevokeGrant: Update "grants" ("grant_id" Id, "revoked_at_us" Int, "revoked_by" Text, "revoked_seq" Int);
    ReleaseHold: Update "holds" ("hold_id" Id, "released_at_us" Int, "released_by" Text, "release_reason" Text);
    RunHead: Update "run_heads" ("instance_id" Id, "state" Text, "outcome" Text, "last_error" Text, "priority" Int, "start_at_us" Int,
        "executing_since_us" Int, "completed_at_us" Int, "failed_at_us" Int, "output" Text, "due_at_us" Int, "is_live" Bool, "runbook" Text, "undoing" Bool, "called_off" Bool);
    RunStep: Update [2] "run_steps" ("instance_id" Id, "step_seq" Int, "state" Text, "attempts" Int, "next_run_at_us" Int, "locked_by" Text,
        "locked_until_us" Int, "lease_token" Id, "waiting_event_type" Text, "waiting_facet" Text, "deadline_at_us" Int, "last_error" Text,
        "error_category" Text, "event_data" Text, "started_at_us" Int, "completed_at_us" Int, "effect_unknown" Bool, "child_run_id" Id,
        "task_type" Text, "output" Text, "output_needed" Bool, "due_at_us" Int, "handed" Text, "blocked_since_us" Int, "blocked_cause" Text,
        "child_colour" Text, "pic" Text, "deadline_us" Int, "overdue_first_at_us" Int, "sla_breach_us" Int, "cycle" Int, "declared_at_us" Int,
        "secondary_facets" Text, "block_reason" Text, "escalated_at_us" Int, "derived_state" Text, "start_by_us" Int);
    TakeRunEvent: Update [2] "run_events" ("instance_id" Id, "event_id" Text, "taken" Bool);
    PurgeRecord: Update "records" ("event_id" Id, "payload" Bytes, "attestation" Bytes, "salt" Bytes, "purgeable_from_us" Int);
    RedactSubject: Update "processes" ("instance_id" Id, "subject_ref" Text);
    RedactStepSubject: Update "approval_steps" ("step_id" Id, "subject_ref" Text);
    RedactStepRequest: Update "approval_steps" ("step_id" Id, "request" Text);
    RedactStepReason: Update "approval_steps" ("step_id" Id, "ended_reason" Text);
    RedactHold: Update "holds" ("hold_id" Id, "reason" Text, "case_ref" Text);
    RedactRelease: Update "holds" ("hold_id" Id, "release_reason" Text);
    RedactRunInput: Update "runs" ("instance_id" Id, "subject_ref" Text, "input" Text);
    RedactRunKeys: Redact "runs" ("instance_id" Id, "correlation_key" Text, "concurrency_key" Text);
    RedactRunHeadKeys: Redact "run_heads" ("instance_id" Id, "correlation_key" Text, "concurrency_key" Text);
    RedactRunStepOutput: Redact [2] "run_steps" ("instance_id" Id, "step_seq" Int, "output" Text, "lease_token" Id);
    RedactCorrection: Redact [2] "step_corrections" ("instance_id" Id, "prior_event_id" Id, "output" Text);
    RedactRunStepError: Redact [2] "run_steps" ("instance_id" Id, "step_seq" Int, "last_error" Text);
    RedactRunStepEvent: Redact [2] "run_steps" ("instance_id" Id, "step_seq" Int, "event_data" Text);
    RedactRunOutput: Redact "run_heads" ("instance_id" Id, "output" Text);
    RedactRunbook: Update "run_heads" ("instance_id" Id, "runbook" Text);
    RedactRunError: Redact "run_heads" ("instance_id" Id, "last_error" Text);
    RedactRunEvent: Redact [2] "run_events" ("instance_id" Id, "event_id" Text, "data" Text);
    RedactOutbox: Redact [2] "outbox" ("instance_id" Id, "created_at_us" Int, "data" Text);
    ResolveProblem: Update "problems" ("problem_id" Id, "resolved_event_id" Id, "resolved_at_us" Int);
    CountProblems: Update "problem_counts" ("category" Text, "open_count" Int);
    DecideReplay: Update "replay_requests" ("request_id" Id, "state" Text, "approval_id" Id);
    CompleteReplay: Update "replay_requests" ("request_id" Id, "state" Text, "outcome" Text, "outcome_event_id" Id, "completed_at_us" Int);
    PassKey: Update [2] "idempotency" ("actor_ref" Text, "key" Text, "expires_at_us" Int, "instance_id" Id);
    ForgetKeys: Delete "idempotency" ("expires_at_us" Int, "instance_id" Id);
    TakeSignal: Delete "problem_signals" ("signal_id" Id);
}

impl Statement {
    /// One row at a time, parameters `?1 …`.
    pub fn sqlite(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        match self.kind {
            Kind::Insert | Kind::InsertIfAbsent => {
                let holes: Vec<String> = (1..=names.len()).map(|n| format!("?{n}")).collect();
                let conflict = if self.kind == Kind::InsertIfAbsent { " ON CONFLICT DO NOTHING" } else { "" };
                format!("INSERT INTO {} ({}) VALUES ({}){conflict}", self.table, names.join(", "), holes.join(", "))
            }
            Kind::Update | Kind::Redact => {
                let equal = |(i, name): (usize, &&str)| format!("{name} = ?{}", i + 1);
                let keys: Vec<String> = names.iter().enumerate().take(self.keys).map(equal).collect();
                let set = |(i, name): (usize, &&str)| match self.kind {
                    Kind::Redact => format!("{name} = CASE WHEN {name} IS NULL THEN NULL ELSE ?{} END", i + 1),
                    _ => equal((i, name)),
                };
                let sets: Vec<String> = names.iter().enumerate().skip(self.keys).map(set).collect();
                format!("UPDATE {} SET {} WHERE {}", self.table, sets.join(", "), keys.join(" AND "))
            }
            Kind::Delete => {
                let keys: Vec<String> =
                    names.iter().enumerate().map(|(i, name)| format!("{name} = ?{}", i + 1)).collect();
                format!("DELETE FROM {} WHERE {}", self.table, keys.join(" AND "))
            }
        }
    }

    /// All rows at once: one parameter, an array of the table's own row type.
    pub fn postgres(&self) -> String {
        self.postgres_with(1)
    }

    /// With that parameter at this place. `u` are the given rows, `u.ordinality` counts them; an update calls the table `t`.
    pub fn postgres_with(&self, parameter: usize) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let (table, list) = (self.table, names.join(", "));
        let given = format!("UNNEST(${parameter}::{table}[])");
        match self.kind {
            Kind::Insert => format!("INSERT INTO {table} ({list}) SELECT {list} FROM {given}"),
            Kind::InsertIfAbsent => {
                format!("INSERT INTO {table} ({list}) SELECT {list} FROM {given} ON CONFLICT DO NOTHING")
            }
            Kind::Update | Kind::Redact => {
                let keys: Vec<String> =
                    names.iter().take(self.keys).map(|name| format!("t.{name} = u.{name}")).collect();
                let set = |name: &&str| match self.kind {
                    Kind::Redact => format!("{name} = CASE WHEN t.{name} IS NULL THEN NULL ELSE u.{name} END"),
                    _ => format!("{name} = u.{name}"),
                };
                let sets: Vec<String> = names.iter().skip(self.keys).map(set).collect();
                let (sets, keys) = (sets.join(", "), keys.join(" AND "));
                format!("UPDATE {table} t SET {sets} FROM {given} WITH ORDINALITY AS u WHERE {keys}")
            }
            Kind::Delete => {
                let keys: Vec<String> = names.iter().map(|name| format!("t.{name} = u.{name}")).collect();
                format!("DELETE FROM {table} t USING {given} AS u WHERE {}", keys.join(" AND "))
            }
        }
    }
}

/// The row with the state of a unit's instance after it.
pub fn instance_values(unit: &Unit) -> (Name, Vec<Value<'_>>) {
    let name = if unit.is_new() { Name::Instance } else { Name::MoveInstance };
    let values = vec![
        Value::Id(unit.instance_id.0),
        Value::count(unit.head.sequence),
        Value::digest(&unit.head.record_hash),
        Value::time(unit.head.last_time),
        Value::Text(&unit.state),
        Value::count(unit.moves),
        Value::Text(&unit.policy_ref),
        Value::count(unit.beats),
        Value::text(unit.rollup.as_deref()),
        Value::text(unit.colour),
    ];
    (name, values)
}

pub fn record_values(row: &RecordRow) -> (Name, Vec<Value<'_>>) {
    let [payload, attestation, salt] = match &row.record.content {
        Some(Content { payload, attestation, salt }) => [payload, attestation, salt.as_slice()].map(Value::Bytes),
        None => [const { Value::Null }; 3],
    };
    let values = vec![
        Value::Id(row.event_id.0),
        Value::Id(row.instance_id.0),
        Value::count(row.sequence),
        Value::Text(&row.action_ref),
        Value::Text(&row.actor_ref),
        Value::time(row.recorded_at),
        Value::Bytes(&row.record.header),
        payload,
        attestation,
        salt,
        Value::optional_time(row.purgeable_from),
    ];
    (Name::Record, values)
}

pub const fn fate_text(fate: Fate) -> &'static str {
    match fate {
        Fate::Unspent => "unspent",
        Fate::Consumed => "consumed",
        Fate::Mooted => "mooted",
    }
}

pub fn parse_fate(text: &str) -> Option<Fate> {
    [Fate::Unspent, Fate::Consumed, Fate::Mooted].into_iter().find(|fate| fate_text(*fate) == text)
}

/// The statement and parameters of one of a unit's writes.
#[expect(clippy::too_many_lines, reason = "one arm per write, columns in the order of the table above")]
pub fn write_values<'a>(unit: &'a Unit, write: &'a Write) -> (Name, Vec<Value<'a>>) {
    match write {
        Write::Document { digest, bytes } => (Name::Document, vec![Value::digest(digest), Value::Bytes(bytes)]),
        Write::Process(row) => (
            Name::Process,
            vec![
                Value::Id(row.instance_id.0),
                Value::text(row.definition.as_ref().map(|(name, _)| name.as_str())),
                row.definition.as_ref().map_or(Value::Null, |(_, version)| Value::Int(i64::from(*version))),
                Value::Text(&row.subject_ref),
                Value::Text(&row.initiator_ref),
                Value::digest(&row.declaration_digest),
                Value::digest(&row.gate_spec_digest),
                Value::time(row.started_at),
            ],
        ),
        Write::Transition(row) => (
            Name::Transition,
            vec![
                Value::Id(row.instance_id.0),
                Value::count(row.sequence_number),
                Value::Id(row.transition_id.0),
                Value::Text(&row.from_state),
                Value::Text(&row.action),
                Value::Text(&row.to_state),
                Value::time(row.fired_at),
                Value::Text(&row.actor_ref),
                Value::Bool(row.guard_satisfied),
                Value::optional_id(row.gate_id),
                Value::Bool(row.gate_is_chain),
                Value::Id(row.event_id.0),
            ],
        ),
        Write::Gate(row) => (
            Name::Gate,
            vec![
                Value::Id(row.gate_id),
                Value::Id(row.instance_id.0),
                Value::Text(&row.from_state),
                Value::Text(&row.action),
                Value::Text(&row.guard),
                Value::Text(&row.scope),
                Value::time(row.opened_at),
                Value::Text(&row.opened_by),
                Value::text(row.rule.map(|rule| rule.as_str())),
                row.rule.and_then(|rule| rule.m()).map_or(Value::Null, |m| Value::Int(i64::from(m))),
                Value::text(row.chain_state.map(|state| state.as_str())),
                Value::optional_time(row.chain_terminal_at),
                Value::Text(fate_text(row.fate)),
                Value::Bool(row.current),
            ],
        ),
        Write::Step(row) => (
            Name::Step,
            vec![
                Value::Id(row.step_id.0),
                Value::Id(row.gate_id),
                Value::Id(row.instance_id.0),
                Value::Int(i64::from(row.slot)),
                Value::Text(&row.action),
                Value::Text(&row.subject_ref),
                Value::Text(&row.approver_ref),
                Value::Text(&row.submitter_ref),
                Value::Text(&row.scope),
                Value::time(row.submitted_at),
                Value::Text(row.state.as_str()),
                Value::text(row.ended.as_ref().map(|end| end.by.as_str())),
                Value::optional_time(row.ended.as_ref().map(|end| end.at)),
                Value::text(row.ended.as_ref().and_then(|end| end.reason.as_deref())),
                Value::text(row.request.as_deref()),
            ],
        ),
        Write::Assignment(row) => (
            Name::Assignment,
            vec![
                Value::Id(row.assignment_id.0),
                Value::Id(row.task_ref.0),
                Value::Text(&row.assignee_ref),
                Value::time(row.assigned_at),
                Value::Text(row.status.as_str()),
                Value::optional_time(row.ended_at),
            ],
        ),
        Write::AssignmentDue { assignment_id, due_at } => {
            (Name::AssignmentDue, vec![Value::Id(assignment_id.0), Value::time(*due_at)])
        }
        Write::Actor { actor, registered_by, registry_sequence } => (
            Name::Actor,
            vec![
                Value::Text(&actor.actor_ref),
                Value::Text(actor.kind.as_str()),
                Value::text(actor.display_name.as_deref()),
                Value::time(actor.registered_at),
                Value::Text(registered_by),
                Value::count(*registry_sequence),
            ],
        ),
        Write::Credential { credential, issued_at, issued_by, registry_sequence } => (
            Name::Credential,
            vec![
                Value::digest(&credential.token_hash),
                Value::Text(&credential.actor_ref),
                Value::time(*issued_at),
                Value::Text(issued_by),
                Value::count(*registry_sequence),
            ],
        ),
        Write::Key { actor_ref, key, registered_at, registered_by, registry_sequence } => (
            Name::Key,
            vec![
                Value::Text(&key.key_id),
                Value::Text(actor_ref),
                Value::Text(&key.public_key),
                Value::time(*registered_at),
                Value::Text(registered_by),
                Value::count(*registry_sequence),
                key.passkey.as_ref().map_or(Value::Null, |key| Value::OwnText(passkey::to_json(key).to_string())),
            ],
        ),
        Write::Grant { grant_id, subject_ref, action_scope, granted_at, granted_by, registry_sequence } => (
            Name::Grant,
            vec![
                Value::Id(grant_id.0),
                Value::Text(subject_ref),
                Value::Text(action_scope),
                Value::time(*granted_at),
                Value::Text(granted_by),
                Value::count(*registry_sequence),
            ],
        ),
        Write::Definition { definition, declaration_digest, gate_spec_digest, publish, registry_sequence } => (
            Name::Definition,
            vec![
                Value::Text(&definition.name),
                Value::Int(i64::from(definition.version)),
                Value::digest(&definition.digest),
                Value::Text(definition.source.as_deref().unwrap_or_default()),
                Value::digest(declaration_digest),
                Value::digest(gate_spec_digest),
                Value::text(definition.retention.as_deref()),
                Value::time(definition.published_at),
                Value::Text(&definition.published_by),
                Value::count(*registry_sequence),
                definition.document_digest().map_or(Value::Null, Value::digest),
                Value::text(publish.as_deref()),
                Value::optional_id(definition.merged.map(|merged| merged.proposal.0)),
                Value::optional_id(definition.merged.map(|merged| merged.approval.id())),
                definition.merged.map_or(Value::Null, |merged| Value::Bool(merged.approval.chain_id().is_some())),
            ],
        ),
        Write::Delegation { delegation, made_at, registry_sequence } => (
            Name::Delegation,
            vec![
                Value::Id(delegation.delegation_id.0),
                Value::Text(&delegation.delegator_ref),
                Value::Text(&delegation.delegate_ref),
                Value::Text(&delegation.scope),
                Value::time(delegation.from),
                Value::time(delegation.until),
                Value::text(delegation.reason.as_deref()),
                Value::time(*made_at),
                Value::count(*registry_sequence),
            ],
        ),
        Write::DefinitionMark { marked, marked_at, marked_by, registry_sequence } => (
            Name::DefinitionMark,
            vec![
                Value::count(*registry_sequence),
                Value::Text(marked.mark.as_str()),
                Value::Text(&marked.name),
                Value::count(u64::from(marked.version)),
                Value::text(marked.reason.as_deref()),
                Value::time(*marked_at),
                Value::Text(marked_by),
            ],
        ),
        Write::WorkerClassMark { marked, marked_at, marked_by, registry_sequence } => (
            Name::WorkerClassMark,
            vec![
                Value::count(*registry_sequence),
                Value::Text(marked.mark.as_str()),
                Value::Text(&marked.worker_class),
                Value::Text(&marked.reason),
                Value::time(*marked_at),
                Value::Text(marked_by),
            ],
        ),
        Write::Configuration { configuration, recorded_at, recorded_by, registry_sequence } => (
            Name::Configuration,
            vec![
                Value::count(*registry_sequence),
                Value::text(configuration.audit_trail_retention_policy.as_deref()),
                Value::time(*recorded_at),
                Value::Text(recorded_by),
                Value::Bool(configuration.regulated),
                Value::Text(&configuration.application_actor_ref),
                Value::Text(&configuration.server_actor_ref),
                Value::text(configuration.signatures.map(Signatures::as_str)),
            ],
        ),
        Write::Hold(row) => (
            Name::Hold,
            vec![
                Value::Id(row.hold_id.0),
                Value::Id(row.record_ref.0),
                Value::Id(row.instance_id.0),
                Value::time(row.placed_at),
                Value::Text(&row.placed_by),
                Value::Text(&row.reason),
                Value::text(row.case_ref.as_deref()),
            ],
        ),
        Write::Run(row) => (Name::Run, run::run_values(row)),
        Write::NewRunHead(row) => (Name::NewRunHead, run::new_head_values(unit, row)),
        Write::RunHead(row) => (Name::RunHead, run::head_values(row)),
        Write::RunEvent(row) => (Name::RunEvent, run::event_values(row)),
        Write::Outbox(row) => (Name::Outbox, run::outbox_values(row)),
        Write::Delivery { outbox_id, sink } => (Name::Delivery, delivery_values(*outbox_id, sink)),
        Write::Governance(write) => governance::values(write),
        Write::Correction(row) => (Name::Correction, run::correction_values(row)),
        Write::StepError { instance_id, step_seq, event_id } => {
            (Name::StepError, vec![Value::Id(instance_id.0), Value::Int(i64::from(*step_seq)), Value::Id(event_id.0)])
        }
        Write::Visits { instance_id, event_id, visits } => {
            (Name::Visits, vec![Value::Id(instance_id.0), Value::Id(event_id.0), Value::Text(visits)])
        }
        Write::RedactCorrection { instance_id, prior_event_id, text } => {
            (Name::RedactCorrection, vec![Value::Id(instance_id.0), Value::Id(prior_event_id.0), Value::json(text)])
        }
        Write::TakeRunEvent { instance_id, event_id } => {
            (Name::TakeRunEvent, vec![Value::Id(instance_id.0), Value::Text(event_id), Value::Bool(true)])
        }
        Write::RedactRunInput { instance_id, text } => {
            (Name::RedactRunInput, vec![Value::Id(instance_id.0), Value::Text(text), Value::json(text)])
        }
        Write::RedactRunKeys { instance_id, text } => {
            (Name::RedactRunKeys, vec![Value::Id(instance_id.0), Value::Text(text), Value::Text(text)])
        }
        Write::RedactRunHeadKeys { instance_id, text } => {
            (Name::RedactRunHeadKeys, vec![Value::Id(instance_id.0), Value::Text(text), Value::Text(text)])
        }
        Write::RedactRunStep { instance_id, step_seq, what, text } => {
            run::redacted_step(*instance_id, *step_seq, *what, text)
        }
        Write::RedactStepRequest { step_id, text } => {
            (Name::RedactStepRequest, vec![Value::Id(step_id.0), Value::json(text)])
        }
        Write::RedactRunHead { instance_id, what, text } => run::redacted_head(*instance_id, *what, text),
        Write::RedactRunEvent { instance_id, event_id, text } => {
            (Name::RedactRunEvent, vec![Value::Id(instance_id.0), Value::Text(event_id), Value::json(text)])
        }
        Write::RedactOutbox { instance_id, created_at, text } => {
            (Name::RedactOutbox, vec![Value::Id(instance_id.0), Value::time(*created_at), Value::json(text)])
        }
        Write::SupersedeGate { gate_id } => (Name::SupersedeGate, vec![Value::Id(*gate_id), Value::Bool(false)]),
        Write::SpendGate { gate_id, fate } => {
            (Name::SpendGate, vec![Value::Id(*gate_id), Value::Text(fate_text(*fate))])
        }
        Write::EndChain { gate_id, state, at } => {
            (Name::EndChain, vec![Value::Id(*gate_id), Value::Text(state.as_str()), Value::time(*at)])
        }
        Write::EndStep { step_id, state, end } => (
            Name::EndStep,
            vec![
                Value::Id(step_id.0),
                Value::Text(state.as_str()),
                Value::Text(&end.by),
                Value::time(end.at),
                Value::text(end.reason.as_deref()),
            ],
        ),
        Write::EndAssignment { assignment_id, status, at, .. } => {
            (Name::EndAssignment, vec![Value::Id(assignment_id.0), Value::Text(status.as_str()), Value::time(*at)])
        }
        Write::RevokeCredential { credential, revoked_at, revoked_by, registry_sequence } => (
            Name::RevokeCredential,
            vec![
                Value::digest(&credential.token_hash),
                Value::time(*revoked_at),
                Value::Text(revoked_by),
                Value::count(*registry_sequence),
            ],
        ),
        Write::RevokeKey { key_id, reason, revoked_at, revoked_by, registry_sequence } => (
            Name::RevokeKey,
            vec![
                Value::Text(key_id),
                Value::text(reason.as_deref()),
                Value::time(*revoked_at),
                Value::Text(revoked_by),
                Value::count(*registry_sequence),
            ],
        ),
        Write::RevokeDelegation { delegation_id, revoked_at, registry_sequence } => (
            Name::RevokeDelegation,
            vec![Value::Id(delegation_id.0), Value::time(*revoked_at), Value::count(*registry_sequence)],
        ),
        Write::RevokeGrant { grant_id, revoked_at, revoked_by, registry_sequence } => (
            Name::RevokeGrant,
            vec![
                Value::Id(grant_id.0),
                Value::time(*revoked_at),
                Value::Text(revoked_by),
                Value::count(*registry_sequence),
            ],
        ),
        Write::ReleaseHold { hold_id, release } => (
            Name::ReleaseHold,
            vec![Value::Id(hold_id.0), Value::time(release.at), Value::Text(&release.by), Value::Text(&release.reason)],
        ),
        Write::PurgeRecord { event_id } => {
            (Name::PurgeRecord, vec![Value::Id(event_id.0), Value::Null, Value::Null, Value::Null, Value::Null])
        }
        Write::RedactSubject { instance_id, text } => {
            (Name::RedactSubject, vec![Value::Id(instance_id.0), Value::Text(text)])
        }
        Write::RedactStepSubject { step_id, text } => {
            (Name::RedactStepSubject, vec![Value::Id(step_id.0), Value::Text(text)])
        }
        Write::RedactStepReason { step_id, text } => {
            (Name::RedactStepReason, vec![Value::Id(step_id.0), Value::Text(text)])
        }
        Write::RedactHold { hold_id, text } => {
            (Name::RedactHold, vec![Value::Id(hold_id.0), Value::Text(text), Value::Null])
        }
        Write::RedactRelease { hold_id, text } => (Name::RedactRelease, vec![Value::Id(hold_id.0), Value::Text(text)]),
        Write::PassKey { actor_ref, key, instance_id, expires_at } => (
            Name::PassKey,
            vec![Value::Text(actor_ref), Value::Text(key), Value::time(*expires_at), Value::Id(instance_id.0)],
        ),
        Write::ForgetKeys { instance_id, expires_at } => {
            (Name::ForgetKeys, vec![Value::time(*expires_at), Value::Id(instance_id.0)])
        }
    }
}
