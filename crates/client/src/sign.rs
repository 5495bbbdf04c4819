//! Signing requests with an actor's own key: the statement says what is asked, of which instance, over which bytes, and what
//! the signature means. It travels in two headers beside the request.

use crate::error::Error;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// An actor's private key.
#[derive(Clone)]
pub struct ActorKey(Arc<SigningKey>);

impl ActorKey {
    pub fn generate() -> Result<Self, Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| Error::Unusable(format!("no key can be made: {error}")))?;
        Ok(ActorKey(Arc::new(SigningKey::from_bytes(&seed))))
    }

    /// From the base64 of its 32 secret bytes.
    pub fn from_base64(text: &str) -> Result<Self, Error> {
        let seed: Option<[u8; 32]> = BASE64_STANDARD.decode(text.trim()).ok().and_then(|bytes| bytes.try_into().ok());
        let seed = seed.ok_or_else(|| Error::Unusable("this is no key: the base64 of 32 bytes is expected".into()))?;
        Ok(ActorKey(Arc::new(SigningKey::from_bytes(&seed))))
    }

    /// The secret, for the file that keeps it.
    pub fn to_base64(&self) -> String {
        BASE64_STANDARD.encode(self.0.to_bytes())
    }

    pub fn public_key(&self) -> String {
        BASE64_STANDARD.encode(self.0.verifying_key().as_bytes())
    }

    /// The first 16 hex digits of the SHA-256 of the public key.
    pub fn key_id(&self) -> String {
        hex(&Sha256::digest(self.0.verifying_key().as_bytes())[..8])
    }
}

impl std::fmt::Debug for ActorKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ActorKey({})", self.key_id())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Who signs, and what the signature means where the request alone does not say it.
#[derive(Clone, Debug)]
pub struct Signing {
    pub actor_ref: String,
    pub key: ActorKey,
    pub meaning: Option<String>,
    /// Refuse where the instance has moved on from this record.
    pub expected_sequence: Option<u64>,
}

#[derive(Serialize)]
struct Statement<'a> {
    v: u32,
    action: &'a str,
    actor_ref: &'a str,
    key_id: String,
    request: String,
    instance_id: Option<&'a str>,
    step_id: Option<String>,
    body_digest: String,
    meaning: Option<String>,
    expected_sequence: Option<u64>,
    nonce: String,
    issued_at_us: u64,
}

/// The two headers of a signed request.
pub(crate) struct Headers {
    pub statement: String,
    pub signature: String,
}

impl Signing {
    /// `None` for requests that change nothing, which need no signature.
    pub(crate) fn sign(
        &self,
        method: &str,
        segments: &[&str],
        path: &str,
        body: &[u8],
        nonce: Option<&str>,
    ) -> Result<Option<Headers>, Error> {
        let Some((action, instance_id)) = operation(method, segments) else { return Ok(None) };
        let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| json.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        let (step_id, meaning) = match action {
            "decide_gate" => {
                (text("step_id"), Some(self.meaning.clone().unwrap_or_else(|| meaning_of(text("decision")))))
            }
            _ => (None, self.meaning.clone()),
        };
        let statement = Statement {
            v: 1,
            action,
            actor_ref: &self.actor_ref,
            key_id: self.key.key_id(),
            request: format!("{method} {path}"),
            instance_id,
            step_id,
            body_digest: hex(&Sha256::digest(body)),
            meaning,
            expected_sequence: self.expected_sequence,
            nonce: nonce.map_or_else(fresh_nonce, |nonce| Ok(nonce.to_owned()))?,
            issued_at_us: now_us(),
        };
        let statement = serde_json::to_vec(&statement)
            .map_err(|error| Error::Unusable(format!("the statement cannot be written: {error}")))?;
        let signature = self.key.0.sign(&statement).to_bytes();
        Ok(Some(Headers { statement: BASE64_STANDARD.encode(statement), signature: BASE64_STANDARD.encode(signature) }))
    }
}

fn meaning_of(decision: Option<String>) -> String {
    match decision.as_deref() {
        Some("approve") => "approval",
        Some("reject") => "rejection",
        Some("withdraw") => "withdrawal",
        _ => "decision",
    }
    .to_owned()
}

fn fresh_nonce() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::Unusable(format!("no nonce can be made: {error}")))?;
    Ok(hex(&bytes))
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The run that a task belongs to.
fn run_of(task_id: &str) -> Option<&str> {
    task_id.rsplit_once('.').map(|(run_id, _)| run_id)
}

/// What a statement calls the request for this address; `None` where it changes nothing and is not signed.
pub fn signed_action(method: &str, segments: &[&str]) -> Option<&'static str> {
    operation(method, segments).map(|(action, _)| action)
}

/// The parameter of a route's template (`/v1/tasks/{task_id}/wait`) that names the instance of the statement, beside the action.
/// Where it is a `task_id`, the instance is what comes before its last dot.
pub fn signed_template(method: &str, template: &str) -> Option<(&'static str, Option<String>)> {
    let template = template.replace("{task_id}", "{task_id}.1");
    let segments: Vec<&str> = template.split('/').skip(1).collect();
    let (action, instance) = operation(method, &segments)?;
    Some((action, instance.map(|name| name.trim_matches(['{', '}']).to_owned())))
}

/// What a route asks for, and of which instance.
fn operation<'a>(method: &str, path: &[&'a str]) -> Option<(&'static str, Option<&'a str>)> {
    let found = match (method, path.strip_prefix(&["v1"])?) {
        ("POST", ["processes"]) => ("start_workflow", None),
        ("POST", ["processes", id, "gates"]) => ("open_gate", Some(*id)),
        ("POST", ["processes", id, "gates", _, "decision"]) => ("decide_gate", Some(*id)),
        ("POST", ["processes", id, "transitions"]) => ("fire_transition", Some(*id)),
        ("POST", ["runs"]) => ("start_run", None),
        ("POST", ["runs", "trigger"]) => ("dispatch_run", None),
        ("POST", ["runs", id, "gates"]) => ("open_gate", Some(*id)),
        ("POST", ["runs", id, "gates", _, "decision"]) => ("decide_gate", Some(*id)),
        ("POST", ["runs", id, "cancel"]) => ("cancel_run", Some(*id)),
        ("POST", ["runs", id, "pause"]) => ("pause_run", Some(*id)),
        ("POST", ["runs", id, "resume"]) => ("resume_run", Some(*id)),
        ("POST", ["runs", id, "stop"]) => ("stop_run", Some(*id)),
        ("POST", ["runs", id, "void"]) => ("void_run", Some(*id)),
        ("POST", ["runs", id, "steps", _, act]) if step_act(act).is_some() => (step_act(act)?, Some(*id)),
        ("POST", ["runs", id, "steps", _, "declare-effect"]) => ("declare_effect", Some(*id)),
        ("POST", ["events"]) => ("receive_event", None),
        ("POST", ["queues", _, "claim"]) => ("claim", None),
        ("POST", ["queues", _, "leave"]) => ("leave_queue", None),
        ("POST", ["tasks", id, "complete"]) => ("complete", run_of(id)),
        ("POST", ["tasks", id, "wait"]) => ("wait", run_of(id)),
        ("POST", ["tasks", id, "retry"]) => ("retry", run_of(id)),
        ("POST", ["tasks", id, "dead"]) => ("dead", run_of(id)),
        ("POST", ["tasks", id, "cannot-complete"]) => ("cannot_complete", run_of(id)),
        ("POST", ["tasks", id, "block"]) => ("block", run_of(id)),
        ("POST", ["tasks", id, "heartbeat"]) => ("heartbeat", run_of(id)),
        ("POST", ["actors"]) => ("register_actor", None),
        ("POST", ["actors", _, "keys"]) | ("POST", ["me", "passkeys"]) => ("register_key", None),
        ("POST", ["actors", _, "keys", _, "revoke"]) => ("revoke_key", None),
        ("POST", ["actors", _, "tokens"]) => ("issue_credential", None),
        ("POST", ["actors", _, "tokens", _, "revoke"]) => ("revoke_credential", None),
        ("POST", ["actors", _, "delegations"]) => ("make_delegation", None),
        ("DELETE", ["actors", _, "delegations", _]) => ("revoke_delegation", None),
        ("POST", ["grants"]) => ("grant", None),
        ("POST", ["grants", _, "revoke"]) => ("revoke", None),
        ("POST", ["definitions"]) => ("publish_definition", None),
        ("POST", ["definitions", _, "retire"]) => ("retire_definition", None),
        ("POST", ["proposals"]) => ("propose", None),
        ("PUT", ["proposals", id]) => ("edit_proposal", Some(*id)),
        ("POST", ["proposals", id, "submit"]) => ("submit_proposal", Some(*id)),
        ("POST", ["proposals", id, "review"]) => ("review_proposal", Some(*id)),
        ("POST", ["proposals", id, "comments"]) => ("comment_proposal", Some(*id)),
        ("POST", ["proposals", id, "merge"]) => ("merge_proposal", Some(*id)),
        ("POST", ["proposals", id, "withdraw"]) => ("withdraw_proposal", Some(*id)),
        ("POST", ["schedules", _, "pause"]) => ("pause_schedule", None),
        ("POST", ["schedules", _, "resume"]) => ("resume_schedule", None),
        ("POST", ["schedules", _, "trigger"]) => ("start_run", None),
        ("POST", ["governance", "workers", _, "freeze"]) => ("freeze_workers", None),
        ("POST", ["governance", "workers", _, "thaw"]) => ("thaw_workers", None),
        ("POST", ["ledger", "holds"]) => ("place_hold", None),
        ("POST", ["ledger", "holds", _, "release"]) => ("release_hold", None),
        ("POST", ["ledger", "records", _, "purge"]) => ("purge_record", None),
        ("POST", ["ledger", "seal"]) => ("seal", None),
        ("POST", ["dead-letters", _, "replay-requests"]) => ("request_replay", None),
        ("GET", ["ledger", "export"]) => ("export_evidence", None),
        _ => return None,
    };
    Some(found)
}

/// An act on a step, as a statement names it.
fn step_act(act: &str) -> Option<&'static str> {
    Some(match act {
        "claim" => "claim_step",
        "release" => "release_step",
        "wait" => "wait_step",
        "block" => "block_step",
        "unblock" => "unblock_step",
        "complete" => "complete_step",
        "cannot-complete" => "cannot_complete_step",
        "escalate" => "escalate_step",
        "retry" => "retry_step",
        "block-escalate" => "escalate_block",
        "reopen" => "reopen_step",
        "extend-deadline" => "extend_deadline",
        "re-engage" => "reengage_step",
        "transition" => "transition_step",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signature, Verifier as _};

    #[test]
    fn a_decision_is_signed_with_its_meaning_over_its_bytes() {
        let key = ActorKey::from_base64(&BASE64_STANDARD.encode([7; 32])).expect("a key");
        let signing = Signing { actor_ref: "qp".into(), key, meaning: None, expected_sequence: Some(4) };
        let segments = ["v1", "processes", "i-1", "gates", "release", "decision"];
        let body = br#"{"decision":"approve","step_id":"s-1"}"#;
        let headers = signing.sign("POST", &segments, "/v1/processes/i-1/gates/release/decision", body, None);
        let headers = headers.expect("signed").expect("a decision is signed");
        let statement = BASE64_STANDARD.decode(headers.statement).expect("base64");
        let signature: [u8; 64] = BASE64_STANDARD.decode(headers.signature).expect("base64").try_into().expect("64");
        let signature = Signature::from_bytes(&signature);
        signing.key.0.verifying_key().verify(&statement, &signature).expect("it fits");
        let said: serde_json::Value = serde_json::from_slice(&statement).expect("JSON");
        assert_eq!(said["action"], "decide_gate");
        assert_eq!(said["instance_id"], "i-1");
        assert_eq!(said["step_id"], "s-1");
        assert_eq!(said["meaning"], "approval");
        assert_eq!(said["request"], "POST /v1/processes/i-1/gates/release/decision");
        assert_eq!(said["body_digest"], hex(&Sha256::digest(body)));
    }

    #[test]
    fn reading_is_not_signed() {
        let signing = Signing {
            actor_ref: "a".into(),
            key: ActorKey::generate().expect("a key"),
            meaning: None,
            expected_sequence: None,
        };
        assert!(signing.sign("GET", &["v1", "inbox"], "/v1/inbox", b"", None).expect("fine").is_none());
        assert!(signing.sign("POST", &["v1", "definitions", "validate"], "", b"", None).expect("fine").is_none());
    }

    #[test]
    fn a_key_hides_itself_in_messages() {
        let key = ActorKey::generate().expect("a key");
        assert!(!format!("{key:?}").contains(&key.to_base64()));
        assert!(ActorKey::from_base64("nonsense").is_err());
    }
}
