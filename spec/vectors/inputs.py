"""A run of the third edition (record.md section 4): every claim says what it handed out (run.md section 6, *Inputs*)."""
from __future__ import annotations

from bundle import Bundle
from honest import World
from runs import Run, crew, publish

HANDED = {"kind": "workflow", "name": "handed", "order": "linear", "failurePolicy": "compensate",
          "steps": [{"name": "look", "run": "human", "pic": "ines", "tasks": [{"name": "read"}]}, {"name": "book", "input": {"room": "${input.room}"}}, {"name": "print", "input": "${steps.look.output}"},
                    {"name": "ship"}, {"name": "bill", "input": None}],
          "compensation": [{"step": "book", "action": "cancel-room", "agent": "undo"}, {"step": "ship", "action": "call-back", "agent": "undo"}]}


def handed() -> tuple[World, Bundle]:
    """A person's claim and a task of theirs, one with a value of its own, one by digest, the run's own input twice, nothing at all, and what undoes is handed what was done."""
    w = World("run-inputs", rules=3)
    a = crew(w)
    ines, worker = a["ines"], a["worker"]
    w.grant(w.admin, ines, "tasks:work")
    publish(w, w.admin, HANDED)
    r = Run(w, ines, "handed@1", "trip/11", {"room": 12, "rate": 1.5}, [(0, "T1")], charges=[{"step_seqs": "0", "pic": "ines"}])
    r.act(ines, 0, "step_claimed", "claim_step", "claim", [(0, "T2*"), (5, "T1")])
    r.claim(worker, 5)
    r.complete(worker, 5, "read")
    pages = {"pages": ["x" * 900] * 20}
    r.act(ines, 0, "step_completed", "complete_step", "complete", [(0, "T8*"), (1, "T1")], body={"output": pages}, outputs={0: pages})
    r.claim(worker, 1, given={"room": 12})
    r.complete(worker, 1, {"booking": "b-7"}, [(2, "T1")])
    r.claim(worker, 2, given=pages)
    r.complete(worker, 2, None, [(3, "T1")])
    r.claim(worker, 3)
    r.fail(worker, 3, "the van is late", True, "transient")
    r.claim(worker, 3, "T10")
    r.complete(worker, 3, "sent", [(4, "T1")])
    r.claim(worker, 4, given=None)
    r.fail(worker, 4, "no money", False, "agent_error", [(6, "T1")], "R6", compensations=[[6, 3], [7, 1]], last_error="no money")
    r.claim(worker, 6, given={"action": "call-back", "input": {"room": 12, "rate": 1.5}, "output": "sent"})
    r.complete(worker, 6, None, [(7, "T1")])
    r.claim(worker, 7, given={"action": "cancel-room", "input": {"room": 12}, "output": {"booking": "b-7"}})
    r.complete(worker, 7, None, run="R10", outcome="rolled_back")
    return w, w.export(a["audit"], r, 66)     # type: ignore[arg-type]
