//! Who did it (`spec/record.md`, section 5): every record is by the actor it names, known at that time, under the class
//! it states, and says what that actor asked for.

mod agreement;
mod assurance;
mod passkey;
mod path;
mod proposal;
mod replay;
mod run;
mod statement;

use crate::bytes::{Digest, Id, sha256};
use crate::finding::{CREDENTIAL_ADDED, Claim, Code, Findings};
use crate::json::{Fault, FaultKind, Value};
use crate::note;
use crate::process::document::Documents;
use crate::record::{Action, Assurance, Content, Header, Record, require_members};
use crate::registry::{Key, Registry};
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
    /// It stands in the chain of a proposal.
    pub is_proposal: bool,
    /// It is in the chain of a request to replay a dead letter.
    pub is_replay: bool,
    /// A caller inside the server's process presents no credential. Never so in a bundle.
    pub in_process: bool,
}

/// What a person put under their signature.
#[derive(Clone, Debug, Default)]
pub struct Signing {
    pub meaning: Option<String>,
}

/// Uses of nonces and counters of passkeys, which is all that one record's identity has to do with another's. Of what is past only a hash of
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
    /// Keys and credentials of deciding actors that a note names already.
    noted: HashSet<(Rc<str>, String)>,
    counters: passkey::Counters,
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
        assurance::check(record, context, findings);
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
            Assurance::ServerAttested => {
                check_server_attested(header, attestation, context, findings);
                self.note_added(header, attestation.text("credential_id"), context, findings);
            }
            Assurance::ActorSigned => {
                check_registered(header, context, findings);
                self.note_added(header, attestation.text("key_id"), context, findings);
                return self.check_signed(header, content, attestation, context, findings);
            }
            Assurance::PasskeySigned => {
                check_registered(header, context, findings);
                self.note_added(header, attestation.text("key_id"), context, findings);
                return self.check_passkey(header, content, attestation, context, findings);
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
        let (signed, signature) = match statement::read(attestation) {
            Ok(read) => read,
            Err(fault) => {
                findings.fault(&fault, Code::AttestationInvalid, header, "attestation");
                return Signing::default();
            }
        };
        self.check_key(header, content, &signed, signature, context, findings);
        self.check_statement(header, content, signed, context, findings)
    }

    fn check_passkey(
        &mut self,
        header: &Header,
        content: &Content,
        attestation: &Value,
        context: &Context<'_>,
        findings: &mut Findings,
    ) -> Signing {
        let assertion = match passkey::read(attestation) {
            Ok(assertion) => assertion,
            Err(fault) => {
                findings.fault(&fault, Code::AttestationInvalid, header, "attestation");
                return Signing::default();
            }
        };
        let (actor, key_id, at) = (&header.actor_ref, &assertion.signed.key_id, context.at);
        let known = context.registry.key(actor, key_id, at);
        match known.and_then(|key| Some((key, key.passkey.as_ref()?))) {
            None => {
                let detail = format!("{key_id} was no passkey of `{actor}` at registry record {at}");
                findings.find(Code::ProofInvalid, header, detail);
            }
            Some((key, passkey)) => {
                check_not_revoked(key, header, context, findings);
                for problem in assertion.problems(passkey, &key.public_key) {
                    findings.find(Code::ProofInvalid, header, problem);
                }
                self.counters.take(header, &assertion);
            }
        }
        self.check_statement(header, content, assertion.signed, context, findings)
    }

    /// What has to wait for the last record.
    pub fn finish(&mut self, findings: &mut Findings) {
        self.counters.check(findings);
    }

    fn check_statement(
        &mut self,
        header: &Header,
        content: &Content,
        signed: Signed,
        context: &Context<'_>,
        findings: &mut Findings,
    ) -> Signing {
        let statement = sha256(&[&signed.statement_bytes]);
        if let Err(detail) = agreement::check(header, content, &signed, context, findings) {
            findings.find(Code::StatementMismatch, header, detail);
        }
        let own = context.registry.is_application_actor(&header.actor_ref, context.at);
        self.check_nonce(header, &signed.statement, statement, own, findings);
        Signing { meaning: signed.statement.meaning }
    }

    /// Who decided may be known by a key or token that another actor added: the auditor asks.
    fn note_added(&mut self, header: &Header, id: Option<&str>, context: &Context<'_>, findings: &mut Findings) {
        let (Action::GateDecided, Some(id)) = (header.action, id) else { return };
        let Some((by, sequence)) = context.registry.added_by_another(&header.actor_ref, id, context.at) else { return };
        if self.noted.insert((header.actor_ref.clone(), id.to_owned())) {
            let actor = &header.actor_ref;
            let detail = format!(
                "`{actor}` decided with the key or token {id}, which `{by}` added by registry record {sequence}"
            );
            findings.note(CREDENTIAL_ADDED, Some(header.event_id), detail);
        }
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

    /// One request may move several runs, and a merge publishes a version: its statement then stands once in each of them.
    fn is_shared(&mut self, header: &Header, said: &Statement, statement: Digest) -> bool {
        if !matches!(said.action.as_str(), "dispatch_run" | "claim" | "receive_event" | "merge_proposal") {
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
        signature: [u8; 64],
        context: &Context<'_>,
        findings: &mut Findings,
    ) {
        let (actor, key_id, at) = (&header.actor_ref, &signed.key_id, context.at);
        let own = registers_itself(header, signed, content, context).then_some(header.sequence);
        let Some(key) = context.registry.key(actor, key_id, own.unwrap_or(at)) else {
            let detail = format!("the key {key_id} was not a key of `{actor}` at registry record {at}");
            return findings.find(Code::ProofInvalid, header, detail);
        };
        check_not_revoked(key, header, context, findings);
        // A passkey signs no statement itself.
        let public_key = key.public_key.as_slice().try_into().ok().filter(|_| key.passkey.is_none());
        // Records of one command carry the same signature: it is computed once.
        let proof = (sha256(&[&signed.statement_bytes]), signature, public_key.unwrap_or_default());
        if public_key.is_some() && self.proven == Some(proof) {
            return;
        }
        if public_key.is_some_and(|key| note::verifies(&key, &signed.statement_bytes, &signature)) {
            self.proven = Some(proof);
        } else {
            let detail = format!("the signature does not fit the statement and the key {key_id} of `{actor}`");
            findings.find(Code::ProofInvalid, header, detail);
        }
    }
}

fn check_not_revoked(key: &Key, header: &Header, context: &Context<'_>, findings: &mut Findings) {
    if !key.span.ended(context.at) {
        return;
    }
    let (key_id, actor, at) = (&key.key_id, &header.actor_ref, context.at);
    let until = key.span.until.unwrap_or_default();
    let detail = format!("the key {key_id} of `{actor}` was revoked by registry record {until}, at or before {at}");
    findings.find(Code::KeyRevoked, header, detail);
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
            | Action::ConditionObserved
            | Action::DlqReplayRequested
            | Action::DlqReplayCompleted
            | Action::ProblemOpened
            | Action::ProblemResolved
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
        Some(Value::Null) if context.in_process => return,
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
    // A session that a passkey began.
    let passkey = context.registry.key(actor, credential, at).filter(|key| key.passkey.is_some()).map(|key| key.span);
    match context.registry.credential(actor, credential, at).or(passkey) {
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

fn version(attestation: &Value) -> Result<(), Fault> {
    match attestation.get("v") {
        Some(Value::Int(1)) => Ok(()),
        _ => Err(Fault { kind: FaultKind::Syntax, detail: "`v` is not 1".to_owned() }),
    }
}
