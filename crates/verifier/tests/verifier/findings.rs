//! Every finding code, each from a bundle that was valid but for one thing.

use crate::support::{Bundle, SCENARIOS, check, codes, vkey};
use countersign_verifier::finding::Code;
use countersign_verifier::{Outcome, Trust, VerifierKey};
use ed25519_dalek::SigningKey;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NOBODY: &str = "0192f0c1-2345-7abc-8def-0123456789ab";

#[test]
fn honest_bundles_pass() {
    for name in SCENARIOS {
        let mut bundle = Bundle::load(name);
        let trust = bundle.policy();
        let verdict = check(&bundle.naive(), &trust);
        assert!(verdict.passed(), "{name}: {:#?}", verdict.findings().collect::<Vec<_>>());
        assert!(verdict.claims.iter().all(|claim| claim.claim.as_str() == "retention" || claim.checked > 0), "{name}");
    }
}

#[test]
fn a_bundle_sealed_anew_passes_without_witnesses() {
    for name in SCENARIOS {
        let mut bundle = Bundle::load(name);
        let sealed = bundle.sealed();
        let verdict = check(&sealed, &bundle.trust());
        assert!(verdict.passed(), "{name}: {:#?}", verdict.findings().collect::<Vec<_>>());
    }
}

#[test]
fn further_keys_of_the_software_are_noted() {
    let mut bundle = Bundle::load("loop");
    let verdict = check(&bundle.naive(), &bundle.policy());
    let notes: BTreeSet<&str> = verdict.notes.iter().map(|note| note.code).collect();
    // The bundle is of the first edition, when a start could name any approver.
    assert_eq!(notes, BTreeSet::from(["application-key-added", "approvers-chosen-at-start", "server-key-added"]));
}

#[test]
fn approvers_that_a_start_named_are_noted_and_told() {
    let mut bundle = Bundle::load("replaced");
    let verdict = check(&bundle.naive(), &bundle.policy());
    assert!(verdict.passed());
    let notes: Vec<&str> = verdict.notes.iter().map(|note| note.detail.as_str()).collect();
    assert_eq!(notes, ["the initiator named the approvers of qc-board, qp-sign-off, spare"]);
}

#[test]
fn purged_content_makes_claims_unverifiable_and_no_more() {
    let mut bundle = Bundle::load("purge");
    let verdict = check(&bundle.naive(), &bundle.policy());
    let outcome = |name: &str| verdict.claims.iter().find(|claim| claim.claim.as_str() == name).unwrap().outcome;
    assert_eq!(outcome("integrity"), Outcome::Verified);
    assert_eq!(outcome("identity"), Outcome::Unverifiable);
    assert_eq!(outcome("1"), Outcome::Unverifiable);
    assert_eq!(outcome("retention"), Outcome::Verified);
    let notes: BTreeSet<&str> = verdict.notes.iter().map(|note| note.code).collect();
    assert_eq!(notes, BTreeSet::from(["purged", "partially-purged-coverage"]));
}

type Attack = fn(&mut Bundle);

/// Nothing is computed anew.
const NAIVE: &[(Code, &str, Attack)] = &[
    (Code::RotationInvalid, "rotated", |b| {
        let notes = String::from_utf8(b.files["rotations.jsonl"].clone()).unwrap();
        b.files.insert("rotations.jsonl".into(), notes.replacen("\\n26\\n", "\\n25\\n", 1).into());
    }),
    (Code::BundleForm, "release", |b| drop(b.files.remove("documents.jsonl"))),
    (Code::BundleForm, "release", |b| drop(b.files.insert("more".into(), vec![]))),
    (Code::BundleForm, "release", |b| b.manifest["records"] = json!(99)),
    (Code::BundleForm, "release", |b| b.records.swap(3, 4)),
    (Code::BundleForm, "loop", |b| b.records.sort_by_key(|r| r.log_index)),
    (Code::BundleForm, "window", |b| b.records.reverse()),
    (Code::BundleForm, "release", |b| b.state[0]["assignments"][0]["assignee_ref"] = json!(7)),
    (Code::BundleForm, "release", |b| b.state[0]["assignments"][0]["status"] = json!("Lost")),
    (Code::BundleForm, "release", |b| b.state[0]["approval_steps"][0]["state"] = json!(null)),
    (Code::NumberOutOfRange, "release", |b| b.manifest["made_at_us"] = json!(9_007_199_254_740_993_u64)),
    (Code::PayloadDigestMismatch, "release", |b| b.record("gate_decided", 0).payload["decision"] = json!("reject")),
    (Code::AttestationDigestMismatch, "release", |b| b.record("gate_decided", 0).attestation["key_id"] = json!("x")),
    (Code::SequenceGap, "release", |b| b.records.retain(|r| r.action() != "gate_opened")),
    (Code::LinkBroken, "release", |b| b.record("gate_decided", 0).head["prev"] = json!("0".repeat(64))),
    (Code::InclusionInvalid, "release", |b| b.record("gate_decided", 0).head["actor_ref"] = json!("ines")),
    (Code::TailMissing, "release", |b| {
        b.records.pop();
        b.manifest["records"] = json!(b.records.len());
    }),
    (Code::TailMissing, "window", |b| b.manifest["scope"]["after_us"] = json!(1)),
    (Code::DocumentMismatch, "release", |b| drop(b.documents.pop())),
    (Code::ReplayMismatch, "release", |b| b.state[0]["current_state"] = json!("elsewhere")),
    (Code::RecordMissing, "release", |b| {
        let mut row = b.state[0]["transitions"][0].clone();
        row["event_id"] = json!(NOBODY);
        b.state[0]["transitions"].as_array_mut().unwrap().push(row);
    }),
    (Code::RecordMissing, "release", |b| b.grants[0]["grant_id"] = json!(NOBODY)),
    (Code::RowMissing, "release", |b| drop(b.state[0]["transitions"].as_array_mut().unwrap().pop())),
    (Code::RowMissing, "release", |b| drop(b.grants.pop())),
    (Code::RowMissing, "release", |b| {
        b.state[0]["approval_steps"][0]["subject_ref"] = b.state[0]["subject_ref"].clone()
    }),
    (Code::RowMissing, "loop", |b| {
        let steps = b.state[0]["approval_steps"].as_array_mut().unwrap();
        let moot = steps.iter_mut().find(|s| s["ended_reason"].as_str().is_some_and(|r| r.starts_with("Gate moot")));
        moot.expect("a moot step")["ended_reason"] = json!("lunch");
    }),
    (Code::RowMissing, "window", |b| drop(b.state.pop())),
    (Code::RecordMissing, "window", |b| {
        let mut line = b.state[0].clone();
        line["instance_id"] = json!("00000000-0000-7000-8000-000000000001");
        b.state.insert(0, line);
    }),
    (Code::AssignmentCoverage, "release", |b| b.state[0]["assignments"][0]["status"] = json!("Active")),
    (Code::DestructionInvalid, "release", |b| {
        let record = b.record("gate_decided", 0);
        (record.payload, record.attestation) = (Value::Null, Value::Null);
    }),
];

/// The attacker has the database, the log's key and the application actor's.
const SEALED: &[(Code, &str, Attack)] = &[
    (Code::CompensationOrder, "run-saga", |b| {
        b.record("step_failed", 0).payload["compensations"] = json!([[4, 0], [5, 2]])
    }),
    (Code::RunbookViolation, "run-book", |b| {
        let checked = b.records.iter_mut().find(|r| r.action() == "step_completed" && r.payload["checks"].is_array());
        checked.unwrap().payload["checks"][0]["held"] = json!(false);
    }),
    (Code::OutputMissing, "run-saga", |b| b.record("step_completed", 0).payload["outputs"] = json!([])),
    (Code::GovernanceInvalid, "governed", |b| {
        b.record("problem_resolved", 0).payload["problems"][0]["event_id"] = json!(null);
    }),
    (Code::InputMismatch, "run-inputs", |b| b.record("steps_claimed", 0).payload["inputs"] = json!([])),
    (Code::UndeclaredTransition, "run-saga", |b| b.record("steps_claimed", 0).payload["transitions"] = json!([])),
    (Code::GateNotApproved, "run-gate", |b| b.record("gate_decided", 0).payload["decision"] = json!("reject")),
    (Code::HeaderInvalid, "release", |b| b.record("gate_decided", 0).head["v"] = json!(2)),
    (Code::NumberOutOfRange, "release", |b| b.record("transition_fired", 0).payload["sequence_number"] = json!(1.5)),
    (Code::BundleForm, "release", |b| {
        b.record("configuration_recorded", 0).payload["audit_trail_retention_policy"] = json!(7)
    }),
    (Code::BundleForm, "release", |b| b.record("actor_registered", 2).payload["display_name"] = json!(["x"])),
    (Code::TimeOrder, "release", |b| b.record("transition_fired", 1).head["recorded_at_us"] = json!(1)),
    (Code::LogOrder, "release", |b| {
        let (first, second) = (b.record("gate_opened", 0).log_index, b.record("gate_decided", 0).log_index);
        b.record("gate_opened", 0).log_index = second;
        b.record("gate_decided", 0).log_index = first;
    }),
    (Code::RegistryOrder, "release", |b| b.record("gate_decided", 0).head["registry_seq"] = json!(3)),
    (Code::TailMissing, "release", |b| b.record("evidence_exported", 0).payload["through_sequence"] = json!(1)),
    (Code::AttestationInvalid, "release", |b| b.record("gate_decided", 0).attestation["v"] = json!(2)),
    (Code::ActorUnknown, "release", |b| b.record("gate_decided", 0).head["actor_ref"] = json!("ghost")),
    (Code::ProofInvalid, "release", |b| {
        let other = b.record("gate_opened", 0).attestation["signature"].clone();
        b.record("gate_decided", 0).attestation["signature"] = other;
    }),
    (Code::KeyRevoked, "purge", |b| {
        let actor = b.record("key_revoked", 0).payload["actor_ref"].clone();
        let index = b.record("key_revoked", 0).log_index;
        let later = b.records.iter().find(|r| r.log_index > index && r.head["actor_ref"] == actor);
        let key_id = later.expect("a later record").attestation["key_id"].clone();
        b.record("key_revoked", 0).payload["key_id"] = key_id;
    }),
    (Code::StatementMismatch, "release", |b| b.record("gate_decided", 0).payload["reason"] = json!("because")),
    (Code::StatementMismatch, "quorum", |b| {
        let by = b.record("gate_opened", 0).head["actor_ref"].clone();
        b.record("chain_resolved", 0).head["actor_ref"] = by;
    }),
    (Code::NonceReused, "release", |b| {
        let first = b.record("transition_fired", 0).attestation.clone();
        b.record("transition_fired", 1).attestation = first;
    }),
    (Code::AssuranceTooLow, "release", |b| {
        let record = b.record("gate_decided", 0);
        record.head["assurance"] = json!("server_attested");
        record.attestation = json!({"v": 1, "class": "server_attested", "credential_id": "0000000000000000"});
    }),
    (Code::GateNotApproved, "release", |b| b.guarded(0).payload["step_id"] = json!(NOBODY)),
    (Code::GateNotApproved, "quorum", |b| b.record("chain_resolved", 0).payload["outcome"] = json!("Rejected")),
    (Code::WrongApprover, "release", |b| b.record("gate_opened", 0).payload["approver_ref"] = json!("ines")),
    (Code::WrongApprover, "release", |b| b.record("gate_opened", 0).payload["scope"] = json!("anything")),
    (Code::WrongApprover, "quorum", |b| b.record("chain_initiated", 0).payload["m"] = json!(1)),
    (Code::ApprovalReused, "loop", |b| {
        let first = b.guarded(0).payload.clone();
        let second = &mut b.guarded(1).payload;
        for name in ["step_id", "chain_id"] {
            second.as_object_mut().unwrap().shift_remove(name);
            if let Some(id) = first.get(name) {
                second[name] = id.clone();
            }
        }
    }),
    (Code::UnguardedFiring, "release", |b| {
        let payload = &mut b.guarded(0).payload;
        payload["guarded"] = json!(false);
        payload.as_object_mut().unwrap().shift_remove("step_id");
    }),
    (Code::UndeclaredTransition, "release", |b| b.record("transition_fired", 0).payload["new_state"] = json!("moon")),
    (Code::UndeclaredTransition, "release", |b| b.record("transition_fired", 1).payload["sequence_number"] = json!(7)),
    (Code::DocumentMismatch, "release", |b| b.record("workflow_started", 0).payload["initial_state"] = json!("moon")),
    (Code::BindingInvalid, "release", |b| b.record("gate_opened", 0).payload["from_state"] = json!("moon")),
    (Code::BindingInvalid, "release", |b| b.record("gate_decided", 0).payload["step_id"] = json!(NOBODY)),
    (Code::MootInvalid, "loop", |b| {
        b.record("moot_gate_recalled", 0).payload["moot_kind"] = json!("approved-unconsumed")
    }),
    (Code::PermissionNotHeld, "release", |b| {
        let fired = b.record("transition_fired", 0).head["actor_ref"].clone();
        for record in b.records.iter_mut().filter(|r| r.action() == "grant_made" && r.payload["subject_ref"] == fired) {
            record.payload["action_scope"] = json!("tea:drink");
        }
    }),
    (Code::DestructionInvalid, "purge", |b| {
        b.record("record_purged", 0).payload["record_hash"] = json!("0".repeat(64))
    }),
    (Code::DestructionInvalid, "purge", |b| b.record("record_purged", 0).head["recorded_at_us"] = json!(1)),
    (Code::DestructionInvalid, "purge", |b| {
        let record = b.record("record_purged", 0);
        (record.payload, record.attestation) = (Value::Null, Value::Null);
    }),
    (Code::WrongApprover, "loop", |b| {
        let app = b.keys["application"]["actor_ref"].clone();
        let withdrawn = |r: &&mut crate::support::Record| r.action() == "step_withdrawn" && r.head["actor_ref"] == app;
        b.records.iter_mut().find(withdrawn).expect("a withdrawal of the engine's").payload["decided_by"] = app.clone();
    }),
];

#[test]
fn what_a_clumsy_hand_does_is_found() {
    for (code, name, attack) in NAIVE {
        let mut bundle = Bundle::load(name);
        let trust = bundle.policy();
        attack(&mut bundle);
        let found = codes(&check(&bundle.naive(), &trust)).into_iter().collect::<Vec<_>>();
        assert!(found.contains(&code.as_str()), "{} in {name}: found {found:?}", code.as_str());
    }
}

#[test]
fn what_an_insider_does_is_found() {
    for (code, name, attack) in SEALED {
        let mut bundle = Bundle::load(name);
        attack(&mut bundle);
        let found = codes(&check(&bundle.sealed(), &bundle.trust())).into_iter().collect::<Vec<_>>();
        assert!(found.contains(&code.as_str()), "{} in {name}: found {found:?}", code.as_str());
    }
}

#[test]
fn a_member_that_stands_twice_is_found() {
    let mut bundle = Bundle::load("release");
    bundle.naive();
    let state = String::from_utf8(bundle.files["state.jsonl"].clone()).unwrap();
    bundle
        .files
        .insert("state.jsonl".into(), state.replacen("{\"step_id\":", "{\"state\":\"Pending\",\"step_id\":", 1).into());
    let files = bundle.files.clone();
    let bytes = crate::support::zip_up(&files);
    assert!(codes(&check(&bytes, &bundle.policy())).contains("duplicate-key"));
}

#[test]
fn a_checkpoint_counts_only_by_a_trusted_key_of_the_server() {
    let mut bundle = Bundle::load("release");
    let other = SigningKey::from_bytes(&[7; 32]);
    let key = VerifierKey::parse(&vkey(bundle.manifest["origin"].as_str().unwrap(), &other)).unwrap();
    let only_other = Trust::of_keys(vec![key]);
    assert!(codes(&check(&bundle.naive(), &only_other)).contains("checkpoint-invalid"));
    bundle.log = other;
    let sealed = bundle.sealed();
    assert_eq!(codes(&check(&sealed, &only_other)).into_iter().collect::<Vec<_>>(), ["checkpoint-key-unknown"]);
}

#[test]
fn a_policy_asks_for_its_witnesses() {
    let mut bundle = Bundle::load("release");
    let sealed = bundle.sealed();
    let found = codes(&check(&sealed, &bundle.policy()));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["witness-quorum"], "resealed without the witnesses");
}

#[test]
fn a_key_that_is_no_passkey_signs_nothing_as_one() {
    let mut bundle = Bundle::load("release");
    let record = bundle.record("gate_decided", 0);
    record.head["assurance"] = json!("passkey_signed");
    record.attestation["class"] = json!("passkey_signed");
    record.attestation["authenticator_data"] = json!("A".repeat(52));
    // {"type":"webauthn.get","challenge":"","origin":""}
    record.attestation["client_data_json"] =
        json!("eyJ0eXBlIjoid2ViYXV0aG4uZ2V0IiwiY2hhbGxlbmdlIjoiIiwib3JpZ2luIjoiIn0=");
    let found = codes(&check(&bundle.sealed(), &bundle.trust()));
    assert!(found.contains("attestation-proof-invalid"), "{found:?}");
    bundle.record("gate_decided", 0).attestation["authenticator_data"] = json!("");
    let found = codes(&check(&bundle.sealed(), &bundle.trust()));
    assert!(found.contains("attestation-invalid"), "{found:?}");
}

/// Together, the attacks of this file lead to every code there is. Passkeys and governance are attacked in `spec/vectors/attacks`.
#[test]
fn every_code_is_attacked() {
    let elsewhere = [
        Code::DuplicateKey,
        Code::CheckpointInvalid,
        Code::CheckpointKeyUnknown,
        Code::WitnessQuorum,
        Code::PasskeyCounter,
        Code::GovernanceInvalid,
    ];
    let tabled = NAIVE.iter().chain(SEALED).map(|(code, _, _)| *code);
    let attacked: BTreeSet<Code> = tabled.chain(elsewhere).collect();
    let without: Vec<&str> =
        Code::ALL.iter().filter(|code| !attacked.contains(code)).map(|code| code.as_str()).collect();
    assert!(without.is_empty(), "no attack leads to {without:?}");
}
