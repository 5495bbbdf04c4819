"""Runs, written from run.md alone. It knows nothing of the rest but what it is handed."""
from __future__ import annotations

from typing import Any, Optional

from . import acts
from .run_model import (
    AT_WORK, CAUSES, CHARGE, ENDED, ENGINES, FACETS, OWN_TRIGGERS, PAST, PAYLOADS, REASONS, RECORD_OF, RUN_TABLE, STEP_TABLE, TASK_PAST, Json, Malformed, fits_overdue, items,
    handed, need, ranges, same, sha, shared, told)
from .runbooks import Runbook


class Step:
    def __init__(self, name: str, compensates: Optional[int] = None, task_of: Optional[int] = None):
        self.task_of = task_of
        self.name, self.compensates, self.state, self.gated, self.taken_over = name, compensates, "not_started", False, False
        self.attempts, self.last_error, self.category, self.effect_unknown = 0, None, None, False
        self.child: Optional[str] = None
        self.started_at: Optional[int] = None
        self.completed_at: Optional[int] = None
        self.output: Optional[tuple[str, Json]] = None
        self.pic: Optional[str] = None
        self.deadline_us: Optional[int] = None
        self.start_by_us: Optional[int] = None
        self.unclaimed = False
        self.overdue_first_at_us: Optional[int] = None
        self.sla_breach_us: Optional[int] = None
        self.cycle = 0
        self.closed: Optional[str] = None
        self.blocked_since: Optional[int] = None
        self.escalated = False                  # its block was
        self.derived: Optional[str] = None      # what lies over its state, in a machine of one's own


def depths(depends: list[list[int]]) -> list[int]:
    depth, waits = [0] * len(depends), [len(d) for d in depends]
    followers: list[list[int]] = [[] for _ in depends]
    for later, earlier in ((i, e) for i, d in enumerate(depends) for e in d):
        followers[earlier].append(later)
    ahead = [i for i, n in enumerate(waits) if n == 0]
    while ahead:
        i = ahead.pop()
        for later in followers[i]:
            depth[later] = max(depth[later], depth[i] + 1)
            waits[later] -= 1
            if waits[later] == 0:
                ahead.append(later)
    return depth


class Run:
    """Follows the records of one run. `replay` is what follows its gates."""

    def __init__(self, replay: Any):
        self.replay, self.report = replay, replay.report
        self.steps: list[Step] = []
        self.depends: list[list[int]] = []
        self.depth: list[int] = []      # how many steps the longest chain of dependencies has that reaches each
        self.parts: dict[int, list[Step]] = {}      # the tasks of each step
        self.behind = 0     # steps and tasks; compensations stand behind them
        self.undoable: set[int] = set()
        self.retried: list[tuple[Any, str]] = []     # steps that were taken up again as dead letters, with the key of the letter
        self.held: set[int] = set()     # those whose undo waits for an operator where it fails
        self.undoing = False
        self.called_off = False     # cancelled with `compensate`
        self.wanted: Optional[str] = None           # the machine that the definition names
        self.machine: Optional[dict[str, Json]] = None
        self.machine_digest: Optional[str] = None
        self.start: dict[str, Json] = {}
        self.state, self.outcome, self.last_error = "idle", None, None
        self.output: Optional[tuple[str, Json]] = None
        self.executing_since = self.completed_at = self.failed_at = None
        self.lost = self.ended = False
        self.last: Any = None
        self.book = Runbook(self)
        self.fresh()

    def fresh(self) -> None:
        self.opened: list[str] = []
        self.approved: list[str] = []
        self.fired: list[tuple[str, Any]] = []
        self.mooted: list[tuple[str, Any]] = []
        self.blocked: list[int] = []
        self.cleared: list[int] = []
        self.dropped: list[int] = []
        self.spends: list[tuple[str, str]] = []
        self.spent: list[tuple[str, Optional[str]]] = []
        self.unlisted: list[list[int]] = []      # compensations that are due and that no record of the command has listed yet
        self.over = self.stops = self.repinned = False

    def find(self, code: str, detail: str, r: Any) -> None:
        self.report.find(code, detail, r)

    # ---- documents
    def read_document(self, r: Any, text: Optional[str], parse: Any) -> None:
        p = r.payload
        self.report.checked["2"] += 1
        try:
            if text is None or sha(text) != p["document_digest"]:
                raise ValueError("is missing or not the one with that digest")
            d = self.document = parse(text)
            names = [s["name"] for s in d["steps"]]
            place = {n: i for i, n in enumerate(names)}
            if len(place) != len(names) or d.get("order", "dag") not in ("dag", "linear"):
                raise ValueError("has two steps of one name, or an unknown order")
            linear = d.get("order") == "linear"
            self.depends = [([i - 1] if i else []) if linear else [place[n] for n in s.get("dependsOn") or []] for i, s in enumerate(d["steps"])]
            self.depth = depths(self.depends)
            self.wanted = d.get("machine")
            self.undoable = {place[c["step"]] for c in d.get("compensation") or []}
            self.held = {place[c["step"]] for c in d.get("compensation") or [] if c.get("onFailure") == "hold"}
            tasks = [(f"{s['name']}/{t['name']}", i) for i, s in enumerate(d["steps"]) for t in s.get("tasks") or []]
            self.steps = [Step(n) for n in names] + [Step(n, task_of=i) for n, i in tasks]
            self.behind = len(self.steps)
            for s in self.steps[len(names):]:
                self.parts.setdefault(s.task_of or 0, []).append(s)
            if p.get("tasks", 0) != len(tasks):
                self.find("document-mismatch", f"started with {p.get('tasks', 0)} tasks; the definition has {len(tasks)}", r)
            if p["steps"] != len(names):
                self.find("document-mismatch", f"started with {p['steps']} steps; the definition has {len(names)}", r)
        except Exception as e:  # whatever is wrong with it, it is no definition
            self.find("document-mismatch", f"the definition {p['document_digest']}: {e}", r)
            self.lost = True

    def read_machine(self, r: Any, p: dict[str, Json], parse: Any) -> None:
        """The machine of one's own that the run is bound to is the one that the definition names, and is there."""
        own = [m for m in items(p, "machines") if need(m, str, "a machine").partition("@")[0] not in ENGINES]
        if self.wanted is None and not own:
            return
        if len(own) != 1 or self.wanted not in (own[0], own[0].rpartition("@")[0]):
            self.find("document-mismatch", f"bound to the machines {own}, the definition names {self.wanted!r}", r)
            return
        published = [d.payload or {} for d in self.replay.registry.definitions.get(own[0], []) if d.sequence <= r.registry_seq]
        try:
            text = self.replay.b.documents[published[0]["document_digest"]]
            d = parse(text)
            if d["kind"] != "machine":
                raise ValueError("is no machine")
            derived = {s["state_code"]: s["floor_equivalent"] for s in d["states"] if isinstance(s, dict) and s.get("floor_equivalent") is not None}
            rows = {(t.get("id", t["trigger_ref"]), t.get("from", t.get("from_state")), t.get("to", t.get("to_state")), t["actor_class"], t["trigger_ref"])
                    for t in d.get("transitions") or [] if not t.get("proposed", False)}
            self.machine_digest = published[0]["document_digest"]
            self.machine = {"scope": d["scope"], "rows": rows, "derived": {k: v for k, v in derived.items() if k not in ("skipped", "cancelled")}}
        except Exception as e:  # whatever is wrong with it, it is no machine
            self.find("document-mismatch", f"the machine {own[0]}: {e!r}", r)

    # ---- records
    def before(self, r: Any) -> None:
        if self.last is not None and self.last.at != r.at:
            self.end_command()

    def take(self, r: Any, parse: Any) -> None:
        self.last = r
        if r.action in ("evidence_exported", "hold_placed", "hold_released", "record_purged", "attempt_refused"):
            return
        if self.ended and not self.lost and not self.voids(r):
            self.find("undeclared-transition", f"the run had ended ({self.state}), and this follows", r)
        if r.action == "transition_fired" and r.actor != self.replay.registry.application_actor(r):
            self.find("statement-mismatch", "a gate of a run is consumed by the application actor alone", r)
        p = r.payload
        if p is None:
            if r.action in PAYLOADS and r.purged:
                self.report.note("partially-purged-coverage", f"a purged {r.action}: what the run's steps did cannot be checked from here on", r, "1234")
            self.lost = True
            return
        if r.action not in PAYLOADS:
            self.note_gate(r, p)
            return
        self.report.checked["2"] += 1
        if r.action == "run_started" and r.sequence != 1:
            self.find("record-missing", "a second run_started", r)
            return
        try:
            if r.action == "run_started":
                self.begin(r, p, parse)
            if not self.lost:
                self.follow(r, p)
        except Malformed as e:
            self.find("bundle-form", f"{r.action}: {e}", r)
            self.lost = True

    def voids(self, r: Any) -> bool:
        """A run that failed or was cancelled may still be voided, by its gate."""
        of = (r.payload or {}).get("action", (r.payload or {}).get("moot_action"))
        return self.state in ("failed", "cancelled") and (r.action == "run_voided" or r.action not in PAYLOADS and of == "void")

    def begin(self, r: Any, p: dict[str, Json], parse: Any) -> None:
        self.start = p
        if told(p, "input") is None:
            raise Malformed("no input")
        for name in ("correlation_key", "concurrency_key", "corrects", "continues", "parent_run_id"):
            if p.get(name) is not None:
                need(p[name], str, name)
        self.read_document(r, self.replay.b.documents.get(p["document_digest"]), parse)
        if not self.lost:
            self.read_machine(r, p, parse)
        taken = p.get("taken_over")
        if taken is not None and not self.lost:
            need(taken, dict, "taken_over")
            for state in ("completed", "skipped"):
                try:
                    for seq in ranges(taken.get(state), len(self.steps)):
                        self.steps[seq].state, self.steps[seq].taken_over = state, True
                except IndexError:
                    raise Malformed("takes over a step that there is not") from None
            need(taken.get("outputs_digest"), str, "outputs_digest")
            for seq, s in enumerate(self.steps):
                if s.taken_over and any(not t.taken_over for t in self.tasks_of(seq)):
                    self.find("undeclared-transition", f"step {seq} is taken over without its tasks", r)
        if not self.lost:
            self.book.begin(r, p, self.document)

    def note_gate(self, r: Any, p: dict[str, Json]) -> None:
        try:
            self.book.note_gate(r, p)
        except Malformed as e:
            self.find("bundle-form", f"{r.action}: {e}", r)
        if r.action == "gate_opened" and r.actor == self.replay.registry.application_actor(r):
            self.opened.append(p["action"])
        elif r.action == "gate_decided" and p["decision"] == "approve":
            self.approved.append(p["action"])
        elif r.action == "transition_fired":
            self.fired.append((p["action"], r))
            self.spent.append((p["action"], p.get("step_id")))
        elif r.action == "moot_gate_recalled":
            self.mooted.append((p["moot_action"], r))

    def follow(self, r: Any, p: dict[str, Json]) -> None:
        moves = []      # (ids, seqs, name, from, to, class, trigger)
        for t in items(p, "transitions"):
            need(t, dict, "a transition")
            texts = [need(t.get(k), str, k) for k in ("id", "from", "to", "actor_class", "trigger")]
            name = None
            if "step_seqs" not in t:
                name = need(t.get("step"), str, "step")
                need(t.get("step_seq"), int, "step_seq")
            moves.append((t, name, *texts))
        run_moves = [tuple(need(need(t, dict, "a transition").get(k), str, k) for k in ("id", "from", "to", "trigger")) for t in items(p, "run_transitions")]
        was, unknown = self.state, {seq for seq, s in enumerate(self.steps) if s.effect_unknown}
        limit = len(self.steps) + len(items(p, "compensations"))
        outputs = [(seq, told(o, "output")) for seq, o in shared(p, "outputs", limit)]
        if any(o[1] is None for o in outputs):
            raise Malformed("an output without one")
        leases = {seq for seq, _ in shared(p, "leases", limit)}
        inputs = [(seq, handed(i)) for seq, i in shared(p, "inputs", limit)]
        errors = [(seq, need(e.get("attempts"), int, "attempts"), e) for seq, e in shared(p, "errors", limit)]
        effect = p.get("effect")
        if effect is not None:
            need(effect.get("step_seq"), int, "step_seq")
            need(effect.get("done"), bool, "done")
        self.add_compensations(r, p, moves, effect)
        acted = p.get("step_seq")
        if acted is not None:
            need(acted, int, "step_seq")
        closed = self.steps[acted].closed if acted is not None and 0 <= acted < len(self.steps) else None
        self.take_charges(r, p)
        shown = self.steps[acted].derived or self.steps[acted].state if acted is not None and 0 <= acted < len(self.steps) else None
        persons: set[int] = set()       # places in `made`
        made: list[tuple[int, str, str]] = []
        self.begun: list[tuple[int, str]] = []
        for t, name, tid, source, to, cls, trigger in moves:
            row, of_tasks = STEP_TABLE.get(tid), cls == "task_pic_human"
            cls = "pic_human" if of_tasks else cls
            if row is None or source not in row[0] or to != row[1] or cls not in row[2] or trigger not in row[3] or tid == "T6" and (cls == "pic_human") != (trigger == "step_reengage"):
                self.find("undeclared-transition", f"no such transition of a step: {tid} from {source} to {to} by {cls} {trigger}", r)
                self.lost = True
                return
            try:
                seqs = ranges(t["step_seqs"], len(self.steps)) if name is None else [t["step_seq"]]
                if any(s < 0 for s in seqs):
                    raise IndexError
                _ = [self.steps[s] for s in seqs]
            except IndexError:
                self.find("undeclared-transition", f"{tid} of a step that the run does not have", r)
                self.lost = True
                return
            for seq in seqs:
                if cls == "pic_human" and of_tasks != (self.steps[seq].task_of is not None):
                    self.find("undeclared-transition", f"{tid} of step {seq}: a task has a task_pic_human, a step a pic_human", r)
                if source == "overdue" and not fits_overdue(tid, to, cls, trigger, self.steps[seq].unclaimed):
                    self.find("undeclared-transition", f"{tid} of step {seq}, which is overdue and {'not claimed' if self.steps[seq].unclaimed else 'at work'}", r)
                if not self.make(r, seq, name, tid, source, to):
                    self.lost = True
                    return
                self.follow_person(r, seq, tid, cls)
                if cls == "pic_human":
                    persons.add(len(made))
                made.append((seq, tid, to))
        depends = {seq for seq, w in shared(p, "waits", limit) if w.get("facet") == "waiting_dependency"}
        self.judge_order(r, made)
        self.judge(r, made, leases, persons, depends)
        self.judge_people(r, p, made, acted, closed)
        self.judge_own(r, p, made, acted, shown)
        self.judge_facets(r, p, made)
        acts.judge(self, r, p, acted)
        self.judge_inputs(r, made, leases, persons, inputs)
        self.check_outputs(r, made, outputs, effect)
        if r.action == "child_started" and not items(p, "children"):
            self.find("undeclared-transition", "this child_started names no run that was started", r)
        for child in items(p, "children"):
            if need(child, dict, "a child").get("step_seq") in range(len(self.steps)):
                self.steps[child["step_seq"]].child = need(child.get("run_id"), str, "run_id")
        for seq, attempts, e in errors:
            if 0 <= seq < len(self.steps):
                s = self.steps[seq]
                s.attempts, s.last_error, s.category, s.effect_unknown = attempts, e.get("last_error"), e.get("error_category"), e.get("effect_unknown", False)
        self.judge_cancel(r, p, run_moves)
        self.move_run(r, run_moves, moves)
        again = {seq for seq, _, e in errors if "next_run_at_us" in e}
        for seq, _, to in made:
            undone = self.steps[seq].compensates
            if to in ("failed", "cannot_complete") and undone is not None and undone not in self.held and seq not in again and self.state not in ENDED and not self.lost:
                self.find("compensation-order", f"the compensation {seq} failed, and the run is {self.state}", r)
        if self.state != "compensating" and not self.lost and any(tid == "T1" and seq >= self.behind for seq, tid, _ in made):
            self.find("compensation-order", f"a compensation began while the run was {self.state}", r)
        if not self.lost:
            self.book.follow(r, p, made, was, run_moves, unknown)
            self.repinned = self.repinned or r.action == "run_resumed" and "repinned" in p
        self.output = told(p, "output") or self.output
        self.last_error = p.get("last_error", self.last_error)
        self.outcome = p.get("outcome")

    def make(self, r: Any, seq: int, name: Optional[str], tid: str, source: str, to: str) -> bool:
        s = self.steps[seq]
        if name is not None and name != s.name:
            self.find("undeclared-transition", f"step {seq} is {s.name!r}, the record says {name!r}", r)
        if s.state != source:
            self.find("undeclared-transition", f"{tid} of step {seq} from {source}, but it was {s.state}", r)
            return False
        if source == "not_started" and tid in ("T1", "X4", "X8", "X12"):
            self.begun.append((seq, tid))
        if tid == "T1" and s.compensates is None and self.guard(s.name) is not None:
            self.find("binding-invalid", f"step {seq} has a gate, and became ready without it", r)
        if s.gated and to in ("ready", "in_progress") and tid != "X8r":
            self.find("gate-not-approved", f"step {seq} was blocked by its gate, and left it by {tid}", r)
        if tid == "X8":
            self.blocked.append(seq)
        elif tid == "X8r":
            self.cleared.append(seq)
        elif source == "blocked" and to in ("failed", "skipped", "cancelled", "cannot_complete"):
            self.dropped.append(seq)
        s.derived = None
        s.state, s.gated = to, tid == "X8" or s.gated and to == "blocked"
        s.unclaimed = tid == "X14"
        s.blocked_since, s.escalated = r.at if to == "blocked" else None, False
        if to in ("in_progress", "overdue", "blocked") and s.started_at is None and not s.unclaimed:
            s.started_at = r.at
        if to == "completed":
            s.completed_at, s.effect_unknown = r.at, False
        return True

    def judge_order(self, r: Any, made: list[tuple[int, str, str]]) -> None:
        """What a step depends on has ended in this record at the latest: between steps its lines tell no order."""
        def came_to(seq: int, states: tuple[str, ...]) -> bool:
            return self.steps[seq].state in states or any(s == seq and to in states for s, _, to in made)
        for seq, tid in self.begun:
            s = self.steps[seq]
            if s.task_of is None and s.compensates is None and not all(came_to(d, PAST) for d in self.depends[seq]):
                self.find("undeclared-transition", f"{tid} of step {seq} before everything it depends on had ended", r)
            if s.compensates is not None and not all(came_to(b, ("completed", "cannot_complete")) for b in range(self.behind, seq)):
                self.find("compensation-order", f"the compensation {seq} began out of its turn", r)

    def guard(self, action: str) -> Optional[str]:
        return next((t.get("guard") for t in self.replay.declaration.get("transitions", []) if t["from"] == "run" and t["action"] == action), None)

    def tasks_of(self, seq: int) -> list[Step]:
        return self.parts.get(seq, [])

    # ---- people, deadlines, corrections
    def judge_own(self, r: Any, p: dict[str, Json], made: list[tuple[int, str, str]], acted: Optional[int], shown: Optional[str]) -> None:
        """A transition of one's own; `shown` is the state that the step had before, as its machine calls it."""
        alone, own = r.action == "step_transitioned", p.get("own_transition")
        if own is None:
            if alone:
                self.find("undeclared-transition", "it makes no transition of one's own", r)
            return
        tid, source, to, cls, trigger = (need(need(own, dict, "own_transition").get(k), str, k) for k in ("id", "from", "to", "actor_class", "trigger"))
        if self.machine is None or acted is None or not 0 <= acted < len(self.steps):
            self.find("undeclared-transition", "a transition of one's own, of no step or in a run that is bound to no machine", r)
            return
        s, m = self.steps[acted], self.machine
        fault = ("the machine does not declare it" if (tid, source, to, cls, trigger) not in m["rows"] else
                 "the machine is not for such a step" if m["scope"] != ("step" if s.task_of is None else "task") or s.compensates is not None else
                 "it was in another state" if shown != source else
                 "the state of the floor that stands for it is not the step's" if m["derived"].get(to, to) != s.state else
                 "what the floor did does not belong to it" if alone == any(seq == acted for seq, _, _ in made) else None)
        if fault is not None:
            self.find("undeclared-transition", f"{tid} of step {acted} from {source} to {to}: {fault}", r)
        if cls in ("pic_human", "task_pic_human") and s.pic != r.actor:
            self.find("statement-mismatch", f"{tid} of step {acted} by {r.actor!r}, but in charge of it is {s.pic!r}", r)
        s.derived = to if to != s.state else None

    def take_charges(self, r: Any, p: dict[str, Json]) -> None:
        for c in items(p, "charges"):
            need(c, dict, "a charge")
            if c.get("pic") is not None:
                need(c["pic"], str, "pic")
            for k in ("deadline_us", "start_by_us"):
                if c.get(k) is not None:
                    need(c[k], int, k)
            try:
                for seq in ranges(need(c.get("step_seqs"), str, "step_seqs"), len(self.steps)):
                    s = self.steps[seq]
                    s.pic, s.deadline_us, s.start_by_us = c.get("pic"), c.get("deadline_us"), c.get("start_by_us")
            except IndexError:
                self.find("undeclared-transition", "somebody is put in charge of a step that the run does not have", r)

    def judge_facets(self, r: Any, p: dict[str, Json], made: list[tuple[int, str, str]]) -> None:
        waits = {seq: need(w.get("facet"), str, "facet") for seq, w in shared(p, "waits", len(self.steps))}
        for seq, _, to in made:
            if to == "waiting" and self.steps[seq].state == "waiting" and waits.get(seq) not in FACETS:
                self.find("undeclared-transition", f"step {seq} waits, and the record does not say for what", r)
        for seq, x in shared(p, "severities", len(self.steps)):
            severity, cause = need(x.get("severity"), str, "severity"), x.get("cause")
            if cause is not None:
                need(cause, str, "cause")
            fits = cause is None if severity == "yellow_dark" else severity == "red" and cause in CAUSES
            if not fits or not 0 <= seq < len(self.steps) or self.steps[seq].state != "blocked":
                self.find("undeclared-transition", f"step {seq} is not blocked, or for no cause is its block {severity}", r)

    def judge_inputs(self, r: Any, made: list[tuple[int, str, str]], leases: set[int], persons: set[int], inputs: list[tuple[int, tuple[str, Json]]]) -> None:
        """Every claim says what it handed out. Where no expression makes it, it is what the records say."""
        due = {seq for i, (seq, tid, _) in enumerate(made)
               if tid in ("T2", "T10", "X3", "X15") and seq in leases or tid in ("T2", "X15") and i in persons and r.action == "step_claimed"}
        for seq, given in inputs:
            self.report.checked["3"] += 1
            fault = self.input_fault(self.steps[seq], seq, given) if seq in due else "it is not claimed here"
            if fault:
                self.find("input-mismatch", f"the input of step {seq}: {fault}", r)
            due.discard(seq)
        if self.replay.rules >= 3:
            for seq in sorted(due):
                self.find("input-mismatch", f"step {seq} is claimed, and the record does not say what it was handed", r)

    def input_fault(self, s: Step, seq: int, given: tuple[str, Json]) -> Optional[str]:
        kind, value = given
        of_run = told(self.start, "input")
        none = of_run == ("value", None)
        if kind == "run":
            return "the run has none" if none else "what undoes a step is handed more than the run's" if s.compensates is not None else None
        if s.compensates is not None:
            if kind == "digest":
                return None
            undone = self.steps[s.compensates]
            for name, known in (("output", undone.output), ("input", None if self.own_input(s.compensates) else of_run)):
                if type(value) is not dict or name not in value or known is not None and known[0] == "value" and not same(value[name], known[1]):
                    return f"it is not handed the {name} of what it undoes"
        elif not self.own_input(seq) and not (none and given == ("value", None)):
            return "it is handed the run's: its definition says no other"
        return None

    def own_input(self, seq: int) -> bool:
        """Its input is not simply the run's. A task is handed what its step is."""
        of = self.steps[seq].task_of
        return "input" in self.document["steps"][seq if of is None else of]

    def follow_person(self, r: Any, seq: int, tid: str, cls: str) -> None:
        s = self.steps[seq]
        if cls == "pic_human" and s.pic != r.actor:
            self.find("statement-mismatch", f"{tid} of step {seq} by {r.actor!r}, but in charge of it is {s.pic!r}", r)
        late = s.deadline_us is not None and r.at > s.deadline_us
        if tid == "T5":
            if not late:
                self.find("undeclared-transition", f"T5 of step {seq}: its deadline has not passed", r)
            if s.overdue_first_at_us is None:
                s.overdue_first_at_us = r.at
        elif tid == "X14":
            by = [t for t in (s.start_by_us, s.deadline_us) if t is not None]
            if not by or r.at <= min(by):
                self.find("undeclared-transition", f"X14 of step {seq}: the time to claim it has not passed", r)
            if s.overdue_first_at_us is None:
                s.overdue_first_at_us = r.at
        elif tid == "X16" and (late or s.start_by_us is not None and r.at > s.start_by_us):
            self.find("undeclared-transition", f"X16 of step {seq}: its deadline lies behind", r)
        elif tid == "T6" and late:
            self.find("undeclared-transition", f"T6 of step {seq}: its deadline lies behind", r)
        elif tid == "T7":
            s.sla_breach_us = None if s.deadline_us is None else r.at - s.deadline_us
        elif tid == "T8" and late:
            self.find("undeclared-transition", f"T8 of step {seq}: it is late, and was not completed as such", r)
        elif tid in ("T8r", "T12r"):
            s.cycle += 1
            s.attempts, s.last_error, s.category, s.started_at = 0, None, None, r.at
        if tid in ("T7", "T8", "T11", "T12", "X13"):
            s.closed = r.id

    def judge_people(self, r: Any, p: dict[str, Json], made: list[tuple[int, str, str]], acted: Optional[int], closed: Optional[str]) -> None:
        said = []
        for x in items(p, "sla"):
            if need(x, dict, "an sla").get("completed_after_deadline") is not True:
                raise Malformed("completed_after_deadline is not true")
            said.append(tuple(need(x.get(k), int, k) for k in ("step_seq", "overdue_first_at_us", "sla_breach_us")))
        steps = [(seq, self.steps[seq]) for seq, tid, _ in made if tid == "T7"]
        expected = [(seq, s.overdue_first_at_us, s.sla_breach_us) for seq, s in steps if s.overdue_first_at_us is not None and s.sla_breach_us is not None]
        if sorted(said) != sorted(expected):
            self.find("undeclared-transition", "what was completed late, since when and by how much, is not what its records say", r)
        step = self.steps[acted] if acted is not None and 0 <= acted < len(self.steps) else None
        approval, correction = p.get("approval_id"), p.get("correction")
        if approval is not None:
            need(approval, str, "approval_id")
        if step is not None and approval is not None:
            self.spends.append((("reopen:" if r.action == "step_reopened" else "escalate:") + step.name.split("/")[0], approval))
        if (r.action == "run_cancelled" or r.action == "run_voided" and self.guard("void") is None) and approval is not None:
            self.spends.append(("cancel", approval))
        if correction is not None:
            need(need(correction, dict, "correction").get("cycle"), int, "cycle")
            for k in ("correction_reason", "prior_event_id"):
                need(correction.get(k), str, k)
        if r.action == "step_reopened":
            fault = None
            if step is None or approval is None or correction is None:
                fault = "it lacks the step, the approval or the correction"
            elif not any(seq == acted and tid in ("T8r", "T12r") for seq, tid, _ in made):
                fault = "the step is not reopened"
            elif correction["correction_reason"] not in REASONS:
                fault = "its reason is not in the vocabulary"
            elif correction["cycle"] != step.cycle:
                fault = "its cycle is not the next"
            elif correction["prior_event_id"] != closed:
                fault = "it does not name the record that closed the step"
            if fault:
                self.find("undeclared-transition", f"a reopening: {fault}", r)
            kept = told(correction, "output") if correction is not None else None
            if step is not None and any(seq == acted and tid == "T8r" for seq, tid, _ in made):
                if kept is None or step.output is None or kept[0] == step.output[0] and not same(kept[1], step.output[1]):
                    self.find("output-missing", "what the step had yielded is not what its completion recorded", r)
        elif r.action == "step_retry_ordered" and step is not None:
            step.started_at = None
            replayed = (r.payload or {}).get("replay")
            if replayed is not None:
                self.retried.append((r, f"{r.instance}.{acted}.{step.cycle}"))

    def judge(self, r: Any, made: list[tuple[int, str, str]], leases: set[int], persons: set[int], depends: set[int]) -> None:
        claimed: set[int] = set()
        resumed: set[int] = set()
        reported = 0
        for i, (seq, tid, _) in enumerate(made):
            fault = False
            task_of = self.steps[seq].task_of
            if tid == "T1" and task_of is not None:
                fault = ((self.steps[task_of].state not in AT_WORK or self.steps[task_of].unclaimed)
                         and all(s != task_of or to not in AT_WORK or other == "X14" for s, other, to in made))
            elif tid in ("T2", "X15") and i in persons:
                fault = r.action != "step_claimed"
            elif tid == "T6":
                fault = r.action != ("step_reengaged" if i in persons else "deadline_extended")
            elif tid == "T4":
                fault = r.action != "step_blocked" and (i in persons or r.action != "step_failed")
            elif tid == "T5":
                fault = r.action not in ("time_passed", "step_claimed") and all(later[:2] != (seq, "T7") for later in made[i + 1:])
            elif tid in ("T2", "T10", "X3", "X15"):
                if seq in leases:
                    fault = r.action not in ("steps_claimed", "step_completed")
                else:
                    claimed.add(seq)
                    fault = all(later[0] != seq for later in made[i + 1:]) and not self.tasks_of(seq)
            elif tid == "T3r":
                resumed.add(seq)
                fault = r.action == "child_resumed" and self.steps[seq].child is None
            elif tid in ("T7", "T8") and any(t.state not in ("completed", "skipped") for t in self.tasks_of(seq)):
                fault = True
            elif tid in ("T7", "T8") and self.tasks_of(seq) and i not in persons:
                pass
            elif tid in ("T7", "T8") and seq not in claimed | resumed:
                reported += 1
                fault = r.action not in ("step_completed", "child_ended")
            elif tid == "T3" and seq not in claimed:
                reported += 1
                with_child = r.action == "child_waiting" and self.steps[seq].child is not None and seq in depends
                fault = r.action != "step_waiting" and not with_child
            elif tid in ("U1", "U2"):
                fault = r.action != "effect_declared" or self.steps[seq].compensates is None
            elif tid == "X13":
                fault = r.action != "effect_declared" and (r.action != "step_completed" or self.book.captured != seq)
            elif tid in RECORD_OF:
                fault = r.action not in RECORD_OF[tid]
            if fault:
                self.find("undeclared-transition", f"{tid} of step {seq} does not belong into a {r.action}", r)
        for seq, tid, to in made:
            if to == "skipped" and any(t.state not in TASK_PAST for t in self.tasks_of(seq)):
                self.find("undeclared-transition", f"{tid} of step {seq} passes it over and leaves its tasks behind", r)
        if reported > 1:
            self.find("undeclared-transition", f"one record reports on one step, this one on {reported}", r)

    def check_outputs(self, r: Any, made: list[tuple[int, str, str]], outputs: list[tuple[int, Any]], effect: Optional[dict[str, Json]]) -> None:
        due = [seq for seq, _, to in made if to == "completed"]
        for seq, output in outputs:
            if seq in due:
                due.remove(seq)
            elif self.book.active or not (effect is not None and effect["done"] and effect["step_seq"] == seq):
                self.find("output-missing", f"an output of step {seq}, which does not complete here", r)
            if 0 <= seq < len(self.steps):
                self.steps[seq].output = output
        for seq in due:
            self.find("output-missing", f"step {seq} is completed without an output in the record", r)

    def add_compensations(self, r: Any, p: dict[str, Json], moves: list[Any], effect: Optional[dict[str, Json]]) -> None:
        if effect is not None and 0 <= effect["step_seq"] < len(self.steps):
            s = self.steps[effect["step_seq"]]
            s.effect_unknown = False
            if effect["done"] and any(seq == effect["step_seq"] for seq, _ in shared(p, "outputs", len(self.steps))):
                s.completed_at = r.at
        said = items(p, "compensations")
        if any(type(c) is not list or len(c) != 2 or any(type(n) is not int for n in c) for c in said):
            raise Malformed("compensations are not pairs")
        listing = r.action == "compensations_listed"
        if listing and (self.state != "compensating" or set(p) != {"instance_id", "compensations"}):
            self.find("compensation-order", "a list of compensations comes while the run compensates, and does nothing else", r)
        if not said and not listing:
            return
        expected = self.unlisted if listing else self.due_compensations(r, moves)
        if not said or said != expected[:len(said)]:
            self.find("compensation-order", f"compensations {said[:20]}; due are {expected[:20]}", r)
            self.unlisted = []
        else:
            self.unlisted = expected[len(said):]
        for seq, undone in said:
            if seq == len(self.steps):
                self.steps.append(Step(self.steps[undone].name if 0 <= undone < len(self.steps) else "", undone))

    def due_compensations(self, r: Any, moves: list[Any]) -> list[list[int]]:
        now: set[int] = set()
        for t, name, _, _, to, _, _ in moves:
            if to == "completed":
                try:
                    now.update(ranges(t["step_seqs"], len(self.steps)) if name is None else [t["step_seq"]])
                except IndexError:
                    pass
        planned = {s.compensates for s in self.steps}
        due = []
        for seq in self.undoable - planned:
            s = self.steps[seq]
            at = r.at if seq in now else 0 if s.completed_at is None and s.taken_over and s.state == "completed" else s.completed_at
            if at is not None:
                due.append((at, self.depth[seq], seq))
        return [[len(self.steps) + i, seq] for i, (_, _, seq) in enumerate(sorted(due, reverse=True))]

    def judge_cancel(self, r: Any, p: dict[str, Json], moves: list[Any]) -> None:
        """Who cancels with `compensate` has the work undone; who cancels without it does not."""
        asked = "compensate" in p
        if asked and (r.action != "run_cancelled" or p["compensate"] is not True):
            raise Malformed("compensate")
        to = next((to for _, _, to, trigger in moves if trigger == "workflow_cancel"), None)
        if asked != (to == "compensating"):
            self.find("undeclared-transition", "cancelled with `compensate`, and its work is not undone, or the other way round", r)
        self.called_off = self.called_off or asked

    def judge_undone(self, r: Any, tid: str, steps: list[Any]) -> None:
        if self.called_off != (tid == "C12"):
            self.find("undeclared-transition", f"the run is {'completed, though it was' if self.called_off else 'cancelled, though it was not'} called off", r)
        left = self.due_compensations(r, steps)
        if left:
            self.find("compensation-order", f"the run has undone its work, and what undoes step {left[0][1]} was not listed", r)

    def move_run(self, r: Any, moves: list[Any], steps: list[Any]) -> None:
        planned = len(self.depends)
        for tid, source, to, trigger in moves:
            if RUN_TABLE.get(tid) != (source, to, trigger):
                self.find("undeclared-transition", f"no such transition of a run: {tid} from {source} to {to} by {trigger}", r)
                self.lost = True
                return
            if self.state != source:
                self.find("undeclared-transition", f"the run goes from {source} to {to}, but it was {self.state}", r)
                self.lost = True
                return
            if OWN_TRIGGERS.get(trigger, r.action) != r.action:
                self.find("undeclared-transition", f"{trigger} of the run in a {r.action}", r)
            if tid == "R4" and any(s.state not in PAST for s in self.steps[:planned]) or tid in ("R10", "C12") and any(s.state != "completed" for s in self.steps[self.behind:]):
                self.find("undeclared-transition", f"the run is {to} before all that belongs to it has ended", r)
            if tid in ("R10", "C12"):
                self.judge_undone(r, tid, steps)
            if tid == "R13" and not self.book.dry:
                self.find("undeclared-transition", "completed as a dry run, which it is not", r)
            fits = self.undoing if tid in ("P10", "P11", "S21", "S22") else tid in ("R9e", "R10", "R11", "R12", "C12") or not self.undoing or to in ("paused", "stopped", "voided")
            if not fits:
                self.find("undeclared-transition", f"{tid} does not belong to a run that is {'' if self.undoing else 'not '}undone", r)
            self.undoing = self.undoing or to == "compensating"
            self.state = to
            self.over = self.over or to in ENDED or to == "compensating"
            self.stops = self.stops or to == "stopped"
            if to == "executing" and self.executing_since is None:
                self.executing_since = r.at
            elif to == "completed":
                self.completed_at = r.at
            elif to == "failed":
                self.failed_at = r.at

    # ---- after a command
    def end_command(self) -> None:
        last, over = self.last, self.state in ENDED
        if last is None:
            return
        if not self.lost:
            self.check_command(last, over)
            self.book.end_command(last)
        self.ended = self.ended or over
        self.fresh()

    def check_command(self, last: Any, over: bool) -> None:
        names = lambda seqs: [self.steps[s].name for s in seqs]     # noqa: E731
        if self.unlisted:
            self.find("compensation-order", f"the compensation {self.unlisted[0]} is due and was not listed", last)
        due = set(names(self.blocked)) | ({"resume"} if self.stops and self.guard("resume") is not None else set())
        again = {s.name for s in self.steps if s.state == "blocked" and s.gated and s.name not in names(self.blocked)}     # its gate was moot, and is opened anew
        for action in due ^ (set(self.opened) - again):
            self.find("binding-invalid", f"{action!r}: something waits for a gate that was not opened, or the other way round", last)
        for name in names(self.cleared):
            self.report.checked["1"] += 1
            if name not in self.approved and last.action != "pins_surveyed" or name not in [a for a, _ in self.fired]:
                self.find("gate-not-approved", f"step {name!r} went on without an approval of its gate in this command", last)
        for action, r in self.fired:
            spent = any(a == action for a, _ in self.spends)
            if action not in names(self.cleared) and not spent and not (action == "cancel" and self.state in ("cancelled", "voided") and not self.ended):
                self.find("gate-not-approved", f"the gate of {action!r} was consumed, and nothing followed it", r)
        for action, approval in self.spends:
            self.report.checked["1"] += 1
            fired = next((step for a, step in self.spent if a == action), False)
            if fired is False or fired is not None and fired != approval:
                self.find("gate-not-approved", f"nothing was approved by {approval!r} for {action!r} in this command", last)
        cancels = last.action == "run_cancelled" or last.action == "run_voided" and self.guard("void") is None
        if cancels and self.guard("cancel") is not None and "cancel" not in [a for a, _ in self.fired]:
            self.find("gate-not-approved", "cancelled or voided without the approval that the definition asks for", last)
        for action, r in self.mooted:
            drifts = self.stops and self.outcome == "drift" or self.repinned
            if action not in names(self.dropped) and not self.over and not drifts:
                self.find("moot-invalid", f"what waits behind the gate of {action!r} has not ended in this command", r)
        state = {s.name: s.state for s in self.steps[:len(self.depends)]}
        for gate in self.replay.gates.values():
            if gate.current is not False and gate.fate == "unspent" and gate.sure and gate.state in ("Pending", "Approved"):
                of_step = gate.action.partition(":")[0] in ("reopen", "escalate") and ":" in gate.action
                drifted = self.state == "stopped" and self.outcome == "drift"       # then no approval of a step holds
                waits = (gate.action in ("cancel", "void") or of_step or state.get(gate.action) == "blocked" and not drifted or gate.action == "resume" and self.state == "stopped")
                if not waits or over and not (gate.action == "void" and self.state in ("failed", "cancelled")):
                    self.find("assignment-coverage", f"gate {gate.id} of {gate.action!r} is open, and nothing waits behind it", last)

    # ---- stores (run.md 7)
    def compare(self, row: dict[str, Json], find: Any, parse: Any) -> None:
        for holder in (row, *row["steps"]):
            for name in ("input", "output"):
                if holder.get(name) is not None and sha(holder[name]) != holder.get(name + "_digest"):
                    find("row-missing", f"{name}_digest is not that of {name}")
        if self.lost:
            self.report.unverifiable.update("23")
            return

        def equal(what: str, holder: dict[str, Json], **expected: Json) -> None:
            self.report.checked["3"] += 1
            for name, value in expected.items():
                if not same(holder[name], value):
                    find("row-missing", f"{what}: {name} is {holder[name]!r}; the records say {value!r}")

        def value(what: str, holder: dict[str, Json], name: str, said: Optional[tuple[str, Json]]) -> None:
            if said is None or said[0] == "digest":
                equal(what, holder, **{name + "_digest": said[1] if said else None})
                return
            try:
                found = parse(holder[name])
            except Exception:
                found = object
            if found is object or not same(found, said[1]):
                find("row-missing", f"{what}: {name} is not the value that was recorded")

        p = self.start
        equal("the run", row, document_digest=p["document_digest"], priority=p["priority"], outcome=self.outcome, last_error=self.last_error,
              executing_since_us=self.executing_since, completed_at_us=self.completed_at, failed_at_us=self.failed_at,
              **{k: p.get(k) for k in ("start_at_us", "correlation_key", "concurrency_key", "corrects", "continues", "parent_run_id", "parent_step_seq")})
        value("the run", row, "input", told(p, "input"))
        value("the run", row, "output", self.output)
        if row.get("machine_digest") != self.machine_digest:
            find("row-missing", "the run: machine_digest is not as recorded")
        if row["state"] != self.state:
            find("replay-mismatch", f"the stores say {row['state']!r}, the records lead to {self.state!r}")
        if len(row["steps"]) != len(self.steps):
            find("row-missing" if len(row["steps"]) < len(self.steps) else "record-missing", f"{len(row['steps'])} steps in the stores, {len(self.steps)} by the records")
        lines = ""
        for seq, (s, found) in enumerate(zip(self.steps, row["steps"])):
            if found["state"] != s.state:
                find("replay-mismatch", f"step {seq} is {found['state']} in the stores, {s.state} by the records")
            equal(f"step {seq}", found, step_seq=seq, name=s.name, compensates=s.compensates, attempts=s.attempts, started_at_us=s.started_at, completed_at_us=s.completed_at,
                  last_error=s.last_error, error_category=s.category, effect_unknown=s.effect_unknown, child_run_id=s.child)
            if found.get("derived_state") != s.derived:
                find("replay-mismatch", f"over the state of step {seq} lies {found.get('derived_state')} in the stores, {s.derived} by the records")
            charge = found.get("charge") or {}
            if any(not same(charge.get(k), getattr(s, k) or None if k == "cycle" else getattr(s, k)) for k in CHARGE):
                find("row-missing", f"step {seq}: who is in charge, and what was promised or missed, is not as recorded")
            if s.taken_over:
                lines += f"{seq} {found['output_digest']}\n" if found["output_digest"] is not None else ""
            else:
                value(f"step {seq}", found, "output", s.output)
        if p.get("taken_over") is not None and sha(lines) != p["taken_over"]["outputs_digest"]:
            find("row-missing", "the outputs that were taken over are not those that the start recorded")
