"""Headers and payloads (record.md 2 to 4)."""
from __future__ import annotations

import re
from typing import Optional

from . import run_model
from .found import Record, Report
from .texts import Fault, GOVERNANCE, Json, REGISTRY, check_form, parse_json, sha256

HEADER = ("v:one event_id:text instance_id:text sequence:int prev:hex action_ref:text actor_ref:text recorded_at_us:int registry_seq:int "
          "assurance:text retention:object payload_digest:hex attestation_digest:hex")
RETENTION = "policy_ref:text retention_until_us:int? purge_deadline_us:int?"
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_FOR = "on_behalf_of?:text delegation_id?:text assignment_id?:text"
_STEP = "instance_id:text chain_id:text step_id:text action:text decided_by:text reason?:text trailing:bool " + _FOR
_KEY_OR_TOKEN = "actor_ref:text credential_id:text"
_MARK = "name:text version:int reason?:text"
_GRANT = "grant_id:text subject_ref:text action_scope:text"
PAYLOADS = {
    **run_model.PAYLOADS,
    "workflow_started": "instance_id:text subject_ref:text initial_state:text definition?:text declaration_digest:hex gate_spec_digest:hex gate_spec_labels:texts replaced?:texts rules?:int reason?:text",
    "gate_opened": "instance_id:text action:text from_state:text guard:text step_id?:text assignment_id?:text approver_ref?:text chain_id?:text steps?:steps "
                   "scope:text submitter_ref:text supersedes?:text reason?:text",
    "gate_decided": "instance_id:text action:text step_id?:text chain_id?:text decision:text reason?:text " + _FOR,
    "transition_fired": "instance_id:text action:text from_state:text new_state:text transition_id:text sequence_number:int guarded:bool step_id?:text "
                        "chain_id?:text reason?:text effects?:list",
    "moot_gate_recalled": "instance_id:text moot_action:text from_state:text step_id?:text chain_id?:text moot_kind:text reason:text",
    "chain_initiated": "instance_id:text chain_id:text action:text subject_ref:text scope:text initiator_ref:text approver_set:texts quorum_rule:text m?:int steps:steps",
    "step_approved": _STEP, "step_rejected": _STEP, "step_withdrawn": _STEP,
    "chain_resolved": "instance_id:text chain_id:text action:text outcome:text recalled_step_ids:texts",
    "chain_withdrawn": "instance_id:text chain_id:text action:text reason:text recalled_step_ids:texts",
    "attempt_refused": "instance_id?:text attempted:text code:text detail:text",
    "evidence_exported": "instance_id:text through_sequence:int",
    "hold_placed": "hold_id:text record_ref:text instance_id:text reason:text case_ref?:text",
    "hold_released": "hold_id:text record_ref:text instance_id:text reason:text",
    "record_purged": "event_id:text instance_id:text sequence:int action_ref:text actor_ref:text record_hash:hex attestation_digest:hex policy_ref:text retention_until_us:int?",
    "actor_registered": "actor_ref:text kind:text display_name?:text public_key?:text key_id?:text credential_id?:text",
    "credential_issued": _KEY_OR_TOKEN, "credential_revoked": _KEY_OR_TOKEN,
    "key_registered": "actor_ref:text key_id:text public_key:text passkey?:object", "key_revoked": "actor_ref:text key_id:text reason?:text",
    "grant_made": _GRANT, "grant_revoked": _GRANT,
    "delegation_made": "delegation_id:text delegator_ref:text delegate_ref:text scope:text from_us:int until_us:int reason?:text",
    "delegation_revoked": "delegation_id:text delegator_ref:text delegate_ref:text scope:text",
    "definition_published": "name:text version:any digest:hex declaration_digest:hex gate_spec_digest:hex document_digest?:hex retention?:any publish?:object proposal?:object",
    "definition_retired": _MARK, "schedule_paused": _MARK, "schedule_resumed": _MARK,
    **dict.fromkeys(("worker_class_frozen", "worker_class_thawed"), "worker_class:text reason:text"),
    "configuration_recorded": "audit_trail_retention_policy:text? regulated:bool signatures?:signatures application_actor_ref:text server_actor_ref:text"}
GOVERNANCE_ONLY = {"condition_observed": "instance_id:text conditions:list", **dict.fromkeys(("problem_opened", "problem_resolved"), "instance_id:text problems:list"),
                   "dlq_replay_requested": "instance_id:text dlq_replay_request_id:text dead_letter_id:text key:text",
                   "dlq_replay_completed": "instance_id:text dlq_replay_request_id:text approval_id:text dead_letter_id:text outcome:text at_us:int detail:text event_id?:text"}
WINDOW_EXPORT = "after_us:int? before_us:int? instances:int heads_digest:hex"
REGISTRY_ONLY = set(list(PAYLOADS)[list(PAYLOADS).index("actor_registered"):])
PAYLOADS |= GOVERNANCE_ONLY
EITHER = {"hold_placed", "hold_released", "attempt_refused", "evidence_exported"}
APPLICATION_ONLY = {"moot_gate_recalled", "chain_resolved", "configuration_recorded"} | run_model.APPLICATION_ONLY | set(GOVERNANCE_ONLY)
DECIDED = ("step_approved", "step_rejected", "step_withdrawn")


def read_record(line: dict[str, Json], report: Report) -> Optional[Record]:
    """One record with its header checked; None where the header says nothing that can be relied on."""
    text, index = line["header"], line["log_index"]
    record_hash = sha256(b"\0" + text.encode())
    try:
        head = parse_json(text)
        check_header(head, text)
    except Fault as f:
        code = f.code if f.code in ("duplicate-key", "number-out-of-range") else "header-invalid"
        report.find(code, f"header: {f.detail}", log_index=index)
        return None
    r = Record(index, text, record_hash, head, line["proof"], line["payload"], line["attestation"], line["salt"])
    if len({line["payload"] is None, line["attestation"] is None, line["salt"] is None}) > 1:
        report.find("bundle-form", "payload, attestation and salt are not null together", r)
    for part, other in (("payload", r.payload_text), ("attestation", r.attestation_text)):
        if other is None or r.salt is None:
            continue
        if sha256(bytes.fromhex(r.salt) + other.encode()).hex() != head[part + "_digest"]:
            report.find(part + "-digest-mismatch", f"the {part} is not the one the header commits to", r)
        try:
            value = parse_json(other)
            if part == "payload":
                check_payload(r, value)
                r.payload = value
            elif not isinstance(value, dict):
                raise Fault("attestation-invalid", "the attestation is not an object")
            else:
                r.attestation = value
        except Fault as f:
            code = "attestation-invalid" if part == "attestation" and f.code == "bundle-form" else f.code
            report.find(code, f"{part}: {f.detail}", r)
    return r


def check_header(head: Json, text: str) -> None:
    check_form(head, HEADER, "header-invalid", "header")
    check_form(head["retention"], RETENTION, "header-invalid", "retention")
    if list(head) != [w.split(":")[0] for w in HEADER.split()] or list(head["retention"]) != [w.split(":")[0] for w in RETENTION.split()]:
        raise Fault("header-invalid", "members are not in their order")
    if re.search(r"\s", re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)):
        raise Fault("header-invalid", "insignificant white space")
    if not UUID7.match(head["event_id"]):
        raise Fault("header-invalid", f"event_id {head['event_id']!r} is not a UUIDv7")
    if head["sequence"] < 1 or head["registry_seq"] < 0:
        raise Fault("header-invalid", "sequence or registry_seq is below its first value")
    if head["assurance"] not in ("server_attested", "actor_signed", "passkey_signed"):
        raise Fault("header-invalid", f"assurance {head['assurance']!r}")
    action, registry, governance = head["action_ref"], head["instance_id"] == REGISTRY, head["instance_id"] == GOVERNANCE
    if action not in PAYLOADS or governance != (action in GOVERNANCE_ONLY) or (action not in EITHER and registry != (action in REGISTRY_ONLY)):
        raise Fault("header-invalid", f"action_ref {action!r} is not known, or not in this chain")


def check_payload(r: Record, value: Json) -> None:
    form = WINDOW_EXPORT if r.action == "evidence_exported" and r.instance == REGISTRY else PAYLOADS[r.action]
    check_form(value, form, "bundle-form", r.action, exact=False)
    if r.payload_text is not None and len(r.payload_text.encode()) > 65_536:
        raise Fault("bundle-form", "payload above 65,536 bytes")
    single = all(value.get(k) is not None for k in ("step_id", "assignment_id", "approver_ref"))
    quorum = all(value.get(k) is not None for k in ("chain_id", "steps"))
    if r.action == "gate_opened" and single == quorum:
        raise Fault("bundle-form", "gate_opened is neither of a single gate nor of a quorum")
    if len({value.get(k) is None for k in ("on_behalf_of", "delegation_id", "assignment_id")}) > 1 and (r.action == "gate_decided" or r.action in DECIDED):
        raise Fault("bundle-form", f"{r.action} says half of whom a substitute decided for")
    one_of = [value.get("step_id"), value.get("chain_id")]
    if r.action == "moot_gate_recalled" and one_of.count(None) != 1 or r.action == "gate_decided" and one_of.count(None) == 2:
        raise Fault("bundle-form", f"{r.action} does not name its gate")
