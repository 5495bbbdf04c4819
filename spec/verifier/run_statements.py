"""Whether the statements that people signed ask for what a run's records say (run.md, section 6)."""
from __future__ import annotations

import re
import urllib.parse
from typing import Any, Iterable, Optional

from .run_model import ACTS, Json, same


def moves(t: dict[str, Json], seq: int) -> bool:
    """Whether this line of `transitions` is of that step, alone or with others."""
    spans = [part.partition("-") for part in str(t.get("step_seqs", t.get("step_seq"))).split(",")]
    return any(first.isdigit() and (last or first).isdigit() and int(first) <= seq <= int(last or first) for first, _, last in spans)


def recorded_error(said: Json) -> Json:
    """An error of more than 4096 bytes is recorded cut short."""
    whole = said.encode("utf-8", "surrogatepass") if isinstance(said, str) else b""
    return said if len(whole) <= 4096 else whole[:4093].decode("utf-8", "ignore") + "…"


def compare_request(r: Any, p: dict[str, Json], s: dict[str, Json], said: dict[str, Json]) -> Iterable[str]:
    """What is wrong with the statement `s` and the body `said` that led to this record."""
    method, _, path = (s["request"] or "").partition(" ")
    segments = [urllib.parse.unquote(w) for w in path.split("/")]
    control = {"run_cancelled": "cancel", "run_paused": "pause", "run_resumed": "resume", "run_stopped": "stop", "run_voided": "void"}
    tasks = {"step_completed": ["complete"], "step_yielded": ["complete"], "pins_captured": ["complete"], "pins_surveyed": ["complete", "retry", "dead"], "step_waiting": ["wait"],
             "step_retried": ["retry", "dead"], "step_failed": ["complete", "retry", "dead"], "step_blocked": ["block"], "step_cannot_complete": ["cannot_complete"]}
    wanted: Optional[list[Optional[str]]] = None
    if r.action == "run_started" and s["action"] == "dispatch_run":
        wanted = ["", "v1", "runs", "trigger"]
    elif r.action == "run_started" and s["action"] == "receive_event":
        wanted = ["", "v1", "events"]
    elif r.action == "run_started" and s["action"] == "start_run" and segments[2:3] == ["schedules"]:
        wanted = ["", "v1", "schedules", p["definition"].rpartition("@")[0], "trigger"]
    elif r.action == "run_started" and s["action"] == "start_run":
        wanted = ["", "v1", "runs"]
        named = said.get("definition")
        if named not in (p["definition"], p["definition"].rpartition("@")[0]):
            yield "definition of the body is not the payload's"
        if any(said.get(k) is not None and not same(said[k], p.get(k)) for k in ("subject_ref", "priority", "corrects")) or "input" in p and not same(p["input"], said.get("input")):
            yield "the body is not what was recorded"
    elif r.action == "steps_claimed" and s["action"] == "claim":
        wanted = ["", "v1", "queues", None, "claim"]
        if any(x.get("worker_id") != said.get("worker_id") for x in p.get("leases", [])):
            yield "the worker_id of a lease is not the body's"
    elif p.get("own_transition") is not None and s["action"] == "transition_step":
        wanted = ["", "v1", "runs", r.instance, "steps", None, "transition"]
        if said.get("to") != p["own_transition"].get("to") or any(not same(said.get(k), p.get(k)) for k in ("reason", "evidence_ref")):
            yield "the body is not what was recorded"
    elif r.action in ACTS and s["action"] == ACTS[r.action][0] and p.get("own_transition") is None:
        wanted = ["", "v1", "runs", r.instance, "steps", None, ACTS[r.action][1]]
        recorded = {**p, **{k: v for k, v in (p.get("correction") or {}).items() if k == "correction_reason"}}
        named = {"step_blocked": ["block_reason"], "step_unblocked": ["evidence_ref"], "step_cannot_complete": ["evidence_ref"],
                 "step_reopened": ["approval_id", "correction_reason"]}.get(r.action, [])
        if any(not same(said.get(k), recorded.get(k)) for k in ["reason", *named]):
            yield "the body is not what was recorded"
    elif r.action in tasks and s["action"] in tasks[r.action]:
        wanted = ["", "v1", "tasks", None, s["action"].replace("_", "-")]
        if any(not same(said.get(k), p.get(k)) for k in {"block": ["block_reason"], "cannot_complete": ["evidence_ref"]}.get(s["action"], [])):
            yield "the body is not what was recorded"
        run, _, seq = segments[3].rpartition(".") if len(segments) == 5 else ("", "", "")
        named = [{"step_seq": p.get("step_seq")}, {"step_seq": (p.get("yielded") or {}).get("step_seq")}]
        if run != r.instance or not re.fullmatch(r"0|[1-9][0-9]{0,9}", seq) or not any(moves(t, int(seq)) for t in [*p.get("transitions", []), *named]):
            yield "reports on a step that the record does not move"
        failed = r.action == "step_retried" or any(t.get("id") in ("T4", "T9") for t in p.get("transitions", []))
        if s["action"] not in ("complete", "block") and failed and recorded_error(said.get("last_error")) not in [e.get("last_error") for e in p.get("errors", [])]:
            yield "the last_error that was reported is not recorded"
    elif r.action == "event_received" and s["action"] in ("receive_event", "dispatch_run"):
        wanted = ["", "v1", "events"] if s["action"] == "receive_event" else ["", "v1", "runs", "trigger"]
        event = p["event"]
        if said.get("id") != event.get("id") or said.get("type") != event.get("type") or "data" in event and not same(event["data"], said.get("data")):
            yield "the event of the body is not the payload's"
    elif r.action in control and s["action"] == control[r.action] + "_run":
        wanted = ["", "v1", "runs", r.instance, control[r.action]]
        if said.get("approval_id") is not None and said["approval_id"] != p.get("approval_id"):
            yield "approval_id of the body is not the payload's"
    if wanted is None:
        yield f"action {s['action']!r} does not lead to {r.action}"
        return
    if method != "POST" or len(segments) != len(wanted) or any(w is not None and w != g for w, g in zip(wanted, segments)):
        yield f"the request {s['request']!r} is not the one that leads here"
    if r.action in control:
        if not same(said.get("reason"), p.get("reason")):
            yield "reason of the body is not the payload's"
        if r.action == "run_cancelled" and (said.get("compensate") is True) != (p.get("compensate") is True):
            yield "compensate of the body is not the payload's"
        if r.action == "run_resumed" and not same(said.get("approval_id"), p.get("approval_id")):
            yield "approval_id of the body is not the payload's"
