//! What a verifier can find (`spec/bundle.md`, section 3): codes, the claim that each one breaks, and the list in which
//! findings and notes are gathered.

use crate::bytes::Id;
use crate::json::{Fault, FaultKind};
use crate::record::Header;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    Integrity,
    Identity,
    ApprovalGated,
    DeclaredPath,
    Completeness,
    Coverage,
    Permission,
    Retention,
}

impl Claim {
    pub const ALL: &'static [Claim] = &[
        Claim::Integrity,
        Claim::Identity,
        Claim::ApprovalGated,
        Claim::DeclaredPath,
        Claim::Completeness,
        Claim::Coverage,
        Claim::Permission,
        Claim::Retention,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Claim::Integrity => "integrity",
            Claim::Identity => "identity",
            Claim::ApprovalGated => "1",
            Claim::DeclaredPath => "2",
            Claim::Completeness => "3",
            Claim::Coverage => "4",
            Claim::Permission => "5",
            Claim::Retention => "retention",
        }
    }

    /// The claim in plain words.
    pub const fn title(self) -> &'static str {
        match self {
            Claim::Integrity => "Nothing was changed, left out, inserted or put in another order since it was recorded",
            Claim::Identity => "Every record is by the actor it names, and says what that actor asked for",
            Claim::ApprovalGated => {
                "Every guarded transition fired on a genuine approval by the approvers named for it, each approval once"
            }
            Claim::DeclaredPath => "The process moved only along its declared path, and is where the records lead",
            Claim::Completeness => {
                "Stores and records say the same: nothing happened unrecorded, nothing recorded is missing"
            }
            Claim::Coverage => "Every pending approval lay in exactly one in-tray, and moot ones were withdrawn",
            Claim::Permission => "Whoever acted was permitted to do so at that time",
            Claim::Retention => "Content was destroyed only as retention rules and holds allow",
        }
    }

    /// What is counted as checked for it.
    pub const fn counted(self) -> &'static str {
        match self {
            Claim::Integrity => "records",
            Claim::Identity => "attestations",
            Claim::ApprovalGated => "guarded firings and decisions",
            Claim::DeclaredPath => "firings and documents",
            Claim::Completeness => "records and rows",
            Claim::Coverage => "approval steps and moot gates",
            Claim::Permission => "records that need a grant",
            Claim::Retention => "destroyed records and purges",
        }
    }
}

macro_rules! codes {
    ($($claim:ident { $($name:ident = $text:literal),* $(,)? })*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($($name,)*)* }

        impl Code {
            pub const ALL: &'static [Code] = &[$($(Code::$name,)*)*];

            pub const fn as_str(self) -> &'static str {
                match self { $($(Code::$name => $text,)*)* }
            }

            pub const fn claim(self) -> Claim {
                match self { $($(Code::$name => Claim::$claim,)*)* }
            }
        }
    };
}

codes! {
    Integrity {
        BundleForm = "bundle-form",
        DuplicateKey = "duplicate-key",
        NumberOutOfRange = "number-out-of-range",
        HeaderInvalid = "header-invalid",
        PayloadDigestMismatch = "payload-digest-mismatch",
        AttestationDigestMismatch = "attestation-digest-mismatch",
        SequenceGap = "sequence-gap",
        LinkBroken = "link-broken",
        TimeOrder = "time-order",
        CheckpointInvalid = "checkpoint-invalid",
        CheckpointKeyUnknown = "checkpoint-key-unknown",
        RotationInvalid = "rotation-invalid",
        WitnessQuorum = "witness-quorum",
        InclusionInvalid = "inclusion-invalid",
        LogOrder = "log-order",
        RegistryOrder = "registry-order",
        TailMissing = "tail-missing",
    }
    Identity {
        AttestationInvalid = "attestation-invalid",
        ActorUnknown = "attestation-actor-unknown-in-registry",
        ProofInvalid = "attestation-proof-invalid",
        KeyRevoked = "key-revoked",
        StatementMismatch = "statement-mismatch",
        NonceReused = "nonce-reused",
        PasskeyCounter = "passkey-counter",
        AssuranceTooLow = "assurance-too-low",
    }
    ApprovalGated {
        GateNotApproved = "gate-not-approved",
        WrongApprover = "wrong-approver",
        ApprovalReused = "approval-reused",
        UnguardedFiring = "unguarded-firing",
    }
    DeclaredPath {
        DocumentMismatch = "document-mismatch",
        UndeclaredTransition = "undeclared-transition",
        ReplayMismatch = "replay-mismatch",
        CompensationOrder = "compensation-order",
        RunbookViolation = "runbook-violation",
        GovernanceInvalid = "governance-invalid",
    }
    Completeness {
        RecordMissing = "record-missing",
        RowMissing = "row-missing",
        BindingInvalid = "binding-invalid",
        OutputMissing = "output-missing",
        InputMismatch = "input-mismatch",
    }
    Coverage {
        AssignmentCoverage = "assignment-coverage",
        MootInvalid = "moot-invalid",
    }
    Permission { PermissionNotHeld = "permission-not-held" }
    Retention { DestructionInvalid = "destruction-invalid" }
}

/// Where something was found: a record, an instance, or the bundle as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub event_id: Option<Id>,
    pub log_index: Option<u64>,
    pub instance_id: Option<Id>,
    pub record: Option<RecordPlace>,
}

/// How people find a record: its position in its chain, what was done, by whom and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    pub sequence: u64,
    pub action_ref: &'static str,
    pub actor_ref: String,
    pub recorded_at_us: i64,
}

impl Place {
    pub fn bundle() -> Self {
        Place::default()
    }

    pub fn line(log_index: u64) -> Self {
        Place { log_index: Some(log_index), ..Place::default() }
    }

    pub fn instance(instance_id: Id) -> Self {
        Place { instance_id: Some(instance_id), ..Place::default() }
    }
}

impl From<&Header> for Place {
    fn from(header: &Header) -> Self {
        Place {
            event_id: Some(header.event_id),
            log_index: Some(header.log_index),
            instance_id: Some(header.instance_id),
            record: Some(RecordPlace {
                sequence: header.sequence,
                action_ref: header.action.as_str(),
                actor_ref: header.actor_ref.to_string(),
                recorded_at_us: header.recorded_at_us,
            }),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub code: Code,
    pub place: Place,
    pub detail: String,
}

/// Worth knowing, and no fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub code: &'static str,
    pub event_id: Option<Id>,
    pub detail: String,
}

pub const PURGED: &str = "purged";
pub const PARTIALLY_PURGED: &str = "partially-purged-coverage";
pub const APPLICATION_KEY_ADDED: &str = "application-key-added";
pub const SERVER_KEY_ADDED: &str = "server-key-added";
pub const LOG_KEY_LOST: &str = "log-key-lost";
pub const CREDENTIAL_ADDED: &str = "credential-added-by-another";

/// A hostile bundle could cause any number of findings; so many of each claim, and so many notes, are kept.
const MOST_KEPT: usize = 1000;

/// Everything found so far.
#[derive(Debug, Default)]
pub struct Findings {
    findings: Vec<Finding>,
    notes: Vec<Note>,
    checked: [u64; 8],
    found: [u64; 8],
    notes_seen: u64,
    unverifiable: [bool; 8],
}

impl Findings {
    pub fn find(&mut self, code: Code, place: impl Into<Place>, detail: impl Into<String>) {
        let count = &mut self.found[code.claim() as usize];
        *count += 1;
        if *count <= MOST_KEPT as u64 {
            self.findings.push(Finding { code, place: place.into(), detail: detail.into() });
        }
    }

    /// What was found since the last time, and how many there were beyond what is kept. Notes are dropped.
    pub fn drain(&mut self) -> (Vec<Finding>, u64) {
        let taken = std::mem::take(self);
        let all: u64 = taken.found.iter().sum();
        let more = all.saturating_sub(taken.findings.len() as u64);
        (taken.findings, more)
    }

    /// A fault of strict JSON reading; `syntax` is the code for text that is not JSON at all.
    pub fn fault(&mut self, fault: &Fault, syntax: Code, place: impl Into<Place>, what: &str) {
        let code = match fault.kind {
            FaultKind::Syntax => syntax,
            FaultKind::DuplicateKey => Code::DuplicateKey,
            FaultKind::OutOfRange => Code::NumberOutOfRange,
        };
        self.find(code, place, format!("{what}: {fault}"));
    }

    pub fn checked(&mut self, claim: Claim) {
        self.checked[claim as usize] += 1;
    }

    pub fn note(&mut self, code: &'static str, event_id: Option<Id>, detail: impl Into<String>) {
        self.notes_seen += 1;
        if self.notes_seen <= MOST_KEPT as u64 {
            self.notes.push(Note { code, event_id, detail: detail.into() });
        }
    }

    /// The claim cannot be called verified any more, and is not refuted by this either.
    pub fn unverifiable(&mut self, claim: Claim) {
        self.unverifiable[claim as usize] = true;
    }

    pub fn is_unverifiable(&self, claim: Claim) -> bool {
        self.unverifiable[claim as usize]
    }

    pub fn count_checked(&self, claim: Claim) -> u64 {
        self.checked[claim as usize]
    }

    pub fn of(&self, claim: Claim) -> Vec<Finding> {
        let mut list: Vec<Finding> = self.findings.iter().filter(|f| f.code.claim() == claim).cloned().collect();
        let more = self.found[claim as usize].saturating_sub(list.len() as u64);
        if let (true, Some(last)) = (more > 0, list.last()) {
            let detail = format!("{more} more findings of this claim are not listed");
            list.push(Finding { code: last.code, place: Place::bundle(), detail });
        }
        list
    }

    pub fn notes(&self) -> Vec<Note> {
        let mut notes = self.notes.clone();
        let more = self.notes_seen.saturating_sub(notes.len() as u64);
        if let (true, Some(last)) = (more > 0, notes.last()) {
            let detail = format!("{more} more notes are not listed");
            notes.push(Note { code: last.code, event_id: None, detail });
        }
        notes
    }
}
