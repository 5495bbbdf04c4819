//! One record as it stands in `records.jsonl` (`spec/record.md`, sections 1 to 4): its header, read strictly, and its
//! content where it was not purged. Knows nothing of other records.

use crate::bytes::{Digest, GOVERNANCE, Id, REGISTRY, bytes32, sha256};
use crate::finding::{Code, Findings, Place};
use crate::form;
use crate::json::{self, Fault, FaultKind, Value};
use std::rc::Rc;

macro_rules! actions {
    ($($name:ident = $text:literal in $chain:ident),* $(,)?) => {
        /// What a record says was done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action { $($name,)* }

        impl Action {
            pub const ALL: &'static [Action] = &[$(Action::$name,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Action::$name => $text,)* }
            }

            /// In whose chain such a record stands.
            pub const fn chain(self) -> Chain {
                match self { $(Action::$name => Chain::$chain,)* }
            }
        }
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    Process,
    Registry,
    Governance,
    Either,
}

actions! {
    WorkflowStarted = "workflow_started" in Process,
    GateOpened = "gate_opened" in Process,
    GateDecided = "gate_decided" in Process,
    TransitionFired = "transition_fired" in Process,
    MootGateRecalled = "moot_gate_recalled" in Process,
    ChainInitiated = "chain_initiated" in Process,
    StepApproved = "step_approved" in Process,
    StepRejected = "step_rejected" in Process,
    StepWithdrawn = "step_withdrawn" in Process,
    ChainResolved = "chain_resolved" in Process,
    ChainWithdrawn = "chain_withdrawn" in Process,
    RunStarted = "run_started" in Process,
    RunDispatched = "run_dispatched" in Process,
    StepsClaimed = "steps_claimed" in Process,
    StepCompleted = "step_completed" in Process,
    StepWaiting = "step_waiting" in Process,
    StepRetried = "step_retried" in Process,
    StepFailed = "step_failed" in Process,
    ChildStarted = "child_started" in Process,
    ChildWaiting = "child_waiting" in Process,
    ChildResumed = "child_resumed" in Process,
    ChildEnded = "child_ended" in Process,
    EventReceived = "event_received" in Process,
    TimePassed = "time_passed" in Process,
    GateFollowed = "gate_followed" in Process,
    RunCancelled = "run_cancelled" in Process,
    RunPaused = "run_paused" in Process,
    RunResumed = "run_resumed" in Process,
    RunStopped = "run_stopped" in Process,
    RunVoided = "run_voided" in Process,
    StepUnblocked = "step_unblocked" in Process,
    EffectDeclared = "effect_declared" in Process,
    CompensationsListed = "compensations_listed" in Process,
    StepClaimed = "step_claimed" in Process,
    StepReleased = "step_released" in Process,
    StepBlocked = "step_blocked" in Process,
    StepCannotComplete = "step_cannot_complete" in Process,
    StepEscalated = "step_escalated" in Process,
    StepRetryOrdered = "step_retry_ordered" in Process,
    BlockEscalated = "block_escalated" in Process,
    StepReopened = "step_reopened" in Process,
    DeadlineExtended = "deadline_extended" in Process,
    StepReengaged = "step_reengaged" in Process,
    StepTransitioned = "step_transitioned" in Process,
    StepYielded = "step_yielded" in Process,
    PinsCaptured = "pins_captured" in Process,
    PinsSurveyed = "pins_surveyed" in Process,
    AttemptRefused = "attempt_refused" in Either,
    EvidenceExported = "evidence_exported" in Either,
    HoldPlaced = "hold_placed" in Either,
    HoldReleased = "hold_released" in Either,
    RecordPurged = "record_purged" in Process,
    ActorRegistered = "actor_registered" in Registry,
    CredentialIssued = "credential_issued" in Registry,
    CredentialRevoked = "credential_revoked" in Registry,
    KeyRegistered = "key_registered" in Registry,
    KeyRevoked = "key_revoked" in Registry,
    GrantMade = "grant_made" in Registry,
    GrantRevoked = "grant_revoked" in Registry,
    DelegationMade = "delegation_made" in Registry,
    DelegationRevoked = "delegation_revoked" in Registry,
    DefinitionPublished = "definition_published" in Registry,
    DefinitionRetired = "definition_retired" in Registry,
    SchedulePaused = "schedule_paused" in Registry,
    ScheduleResumed = "schedule_resumed" in Registry,
    WorkerClassFrozen = "worker_class_frozen" in Registry,
    WorkerClassThawed = "worker_class_thawed" in Registry,
    ConfigurationRecorded = "configuration_recorded" in Registry,
    ConditionObserved = "condition_observed" in Governance,
    ProblemOpened = "problem_opened" in Governance,
    ProblemResolved = "problem_resolved" in Governance,
    DlqReplayRequested = "dlq_replay_requested" in Governance,
    DlqReplayCompleted = "dlq_replay_completed" in Governance,
}

impl Action {
    /// A record of a run itself (`spec/run.md`, section 2); those of its gates are a process's too.
    pub const fn is_run(self) -> bool {
        matches!(
            self,
            Action::RunStarted
                | Action::RunDispatched
                | Action::StepsClaimed
                | Action::StepCompleted
                | Action::StepWaiting
                | Action::StepRetried
                | Action::StepFailed
                | Action::ChildStarted
                | Action::ChildWaiting
                | Action::ChildResumed
                | Action::ChildEnded
                | Action::EventReceived
                | Action::TimePassed
                | Action::GateFollowed
                | Action::RunCancelled
                | Action::RunPaused
                | Action::RunResumed
                | Action::RunStopped
                | Action::RunVoided
                | Action::StepUnblocked
                | Action::EffectDeclared
                | Action::CompensationsListed
                | Action::StepClaimed
                | Action::StepReleased
                | Action::StepBlocked
                | Action::StepCannotComplete
                | Action::StepEscalated
                | Action::StepRetryOrdered
                | Action::BlockEscalated
                | Action::StepReopened
                | Action::DeadlineExtended
                | Action::StepReengaged
                | Action::StepTransitioned
                | Action::StepYielded
                | Action::PinsCaptured
                | Action::PinsSurveyed
        )
    }

    pub fn parse(text: &str) -> Option<Action> {
        Action::ALL.iter().copied().find(|action| action.as_str() == text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assurance {
    ServerAttested,
    ActorSigned,
    PasskeySigned,
}

impl Assurance {
    pub const fn as_str(self) -> &'static str {
        match self {
            Assurance::ServerAttested => "server_attested",
            Assurance::ActorSigned => "actor_signed",
            Assurance::PasskeySigned => "passkey_signed",
        }
    }

    fn parse(text: &str) -> Option<Assurance> {
        [Assurance::ServerAttested, Assurance::ActorSigned, Assurance::PasskeySigned]
            .into_iter()
            .find(|assurance| assurance.as_str() == text)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Not of the header itself: the record's place in the log.
    pub log_index: u64,
    /// SHA-256(0x00 ‖ header): the leaf of the log's tree.
    pub record_hash: Digest,
    pub event_id: Id,
    pub instance_id: Id,
    pub sequence: u64,
    pub prev: Digest,
    pub action: Action,
    pub actor_ref: Rc<str>,
    pub recorded_at_us: i64,
    pub registry_seq: u64,
    pub assurance: Assurance,
    pub policy_ref: Rc<str>,
    pub retention_until_us: Option<i64>,
    pub payload_digest: Digest,
    pub attestation_digest: Digest,
}

impl Header {
    pub fn is_registry(&self) -> bool {
        self.instance_id == REGISTRY
    }

    pub fn is_governance(&self) -> bool {
        self.instance_id == GOVERNANCE
    }
}

/// A line of `records.jsonl`.
pub struct Line {
    pub log_index: u64,
    pub header: String,
    pub content: Option<RawContent>,
    pub proof: Vec<Digest>,
}

pub struct RawContent {
    pub payload: String,
    pub attestation: String,
    pub salt: [u8; 32],
}

/// What the record says and how its actor was known, as far as it is JSON.
pub struct Content {
    pub payload: Option<Value>,
    pub payload_sha256: Digest,
    /// Of what a gate asks, as it stands in the payload.
    pub request_sha256: Option<Digest>,
    pub attestation: Option<Value>,
}

pub struct Record {
    pub header: Header,
    /// None: it was purged.
    pub content: Option<Content>,
}

impl Record {
    /// The payload, where there is one that can be read.
    pub fn payload(&self) -> Option<&Value> {
        self.content.as_ref()?.payload.as_ref()
    }
}

/// Salted digest of a record's part.
fn salted(salt: &[u8; 32], part: &str) -> Digest {
    sha256(&[salt, part.as_bytes()])
}

const LINE_MEMBERS: [&str; 6] = ["log_index", "header", "payload", "attestation", "salt", "proof"];

pub fn parse_line(bytes: &[u8]) -> Result<Line, Fault> {
    let value = json::parse(bytes)?;
    require_members(&value, &LINE_MEMBERS, &[])?;
    let content = match (value.get("payload"), value.get("attestation"), value.get("salt")) {
        (Some(Value::Null), Some(Value::Null), Some(Value::Null)) => None,
        (Some(Value::Text(payload)), Some(Value::Text(attestation)), Some(Value::Text(salt))) => {
            let salt = bytes32(salt).ok_or_else(|| fault("`salt` is not 64 hex digits"))?;
            Some(RawContent { payload: payload.clone(), attestation: attestation.clone(), salt })
        }
        _ => return Err(fault("`payload`, `attestation` and `salt` are not three texts, nor null together")),
    };
    let proof = value.texts("proof").ok_or_else(|| fault("`proof` is not a list of texts"))?;
    let proof: Option<Vec<Digest>> = proof.into_iter().map(Digest::parse).collect();
    Ok(Line {
        log_index: natural(&value, "log_index")?,
        header: require_text(&value, "header")?.to_owned(),
        content,
        proof: proof.ok_or_else(|| fault("`proof` holds something else than 64 hex digits"))?,
    })
}

/// Reads the record of a line: header strictly, content against the header's digests.
pub fn read_record(line: &Line, findings: &mut Findings) -> Option<Record> {
    let header = match parse_header(&line.header, line.log_index) {
        Ok(header) => header,
        Err(fault) => {
            findings.fault(&fault, Code::HeaderInvalid, Place::line(line.log_index), "header");
            return None;
        }
    };
    let content = line.content.as_ref().map(|raw| read_content(raw, &header, findings));
    Some(Record { header, content })
}

fn read_content(raw: &RawContent, header: &Header, findings: &mut Findings) -> Content {
    let parts = [
        ("payload", &raw.payload, header.payload_digest, Code::PayloadDigestMismatch),
        ("attestation", &raw.attestation, header.attestation_digest, Code::AttestationDigestMismatch),
    ];
    for (name, text, expected, code) in parts {
        let found = salted(&raw.salt, text);
        if found != expected {
            let detail = format!("the header commits to a {name} with digest {expected}, the {name} here has {found}");
            findings.find(code, header, detail);
        }
    }
    // Values that workers and events bring may hold any number.
    let integers = !header.action.is_run() && header.action != Action::GateOpened;
    let mut object = |name: &str, text: &str, syntax: Code| match if integers || name != "payload" {
        json::parse_integers(text.as_bytes())
    } else {
        json::parse(text.as_bytes())
    } {
        Ok(value @ Value::Object(_)) => Some(value),
        Ok(other) => {
            findings.find(syntax, header, format!("the {name} is {}, not an object", other.kind()));
            None
        }
        Err(fault) => {
            findings.fault(&fault, syntax, header, name);
            None
        }
    };
    let payload = object("payload", &raw.payload, Code::BundleForm);
    let attestation = object("attestation", &raw.attestation, Code::AttestationInvalid);
    let request = (header.action == Action::GateOpened).then(|| json::member_text(&raw.payload, "request")).flatten();
    Content {
        request_sha256: request.map(|text| sha256(&[text.as_bytes()])),
        payload: payload.filter(|payload| has_form(payload, raw, header, findings)),
        payload_sha256: sha256(&[raw.payload.as_bytes()]),
        attestation,
    }
}

const MAX_PAYLOAD_BYTES: usize = 65_536;

/// A payload that lacks something says nothing.
fn has_form(payload: &Value, raw: &RawContent, header: &Header, findings: &mut Findings) -> bool {
    let checked = match form::check(payload, form::payload(header)) {
        Ok(()) if raw.payload.len() > MAX_PAYLOAD_BYTES => Err(fault("it is larger than 65,536 bytes")),
        checked => checked,
    };
    let Err(fault) = checked else { return true };
    findings.fault(&fault, Code::BundleForm, header, &format!("payload of `{}`", header.action.as_str()));
    false
}

const HEADER_MEMBERS: [&str; 13] = [
    "v",
    "event_id",
    "instance_id",
    "sequence",
    "prev",
    "action_ref",
    "actor_ref",
    "recorded_at_us",
    "registry_seq",
    "assurance",
    "retention",
    "payload_digest",
    "attestation_digest",
];

const RETENTION_MEMBERS: [&str; 3] = ["policy_ref", "retention_until_us", "purge_deadline_us"];

fn parse_header(text: &str, log_index: u64) -> Result<Header, Fault> {
    let value = json::parse_compact(text.as_bytes())?;
    require_order(&value, &HEADER_MEMBERS)?;
    if integer(&value, "v")? != 1 {
        return Err(fault("`v` is not 1"));
    }
    let retention = value.get("retention").unwrap_or(&Value::Null);
    require_order(retention, &RETENTION_MEMBERS)?;
    optional_integer(retention, "purge_deadline_us")?;
    let digest = |name| Digest::parse(require_text(&value, name)?).ok_or_else(|| not(name, "64 lower-case hex digits"));
    let id = |name| Id::parse(require_text(&value, name)?).ok_or_else(|| not(name, "a lower-case hyphenated UUID"));
    let event_id = id("event_id")?;
    if !event_id.is_version_7() {
        return Err(not("event_id", "a UUID of version 7"));
    }
    let header = Header {
        log_index,
        record_hash: sha256(&[&[0], text.as_bytes()]),
        event_id,
        instance_id: id("instance_id")?,
        sequence: natural(&value, "sequence")?,
        prev: digest("prev")?,
        action: Action::parse(require_text(&value, "action_ref")?)
            .ok_or_else(|| not("action_ref", "a known action"))?,
        actor_ref: require_text(&value, "actor_ref")?.into(),
        recorded_at_us: integer(&value, "recorded_at_us")?,
        registry_seq: natural(&value, "registry_seq")?,
        assurance: Assurance::parse(require_text(&value, "assurance")?)
            .ok_or_else(|| not("assurance", "a known class"))?,
        policy_ref: require_text(retention, "policy_ref")?.into(),
        retention_until_us: optional_integer(retention, "retention_until_us")?,
        payload_digest: digest("payload_digest")?,
        attestation_digest: digest("attestation_digest")?,
    };
    check_header(header)
}

fn check_header(header: Header) -> Result<Header, Fault> {
    if header.sequence == 0 {
        return Err(not("sequence", "1 or more"));
    }
    if header.actor_ref.is_empty() {
        return Err(not("actor_ref", "the name of an actor"));
    }
    let stands_in = |chain: &str| Err(fault(format!("`{}` stands in {chain} chain", header.action.as_str())));
    match (header.action.chain(), header.is_registry(), header.is_governance()) {
        (Chain::Process | Chain::Governance, true, _) => stands_in("the registry's"),
        (Chain::Process | Chain::Registry | Chain::Either, _, true) => stands_in("the governance"),
        (Chain::Registry | Chain::Governance, false, false) => stands_in("a process's"),
        _ => Ok(header),
    }
}

fn fault(detail: impl Into<String>) -> Fault {
    Fault { kind: FaultKind::Syntax, detail: detail.into() }
}

fn not(name: &str, wanted: &str) -> Fault {
    fault(format!("`{name}` is not {wanted}"))
}

/// Exactly these members, in any order; the optional ones may be absent.
pub fn require_members(value: &Value, members: &[&str], optional: &[&str]) -> Result<(), Fault> {
    let found = value.members().ok_or_else(|| fault(format!("{} where an object should be", value.kind())))?;
    if let Some(missing) = members.iter().find(|name| value.get(name).is_none()) {
        return Err(fault(format!("the member `{missing}` is missing")));
    }
    match found.iter().find(|(name, _)| !members.contains(&name.as_str()) && !optional.contains(&name.as_str())) {
        None => Ok(()),
        Some((name, _)) => Err(fault(format!("the member `{}` is unknown", json::shortened(name)))),
    }
}

fn require_order(value: &Value, members: &[&str]) -> Result<(), Fault> {
    require_members(value, members, &[])?;
    let found = value.members().unwrap_or_default();
    if found.iter().map(|(name, _)| name.as_str()).eq(members.iter().copied()) {
        return Ok(());
    }
    Err(fault("the members are not in the order of the format"))
}

pub fn require_text<'v>(value: &'v Value, name: &str) -> Result<&'v str, Fault> {
    value.text(name).ok_or_else(|| not(name, "text"))
}

pub fn integer(value: &Value, name: &str) -> Result<i64, Fault> {
    match value.get(name) {
        Some(Value::Int(number)) => Ok(*number),
        Some(Value::Number(text)) => {
            let detail = format!("`{name}` is {}, where an integer is asked", json::shortened(text));
            Err(Fault { kind: FaultKind::OutOfRange, detail })
        }
        _ => Err(not(name, "an integer")),
    }
}

pub fn natural(value: &Value, name: &str) -> Result<u64, Fault> {
    u64::try_from(integer(value, name)?).map_err(|_| not(name, "an integer from 0"))
}

pub fn optional_integer(value: &Value, name: &str) -> Result<Option<i64>, Fault> {
    match value.get(name) {
        Some(Value::Null) => Ok(None),
        _ => integer(value, name).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = concat!(
        r#"{"v":1,"event_id":"0192f0c1-2345-7abc-8def-0123456789ab","instance_id":"0192f0c1-2345-7abc-8def-0123456789aa","#,
        r#""sequence":2,"prev":"0000000000000000000000000000000000000000000000000000000000000000","action_ref":"gate_opened","#,
        r#""actor_ref":"a","recorded_at_us":7,"registry_seq":3,"assurance":"actor_signed","retention":{"policy_ref":"p","#,
        r#""retention_until_us":null,"purge_deadline_us":null},"payload_digest":"0000000000000000000000000000000000000000000000000000000000000000","#,
        r#""attestation_digest":"0000000000000000000000000000000000000000000000000000000000000000"}"#
    );

    #[test]
    fn a_header_is_read_strictly() {
        let header = parse_header(HEADER, 9).expect("a header");
        assert_eq!((header.sequence, header.registry_seq, header.log_index), (2, 3, 9));
        assert_eq!(header.record_hash, sha256(&[b"\0", HEADER.as_bytes()]));
        for (from, to) in [
            ("\"v\":1", "\"v\":2"),
            ("\"sequence\":2", "\"sequence\":0"),
            ("\"sequence\":2", "\"sequence\": 2"),
            ("\"sequence\":2", "\"sequence\":2,\"extra\":1"),
            ("\"v\":1,", ""),
            ("-7abc-8def-0123456789ab", "-4abc-8def-0123456789ab"),
            ("gate_opened", "gate_ajar"),
            ("gate_opened", "grant_made"),
            ("actor_signed", "trusted"),
            ("\"actor_ref\":\"a\"", "\"actor_ref\":\"\""),
            ("\"purge_deadline_us\":null", "\"purge_deadline_us\":\"x\""),
        ] {
            let fault = parse_header(&HEADER.replacen(from, to, 1), 9).expect_err(to);
            assert_eq!(fault.kind, FaultKind::Syntax, "{to}");
        }
        let kind = |from, to| parse_header(&HEADER.replacen(from, to, 1), 9).expect_err(to).kind;
        assert_eq!(kind("\"v\":1", "\"v\":1,\"v\":1"), FaultKind::DuplicateKey);
        assert_eq!(kind("\"recorded_at_us\":7", "\"recorded_at_us\":7e0"), FaultKind::OutOfRange);
        assert_eq!(kind("\"recorded_at_us\":7", "\"recorded_at_us\":9007199254740992"), FaultKind::OutOfRange);
    }

    #[test]
    fn members_have_one_order() {
        let swapped = HEADER.replacen("\"sequence\":2,", "", 1).replacen("\"v\":1,", "\"v\":1,\"sequence\":2,", 1);
        assert!(parse_header(&swapped, 0).is_err());
    }
}
