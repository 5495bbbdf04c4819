"""A record, and what is found (bundle.md 3)."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional

from .texts import Json

TITLES = {"integrity": "Records, chains, log and checkpoint are whole", "identity": "Every record is by whom it names",
          "1": "Approval-gated: no guarded transition without its approval", "2": "Declared path: only declared transitions, in order",
          "3": "Completeness: records and stores say the same", "4": "Coverage: every open approval is with its approver",
          "5": "Permission: every actor held the scope needed", "retention": "Nothing was destroyed before its time"}
CODES = {"integrity": ["bundle-form", "duplicate-key", "number-out-of-range", "header-invalid", "payload-digest-mismatch",
                       "attestation-digest-mismatch", "sequence-gap", "link-broken", "time-order", "checkpoint-invalid",
                       "checkpoint-key-unknown", "rotation-invalid", "witness-quorum", "inclusion-invalid", "log-order", "registry-order", "tail-missing"],
         "identity": ["attestation-invalid", "attestation-actor-unknown-in-registry", "attestation-proof-invalid", "key-revoked",
                      "statement-mismatch", "nonce-reused", "passkey-counter", "assurance-too-low"],
         "1": ["gate-not-approved", "wrong-approver", "approval-reused", "unguarded-firing"],
         "2": ["document-mismatch", "undeclared-transition", "replay-mismatch", "compensation-order", "runbook-violation", "governance-invalid"],
         "3": ["record-missing", "row-missing", "binding-invalid", "output-missing", "input-mismatch"],
         "4": ["assignment-coverage", "moot-invalid"],
         "5": ["permission-not-held"],
         "retention": ["destruction-invalid"]}
CLAIM_OF = {code: claim for claim, codes in CODES.items() for code in codes}


@dataclass
class Record:
    """A line of records.jsonl. `payload` and `attestation` are None where the record was purged or cannot be read."""
    log_index: int
    header_text: str
    hash: bytes
    head: dict[str, Json]
    proof: list[str]
    payload_text: Optional[str]
    attestation_text: Optional[str]
    salt: Optional[str]
    payload: Optional[dict[str, Json]] = None
    attestation: Optional[dict[str, Json]] = None

    purged = property(lambda self: self.payload_text is None)
    id = property(lambda self: self.head["event_id"])
    instance = property(lambda self: self.head["instance_id"])
    sequence = property(lambda self: self.head["sequence"])
    action = property(lambda self: self.head["action_ref"])
    actor = property(lambda self: self.head["actor_ref"])
    at = property(lambda self: self.head["recorded_at_us"])
    registry_seq = property(lambda self: self.head["registry_seq"])


class Report:
    def __init__(self) -> None:
        self.findings: list[dict[str, Json]] = []
        self.notes: list[dict[str, Json]] = []
        self.checked = {claim: 0 for claim in TITLES}
        self.unverifiable: set[str] = set()
        self.questions: list[dict[str, Json]] = []

    def find(self, code: str, detail: str, record: Optional[Record] = None, **where: Json) -> None:
        finding: dict[str, Json] = {"code": code}
        if record is not None:
            finding.update(event_id=record.id, log_index=record.log_index, instance_id=record.instance)
        finding.update({k: v for k, v in where.items() if v is not None}, detail=detail)
        if finding not in self.findings:
            self.findings.append(finding)

    def note(self, code: str, detail: str, record: Optional[Record] = None, claims: Iterable[str] = ()) -> None:
        note = {"code": code, **({"event_id": record.id} if record is not None else {}), "detail": detail}
        if note not in self.notes:
            self.notes.append(note)
        self.unverifiable.update(claims)
