"""Proposals: what was merged is what was approved, by whom the definition names (proposal.md 4)."""
from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from .found import Record, Report
from .texts import Fault, Json, as_entry, check_form, member_text, parse_json, preset, same, sha256

if TYPE_CHECKING:
    from .registry import Registry
    from .replay import Gate, Replay

DEFINITION = "countersign:proposal@1"
# SHA-256 of the declaration that every proposal runs under (proposal.md 2)
DECLARATION = "fdea317583d7939f3ae337ee0fa773c754e0d6c6c88cfa8c299d90e2b918083f"
PUBLISHED = ("machine", "process", "workflow")
CONTENT = "proposal_kind:text target:text base_version:int digest?:hex proposer_class:text evidence_ref?:text affected:texts proposed_action?:object reason:text"
CLASSES = {"human": False, "service": False, "kg_feedback": True, "ai_agent": True}     # -> whether it names its evidence
OWN = ("edit", "submit", "withdraw")        # of the proposer alone


def is_proposal(start: Optional[Record]) -> bool:
    return start is not None and start.payload is not None and start.payload.get("definition") == DEFINITION


def gate_of(p: dict[str, Json]) -> Optional[str]:
    return p.get("chain_id") or p.get("step_id")


class Proposal:
    """One proposal, next to its replay as a process."""

    def __init__(self, replay: "Replay", registry: "Registry", report: Report):
        self.replay, self.registry, self.report = replay, registry, report
        self.content: Optional[dict[str, Json]] = None      # what is proposed now; None: not known
        self.asked: dict[str, Optional[dict[str, Json]]] = {}       # what each gate asks
        self.approved: Optional[dict[str, Json]] = None
        self.approval: Optional[str] = None
        self.merged: set[str] = set()

    def begin(self, r: Record) -> None:
        assert r.payload is not None
        if r.payload["declaration_digest"] != DECLARATION:
            self.report.find("document-mismatch", "a proposal under another declaration than that of proposals", r)
        self.propose(r)
        if self.content is not None and r.payload["subject_ref"] != f"{self.content['proposal_kind']}/{self.content['target']}":
            self.report.find("document-mismatch", "the subject is not the kind and the target", r)

    def propose(self, r: Record) -> None:
        content = (r.payload or {}).get("proposal")
        try:
            check_form(content, CONTENT, "bundle-form", "proposal")
        except Fault as f:
            self.report.find(f.code, f.detail, r)
            self.content = None
            return
        before, self.content = self.content, content
        if before is not None and any(before[k] != content[k] for k in ("proposal_kind", "target", "proposer_class")):
            self.report.find("document-mismatch", "an edit changes kind, target or class", r)
        service = r.actor in self.registry.services
        evidence = CLASSES.get(content["proposer_class"])
        if evidence is None or evidence and content.get("evidence_ref") is None or not evidence and (content["proposer_class"] == "service") != service:
            self.report.find("wrong-approver", f"{r.actor} proposed as {content['proposer_class']!r}, which it is not, or without evidence", r)
        self.check_approvers(r, content)

    def check_approvers(self, r: Record, content: dict[str, Json]) -> None:
        """Whom the newest version names for its next one, without the proposer unless it allows that."""
        self.report.checked["1"] += 1
        entry = self.replay.gate_spec.get("publish")
        named = self.registry.publisher(content["target"], r.registry_seq) if content["proposal_kind"] in PUBLISHED else None
        if not isinstance(entry, dict):
            return
        own = named is not None and named.get("selfApproval") is True
        approvers = entry.get("approvers") or [entry.get("approver_ref")]
        if r.actor in approvers and not own:
            self.report.find("wrong-approver", f"{r.actor} proposes, and is an approver", r)
        if named is None:
            return
        due = dict(preset(named) or {})
        if not own and "approvers" in due:
            due["approvers"] = [a for a in due["approvers"] if a != r.actor]
        if not same(due, as_entry(entry)):
            self.report.find("wrong-approver", "the approvers are not those that the newest version names under 'publish'", r)

    def take(self, r: Record) -> None:
        p = r.payload
        if r.action == "gate_opened":
            self.ask(r)
        if r.action != "transition_fired":
            return
        if p is None:
            self.content = None         # it may have been an edit
            return
        proposer = self.replay.start.actor if self.replay.start is not None else None
        if p["action"] in OWN and r.actor != proposer:
            self.report.find("wrong-approver", f"{p['action']} by {r.actor}, and {proposer} proposed it", r)
        if p["action"] in ("approve", "reject") and r.actor != self.registry.application_actor(r):
            self.report.find("wrong-approver", f"{p['action']} by {r.actor}; the engine follows the gate", r)
        if p["action"] == "reject":
            gate = self.replay.bound.get(("review", "approve"))
            if gate is None or gate.sure and gate.state != "Rejected":
                self.report.find("gate-not-approved", "rejected, and its gate was not", r)
        if p["action"] == "edit":
            self.approved = self.approval = None
            self.propose(r)
        if p["action"] == "approve":
            self.approval = gate_of(p)
            self.approved = self.asked.get(self.approval or "")
        if p["action"] == "merge":
            self.merge(r, p)

    def ask(self, r: Record) -> None:
        if r.payload is None:
            return
        text = member_text(r.payload_text or "", "request")
        asked = r.payload.get("request") if text is not None and sha256(text.encode()).hex() == r.payload.get("request_digest") else None
        self.asked[gate_of(r.payload) or ""] = asked
        if self.content is not None and not same(asked, self.content):
            self.report.find("binding-invalid", "the approvers are asked something else than what is proposed", r)

    def merge(self, r: Record, p: dict[str, Json]) -> None:
        self.report.checked["1"] += 1
        merged, content = p.get("merged"), self.approved
        if self.approval is None and not self.replay.purged:
            self.report.find("gate-not-approved", "merged without an approval", r)
        if r.actor in self.registry.services:
            self.report.find("wrong-approver", f"{r.actor} merged, and is no person", r)
        if not isinstance(merged, dict) or content is None:
            if not self.replay.purged:
                self.report.find("binding-invalid", "the merge does not say what it merged", r)
            return
        if self.content is not None and not same(content, self.content):
            self.report.find("binding-invalid", "what was approved is not what is proposed", r)
        if r.actor == (self.replay.start.actor if self.replay.start else None) and content["proposer_class"] != "human":
            self.report.find("wrong-approver", f"{r.actor} merged what it proposed as {content['proposer_class']}", r)
        if content["proposal_kind"] not in PUBLISHED:
            if not isinstance(merged.get("evidence_ref"), str) or not merged["evidence_ref"]:
                self.report.find("binding-invalid", "merged without evidence that it was applied", r)
            return
        due = {"name": content["target"], "version": content["base_version"] + 1, "digest": content.get("digest")}
        if not same(merged, due):
            self.report.find("binding-invalid", f"merged {merged}; approved was {due}", r)
        name = f"{merged.get('name')}@{merged.get('version')}"
        published = self.registry.definitions.get(name, [])
        self.merged.add(name)
        if not published:
            self.report.find("record-missing", f"merged as {name}, which no record publishes", r)
        for d in published:
            said = (d.payload or {}).get("proposal") or {}
            if said.get("instance_id") != r.instance or gate_of(said) != self.approval:
                self.report.find("gate-not-approved", f"{name} does not name this proposal and its approval", d)
            if (d.payload or {}).get("digest") != content.get("digest"):
                self.report.find("binding-invalid", f"{name} has other bytes than were approved", d)
            if (d.actor, d.at, d.sequence) != (r.actor, r.at, r.registry_seq):
                self.report.find("record-missing", f"{name} was not published with the merge", d)

    def finish(self) -> None:
        """Versions that name this proposal, and that it did not merge."""
        if any(r.purged and r.action == "transition_fired" for r in self.replay.chain):
            return
        for name, records in self.registry.definitions.items():
            for d in records:
                if ((d.payload or {}).get("proposal") or {}).get("instance_id") == self.replay.instance and name not in self.merged:
                    self.report.find("gate-not-approved", f"{name} names a proposal that did not merge it", d)


# ---- what a signed request says (record.md 5.2)
ACTIONS = ("propose", "edit_proposal", "submit_proposal", "review_proposal", "comment_proposal", "withdraw_proposal", "merge_proposal")
_PATHS = {"edit": "", "comment": "/comments", "submit": "/submit", "review": "/review", "withdraw": "/withdraw", "merge": "/merge"}
_SAID = ("base_version", "evidence_ref", "affected", "proposed_action", "reason")


def route(r: Record) -> Optional[tuple[str, str, str]]:
    """The action, the path and the members of the body that lead to a record of a proposal."""
    p = r.payload or {}
    if r.action == "workflow_started":
        return "propose", "/v1/proposals", ""
    if r.action in ("gate_opened", "chain_initiated"):
        return "review_proposal", "/v1/proposals/{instance_id}/review", "reason" if r.action == "gate_opened" else ""
    if r.action == "transition_fired" and p["action"] in _PATHS:
        members = "" if p["action"] in ("edit", "comment") else "reason"
        return f"{p['action']}_proposal", "/v1/proposals/{instance_id}" + _PATHS[p["action"]], members
    return None


def compare(r: Record, said: dict[str, Json]) -> list[str]:
    """The body against what was recorded."""
    p, found = r.payload or {}, []
    content = p.get("proposal")
    if isinstance(content, dict) and r.action != "definition_published":
        if p.get("reason") is not None:
            found.append("the reason stands in what is proposed, and in no other place")
        members = (*_SAID, "proposal_kind", "target") if r.action == "workflow_started" else _SAID
        found += [f"{m} of the body is not what was recorded" for m in members if not same(said.get(m), content.get(m))]
        document = said.get("document")
        digest = sha256(document.encode()).hex() if isinstance(document, str) else None
        if digest != content.get("digest"):
            found.append("the document of the body is not the one recorded")
        if said.get("proposer_class") not in (None, content.get("proposer_class")):
            found.append("proposer_class of the body is not what was recorded")
    if r.action == "transition_fired" and p["action"] == "comment" and said.get("text") != p.get("reason"):
        found.append("the comment of the body is not the one recorded")
    merged = p.get("merged")
    if isinstance(merged, dict) and said.get("evidence_ref") != merged.get("evidence_ref"):
        found.append("evidence_ref of the body is not what was recorded")
    return found
