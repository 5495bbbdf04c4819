"""Permission: claim 5 (record.md 5.5)."""
from __future__ import annotations

from . import dead_letters, proposals, run_model
from .files import Bundle
from .found import Report
from .registry import Registry

SCOPES = {**run_model.SCOPES, "workflow_started": "workflows:start", "gate_opened": "workflows:open-gate", "chain_initiated": "workflows:open-gate", "transition_fired": "workflows:fire",
          "evidence_exported": "audit:read", "hold_placed": "audit:hold", "hold_released": "audit:hold", "record_purged": "audit:purge",
          "actor_registered": "actors:manage", "credential_issued": "actors:manage", "credential_revoked": "actors:manage", "key_registered": "actors:manage",
          "key_revoked": "actors:manage", "grant_made": "permissions:manage", "grant_revoked": "permissions:manage", "definition_published": "definitions:publish",
          "definition_retired": "definitions:publish", "schedule_paused": "runs:control", "schedule_resumed": "runs:control",
          "worker_class_frozen": "governance:act", "worker_class_thawed": "governance:act"}


PROPOSED = ("workflow_started", "gate_opened", "chain_initiated", "transition_fired")
FINER = ("workflows:", "runs:", "tasks:", "governance:")


def check_permission(b: Bundle, registry: Registry, report: Report) -> None:
    for r in b.records:
        scope = SCOPES.get(r.action)
        if r.action == "step_transitioned":
            if r.payload is None:
                continue
            scope = run_model.CLASS_SCOPES.get((r.payload.get("own_transition") or {}).get("actor_class"), "tasks:work")
        if b.chains[r.instance][0].action == "run_started" and r.action in ("gate_opened", "chain_initiated", "transition_fired"):
            scope = None if r.action == "transition_fired" or r.actor == registry.application_actor(r) else "runs:control"
        if r.action in run_model.OWN_WORK and r.actor == registry.application_actor(r):
            scope = None
        if proposals.is_proposal(b.chains[r.instance][0]) and r.action in PROPOSED:
            scope = None if r.action == "transition_fired" and r.actor == registry.application_actor(r) else "proposals:write"
        if dead_letters.is_request(b.chains[r.instance][0]) and r.action in PROPOSED:
            scope = None if r.action == "transition_fired" and r.actor == registry.application_actor(r) else "workflows:fire" if r.action == "transition_fired" else "governance:act"
        if r.action == "step_retry_ordered" and (r.payload or {}).get("replay") is not None and r.actor == registry.application_actor(r):
            scope = None
        begun = b.chains[r.instance][0].payload or {}
        if r.action in ("run_cancelled", "run_stopped") and begun.get("parent_run_id") is not None and r.actor == registry.application_actor(r):
            scope = None
        if scope is None or r in registry.first and r.actor == registry.founder:
            continue
        report.checked["5"] += 1
        p = r.payload or {}
        if r.action in ("key_registered", "key_revoked"):
            own = p.get("actor_ref") == r.actor and r.head["assurance"] != "server_attested"
            first = p.get("actor_ref") == r.actor and p.get("passkey") is not None and not registry.has_key(r.actor, r.registry_seq)
            of_server = p.get("actor_ref") == registry.configuration(r.registry_seq).get("server_actor_ref")
            if own or first or of_server and r.actor == registry.application_actor(r):
                continue
        scopes = [scope, *([run_model.INSTEAD[r.action]] if r.action in run_model.INSTEAD else [])]
        start = b.chains[r.instance][0]
        own = dead_letters.is_request(start)
        if scope.startswith(FINER) and not own and start.payload is not None and start.payload.get("definition"):
            scopes += [f"{s}:{start.payload['definition'].rpartition('@')[0]}" for s in scopes]
        if r.action in ("schedule_paused", "schedule_resumed"):
            scopes.append(f"{scope}:{p.get('name')}")
        if registry.holds(r.actor, scopes, r.registry_seq):
            continue
        if scope.startswith(FINER) and start.purged:
            report.note("partially-purged-coverage", f"{scope} was not held; whether a definition's own scope was cannot be checked", r, ["5"])
        else:
            report.find("permission-not-held", f"{r.actor} did not hold {scope} at {r.registry_seq}", r)
