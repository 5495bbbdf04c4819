"""Replay of processes: claims 1, 2 and 4 (bundle.md 2, 3)."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional

from . import dead_letters, origins, proposals, run_model, runs
from .files import Bundle
from .found import Record, Report
from .records import DECIDED
from .registry import Registry
from .rows import Rows, check_grant_rows
from .texts import Fault, Json, GOVERNANCE, REGISTRY, as_entry, check_form, member_text, parse_json, preset, published_gates, same, sha256, without_nulls

ENDED = {"approve": "Approved", "reject": "Rejected", "withdraw": "Withdrawn", "step_approved": "Approved", "step_rejected": "Rejected", "step_withdrawn": "Withdrawn"}
MOOT = "Gate moot: workflow left the gate's from_state by firing a different transition"
UNREACHABLE = "Chain withdrawn: its quorum can no longer be reached"
PROCESS = ("workflow_started", "gate_opened", "gate_decided", "transition_fired", "moot_gate_recalled", "chain_initiated", "step_approved", "step_rejected",
           "step_withdrawn", "chain_resolved", "chain_withdrawn")


@dataclass
class Step:
    id: str
    approver: str
    assignment: str
    state: str = "Pending"
    ended: Optional[Record] = None          # the record that ended it
    ended_by: Optional[str] = None
    reason: Optional[str] = None
    own: bool = False                       # somebody decided this step; otherwise it went with its gate
    recalled_at: Optional[int] = None
    taken: Optional[tuple[str, Record]] = None      # a substitute's own assignment, and the record of their decision

    def end(self, state: str, record: Record, by: str, reason: Optional[str], own: bool = False) -> None:
        self.state, self.ended, self.ended_by, self.reason, self.own = state, record, by, reason, own
        self.recalled_at = self.recalled_at if self.recalled_at is not None else record.at


@dataclass
class Gate:
    id: str
    opened: Record
    payload: dict[str, Json]
    steps: dict[str, Step]
    rule: Optional[str]                     # None: a single gate
    m: Optional[int]
    chain_state: Optional[str]
    fate: str = "unspent"
    current: Optional[bool] = True          # None: not known
    sure: bool = True                       # False: a purged record may have changed it

    action = property(lambda self: self.payload["action"])
    from_state = property(lambda self: self.payload["from_state"])
    submitter = property(lambda self: self.payload["submitter_ref"])
    state = property(lambda self: self.chain_state if self.rule else self.steps[self.id].state)

    def pending(self) -> list[Step]:
        return [s for s in self.steps.values() if s.state == "Pending"]

    def settled(self) -> str:
        """What the rule makes of the steps as they are."""
        states = [s.state for s in self.steps.values()]
        approved, rejected, withdrawn = (states.count(x) for x in ("Approved", "Rejected", "Withdrawn"))
        if self.rule == "all-of-n":
            return "Approved" if approved == len(states) else "Rejected" if rejected else "Withdrawn" if withdrawn else "Pending"
        need = self.m if self.rule == "m-of-n" and self.m is not None else 1
        if approved >= need:
            return "Approved"
        return "Pending" if len(states) - rejected - withdrawn >= need else "Rejected" if rejected else "Withdrawn"


@dataclass
class Withdrawn:
    """A step that went with its chain; a record of its own follows."""
    gate: Gate
    by: str
    reason: Optional[str]
    recorded: bool = False


class Replay:
    """One instance: its records in order against its documents, then against its rows."""

    def __init__(self, b: Bundle, registry: Registry, instance: str, fired_with: dict[str, Record], report: Report):
        self.b, self.registry, self.instance, self.fired_with, self.report = b, registry, instance, fired_with, report
        self.chain = b.chains[instance]
        self.purged = {r.id for r in self.chain if r.purged}
        self.lost_reasons = {r.id for r in self.chain if r.purged and (r.action in ("gate_decided", "chain_withdrawn") or r.action in DECIDED)}
        self.of_run = runs.Run(self) if self.chain[0].action == "run_started" else None
        self.proposal = proposals.Proposal(self, registry, report) if proposals.is_proposal(self.chain[0]) else None
        self.lost_reasons |= {""} if self.lost_reasons else set()       # or it is null
        self.start: Optional[Record] = None
        self.declaration: dict[str, Json] = {}
        self.gate_spec: dict[str, Json] = {}
        self.state: Optional[str] = None            # None: not known, for want of a purged record
        self.firings: list[Record] = []
        self.fired = 0                              # how many, purged ones too
        self.gates: dict[str, Gate] = {}
        self.unseen_gates = False                   # a purged record may have opened some
        self.bound: dict[tuple[str, str], Gate] = {}
        self.requests: dict[str, Json] = {}         # what each gate asks, by digest
        # what the rest of the same command still owes
        self.chain_begun: Optional[Record] = None   # chain_initiated, and no gate_opened yet
        self.undecided: Optional[tuple[Gate, Optional[Step], str, Record]] = None   # step_*, and no gate_decided yet
        self.unresolved: Optional[Gate] = None      # a settled chain, and no chain_resolved yet
        self.moot: dict[str, str] = {}              # gates of the state just left -> moot_kind
        self.left: Optional[str] = None             # state that this command left
        self.left_unknown = False                   # the firing of this command was purged
        self.lost: list[Record] = []                # purged decisions that explain nothing yet
        self.application = ""
        self.rules = 1                              # edition of record.md that the instance began under
        self.replaced: list[str] = []               # guards whose approvers are not those of the definition
        self.withdrawn: dict[str, Withdrawn] = {}   # steps that a chain's end withdrew in this command

    # ---- documents: claim 2
    def document(self, name: str) -> dict[str, Json]:
        assert self.start is not None and self.start.payload is not None
        digest = self.start.payload[name + "_digest"]
        self.report.checked["2"] += 1
        text = self.b.documents.get(digest)
        if text is None:
            self.report.find("document-mismatch", f"the {name} {digest} is missing", self.start)
            return {}
        if sha256(text.encode()).hex() != digest:
            self.report.find("document-mismatch", f"the {name} is not the one with digest {digest}", self.start)
        try:
            value = parse_json(text)
            if name == "declaration":
                check_form(value, "states:texts transitions:list initial_state:text terminal_states:texts", "document-mismatch", name)
                for t in value["transitions"]:
                    check_form(t, "from:text action:text to:text guard?:text effects?:list", "document-mismatch", "transition")
                    if origins.effects(t) is None:
                        raise Fault("document-mismatch", "an effect is a start with a definition or an event with a type")
            else:
                for entry in value.values() if isinstance(value, dict) else [None]:
                    quorum = isinstance(entry, dict) and "quorum" in entry
                    check_form(entry, ("approvers:texts quorum:object" if quorum else "approver_ref:text") + " scope:text delegable?:bool", "document-mismatch", name)
                    if isinstance(entry, dict) and quorum:
                        check_form(entry["quorum"], "rule:text m?:int", "document-mismatch", "quorum")
            return value
        except Fault as f:
            code = f.code if f.code in ("duplicate-key", "number-out-of-range") else "document-mismatch"
            self.report.find(code, f"{name}: {f.detail}", self.start)
            return {}

    def check_start(self) -> None:
        r = self.start
        assert r is not None and r.payload is not None
        p = r.payload
        self.rules = p["rules"] if p.get("rules") is not None else 1
        self.declaration, self.gate_spec = self.document("declaration"), self.document("gate_spec")
        if self.of_run is None:
            self.check_replaced(r, p)
        initial = "run" if self.of_run is not None else p["initial_state"]
        if self.declaration and initial != self.declaration["initial_state"]:
            self.report.find("undeclared-transition", "initial_state is not the declared one", r)
        if self.of_run is None and self.gate_spec and sorted(p["gate_spec_labels"]) != sorted(self.gate_spec):
            self.report.find("document-mismatch", "gate_spec_labels are not those of the gate_spec", r)
        if p.get("definition") is not None:
            published = [d.payload or {} for d in self.registry.definitions.get(p["definition"], []) if d.sequence <= r.registry_seq]
            if not published and self.proposal is None and not dead_letters.is_request(self.chain[0]):
                self.report.find("document-mismatch", f"definition {p['definition']} was not published", r)
            if p.get("parent_run_id") is None and (by := self.registry.retired_by(p["definition"], r.registry_seq)) is not None:
                self.report.find("document-mismatch", f"definition {p['definition']} was retired by registry record {by}", r)
            if any(d["declaration_digest"] != p["declaration_digest"] for d in published):
                self.report.find("document-mismatch", f"declaration is not that of {p['definition']}", r)
            if self.of_run is not None and any((d.get("document_digest"), d["gate_spec_digest"]) != (p["document_digest"], p["gate_spec_digest"]) for d in published):
                self.report.find("document-mismatch", f"definition or gate_spec is not that of {p['definition']}", r)
        self.state = initial

    def check_replaced(self, r: Record, p: dict[str, Json]) -> None:
        """Whose word it is who approves (record.md 4, Starts)."""
        published = [d.payload or {} for d in self.registry.definitions.get(p.get("definition") or "", []) if d.sequence <= r.registry_seq]
        stated = p.get("replaced") or []
        if not published:
            if stated:
                self.report.find("document-mismatch", "says that approvers were replaced, and comes from no definition", r)
            return
        digest = published[0]["gate_spec_digest"]
        text = self.b.documents.get(digest)
        gates = published_gates(text)
        if text is not None and sha256(text.encode()).hex() != digest:
            self.report.find("document-mismatch", f"the definition's gate_spec is not the one with digest {digest}", r)
        if self.rules < 2:
            if digest != p["gate_spec_digest"]:
                self.report.note("approvers-chosen-at-start", "approvers were chosen by the initiator, when every start could do so", r)
                self.replaced = sorted(k for k, v in self.gate_spec.items() if gates is None or not same(preset(gates.get(k)), as_entry(v)))
            return
        self.report.checked["1"] += 1
        if gates is None:
            self.report.find("document-mismatch", f"the gate_spec {digest} of the definition is missing", r)
            return
        self.replaced = sorted(k for k, v in self.gate_spec.items() if not same(preset(gates.get(k)), as_entry(v)))
        if sorted(stated) != self.replaced:
            self.report.find("document-mismatch", f"says that the approvers of {stated} were replaced; those of {self.replaced} were", r)
        for label in self.replaced:
            gate, entry = gates.get(label) or {}, self.gate_spec[label]
            if gate.get("replaceable") is not True:
                self.report.find("wrong-approver", f"the approvers of {label!r} were replaced, and the definition fixes them", r)
                continue
            if bool(gate.get("delegable")) != bool(entry.get("delegable")):
                self.report.find("wrong-approver", f"whether an approver of {label!r} may name a substitute is the definition's to say", r)
            if gate.get("scope") != entry.get("scope"):
                self.report.find("wrong-approver", f"the scope of {label!r} is not the definition's", r)
            if gate.get("selfApproval") is not True and r.actor in (entry.get("approvers") or [entry.get("approver_ref")]):
                self.report.find("wrong-approver", f"{r.actor} started the process and is an approver of {label!r}", r)
        if self.replaced:
            self.report.note("approvers-replaced", f"the initiator named the approvers of {', '.join(self.replaced)}", r)

    def transition(self, action: str) -> Optional[dict[str, Json]]:
        for t in self.declaration.get("transitions", []):
            if t["from"] == self.state and t["action"] == action:
                return t
        return None

    # ---- the run
    def run(self) -> None:
        first = self.chain[0]
        if self.instance not in self.b.state:
            self.report.find("row-missing", "no line in state.jsonl", first)
        if first.action in ("workflow_started", "run_started") and first.payload is None:
            self.report.note("partially-purged-coverage", "the start of the process was purged: claims 1 to 4 cannot be checked for it", first, "1234")
            return
        if first.action not in ("workflow_started", "run_started"):
            self.report.find("record-missing", "the chain does not begin with workflow_started", first)
            return
        self.start = first
        self.check_start()
        if self.proposal is not None:
            self.proposal.begin(first)
        before = first
        if self.of_run is not None:
            self.of_run.take(first, parse_json)
        for r in self.chain[1:]:
            if self.of_run is not None:
                self.of_run.before(r)
            if r.at != before.at:
                self.end_command(before)
            before = r
            self.application = self.registry.application_actor(r)
            self.take(r)
            if self.proposal is not None:
                self.proposal.take(r)
            if self.of_run is not None:
                self.of_run.take(r, parse_json)
        if self.of_run is not None:
            self.of_run.end_command()
        self.end_command(before)
        if self.proposal is not None:
            self.proposal.finish()
        if dead_letters.is_request(first):
            dead_letters.check_request(self, self.report)
        if self.instance in self.b.state:
            Rows(self, self.b.state[self.instance]).check()

    def take(self, r: Record) -> None:
        if r.action not in PROCESS:
            if r.action in run_model.PAYLOADS and self.of_run is None:
                self.report.find("record-missing", f"a {r.action} among the records of a process", r)
            return
        if r.payload is None:
            self.lose(r)
            return
        if r.action == "workflow_started":
            self.report.find("record-missing", "a second workflow_started", r)
            return
        handler = "on_step" if r.action in DECIDED else "on_" + r.action
        getattr(self, handler)(r, r.payload)

    def lose(self, r: Record) -> None:
        """A purged record: what it may have changed is not known any more."""
        if r.purged:
            claims = {"transition_fired": "1234", "workflow_started": "1234"}.get(r.action, "134")
            self.report.note("partially-purged-coverage", f"a purged {r.action}: claims {', '.join(claims)} cannot be checked in full", r, claims)
        if r.purged and r.action in ("gate_decided", "step_approved", "chain_resolved"):
            self.lost.append(r)
        if r.action == "step_withdrawn":
            self.withdrawn = {}         # it may be that of any of them
        if r.action == "gate_decided" and self.undecided is not None:
            self.undecided = None       # the chain's own record of the decision is still there
            return
        for gate in self.gates.values():
            if r.action == "transition_fired" or gate.pending() or gate.id in self.moot:
                gate.sure = False
        if r.action == "transition_fired":
            self.state, self.fired, self.left_unknown = None, self.fired + 1, True
        if r.action in ("gate_opened", "chain_initiated"):
            self.unseen_gates = True
            for gate in self.gates.values():
                gate.current = None
        self.chain_begun, self.undecided, self.unresolved = None, None, None

    def end_command(self, last: Record) -> None:
        if self.chain_begun is not None:
            self.report.find("record-missing", "chain_initiated without gate_opened", self.chain_begun)
        if self.undecided is not None:
            self.report.find("record-missing", f"{self.undecided[3].action} without gate_decided", self.undecided[3])
        if self.unresolved is not None and self.unresolved.sure:
            self.report.find("record-missing", "a chain was settled, and no chain_resolved says so", last)
        own = self.rules >= 2 or any(w.recorded for w in self.withdrawn.values())   # before that no step had one
        for step_id, w in self.withdrawn.items():
            if own and not w.recorded and w.gate.sure:
                self.report.find("record-missing", f"step {step_id} went with its chain, and has no step_withdrawn", last)
        self.withdrawn = {}
        for gate_id in self.moot:
            if self.gates[gate_id].sure:
                self.report.find("assignment-coverage", f"gate {gate_id} of a state that was left is neither consumed nor mooted", last)
        self.chain_begun, self.undecided, self.unresolved, self.moot, self.left, self.left_unknown = None, None, None, {}, None, False

    def gate_of(self, r: Record, p: dict[str, Json], code: str, action: str = "action") -> Optional[Gate]:
        gate = self.gates.get(p.get("chain_id") or p.get("step_id") or "")
        if gate is None or (gate.rule is not None) != (p.get("chain_id") is not None) or gate.action != p[action]:
            if not self.unseen_gates:
                self.report.find(code, f"{r.action} names no gate of this action", r)
            return None
        return gate

    # ---- opening
    def check_against_spec(self, r: Record, guard: str, said: dict[str, Json], chain: Optional[dict[str, Json]]) -> None:
        spec = self.gate_spec.get(guard)
        if not isinstance(spec, dict):
            self.report.find("wrong-approver", f"the gate_spec has no {guard!r}", r)
            return
        found: dict[str, Json] = {"scope": said["scope"]}
        if chain is None:
            found["approver_ref"] = said.get("approver_ref")
        else:
            found["approvers"] = [s["approver_ref"] for s in said["steps"]]
            found["quorum"] = {"rule": chain["quorum_rule"], **({"m": chain["m"]} if chain.get("m") is not None else {})}
        if not same(found, {k: v for k, v in without_nulls(spec).items() if k != "delegable"}):
            self.report.find("wrong-approver", f"approver, scope or rule of the gate is not what the gate_spec says for {guard!r}", r)

    def on_chain_initiated(self, r: Record, p: dict[str, Json]) -> None:
        assert self.start is not None and self.start.payload is not None
        if self.chain_begun is not None:
            self.report.find("record-missing", "chain_initiated without gate_opened", self.chain_begun)
        self.chain_begun = r
        if p["approver_set"] != [s["approver_ref"] for s in p["steps"]] or p["initiator_ref"] != self.start.actor or p["subject_ref"] != f"{self.start.payload['subject_ref']}:{p['action']}":
            self.report.find("wrong-approver", "approvers, initiator or subject of the chain are not those of the process", r)

    def check_request(self, r: Record, p: dict[str, Json]) -> None:
        """What the approvers are asked, and that what they decide is bound to it."""
        gate, said = p.get("chain_id") or p.get("step_id") or "", p.get("request_digest")
        if r.action == "gate_decided":
            if gate in self.requests and not same(said, self.requests[gate]):
                self.report.find("binding-invalid", "the decision is not bound to the request of its gate", r)
            return
        self.requests[gate] = said
        text = member_text(r.payload_text or "", "request")
        if (text is not None or "request_bytes" in p) and said is None or text is not None and sha256(text.encode()).hex() != said:
            self.report.find("binding-invalid", "request_digest is not that of the request", r)

    def on_gate_opened(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["3"] += 1
        self.check_request(r, p)
        assert self.start is not None
        t, quorum = self.transition(p["action"]), p.get("chain_id") is not None
        if self.state is not None:
            if p["from_state"] != self.state or t is None or t.get("guard") is None or t["guard"] != p["guard"]:
                self.report.find("binding-invalid", f"a gate for {p['action']!r} from {p['from_state']!r}, which is not a guarded transition of {self.state!r}", r)
        before = self.bound.get((p["from_state"], p["action"]))
        if before is not None:
            if before.sure and before.fate == "unspent" and before.state in ("Pending", "Approved"):
                self.report.find("binding-invalid", "opened while the bound gate was open", r)
            before.current = False
        if p.get("supersedes") != (before.id if before else None) and not self.unseen_gates:
            self.report.find("binding-invalid", "supersedes is not the gate that was bound", r)
        if p["submitter_ref"] != self.start.actor:
            self.report.find("wrong-approver", "the submitter is not the initiator of the process", r)
        chain: Optional[dict[str, Json]] = None
        if quorum:
            begun = self.chain_begun.payload if self.chain_begun is not None else None
            if begun is None or any(not same(begun[k], p[k]) for k in ("chain_id", "action", "scope", "steps")) or self.chain_begun is None or self.chain_begun.actor != r.actor:
                if not self.unseen_gates:
                    self.report.find("record-missing", "no chain_initiated that says the same", r)
            chain, self.chain_begun = begun, None
            if chain is None:
                self.unseen_gates = True
                return
        self.check_against_spec(r, p["guard"], p, chain)
        members = p["steps"] if quorum else [p]
        steps = {s["step_id"]: Step(s["step_id"], s["approver_ref"], s["assignment_id"]) for s in members}
        gate_id = p["chain_id"] if quorum else p["step_id"]
        if gate_id in self.gates or len(steps) != len(members) or any(s in g.steps for g in self.gates.values() for s in steps):
            self.report.find("record-missing", "a gate or step is opened twice", r)
            return
        gate = Gate(gate_id, r, p, steps, chain["quorum_rule"] if chain else None, chain.get("m") if chain else None, "Pending" if chain else None)
        self.gates[gate_id] = self.bound[(p["from_state"], p["action"])] = gate

    # ---- deciding
    def on_step(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["1"] += 1
        gate = self.gate_of(r, p, "binding-invalid")
        step = gate.steps.get(p["step_id"]) if gate is not None else None
        if gate is None or step is None:
            if gate is not None:
                self.report.find("binding-invalid", "a decision on a step that the chain has not", r)
            return
        state = ENDED[r.action]
        if r.action == "step_withdrawn" and step.id in self.withdrawn:
            self.follow_chain(r, p, gate, self.withdrawn[step.id])
            return
        if r.action == "step_withdrawn" and r.actor == gate.submitter and p["trailing"] and not gate.sure:
            step.end("Withdrawn", r, gate.submitter, p.get("reason"), own=True)     # the chain's end was purged
            return
        if p["decided_by"] != (gate.submitter if r.actor == self.application else r.actor):
            self.report.find("wrong-approver", "decided_by is not who decided, or the initiator where the engine withdrew", r)
        if r.actor == self.application:
            resolved = gate.state != "Pending" or gate.id in self.moot
            if r.action != "step_withdrawn" or gate.sure and (self.of_run is None and self.left != gate.from_state or not resolved):
                self.report.find("wrong-approver", "the application actor withdraws steps of a left state only", r)
            if step.state == "Pending" or not gate.sure:
                step.end("Withdrawn", r, gate.submitter, p.get("reason"), own=True)
            elif step.ended is None or step.ended.at != r.at:
                self.report.find("binding-invalid", "a decision on a step that was not Pending", r)
            return
        self.check_decider(r, p, gate, step, state)
        if step.state != "Pending" and gate.sure:
            self.report.find("binding-invalid", "a decision on a step that was not Pending", r)
            return
        trailing = gate.state != "Pending"
        if p["trailing"] != trailing and gate.sure:
            self.report.find("binding-invalid", f"trailing is {p['trailing']}, and the chain was {gate.state}", r)
        step.end(state, r, r.actor, p.get("reason"), own=True)
        self.undecided = (gate, step, state, r)
        if not trailing and gate.settled() != "Pending":
            gate.chain_state, self.unresolved = gate.settled(), gate
            for other in gate.pending():
                if gate.chain_state == "Withdrawn":
                    other.end("Withdrawn", r, gate.submitter, UNREACHABLE)
                else:
                    other.recalled_at = r.at

    def delegable(self, gate: Gate) -> bool:
        """Not known without a gate_spec: that is found at the start."""
        return not self.gate_spec or (self.gate_spec.get(gate.payload["guard"]) or {}).get("delegable") is True

    def check_decider(self, r: Record, p: dict[str, Json], gate: Gate, step: Step, state: str) -> None:
        """The named approver, or the substitute whom a delegation lets decide; the submitter withdraws."""
        if state == "Withdrawn" or p.get("on_behalf_of") is None:
            if r.actor != (gate.submitter if state == "Withdrawn" else step.approver) or p.get("on_behalf_of") is not None:
                self.report.find("wrong-approver", f"{r.action} by {r.actor}, which is not for them to decide", r)
            return
        d = self.registry.delegations.get(p["delegation_id"])
        problem = None
        if p["on_behalf_of"] != step.approver:
            problem = f"on behalf of {p['on_behalf_of']}, and the approver is {step.approver}"
        elif not self.delegable(gate):
            problem = f"the gate_spec lets no approver of {gate.payload['guard']!r} name a substitute"
        elif d is None or d.since > r.registry_seq:
            problem = f"there was no delegation {p['delegation_id']}"
        elif not d.at(r.registry_seq):
            problem = f"the delegation {p['delegation_id']} had been revoked"
        elif not d.value["from_us"] <= r.at < d.value["until_us"]:
            problem = "outside the period of the delegation"
        elif (d.value["delegator_ref"], d.value["delegate_ref"], d.value["scope"]) != (step.approver, r.actor, gate.payload["scope"]):
            problem = "the delegation is of other people, or for another scope"
        elif r.actor == gate.submitter:
            problem = "the initiator is nobody's substitute"
        elif any(s.approver == r.actor or s.own and s.state in ("Approved", "Rejected") and s.ended_by == r.actor for s in gate.steps.values()):
            problem = f"{r.actor} has a voice in this gate already"
        elif step.recalled_at is not None and gate.sure:
            problem = "nothing waited for the approver any more"
        if problem is not None:
            self.report.find("wrong-approver", f"{r.action} by {r.actor} as a substitute: {problem}", r)
        step.taken = (p["assignment_id"], r)

    def follow_chain(self, r: Record, p: dict[str, Json], gate: Gate, w: Withdrawn) -> None:
        """A step that its chain's end withdrew in this command: by the same actor, in the same words."""
        if w.recorded or w.gate is not gate or (w.by, w.reason) != (r.actor, p.get("reason")) or p["trailing"] is not True:
            self.report.find("binding-invalid", "the step is not withdrawn as its chain's end says, or a second time", r)
        if p["decided_by"] != gate.submitter:
            self.report.find("wrong-approver", "decided_by is not the initiator", r)
        w.recorded = True

    def on_gate_decided(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["1"] += 1
        self.check_request(r, p)
        if p["decision"] not in ("approve", "reject", "withdraw"):
            self.report.find("bundle-form", f"decision {p['decision']!r}", r)
            return
        gate = self.gate_of(r, p, "binding-invalid")
        if gate is None:
            return
        state = ENDED[p["decision"]]
        if gate.rule is not None:
            due, self.undecided = self.undecided, None
            told = due[3].payload or {} if due is not None else {}
            other = any(told.get(k) != p.get(k) for k in ("on_behalf_of", "delegation_id", "assignment_id"))
            if due is None or other or (due[0], due[2], due[3].actor) != (gate, state, r.actor) or p.get("step_id") != (due[1].id if due[1] else None):
                if gate.sure:
                    self.report.find("record-missing", "gate_decided without the chain's own record of the decision", r)
            return
        step = gate.steps[gate.id]
        self.check_decider(r, p, gate, step, state)
        if step.state != "Pending":
            if gate.sure:
                self.report.find("binding-invalid", "a decision on a step that was not Pending", r)
            return
        step.end(state, r, r.actor, p.get("reason"), own=True)

    def on_chain_resolved(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["1"] += 1
        gate = self.gate_of(r, p, "binding-invalid")
        if gate is None:
            return
        if gate is self.unresolved and p["outcome"] == gate.chain_state:
            self.unresolved = None
            rest = sorted(s.id for s in gate.steps.values() if s.state == "Pending" or gate.chain_state == "Withdrawn" and s.ended is not None
                          and s.ended.at == r.at and not s.own)
        elif (self.of_run is not None or self.moot.get(gate.id) == "pending-withdrawn") and p["outcome"] == "Withdrawn" and gate.state == "Pending":
            rest = sorted(s.id for s in gate.pending())
            self.moot[gate.id] = "pending-withdrawn"        # its moot_gate_recalled is due
            gate.chain_state = "Withdrawn"
            for step in gate.pending():
                step.end("Withdrawn", r, gate.submitter, MOOT)
        else:
            if gate.sure:
                self.report.find("gate-not-approved", f"chain_resolved says {p['outcome']}; the steps say {gate.settled()}", r)
            else:
                gate.chain_state = p["outcome"]     # purged votes may have made it so; a firing looks for them
            return
        if gate.sure and sorted(p["recalled_step_ids"]) != rest:
            self.report.find("record-missing", "recalled_step_ids are not the steps that were left", r)
        if p["outcome"] == "Withdrawn":
            self.withdrawn.update({i: Withdrawn(gate, r.actor, gate.steps[i].reason) for i in rest})

    def on_chain_withdrawn(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["1"] += 1
        gate = self.gate_of(r, p, "binding-invalid")
        if gate is None:
            return
        if r.actor != gate.submitter:
            self.report.find("wrong-approver", f"withdrawn by {r.actor}, who is not the submitter", r)
        if gate.state != "Pending" and gate.sure:
            self.report.find("binding-invalid", "withdrawn when it was not Pending", r)
            return
        if gate.sure and sorted(p["recalled_step_ids"]) != sorted(s.id for s in gate.pending()):
            self.report.find("record-missing", "recalled_step_ids are not the steps that were left", r)
        gate.chain_state, self.undecided = "Withdrawn", (gate, None, "Withdrawn", r)
        self.withdrawn.update({s.id: Withdrawn(gate, r.actor, p["reason"]) for s in gate.pending()})
        for step in gate.pending():
            step.end("Withdrawn", r, r.actor, p["reason"], own=True)

    # ---- firing
    def on_transition_fired(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["1"] += 1
        self.report.checked["2"] += 1
        if self.state is None:      # a firing was purged: take up the thread where this one says it was
            self.state = p["from_state"]
        self.firings.append(r)
        t = self.transition(p["action"])
        if p["from_state"] != self.state or t is None or t["to"] != p["new_state"] or self.state in self.declaration.get("terminal_states", []):
            self.report.find("undeclared-transition", f"{p['action']!r} from {p['from_state']!r} to {p['new_state']!r} is not declared from {self.state!r}", r)
        caused = origins.effects(p)
        if caused is None:
            self.report.find("bundle-form", "transition_fired: an effect is none", r)
        elif t is not None and caused != origins.effects(t):
            self.report.find("undeclared-transition", f"the effects of {p['action']!r} are not those that its transition declares", r)
        self.fired += 1
        if p["sequence_number"] != self.fired:
            self.report.find("undeclared-transition", f"sequence_number {p['sequence_number']} where {self.fired} is due", r)
        guard = t.get("guard") if t is not None else None
        if t is not None and p["guarded"] != (guard is not None):
            self.report.find("unguarded-firing", f"guarded is {p['guarded']}, and the declaration says otherwise", r)
        used = p.get("chain_id") or p.get("step_id")
        if used is not None:
            if used in self.fired_with and self.fired_with[used] is not r:
                self.report.find("approval-reused", f"gate {used} was spent by an earlier firing", r)
            self.fired_with.setdefault(used, r)
        if guard is not None or p["guarded"]:
            self.spend(r, p, used)
        if p["new_state"] != p["from_state"]:
            self.leave(p["from_state"])
        self.state = p["new_state"]

    def spend(self, r: Record, p: dict[str, Json], used: Optional[str]) -> None:
        gate = self.gates.get(used or "")
        if gate is None:
            if not (self.unseen_gates and used is not None):
                self.report.find("gate-not-approved", "a guarded transition fired without a gate", r)
            return
        if (gate.rule is not None) != (p.get("chain_id") is not None) or self.bound.get((p["from_state"], p["action"])) is not gate:
            self.report.find("gate-not-approved", "the gate is not the one bound to this action in this state", r)
        elif gate.sure and (gate.state != "Approved" or gate.fate != "unspent" or gate.rule is not None and gate.settled() != "Approved"):
            self.report.find("gate-not-approved", f"the gate was {gate.state}, {gate.fate}", r)
        elif not gate.sure and (gate.fate != "unspent" or not self.may_be_approved(gate)):
            self.report.find("gate-not-approved", f"the gate was {gate.fate}, or no purged decision of its approvers can have approved it", r)
        gate.fate = "consumed"

    def may_be_approved(self, gate: Gate) -> bool:
        """bundle.md 3: a purged decision counts by its header, for one thing."""
        def claim(action: str, actor: Optional[str], fits: Callable[[Record], bool] = lambda r: True) -> bool:
            for r in self.lost:
                if r.action == action and r.sequence > gate.opened.sequence and actor in (None, r.actor) and fits(r):
                    self.lost.remove(r)
                    return True
            return False

        def substitute_of(step: Step) -> Callable[[Record], bool]:
            return lambda r: self.delegable(gate) and self.registry.substituted(r, step.approver, gate.payload["scope"])

        vote = "gate_decided" if gate.rule is None else "step_approved"
        for step in gate.pending():
            if gate.state == "Approved" and (gate.rule is None or gate.settled() == "Approved"):
                break
            if (gate.rule is None or gate.settled() != "Approved") and (claim(vote, step.approver) or claim(vote, None, substitute_of(step))):
                step.state = "Approved"
        if gate.rule is None:
            return gate.state == "Approved"
        if gate.settled() == "Approved" and (gate.chain_state == "Approved" or claim("chain_resolved", None)):
            gate.chain_state = "Approved"
        return gate.chain_state == "Approved" and gate.settled() == "Approved"

    def leave(self, state: str) -> None:
        self.left = state
        for gate in self.gates.values():
            if gate.from_state == state and gate.fate == "unspent" and gate.sure and gate.state in ("Pending", "Approved"):
                self.moot[gate.id] = "pending-withdrawn" if gate.state == "Pending" else "approved-unconsumed"

    def on_moot_gate_recalled(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["4"] += 1
        gate = self.gate_of(r, p, "moot-invalid", "moot_action")
        if gate is None:
            return
        kind = self.moot.pop(gate.id, None)
        if self.of_run is not None and kind is None and gate.fate == "unspent" and gate.current is not False:
            kind = {"Pending": "pending-withdrawn" if gate.rule is None else None, "Approved": "approved-unconsumed"}.get(gate.state)
        if not gate.sure and (self.left_unknown or self.left == gate.from_state and gate.fate == "unspent"):
            kind = p["moot_kind"]
        if kind is None or kind != p["moot_kind"] or p["from_state"] != gate.from_state:
            self.report.find("moot-invalid", f"{p['moot_kind']} of a gate that was {gate.state}, {gate.fate}, in {gate.from_state!r}; this command left {self.left!r}", r)
            return
        gate.fate = "mooted"
        if kind == "pending-withdrawn":
            if gate.rule is not None:
                gate.chain_state = "Withdrawn"
            for step in gate.pending():
                step.end("Withdrawn", r, gate.submitter, MOOT)


def check_instances(b: Bundle, registry: Registry, report: Report) -> dict[str, Replay]:
    fired_with: dict[str, Record] = {}
    replays = {}
    needed: set[str] = set()
    for instance in sorted(set(b.chains) - {REGISTRY, GOVERNANCE}):
        replays[instance] = Replay(b, registry, instance, fired_with, report)
        replays[instance].run()
        first, row = b.chains[instance][0], b.state.get(instance, {})
        for source in (first.payload if first.action in ("workflow_started", "run_started") else None) or {}, row, row.get("run") or {}:
            published = registry.definitions.get(source.get("definition") or "", [])
            needed |= {d.payload["gate_spec_digest"] for d in published if d.payload is not None}
            needed |= {source.get("declaration_digest", ""), source.get("gate_spec_digest", ""), source.get("document_digest", ""), source.get("machine_digest", "")}
    for instance in sorted(set(b.state) - set(b.chains)):
        report.find("record-missing", "a line in state.jsonl without records", instance_id=instance)
    for digest in sorted(set(b.documents) - needed):
        report.find("bundle-form", f"document {digest} belongs to no instance in scope")
    origins.check_origins(replays, report)
    check_grant_rows(b, registry, report)
    return replays
