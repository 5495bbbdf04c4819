"""Identity: who made each record (record.md 5)."""
from __future__ import annotations

import re
import urllib.parse
from typing import Iterable, Optional

from . import dead_letters, proposals, run_model, run_statements
from .files import Bundle
from .found import Record, Report
from .passkeys import Counters, problems, same_credential
from .records import APPLICATION_ONLY
from .registry import Registry
from .texts import Fault, Json, MAX_INT, REGISTRY, as_entry, check_form, instant, parse_json, preset, published_gates, same, sha256, signature_fits, unbase64, without_nulls

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
    "delegation_made": ("make_delegation", "/v1/actors/{delegator_ref}/delegations", "delegate_ref scope reason"),
    "delegation_revoked": ("revoke_delegation", "/v1/actors/{delegator_ref}/delegations/{delegation_id}", ""),
    "grant_made": ("grant", "/v1/grants", "subject_ref action_scope"),
    "grant_revoked": ("revoke", "/v1/grants/{grant_id}/revoke", ""),
    "definition_published": ("publish_definition", "/v1/definitions", ""),
    "definition_retired": ("retire_definition", "/v1/definitions/{name}/retire", "reason"),
    "schedule_paused": ("pause_schedule", "/v1/schedules/{name}/pause", "reason"),
    "schedule_resumed": ("resume_schedule", "/v1/schedules/{name}/resume", "reason"),
    "worker_class_frozen": ("freeze_workers", "/v1/governance/workers/{worker_class}/freeze", "reason"),
    "worker_class_thawed": ("thaw_workers", "/v1/governance/workers/{worker_class}/thaw", "reason")}
METHODS = {"export_evidence": "GET", "revoke_delegation": "DELETE", "edit_proposal": "PUT"}
DECISIONS = {"step_approved": "approve", "step_rejected": "reject", "step_withdrawn": "withdraw", "chain_withdrawn": "withdraw"}


class Identity:
    def __init__(self, b: Bundle, registry: Registry, report: Report):
        self.b, self.registry, self.report = b, registry, report
        self.nonces: dict[tuple[str, str], bytes] = {}
        self.used_in: dict[bytes, tuple[str, int]] = {}                 # statement -> command
        self.of_command: dict[tuple[str, int, str], bytes] = {}         # command and signer -> statement
        self.shared: dict[bytes, dict[str, tuple[str, int]]] = {}       # statement -> its command in each instance
        self.noted: set[tuple[str, str]] = set()
        self.counters = Counters()
        self.first_of: dict[tuple[str, int], int] = {}                  # command -> first sequence
        for r in sorted(b.records, key=lambda r: r.sequence):
            self.first_of.setdefault((r.instance, r.at), r.sequence)

    def check(self, r: Record) -> None:
        if r.head["assurance"] == "server_attested" and self.registry.must_sign(r, self.registry.sequence_for(r)):
            self.report.find("assurance-too-low", f"a {r.action} that the configuration wants signed is server_attested", r)
        if r.action == "delegation_made" and r.head["assurance"] == "server_attested":
            self.report.find("assurance-too-low", "an approver names a substitute with a signature", r)
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
        known_by = (r.actor, a.get("key_id") or a.get("credential_id") or "")
        added = self.registry.added.get(known_by)
        if r.action == "gate_decided" and added is not None and added.sequence <= seq and known_by not in self.noted:
            self.noted.add(known_by)
            self.report.note("credential-added-by-another", f"{r.actor} decided with {known_by[1]}, which {added.actor} added by registry record {added.sequence}", r)
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
                self.check_passkey(r, a, seq, application)
        except Fault as f:
            self.report.find(f.code, f.detail, r)

    def check_credential(self, r: Record, credential: Optional[str], seq: int, application: bool, anonymous: bool) -> None:
        if application:
            raise Fault("attestation-proof-invalid", "the application actor's records are always signed")
        if credential is None and not anonymous:
            raise Fault("attestation-proof-invalid", "no credential_id")
        passkey = (r.actor, credential or "") in self.registry.passkeys and self.registry.keys[r.actor, credential or ""].at(seq)
        if credential is not None and not passkey and not any(s.at(seq) for s in self.registry.credentials.get((r.actor, credential), [])):
            raise Fault("attestation-proof-invalid", f"credential {credential} was not one of {r.actor}, or was revoked")

    def read_signed(self, a: dict[str, Json]) -> tuple[bytes, bytes, Optional[bytes], dict[str, Json]]:
        """Statement, signature, body, and what the statement says."""
        try:
            raw, signature = unbase64(a["statement"]), unbase64(a["signature"])
            body = None if a["body"] is None else unbase64(a["body"])
            s = parse_json(raw.decode("utf-8"))
        except ValueError as e:
            raise Fault("attestation-invalid", str(e)) from e
        except Fault as f:
            raise Fault("attestation-invalid" if f.code == "bundle-form" else f.code, f"statement: {f.detail}") from f
        check_form(s, STATEMENT, "attestation-invalid", "statement")
        return raw, signature, body, s

    def check_passkey(self, r: Record, a: dict[str, Json], seq: int, application: bool) -> None:
        raw, signature, body, s = self.read_signed(a)
        try:
            data, client_data = unbase64(a["authenticator_data"]), unbase64(a["client_data_json"])
        except ValueError as e:
            raise Fault("attestation-invalid", str(e)) from e
        key, passkey = self.registry.keys.get((r.actor, a["key_id"])), self.registry.passkeys.get((r.actor, a["key_id"]))
        if key is None or passkey is None or key.since > seq:
            self.report.find("attestation-proof-invalid", f"{a['key_id']} was no passkey of {r.actor} at {seq}", r)
        else:
            if key.until is not None and key.until <= seq:
                self.report.find("key-revoked", f"the passkey {a['key_id']} was revoked at {key.until}", r)
            found, counter = problems(passkey, key.value, raw, data, client_data, signature)
            for problem in found:
                self.report.find("attestation-proof-invalid", problem, r)
            self.counters.take(r, a["key_id"], raw, s["issued_at_us"], counter)
        self.check_nonce(r, s, raw, application)
        for problem in self.compare(r, a, s, body, application):
            self.report.find("statement-mismatch", problem, r)

    def check_signed(self, r: Record, a: dict[str, Json], seq: int, application: bool) -> None:
        raw, signature, body, s = self.read_signed(a)
        key = self.registry.keys.get((r.actor, a["key_id"]))
        if application and r.action == "key_registered" and r.payload is not None and (r.payload["actor_ref"], r.payload["key_id"]) == (r.actor, a["key_id"]):
            seq = r.sequence    # a further node of the application actor has no other key yet (5.4)
        if key is None or key.since > seq or (r.actor, a["key_id"]) in self.registry.passkeys:
            self.report.find("attestation-proof-invalid", f"key {a['key_id']} was not {r.actor}'s at {seq}, or is a passkey", r)
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
        if s["action"] in run_model.SHARED and shared.setdefault(r.instance, command) == command:
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
        merges = ((p or {}).get("proposal") or {}).get("instance_id") if r.action == "definition_published" else None
        if s["actor_ref"] != r.actor or s["key_id"] != a["key_id"]:
            yield "actor_ref or key_id of the statement is not the record's"
        if not NONCE.match(s["nonce"]):
            yield "the nonce has not the form"
        null_instance = r.instance == REGISTRY or r.action == "workflow_started" or r.action in ("run_started", "steps_claimed") and not application
        of_replay = dead_letters.is_request(self.b.chains[r.instance][0]) and r.action in dead_letters.BEGUN and not application
        null_instance = null_instance or of_replay
        may_be_null = r.action in ("event_received", "evidence_exported", "hold_placed", "hold_released", "record_purged") and s["instance_id"] is None
        if s["instance_id"] != (merges or (None if null_instance else r.instance)) and not may_be_null:
            yield "instance_id of the statement is not the record's"
        # Of a merge it is the proposal's, whose own record of the merge says so.
        if merges is None and s["expected_sequence"] is not None and s["expected_sequence"] + 1 != self.first_of[r.instance, r.at]:
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
            if s["action"] not in {*proposals.ACTIONS, dead_letters.ACTION, *(route[0] for route in ROUTES.values())}:
                yield f"action {s['action']!r} is not one"
            if body is not None and s["body_digest"] != sha256(body).hex():
                yield "body_digest is not that of the body"
            return
        run = r.action in run_model.PAYLOADS
        if r.action not in ROUTES and not run or r.action in run_model.APPLICATION_ONLY:
            yield f"{r.action} is the application actor's alone"
            return
        action, path, members = (s["action"], "", "") if run else ROUTES[r.action]
        proposed = proposals.route(r) if proposals.is_proposal(self.b.chains[r.instance][0]) else None
        if merges is not None:
            proposed = "merge_proposal", f"/v1/proposals/{merges}/merge", ""
        if of_replay:
            action, path, members = dead_letters.route(r, s["request"] or "") or (action, path, members)
        action, path, members = proposed or (action, path, members)
        if r.action == "key_registered" and p.get("passkey") is not None:
            path, members = "/v1/me/passkeys", ""
        if self.b.chains[r.instance][0].action == "run_started":
            path = path.replace("/v1/processes", "/v1/runs")
        if s["action"] != action:
            yield f"action {s['action']!r} does not lead to {r.action}"
        if s["action"] == "decide_gate" and not (s["meaning"] or "").strip():
            yield "a decision without a meaning"
        if not run:
            yield from self.compare_path(s["request"], METHODS.get(action, "POST"), path, {**p, "instance_id": r.instance})
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
            yield from run_statements.compare_request(r, p, s, said)
        for member in members.split():
            if not same(said.get(member), p.get(member)):
                yield f"{member} of the body is not the payload's"
        if r.action == "gate_opened" and said.get("request") is not None and not same(said["request"], p.get("request")):
            yield "request of the body is not the payload's"
        if action == "decide_gate":
            if said.get("decision") != DECISIONS.get(r.action, p.get("decision")):
                yield "decision of the body is not the payload's"
            if said.get("step_id") not in (None, p.get("step_id")):
                yield "step_id of the body is not the payload's"
            if r.action == "gate_decided" and said.get("request_digest") not in (None, p.get("request_digest")):
                yield "request_digest of the body is not the payload's"
        if r.action == "delegation_made":
            for member in ("from", "until"):
                if instant(said.get(member)) != p[member + "_us"]:
                    yield f"{member} of the body is not the payload's"
        if of_replay:
            yield from dead_letters.compare(r, said)
        elif proposed is not None:
            yield from proposals.compare(r, said)
        elif r.action == "workflow_started":
            yield from self.compare_start(r, p, said)
        if r.action == "key_registered" and p.get("passkey") is not None:
            if not same(said.get("label"), p["passkey"].get("label")) or not same_credential(said, p):
                yield "the passkey of the body is not the payload's"

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
            if member == "gate_spec" and isinstance(given, dict):
                given = {k: as_entry(v) if isinstance(v, dict) else v for k, v in given.items()}
            if member == "gate_spec" and definition is not None and isinstance(given, dict) and isinstance(document, dict):
                document = {k: v for k, v in document.items() if k in given}  # it replaces the definition's label by label
                for label, entry in document.items():           # whether a substitute may be named is the definition's to say
                    if isinstance(entry, dict) and entry.get("delegable") is True and isinstance(given[label], dict):
                        given = {**given, label: {**given[label], "delegable": True}}
            if not same(without_nulls(given), without_nulls(document)):
                yield f"{member} of the body is not the document"
        published = [d.payload for d in self.registry.definitions.get(str(definition), []) if d.payload is not None and d.sequence <= r.registry_seq]
        if not said.get("gate_spec") and any(not self.as_published(d["gate_spec_digest"], p["gate_spec_digest"]) for d in published):
            yield "gate_spec is not the definition's, and the body gives none"

    def as_published(self, published: str, started: str) -> bool:
        """Whether a start under this gate_spec replaced nothing of the definition's."""
        if published == started:
            return True
        gates = published_gates(self.b.documents.get(published))
        try:
            spec = parse_json(self.b.documents.get(started) or "")
        except Fault:
            return False
        return gates is not None and isinstance(spec, dict) and all(same(preset(gates.get(k)), as_entry(v)) for k, v in spec.items())
