//! Statement, request body and record say the same (`spec/record.md`, the table of 5.2).

use super::statement::{Signed, SignedOver};
use super::{Context, path, proposal, replay};
use crate::bytes::{Digest, Id, sha256};
use crate::finding::{Code, Findings};
use crate::json::{self, FaultKind, Value};
use crate::process::document::{Declaration, GateEntry, GateSpec};
use crate::record::{Action, Content, Header};
use crate::time;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// What stands before the key in a SubjectPublicKeyInfo: of a point of P-256, and of an Ed25519 key.
const P256_SPKI: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const ED25519_SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

pub(super) type Agreement = Result<(), String>;

pub fn check(
    header: &Header,
    content: &Content,
    signed: &Signed,
    context: &Context<'_>,
    findings: &mut Findings,
) -> Agreement {
    same_person(header, signed)?;
    let by_application = context.registry.is_application_actor(&header.actor_ref, context.at);
    if signed.signed_over == SignedOver::Payload && !by_application {
        return Err(format!("only the application actor signs payloads; this is by `{}`", header.actor_ref));
    }
    same_digest(header, content, signed)?;
    let merged = proposal::merged_by(header.action, content.payload.as_ref());
    same_place(header, signed, context, merged)?;
    let payload = content.payload.as_ref().unwrap_or(&Value::Null);
    if signed.signed_over == SignedOver::Payload {
        return own_record(header, payload, signed);
    }
    if header.action == Action::AttemptRefused {
        return equal("attempted", payload.text("attempted"), Some(signed.statement.action.as_str()));
    }
    let body = read_body(header, signed, findings)?;
    if let Some(merged) = merged {
        return proposal::same_merge(merged, signed);
    }
    if let Some(agreement) =
        context.is_proposal.then(|| proposal::same_request(header, payload, &body, signed)).flatten()
    {
        return agreement;
    }
    if let Some(agreement) = context.is_replay.then(|| replay::same_request(header, payload, &body, signed)).flatten() {
        return agreement;
    }
    same_request(header, payload, &body, signed, context)
}

fn same_person(header: &Header, signed: &Signed) -> Agreement {
    let statement = &signed.statement;
    equal("the statement's actor_ref", Some(statement.actor_ref.as_str()), Some(&*header.actor_ref))?;
    equal("the statement's key_id", Some(statement.key_id.as_str()), Some(signed.key_id.as_str()))?;
    let blank = |text: &String| text.trim().is_empty();
    if statement.action == "decide_gate" && statement.meaning.as_ref().is_none_or(blank) {
        return Err("a decision is signed without saying what the signature means".to_owned());
    }
    Ok(())
}

fn same_digest(header: &Header, content: &Content, signed: &Signed) -> Agreement {
    let digest = match (signed.signed_over, &signed.body) {
        (SignedOver::Body, Some(body)) => sha256(&[body]),
        (SignedOver::Payload, _) => content.payload_sha256,
        (SignedOver::Document, _) if header.action == Action::DefinitionPublished => {
            let stated = content.payload.as_ref().and_then(|payload| payload.text("digest"));
            stated.and_then(Digest::parse).ok_or("the payload states no digest of the document")?
        }
        _ => return Err(format!("`{}` cannot be signed over a document", header.action.as_str())),
    };
    if digest == signed.statement.body_digest {
        return Ok(());
    }
    Err(format!("the statement is over bytes with digest {}, these have {digest}", signed.statement.body_digest))
}

/// The same instance, and the position that the signer saw before.
fn same_place(header: &Header, signed: &Signed, context: &Context<'_>, merged: Option<Id>) -> Agreement {
    let (statement, command_first) = (&signed.statement, context.command_first);
    let expected = match header.action {
        Action::WorkflowStarted | Action::RunStarted | Action::StepsClaimed
            if signed.signed_over == SignedOver::Body =>
        {
            None
        }
        // The request that begins it opens its gate too.
        Action::GateOpened | Action::ChainInitiated if context.is_replay && signed.signed_over == SignedOver::Body => {
            None
        }
        Action::EventReceived if statement.instance_id.is_none() => None,
        Action::AttemptRefused if header.is_registry() || statement.instance_id.is_none() => statement.instance_id,
        // These name the record or the instance in their request.
        Action::EvidenceExported | Action::HoldPlaced | Action::HoldReleased | Action::RecordPurged
            if statement.instance_id.is_none() =>
        {
            None
        }
        _ if merged.is_some() => merged,
        _ if header.is_registry() => None,
        _ => Some(header.instance_id),
    };
    if statement.instance_id != expected {
        let show = |id: Option<crate::bytes::Id>| id.map_or("none".to_owned(), |id| id.to_string());
        return Err(format!(
            "the statement names the instance {}, expected {}",
            show(statement.instance_id),
            show(expected)
        ));
    }
    match statement.expected_sequence {
        // Of a merge it is the proposal's, whose own record of the merge says so.
        Some(seen) if merged.is_none() && u64::try_from(seen).ok().map(|seen| seen + 1) != Some(command_first) => {
            Err(format!(
                "the signer saw sequence {seen}, but the command begins with sequence {command_first} instead of {}",
                seen.saturating_add(1)
            ))
        }
        _ => Ok(()),
    }
}

/// A consequence that the engine itself records.
fn own_record(header: &Header, payload: &Value, signed: &Signed) -> Agreement {
    let statement = &signed.statement;
    equal("the statement's action", Some(statement.action.as_str()), Some(header.action.as_str()))?;
    equal("the statement's request", statement.request.as_deref(), None)?;
    same_step(payload, statement.step_id.map(|id| id.to_string()).as_deref())
}

fn same_step(payload: &Value, step_id: Option<&str>) -> Agreement {
    match step_id {
        None => Ok(()),
        Some(step_id) => equal("step_id", payload.text("step_id"), Some(step_id)),
    }
}

/// The request body as an object; an empty body is an empty object.
fn read_body(header: &Header, signed: &Signed, findings: &mut Findings) -> Result<Value, String> {
    let bytes = signed.body.as_deref().unwrap_or_default();
    if bytes.is_empty() {
        return Ok(Value::Object(vec![]));
    }
    match json::parse(bytes) {
        Ok(body @ Value::Object(_)) => Ok(body),
        Ok(other) => Err(format!("the request body is {}, not an object", other.kind())),
        Err(fault) if fault.kind == FaultKind::Syntax => Err(format!("the request body: {fault}")),
        Err(fault) => {
            findings.fault(&fault, Code::StatementMismatch, header, "request body");
            Err("the request body can be read in more than one way".to_owned())
        }
    }
}

fn same_request(header: &Header, payload: &Value, body: &Value, signed: &Signed, context: &Context<'_>) -> Agreement {
    let text = |name: &str| payload.text(name).unwrap_or_default();
    let instance = header.instance_id.to_string();
    let members = |names: &[&str]| same_members(payload, body, names);
    let asks = |action: &str, segments: &[&str]| same_route(signed, "POST", action, segments);
    let kind = if context.is_run { "runs" } else { "processes" };
    match header.action {
        action if action.is_run() => super::run::same_request(header, payload, body, signed),
        Action::WorkflowStarted => {
            asks("start_workflow", &["v1", "processes"])?;
            members(&["subject_ref", "reason"])?;
            same_start(payload, body, context)
        }
        Action::GateOpened | Action::ChainInitiated => {
            asks("open_gate", &["v1", kind, &instance, "gates"])?;
            if header.action == Action::ChainInitiated {
                return members(&["action"]);
            }
            members(&["action", "reason"])?;
            // What the opener does not say, the engine may.
            if body.given("request").is_some() { members(&["request"]) } else { Ok(()) }
        }
        Action::GateDecided
        | Action::StepApproved
        | Action::StepRejected
        | Action::StepWithdrawn
        | Action::ChainWithdrawn => {
            asks("decide_gate", &["v1", kind, &instance, "gates", text("action"), "decision"])?;
            same_decision(header.action, payload, body, signed)
        }
        Action::TransitionFired => {
            asks("fire_transition", &["v1", "processes", &instance, "transitions"])?;
            members(&["action", "reason"])
        }
        Action::EvidenceExported => same_route(signed, "GET", "export_evidence", &["v1", "ledger", "export"]),
        Action::HoldPlaced => {
            asks("place_hold", &["v1", "ledger", "holds"])?;
            members(&["record_ref", "reason", "case_ref"])
        }
        Action::HoldReleased => {
            asks("release_hold", &["v1", "ledger", "holds", text("hold_id"), "release"])?;
            members(&["reason"])
        }
        Action::RecordPurged => asks("purge_record", &["v1", "ledger", "records", text("event_id"), "purge"]),
        _ => same_registry_request(header.action, payload, body, signed),
    }
}

fn same_registry_request(action: Action, payload: &Value, body: &Value, signed: &Signed) -> Agreement {
    let text = |name: &str| payload.text(name).unwrap_or_default();
    let members = |names: &[&str]| same_members(payload, body, names);
    let asks = |action: &str, segments: &[&str]| same_route(signed, "POST", action, segments);
    let actor = text("actor_ref");
    match action {
        Action::ActorRegistered => {
            asks("register_actor", &["v1", "actors"])?;
            members(&["actor_ref", "kind", "display_name", "public_key"])
        }
        Action::CredentialIssued => asks("issue_credential", &["v1", "actors", actor, "tokens"]),
        Action::CredentialRevoked => {
            asks("revoke_credential", &["v1", "actors", actor, "tokens", text("credential_id"), "revoke"])
        }
        Action::KeyRegistered if payload.given("passkey").is_some() => {
            asks("register_key", &["v1", "me", "passkeys"])?;
            same_passkey(payload, body)
        }
        Action::KeyRegistered => {
            asks("register_key", &["v1", "actors", actor, "keys"])?;
            members(&["public_key"])
        }
        Action::KeyRevoked => asks("revoke_key", &["v1", "actors", actor, "keys", text("key_id"), "revoke"]),
        Action::GrantMade => {
            asks("grant", &["v1", "grants"])?;
            members(&["subject_ref", "action_scope"])
        }
        Action::GrantRevoked => asks("revoke", &["v1", "grants", text("grant_id"), "revoke"]),
        Action::DelegationMade => {
            asks("make_delegation", &["v1", "actors", text("delegator_ref"), "delegations"])?;
            members(&["delegate_ref", "scope", "reason"])?;
            same_instant("from", body, payload.int("from_us"))?;
            same_instant("until", body, payload.int("until_us"))
        }
        Action::DelegationRevoked => {
            let route = ["v1", "actors", text("delegator_ref"), "delegations", text("delegation_id")];
            same_route(signed, "DELETE", "revoke_delegation", &route)
        }
        Action::DefinitionRetired => {
            asks("retire_definition", &["v1", "definitions", text("name"), "retire"])?;
            members(&["reason"])
        }
        Action::SchedulePaused => {
            asks("pause_schedule", &["v1", "schedules", text("name"), "pause"])?;
            members(&["reason"])
        }
        Action::ScheduleResumed => {
            asks("resume_schedule", &["v1", "schedules", text("name"), "resume"])?;
            members(&["reason"])
        }
        Action::WorkerClassFrozen => {
            asks("freeze_workers", &["v1", "governance", "workers", text("worker_class"), "freeze"])?;
            members(&["reason"])
        }
        Action::WorkerClassThawed => {
            asks("thaw_workers", &["v1", "governance", "workers", text("worker_class"), "thaw"])?;
            members(&["reason"])
        }
        Action::DefinitionPublished if signed.signed_over == SignedOver::Document => {
            asks("publish_definition", &["v1", "definitions"])
        }
        _ => Err(format!("`{}` is not what a request of this actor leads to", action.as_str())),
    }
}

/// A time in the body, as text, and in the payload.
fn same_instant(name: &str, body: &Value, recorded: Option<i64>) -> Agreement {
    if recorded.is_some() && body.text(name).and_then(time::instant) == recorded {
        return Ok(());
    }
    Err(format!("asked for another time `{name}` than was recorded"))
}

/// The label and the credential in the body are those of the passkey that was registered.
fn same_passkey(payload: &Value, body: &Value) -> Agreement {
    let label = |value: Option<&Value>| value.and_then(|value| value.text("label")).map(str::to_owned);
    let passkey = payload.get("passkey");
    let credential = body.get("credential");
    let id = credential.and_then(|credential| credential.text("id"));
    let spki = credential.and_then(|credential| credential.get("response")?.text("publicKey"));
    let spki = spki.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    let prefix = match passkey.and_then(|passkey| passkey.text("algorithm")) {
        Some("ES256") => &P256_SPKI[..],
        _ => &ED25519_SPKI[..],
    };
    let key = payload.text("public_key").and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    let holds = label(Some(body)) == label(passkey)
        && id == passkey.and_then(|passkey| passkey.text("credential_id"))
        && spki == Some([prefix, &key].concat());
    if holds { Ok(()) } else { Err("the passkey of the signed body is not the one registered".to_owned()) }
}

pub(super) fn same_route(signed: &Signed, method: &str, action: &str, segments: &[&str]) -> Agreement {
    equal("the statement's action", Some(signed.statement.action.as_str()), Some(action))?;
    let request = signed.statement.request.as_deref();
    if request.is_some_and(|request| path::fits(request, method, segments)) {
        return Ok(());
    }
    Err(format!(
        "the statement is for the request `{}`, the record follows from `{method} /{}`",
        json::shortened(request.unwrap_or("none")),
        segments.join("/")
    ))
}

fn same_decision(action: Action, payload: &Value, body: &Value, signed: &Signed) -> Agreement {
    let decided = match action {
        Action::StepApproved => Some("approve"),
        Action::StepRejected => Some("reject"),
        Action::StepWithdrawn | Action::ChainWithdrawn => Some("withdraw"),
        _ => payload.text("decision"),
    };
    equal("decision", decided, body.text("decision"))?;
    same_members(payload, body, &["reason"])?;
    if action == Action::GateDecided && body.given("request_digest").is_some() {
        same_members(payload, body, &["request_digest"])?;
    }
    let in_body = body.given("step_id").map(|value| value.as_text().unwrap_or_default());
    same_step(payload, in_body)?;
    same_step(payload, signed.statement.step_id.map(|id| id.to_string()).as_deref())
}

fn same_start(payload: &Value, body: &Value, context: &Context<'_>) -> Agreement {
    let (asked, recorded) = (body.text("definition"), payload.text("definition"));
    let same_name = |recorded: &str, asked: &str| {
        recorded == asked || recorded.rsplit_once('@').is_some_and(|(name, _)| name == asked)
    };
    let inline = body.given("declaration");
    match (asked, recorded, inline) {
        (Some(asked), Some(recorded), None) if same_name(recorded, asked) => {}
        (None, None, Some(declaration)) => {
            let stored = context.documents.declaration(payload.text("declaration_digest").and_then(Digest::parse));
            if stored.is_some_and(|stored| Declaration::read(declaration).as_ref() != Ok(&*stored)) {
                return Err("the declaration that was asked for is not the document".to_owned());
            }
        }
        _ => {
            return Err(format!(
                "asked for the definition {}, recorded {}",
                asked.unwrap_or("none"),
                recorded.unwrap_or("none")
            ));
        }
    }
    same_gate_spec(payload, body, recorded, context)
}

/// Without a gate_spec of its own a start has the definition's; with one, that replaces the definition's by label.
fn same_gate_spec(payload: &Value, body: &Value, recorded: Option<&str>, context: &Context<'_>) -> Agreement {
    let digest = payload.text("gate_spec_digest").and_then(Digest::parse);
    let definition = recorded.and_then(|name| context.registry.definition(name, context.at));
    let replaced =
        body.given("gate_spec").is_some_and(|spec| spec.members().is_some_and(|members| !members.is_empty()));
    let stored = context.documents.gate_spec(digest);
    let as_it_is = definition.is_none_or(|definition| {
        let published = context.documents.published(definition.gate_spec_digest);
        let presets =
            published.zip(stored.as_ref()).is_some_and(|(published, spec)| published.replaced_in(spec).is_empty());
        Some(definition.gate_spec_digest) == digest || presets
    });
    if !replaced && !as_it_is {
        return Err("asked for the definition as it is, started with another gate_spec".to_owned());
    }
    let (Some(stored), Some(given)) = (stored, body.given("gate_spec")) else { return Ok(()) };
    let given = GateSpec::read(given).map_err(|problem| format!("the gate_spec that was asked for: {problem}"))?;
    let whole = recorded.is_some() || given.0.len() == stored.0.len();
    // Whether a substitute may be named is a definition's to say: a start need not repeat it.
    let same = |label: &String, entry: &GateEntry| {
        let stored = stored.0.get(label);
        let delegable = stored.is_some_and(|stored| stored.delegable) && recorded.is_some() || entry.delegable;
        stored == Some(&GateEntry { delegable, ..entry.clone() })
    };
    if whole && given.0.iter().all(|(label, entry)| same(label, entry)) {
        return Ok(());
    }
    Err("the gate_spec that was asked for is not the document".to_owned())
}

pub(super) fn same_members(payload: &Value, body: &Value, names: &[&str]) -> Agreement {
    for name in names {
        let (recorded, asked) = (payload.given(name), body.given(name));
        if recorded != asked {
            let show = |value: Option<&Value>| match value {
                None => "nothing".to_owned(),
                Some(Value::Text(text)) => format!("`{}`", json::shortened(text)),
                Some(other) => other.kind().to_owned(),
            };
            return Err(format!("asked for `{name}` {}, recorded {}", show(asked), show(recorded)));
        }
    }
    Ok(())
}

fn equal(what: &str, found: Option<&str>, expected: Option<&str>) -> Agreement {
    if found == expected {
        return Ok(());
    }
    let show = |text: Option<&str>| text.map_or("nothing".to_owned(), |text| format!("`{}`", json::shortened(text)));
    Err(format!("{what} is {}, expected {}", show(found), show(expected)))
}
