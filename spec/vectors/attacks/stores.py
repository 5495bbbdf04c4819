"""Claims 2, 3 and 4: the stores disagree with the records."""
from __future__ import annotations

from typing import Any

from honest import MOOT, UNREACHABLE
from .kit import Skip, Tamper, after_id, mutation


@mutation("store-current-state", "naive", "2", "replay-mismatch")
def _(t: Tamper) -> None:
    row = t.b.state[0]
    row["current_state"] = "released" if row["current_state"] != "released" else "rejected"


@mutation("store-transition-removed", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    row = next((s for s in t.b.state if s["transitions"]), None)
    if row is None:
        raise Skip("no transition")
    row["transitions"].pop()


@mutation("store-transition-added", "naive", "3", "record-missing")
def _(t: Tamper) -> None:
    row = next((s for s in t.b.state if s["transitions"]), None)
    if row is None:
        raise Skip("no transition")
    last = row["transitions"][-1]
    row["transitions"].append({**last, "transition_id": after_id(last["transition_id"]), "sequence_number": last["sequence_number"] + 1, "event_id": after_id(last["event_id"])})


@mutation("store-transition-actor", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    row = next((s for s in t.b.state if s["transitions"]), None)
    if row is None:
        raise Skip("no transition")
    row["transitions"][0]["actor_ref"] = "somebody_else"


def _sure_step(t: Tamper, *states: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A step that no purged record leaves in doubt."""
    for row in t.b.state:
        if any(r.payload is None for r in t.b.chain(row["instance_id"])):
            continue
        for s in row["approval_steps"]:
            if s["state"] in states:
                return row, s
    raise Skip(f"no step that is {' or '.join(states)} beyond doubt")


@mutation("store-step-state", "naive", "3", "row-missing", "record-missing")
def _(t: Tamper) -> None:
    _, s = _sure_step(t, "Approved", "Rejected")
    s["state"] = "Rejected" if s["state"] == "Approved" else "Approved"


@mutation("store-step-decided-without-record", "naive", "3", "record-missing")
def _(t: Tamper) -> None:
    _, s = _sure_step(t, "Pending")
    s.update(state="Approved", ended_by=s["approver_ref"], ended_at_us=s["submitted_at_us"] + 1)


@mutation("store-step-approver", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    row = next((s for s in t.b.state if s["approval_steps"]), None)
    if row is None:
        raise Skip("no step")
    row["approval_steps"][0]["approver_ref"] = "somebody_else"


@mutation("store-step-subject", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    row, s = _sure_step(t, "Pending", "Approved", "Rejected", "Withdrawn")
    s["subject_ref"] = row["subject_ref"]


@mutation("store-step-withdrawn-for-another-reason", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    _, s = next(((row, s) for row in t.b.state for s in row["approval_steps"] if s["ended_reason"] in (MOOT, UNREACHABLE)), (None, None))
    if s is None:
        raise Skip("the engine withdrew no step")
    s["ended_reason"] = "by mutual consent"


@mutation("store-step-withdrawn-by-another", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    _, s = _sure_step(t, "Withdrawn")
    s["ended_by"] = t.app_ref


def _row_kind(name: str, rows: str, **changes: Any) -> None:
    @mutation(name, "naive", "integrity", "bundle-form")
    def _(t: Tamper) -> None:
        row = next((s for s in t.b.state if s[rows]), None)
        if row is None:
            raise Skip(f"no {rows}")
        row[rows][0].update(changes)


_row_kind("store-assignee-not-text", "assignments", assignee_ref=7)
_row_kind("store-status-unknown", "assignments", status="Lost")
_row_kind("store-step-state-unknown", "approval_steps", state="Maybe")
_row_kind("store-gate-fate-unknown", "gates", fate="kept")
_row_kind("store-guard-not-boolean", "transitions", guard_satisfied="yes")


@mutation("store-step-removed", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    row = next((s for s in t.b.state if s["approval_steps"]), None)
    if row is None:
        raise Skip("no step")
    row["approval_steps"].pop()


@mutation("store-gate-fate", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    row, s = _sure_step(t, "Approved")
    gate = next(g for g in row["gates"] if g["gate_id"] == s["gate_id"])
    gate["fate"] = "unspent" if gate["fate"] == "consumed" else "consumed"


@mutation("store-gate-added", "naive", "3", "record-missing")
def _(t: Tamper) -> None:
    row = next((s for s in t.b.state if s["gates"]), None)
    if row is None:
        raise Skip("no gate")
    row["gates"].append({**row["gates"][-1], "gate_id": after_id(row["gates"][-1]["gate_id"])})


@mutation("store-assignment-active", "naive", "4", "assignment-coverage")
def _(t: Tamper) -> None:
    row, s = _sure_step(t, "Approved", "Rejected", "Withdrawn")
    next(a for a in row["assignments"] if a["task_ref"] == s["step_id"]).update(status="Active", ended_at_us=None)


@mutation("store-assignment-recalled", "naive", "4", "assignment-coverage")
def _(t: Tamper) -> None:
    row, s = _sure_step(t, "Pending")
    a = next(a for a in row["assignments"] if a["task_ref"] == s["step_id"])
    if a["status"] != "Active":
        raise Skip("no active assignment")
    a.update(status="Recalled", ended_at_us=s["submitted_at_us"] + 1)


@mutation("store-line-removed", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    t.b.state.pop()


@mutation("store-line-added", "naive", "3", "record-missing")
def _(t: Tamper) -> None:
    t.b.state.append({**t.b.state[-1], "instance_id": after_id(t.b.state[-1]["instance_id"])})


@mutation("store-initiator", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    t.b.state[0]["initiator_ref"] = "somebody_else"


@mutation("store-grant-added", "naive", "3", "record-missing")
def _(t: Tamper) -> None:
    last = t.b.grants[-1]
    t.b.grants.append({**last, "grant_id": after_id(last["grant_id"]), "granted_seq": last["granted_seq"] + 1})


@mutation("gate-opened-while-open", "insider", "3", "binding-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_opened", where=lambda r: not r.body.get("chain_id") and not any(x.payload is None for x in t.b.chain(r.head["instance_id"])))
    p = {**r.body, "step_id": after_id(r.body["step_id"]), "assignment_id": after_id(r.body["assignment_id"]), "supersedes": r.body["step_id"]}
    twin = t.forge(r, "gate_opened", r.head["actor_ref"], p, "x")
    twin.head["assurance"], twin.attestation = r.head["assurance"], r.attestation


@mutation("decided-twice", "insider", "3", "binding-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", where=lambda r: not r.body.get("chain_id"))
    twin = t.forge(r, "gate_decided", r.head["actor_ref"], r.body, "x")
    twin.head["assurance"], twin.attestation = r.head["assurance"], r.attestation


@mutation("moot-forged-for-fired-gate", "insider", "4", "moot-invalid")
def _(t: Tamper) -> None:
    r = t.guarded()
    name = "chain_id" if r.body.get("chain_id") else "step_id"
    t.forge(r, "moot_gate_recalled", t.app_ref, {"instance_id": r.head["instance_id"], "moot_action": r.body["action"], "from_state": r.body["from_state"], name: r.body[name],
                                                 "moot_kind": "approved-unconsumed", "reason": "Gate moot: workflow advanced past from_state"}, None, same_command=True)


@mutation("moot-kind-swapped", "insider", "4", "moot-invalid")
def _(t: Tamper) -> None:
    r = t.one("moot_gate_recalled")
    t.edit(r, moot_kind="pending-withdrawn" if r.body["moot_kind"] == "approved-unconsumed" else "approved-unconsumed")


@mutation("moot-deleted", "insider", "4", "assignment-coverage")
def _(t: Tamper) -> None:
    t.delete(t.one("moot_gate_recalled", where=lambda r: not any(x.payload is None for x in t.b.chain(r.head["instance_id"]))))
