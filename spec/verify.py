#!/usr/bin/env python3
"""A second verifier for evidence bundles, written from record.md, checkpoint.md, bundle.md and (verify_run.py) run.md alone.

    python3 spec/verify.py evidence.zip --key VKEY [--policy FILE] [--json]

Exit status 0: passed; 1: findings; 2: the bundle or the arguments could not be read. It needs Python 3.10 or later and the one
package of requirements.txt, for Ed25519 signatures. It shares no code with the engine. The order is that of the specification:
JSON, the bundle's files, headers and chains, checkpoint and tree, registry, identity, replay (claims 1 to 4), permission (5),
retention, questions.
"""
from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import json
import re
import sys
import urllib.parse
import zipfile
import zlib
from dataclasses import dataclass, field
from typing import Any, Iterable, Optional

import verify_run
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

REGISTRY = "00000000-0000-0000-0000-000000000000"
MAX_INT = 2**53 - 1
Json = Any

TITLES = {"integrity": "Records, chains, log and checkpoint are whole", "identity": "Every record is by whom it names",
          "1": "Approval-gated: no guarded transition without its approval", "2": "Declared path: only declared transitions, in order",
          "3": "Completeness: records and stores say the same", "4": "Coverage: every open approval is with its approver",
          "5": "Permission: every actor held the scope needed", "retention": "Nothing was destroyed before its time"}
CODES = {"integrity": ["bundle-form", "duplicate-key", "number-out-of-range", "header-invalid", "payload-digest-mismatch",
                       "attestation-digest-mismatch", "sequence-gap", "link-broken", "time-order", "checkpoint-invalid",
                       "checkpoint-key-unknown", "witness-quorum", "inclusion-invalid", "log-order", "registry-order", "tail-missing"],
         "identity": ["attestation-invalid", "attestation-actor-unknown-in-registry", "attestation-proof-invalid", "key-revoked",
                      "statement-mismatch", "nonce-reused", "assurance-too-low"],
         "1": ["gate-not-approved", "wrong-approver", "approval-reused", "unguarded-firing"],
         "2": ["document-mismatch", "undeclared-transition", "replay-mismatch", "compensation-order"],
         "3": ["record-missing", "row-missing", "binding-invalid", "output-missing"],
         "4": ["assignment-coverage", "moot-invalid"],
         "5": ["permission-not-held"],
         "retention": ["destruction-invalid"]}
CLAIM_OF = {code: claim for claim, codes in CODES.items() for code in codes}


class Unreadable(Exception):
    """The bundle or an argument cannot be read at all: exit status 2."""


class Fault(Exception):
    """A fault in one text: its code and what is wrong."""

    def __init__(self, code: str, detail: str):
        super().__init__(detail)
        self.code, self.detail = code, detail


# ================================================================================================ strict JSON (record.md 7)
def parse_json(text: str) -> Json:
    """RFC 8259, and no text that two readers could take for different values."""
    def pairs(items: list[tuple[str, Json]]) -> dict[str, Json]:
        out: dict[str, Json] = {}
        for name, value in items:
            if name in out:
                raise Fault("duplicate-key", f"member {name!r} appears twice")
            out[name] = value
        return out

    def integer(digits: str) -> int:
        if len(digits) > 17 or abs(int(digits)) > MAX_INT:
            raise Fault("number-out-of-range", f"integer {digits[:40]} is beyond 2^53 - 1")
        return int(digits)

    def fraction(digits: str) -> float:
        if float(digits) in (float("inf"), float("-inf")):
            raise Fault("number-out-of-range", f"number {digits[:40]} is not finite")
        return float(digits)

    def constant(name: str) -> Json:
        raise Fault("bundle-form", f"{name} is not JSON")

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_int=integer, parse_float=fraction, parse_constant=constant)
        check_texts(value)
    except (ValueError, RecursionError) as e:
        raise Fault("bundle-form", f"not JSON: {e}") from e
    return value


def check_texts(value: Json, depth: int = 0) -> None:
    if depth > 100:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        value.encode("utf-8")  # a lone surrogate raises ValueError
        if "\0" in value:
            raise ValueError("text with U+0000")
    elif isinstance(value, list):
        for v in value:
            check_texts(v, depth + 1)
    elif isinstance(value, dict):
        for k, v in value.items():
            check_texts(k)
            check_texts(v, depth + 1)


def same(a: Json, b: Json) -> bool:
    """Equal as JSON values: true is not 1, and the order of members does not matter."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


HEX64 = re.compile(r"[0-9a-f]{64}\Z")
TYPES = {"text": lambda v: isinstance(v, str), "int": lambda v: type(v) is int, "bool": lambda v: isinstance(v, bool),
         "hex": lambda v: isinstance(v, str) and HEX64.match(v) is not None, "list": lambda v: isinstance(v, list),
         "object": lambda v: isinstance(v, dict), "any": lambda v: v is not None, "one": lambda v: type(v) is int and v == 1,
         "state": lambda v: v in ("Pending", "Approved", "Rejected", "Withdrawn"), "fate": lambda v: v in ("unspent", "consumed", "mooted"),
         "status": lambda v: v in ("Active", "Recalled", "Transferred"), "rule": lambda v: v in ("all-of-n", "one-of-n", "m-of-n"),
         "texts": lambda v: isinstance(v, list) and all(isinstance(x, str) for x in v),
         "steps": lambda v: isinstance(v, list) and all(isinstance(x, dict) and all(
             isinstance(x.get(k), str) for k in ("step_id", "assignment_id", "approver_ref")) for x in v)}


def check_form(value: Json, form: str, code: str, what: str, exact: bool = True) -> None:
    """`form` lists members as name:type; a ? after the type allows null, a ? after the name allows absence as well."""
    if not isinstance(value, dict):
        raise Fault(code, f"{what} is not an object")
    known = set()
    for word in form.split():
        name, kind = word.split(":")
        optional, nullable = name.endswith("?"), kind.endswith("?") or name.endswith("?")
        name, kind = name.rstrip("?"), kind.rstrip("?")
        known.add(name)
        if name not in value:
            if not optional:
                raise Fault(code, f"{what} lacks {name}")
        elif not (value[name] is None and nullable) and not TYPES[kind](value[name]):
            number = isinstance(value[name], float) and kind in ("int", "one")
            raise Fault("number-out-of-range" if number else code, f"{what}: {name} is not {kind}")
    if exact and set(value) - known:
        raise Fault(code, f"{what} has unknown members {sorted(set(value) - known)}")


def unbase64(text: Json) -> bytes:
    """RFC 4648 section 4 with padding, in its one canonical spelling."""
    if not isinstance(text, str):
        raise ValueError("not base64 text")
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as e:
        raise ValueError(str(e)) from e
    if base64.b64encode(data).decode() != text:
        raise ValueError("not canonical base64")
    return data


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def signature_fits(public: bytes, signature: bytes, data: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
        return True
    except (InvalidSignature, ValueError):
        return False


# ================================================================================================ what is found
@dataclass
class Record:
    """A line of records.jsonl. `payload` and `attestation` are None where the record was purged or cannot be read."""
    log_index: int
    header_text: str
    hash: bytes
    head: dict[str, Json]
    proof: list[str]
    payload_text: Optional[str]
    attestation_text: Optional[str]
    salt: Optional[str]
    payload: Optional[dict[str, Json]] = None
    attestation: Optional[dict[str, Json]] = None

    purged = property(lambda self: self.payload_text is None)
    id = property(lambda self: self.head["event_id"])
    instance = property(lambda self: self.head["instance_id"])
    sequence = property(lambda self: self.head["sequence"])
    action = property(lambda self: self.head["action_ref"])
    actor = property(lambda self: self.head["actor_ref"])
    at = property(lambda self: self.head["recorded_at_us"])
    registry_seq = property(lambda self: self.head["registry_seq"])


class Report:
    def __init__(self) -> None:
        self.findings: list[dict[str, Json]] = []
        self.notes: list[dict[str, Json]] = []
        self.checked = {claim: 0 for claim in TITLES}
        self.unverifiable: set[str] = set()
        self.questions: list[dict[str, Json]] = []

    def find(self, code: str, detail: str, record: Optional[Record] = None, **where: Json) -> None:
        finding: dict[str, Json] = {"code": code}
        if record is not None:
            finding.update(event_id=record.id, log_index=record.log_index, instance_id=record.instance)
        finding.update({k: v for k, v in where.items() if v is not None}, detail=detail)
        if finding not in self.findings:
            self.findings.append(finding)

    def note(self, code: str, detail: str, record: Optional[Record] = None, claims: Iterable[str] = ()) -> None:
        note = {"code": code, **({"event_id": record.id} if record is not None else {}), "detail": detail}
        if note not in self.notes:
            self.notes.append(note)
        self.unverifiable.update(claims)


# ================================================================================================ the files (bundle.md 1)
FILES = ["bundle.json", "checkpoint", "log.vkey", "records.jsonl", "documents.jsonl", "state.jsonl", "grants.jsonl"]
MANIFEST = ("v:one kind:text scope:object origin:text tree_size:int registry_sequence:int instances:int records:int "
            "made_at_us:int made_by:text software:text")
RECORD_LINE = "log_index:int header:text payload:text? attestation:text? salt:hex? proof:texts"
GRANT_LINE = "grant_id:text subject_ref:text action_scope:text granted_at_us:int granted_seq:int revoked_at_us:int? revoked_seq:int?"
STATE_LINE = ("instance_id:text subject_ref:text initiator_ref:text definition:text? declaration_digest:hex gate_spec_digest:hex "
              "started_at_us:int current_state:text sequence:int transitions:list gates:list approval_steps:list assignments:list run?:object")
ROWS = {  # list of the state line: (member that orders it, form)
    "transitions": ("sequence_number", "transition_id:text sequence_number:int from_state:text action:text to_state:text fired_at_us:int actor_ref:text "
                                       "guard_satisfied:bool step_id:text? chain_id:text? event_id:text"),
    "gates": ("gate_id", "gate_id:text from_state:text action:text guard:text scope:text opened_at_us:int opened_by:text rule:rule? m:int? "
                         "chain_state:state? fate:fate current:bool"),
    "approval_steps": ("step_id", "step_id:text gate_id:text action:text subject_ref:text approver_ref:text submitter_ref:text scope:text "
                                  "submitted_at_us:int state:state ended_by:text? ended_at_us:int? ended_reason:text?"),
    "assignments": ("assignment_id", "assignment_id:text task_ref:text assignee_ref:text assigned_at_us:int status:status ended_at_us:int?")}


@dataclass
class Bundle:
    manifest: dict[str, Json] = field(default_factory=dict)
    checkpoint: str = ""
    records: list[Record] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)
    state: dict[str, dict[str, Json]] = field(default_factory=dict)
    grants: list[dict[str, Json]] = field(default_factory=list)
    chains: dict[str, list[Record]] = field(default_factory=dict)  # by sequence


def read_files(path: str, report: Report) -> dict[str, str]:
    """The texts of the seven files; what is missing or unreadable is a finding and an empty text."""
    texts = dict.fromkeys(FILES, "")
    try:
        with zipfile.ZipFile(path) as z:
            names = [i.filename for i in z.infolist()]
            for name in sorted(set(names)):
                if names.count(name) > 1 or name not in FILES:
                    report.find("bundle-form", f"file {name!r} is not one of a bundle's, or appears twice")
            for name in FILES:
                try:
                    info = z.getinfo(name)
                    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                        raise ValueError("encrypted, or neither stored nor deflated")
                    texts[name] = z.read(name).decode("utf-8")
                except (KeyError, ValueError, zipfile.BadZipFile, NotImplementedError, EOFError, OSError, RuntimeError, zlib.error) as e:
                    report.find("bundle-form", f"file {name}: {e}")
    except (OSError, zipfile.BadZipFile) as e:
        raise Unreadable(f"{path}: {e}") from e
    return texts


def read_lines(name: str, text: str, form: str, report: Report) -> list[dict[str, Json]]:
    rows = []
    if text and not text.endswith("\n"):
        report.find("bundle-form", f"{name}: the last line is not ended by a line feed")
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else [], 1):
        try:
            row = parse_json(line)
            check_form(row, form, "bundle-form", f"{name}, line {number}")
            rows.append(row)
        except Fault as f:
            report.find(f.code, f"{name}, line {number}: {f.detail}")
    return rows


def ascending(values: list[Json]) -> bool:
    return all(a < b for a, b in zip(values, values[1:]))


def read_bundle(path: str, report: Report) -> Bundle:
    b, texts = Bundle(), read_files(path, report)
    b.checkpoint = texts["checkpoint"]
    try:
        manifest = parse_json(texts["bundle.json"])
        check_form(manifest, MANIFEST, "bundle-form", "bundle.json")
        if manifest["kind"] != "countersign-evidence":
            raise Fault("bundle-form", f"kind is {manifest['kind']!r}")
        form = "instance_id:text" if "instance_id" in manifest["scope"] else "after_us:int? before_us:int?"
        check_form(manifest["scope"], form, "bundle-form", "scope")
        b.manifest = manifest
    except Fault as f:
        report.find(f.code, f"bundle.json: {f.detail}")
    try:
        parse_vkey(texts["log.vkey"].removesuffix("\n"), 1)
    except Unreadable as e:
        report.find("bundle-form", f"log.vkey: {e}")
    lines = read_lines("records.jsonl", texts["records.jsonl"], RECORD_LINE, report)
    for line in lines:
        record = read_record(line, report)
        if record is not None:
            last = b.records[-1] if b.records else None
            if last is not None and (record.instance, record.sequence) <= (last.instance, last.sequence):   # the registry's id is the smallest
                report.find("bundle-form", "records.jsonl: not the registry, then instance by instance, each by sequence", record)
            b.records.append(record)
            b.chains.setdefault(record.instance, []).append(record)
    for chain in b.chains.values():
        chain.sort(key=lambda r: (r.sequence, r.log_index))
    for line in read_lines("documents.jsonl", texts["documents.jsonl"], "digest:hex body:text", report):
        if line["digest"] in b.documents:
            report.find("bundle-form", f"document {line['digest']} appears twice")
        b.documents[line["digest"]] = line["body"]
    for line in read_lines("state.jsonl", texts["state.jsonl"], STATE_LINE, report):
        try:
            for rows, (order, form) in ROWS.items():
                for row in line[rows]:
                    check_form(row, form, "bundle-form", f"state.jsonl, {line['instance_id']}, {rows}")
                if not ascending([row[order] for row in line[rows]]):
                    report.find("bundle-form", f"state.jsonl: {rows} are not ordered by {order}", instance_id=line["instance_id"])
            if line.get("run") is not None:
                check_form(line["run"], verify_run.STATE, "bundle-form", f"state.jsonl, {line['instance_id']}, run")
                for row in line["run"]["steps"]:
                    check_form(row, verify_run.STATE_STEP, "bundle-form", f"state.jsonl, {line['instance_id']}, steps of the run")
        except Fault as f:
            report.find(f.code, f.detail, instance_id=line["instance_id"])
            continue
        if b.state and line["instance_id"] <= max(b.state):
            report.find("bundle-form", "state.jsonl is not ordered by instance_id", instance_id=line["instance_id"])
        b.state[line["instance_id"]] = line
    b.grants = read_lines("grants.jsonl", texts["grants.jsonl"], GRANT_LINE, report)
    if not ascending([g["granted_seq"] for g in b.grants]):
        report.find("bundle-form", "grants.jsonl is not ordered by granted_seq")
    check_manifest(b, lines, report)
    return b


def check_manifest(b: Bundle, lines: list[dict[str, Json]], report: Report) -> None:
    m = b.manifest
    if not m:
        return
    instances = set(b.chains) - {REGISTRY}
    registry = b.chains.get(REGISTRY, [])
    for what, said, found in (("records", m["records"], len(lines)), ("instances", m["instances"], len(instances)),
                              ("registry_sequence", m["registry_sequence"], registry[-1].sequence if registry else 0)):
        if said != found:
            report.find("bundle-form", f"bundle.json says {what} {said}; the bundle has {found}")
    if "instance_id" in m["scope"] and instances != {m["scope"]["instance_id"]}:
        report.find("bundle-form", "the bundle does not hold exactly the instance of its scope")


# ================================================================================================ headers and payloads (record.md 2 to 4)
HEADER = ("v:one event_id:text instance_id:text sequence:int prev:hex action_ref:text actor_ref:text recorded_at_us:int registry_seq:int "
          "assurance:text retention:object payload_digest:hex attestation_digest:hex")
RETENTION = "policy_ref:text retention_until_us:int? purge_deadline_us:int?"
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_STEP = "instance_id:text chain_id:text step_id:text action:text decided_by:text reason?:text trailing:bool"
_KEY_OR_TOKEN = "actor_ref:text credential_id:text"
_GRANT = "grant_id:text subject_ref:text action_scope:text"
PAYLOADS = {
    **verify_run.PAYLOADS,
    "workflow_started": "instance_id:text subject_ref:text initial_state:text definition?:text declaration_digest:hex gate_spec_digest:hex gate_spec_labels:texts reason?:text",
    "gate_opened": "instance_id:text action:text from_state:text guard:text step_id?:text assignment_id?:text approver_ref?:text chain_id?:text steps?:steps "
                   "scope:text submitter_ref:text supersedes?:text reason?:text",
    "gate_decided": "instance_id:text action:text step_id?:text chain_id?:text decision:text reason?:text",
    "transition_fired": "instance_id:text action:text from_state:text new_state:text transition_id:text sequence_number:int guarded:bool step_id?:text "
                        "chain_id?:text reason?:text",
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
    "key_registered": "actor_ref:text key_id:text public_key:text", "key_revoked": "actor_ref:text key_id:text reason?:text",
    "grant_made": _GRANT, "grant_revoked": _GRANT,
    "definition_published": "name:text version:any digest:hex declaration_digest:hex gate_spec_digest:hex document_digest?:hex retention?:any",
    "configuration_recorded": "audit_trail_retention_policy:text? regulated:bool application_actor_ref:text server_actor_ref:text"}
WINDOW_EXPORT = "after_us:int? before_us:int? instances:int heads_digest:hex"
REGISTRY_ONLY = set(list(PAYLOADS)[list(PAYLOADS).index("actor_registered"):])
EITHER = {"hold_placed", "hold_released", "attempt_refused", "evidence_exported"}
APPLICATION_ONLY = {"moot_gate_recalled", "chain_resolved", "configuration_recorded"} | verify_run.APPLICATION_ONLY
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
    action, registry = head["action_ref"], head["instance_id"] == REGISTRY
    if action not in PAYLOADS or (action not in EITHER and registry != (action in REGISTRY_ONLY)):
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
    one_of = [value.get("step_id"), value.get("chain_id")]
    if r.action == "moot_gate_recalled" and one_of.count(None) != 1 or r.action == "gate_decided" and one_of.count(None) == 2:
        raise Fault("bundle-form", f"{r.action} does not name its gate")


# ================================================================================================ chains (record.md 3)
def check_chains(b: Bundle, report: Report) -> None:
    seen: dict[str, Record] = {}
    for r in b.records:
        report.checked["integrity"] += 1
        if r.id in seen:
            report.find("sequence-gap", "an event_id appears twice", r)
        seen[r.id] = r
    for instance, chain in b.chains.items():
        before: Optional[Record] = None
        for r in chain:
            if r.sequence != (before.sequence + 1 if before else 1):
                report.find("sequence-gap", f"sequence {r.sequence} follows {before.sequence if before else 'nothing'}", r)
            if r.head["prev"] != (before.hash.hex() if before else "0" * 64):
                report.find("link-broken", "prev is not the record_hash before", r)
            if before is not None:
                if r.at < before.at:
                    report.find("time-order", "recorded_at_us falls", r)
                if r.log_index <= before.log_index:
                    report.find("log-order", "log_index does not ascend with sequence", r)
                if r.id <= before.id and r.at >= before.at:
                    report.find("header-invalid", "event_id does not sort after the one before", r)
            before = r


# ================================================================================================ log and checkpoint (checkpoint.md)
@dataclass
class VerifierKey:
    name: str
    key_id: bytes
    public: bytes


def parse_vkey(text: str, kind: int) -> VerifierKey:
    parts = text.split("+", 2)
    try:
        raw = unbase64(parts[2])
        if len(raw) != 33 or raw[0] != kind:
            raise ValueError("not an Ed25519 key of this kind")
        if not parts[0] or re.search(r"\s", parts[0]):
            raise ValueError("no name")
        key_id = sha256(parts[0].encode() + b"\n" + raw)[:4]
        if parts[1] != key_id.hex():
            raise ValueError("the key id is not that of the key")
        return VerifierKey(parts[0], key_id, raw[1:])
    except (IndexError, ValueError) as e:
        raise Unreadable(f"not a verifier key: {text!r}: {e}") from e


@dataclass
class Policy:
    logs: list[VerifierKey] = field(default_factory=list)
    witnesses: dict[str, VerifierKey] = field(default_factory=dict)
    groups: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    quorum: str = "none"


def parse_policy(text: str) -> Policy:
    p, quorums = Policy(), 0
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split("#", 1)[0].split()
        try:
            if not words:
                continue
            known = set(p.witnesses) | set(p.groups)
            if words[0] == "log" and len(words) == 2:
                p.logs.append(parse_vkey(words[1], 1))
            elif words[0] == "witness" and len(words) == 3 and words[1] not in known | {"none"}:
                p.witnesses[words[1]] = parse_vkey(words[2], 4)
            elif words[0] == "group" and len(words) >= 4 and words[1] not in known | {"none"} and set(words[3:]) <= known:
                need = {"all": len(words) - 3, "any": 1}.get(words[2]) or int(words[2])
                if not 1 <= need <= len(words) - 3 or len(set(words[3:])) != len(words) - 3:
                    raise ValueError("a group that cannot be satisfied")
                p.groups[words[1]] = (need, words[3:])
            elif words[0] == "quorum" and len(words) == 2 and words[1] in known | {"none"}:
                p.quorum, quorums = words[1], quorums + 1
            else:
                raise ValueError("not understood")
        except (ValueError, Unreadable) as e:
            raise Unreadable(f"policy, line {number}: {e}") from e
    if quorums != 1:
        raise Unreadable("policy: exactly one quorum line is needed")
    return p


def inclusion_holds(leaf: bytes, index: int, size: int, proof: list[bytes], root: bytes) -> bool:
    """RFC 9162, 2.1.3.2."""
    if not 0 <= index < size:
        return False
    fn, sn, r = index, size - 1, leaf
    for p in proof:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            r = sha256(b"\x01" + p + r)
            while not fn & 1 and fn != 0:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = sha256(b"\x01" + r + p)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and r == root


@dataclass
class Checkpoint:
    origin: str
    size: int
    root: bytes
    signers: list[VerifierKey]  # trusted log keys whose signature fits
    cosigners: set[str]         # nicknames of the policy's witnesses whose cosignature fits


def check_checkpoint(note: str, manifest: dict[str, Json], policy: Policy, report: Report) -> Optional[Checkpoint]:
    try:
        text, blank, signatures = note.partition("\n\n")
        text += "\n"
        lines = text.split("\n")
        if not blank or len(lines) != 4 or not lines[0] or not re.fullmatch(r"0|[1-9][0-9]{0,15}", lines[1]) or not signatures.endswith("\n"):
            raise ValueError("not three lines, an empty line and signature lines")
        c = Checkpoint(lines[0], int(lines[1]), unbase64(lines[2]), [], set())
        if len(c.root) != 32:
            raise ValueError("the root is not 32 bytes")
        for line in signatures[:-1].split("\n"):
            match = re.fullmatch("\u2014 ([^ ]+) ([^ ]+)", line)
            if not match:
                raise ValueError("a signature line has not the form")
            name, raw = match[1], unbase64(match[2])
            for key in policy.logs:
                if name == key.name == c.origin and raw[:4] == key.key_id and signature_fits(key.public, raw[4:], text.encode()):
                    c.signers.append(key)
            for nickname, key in policy.witnesses.items():
                if name == key.name and raw[:4] == key.key_id and len(raw) == 76:
                    cosigned = f"cosignature/v1\ntime {int.from_bytes(raw[4:12], 'big')}\n{text}".encode()
                    if signature_fits(key.public, raw[12:], cosigned):
                        c.cosigners.add(nickname)
    except ValueError as e:
        report.find("checkpoint-invalid", f"checkpoint: {e}")
        return None
    report.checked["integrity"] += 1
    if not c.signers:
        report.find("checkpoint-invalid", "no signature of a trusted log key fits")
    if manifest and (c.origin != manifest["origin"] or c.size != manifest["tree_size"]):
        report.find("checkpoint-invalid", "origin or size is not that of bundle.json")

    def satisfied(name: str) -> bool:
        if name in policy.groups:
            need, members = policy.groups[name]
            return sum(satisfied(m) for m in members) >= need
        return name in c.cosigners

    if policy.quorum != "none" and not satisfied(policy.quorum):
        report.find("witness-quorum", f"cosigned by {sorted(c.cosigners) or 'no witness'}; the policy's quorum {policy.quorum} is not there")
    return c


def check_log(b: Bundle, checkpoint: Optional[Checkpoint], report: Report) -> None:
    registry = {r.sequence: r for r in b.chains.get(REGISTRY, [])}
    last_before: dict[int, int] = {}  # time of a registry command -> last sequence before it
    for r in b.chains.get(REGISTRY, []):
        last_before.setdefault(r.at, r.sequence - 1)
    for r in b.records:
        try:
            proof = [bytes.fromhex(h) if HEX64.match(h) else b"" for h in r.proof]
            if checkpoint is None or not inclusion_holds(r.hash, r.log_index, checkpoint.size, proof, checkpoint.root):
                raise ValueError
        except ValueError:
            report.find("inclusion-invalid", "the proof does not lead to the checkpoint's root", r)
        if r.instance == REGISTRY:
            if r.registry_seq != last_before[r.at]:
                report.find("registry-order", f"registry_seq {r.registry_seq}; the last record before the command is {last_before[r.at]}", r)
            continue
        known, later = registry.get(r.registry_seq), registry.get(r.registry_seq + 1)
        if r.registry_seq > 0 and (known is None or known.log_index > r.log_index):
            report.find("registry-order", f"registry record {r.registry_seq} does not stand before it in the log", r)
        if later is not None and later.log_index < r.log_index:
            report.find("registry-order", f"registry record {r.registry_seq + 1} stands before it in the log", r)


def check_tail(b: Bundle, report: Report) -> None:
    """bundle.md 1, Scope."""
    scope = b.manifest.get("scope")
    if scope is None:
        return
    window = "instance_id" not in scope
    chain = b.chains.get(REGISTRY if window else scope["instance_id"], [])
    last = chain[-1] if chain else None
    if last is None or last.action != "evidence_exported" or last.payload is None:
        report.find("tail-missing", "the chain in scope does not end with evidence_exported", last)
        return
    if not window:
        if last.payload["through_sequence"] != last.sequence - 1:
            report.find("tail-missing", f"through_sequence {last.payload['through_sequence']} is not {last.sequence - 1}", last)
        return
    heads = {i: c[-1] for i, c in b.chains.items() if i != REGISTRY}
    lines = "".join(f"{i} {heads[i].sequence} {heads[i].hash.hex()}\n" for i in sorted(heads))
    after, before = scope["after_us"], scope["before_us"]
    found = {"after_us": after, "before_us": before, "instances": len(heads), "heads_digest": sha256(lines.encode()).hex()}
    for name, value in found.items():
        if not same(last.payload[name], value):
            report.find("tail-missing", f"{name} of the export is not that of the bundle", last)
    for instance in heads:
        if not any((after is None or r.at >= after) and (before is None or r.at <= before) for r in b.chains[instance]):
            report.find("tail-missing", "an instance without a record in the window", instance_id=instance)


# ================================================================================================ registry (record.md 5.4, 5.5)
@dataclass
class Span:
    """Something that holds from one registry sequence until, perhaps, another."""
    since: int
    until: Optional[int] = None
    value: Json = None

    def at(self, sequence: int) -> bool:
        return self.since <= sequence and (self.until is None or self.until > sequence)


class Registry:
    def __init__(self, chain: list[Record], report: Report):
        self.actors: dict[str, int] = {}
        self.keys: dict[tuple[str, str], Span] = {}
        self.credentials: dict[tuple[str, str], list[Span]] = {}
        self.grants: dict[str, Span] = {}
        self.grant_records: dict[str, list[Record]] = {}
        self.definitions: dict[str, list[Record]] = {}
        self.configurations: list[Record] = []
        self.first = [r for r in chain if r.at == chain[0].at] if chain else []
        self.founder = chain[0].actor if chain else ""
        for r in chain:
            if r.payload is not None:
                self.take(r, r.payload, r.sequence, report)

    def take(self, r: Record, p: dict[str, Json], seq: int, report: Report) -> None:
        key = (p.get("actor_ref", ""), p.get("key_id") or "")
        if r.action == "actor_registered":
            if p["actor_ref"] in self.actors:
                report.find("record-missing", f"actor {p['actor_ref']} is registered twice", r)
            self.actors.setdefault(p["actor_ref"], seq)
        if r.action in ("actor_registered", "key_registered") and p.get("public_key") is not None:
            try:
                public = unbase64(p["public_key"])
            except ValueError:
                public = b""
            if len(public) != 32 or sha256(public).hex()[:16] != key[1]:
                report.find("attestation-proof-invalid", "key_id is not that of the public key registered", r)
            self.keys.setdefault(key, Span(seq, value=public))
            if r.action == "key_registered" and r not in self.first:
                configuration = self.configuration(r.registry_seq)
                for role, actor in (("application", configuration.get("application_actor_ref", self.founder)), ("server", configuration.get("server_actor_ref"))):
                    if p["actor_ref"] == actor:
                        report.note(f"{role}-key-added", f"{r.actor} gave {actor} the further key {key[1]}", r)
        elif r.action == "key_revoked" and key in self.keys and self.keys[key].until is None:
            self.keys[key].until = seq
        credential = (p.get("actor_ref", ""), p.get("credential_id") or "")
        if r.action in ("actor_registered", "credential_issued") and credential[1]:
            self.credentials.setdefault(credential, []).append(Span(seq))
        elif r.action == "credential_revoked":
            for span in self.credentials.get(credential, []):
                span.until = span.until or seq
        elif r.action in ("grant_made", "grant_revoked"):
            self.grant_records.setdefault(p["grant_id"], []).append(r)
            if r.action == "grant_made":
                self.grants.setdefault(p["grant_id"], Span(seq, value=(p["subject_ref"], p["action_scope"])))
            elif p["grant_id"] in self.grants and self.grants[p["grant_id"]].until is None:
                self.grants[p["grant_id"]].until = seq
        elif r.action == "definition_published":
            self.definitions.setdefault(f"{p['name']}@{p['version']}", []).append(r)
        elif r.action == "configuration_recorded":
            self.configurations.append(r)

    def sequence_for(self, r: Record) -> int:
        """The registry that a record was decided under. The very first command brings its own."""
        return self.first[-1].sequence if r in self.first else r.registry_seq

    def configuration(self, sequence: int) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for r in self.configurations:
            if r.sequence <= sequence and r.payload is not None:
                found = r.payload
        return found

    def application_actor(self, r: Record) -> str:
        return self.configuration(self.sequence_for(r)).get("application_actor_ref", self.founder)

    def holds(self, actor: str, scopes: list[str], sequence: int) -> bool:
        return any(g.at(sequence) and g.value[0] == actor and g.value[1] in scopes for g in self.grants.values())


def check_checkpoint_key(checkpoint: Optional[Checkpoint], registry: Registry, report: Report) -> None:
    servers = {r.payload["server_actor_ref"] for r in registry.configurations if r.payload is not None}
    if checkpoint is None or not checkpoint.signers:
        return
    for signer in checkpoint.signers:
        key_id = sha256(signer.public).hex()[:16]
        if any((s, key_id) in registry.keys and registry.keys[s, key_id].until is None for s in servers):
            return
    report.find("checkpoint-key-unknown", "the key that signed is not a key of the server actor in the registry, or was revoked")


# ================================================================================================ identity (record.md 5)
STATEMENT = ("v:one action:text actor_ref:text key_id:text request:text? instance_id:text? step_id:text? body_digest:hex meaning:text? "
             "expected_sequence:int? nonce:text issued_at_us:int")
NONCE = re.compile(r"[A-Za-z0-9._-]{16,128}\Z")
ROUTES = {  # action_ref: (action, path with payload members, body members equal to payload members)
    "workflow_started": ("start_workflow", "/v1/processes", "subject_ref reason"),
    "chain_initiated": ("open_gate", "/v1/processes/{instance_id}/gates", "action"),
    "gate_opened": ("open_gate", "/v1/processes/{instance_id}/gates", "action reason"),
    **{a: ("decide_gate", "/v1/processes/{instance_id}/gates/{action}/decision", "reason")
       for a in ("gate_decided", "step_approved", "step_rejected", "step_withdrawn", "chain_withdrawn")},
    "transition_fired": ("fire_transition", "/v1/processes/{instance_id}/transitions", "action reason"),
    "evidence_exported": ("export_evidence", "/v1/ledger/export", ""),
    "hold_placed": ("place_hold", "/v1/ledger/holds", "record_ref reason case_ref"),
    "hold_released": ("release_hold", "/v1/ledger/holds/{hold_id}/release", "reason"),
    "record_purged": ("purge_record", "/v1/ledger/records/{event_id}/purge", ""),
    "actor_registered": ("register_actor", "/v1/actors", "actor_ref kind display_name public_key"),
    "credential_issued": ("issue_credential", "/v1/actors/{actor_ref}/tokens", ""),
    "credential_revoked": ("revoke_credential", "/v1/actors/{actor_ref}/tokens/{credential_id}/revoke", ""),
    "key_registered": ("register_key", "/v1/actors/{actor_ref}/keys", "public_key"),
    "key_revoked": ("revoke_key", "/v1/actors/{actor_ref}/keys/{key_id}/revoke", ""),
    "grant_made": ("grant", "/v1/grants", "subject_ref action_scope"),
    "grant_revoked": ("revoke", "/v1/grants/{grant_id}/revoke", ""),
    "definition_published": ("publish_definition", "/v1/definitions", "")}
DECISIONS = {"step_approved": "approve", "step_rejected": "reject", "step_withdrawn": "withdraw", "chain_withdrawn": "withdraw"}


class Identity:
    def __init__(self, b: Bundle, registry: Registry, report: Report):
        self.b, self.registry, self.report = b, registry, report
        self.nonces: dict[tuple[str, str], bytes] = {}
        self.used_in: dict[bytes, tuple[str, int]] = {}                 # statement -> command
        self.of_command: dict[tuple[str, int, str], bytes] = {}         # command and signer -> statement
        self.shared: dict[bytes, dict[str, tuple[str, int]]] = {}       # statement -> its command in each instance
        self.first_of: dict[tuple[str, int], int] = {}                  # command -> first sequence
        for r in sorted(b.records, key=lambda r: r.sequence):
            self.first_of.setdefault((r.instance, r.at), r.sequence)

    def check(self, r: Record) -> None:
        if r.purged:
            self.report.note("partially-purged-coverage", "who made a purged record cannot be checked", r, ["identity"])
            return
        self.report.checked["identity"] += 1
        if r.attestation is None:
            return
        a, seq = r.attestation, self.registry.sequence_for(r)
        application = r.actor == self.registry.application_actor(r)
        if r.payload is not None and "instance_id" in r.payload and r.payload["instance_id"] not in (r.instance, None):
            self.report.find("statement-mismatch", "instance_id of the payload is not the header's", r)
        if r.action in APPLICATION_ONLY and not application or r in self.registry.first and r.actor != self.registry.founder:
            self.report.find("statement-mismatch", f"{r.action} is not by the application actor", r)
        anonymous = r.instance == REGISTRY and r.action == "attempt_refused" and a.get("credential_id") is None and r.head["assurance"] == "server_attested"
        if self.registry.actors.get(r.actor, MAX_INT) > seq and not anonymous:
            self.report.find("attestation-actor-unknown-in-registry", f"{r.actor} was not registered at {seq}", r)
        decision = r.action == "gate_decided" or r.action in DECIDED
        if decision and r.head["assurance"] == "server_attested" and self.registry.configuration(seq).get("regulated") is True:
            self.report.find("assurance-too-low", "a decision under regulated configuration is server_attested", r)
        try:
            if a.get("class") != r.head["assurance"]:
                raise Fault("attestation-invalid", "class is not the header's assurance")
            if a["class"] == "server_attested":
                check_form(a, "v:one class:text credential_id:text?", "attestation-invalid", "attestation")
                self.check_credential(r, a["credential_id"], seq, application, anonymous)
            elif a["class"] == "actor_signed":
                check_form(a, "v:one class:text key_id:text statement:text signature:text signed_over:text body:text?", "attestation-invalid", "attestation")
                self.check_signed(r, a, seq, application)
            else:
                check_form(a, "v:one class:text key_id:text statement:text authenticator_data:text client_data_json:text signature:text signed_over:text body:text?",
                           "attestation-invalid", "attestation")
                self.report.note("passkey-unverified", "this verifier cannot check passkey signatures", r, ["identity"])
        except Fault as f:
            self.report.find(f.code, f.detail, r)

    def check_credential(self, r: Record, credential: Optional[str], seq: int, application: bool, anonymous: bool) -> None:
        if application:
            raise Fault("attestation-proof-invalid", "the application actor's records are always signed")
        if credential is None and not anonymous:
            raise Fault("attestation-proof-invalid", "no credential_id")
        if credential is not None and not any(s.at(seq) for s in self.registry.credentials.get((r.actor, credential), [])):
            raise Fault("attestation-proof-invalid", f"credential {credential} was not one of {r.actor}, or was revoked")

    def check_signed(self, r: Record, a: dict[str, Json], seq: int, application: bool) -> None:
        try:
            raw, signature = unbase64(a["statement"]), unbase64(a["signature"])
            body = None if a["body"] is None else unbase64(a["body"])
            s = parse_json(raw.decode("utf-8"))
        except ValueError as e:
            raise Fault("attestation-invalid", str(e)) from e
        except Fault as f:
            raise Fault("attestation-invalid" if f.code == "bundle-form" else f.code, f"statement: {f.detail}") from f
        check_form(s, STATEMENT, "attestation-invalid", "statement")
        key = self.registry.keys.get((r.actor, a["key_id"]))
        if application and r.action == "key_registered" and r.payload is not None and (r.payload["actor_ref"], r.payload["key_id"]) == (r.actor, a["key_id"]):
            seq = r.sequence    # a further node of the application actor has no other key yet (5.4)
        if key is None or key.since > seq:
            self.report.find("attestation-proof-invalid", f"key {a['key_id']} was not {r.actor}'s at {seq}", r)
        else:
            if key.until is not None and key.until <= seq:
                self.report.find("key-revoked", f"key {a['key_id']} was revoked at {key.until}", r)
            if not signature_fits(key.value, signature, raw):
                self.report.find("attestation-proof-invalid", "the signature does not fit the statement", r)
        self.check_nonce(r, s, raw, application)
        for problem in self.compare(r, a, s, body, application):
            self.report.find("statement-mismatch", problem, r)

    def check_nonce(self, r: Record, s: dict[str, Json], raw: bytes, application: bool) -> None:
        command = (r.instance, r.at)
        shared = self.shared.setdefault(raw, {})
        if s["action"] in verify_run.SHARED and shared.setdefault(r.instance, command) == command:
            command = self.used_in.setdefault(raw, command)     # one request may move several runs, once each
        if self.nonces.setdefault((r.actor, s["nonce"]), raw) != raw:
            self.report.find("nonce-reused", "a nonce in two statements", r)
        if self.used_in.setdefault(raw, command) != command:
            self.report.find("nonce-reused", "a statement in records of two commands", r)
        if not application and self.of_command.setdefault((r.instance, r.at, r.actor), raw) != raw:
            self.report.find("statement-mismatch", "records of one command carry different statements of one signer", r)

    def compare(self, r: Record, a: dict[str, Json], s: dict[str, Json], body: Optional[bytes], application: bool) -> Iterable[str]:
        """record.md 5.2: what the statement says against header, attestation and body; then body against payload."""
        p = r.payload
        if s["actor_ref"] != r.actor or s["key_id"] != a["key_id"]:
            yield "actor_ref or key_id of the statement is not the record's"
        if not NONCE.match(s["nonce"]):
            yield "the nonce has not the form"
        null_instance = r.instance == REGISTRY or r.action == "workflow_started" or r.action in ("run_started", "steps_claimed") and not application
        may_be_null = r.action == "event_received" and s["instance_id"] is None
        if s["instance_id"] != (None if null_instance else r.instance) and not may_be_null:
            yield "instance_id of the statement is not the record's"
        if s["expected_sequence"] is not None and s["expected_sequence"] + 1 != self.first_of[r.instance, r.at]:
            yield f"expected_sequence {s['expected_sequence']}, and the command began at {self.first_of[r.instance, r.at]}"
        if p is None:
            return
        if s["step_id"] is not None and s["step_id"] != p.get("step_id"):
            yield "step_id of the statement is not the payload's"
        if application:
            if a["signed_over"] != "payload" or body is not None or s["request"] is not None or s["action"] != r.action:
                yield "not a statement of the application actor over its payload"
            if s["body_digest"] != sha256((r.payload_text or "").encode()).hex():
                yield "body_digest is not that of the payload"
            return
        if r.action == "attempt_refused":
            if s["action"] not in {route[0] for route in ROUTES.values()}:
                yield f"action {s['action']!r} is not one"
            if body is not None and s["body_digest"] != sha256(body).hex():
                yield "body_digest is not that of the body"
            return
        run = r.action in verify_run.PAYLOADS
        if r.action not in ROUTES and not run or r.action in verify_run.APPLICATION_ONLY:
            yield f"{r.action} is the application actor's alone"
            return
        action, path, members = (s["action"], "", "") if run else ROUTES[r.action]
        if self.b.chains[r.instance][0].action == "run_started":
            path = path.replace("/v1/processes", "/v1/runs")
        if s["action"] != action:
            yield f"action {s['action']!r} does not lead to {r.action}"
        if s["action"] == "decide_gate" and not (s["meaning"] or "").strip():
            yield "a decision without a meaning"
        if not run:
            yield from self.compare_path(s["request"], "GET" if action == "export_evidence" else "POST", path, {**p, "instance_id": r.instance})
        if action == "publish_definition":
            if a["signed_over"] != "document" or body is not None or s["body_digest"] != p["digest"]:
                yield "the document signed is not the one published"
            return
        if a["signed_over"] != "body" or body is None or s["body_digest"] != sha256(body).hex():
            yield "body_digest is not that of the body"
            return
        try:
            said = parse_json(body.decode("utf-8")) if body else {}
            if not isinstance(said, dict):
                raise ValueError("not an object")
        except ValueError as e:
            yield f"the body: {e}"
            return
        except Fault as f:
            if f.code != "bundle-form":
                self.report.find(f.code, f"body: {f.detail}", r)
            yield f"the body: {f.detail}"
            return
        if run:
            yield from verify_run.compare_request(r, p, s, said)
        for member in members.split():
            if not same(said.get(member), p.get(member)):
                yield f"{member} of the body is not the payload's"
        if action == "decide_gate":
            if said.get("decision") != DECISIONS.get(r.action, p.get("decision")):
                yield "decision of the body is not the payload's"
            if said.get("step_id") not in (None, p.get("step_id")):
                yield "step_id of the body is not the payload's"
        if r.action == "workflow_started":
            yield from self.compare_start(r, p, said)

    def compare_path(self, request: Optional[str], method: str, path: str, values: dict[str, Json]) -> Iterable[str]:
        sent_method, _, sent = (request or "").partition(" ")
        if method == "GET":
            sent = sent.partition("?")[0]
        segments = [values.get(w[1:-1]) if w.startswith("{") else w for w in path.split("/")]
        if sent_method != method or [urllib.parse.unquote(w) for w in sent.split("/")] != segments:
            yield f"the request {request!r} is not the one that leads here"

    def compare_start(self, r: Record, p: dict[str, Json], said: dict[str, Json]) -> Iterable[str]:
        definition, named = p.get("definition"), said.get("definition")
        if (named is None) != (definition is None) or named is not None and named not in (definition, str(definition).rpartition("@")[0]):
            yield "definition of the body is not the payload's"
        for member in ("declaration", "gate_spec"):
            try:
                document = parse_json(self.b.documents[p[member + "_digest"]])
            except (KeyError, Fault):
                continue  # reported as document-mismatch
            given = said.get(member)
            if given is None:
                continue
            if member == "gate_spec" and definition is not None and isinstance(given, dict) and isinstance(document, dict):
                document = {k: v for k, v in document.items() if k in given}  # it replaces the definition's label by label
            if not same(without_nulls(given), without_nulls(document)):
                yield f"{member} of the body is not the document"
        published = [d.payload for d in self.registry.definitions.get(str(definition), []) if d.payload is not None and d.sequence <= r.registry_seq]
        if said.get("gate_spec") is None and any(d["gate_spec_digest"] != p["gate_spec_digest"] for d in published):
            yield "gate_spec is not the definition's, and the body gives none"


# ================================================================================================ replay: claims 1 to 4 (bundle.md 2, 3)
ENDED = {"approve": "Approved", "reject": "Rejected", "withdraw": "Withdrawn", "step_approved": "Approved", "step_rejected": "Rejected", "step_withdrawn": "Withdrawn"}
MOOT = "Gate moot: workflow left the gate's from_state by firing a different transition"
UNREACHABLE = "Chain withdrawn: its quorum can no longer be reached"
PROCESS = ("workflow_started", "gate_opened", "gate_decided", "transition_fired", "moot_gate_recalled", "chain_initiated", "step_approved", "step_rejected",
           "step_withdrawn", "chain_resolved", "chain_withdrawn")


@dataclass
class Step:
    id: str
    approver: str
    assignment: str
    state: str = "Pending"
    ended: Optional[Record] = None          # the record that ended it
    ended_by: Optional[str] = None
    reason: Optional[str] = None
    own: bool = False                       # somebody decided this step; otherwise it went with its gate
    recalled_at: Optional[int] = None

    def end(self, state: str, record: Record, by: str, reason: Optional[str], own: bool = False) -> None:
        self.state, self.ended, self.ended_by, self.reason, self.own = state, record, by, reason, own
        self.recalled_at = self.recalled_at if self.recalled_at is not None else record.at


@dataclass
class Gate:
    id: str
    opened: Record
    payload: dict[str, Json]
    steps: dict[str, Step]
    rule: Optional[str]                     # None: a single gate
    m: Optional[int]
    chain_state: Optional[str]
    fate: str = "unspent"
    current: Optional[bool] = True          # None: not known
    sure: bool = True                       # False: a purged record may have changed it

    action = property(lambda self: self.payload["action"])
    from_state = property(lambda self: self.payload["from_state"])
    submitter = property(lambda self: self.payload["submitter_ref"])
    state = property(lambda self: self.chain_state if self.rule else self.steps[self.id].state)

    def pending(self) -> list[Step]:
        return [s for s in self.steps.values() if s.state == "Pending"]

    def settled(self) -> str:
        """What the rule makes of the steps as they are."""
        states = [s.state for s in self.steps.values()]
        approved, rejected, withdrawn = (states.count(x) for x in ("Approved", "Rejected", "Withdrawn"))
        if self.rule == "all-of-n":
            return "Approved" if approved == len(states) else "Rejected" if rejected else "Withdrawn" if withdrawn else "Pending"
        need = self.m if self.rule == "m-of-n" and self.m is not None else 1
        if approved >= need:
            return "Approved"
        return "Pending" if len(states) - rejected - withdrawn >= need else "Rejected" if rejected else "Withdrawn"


class Replay:
    """One instance: its records in order against its documents, then against its rows."""

    def __init__(self, b: Bundle, registry: Registry, instance: str, fired_with: dict[str, Record], report: Report):
        self.b, self.registry, self.instance, self.fired_with, self.report = b, registry, instance, fired_with, report
        self.chain = b.chains[instance]
        self.purged = {r.id for r in self.chain if r.purged}
        self.lost_reasons = {r.id for r in self.chain if r.purged and (r.action in ("gate_decided", "chain_withdrawn") or r.action in DECIDED)}
        self.of_run = verify_run.Run(self) if self.chain[0].action == "run_started" else None
        self.lost_reasons |= {""} if self.lost_reasons else set()       # or it is null
        self.start: Optional[Record] = None
        self.declaration: dict[str, Json] = {}
        self.gate_spec: dict[str, Json] = {}
        self.state: Optional[str] = None            # None: not known, for want of a purged record
        self.firings: list[Record] = []
        self.fired = 0                              # how many, purged ones too
        self.gates: dict[str, Gate] = {}
        self.unseen_gates = False                   # a purged record may have opened some
        self.bound: dict[tuple[str, str], Gate] = {}
        # what the rest of the same command still owes
        self.chain_begun: Optional[Record] = None   # chain_initiated, and no gate_opened yet
        self.undecided: Optional[tuple[Gate, Optional[Step], str, Record]] = None   # step_*, and no gate_decided yet
        self.unresolved: Optional[Gate] = None      # a settled chain, and no chain_resolved yet
        self.moot: dict[str, str] = {}              # gates of the state just left -> moot_kind
        self.left: Optional[str] = None             # state that this command left
        self.left_unknown = False                   # the firing of this command was purged
        self.lost: list[Record] = []                # purged decisions that explain nothing yet
        self.application = ""

    # ---- documents: claim 2
    def document(self, name: str) -> dict[str, Json]:
        assert self.start is not None and self.start.payload is not None
        digest = self.start.payload[name + "_digest"]
        self.report.checked["2"] += 1
        text = self.b.documents.get(digest)
        if text is None:
            self.report.find("document-mismatch", f"the {name} {digest} is missing", self.start)
            return {}
        if sha256(text.encode()).hex() != digest:
            self.report.find("document-mismatch", f"the {name} is not the one with digest {digest}", self.start)
        try:
            value = parse_json(text)
            if name == "declaration":
                check_form(value, "states:texts transitions:list initial_state:text terminal_states:texts", "document-mismatch", name)
                for t in value["transitions"]:
                    check_form(t, "from:text action:text to:text guard?:text", "document-mismatch", "transition")
            else:
                for entry in value.values() if isinstance(value, dict) else [None]:
                    quorum = isinstance(entry, dict) and "quorum" in entry
                    check_form(entry, "approvers:texts quorum:object scope:text" if quorum else "approver_ref:text scope:text", "document-mismatch", name)
                    if isinstance(entry, dict) and quorum:
                        check_form(entry["quorum"], "rule:text m?:int", "document-mismatch", "quorum")
            return value
        except Fault as f:
            code = f.code if f.code in ("duplicate-key", "number-out-of-range") else "document-mismatch"
            self.report.find(code, f"{name}: {f.detail}", self.start)
            return {}

    def check_start(self) -> None:
        r = self.start
        assert r is not None and r.payload is not None
        p = r.payload
        self.declaration, self.gate_spec = self.document("declaration"), self.document("gate_spec")
        initial = "run" if self.of_run is not None else p["initial_state"]
        if self.declaration and initial != self.declaration["initial_state"]:
            self.report.find("undeclared-transition", "initial_state is not the declared one", r)
        if self.of_run is None and self.gate_spec and sorted(p["gate_spec_labels"]) != sorted(self.gate_spec):
            self.report.find("document-mismatch", "gate_spec_labels are not those of the gate_spec", r)
        if p.get("definition") is not None:
            published = [d.payload or {} for d in self.registry.definitions.get(p["definition"], []) if d.sequence <= r.registry_seq]
            if not published:
                self.report.find("document-mismatch", f"definition {p['definition']} was not published", r)
            if any(d["declaration_digest"] != p["declaration_digest"] for d in published):
                self.report.find("document-mismatch", f"declaration is not that of {p['definition']}", r)
            if self.of_run is not None and any((d.get("document_digest"), d["gate_spec_digest"]) != (p["document_digest"], p["gate_spec_digest"]) for d in published):
                self.report.find("document-mismatch", f"definition or gate_spec is not that of {p['definition']}", r)
        self.state = initial

    def transition(self, action: str) -> Optional[dict[str, Json]]:
        for t in self.declaration.get("transitions", []):
            if t["from"] == self.state and t["action"] == action:
                return t
        return None

    # ---- the run
    def run(self) -> None:
        first = self.chain[0]
        if self.instance not in self.b.state:
            self.report.find("row-missing", "no line in state.jsonl", first)
        if first.action in ("workflow_started", "run_started") and first.payload is None:
            self.report.note("partially-purged-coverage", "the start of the process was purged: claims 1 to 4 cannot be checked for it", first, "1234")
            return
        if first.action not in ("workflow_started", "run_started"):
            self.report.find("record-missing", "the chain does not begin with workflow_started", first)
            return
        self.start = first
        self.check_start()
        before = first
        if self.of_run is not None:
            self.of_run.take(first, parse_json)
        for r in self.chain[1:]:
            if self.of_run is not None:
                self.of_run.before(r)
            if r.at != before.at:
                self.end_command(before)
            before = r
            self.application = self.registry.application_actor(r)
            self.take(r)
            if self.of_run is not None:
                self.of_run.take(r, parse_json)
        if self.of_run is not None:
            self.of_run.end_command()
        self.end_command(before)
        if self.instance in self.b.state:
            Rows(self, self.b.state[self.instance]).check()

    def take(self, r: Record) -> None:
        if r.action not in PROCESS:
            if r.action in verify_run.PAYLOADS and self.of_run is None:
                self.report.find("record-missing", f"a {r.action} among the records of a process", r)
            return
        if r.payload is None:
            self.lose(r)
            return
        if r.action == "workflow_started":
            self.report.find("record-missing", "a second workflow_started", r)
            return
        handler = "on_step" if r.action in DECIDED else "on_" + r.action
        getattr(self, handler)(r, r.payload)

    def lose(self, r: Record) -> None:
        """A purged record: what it may have changed is not known any more."""
        if r.purged:
            claims = {"transition_fired": "1234", "workflow_started": "1234"}.get(r.action, "134")
            self.report.note("partially-purged-coverage", f"a purged {r.action}: claims {', '.join(claims)} cannot be checked in full", r, claims)
        if r.purged and r.action in ("gate_decided", "step_approved", "chain_resolved"):
            self.lost.append(r)
        if r.action == "gate_decided" and self.undecided is not None:
            self.undecided = None       # the chain's own record of the decision is still there
            return
        for gate in self.gates.values():
            if r.action == "transition_fired" or gate.pending() or gate.id in self.moot:
                gate.sure = False
        if r.action == "transition_fired":
            self.state, self.fired, self.left_unknown = None, self.fired + 1, True
        if r.action in ("gate_opened", "chain_initiated"):
            self.unseen_gates = True
            for gate in self.gates.values():
                gate.current = None
        self.chain_begun, self.undecided, self.unresolved = None, None, None

    def end_command(self, last: Record) -> None:
        if self.chain_begun is not None:
            self.report.find("record-missing", "chain_initiated without gate_opened", self.chain_begun)
        if self.undecided is not None:
            self.report.find("record-missing", f"{self.undecided[3].action} without gate_decided", self.undecided[3])
        if self.unresolved is not None and self.unresolved.sure:
            self.report.find("record-missing", "a chain was settled, and no chain_resolved says so", last)
        for gate_id in self.moot:
            if self.gates[gate_id].sure:
                self.report.find("assignment-coverage", f"gate {gate_id} of a state that was left is neither consumed nor mooted", last)
        self.chain_begun, self.undecided, self.unresolved, self.moot, self.left, self.left_unknown = None, None, None, {}, None, False

    def gate_of(self, r: Record, p: dict[str, Json], code: str, action: str = "action") -> Optional[Gate]:
        gate = self.gates.get(p.get("chain_id") or p.get("step_id") or "")
        if gate is None or (gate.rule is not None) != (p.get("chain_id") is not None) or gate.action != p[action]:
            if not self.unseen_gates:
                self.report.find(code, f"{r.action} names no gate of this action", r)
            return None
        return gate

    # ---- opening
    def check_against_spec(self, r: Record, guard: str, said: dict[str, Json], chain: Optional[dict[str, Json]]) -> None:
        spec = self.gate_spec.get(guard)
        if not isinstance(spec, dict):
            self.report.find("wrong-approver", f"the gate_spec has no {guard!r}", r)
            return
        found: dict[str, Json] = {"scope": said["scope"]}
        if chain is None:
            found["approver_ref"] = said.get("approver_ref")
        else:
            found["approvers"] = [s["approver_ref"] for s in said["steps"]]
            found["quorum"] = {"rule": chain["quorum_rule"], **({"m": chain["m"]} if chain.get("m") is not None else {})}
        if not same(found, without_nulls(spec)):
            self.report.find("wrong-approver", f"approver, scope or rule of the gate is not what the gate_spec says for {guard!r}", r)

    def on_chain_initiated(self, r: Record, p: dict[str, Json]) -> None:
        assert self.start is not None and self.start.payload is not None
        if self.chain_begun is not None:
            self.report.find("record-missing", "chain_initiated without gate_opened", self.chain_begun)
        self.chain_begun = r
        if p["approver_set"] != [s["approver_ref"] for s in p["steps"]] or p["initiator_ref"] != self.start.actor or p["subject_ref"] != f"{self.start.payload['subject_ref']}:{p['action']}":
            self.report.find("wrong-approver", "approvers, initiator or subject of the chain are not those of the process", r)

    def on_gate_opened(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["3"] += 1
        assert self.start is not None
        t, quorum = self.transition(p["action"]), p.get("chain_id") is not None
        if self.state is not None:
            if p["from_state"] != self.state or t is None or t.get("guard") is None or t["guard"] != p["guard"]:
                self.report.find("binding-invalid", f"a gate for {p['action']!r} from {p['from_state']!r}, which is not a guarded transition of {self.state!r}", r)
        before = self.bound.get((p["from_state"], p["action"]))
        if before is not None:
            if before.sure and before.fate == "unspent" and before.state in ("Pending", "Approved"):
                self.report.find("binding-invalid", "opened while the bound gate was open", r)
            before.current = False
        if p.get("supersedes") != (before.id if before else None) and not self.unseen_gates:
            self.report.find("binding-invalid", "supersedes is not the gate that was bound", r)
        if p["submitter_ref"] != self.start.actor:
            self.report.find("wrong-approver", "the submitter is not the initiator of the process", r)
        chain: Optional[dict[str, Json]] = None
        if quorum:
            begun = self.chain_begun.payload if self.chain_begun is not None else None
            if begun is None or any(not same(begun[k], p[k]) for k in ("chain_id", "action", "scope", "steps")) or self.chain_begun is None or self.chain_begun.actor != r.actor:
                if not self.unseen_gates:
                    self.report.find("record-missing", "no chain_initiated that says the same", r)
            chain, self.chain_begun = begun, None
            if chain is None:
                self.unseen_gates = True
                return
        self.check_against_spec(r, p["guard"], p, chain)
        members = p["steps"] if quorum else [p]
        steps = {s["step_id"]: Step(s["step_id"], s["approver_ref"], s["assignment_id"]) for s in members}
        gate_id = p["chain_id"] if quorum else p["step_id"]
        if gate_id in self.gates or len(steps) != len(members) or any(s in g.steps for g in self.gates.values() for s in steps):
            self.report.find("record-missing", "a gate or step is opened twice", r)
            return
        gate = Gate(gate_id, r, p, steps, chain["quorum_rule"] if chain else None, chain.get("m") if chain else None, "Pending" if chain else None)
        self.gates[gate_id] = self.bound[(p["from_state"], p["action"])] = gate

    # ---- deciding
    def on_step(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["1"] += 1
        gate = self.gate_of(r, p, "binding-invalid")
        step = gate.steps.get(p["step_id"]) if gate is not None else None
        if gate is None or step is None:
            if gate is not None:
                self.report.find("binding-invalid", "a decision on a step that the chain has not", r)
            return
        state = ENDED[r.action]
        if p["decided_by"] != (gate.submitter if r.actor == self.application else r.actor):
            self.report.find("wrong-approver", "decided_by is not who decided, or the initiator where the engine withdrew", r)
        if r.actor == self.application:
            resolved = gate.state != "Pending" or gate.id in self.moot
            if r.action != "step_withdrawn" or gate.sure and (self.of_run is None and self.left != gate.from_state or not resolved):
                self.report.find("wrong-approver", "the application actor withdraws steps of a left state only", r)
            if step.state == "Pending" or not gate.sure:
                step.end("Withdrawn", r, gate.submitter, p.get("reason"), own=True)
            elif step.ended is None or step.ended.at != r.at:
                self.report.find("binding-invalid", "a decision on a step that was not Pending", r)
            return
        if r.actor != (gate.submitter if state == "Withdrawn" else step.approver):
            self.report.find("wrong-approver", f"{r.action} by {r.actor}, which is not for them to decide", r)
        if step.state != "Pending" and gate.sure:
            self.report.find("binding-invalid", "a decision on a step that was not Pending", r)
            return
        trailing = gate.state != "Pending"
        if p["trailing"] != trailing and gate.sure:
            self.report.find("binding-invalid", f"trailing is {p['trailing']}, and the chain was {gate.state}", r)
        step.end(state, r, r.actor, p.get("reason"), own=True)
        self.undecided = (gate, step, state, r)
        if not trailing and gate.settled() != "Pending":
            gate.chain_state, self.unresolved = gate.settled(), gate
            for other in gate.pending():
                if gate.chain_state == "Withdrawn":
                    other.end("Withdrawn", r, gate.submitter, UNREACHABLE)
                else:
                    other.recalled_at = r.at

    def on_gate_decided(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["1"] += 1
        if p["decision"] not in ("approve", "reject", "withdraw"):
            self.report.find("bundle-form", f"decision {p['decision']!r}", r)
            return
        gate = self.gate_of(r, p, "binding-invalid")
        if gate is None:
            return
        state = ENDED[p["decision"]]
        if gate.rule is not None:
            due, self.undecided = self.undecided, None
            if due is None or (due[0], due[2], due[3].actor) != (gate, state, r.actor) or p.get("step_id") != (due[1].id if due[1] else None):
                if gate.sure:
                    self.report.find("record-missing", "gate_decided without the chain's own record of the decision", r)
            return
        step = gate.steps[gate.id]
        if r.actor != (gate.submitter if state == "Withdrawn" else step.approver):
            self.report.find("wrong-approver", f"{p['decision']} by {r.actor}, which is not for them to decide", r)
        if step.state != "Pending":
            if gate.sure:
                self.report.find("binding-invalid", "a decision on a step that was not Pending", r)
            return
        step.end(state, r, r.actor, p.get("reason"), own=True)

    def on_chain_resolved(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["1"] += 1
        gate = self.gate_of(r, p, "binding-invalid")
        if gate is None:
            return
        if gate is self.unresolved and p["outcome"] == gate.chain_state:
            self.unresolved = None
            rest = sorted(s.id for s in gate.steps.values() if s.state == "Pending" or gate.chain_state == "Withdrawn" and s.ended is not None
                          and s.ended.at == r.at and not s.own)
        elif (self.of_run is not None or self.moot.get(gate.id) == "pending-withdrawn") and p["outcome"] == "Withdrawn" and gate.state == "Pending":
            rest = sorted(s.id for s in gate.pending())
            self.moot[gate.id] = "pending-withdrawn"        # its moot_gate_recalled is due
            gate.chain_state = "Withdrawn"
            for step in gate.pending():
                step.end("Withdrawn", r, gate.submitter, MOOT)
        else:
            if gate.sure:
                self.report.find("gate-not-approved", f"chain_resolved says {p['outcome']}; the steps say {gate.settled()}", r)
            else:
                gate.chain_state = p["outcome"]     # purged votes may have made it so; a firing looks for them
            return
        if gate.sure and sorted(p["recalled_step_ids"]) != rest:
            self.report.find("record-missing", "recalled_step_ids are not the steps that were left", r)

    def on_chain_withdrawn(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["1"] += 1
        gate = self.gate_of(r, p, "binding-invalid")
        if gate is None:
            return
        if r.actor != gate.submitter:
            self.report.find("wrong-approver", f"withdrawn by {r.actor}, who is not the submitter", r)
        if gate.state != "Pending" and gate.sure:
            self.report.find("binding-invalid", "withdrawn when it was not Pending", r)
            return
        if gate.sure and sorted(p["recalled_step_ids"]) != sorted(s.id for s in gate.pending()):
            self.report.find("record-missing", "recalled_step_ids are not the steps that were left", r)
        gate.chain_state, self.undecided = "Withdrawn", (gate, None, "Withdrawn", r)
        for step in gate.pending():
            step.end("Withdrawn", r, r.actor, p["reason"], own=True)

    # ---- firing
    def on_transition_fired(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["1"] += 1
        self.report.checked["2"] += 1
        if self.state is None:      # a firing was purged: take up the thread where this one says it was
            self.state = p["from_state"]
        self.firings.append(r)
        t = self.transition(p["action"])
        if p["from_state"] != self.state or t is None or t["to"] != p["new_state"] or self.state in self.declaration.get("terminal_states", []):
            self.report.find("undeclared-transition", f"{p['action']!r} from {p['from_state']!r} to {p['new_state']!r} is not declared from {self.state!r}", r)
        self.fired += 1
        if p["sequence_number"] != self.fired:
            self.report.find("undeclared-transition", f"sequence_number {p['sequence_number']} where {self.fired} is due", r)
        guard = t.get("guard") if t is not None else None
        if t is not None and p["guarded"] != (guard is not None):
            self.report.find("unguarded-firing", f"guarded is {p['guarded']}, and the declaration says otherwise", r)
        used = p.get("chain_id") or p.get("step_id")
        if used is not None:
            if used in self.fired_with and self.fired_with[used] is not r:
                self.report.find("approval-reused", f"gate {used} was spent by an earlier firing", r)
            self.fired_with.setdefault(used, r)
        if guard is not None or p["guarded"]:
            self.spend(r, p, used)
        if p["new_state"] != p["from_state"]:
            self.leave(p["from_state"])
        self.state = p["new_state"]

    def spend(self, r: Record, p: dict[str, Json], used: Optional[str]) -> None:
        gate = self.gates.get(used or "")
        if gate is None:
            if not (self.unseen_gates and used is not None):
                self.report.find("gate-not-approved", "a guarded transition fired without a gate", r)
            return
        if (gate.rule is not None) != (p.get("chain_id") is not None) or self.bound.get((p["from_state"], p["action"])) is not gate:
            self.report.find("gate-not-approved", "the gate is not the one bound to this action in this state", r)
        elif gate.sure and (gate.state != "Approved" or gate.fate != "unspent" or gate.rule is not None and gate.settled() != "Approved"):
            self.report.find("gate-not-approved", f"the gate was {gate.state}, {gate.fate}", r)
        elif not gate.sure and (gate.fate != "unspent" or not self.may_be_approved(gate)):
            self.report.find("gate-not-approved", f"the gate was {gate.fate}, or no purged decision of its approvers can have approved it", r)
        gate.fate = "consumed"

    def may_be_approved(self, gate: Gate) -> bool:
        """bundle.md 3: a purged decision counts by its header, for one thing."""
        def claim(action: str, actor: Optional[str]) -> bool:
            for r in self.lost:
                if r.action == action and r.sequence > gate.opened.sequence and actor in (None, r.actor):
                    self.lost.remove(r)
                    return True
            return False

        vote = "gate_decided" if gate.rule is None else "step_approved"
        for step in gate.pending():
            if gate.state == "Approved" and (gate.rule is None or gate.settled() == "Approved"):
                break
            if (gate.rule is None or gate.settled() != "Approved") and claim(vote, step.approver):
                step.state = "Approved"
        if gate.rule is None:
            return gate.state == "Approved"
        if gate.settled() == "Approved" and (gate.chain_state == "Approved" or claim("chain_resolved", None)):
            gate.chain_state = "Approved"
        return gate.chain_state == "Approved" and gate.settled() == "Approved"

    def leave(self, state: str) -> None:
        self.left = state
        for gate in self.gates.values():
            if gate.from_state == state and gate.fate == "unspent" and gate.sure and gate.state in ("Pending", "Approved"):
                self.moot[gate.id] = "pending-withdrawn" if gate.state == "Pending" else "approved-unconsumed"

    def on_moot_gate_recalled(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["4"] += 1
        gate = self.gate_of(r, p, "moot-invalid", "moot_action")
        if gate is None:
            return
        kind = self.moot.pop(gate.id, None)
        if self.of_run is not None and kind is None and gate.fate == "unspent" and gate.current is not False:
            kind = {"Pending": "pending-withdrawn" if gate.rule is None else None, "Approved": "approved-unconsumed"}.get(gate.state)
        if not gate.sure and (self.left_unknown or self.left == gate.from_state and gate.fate == "unspent"):
            kind = p["moot_kind"]
        if kind is None or kind != p["moot_kind"] or p["from_state"] != gate.from_state:
            self.report.find("moot-invalid", f"{p['moot_kind']} of a gate that was {gate.state}, {gate.fate}, in {gate.from_state!r}; this command left {self.left!r}", r)
            return
        gate.fate = "mooted"
        if kind == "pending-withdrawn":
            if gate.rule is not None:
                gate.chain_state = "Withdrawn"
            for step in gate.pending():
                step.end("Withdrawn", r, gate.submitter, MOOT)


class Rows:
    """The stores' line of an instance against what replay made of its records: claim 3, the end of 2, and 4."""

    def __init__(self, replay: Replay, row: dict[str, Json]):
        self.r, self.row, self.report = replay, row, replay.report

    def find(self, code: str, detail: str) -> None:
        self.report.find(code, detail, instance_id=self.r.instance)

    def equal(self, what: str, row: dict[str, Json], **expected: Json) -> None:
        for name, value in expected.items():
            if name == "ended_reason" and (row[name] is None or row[name].startswith("purged:")) and (row[name] or "").removeprefix("purged:") in self.r.lost_reasons:
                continue        # it went with a record that gave it
            if not same(row[name], value):
                self.find("row-missing", f"{what}: {name} is {row[name]!r}; the records say {value!r}")

    def pair(self, what: str, rows: list[dict[str, Json]], key: str, known: dict[str, Any], excused: bool) -> list[tuple[dict[str, Json], Any]]:
        """Rows with what the records know of them; the rest are findings."""
        ids = [row[key] for row in rows]
        self.report.checked["3"] += len(rows)
        for i in ids:
            if i not in known and not excused:
                self.find("record-missing", f"{what} {i} has no record")
        for i in known:
            if i not in ids:
                self.find("row-missing", f"{what} {i} has no row")
        return [(row, known[row[key]]) for row in rows if row[key] in known]

    def check(self) -> None:
        r, row = self.r, self.row
        start = r.start
        assert start is not None and start.payload is not None
        self.report.checked["2"] += 1
        if r.state is not None and row["current_state"] != r.state:
            self.find("replay-mismatch", f"replay ends in {r.state!r}; the stores say {row['current_state']!r}")
        p = start.payload
        self.equal("the process", row, subject_ref=p["subject_ref"], initiator_ref=start.actor, definition=p.get("definition"),
                   declaration_digest=p["declaration_digest"], gate_spec_digest=p["gate_spec_digest"], started_at_us=start.at, sequence=r.chain[-1].sequence)
        self.check_transitions()
        self.check_gates()
        self.check_steps()
        if (r.of_run is not None) != (row.get("run") is not None):
            self.find("row-missing" if r.of_run is not None else "record-missing", "records and stores do not agree whether it is a run")
        elif r.of_run is not None:
            r.of_run.compare(row["run"], self.find, parse_json)

    def check_transitions(self) -> None:
        fired = {f.payload["transition_id"]: f for f in self.r.firings if f.payload is not None}
        if len(fired) != len(self.r.firings):
            self.find("record-missing", "a transition has more than one record")
        rows = [t for t in self.row["transitions"] if t["event_id"] not in self.r.purged]
        for t, f in self.pair("transition", rows, "transition_id", fired, False):
            p = f.payload
            self.equal(f"transition {t['sequence_number']}", t, sequence_number=p["sequence_number"], from_state=p["from_state"], action=p["action"],
                       to_state=p["new_state"], fired_at_us=f.at, actor_ref=f.actor, guard_satisfied=p["guarded"], step_id=p.get("step_id"), chain_id=p.get("chain_id"), event_id=f.id)

    def check_gates(self) -> None:
        for row, gate in self.pair("gate", self.row["gates"], "gate_id", self.r.gates, self.r.unseen_gates):
            p = gate.payload
            self.equal(f"gate {gate.id}", row, from_state=gate.from_state, action=gate.action, guard=p["guard"], scope=p["scope"], opened_at_us=gate.opened.at,
                       opened_by=gate.opened.actor, rule=gate.rule, m=gate.m)
            if gate.rule is None:
                self.equal(f"gate {gate.id}", row, chain_state=None)
            if gate.sure:
                current = row["current"] if gate.current is None else gate.current
                self.equal(f"gate {gate.id}", row, chain_state=gate.chain_state, fate=gate.fate, current=current)

    def check_steps(self) -> None:
        assert self.r.start is not None and self.r.start.payload is not None
        known = {s.id: (gate, s) for gate in self.r.gates.values() for s in gate.steps.values()}
        for row, (gate, step) in self.pair("step", self.row["approval_steps"], "step_id", known, self.r.unseen_gates):
            self.equal(f"step {step.id}", row, gate_id=gate.id, action=gate.action, subject_ref=f"{self.r.start.payload['subject_ref']}:{gate.action}", approver_ref=step.approver,
                       submitter_ref=gate.submitter, scope=gate.payload["scope"], submitted_at_us=gate.opened.at)
            if not gate.sure:
                continue
            if row["state"] != step.state:
                missing = step.state == "Pending"
                self.find("record-missing" if missing else "row-missing", f"step {step.id} is {row['state']} in the stores, {step.state} by the records")
            elif step.ended is None:
                self.equal(f"step {step.id}", row, ended_by=None, ended_at_us=None, ended_reason=None)
            else:
                self.equal(f"step {step.id}", row, ended_at_us=step.ended.at, ended_by=step.ended_by, ended_reason=step.reason)
        assignments = {s.assignment: (gate, s) for gate, s in known.values()}
        for row, (gate, step) in self.pair("assignment", self.row["assignments"], "assignment_id", assignments, self.r.unseen_gates):
            self.equal(f"assignment {step.assignment}", row, task_ref=step.id, assignee_ref=step.approver, assigned_at_us=gate.opened.at)
            if gate.sure:
                self.equal(f"assignment {step.assignment}", row, ended_at_us=step.recalled_at, status="Active" if step.recalled_at is None else "Recalled")
        for gate, step in known.values():
            self.report.checked["4"] += 1
            active = [a for a in self.row["assignments"] if a["task_ref"] == step.id and a["status"] == "Active"]
            due = step.recalled_at is None and gate.fate != "mooted"
            if gate.sure and (len(active) != due or any(a["assignee_ref"] != step.approver for a in active)):
                self.find("assignment-coverage", f"step {step.id} ({step.state}) has {len(active)} active assignments to {[a['assignee_ref'] for a in active]}")


def check_grant_rows(b: Bundle, registry: Registry, report: Report) -> None:
    rows = {g["grant_id"]: g for g in b.grants}
    if len(rows) != len(b.grants):
        report.find("record-missing", "grants.jsonl has a grant twice")
    for grant_id, g in rows.items():
        report.checked["3"] += 1
        records = registry.grant_records.get(grant_id, [])
        made = [r for r in records if r.action == "grant_made"]
        revoked = [r for r in records if r.action == "grant_revoked"]
        if len(made) != 1 or len(revoked) > 1:
            report.find("record-missing", f"grant {grant_id} has {len(made)} records of being made, {len(revoked)} of being revoked")
            continue
        end = revoked[0] if revoked else None
        said = (g["subject_ref"], g["action_scope"], g["granted_at_us"], g["granted_seq"], g["revoked_at_us"], g["revoked_seq"])
        p, q = made[0].payload or {}, (end.payload or {}) if end else {}
        found = (p["subject_ref"], p["action_scope"], made[0].at, made[0].sequence, end.at if end else None, end.sequence if end else None)
        if g["revoked_seq"] is not None and end is None:
            report.find("record-missing", f"grant {grant_id} is revoked in the stores, and no record says so")
        elif said != found or end is not None and (q["subject_ref"], q["action_scope"]) != found[:2]:
            report.find("row-missing", f"grant {grant_id}: the row says {said}; the records say {found}")
    for grant_id, records in registry.grant_records.items():
        if grant_id not in rows:
            report.find("row-missing", f"grant {grant_id} has no row", records[0])


def check_instances(b: Bundle, registry: Registry, report: Report) -> dict[str, Replay]:
    fired_with: dict[str, Record] = {}
    replays = {}
    needed: set[str] = set()
    for instance in sorted(set(b.chains) - {REGISTRY}):
        replays[instance] = Replay(b, registry, instance, fired_with, report)
        replays[instance].run()
        first, row = b.chains[instance][0], b.state.get(instance, {})
        for source in (first.payload if first.action in ("workflow_started", "run_started") else None) or {}, row, row.get("run") or {}:
            needed |= {source.get("declaration_digest", ""), source.get("gate_spec_digest", ""), source.get("document_digest", ""), source.get("machine_digest", "")}
    for instance in sorted(set(b.state) - set(b.chains)):
        report.find("record-missing", "a line in state.jsonl without records", instance_id=instance)
    for digest in sorted(set(b.documents) - needed):
        report.find("bundle-form", f"document {digest} belongs to no instance in scope")
    check_grant_rows(b, registry, report)
    return replays


# ================================================================================================ permission: claim 5 (record.md 5.5)
SCOPES = {**verify_run.SCOPES, "workflow_started": "workflows:start", "gate_opened": "workflows:open-gate", "chain_initiated": "workflows:open-gate", "transition_fired": "workflows:fire",
          "evidence_exported": "audit:read", "hold_placed": "audit:hold", "hold_released": "audit:hold", "record_purged": "audit:purge",
          "actor_registered": "actors:manage", "credential_issued": "actors:manage", "credential_revoked": "actors:manage", "key_registered": "actors:manage",
          "key_revoked": "actors:manage", "grant_made": "permissions:manage", "grant_revoked": "permissions:manage", "definition_published": "definitions:publish"}


FINER = ("workflows:", "runs:", "tasks:", "governance:")


def check_permission(b: Bundle, registry: Registry, report: Report) -> None:
    for r in b.records:
        scope = SCOPES.get(r.action)
        if r.action == "step_transitioned":
            if r.payload is None:
                continue
            scope = verify_run.CLASS_SCOPES.get((r.payload.get("own_transition") or {}).get("actor_class"), "tasks:work")
        if b.chains[r.instance][0].action == "run_started" and r.action in ("gate_opened", "chain_initiated", "transition_fired"):
            scope = None if r.action == "transition_fired" or r.actor == registry.application_actor(r) else "runs:control"
        if r.action in verify_run.OWN_WORK and r.actor == registry.application_actor(r):
            scope = None
        begun = b.chains[r.instance][0].payload or {}
        if r.action == "run_cancelled" and begun.get("parent_run_id") is not None and r.actor == registry.application_actor(r):
            scope = None
        if scope is None or r in registry.first and r.actor == registry.founder:
            continue
        report.checked["5"] += 1
        p = r.payload or {}
        if r.action in ("key_registered", "key_revoked"):
            own = p.get("actor_ref") == r.actor and r.head["assurance"] != "server_attested"
            of_server = p.get("actor_ref") == registry.configuration(r.registry_seq).get("server_actor_ref")
            if own or r.action == "key_registered" and of_server and r.actor == registry.application_actor(r):
                continue
        scopes = [scope, *([verify_run.INSTEAD[r.action]] if r.action in verify_run.INSTEAD else [])]
        start = b.chains[r.instance][0]
        if scope.startswith(FINER) and start.payload is not None and start.payload.get("definition"):
            scopes += [f"{s}:{start.payload['definition'].rpartition('@')[0]}" for s in scopes]
        if registry.holds(r.actor, scopes, r.registry_seq):
            continue
        if scope.startswith(FINER) and start.purged:
            report.note("partially-purged-coverage", f"{scope} was not held; whether a definition's own scope was cannot be checked", r, ["5"])
        else:
            report.find("permission-not-held", f"{r.actor} did not hold {scope} at {r.registry_seq}", r)


# ================================================================================================ retention
def check_retention(b: Bundle, report: Report) -> None:
    for instance, chain in b.chains.items():
        by_id = {r.id: r for r in chain}
        destroyed: set[str] = set()
        holds: dict[str, str] = {}          # hold_id -> event_id, while active
        for r in chain:
            if r.purged:
                report.checked["retention"] += 1
                report.note("purged", f"the content of {r.action} {r.sequence} was destroyed", r)
                if r.action in ("hold_placed", "hold_released"):
                    report.note("partially-purged-coverage", "a hold was purged: on what it was cannot be told", r, ["retention"])
                if instance == REGISTRY or r.action == "record_purged":
                    report.find("destruction-invalid", "a registry record or a record_purged without content", r)
            p = r.payload
            if p is None:
                continue
            if r.action == "hold_placed":
                holds[p["hold_id"]] = p["record_ref"]
            elif r.action == "hold_released":
                if holds.get(p["hold_id"]) == p["record_ref"]:
                    del holds[p["hold_id"]]
            elif r.action == "record_purged":
                report.checked["retention"] += 1
                problem = destruction_problem(r, p, by_id.get(p["event_id"]), holds)
                if problem:
                    report.find("destruction-invalid", problem, r)
                else:
                    destroyed.add(p["event_id"])
        for r in chain:
            if r.purged and r.id not in destroyed and instance != REGISTRY:
                report.find("destruction-invalid", "a record without content, and no valid record_purged names it", r)


def destruction_problem(r: Record, p: dict[str, Json], gone: Optional[Record], holds: dict[str, str]) -> Optional[str]:
    if gone is None or gone.sequence >= r.sequence:
        return "names no earlier record of its chain"
    if not gone.purged:
        return "names a record that still has its content"
    h = gone.head
    said = {k: p[k] for k in ("instance_id", "sequence", "action_ref", "actor_ref", "record_hash", "attestation_digest", "policy_ref", "retention_until_us")}
    found = {**{k: h[k] for k in ("instance_id", "sequence", "action_ref", "actor_ref", "attestation_digest")}, "record_hash": gone.hash.hex(),
             "policy_ref": h["retention"]["policy_ref"], "retention_until_us": h["retention"]["retention_until_us"]}
    if not same(said, found):
        return "does not name the destroyed record as its header does"
    if found["retention_until_us"] is None or r.at < found["retention_until_us"]:
        return "the record was to be kept longer"
    return "a hold on the record was active" if gone.id in holds.values() else None


# ================================================================================================ questions 6 to 8 (bundle.md 4)
def ask(b: Bundle, registry: Registry, replays: dict[str, Replay]) -> list[dict[str, Json]]:
    specs, machines, people = [], [], []
    for instance, replay in replays.items():
        start = replay.start
        definition = start.payload.get("definition") if start is not None and start.payload is not None else None
        specs.append({"instance_id": instance, "guards": replay.gate_spec})
        machines.append({"instance_id": instance, "definition": definition, **replay.declaration})
        for gate in replay.gates.values():
            for step in gate.steps.values():
                meaning = None
                if step.own and step.ended is not None and step.ended.attestation is not None and "statement" in step.ended.attestation:
                    try:
                        meaning = json.loads(unbase64(step.ended.attestation["statement"])).get("meaning")
                    except (ValueError, AttributeError):
                        pass
                at = step.ended.registry_seq if step.ended is not None else gate.opened.registry_seq
                people.append({"instance_id": instance, "action": gate.action, "approver_ref": step.approver, "registered_seq": registry.actors.get(step.approver),
                               "keys": sorted(k for (actor, k), span in registry.keys.items() if actor == step.approver and span.at(at)),
                               "grants": sorted(g.value[1] for g in registry.grants.values() if g.value[0] == step.approver and g.at(at)),
                               "state": step.state, "reason": (step.ended.payload or {}).get("reason") if step.ended is not None else None, "meaning": meaning})
    return [{"check": 6, "question": "Is the gate_spec what the regulation asks for?", "facts": specs},
            {"check": 7, "question": "Is the declared machine the required process?", "facts": machines},
            {"check": 8, "question": "Was the named approver the right authority at that time?", "facts": people}]


# ================================================================================================ the answer (bundle.md 5)
def verify(path: str, policy: Policy) -> dict[str, Json]:
    report = Report()
    b = read_bundle(path, report)
    check_chains(b, report)
    checkpoint = check_checkpoint(b.checkpoint, b.manifest, policy, report)
    registry = Registry(b.chains.get(REGISTRY, []), report)
    check_checkpoint_key(checkpoint, registry, report)
    check_log(b, checkpoint, report)
    check_tail(b, report)
    identity = Identity(b, registry, report)
    for r in b.records:
        identity.check(r)
    replays = check_instances(b, registry, report)
    check_permission(b, registry, report)
    check_retention(b, report)
    claims = []
    for claim, title in TITLES.items():
        findings = [f for f in report.findings if CLAIM_OF[f["code"]] == claim]
        result = "failed" if findings else "unverifiable" if claim in report.unverifiable else "verified"
        claims.append({"claim": claim, "title": title, "result": result, "checked": report.checked[claim], "findings": findings})
    return {"result": "failed-verification" if report.findings else "verified", "origin": checkpoint.origin if checkpoint else b.manifest.get("origin"),
            "tree_size": checkpoint.size if checkpoint else b.manifest.get("tree_size"), "root": base64.b64encode(checkpoint.root).decode() if checkpoint else None,
            "records": len(b.records), "instances": len(set(b.chains) - {REGISTRY}), "claims": claims, "notes": report.notes, "questions": ask(b, registry, replays)}


def print_answer(answer: dict[str, Json]) -> None:
    print(f"{answer['result']}: {answer['origin']}@{answer['tree_size']}, {answer['records']} records, {answer['instances']} instances")
    for c in answer["claims"]:
        print(f"  {c['claim']:>9}  {c['result']:<12} {c['title']} ({c['checked']} checked)")
        for f in c["findings"]:
            print(f"             {f['code']}: {f['detail']}" + (f" [{f['event_id']}]" if "event_id" in f else ""))
    for n in answer["notes"]:
        print(f"  note: {n['code']}: {n['detail']}" + (f" [{n['event_id']}]" if "event_id" in n else ""))
    print("Left to people (with --json: the facts): " + " ".join(q["question"] for q in answer["questions"]))


def main() -> int:
    parser = argparse.ArgumentParser(description="Check an evidence bundle offline.")
    parser.add_argument("bundle")
    parser.add_argument("--key", action="append", default=[], help="verifier key of the log; may be repeated")
    parser.add_argument("--policy", help="file with trusted log keys, witnesses and quorum")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        policy = Policy()
        if args.policy:
            with open(args.policy, encoding="utf-8") as f:
                policy = parse_policy(f.read())
        policy.logs += [parse_vkey(k.strip(), 1) for k in args.key]
        if not policy.logs:
            raise Unreadable("no log key: give --key, or a policy with a log line")
        answer = verify(args.bundle, policy)
    except (Unreadable, OSError, UnicodeDecodeError) as e:
        print(f"verify.py: {e}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(answer, ensure_ascii=False, indent=1))
    else:
        print_answer(answer)
    return 0 if answer["result"] == "verified" else 1


if __name__ == "__main__":
    sys.exit(main())
