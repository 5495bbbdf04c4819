"""Who could become somebody else, or choose who approves: the keys of the engine, tokens of others, gates."""

import uuid

from .matrix import fresh_key
from .report import Probe, hold
from .server import quoted

authority = Probe("authority")
PROBES = [authority]

ENGINE = ["countersign", "countersign-log"]

PROCESS = """
kind: process
name: {name}
states: [a, review, done]
initial_state: a
terminal_states: [done]
transitions:
  - {{from: a, action: ask, to: review}}
  - {{from: review, action: release, to: done, guard: sign-off}}
gate_spec:
  sign-off: {{approver_ref: {approver}, scope: s{more}}}
"""


@authority.case("actors:manage cannot revoke a key of the engine", short=True)
def revoke_engine_key(server):
    manager = server.actor("actors:manage")
    for engine in ENGINE:
        for key in server.admin.get(f"/v1/actors/{engine}/keys").made()["keys"]:
            manager.post(f"/v1/actors/{engine}/keys/{quoted(key['key_id'])}/revoke", {"reason": "probe"}).refused(403)
            server.admin.post(f"/v1/actors/{engine}/keys/{quoted(key['key_id'])}/revoke", {"reason": "probe"}).refused(403)
        keys = server.admin.get(f"/v1/actors/{engine}/keys").made()["keys"]
        hold(any(key["status"] == "active" for key in keys), f"{engine} has no key left")


@authority.case("no scope gets a token or a key of the engine, and no request acts as it", short=True)
def engine_credentials(server):
    for actor in (server.actor("actors:manage"), server.admin):
        for engine in ENGINE:
            actor.post(f"/v1/actors/{engine}/tokens").refused(403)
            actor.post(f"/v1/actors/{engine}/keys", {"public_key": fresh_key()}).refused(403)


@authority.case("nobody gives credentials to somebody who holds more than they do", short=True)
def escalation(server):
    manager = server.actor("actors:manage")
    powerful = server.actor("audit:purge", "workflows:start")
    for target in ("admin", powerful.name):
        manager.post(f"/v1/actors/{target}/tokens").refused(403)
        manager.post(f"/v1/actors/{target}/keys", {"public_key": fresh_key()}).refused(403)
    # With the same scopes it is administration, not a takeover.
    peer = server.actor("actors:manage", "audit:purge", "workflows:start")
    peer.post(f"/v1/actors/{powerful.name}/tokens").made()


@authority.case("the engine's own actors can be granted nothing and registered by nobody", short=True)
def engine_grants(server):
    for engine in ENGINE:
        server.actor("actors:manage").post("/v1/actors", {"actor_ref": engine, "kind": "service"}).refused()


@authority.case("permissions:manage alone cannot act with what it grants without a record of the grant")
def grant_is_recorded(server):
    manager = server.actor("permissions:manage")
    made = manager.post("/v1/grants", {"subject_ref": manager.name, "action_scope": "audit:read"})
    if made.status == 201:
        grants = server.admin.get("/v1/ledger/records?action_ref=grant_made&limit=500&order=desc")
        grants = grants if grants.status == 200 else server.admin.get("/v1/ledger/records?action_ref=grant_made&limit=500")
        hold(manager.name in grants.body.decode(), "no record names the grant")


def publish(server, more=""):
    name = f"p-{uuid.uuid4().hex[:10]}"
    approver = server.actor(kind="human")
    published = server.admin.publish(PROCESS.format(name=name, approver=approver.name, more=more))
    return name, approver, published


def started(starter, name, entry):
    spec = {"gate_spec": {"sign-off": entry}} if entry else {}
    return starter.post("/v1/processes", {"definition": name, "subject_ref": "s", **spec})


@authority.case("a start cannot replace a published approver", short=True)
def fixed_gate(server):
    name, approver, published = publish(server)
    published.made()
    starter = server.actor("workflows:start", "workflows:fire", "workflows:open-gate", "workflows:read")
    for entry in (
        {"approver_ref": starter.name, "scope": "s"},
        {"approver_ref": "admin", "scope": "s"},
        {"approvers": [starter.name, approver.name], "quorum": {"rule": "one-of-n"}, "scope": "s"},
    ):
        started(starter, name, entry).refused()
    instance = started(starter, name, None).made()["instance_id"]
    view = starter.get(f"/v1/processes/{instance}").made()
    hold(view["gate_spec"]["sign-off"]["approver_ref"] == approver.name, f"the gate names {view['gate_spec']}")


@authority.case("a replaceable entry can be replaced, never by the starter")
def replaceable_gate(server):
    name, _, published = publish(server, ", replaceable: true")
    published.made()
    starter = server.actor("workflows:start", "workflows:read")
    other = server.actor(kind="human")
    started(starter, name, {"approver_ref": starter.name, "scope": "s"}).refused()
    quorum = {"approvers": [other.name, starter.name], "quorum": {"rule": "one-of-n"}, "scope": "s"}
    started(starter, name, quorum).refused()
    instance = started(starter, name, {"approver_ref": other.name, "scope": "s"}).made()["instance_id"]
    view = starter.get(f"/v1/processes/{instance}").made()
    hold(view["gate_spec"]["sign-off"]["approver_ref"] == other.name, f"the gate names {view['gate_spec']}")


@authority.case("the starter approves only where the definition says selfApproval")
def self_approval(server):
    name, _, published = publish(server, ", replaceable: true, selfApproval: true")
    published.made()
    starter = server.actor("workflows:start")
    started(starter, name, {"approver_ref": starter.name, "scope": "s"}).made()


@authority.case("a decision of somebody whom the gate does not name changes nothing", short=True)
def not_named(server):
    name, approver, published = publish(server)
    published.made()
    admin = server.admin
    instance = started(admin, name, None).made()["instance_id"]
    admin.post(f"/v1/processes/{instance}/transitions", {"action": "ask"}).made()
    admin.post(f"/v1/processes/{instance}/gates", {"action": "release"}).made()
    everybody = [admin, server.actor("workflows:fire", "governance:act", "permissions:manage"), server.actor()]
    for somebody in everybody:
        somebody.post(f"/v1/processes/{instance}/gates/release/decision", {"decision": "approve"}).refused(403)
    admin.post(f"/v1/processes/{instance}/transitions", {"action": "release"}).refused(409)
    approver.post(f"/v1/processes/{instance}/gates/release/decision", {"decision": "approve", "reason": "fine"}).made()
    admin.post(f"/v1/processes/{instance}/transitions", {"action": "release"}).made()
