"""Claim 5: grants that were not there, and the order of the registry."""
from __future__ import annotations

from bundle import REGISTRY, Record
from .kit import Skip, Tamper, after_id, known_later, mutation


@mutation("grant-removed", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    t.b.grants.pop()


def _needed_grant(t: Tamper) -> tuple[Record, Record]:
    """A grant and the first record that rests on it alone."""
    need = {"workflow_started": "workflows:start", "gate_opened": "workflows:open-gate", "transition_fired": "workflows:fire", "evidence_exported": "audit:read"}
    for r in t.all(*need):
        scope = need[r.head["action_ref"]]
        grants = [g for g in t.all("grant_made", registry=True) if g.body["subject_ref"] == r.head["actor_ref"] and g.head["sequence"] <= r.head["registry_seq"]
                  and (g.body["action_scope"] == scope or g.body["action_scope"].startswith(scope + ":"))]
        if len(grants) == 1 and grants[0].head["registry_seq"] > 0:
            return grants[0], r
    raise Skip("no record rests on one grant")


@mutation("grant-removed", "insider", "5", "permission-not-held")
def _(t: Tamper) -> None:
    grant, _ = _needed_grant(t)
    t.b.grants = [g for g in t.b.grants if g["grant_id"] != grant.body["grant_id"]]
    t.delete(grant)


@mutation("grant-revoked-earlier", "naive", "3", "record-missing", "row-missing")
def _(t: Tamper) -> None:
    grant, _ = _needed_grant(t)
    for g in t.b.grants:
        if g["grant_id"] == grant.body["grant_id"]:
            g.update(revoked_at_us=g["granted_at_us"] + 1, revoked_seq=g["granted_seq"])


def _revoke_before(t: Tamper, known: bool) -> None:
    grant, r = _needed_grant(t)
    if any(x.body["grant_id"] == grant.body["grant_id"] for x in t.all("grant_revoked", registry=True)):
        raise Skip("revoked already")
    forged = t.forge_in_registry(r, "grant_revoked", grant.body, known)
    for g in t.b.grants:
        if g["grant_id"] == grant.body["grant_id"]:
            g.update(revoked_at_us=forged.head["recorded_at_us"], revoked_seq=forged.head["registry_seq"] + 1)


@mutation("grant-revoked-earlier", "insider", "5", "permission-not-held")
def _(t: Tamper) -> None:
    _revoke_before(t, known=True)


@mutation("action-after-its-revocation", "insider", "integrity", "registry-order")
def _(t: Tamper) -> None:
    _revoke_before(t, known=False)


@mutation("action-before-its-grant", "insider", "integrity", "registry-order")
def _(t: Tamper) -> None:
    grant, r = _needed_grant(t)
    later = t.slots.index(grant)
    for x in [x for x in t.b.chain(r.head["instance_id"]) if x.head["sequence"] <= r.head["sequence"]]:
        t.slots.remove(x)
        t.slots.insert(later - 1, x)        # the grant moves up by one: x stands right before it


@mutation("action-before-its-grant-known-so", "insider", "5", "permission-not-held")
def _(t: Tamper) -> None:
    grant, r = _needed_grant(t)
    for x in [x for x in t.b.chain(r.head["instance_id"]) if x.head["sequence"] <= r.head["sequence"]]:
        t.slots.remove(x)
        t.slots.insert(t.slots.index(grant), x)
        x.head["registry_seq"] = grant.head["sequence"] - 1


@mutation("grant-by-nobody-permitted", "insider", "5", "permission-not-held")
def _(t: Tamper) -> None:
    if t.window():
        raise Skip("the export ends the registry")
    manage = {g["subject_ref"] for g in t.b.grants if g["action_scope"] == "permissions:manage"}
    ref = next((r.body["actor_ref"] for r in t.all("actor_registered", registry=True) if r.body["actor_ref"] not in manage | {t.app_ref}), None)
    if ref is None:
        raise Skip("everybody manages permissions")
    last = t.b.chain(REGISTRY)[-1]
    grant = {"grant_id": after_id(t.b.grants[-1]["grant_id"]), "subject_ref": ref, "action_scope": "audit:purge"}
    r = t.forge(last, "grant_made", ref, grant, "0" * 16)
    known_later(t)
    t.b.grants.append({**grant, "granted_at_us": r.head["recorded_at_us"], "granted_seq": r.head["registry_seq"] + 1, "revoked_at_us": None, "revoked_seq": None})
