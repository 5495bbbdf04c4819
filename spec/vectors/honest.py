"""An honest server in miniature: actors, the registry, processes and their log."""
from __future__ import annotations

import datetime
import functools
import json
from typing import Any, Callable, Optional

from bundle import GOVERNANCE, REGISTRY, ZEROS, Bundle, Key, Record, Tree, app_attestation, b64, bearer_attestation, det, dump, file_order, heads_digest, sha, rotation_note, signed_attestation, signed_note, statement, uuid7, vkey

SCOPES = ["workflows:start", "workflows:open-gate", "workflows:fire", "audit:read", "audit:hold", "audit:purge",
          "actors:manage", "permissions:manage", "definitions:publish"]
HEADER = ["v", "event_id", "instance_id", "sequence", "prev", "action_ref", "actor_ref", "recorded_at_us", "registry_seq",
          "assurance", "retention", "payload_digest", "attestation_digest"]
T0 = 1_767_600_000_000_000  # 2026-01-05T08:00:00Z
DAY = 86_400_000_000
# Why the engine itself withdrew a step (bundle.md, section 2): its gate is moot, its quorum is out of reach, the state of its resolved chain was left.
MOOT = "Gate moot: workflow left the gate's from_state by firing a different transition"
UNREACHABLE = "Chain withdrawn: its quorum can no longer be reached"
LEFT = "Chain resolved: workflow left the gate's from_state"


def iso(us: int) -> str:
    """RFC 3339, in UTC."""
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=us)
    return at.isoformat(timespec="microseconds") + "Z"


class Actor:
    def __init__(self, ref: str, key: Any = None, token: Optional[str] = None, session: Optional[str] = None):
        self.ref, self.key, self.token = ref, key, token    # key: a Key, or an Authenticator of passkeys.py
        self.session = session      # the passkey that began it

    @property
    def credential_id(self) -> Optional[str]:
        return self.session if self.token is None else sha(self.token.encode()).hex()[:16]


Write = tuple[str, Optional[Actor], dict[str, Any]]  # action_ref, by (None: the application actor), payload


class World:
    APP, SERVER = "countersign", "countersign-server"

    def __init__(self, name: str, regulated: bool = True, retention_days: Optional[int] = None, rules: int = 1, signatures: Optional[str] = None):
        self.name, self.regulated, self.retention_days, self.rules, self.signatures = name, regulated, retention_days, rules, signatures
        self.origin = "countersign/" + det(name, "origin").hex()[:16]
        self.log_key, self.app_key = Key(det(name, "log key")), Key(det(name, "application key"))
        self.witnesses = [(f"{w}.example/{name}", Key(det(name, "witness", w))) for w in ("w1", "w2")]
        self.passkeys: dict[str, list[Any]] = {}
        self.keys: dict[str, list[Key]] = {self.APP: [self.app_key], self.SERVER: [self.log_key]}
        self.rotations: list[tuple[int, str]] = []
        self.trusted = self.log_key     # whom the auditor trusts: the first key
        self.now = T0
        self.log: list[Optional[Record]] = []
        self.chains: dict[str, list[Record]] = {REGISTRY: []}
        self.documents: dict[str, str] = {}
        self.definitions: dict[str, dict[str, Any]] = {}
        self.grants: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, Process] = {}
        self.ids = 0
        self.app = Actor(self.APP, self.app_key)
        self.bootstrap()

    # -- small things
    def new_id(self) -> str:
        self.ids += 1
        return uuid7(self.now, 0x20000000 + self.ids, det(self.name, "id", self.ids))

    def new_key(self, label: str) -> Key:
        return Key(det(self.name, "actor key", label))

    def noise(self, n: int = 1) -> None:
        """Records of somebody else's process: the bundle knows them as hashes in proofs only."""
        self.log.extend([None] * n)

    def retention(self, registry: bool, kept: bool) -> dict[str, Any]:
        if registry or kept or self.retention_days is None:
            return {"policy_ref": "permanent", "retention_until_us": None, "purge_deadline_us": None}
        until = self.now + self.retention_days * DAY
        return {"policy_ref": "short-lived", "retention_until_us": until, "purge_deadline_us": until + 30 * DAY}

    # -- one command: all its records share time, registry_seq and, per signer, statement
    def command(self, instance: str, writes: list[Write], action: str = "", method: str = "POST", path: str = "",
                body: Optional[bytes] = None, document: bool = False, meaning: Optional[str] = None, step: Optional[str] = None,
                expect: bool = True, instance_null: bool = False) -> list[Record]:
        self.now += 1_370_001
        chain = self.chains.setdefault(instance, [])
        registry_seq = len(self.chains[REGISTRY])
        expected = len(chain) if expect else None
        said: dict[str, str] = {}
        out = []
        for action_ref, by, payload in writes:
            sequence = len(chain) + 1
            event_id = uuid7(self.now, sequence, det(self.name, instance, sequence))
            text = dump({k: v for k, v in payload.items() if v is not None or k in ("audit_trail_retention_policy", "after_us", "before_us",
                                                                                    "retention_until_us")})
            actor = by or self.app
            head: dict[str, Any] = dict.fromkeys(HEADER, 0)
            head.update(v=1, event_id=event_id, instance_id=instance, sequence=sequence, prev=chain[-1].hash.hex() if chain else ZEROS,
                        action_ref=action_ref, actor_ref=actor.ref, recorded_at_us=self.now, registry_seq=registry_seq,
                        assurance="server_attested" if not actor.key else "actor_signed" if isinstance(actor.key, Key) else "passkey_signed",
                        retention=self.retention(instance == REGISTRY, action_ref == "record_purged"))
            record = Record(head, text, "", det(self.name, "salt", instance, sequence).hex())
            if by is None:
                record.attestation = app_attestation(self.app_key, record, "app-" + event_id)
            elif by.key is None:
                record.attestation = bearer_attestation(by.credential_id)
            else:
                if by.ref not in said:
                    over = body or b""
                    where = None if instance == REGISTRY or instance_null else instance
                    words = statement(action, by.ref, by.key, f"{method} {path}", where, step, over, meaning, expected,
                                      "n-" + det(self.name, "nonce", event_id).hex()[:24], self.now - 900_000)
                    attest = functools.partial(signed_attestation, by.key) if isinstance(by.key, Key) else by.key.attest
                    said[by.ref] = attest(words, "document" if document else "body", None if document else over)
                record.attestation = said[by.ref]
            record.seal()
            chain.append(record)
            self.log.append(record)
            out.append(record)
        return out

    # -- registry
    def bootstrap(self) -> None:
        self.admin = Actor("admin", token="admin-token-" + self.name)
        writes: list[Write] = [
            ("actor_registered", None, {"actor_ref": self.APP, "kind": "software", "public_key": b64(self.app_key.public), "key_id": self.app_key.key_id}),
            ("actor_registered", None, {"actor_ref": self.SERVER, "kind": "software", "public_key": b64(self.log_key.public), "key_id": self.log_key.key_id}),
            ("actor_registered", None, {"actor_ref": "admin", "kind": "human", "display_name": "First administrator", "credential_id": self.admin.credential_id}),
        ]
        for scope in SCOPES:
            writes.append(("grant_made", None, {"grant_id": self.new_id(), "subject_ref": "admin", "action_scope": scope}))
        writes.append(("configuration_recorded", None, {"audit_trail_retention_policy": "permanent", "regulated": self.regulated, "signatures": self.signatures,
                                                        "application_actor_ref": self.APP, "server_actor_ref": self.SERVER}))
        self._note_grants(self.command(REGISTRY, writes))

    def leaves(self) -> list[bytes]:
        return [r.hash if r is not None else det(self.name, "somebody else", i) for i, r in enumerate(self.log)]

    def rotate_log(self, label: str) -> None:
        """Another key takes over the log, with a note that both keys sign; then the registry learns of it."""
        old, new, size = self.log_key, Key(det(self.name, "log key", label)), len(self.log)
        self.rotations.append((size, rotation_note(self.origin, size, Tree(self.leaves()).root, old, new)))
        self.log_key = new
        self.keys[self.SERVER].append(new)
        self.rotate_key(self.SERVER, old, new)

    def rotate_app(self, label: str) -> None:
        """The old key signs the registration of the new one and its own end."""
        old, new = self.app_key, Key(det(self.name, "application key", label))
        self.rotate_key(self.APP, old, new)
        self.app_key = self.app.key = new
        self.keys[self.APP].append(new)

    def rotate_key(self, actor: str, old: Key, new: Key) -> None:
        self.command(REGISTRY, [("key_registered", None, {"actor_ref": actor, "key_id": new.key_id, "public_key": b64(new.public)}),
                                ("key_revoked", None, {"actor_ref": actor, "key_id": old.key_id, "reason": "rotated: another key took its place"})])

    def _note_grants(self, records: list[Record]) -> None:
        for r in records:
            if r.head["action_ref"] == "grant_made":
                self.grants[r.body["grant_id"]] = {**r.body, "granted_at_us": r.head["recorded_at_us"], "granted_seq": r.head["sequence"],
                                                   "revoked_at_us": None, "revoked_seq": None}

    def register(self, by: Actor, ref: str, key: bool = True, token: bool = False, kind: str = "human", name: Optional[str] = None) -> Actor:
        actor = Actor(ref, self.new_key(ref + "/1") if key else None, f"token-{ref}-{self.name}" if token else None)
        body: dict[str, Any] = {"actor_ref": ref, "kind": kind}
        if name:
            body["display_name"] = name
        if actor.key:
            body["public_key"] = b64(actor.key.public)
            self.keys.setdefault(ref, []).append(actor.key)
        payload = {**body, "key_id": actor.key.key_id if actor.key else None, "credential_id": actor.credential_id}
        self.command(REGISTRY, [("actor_registered", by, payload)], "register_actor", path="/v1/actors", body=dump(body).encode())
        return actor

    def issue(self, by: Actor, actor: Actor, label: str) -> Actor:
        twin = Actor(actor.ref, None, f"token-{label}-{self.name}")
        self.command(REGISTRY, [("credential_issued", by, {"actor_ref": actor.ref, "credential_id": twin.credential_id})],
                     "issue_credential", path=f"/v1/actors/{actor.ref}/tokens", body=b"{}")
        return twin

    def revoke_credential(self, by: Actor, actor: Actor) -> None:
        self.command(REGISTRY, [("credential_revoked", by, {"actor_ref": actor.ref, "credential_id": actor.credential_id})],
                     "revoke_credential", path=f"/v1/actors/{actor.ref}/tokens/{actor.credential_id}/revoke", body=b"{}")

    def add_key(self, by: Actor, actor: Actor, label: str) -> Actor:
        key = self.new_key(label)
        self.keys.setdefault(actor.ref, []).append(key)
        self.command(REGISTRY, [("key_registered", by, {"actor_ref": actor.ref, "key_id": key.key_id, "public_key": b64(key.public)})],
                     "register_key", path=f"/v1/actors/{actor.ref}/keys", body=dump({"public_key": b64(key.public)}).encode())
        return Actor(actor.ref, key)

    def second_node(self, label: str) -> None:
        """A further node: the application actor registers a new key of its own, signed with that key, and then one of the server actor."""
        for ref in (self.APP, self.SERVER):
            key = self.new_key(f"{ref}/{label}")
            if ref == self.APP:
                self.app_key = self.app.key = key
            self.keys[ref].append(key)
            self.command(REGISTRY, [("key_registered", None, {"actor_ref": ref, "key_id": key.key_id, "public_key": b64(key.public)})])

    def revoke_key(self, by: Actor, actor: Actor, reason: str) -> None:
        assert actor.key
        self.command(REGISTRY, [("key_revoked", by, {"actor_ref": actor.ref, "key_id": actor.key.key_id, "reason": reason})],
                     "revoke_key", path=f"/v1/actors/{actor.ref}/keys/{actor.key.key_id}/revoke", body=dump({"reason": reason}).encode())

    def grant(self, by: Actor, actor: Actor, *scopes: str) -> list[str]:
        ids = []
        for scope in scopes:
            body = {"subject_ref": actor.ref, "action_scope": scope}
            ids.append(self.new_id())
            self._note_grants(self.command(REGISTRY, [("grant_made", by, {"grant_id": ids[-1], **body})], "grant", path="/v1/grants", body=dump(body).encode()))
        return ids

    def revoke(self, by: Actor, grant_id: str) -> None:
        row = self.grants[grant_id]
        payload = {"grant_id": grant_id, "subject_ref": row["subject_ref"], "action_scope": row["action_scope"]}
        record = self.command(REGISTRY, [("grant_revoked", by, payload)], "revoke", path=f"/v1/grants/{grant_id}/revoke", body=b"{}")[0]
        row.update(revoked_at_us=record.head["recorded_at_us"], revoked_seq=record.head["sequence"])

    def store(self, document: dict[str, Any]) -> str:
        text = dump(document)
        digest = sha(text.encode()).hex()
        self.documents[digest] = text
        return digest

    def publish(self, by: Actor, name: str, version: int, declaration: dict[str, Any], gate_spec: dict[str, Any]) -> str:
        source = dump({"kind": "process", "name": name, **declaration, "gate_spec": gate_spec}).encode()
        entry: dict[str, Any] = {"declaration": declaration, "gate_spec": dict(sorted(gate_spec.items(), key=lambda kv: kv[0].encode()))}
        entry["declaration_digest"], entry["gate_spec_digest"] = self.store(entry["declaration"]), self.store(entry["gate_spec"])
        self.definitions[f"{name}@{version}"] = entry
        self.command(REGISTRY, [("definition_published", by, {"name": name, "version": version, "digest": sha(source).hex(), **{
            k: entry[k] for k in ("declaration_digest", "gate_spec_digest")}})], "publish_definition", path="/v1/definitions", body=source, document=True)
        return f"{name}@{version}"

    def mark(self, by: Actor, action: str, name: str, version: int, reason: str) -> Record:
        statement, path = {"definition_retired": ("retire_definition", f"/v1/definitions/{name}/retire"), "schedule_paused": ("pause_schedule", f"/v1/schedules/{name}/pause"),
                           "schedule_resumed": ("resume_schedule", f"/v1/schedules/{name}/resume")}[action]
        payload = {"name": name, "version": version, "reason": reason}
        return self.command(REGISTRY, [(action, by, payload)], statement, path=path, body=dump({"reason": reason}).encode())[0]

    def mark_workers(self, by: Actor, action: str, worker_class: str, reason: str) -> Record:
        statement, verb = {"worker_class_frozen": ("freeze_workers", "freeze"), "worker_class_thawed": ("thaw_workers", "thaw")}[action]
        path = f"/v1/governance/workers/{worker_class}/{verb}"
        return self.command(REGISTRY, [(action, by, {"worker_class": worker_class, "reason": reason})], statement, path=path, body=dump({"reason": reason}).encode())[0]

    def delegate(self, by: Actor, to: Actor, scope: str, days: int = 14, reason: Optional[str] = None) -> str:
        """An approver names a substitute, from now on."""
        since, until = self.now, self.now + days * DAY
        delegation_id = self.new_id()
        body = {"delegate_ref": to.ref, "scope": scope, "from": iso(since), "until": iso(until), **({"reason": reason} if reason else {})}
        payload = {"delegation_id": delegation_id, "delegator_ref": by.ref, "delegate_ref": to.ref, "scope": scope, "from_us": since, "until_us": until, "reason": reason}
        self.command(REGISTRY, [("delegation_made", by, payload)], "make_delegation", path=f"/v1/actors/{by.ref}/delegations", body=dump(body).encode())
        return delegation_id

    def end_delegation(self, by: Actor, delegation_id: str) -> None:
        made = next(r.body for r in self.chains[REGISTRY] if r.head["action_ref"] == "delegation_made" and r.body["delegation_id"] == delegation_id)
        payload = {k: made[k] for k in ("delegation_id", "delegator_ref", "delegate_ref", "scope")}
        self.command(REGISTRY, [("delegation_revoked", by, payload)], "revoke_delegation", method="DELETE", path=f"/v1/actors/{by.ref}/delegations/{delegation_id}")

    # -- holds, purges, exports
    def hold(self, by: Actor, record: Record, reason: str, case: Optional[str] = None) -> str:
        hold_id = self.new_id()
        body = {"record_ref": record.head["event_id"], "reason": reason, **({"case_ref": case} if case else {})}
        instance = record.head["instance_id"]
        self.command(instance, [("hold_placed", by, {"hold_id": hold_id, "record_ref": record.head["event_id"], "instance_id": instance,
                                                     "reason": reason, "case_ref": case})], "place_hold", path="/v1/ledger/holds", body=dump(body).encode())
        return hold_id

    def release_hold(self, by: Actor, record: Record, hold_id: str, reason: str) -> None:
        instance = record.head["instance_id"]
        self.command(instance, [("hold_released", by, {"hold_id": hold_id, "record_ref": record.head["event_id"], "instance_id": instance, "reason": reason})],
                     "release_hold", path=f"/v1/ledger/holds/{hold_id}/release", body=dump({"reason": reason}).encode())

    def purge(self, by: Actor, record: Record) -> None:
        h = record.head
        self.command(h["instance_id"], [("record_purged", by, {
            "event_id": h["event_id"], "instance_id": h["instance_id"], "sequence": h["sequence"], "action_ref": h["action_ref"], "actor_ref": h["actor_ref"],
            "record_hash": record.hash.hex(), "attestation_digest": h["attestation_digest"], "policy_ref": h["retention"]["policy_ref"],
            "retention_until_us": h["retention"]["retention_until_us"]})], "purge_record", path=f"/v1/ledger/records/{h['event_id']}/purge", body=b"")
        self.processes[h["instance_id"]].forget(record)
        record.payload = record.attestation = record.salt = None

    def export(self, by: Actor, process: "Process", size: int) -> Bundle:
        chain = self.chains[process.id]
        self.command(process.id, [("evidence_exported", by, {"instance_id": process.id, "through_sequence": len(chain)})],
                     "export_evidence", "GET", f"/v1/ledger/export?instance_id={process.id}", b"")
        return self._bundle({"instance_id": process.id}, [process], by, size)

    # -- governance: what was observed, opened and resolved in one command
    def govern(self, opened: list[dict[str, Any]] = [], resolved: list[dict[str, Any]] = [], observed: list[dict[str, Any]] = []) -> None:
        """A problem or a resolution without an `event_id` is shown by the record of what was observed."""
        sequence = len(self.chains.get(GOVERNANCE, [])) + 1
        own = uuid7(self.now + 1_370_001, sequence, det(self.name, GOVERNANCE, sequence))
        of = lambda entries: [{"event_id": own, **e} for e in entries]  # noqa: E731
        said = [("condition_observed", "conditions", observed), ("problem_opened", "problems", of(opened)), ("problem_resolved", "problems", of(resolved))]
        self.command(GOVERNANCE, [(action, None, {"instance_id": GOVERNANCE, name: entries}) for action, name, entries in said if entries])

    def export_window(self, by: Actor, after: Optional[int], before: Optional[int], size: int) -> Bundle:
        inside = [p for p in self.processes.values() if any(
            (after is None or r.head["recorded_at_us"] >= after) and (before is None or r.head["recorded_at_us"] <= before) for r in self.chains[p.id])]
        ids = [GOVERNANCE] * (GOVERNANCE in self.chains) + [p.id for p in inside]
        heads = [(i, len(self.chains[i]), self.chains[i][-1].hash.hex()) for i in ids]
        self.command(REGISTRY, [("evidence_exported", by, {"after_us": after, "before_us": before, "instances": len(heads), "heads_digest": heads_digest(heads)})],
                     "export_evidence", "GET", "/v1/ledger/export", b"")
        return self._bundle({"after_us": after, "before_us": before}, inside, by, size)

    def _bundle(self, scope: dict[str, Any], processes: list["Process"], by: Actor, size: int) -> Bundle:
        if len(self.log) > size:
            raise ValueError(f"{self.name}: the log has {len(self.log)} entries, more than {size}")
        self.noise(size - len(self.log))
        tree = Tree(self.leaves())
        b = Bundle()
        governed = "instance_id" not in scope and GOVERNANCE in self.chains
        wanted = {REGISTRY} | {p.id for p in processes} | ({GOVERNANCE} if governed else set())
        for i, r in enumerate(self.log):
            if r is not None and r.head["instance_id"] in wanted:
                twin = r.copy()
                twin.log_index, twin.proof = i, [h.hex() for h in tree.inclusion(i)]
                b.records.append(twin)
        b.records.sort(key=file_order)
        digests = sorted({d for p in processes for d in (p.declaration_digest, p.gate_spec_digest, *getattr(p, "more_digests", ()))})
        b.documents = [{"digest": d, "body": self.documents[d]} for d in digests]
        b.state = [json.loads(dump(p.row())) for p in sorted(processes, key=lambda p: p.id)]
        keys = ["grant_id", "subject_ref", "action_scope", "granted_at_us", "granted_seq", "revoked_at_us", "revoked_seq"]
        b.grants = [{k: g[k] for k in keys} for g in sorted(self.grants.values(), key=lambda g: g["granted_seq"])]
        self.now += 1_000_003
        b.manifest = {"v": 1, "kind": "countersign-evidence", "scope": scope, "origin": self.origin, "tree_size": size,
                      "registry_sequence": len(self.chains[REGISTRY]), "instances": len(processes) + governed, "records": len(b.records),
                      "made_at_us": self.now, "made_by": by.ref, "software": "spec/vectors/make.py"}
        b.checkpoint = signed_note(self.origin, size, tree.root, self.log_key, self.witnesses, self.now // 1_000_000)
        b.log_vkey = vkey(self.origin, self.log_key) + "\n"
        b.rotations = [{"note": note, "proof": [h.hex() for h in tree.consistency(at)]} for at, note in self.rotations]
        return b

    # -- what goes beside a bundle
    def policy(self) -> str:
        lines = ["# whom the auditor of these test vectors trusts", f"log {vkey(self.origin, self.trusted)}"]
        lines += [f"witness w{i + 1} {vkey(name, key, 4)}" for i, (name, key) in enumerate(self.witnesses)]
        return "\n".join(lines + ["group both all w1 w2", "quorum both"]) + "\n"

    def keyfile(self) -> dict[str, Any]:
        kept = {ref: [k.keyfile() for k in keys if hasattr(k, "seed")] for ref, keys in self.passkeys.items()}
        return {"vkey": vkey(self.origin, self.trusted), "log": {"name": self.origin, "seed": self.log_key.seed.hex()},
                "application": {"actor_ref": self.APP, "seed": self.keys[self.APP][0].seed.hex()},
                "actors": {ref: [k.seed.hex() for k in keys] for ref, keys in self.keys.items() if ref not in (self.APP, self.SERVER)},
                **({"passkeys": kept} if kept else {}),
                "witnesses": [{"name": name, "seed": key.seed.hex()} for name, key in self.witnesses], "policy": self.policy()}


def settle(rule: str, m: Optional[int], states: list[str]) -> str:
    n, a, r, w = len(states), states.count("Approved"), states.count("Rejected"), states.count("Withdrawn")
    if rule == "all-of-n":
        return "Approved" if a == n else "Rejected" if r else "Withdrawn" if w else "Pending"
    need = m if rule == "m-of-n" and m is not None else 1
    if a >= need:
        return "Approved"
    if n - r - w < need:
        return "Rejected" if r else "Withdrawn"
    return "Pending"


class Process:
    """One run of a declared machine: writes the records and keeps the rows of the stores, as the server would."""

    def __init__(self, world: World, by: Actor, definition: str, subject: str, reason: Optional[str] = None, gate_spec: Optional[dict[str, Any]] = None):
        w = self.world = world
        entry = w.definitions[definition]
        self.declaration, self.gate_spec = entry["declaration"], entry["gate_spec"]
        self.declaration_digest, self.gate_spec_digest = entry["declaration_digest"], entry["gate_spec_digest"]
        body: dict[str, Any] = {"subject_ref": subject, "definition": definition}
        if reason:
            body["reason"] = reason
        published = {k: {x: y for x, y in v.items() if x not in ("replaceable", "selfApproval")} for k, v in self.gate_spec.items()}
        if gate_spec or published != self.gate_spec:
            self.gate_spec = dict(sorted({**published, **(gate_spec or {})}.items(), key=lambda kv: kv[0].encode()))
            self.gate_spec_digest = w.store(self.gate_spec)
        if gate_spec:
            body["gate_spec"] = gate_spec
        edition: dict[str, Any] = {}
        if w.rules >= 2:
            replaced = [k for k, v in self.gate_spec.items() if v != published[k]]
            edition = {**({"replaced": replaced} if replaced else {}), "rules": w.rules}
            self.more_digests = (entry["gate_spec_digest"],)
        self.id, self.definition, self.subject, self.initiator = w.new_id(), definition, subject, by.ref
        self.state = self.declaration["initial_state"]
        self.transitions: list[dict[str, Any]] = []
        self.gates: dict[str, dict[str, Any]] = {}
        self.steps: dict[str, dict[str, Any]] = {}
        self.assignments: dict[str, dict[str, Any]] = {}
        self.bound: dict[tuple[str, str], str] = {}
        self.asked: dict[str, Optional[str]] = {}    # the digest of what each gate asks
        r = w.command(self.id, [("workflow_started", by, {
            "instance_id": self.id, "subject_ref": subject, "initial_state": self.state, "definition": definition, "declaration_digest": self.declaration_digest,
            "gate_spec_digest": self.gate_spec_digest, "gate_spec_labels": list(self.gate_spec), **edition, "reason": reason})],
            "start_workflow", path="/v1/processes", body=dump(body).encode(), expect=False, instance_null=True)[0]
        self.started = r.head["recorded_at_us"]
        w.processes[self.id] = self

    def declared(self, action: str) -> dict[str, Any]:
        return next(t for t in self.declaration["transitions"] if t["from"] == self.state and t["action"] == action)

    def open(self, by: Actor, action: str, reason: Optional[str] = None, request: Optional[dict[str, Any]] = None) -> str:
        w, guard = self.world, self.declared(action)["guard"]
        spec = self.gate_spec[guard]
        approvers = spec.get("approvers") or [spec["approver_ref"]]
        steps = [{"step_id": w.new_id(), "assignment_id": w.new_id(), "approver_ref": a} for a in approvers]
        quorum = spec.get("quorum")
        gate_id = w.new_id() if quorum else steps[0]["step_id"]
        old = self.bound.get((self.state, action))
        common = {"scope": spec["scope"], "submitter_ref": self.initiator, "supersedes": old, "reason": reason}
        opened = {"instance_id": self.id, "action": action, "from_state": self.state, "guard": guard}
        asked = {"request": request, "request_digest": sha(dump(request).encode()).hex()} if request else {}
        writes: list[Write] = []
        if quorum:
            writes.append(("chain_initiated", by, {"instance_id": self.id, "chain_id": gate_id, "action": action, "subject_ref": f"{self.subject}:{action}",
                                                   "scope": spec["scope"], "initiator_ref": self.initiator, "approver_set": approvers,
                                                   "quorum_rule": quorum["rule"], "m": quorum.get("m"), "steps": steps}))
            writes.append(("gate_opened", by, {**opened, "chain_id": gate_id, "steps": steps, **common, **asked}))
        else:
            writes.append(("gate_opened", by, {**opened, **steps[0], **common, **asked}))
        body = {"action": action, **({"reason": reason} if reason else {}), **({"request": request} if request else {})}
        r = w.command(self.id, writes, "open_gate", path=f"/v1/processes/{self.id}/gates", body=dump(body).encode())[-1]
        at = r.head["recorded_at_us"]
        self.asked[gate_id] = asked.get("request_digest")
        if old:
            self.gates[old]["current"] = False
        self.bound[(self.state, action)] = gate_id
        self.gates[gate_id] = {"gate_id": gate_id, "from_state": self.state, "action": action, "guard": guard, "scope": spec["scope"], "opened_at_us": at,
                               "opened_by": by.ref, "rule": quorum["rule"] if quorum else None, "m": quorum.get("m") if quorum else None,
                               "chain_state": "Pending" if quorum else None, "fate": "unspent", "current": True}
        for s in steps:
            self.steps[s["step_id"]] = {"step_id": s["step_id"], "gate_id": gate_id, "action": action, "subject_ref": f"{self.subject}:{action}",
                                        "approver_ref": s["approver_ref"], "submitter_ref": self.initiator, "scope": spec["scope"], "submitted_at_us": at,
                                        "state": "Pending", "ended_by": None, "ended_at_us": None, "ended_reason": None}
            self.assignments[s["assignment_id"]] = {"assignment_id": s["assignment_id"], "task_ref": s["step_id"], "assignee_ref": s["approver_ref"],
                                                    "assigned_at_us": at, "status": "Active", "ended_at_us": None}
        return gate_id

    def _recall(self, step_id: str, at: int) -> None:
        for a in self.assignments.values():
            if a["task_ref"] == step_id and a["status"] == "Active":
                a.update(status="Recalled", ended_at_us=at)

    def _end(self, step_id: str, state: str, by: str, at: int, reason: Optional[str]) -> None:
        self.steps[step_id].update(state=state, ended_by=by, ended_at_us=at, ended_reason=reason)
        self._recall(step_id, at)

    def _steps_of(self, gate_id: str) -> list[dict[str, Any]]:
        return [s for s in self.steps.values() if s["gate_id"] == gate_id]

    def _gone_with(self, gate_id: str, by: Optional[Actor], steps: list[str], reason: Optional[str]) -> list[Write]:
        """A record for each step that a chain's end withdraws."""
        if self.world.rules < 2:
            return []
        return [("step_withdrawn", by, {"instance_id": self.id, "chain_id": gate_id, "step_id": s, "action": self.gates[gate_id]["action"], "decided_by": self.initiator,
                                        "reason": reason, "trailing": True}) for s in steps]

    def _mandate(self, step: dict[str, Any], delegation: Optional[str]) -> dict[str, Any]:
        """What lets a substitute decide, and their own entry in the in-tray."""
        return {"on_behalf_of": step["approver_ref"], "delegation_id": delegation, "assignment_id": self.world.new_id()} if delegation else {}

    def _transfer(self, step_id: str, assignment_id: str, to: str, at: int) -> None:
        for a in self.assignments.values():
            if a["task_ref"] == step_id and a["status"] == "Active":
                a.update(status="Transferred", ended_at_us=at)
        self.assignments[assignment_id] = {"assignment_id": assignment_id, "task_ref": step_id, "assignee_ref": to, "assigned_at_us": at, "status": "Active",
                                           "ended_at_us": None}

    def decide(self, by: Actor, action: str, decision: str, reason: Optional[str] = None, approver: Optional[str] = None, whole: bool = False,
               gate_id: Optional[str] = None, delegation: Optional[str] = None, meaning: str = "I have reviewed the batch record and take this decision") -> list[Record]:
        w = self.world
        gate_id = gate_id or self.bound[(self.state, action)]
        gate = self.gates[gate_id]
        state = {"approve": "Approved", "reject": "Rejected", "withdraw": "Withdrawn"}[decision]
        decided = {"instance_id": self.id, "action": action}
        bound = {"request_digest": self.asked[gate_id]} if self.asked[gate_id] else {}
        writes: list[Write] = []
        step = None
        if gate["rule"] is None:
            step = self.steps[gate_id]
            mandate = self._mandate(step, delegation)
            writes.append(("gate_decided", by, {**decided, "step_id": gate_id, "decision": decision, "reason": reason, **bound, **mandate}))
        elif whole:
            left = [s["step_id"] for s in self._steps_of(gate_id) if s["state"] == "Pending"]
            writes.append(("chain_withdrawn", by, {"instance_id": self.id, "chain_id": gate_id, "action": action, "reason": reason, "recalled_step_ids": left}))
            writes.append(("gate_decided", by, {**decided, "chain_id": gate_id, "decision": decision, "reason": reason, **bound}))
            writes += self._gone_with(gate_id, by, left, reason)
        else:
            step = next(s for s in self._steps_of(gate_id) if s["approver_ref"] == (approver or by.ref))
            mandate = self._mandate(step, delegation)
            trailing = gate["chain_state"] != "Pending"
            writes.append(("step_" + state.lower(), by, {"instance_id": self.id, "chain_id": gate_id, "step_id": step["step_id"], "action": action,
                                                         "decided_by": by.ref, "reason": reason, "trailing": trailing, **mandate}))
            writes.append(("gate_decided", by, {**decided, "step_id": step["step_id"], "chain_id": gate_id, "decision": decision, "reason": reason, **bound, **mandate}))
            states = [state if s is step else s["state"] for s in self._steps_of(gate_id)]
            outcome = settle(gate["rule"], gate["m"], states)
            if not trailing and outcome != "Pending":
                rest = [s["step_id"] for s in self._steps_of(gate_id) if s["state"] == "Pending" and s is not step]
                writes.append(("chain_resolved", None, {"instance_id": self.id, "chain_id": gate_id, "action": action, "outcome": outcome, "recalled_step_ids": rest}))
                if outcome == "Withdrawn":
                    writes += self._gone_with(gate_id, None, rest, UNREACHABLE)
        body = {"decision": decision, **({"step_id": step["step_id"]} if step and gate["rule"] else {}), **({"reason": reason} if reason else {}), **bound}
        records = w.command(self.id, writes, "decide_gate", path=f"/v1/processes/{self.id}/gates/{action}/decision", body=dump(body).encode(),
                            meaning=meaning, step=step["step_id"] if step else None)
        at = records[0].head["recorded_at_us"]
        if step and delegation:
            self._transfer(step["step_id"], mandate["assignment_id"], by.ref, at)
        if step:
            self._end(step["step_id"], state, by.ref, at, reason)
        if whole:
            gate["chain_state"] = "Withdrawn"
            for s in left:
                self._end(s, "Withdrawn", by.ref, at, reason)
        elif any(r.head["action_ref"] == "chain_resolved" for r in records):
            gate["chain_state"] = outcome
            for s in rest:
                if outcome == "Withdrawn":
                    self._end(s, "Withdrawn", self.initiator, at, UNREACHABLE)
                else:
                    self._recall(s, at)
        return records

    def fire(self, by: Actor, action: str, reason: Optional[str] = None, effects: Optional[list[dict[str, Any]]] = None) -> list[Record]:
        w, t = self.world, self.declared(action)
        guarded, left = "guard" in t, self.state
        gate = self.gates[self.bound[(left, action)]] if guarded else None
        used = {} if gate is None else {"chain_id" if gate["rule"] else "step_id": gate["gate_id"]}
        transition_id, number = w.new_id(), len(self.transitions) + 1
        writes: list[Write] = [("transition_fired", by, {"instance_id": self.id, "action": action, "from_state": left, "new_state": t["to"],
                                                         "transition_id": transition_id, "sequence_number": number, "guarded": guarded, **used, "reason": reason,
                                                         "effects": effects})]
        after: list[Callable[[int], None]] = []
        if gate is not None:
            gate["fate"] = "consumed"
        if t["to"] != left:
            for g in self.gates.values():
                if g["from_state"] == left and g["rule"] and g["chain_state"] in ("Approved", "Rejected"):
                    for s in self._steps_of(g["gate_id"]):
                        if s["state"] == "Pending":
                            writes.append(("step_withdrawn", None, {"instance_id": self.id, "chain_id": g["gate_id"], "step_id": s["step_id"], "action": g["action"],
                                                                    "decided_by": self.initiator, "reason": LEFT, "trailing": True}))
                            after.append(lambda at, i=s["step_id"]: self._end(i, "Withdrawn", self.initiator, at, LEFT))
            for g in self.gates.values():
                if g["from_state"] != left or g["fate"] != "unspent":
                    continue
                state = g["chain_state"] or self.steps[g["gate_id"]]["state"]
                if state not in ("Pending", "Approved"):
                    continue
                name = "chain_id" if g["rule"] else "step_id"
                if state == "Pending":
                    pending = [s["step_id"] for s in self._steps_of(g["gate_id"]) if s["state"] == "Pending"]
                    if g["rule"]:
                        writes.append(("chain_resolved", None, {"instance_id": self.id, "chain_id": g["gate_id"], "action": g["action"], "outcome": "Withdrawn",
                                                                "recalled_step_ids": pending}))
                        writes += self._gone_with(g["gate_id"], None, pending, MOOT)
                        g["chain_state"] = "Withdrawn"
                    for s in pending:
                        after.append(lambda at, i=s: self._end(i, "Withdrawn", self.initiator, at, MOOT))
                writes.append(("moot_gate_recalled", None, {"instance_id": self.id, "moot_action": g["action"], "from_state": left, name: g["gate_id"],
                                                            "moot_kind": "pending-withdrawn" if state == "Pending" else "approved-unconsumed",
                                                            "reason": "Gate moot: workflow advanced past from_state"}))
                g["fate"] = "mooted"
        body = {"action": action, **({"reason": reason} if reason else {})}
        records = w.command(self.id, writes, "fire_transition", path=f"/v1/processes/{self.id}/transitions", body=dump(body).encode())
        at = records[0].head["recorded_at_us"]
        for f in after:
            f(at)
        self.transitions.append({"transition_id": transition_id, "sequence_number": number, "from_state": left, "action": action, "to_state": t["to"], "fired_at_us": at,
                                 "actor_ref": by.ref, "guard_satisfied": guarded, "step_id": used.get("step_id"), "chain_id": used.get("chain_id"),
                                 "event_id": records[0].head["event_id"]})
        self.state = t["to"]
        return records

    def forget(self, record: Record) -> None:
        """The texts of a purged record leave the stores too."""
        body, action, text = record.body, record.head["action_ref"], "purged:" + record.head["event_id"]
        if action == "workflow_started":
            self.subject = text
            for step in self.steps.values():
                step["subject_ref"] = f"{text}:{step['action']}"
        if action in ("gate_decided", "step_approved", "step_rejected", "step_withdrawn", "chain_withdrawn") and "reason" in body:
            for step in self.steps.values():
                whole = "step_id" not in body and step["gate_id"] == body["chain_id"] and step["ended_at_us"] == record.head["recorded_at_us"]
                if whole or step["step_id"] == body.get("step_id"):
                    step["ended_reason"] = text

    def row(self) -> dict[str, Any]:
        return {"instance_id": self.id, "subject_ref": self.subject, "initiator_ref": self.initiator, "definition": self.definition,
                "declaration_digest": self.declaration_digest, "gate_spec_digest": self.gate_spec_digest, "started_at_us": self.started,
                "current_state": self.state, "sequence": len(self.world.chains[self.id]), "transitions": self.transitions,
                "gates": [self.gates[k] for k in sorted(self.gates)], "approval_steps": [self.steps[k] for k in sorted(self.steps)],
                "assignments": [self.assignments[k] for k in sorted(self.assignments)]}
