"""Questions 6 to 8 (bundle.md 4)."""
from __future__ import annotations

import json

from .files import Bundle
from .registry import Registry
from .replay import Replay
from .texts import Json, unbase64


def ask(b: Bundle, registry: Registry, replays: dict[str, Replay]) -> list[dict[str, Json]]:
    specs, machines, people = [], [], []
    for instance, replay in replays.items():
        start = replay.start
        definition = start.payload.get("definition") if start is not None and start.payload is not None else None
        origin = {g: "declared by the initiator" if definition is None else "named by the initiator" if g in replay.replaced else "as published" for g in replay.gate_spec}
        specs.append({"instance_id": instance, "guards": replay.gate_spec, "by": origin})
        machines.append({"instance_id": instance, "definition": definition, **replay.declaration})
        for gate in replay.gates.values():
            for step in gate.steps.values():
                meaning = None
                if step.own and step.ended is not None and step.ended.attestation is not None and "statement" in step.ended.attestation:
                    try:
                        meaning = json.loads(unbase64(step.ended.attestation["statement"])).get("meaning")
                    except (ValueError, AttributeError):
                        pass
                at = step.ended.registry_seq if step.ended is not None else gate.opened.registry_seq
                people.append({"instance_id": instance, "action": gate.action, "approver_ref": step.approver, "registered_seq": registry.actors.get(step.approver),
                               "keys": sorted(k for (actor, k), span in registry.keys.items() if actor == step.approver and span.at(at)),
                               "grants": sorted(g.value[1] for g in registry.grants.values() if g.value[0] == step.approver and g.at(at)),
                               "state": step.state, "reason": (step.ended.payload or {}).get("reason") if step.ended is not None else None, "meaning": meaning})
    return [{"check": 6, "question": "Is the gate_spec what the regulation asks for?", "facts": specs},
            {"check": 7, "question": "Is the declared machine the required process?", "facts": machines},
            {"check": 8, "question": "Was the named approver the right authority at that time?", "facts": people}]
