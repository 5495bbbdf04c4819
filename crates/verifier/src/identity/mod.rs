//! Who did it (`spec/record.md`, section 5): every record is by the actor it names, known at that time, under the class
//! it states, and says what that actor asked for.

mod agreement;
mod path;
mod run;
mod statement;

use crate::bytes::{Digest, Id, sha256};
use crate::finding::{Claim, Code, Findings, PASSKEY_UNVERIFIED};
use crate::json::{Fault, FaultKind, Value};
use crate::note;
use crate::process::document::Documents;
use crate::record::{Action, Assurance, Content, Header, Record, require_members, require_text};
use crate::registry::Registry;
use statement::{Signed, Statement};
use std::collections::HashSet;
use std::rc::Rc;

/// What a record is judged with.
pub struct Context<'a> {
    pub registry: &'a Registry,
    /// The registry record under which it counts: its `registry_seq`; for the very first command its own last record.
    pub at: u64,
    /// The first sequence of the command that wrote it.
    pub command_first: u64,
    pub documents: &'a Documents,
    /// It stands in the chain of a run.
    pub is_run: bool,
}

/// What a person put under their signature.
#[derive(Clone, Debug, Default)]
pub struct Signing {
    pub meaning: Option<String>,
}

/// Uses of nonces, which is all that one record's identity has to do with another's. Of what is past only a hash of
/// each is kept, so that a window of a million records fits into little memory.
#[derive(Debug, Default)]
pub struct Identity {
    used: HashSet<[u8; 16]>,
    /// Statements that several instances may share, and where each was found.
    shared: HashSet<[u8; 16]>,
    /// The command whose records are arriving: instance and time.
    command: Option<(Id, i64)>,
    /// What was signed in this command.
    uses: Vec<Use>,
    /// The last statement, signature and key that fitted.
    proven: Option<(Digest, [u8; 64], [u8; 32])>,
}

#[derive(Debug)]
struct Use {
    actor: Rc<str>,
    nonce: [u8; 16],
    statement: Digest,
}

impl Identity {
    pub fn check(&mut self, record: &Record, context: &Context<'_>, findings: &mut Findings) -> Signing {
        let header = &record.header;
        check_author(header, context, findings);
        check_assurance(header, context, findings);
        let Some(content) = &record.content else { return Signing::default() };
        findings.checked(Claim::Identity);
        let Some(attestation) = &content.attestation else { return Signing::default() };
        if attestation.text("class") != Some(header.assurance.as_str()) {
            let class = attestation.text("class").unwrap_or("nothing");
            let detail = format!("the header says `{}`, the attestation says `{class}`", header.assurance.as_str());
            findings.find(Code::AttestationInvalid, header, detail);
            return Signing::default();
        }
        match header.assurance {
            Assurance::ServerAttested => check_server_attested(header, attestation, context, findings),
            Assurance::ActorSigned => {
                check_registered(header, context, findings);
                return self.check_signed(header, content, attestation, context, findings);
            }
            Assurance::PasskeySigned => {
                check_registered(header, context, findings);
                check_passkey(header, attestation, findings);
            }
        }
        Signing::default()
    }

    fn check_signed(
        &mut self,
        header: &Header,
        content: &Content,
        attestation: &Value,
        context: &Context<'_>,
        findings: &mut Findings,
    ) -> Signing {
        let signed = match statement::read(attestation) {
            Ok(signed) => signed,
            Err(fault) => {
                findings.fault(&fault, Code::AttestationInvalid, header, "attestation");
                return Signing::default();
            }
        };
        let statement = sha256(&[&signed.statement_bytes]);
        self.check_key(header, content, &signed, statement, context, findings);
        if let Err(detail) = agreement::check(header, content, &signed, context, findings) {
            findings.find(Code::StatementMismatch, header, detail);
        }
        let own = context.registry.is_application_actor(&header.actor_ref, context.at);
        self.check_nonce(header, &signed.statement, statement, own, findings);
        Signing { meaning: signed.statement.meaning }
    }

    /// All records of a signer in one command carry one statement; no other command does, and none carries its nonce. The
    /// engine signs each of its own records.
    fn check_nonce(
        &mut self,
        header: &Header,
        said: &Statement,
        statement: Digest,
        own: bool,
        findings: &mut Findings,
    ) {
        let command = Some((header.instance_id, header.recorded_at_us));
        if self.command != command {
            self.command = command;
            self.uses.clear();
        }
        let nonce = sha256(&[header.actor_ref.as_bytes(), b"\0", said.nonce.as_bytes()]).short();
        let same_nonce = self.uses.iter().find(|earlier| earlier.nonce == nonce).map(|earlier| earlier.statement);
        if same_nonce == Some(statement) {
            return;
        }
        let fresh = self.used.insert(nonce);
        let again = !fresh && !self.is_shared(header, said, statement);
        if fresh {
            self.is_shared(header, said, statement);
        }
        if same_nonce.is_some() || again {
            let detail =
                format!("`{}` used the nonce {} in another statement or command before", header.actor_ref, said.nonce);
            findings.find(Code::NonceReused, header, detail);
        }
        if !own && self.uses.iter().any(|earlier| earlier.actor == header.actor_ref) {
            let detail = "another record of this command carries another statement of the same signer";
            findings.find(Code::StatementMismatch, header, detail);
        }
        self.uses.push(Use { actor: header.actor_ref.clone(), nonce, statement });
    }

    /// One request may move several runs: its statement then stands once in each of them.
    fn is_shared(&mut self, header: &Header, said: &Statement, statement: Digest) -> bool {
        if !matches!(said.action.as_str(), "dispatch_run" | "claim" | "receive_event") {
            return false;
        }
        let known = !self.shared.insert(statement.short());
        let place = sha256(&[&statement.0, header.instance_id.to_string().as_bytes()]).short();
        self.shared.insert(place) && known
    }

    fn check_key(
        &mut self,
        header: &Header,
        content: &Content,
        signed: &Signed,
        statement: Digest,
        context: &Context<'_>,
        findings: &mut Findings,
    ) {
        let (actor, key_id, at) = (&header.actor_ref, &signed.key_id, context.at);
        let own = registers_itself(header, signed, content, context).then_some(header.sequence);
        let Some(key) = context.registry.key(actor, key_id, own.unwrap_or(at)) else {
            let detail = format!("the key {key_id} was not a key of `{actor}` at registry record {at}");
            return findings.find(Code::ProofInvalid, header, detail);
        };
        if key.span.ended(at) {
            let until = key.span.until.unwrap_or_default();
            let detail =
                format!("the key {key_id} of `{actor}` was revoked by registry record {until}, at or before {at}");
            findings.find(Code::KeyRevoked, header, detail);
        }
        // Records of one command carry the same signature: it is computed once.
        let proof = (statement, signed.signature, key.public_key);
        if self.proven == Some(proof) {
            return;
        }
        if note::verifies(&key.public_key, &signed.statement_bytes, &signed.signature) {
            self.proven = Some(proof);
        } else {
            let detail = format!("the signature does not fit the statement and the key {key_id} of `{actor}`");
            findings.find(Code::ProofInvalid, header, detail);
        }
    }
}

/// Some records only the engine itself may write.
fn check_author(header: &Header, context: &Context<'_>, findings: &mut Findings) {
    let alone = matches!(
        header.action,
        Action::MootGateRecalled
            | Action::ChainResolved
            | Action::ConfigurationRecorded
            | Action::RunDispatched
            | Action::ChildWaiting
            | Action::ChildResumed
            | Action::ChildEnded
            | Action::TimePassed
            | Action::CompensationsListed
            | Action::GateFollowed
    );
    // A configuration may name a new application actor; the one before it says so.
    let at = if header.action == Action::ConfigurationRecorded { header.registry_seq } else { context.at };
    let bootstrap = context.registry.is_bootstrap(header);
    if (alone || bootstrap) && !context.registry.is_application_actor(&header.actor_ref, at) {
        let expected = context.registry.application_actor(at).unwrap_or("nobody");
        let what = if bootstrap { "the first command of the registry" } else { header.action.as_str() };
        let detail =
            format!("{what} is by the application actor `{expected}` alone, this is by `{}`", header.actor_ref);
        findings.find(Code::StatementMismatch, header, detail);
    }
}

fn check_assurance(header: &Header, context: &Context<'_>, findings: &mut Findings) {
    let decision = matches!(
        header.action,
        Action::GateDecided | Action::StepApproved | Action::StepRejected | Action::StepWithdrawn
    );
    if decision && header.assurance == Assurance::ServerAttested && context.registry.is_regulated(context.at) {
        let detail =
            "the registry says `regulated`: a decision has to be signed by its actor, this one is server_attested";
        findings.find(Code::AssuranceTooLow, header, detail);
    }
}

fn check_registered(header: &Header, context: &Context<'_>, findings: &mut Findings) {
    if context.registry.actor(&header.actor_ref, context.at).is_none() {
        let detail = format!("`{}` was not registered at registry record {}", header.actor_ref, context.at);
        findings.find(Code::ActorUnknown, header, detail);
    }
}

fn check_server_attested(header: &Header, attestation: &Value, context: &Context<'_>, findings: &mut Findings) {
    let form = require_members(attestation, &["v", "class", "credential_id"], &[]).and_then(|()| version(attestation));
    if let Err(fault) = form {
        return findings.fault(&fault, Code::AttestationInvalid, header, "attestation");
    }
    let credential = match attestation.get("credential_id") {
        Some(Value::Text(id)) => id,
        // Somebody who could not prove who they are was refused: nobody vouches for the name.
        Some(Value::Null) if header.is_registry() && header.action == Action::AttemptRefused => return,
        Some(Value::Null) => {
            return findings.find(Code::ProofInvalid, header, "no credential was presented: `credential_id` is null");
        }
        _ => return findings.find(Code::AttestationInvalid, header, "`credential_id` is neither text nor null"),
    };
    check_registered(header, context, findings);
    if context.registry.is_application_actor(&header.actor_ref, context.at) {
        findings.find(
            Code::ProofInvalid,
            header,
            "the application actor signs its records; this one is server_attested",
        );
        return;
    }
    let (actor, at) = (&header.actor_ref, context.at);
    match context.registry.credential(actor, credential, at) {
        Some(span) if !span.ended(at) => {}
        Some(_) => {
            let detail = format!("the credential {credential} of `{actor}` had been revoked at registry record {at}");
            findings.find(Code::ProofInvalid, header, detail);
        }
        None => {
            let detail = format!("`{actor}` had no credential {credential} at registry record {at}");
            findings.find(Code::ProofInvalid, header, detail);
        }
    }
}

/// A further node of the engine has no key but the one it registers for itself.
fn registers_itself(header: &Header, signed: &Signed, content: &Content, context: &Context<'_>) -> bool {
    let payload = content.payload.as_ref();
    let says = |name: &str, text: &str| payload.and_then(|payload| payload.text(name)) == Some(text);
    header.action == Action::KeyRegistered
        && context.registry.is_application_actor(&header.actor_ref, context.at)
        && says("actor_ref", &header.actor_ref)
        && says("key_id", &signed.key_id)
}

const PASSKEY_MEMBERS: [&str; 9] =
    ["v", "class", "key_id", "statement", "authenticator_data", "client_data_json", "signature", "signed_over", "body"];

/// Its form is checked; no route writes it yet, and no key of its kind can be registered.
fn check_passkey(header: &Header, attestation: &Value, findings: &mut Findings) {
    let form = require_members(attestation, &PASSKEY_MEMBERS, &[]).and_then(|()| version(attestation));
    let form = form.and_then(|()| require_text(attestation, "key_id").map(|_| ()));
    if let Err(fault) = form {
        return findings.fault(&fault, Code::AttestationInvalid, header, "attestation");
    }
    findings.unverifiable(Claim::Identity);
    let detail = "this record is signed with a passkey, which this verifier cannot check";
    findings.note(PASSKEY_UNVERIFIED, Some(header.event_id), detail);
}

fn version(attestation: &Value) -> Result<(), Fault> {
    match attestation.get("v") {
        Some(Value::Int(1)) => Ok(()),
        _ => Err(Fault { kind: FaultKind::Syntax, detail: "`v` is not 1".to_owned() }),
    }
}
