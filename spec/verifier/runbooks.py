"""Runbooks (run.md 9): surveys, approvals of stops, bound decisions, checks, caps and unknown effects."""
from __future__ import annotations

import json
import re
from typing import Any, Optional

from .run_model import Json, Malformed, items, need, same, sha, told

UNITS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000}
STOPS = {"workflow_stop": "operator", "lease_expired": "lease_expired", "soft_cap": "soft_cap", "hard_cap": "hard_cap", "drift": "drift"}
RETRIED = ("T10", "X4", "X5", "X12")
PROBED = ("worker", "shell", "http")        # what a dry run carries out
LEFT = ("ready", "completed", "failed", "cancelled", "skipped", "cannot_complete")


def micros(text: Json) -> Optional[int]:
    """`1h30m`: whole numbers with their units."""
    if text is None:
        return None
    parts = re.findall(r"([0-9]+)(ms|d|h|m|s)", need(text, str, "a duration"))
    if not parts or "".join(n + u for n, u in parts) != text:
        raise Malformed(f"{text[:40]!r} is no duration")
    return sum(int(n) * UNITS[u] for n, u in parts)


def shows(value: Json, digest: Optional[str]) -> bool:
    """Whether what is shown can be what has that digest. Of a text it is known how it is written; of other values not."""
    if value is None and digest is None:
        return True
    if not isinstance(value, str) or digest is None:
        return digest is not None
    return value == f"sha256:{digest}" or sha(json.dumps(value, ensure_ascii=False)) == digest


class Spec:
    """What the rules read of a step's definition."""

    def __init__(self, step: dict[str, Json]):
        self.gate = step.get("gate")
        self.checks = list(step.get("checks") or {})
        self.pins = list(step.get("pins") or {})
        self.soft_cap = micros(step.get("softCap"))
        self.read_only = step.get("readOnly") is True
        self.run = step.get("run", "worker")


class Runbook:
    """What one run has pinned, how long it executed, and what it may do next. `run` follows the steps."""

    def __init__(self, run: Any):
        self.run = run
        self.active = self.dry = self.checked = False
        self.specs: list[Spec] = []
        self.hard_cap: Optional[int] = None
        self.pins: dict[str, str] = {}              # name -> digest, in the order of their first capture
        self.before_resume: dict[str, str] = {}     # what a pin was before the last resume pinned it anew; good for one survey
        self.surveyed: set[int] = set()
        self.yielded: dict[int, tuple[str, Json]] = {}
        self.captured: Optional[int] = None         # the step whose pins this command captured
        self.claimed: dict[int, int] = {}
        self.executed = 0
        self.executing_from: Optional[int] = None
        self.stopped_at: Optional[int] = None
        self.drift: list[dict[str, Json]] = []
        self.live: dict[str, str] = {}

    def violated(self, detail: str, r: Any) -> None:
        self.run.find("runbook-violation", detail, r)

    # ---- the start
    def begin(self, r: Any, p: dict[str, Json], document: dict[str, Json]) -> None:
        self.specs = [Spec(s) for s in document["steps"]]
        self.hard_cap = micros(document.get("hardCap"))
        closed = document.get("failurePolicy") == "fail-closed" and document.get("order") == "linear"
        self.active = self.checked = closed and self.run.guard("resume") is not None
        self.dry = p.get("dry_run", False)
        need(self.dry, bool, "dry_run")
        if self.active:
            for seq, spec in enumerate(self.specs):
                if self.run.steps[seq].taken_over and (spec.gate is not None or spec.run == "approval" or spec.pins):
                    self.violated(f"step {seq} has a gate or pins, and is taken over from another run", r)

    def spec(self, seq: int) -> Optional[Spec]:
        return self.specs[seq] if 0 <= seq < len(self.specs) else None

    # ---- gates
    def note_gate(self, r: Any, p: dict[str, Json]) -> None:
        if r.action == "gate_opened" and self.dry:
            self.violated("a dry run opens a gate", r)

    # ---- one record, after its moves. `made`: (step, transition, to); `unknown`: steps whose effect was unknown before
    def follow(self, r: Any, p: dict[str, Json], made: list[tuple[int, str, str]], was: str, moves: list[Any], unknown: set[int]) -> None:
        self.judge_checks(r, p, made)
        if self.active:
            self.judge_pins(r, p, made, moves)
            self.judge_claims(r, made, unknown)
            self.judge_caps(r, p, made, moves)
            self.judge_stop(r, p, moves)
        if r.action in ("run_resumed", "run_voided"):
            self.judge_approval(r, p, was, unknown)
        self.tell_time(r, p, moves)

    def judge_checks(self, r: Any, p: dict[str, Json], made: list[tuple[int, str, str]]) -> None:
        said: dict[int, list[tuple[str, bool]]] = {}
        for c in items(p, "checks"):
            said.setdefault(need(need(c, dict, "a check").get("step_seq"), int, "step_seq"), []).append((need(c.get("name"), str, "name"), need(c.get("held"), bool, "held")))
        self.checked = self.checked or bool(said)
        refused = {need(need(x, dict, "refused").get("step_seq"), int, "step_seq") for x in items(p, "refused") if told(x, "output") is not None}
        if not self.checked:
            return
        errors = {e.get("step_seq"): e.get("last_error") for e in items(p, "errors")}
        for seq, tid, to in made:
            spec = self.spec(seq)
            if spec is None or not spec.checks:
                continue
            if to == "completed" and tid in ("T7", "T8", "X13") and said.get(seq) != [(name, True) for name in spec.checks]:
                self.violated(f"step {seq} is completed, and a check of it is missing or does not hold", r)
            if to == "failed" and str(errors.get(seq)).startswith("CHECK_FAILED:"):
                first = next((name for name, held in said.get(seq, []) if not held), None)
                if first is None or errors[seq] != f"CHECK_FAILED:{first}" or seq not in refused:
                    self.violated(f"step {seq} fails for a check, and the record does not show which and what it refused", r)
        for seq, verdicts in said.items():
            over = ("failed",) if self.active else ("failed", "skipped")
            if any(not held for _, held in verdicts) and not any(s == seq and to in over for s, _, to in made):
                self.violated(f"a check of step {seq} does not hold, and the step has not failed", r)

    def judge_pins(self, r: Any, p: dict[str, Json], made: list[tuple[int, str, str]], moves: list[Any]) -> None:
        acted, yielded = p.get("step_seq"), p.get("yielded")
        if yielded is not None:
            value = told(need(yielded, dict, "yielded"), "output")
            if value is None:
                raise Malformed("yields nothing")
            self.yielded[need(yielded.get("step_seq"), int, "step_seq")] = value
        elif r.action == "step_yielded":
            raise Malformed("yields nothing")
        if r.action == "pins_captured":
            self.capture(r, p, acted)
            return
        surveys = r.action == "pins_surveyed"
        if surveys:
            self.survey(r, p, acted, moves)
        for seq, tid, to in made:
            spec = self.spec(seq)
            if spec is None:
                continue
            if self.pins and tid in ("T1", "X8r") and not (surveys and acted == seq and "drift" not in p):
                self.violated(f"{tid} of step {seq} without an equal survey in its record", r)
            if to == "completed" and spec.pins:
                if self.captured != seq:
                    self.violated(f"step {seq} has pins, and is completed without capturing them", r)
                output = self.yielded.pop(seq, None)
                if output is not None and output[0] == "value" and self.run.steps[seq].output is not None and not same(list(output), list(self.run.steps[seq].output)):
                    self.violated(f"the output of step {seq} is not what it yielded", r)

    def capture(self, r: Any, p: dict[str, Json], seq: Optional[int]) -> None:
        spec = self.spec(need(seq, int, "step_seq"))    # type: ignore[arg-type]
        entries = [need(x, dict, "a pin") for x in items(p, "pins")]
        names = [need(x.get("pin"), str, "pin") for x in entries]
        if spec is None or sorted(names) != sorted(spec.pins) or seq not in self.yielded:
            self.violated("the pins captured are not those of a step that has yielded", r)
        for name, x in zip(names, entries):
            digest = x.get("digest")
            if digest is None or not shows(x.get("value"), need(digest, str, "digest")):
                self.violated(f"pin {name!r} is captured without the digest of its value", r)
            self.pins[name] = str(digest)
        self.captured = seq

    def survey(self, r: Any, p: dict[str, Json], seq: Optional[int], moves: list[Any]) -> None:
        need(seq, int, "step_seq")
        found = [(need(need(x, dict, "a pin").get("pin"), str, "pin"), x.get("digest")) for x in items(p, "pins")]
        if [name for name, _ in found] != list(self.pins):
            self.violated("a survey does not look at every pin of the run", r)
        differ = []
        for name, digest in found:
            if digest is not None and digest == self.before_resume.get(name):
                self.pins[name] = digest        # the world went back to what was pinned before
            if digest is None or digest != self.pins.get(name):
                differ.append((name, digest))
        drift = [need(d, dict, "drift") for d in items(p, "drift")]
        if [d.get("pin") for d in drift] != [name for name, _ in differ]:
            self.violated("drift does not list exactly the pins that differ", r)
        elif any(not shows(d.get("live"), digest) or not shows(d.get("pinned"), self.pins[name]) for d, (name, digest) in zip(drift, differ)):
            self.violated("drift does not show the values that the survey found", r)
        stops = any(to == "stopped" for _, _, to, _ in moves) or self.dry and any(to == "failed" for _, _, to, _ in moves)
        if bool(differ) != stops:
            self.violated("a run stops where its pins differ, and nowhere else", r)
        self.before_resume = {}
        self.live = {name: digest for name, digest in differ if digest is not None}
        if not differ:
            self.surveyed.add(seq)      # type: ignore[arg-type]

    def judge_claims(self, r: Any, made: list[tuple[int, str, str]], unknown: set[int]) -> None:
        for seq, tid, _ in made:
            spec = self.spec(seq)
            if tid in RETRIED:
                self.violated(f"{tid} of step {seq}: a runbook retries and skips nothing", r)
            if tid not in ("T2", "X15") or spec is None:
                continue
            if self.pins and seq not in self.surveyed:
                self.violated(f"step {seq} began without a survey since the run was resumed", r)
            if seq in unknown:
                self.violated(f"step {seq} began again while the effect of its last attempt was unknown", r)
            if self.hard_cap is not None and self.executing(r.at) > self.hard_cap:
                self.violated(f"step {seq} began past the hard cap", r)
            if self.dry and not (spec.read_only and spec.gate is None and spec.run in PROBED):
                self.violated(f"a dry run carries out step {seq}", r)

    def judge_caps(self, r: Any, p: dict[str, Json], made: list[tuple[int, str, str]], moves: list[Any]) -> None:
        before = dict(self.claimed)
        for seq, tid, to in made:
            spec = self.spec(seq)
            if tid in ("T2", "X3", "X15"):
                self.claimed[seq] = r.at
            elif tid in ("T7", "T8") and r.action != "child_ended" and self.captured != seq and self.late(seq, r.at):
                self.violated(f"step {seq} was completed past its soft cap", r)
            if to in LEFT:
                self.claimed.pop(seq, None)
        if r.action == "step_yielded" and self.late(p["yielded"]["step_seq"], r.at):
            self.violated("a step yielded past its soft cap", r)
        for tid, _, to, trigger in moves:
            if trigger == "soft_cap" and not any(self.specs[s].soft_cap is not None and r.at - at >= self.specs[s].soft_cap for s, at in before.items() if s < len(self.specs)):
                self.violated(f"{tid} before any step was at work as long as its soft cap", r)
            if trigger == "hard_cap" and (self.hard_cap is None or self.executing(r.at) < self.hard_cap):
                self.violated(f"{tid} before the hard cap was reached", r)
            if to == "compensating":
                self.violated("a runbook is not undone", r)

    def late(self, seq: int, at: int) -> bool:
        spec = self.spec(seq)
        return spec is not None and spec.soft_cap is not None and seq in self.claimed and at - self.claimed[seq] > spec.soft_cap

    def judge_stop(self, r: Any, p: dict[str, Json], moves: list[Any]) -> None:
        for tid, _, to, trigger in moves:
            if to != "stopped":
                continue
            if p.get("outcome") != STOPS.get(trigger):
                self.violated(f"stopped by {trigger}, with the outcome {p.get('outcome')!r}", r)
            if self.dry:
                self.violated("a dry run stops, and does not fail", r)

    def judge_approval(self, r: Any, p: dict[str, Json], was: str, unknown: set[int]) -> None:
        action = "resume" if r.action == "run_resumed" else "void"
        approval = p.get("approval_id")
        if self.active and action == "resume" and unknown:
            self.violated(f"resumed while the effect of step {min(unknown)} was unknown", r)
        if self.run.guard(action) is not None and (action == "void" or was == "stopped"):
            gate = next((g for g in self.run.replay.gates.values() if g.action == action and approval in g.steps), None)
            if approval is None or gate is None or action == "resume" and self.stopped_at is not None and gate.opened.at < self.stopped_at:
                self.run.find("gate-not-approved", f"{r.action} without an approval of its own", r)
            if approval is not None:
                self.run.spends.append((action, need(approval, str, "approval_id")))
        if action == "void":
            return
        said, due = items(p, "repinned"), [d for d in self.drift if d.get("live") is not None] if was == "stopped" else []
        if self.active and not same(said, due):
            self.run.find("gate-not-approved", "what is pinned anew is not what the approval of the stop shows", r)
        self.before_resume = {d["pin"]: self.pins[d["pin"]] for d in due if d["pin"] in self.pins}
        self.pins.update({name: self.live[name] for name in self.before_resume if name in self.live})
        self.surveyed.clear()
        if self.active and (approval is not None and self.hard_cap is not None) != ("budget_us" in p) or "budget_us" in p and p["budget_us"] != self.hard_cap:
            self.violated("budget_us is not the hard cap that an approval gives once more", r)

    # ---- time
    def executing(self, at: int) -> int:
        return self.executed + (at - self.executing_from if self.executing_from is not None else 0)

    def tell_time(self, r: Any, p: dict[str, Json], moves: list[Any]) -> None:
        for _, source, to, _ in moves:
            if source == "executing" and self.executing_from is not None:
                self.executed, self.executing_from = self.executing(r.at), None
            if to == "executing":
                self.executing_from = r.at
            if to == "stopped":
                self.stopped_at, self.drift = r.at, items(p, "drift")
        if "budget_us" in p:
            self.executed = 0
            self.executing_from = r.at if self.executing_from is not None else None

    def end_command(self, last: Any) -> None:
        if self.captured is not None and self.active and self.run.steps[self.captured].state != "completed":
            self.violated(f"the pins of step {self.captured} were captured, and it is not completed", last)
        self.captured = None
