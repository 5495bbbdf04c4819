"""The registry (record.md 5.4, 5.5)."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from .found import Record, Report
from .log import Checkpoint
from .passkeys import PASSKEY, is_key
from .records import DECIDED
from .texts import Fault, Json, check_form, sha256, unbase64


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
        self.services: set[str] = set()
        self.keys: dict[tuple[str, str], Span] = {}
        self.passkeys: dict[tuple[str, str], dict[str, Json]] = {}      # of those among the keys that are passkeys
        self.credentials: dict[tuple[str, str], list[Span]] = {}
        self.added: dict[tuple[str, str], Record] = {}   # keys and credentials that another actor added after the registration
        self.grants: dict[str, Span] = {}
        self.grant_records: dict[str, list[Record]] = {}
        self.delegations: dict[str, Span] = {}                          # whom an approver named to decide in their place
        self.definitions: dict[str, list[Record]] = {}
        self.newest: dict[str, list[Record]] = {}                       # name -> its versions in their order
        self.retired: dict[str, list[tuple[int, int]]] = {}             # name -> versions up to which, by which record
        self.frozen: dict[str, list[Span]] = {}                         # worker class -> when it was frozen
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
            if p["kind"] == "service":
                self.services.add(p["actor_ref"])
        if r.action in ("actor_registered", "key_registered") and p.get("public_key") is not None:
            try:
                public = unbase64(p["public_key"])
            except ValueError:
                public = b""
            passkey = self.passkey_of(r, p, report)
            if not is_key(public, passkey) or sha256(public).hex()[:16] != key[1]:
                report.find("attestation-proof-invalid", "key_id is not that of the public key registered", r)
            self.keys.setdefault(key, Span(seq, value=public))
            if passkey is not None:
                self.passkeys.setdefault(key, passkey)
            if r.action == "key_registered" and r not in self.first:
                configuration = self.configuration(r.registry_seq)
                for role, actor in (("application", configuration.get("application_actor_ref", self.founder)), ("server", configuration.get("server_actor_ref"))):
                    if p["actor_ref"] == actor:
                        report.note(f"{role}-key-added", f"{r.actor} gave {actor} the further key {key[1]}", r)
        elif r.action == "key_revoked" and key in self.keys and self.keys[key].until is None:
            self.keys[key].until = seq
        credential = (p.get("actor_ref", ""), p.get("credential_id") or "")
        if r.action in ("key_registered", "credential_issued") and r.actor != p["actor_ref"]:
            self.added[key if r.action == "key_registered" else credential] = r
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
        elif r.action == "delegation_made":
            self.delegate(r, p, seq, report)
        elif r.action == "delegation_revoked":
            known = self.delegations.get(p["delegation_id"])
            if p["delegator_ref"] != r.actor:
                report.find("wrong-approver", f"{r.actor} ended a delegation of {p['delegator_ref']}", r)
            if known is None or known.until is not None or any(known.value[k] != p[k] for k in ("delegator_ref", "delegate_ref", "scope")):
                report.find("row-missing", f"there was no such delegation {p['delegation_id']} to revoke", r)
            else:
                known.until = seq
        elif r.action == "definition_published":
            if p.get("proposal") is None and self.publisher(p["name"], r.registry_seq) is not None:
                report.find("gate-not-approved", f"{p['name']}@{p['version']} needs the approval of a proposal, and names none", r)
            self.definitions.setdefault(f"{p['name']}@{p['version']}", []).append(r)
            if isinstance(p["version"], int):
                self.newest.setdefault(p["name"], []).append(r)
        elif r.action == "definition_retired":
            name, version = p["name"], p["version"]
            if f"{name}@{version}" not in self.definitions or f"{name}@{version + 1}" in self.definitions or self.retired_by(f"{name}@{version}", seq) is not None:
                report.find("row-missing", f"{name}@{version} was not the newest version, or was retired already", r)
            self.retired.setdefault(name, []).append((version, seq))
        elif r.action == "worker_class_frozen":
            if self.is_frozen(p["worker_class"], seq):
                report.find("row-missing", f"the worker class {p['worker_class']} is frozen already", r)
            else:
                self.frozen.setdefault(p["worker_class"], []).append(Span(seq))
        elif r.action == "worker_class_thawed":
            if self.is_frozen(p["worker_class"], seq):
                self.frozen[p["worker_class"]][-1].until = seq
            else:
                report.find("row-missing", f"the worker class {p['worker_class']} is thawed, and was not frozen", r)
        elif r.action == "configuration_recorded":
            self.configurations.append(r)

    def delegate(self, r: Record, p: dict[str, Json], seq: int, report: Report) -> None:
        """record.md 4, Substitutes: by the approver alone, of another registered actor, for a period that is one."""
        engine = (self.application_actor(r), self.configuration(r.registry_seq).get("server_actor_ref"))
        if p["delegation_id"] in self.delegations:
            report.find("record-missing", f"the delegation {p['delegation_id']} is made twice", r)
            return
        problem = None
        if p["delegator_ref"] != r.actor:
            problem = f"{r.actor} named a substitute for {p['delegator_ref']}"
        elif self.actors.get(p["delegate_ref"], seq) > r.registry_seq or p["delegate_ref"] in (r.actor, *engine):
            problem = f"{p['delegate_ref']} cannot be the substitute of {r.actor}"
        elif p["until_us"] <= p["from_us"] or p["until_us"] <= r.at:
            problem = "the period is none"
        if problem is not None:
            report.find("wrong-approver", problem, r)       # and nobody decides by it
            return
        self.delegations[p["delegation_id"]] = Span(seq, value=p)

    def substituted(self, r: Record, approver: str, scope: str) -> bool:
        """Whether the actor of this record was the approver's substitute in this scope then."""
        return any(d.at(r.registry_seq) and (d.value["delegate_ref"], d.value["delegator_ref"], d.value["scope"]) == (r.actor, approver, scope)
                   and d.value["from_us"] <= r.at < d.value["until_us"] for d in self.delegations.values())

    def passkey_of(self, r: Record, p: dict[str, Json], report: Report) -> Optional[dict[str, Json]]:
        passkey = p.get("passkey") if r.action == "key_registered" else None
        try:
            if passkey is not None:
                check_form(passkey, PASSKEY, "bundle-form", "passkey")
            return passkey
        except Fault as f:
            report.find(f.code, f.detail, r)
            return None

    def publisher(self, name: str, at: int) -> Optional[dict[str, Json]]:
        """Who approves the next version, as the newest one says at that sequence (proposal.md 3)."""
        versions = [r for r in self.newest.get(name, []) if r.sequence <= at]
        return (versions[-1].payload or {}).get("publish") if versions else None

    def is_frozen(self, worker_class: str, at: int) -> bool:
        return any(span.at(at) for span in self.frozen.get(worker_class, []))

    def retired_by(self, definition: str, at: int) -> Optional[int]:
        """The record by which this version was retired at that sequence."""
        name, _, version = definition.rpartition("@")
        return next((seq for last, seq in self.retired.get(name, []) if version.isdigit() and int(version) <= last and seq <= at), None)

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

    def has_key(self, actor: str, sequence: int) -> bool:
        return any(owner == actor and span.at(sequence) for (owner, _), span in self.keys.items())

    def must_sign(self, r: Record, sequence: int) -> bool:
        """Whether the configuration wants this record signed by its actor (5.6). `sequence`: the registry that it was decided under."""
        configuration = self.configuration(sequence)
        if configuration.get("regulated") is not True:
            return False
        if r.action == "gate_decided" or r.action in DECIDED:
            return True
        signers = configuration.get("signatures")
        engines = (configuration["application_actor_ref"], configuration["server_actor_ref"])
        if signers is None or r.actor in engines or signers == "people" and r.actor in self.services or r.action in ("evidence_exported", "attempt_refused"):
            return False
        first = r.action == "key_registered" and (r.payload is None or r.payload["actor_ref"] == r.actor) and not self.has_key(r.actor, sequence)
        return not first

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
