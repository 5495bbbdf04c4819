"""The files of a bundle (bundle.md 1)."""
from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass, field

from . import run_model
from .found import Record, Report
from .keys import parse_vkey
from .records import read_record
from .texts import Fault, Json, REGISTRY, Unreadable, check_form, parse_json

ROTATIONS = "rotations.jsonl"  # only where another key took over the log
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
    rotations: list[dict[str, Json]] = field(default_factory=list)
    chains: dict[str, list[Record]] = field(default_factory=dict)  # by sequence


def read_files(path: str, report: Report) -> dict[str, str]:
    """The texts of the seven files; what is missing or unreadable is a finding and an empty text."""
    texts = dict.fromkeys(FILES, "")
    try:
        with zipfile.ZipFile(path) as z:
            names = [i.filename for i in z.infolist()]
            for name in sorted(set(names)):
                if names.count(name) > 1 or name not in [*FILES, ROTATIONS]:
                    report.find("bundle-form", f"file {name!r} is not one of a bundle's, or appears twice")
            for name in [*FILES, *([ROTATIONS] if ROTATIONS in names else [])]:
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
    b.rotations = read_lines(ROTATIONS, texts.get(ROTATIONS, ""), "note:text proof:texts", report)
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
                check_form(line["run"], run_model.STATE, "bundle-form", f"state.jsonl, {line['instance_id']}, run")
                for row in line["run"]["steps"]:
                    check_form(row, run_model.STATE_STEP, "bundle-form", f"state.jsonl, {line['instance_id']}, steps of the run")
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
