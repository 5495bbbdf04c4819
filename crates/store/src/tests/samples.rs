//! Runs, steps and records with every column set, or with none that need not be.

use countersign_engine::port::{Head, Unit};
use countersign_engine::rows::{
    ChargeRow, IdempotencyRow, MachineRow, NewStep, RecordRow, RunEventRow, RunHeadRow, RunRow, StepState, StepWrite,
    Write,
};
use countersign_kernel::id::first_at;
use countersign_kernel::lifecycle::StepCode;
use countersign_kernel::plan::StepSeq;
use countersign_kernel::{Digest, EventId, InstanceId, Time};
use countersign_ledger::{Content, Record, record_hash};
use std::sync::Arc;
use uuid::Uuid;

pub const DOCUMENT: &[u8] = b"{\"a\":\"workflow\"}";
pub const DOCUMENT_DIGEST: Digest = Digest([7; 32]);

/// Ids in the order of their numbers.
pub fn run_id(n: u64) -> InstanceId {
    let mut bytes = *first_at(Time(1_700_000_000_000_000)).as_bytes();
    bytes[8..].copy_from_slice(&(0x8000_0000_0000_0000 + n).to_be_bytes());
    InstanceId(Uuid::from_bytes(bytes))
}

pub fn text(text: &str) -> Option<Arc<str>> {
    Some(Arc::from(text))
}

pub fn small_run(id: InstanceId) -> RunRow {
    RunRow {
        instance_id: id,
        definition_name: "deploy".to_owned(),
        definition_version: 3,
        document_digest: DOCUMENT_DIGEST,
        subject_ref: "release:7".to_owned(),
        initiator_ref: "ann".to_owned(),
        input: Arc::from("{}"),
        correlation_key: None,
        concurrency_key: None,
        corrects: None,
        continues: None,
        parent: None,
        started_at: Time(1_700_000_000_000_000),
        trace_id: None,
        machine: None,
    }
}

pub fn full_run(id: InstanceId) -> RunRow {
    RunRow {
        input: Arc::from("{\"größe\":[1,2,null]}"),
        correlation_key: text("order-1"),
        concurrency_key: text("eu"),
        corrects: Some(run_id(9_000_001)),
        continues: Some(run_id(9_000_002)),
        parent: Some((run_id(9_000_003), 4)),
        trace_id: text("4bf92f3577b34da6a3ce929d0e0e4736"),
        machine: Some(MachineRow { named: "mine@2".to_owned(), digest: DOCUMENT_DIGEST }),
        ..small_run(id)
    }
}

pub fn small_head(id: InstanceId, state: &'static str) -> RunHeadRow {
    RunHeadRow {
        instance_id: id,
        state,
        outcome: None,
        last_error: None,
        priority: 5,
        start_at: None,
        executing_since: None,
        completed_at: None,
        failed_at: None,
        output: None,
        due_at: None,
        is_live: !matches!(state, "idle" | "completed" | "failed" | "cancelled" | "voided"),
        runbook: None,
        undoing: false,
        called_off: false,
    }
}

pub fn full_head(id: InstanceId, state: &'static str) -> RunHeadRow {
    RunHeadRow {
        outcome: Some("rolled_back"),
        last_error: text("it broke"),
        priority: 9,
        start_at: Some(Time(11)),
        executing_since: Some(Time(12)),
        completed_at: Some(Time(13)),
        failed_at: Some(Time(14)),
        output: text("[true]"),
        due_at: Some(Time(15)),
        runbook: text("{}"),
        undoing: true,
        called_off: true,
        ..small_head(id, state)
    }
}

pub fn small_step() -> StepState {
    StepState {
        state: StepCode::NotStarted,
        attempts: 0,
        next_run_at: None,
        locked_by: None,
        locked_until: None,
        lease_token: None,
        waiting_event_type: None,
        waiting_facet: None,
        deadline_at: None,
        last_error: None,
        error_category: None,
        event_data: None,
        started_at: None,
        completed_at: None,
        effect_unknown: false,
        child_run_id: None,
        child_colour: None,
        blocked_since: None,
        blocked_cause: None,
        task_type: None,
        output: None,
        output_needed: false,
        due_at: None,
        handed: None,
        charge: ChargeRow::default(),
    }
}

pub fn full_step() -> StepState {
    StepState {
        state: StepCode::InProgress,
        attempts: 2,
        next_run_at: Some(Time(21)),
        locked_by: text("worker-1"),
        locked_until: Some(Time(22)),
        lease_token: Some(Uuid::from_u128(23)),
        waiting_event_type: text("paid"),
        waiting_facet: Some("waiting_external"),
        deadline_at: Some(Time(24)),
        last_error: text("once"),
        error_category: Some("transient"),
        event_data: text("{\"paid\":1}"),
        started_at: Some(Time(25)),
        completed_at: Some(Time(26)),
        effect_unknown: true,
        child_run_id: Some(run_id(9_000_004)),
        child_colour: Some("yellow"),
        blocked_since: Some(Time(28)),
        blocked_cause: Some("deadline"),
        task_type: Some("READY_STEP"),
        output: text("{\"out\":1}"),
        output_needed: true,
        due_at: Some(Time(27)),
        handed: text("run.1.token"),
        charge: ChargeRow {
            pic: text("kim"),
            deadline: Some(Time(28)),
            start_by: Some(Time(29)),
            overdue_first_at: Some(Time(29)),
            sla_breach: Some(30),
            cycle: 2,
            declared_at: Some(Time(31)),
            secondary_facets: text("waiting_time_gate"),
            block_reason: Some("config_error"),
            escalated_at: Some(Time(33)),
            derived_state: text("in_review"),
        },
    }
}

pub fn new_step(seq: StepSeq) -> NewStep {
    NewStep { name: Arc::from(format!("step-{seq}")), compensates: None, queue: Arc::from("default"), max_attempts: 3 }
}

pub fn added(seq: StepSeq, state: StepState) -> (StepSeq, StepWrite) {
    (seq, StepWrite { new: Some(new_step(seq)), state })
}

pub fn changed(seq: StepSeq, state: StepState) -> (StepSeq, StepWrite) {
    (seq, StepWrite { new: None, state })
}

pub fn event(id: InstanceId, event_id: &str, received_at: i64) -> RunEventRow {
    RunEventRow {
        instance_id: id,
        event_id: Arc::from(event_id),
        event_type: Arc::from("paid"),
        data: Arc::from("{}"),
        received_at: Time(received_at),
        taken: false,
    }
}

pub fn record(id: InstanceId, sequence: u64) -> RecordRow {
    let mut bytes = *id.0.as_bytes();
    bytes[6] ^= 1;
    bytes[7] = u8::try_from(sequence).unwrap();
    let header = format!("{{\"header\":{sequence}}}").into_bytes();
    let content = Content { payload: b"{}".to_vec(), attestation: b"{}".to_vec(), salt: [1; 32] };
    RecordRow {
        event_id: EventId(Uuid::from_bytes(bytes)),
        instance_id: id,
        sequence,
        action_ref: "run_started".to_owned(),
        actor_ref: "ann".to_owned(),
        recorded_at: Time(1_700_000_000_000_000),
        purgeable_from: None,
        record: Record { record_hash: record_hash(&header), header, content: Some(content) },
    }
}

/// A unit that moves an instance by one record.
pub fn unit(id: InstanceId, expected_sequence: u64, writes: Vec<Write>) -> Unit {
    let record = record(id, expected_sequence + 1);
    Unit {
        head: Head {
            sequence: expected_sequence + 1,
            record_hash: record.record.record_hash,
            last_time: Time(1_700_000_000_000_000),
        },
        state: "executing".to_owned(),
        moves: 2,
        policy_ref: "policy".to_owned(),
        writes,
        records: vec![record],
        ..Unit::new(id, expected_sequence)
    }
}

/// A unit that starts a run.
pub fn start(row: RunRow, head: RunHeadRow, steps: impl IntoIterator<Item = (StepSeq, StepWrite)>) -> Unit {
    let id = row.instance_id;
    let document = Write::Document { digest: DOCUMENT_DIGEST, bytes: DOCUMENT.to_vec() };
    let writes = vec![document, Write::Run(row), Write::NewRunHead(head)];
    Unit { steps: steps.into_iter().collect(), ..unit(id, 0, writes) }
}

/// A unit that leaves no record: it prolongs the leases of steps.
pub fn heartbeat(after: &Unit, beats: u64, steps: impl IntoIterator<Item = (StepSeq, StepWrite)>) -> Unit {
    Unit {
        expected_sequence: after.head.sequence,
        expected_beats: beats - 1,
        beats,
        steps: steps.into_iter().collect(),
        writes: vec![],
        records: vec![],
        idempotency: vec![],
        ..after.clone()
    }
}

pub fn key(id: InstanceId, name: &str) -> IdempotencyRow {
    IdempotencyRow {
        actor_ref: "ann".to_owned(),
        key: name.to_owned(),
        instance_id: id,
        request_digest: Digest([3; 32]),
        answer: "{}".to_owned(),
        expires_at: Time(i64::MAX),
    }
}
