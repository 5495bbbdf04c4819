#!/usr/bin/env python3
"""Makes evidence bundles from nothing but the three pages of the specification (record.md, checkpoint.md, bundle.md).

    python3 spec/vectors/make.py OUTDIR

writes one NAME.zip, NAME.policy.txt and NAME.keys.json per scenario. Everything is deterministic: keys, ids, salts and
times come from hashes of fixed texts. The keys are test keys; their seeds stand in keys.json so that tamper.py can play an
attacker who has them.

What happens in them is made by honest.py and written by bundle.py; here are the scenarios.
"""
from __future__ import annotations

import functools
import json
import pathlib
import random
import sys
from typing import Any, Callable

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import passkeys  # noqa: E402
from bundle import GOVERNANCE, Bundle  # noqa: E402
from honest import DAY, Actor, Process, World  # noqa: E402

SIMPLE = ({"states": ["drafting", "qp-review", "released", "rejected"],
           "transitions": [{"from": "drafting", "action": "submit", "to": "qp-review"},
                           {"from": "qp-review", "action": "release", "to": "released", "guard": "qp-sign-off"},
                           {"from": "qp-review", "action": "reject-batch", "to": "rejected", "guard": "qp-rejection"}],
           "initial_state": "drafting", "terminal_states": ["released", "rejected"]},
          {"qp-sign-off": {"approver_ref": "qp_santos", "scope": "pharma:batch-release:qp-sign-off"},
           "qp-rejection": {"approver_ref": "qp_santos", "scope": "pharma:batch-release:qp-rejection"}})
FULL = ({"states": ["drafting", "qc-review", "qp-review", "released", "rejected"],
         "transitions": [{"from": "drafting", "action": "submit", "to": "qc-review"},
                         {"from": "qc-review", "action": "pass", "to": "qp-review", "guard": "qc-board"},
                         {"from": "qc-review", "action": "return", "to": "drafting"},
                         {"from": "qc-review", "action": "note", "to": "qc-review"},
                         {"from": "qp-review", "action": "release", "to": "released", "guard": "qp-sign-off"},
                         {"from": "qp-review", "action": "reject-batch", "to": "rejected", "guard": "qp-rejection"},
                         {"from": "qp-review", "action": "send-back", "to": "qc-review"}],
         "initial_state": "drafting", "terminal_states": ["released", "rejected"]},
        {**SIMPLE[1], "qc-board": {"approvers": ["qc_ann", "qc_ben", "qc_cid"], "quorum": {"rule": "m-of-n", "m": 2}, "scope": "pharma:batch-release:qc"}})


def staff(w: World, board: bool = True, signed: bool = True) -> dict[str, Actor]:
    """The administrator takes a key and signs from then on; ines starts and fires with her key, the lab fires with a bearer token, the qualified person and the board decide with keys."""
    if signed:
        w.admin = w.add_key(w.admin, w.admin, "admin/1")
    a = {"ines": w.register(w.admin, "ines", name="Inês Sá"), "qp": w.register(w.admin, "qp_santos", name="Dr. Santos"), "audit": w.register(w.admin, "auditor")}
    w.noise()
    w.grant(w.admin, a["ines"], "workflows:start", "workflows:open-gate", "workflows:fire")
    w.grant(w.admin, a["audit"], "audit:read")
    if board:
        a["lab"] = w.register(w.admin, "lab", key=False, token=True, kind="software")
        w.grant(w.admin, a["lab"], "workflows:fire:batch-release")
        for ref in ("qc_ann", "qc_ben", "qc_cid"):
            a[ref] = w.register(w.admin, ref)
    w.publish(w.admin, "batch-release", 1, *(FULL if board else SIMPLE))
    return a


def scenario_release() -> tuple[World, Bundle]:
    """A named person approves, once; a tree of 37."""
    w = World("release")
    a = staff(w, board=False, signed=False)
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0001", "routine batch")
    w.noise(2)
    p.fire(a["ines"], "submit")
    w.noise()
    p.open(a["ines"], "release")
    w.noise(3)
    p.decide(a["qp"], "release", "approve", "all results within specification")
    p.fire(a["ines"], "release", "released to market")
    w.noise(2)
    return w, w.export(a["audit"], p, 37)


def scenario_quorum() -> tuple[World, Bundle]:
    """Two of three, a trailing third, then the named person; a tree of 64."""
    w = World("quorum")
    a = staff(w)
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0002")
    p.fire(a["lab"], "submit")
    w.noise()
    p.open(a["ines"], "pass", "documents complete")
    p.decide(a["qc_ann"], "pass", "approve")
    w.noise(2)
    p.decide(a["qc_ben"], "pass", "approve", "retested")
    p.decide(a["qc_cid"], "pass", "reject", "for the minutes")
    p.fire(a["lab"], "pass")
    p.open(a["ines"], "release")
    p.open(a["ines"], "reject-batch")
    p.decide(a["qp"], "release", "approve")
    w.noise()
    p.fire(a["ines"], "release")
    return w, w.export(a["audit"], p, 64)


def scenario_loop() -> tuple[World, Bundle]:
    """Back and forth: gates re-opened after consumption, rejection, withdrawal and mootness, single and quorum; a tree of 96."""
    w = World("loop")
    a = staff(w)
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0003", gate_spec={"qp-rejection": {"approver_ref": "qc_ann", "scope": "pharma:deputy"}})
    p.fire(a["lab"], "submit")
    p.open(a["ines"], "pass")
    p.decide(a["qc_ann"], "pass", "approve")
    p.fire(a["lab"], "return", "wrong form")            # a pending quorum gate becomes moot
    p.fire(a["lab"], "submit")
    p.open(a["ines"], "pass")
    p.decide(a["ines"], "pass", "withdraw", "one more sample", whole=True)
    p.open(a["ines"], "pass")
    p.decide(a["qc_ann"], "pass", "reject", "not yet")
    p.decide(a["qc_ben"], "pass", "reject", "not yet")
    p.open(a["ines"], "pass")
    p.decide(a["ines"], "pass", "withdraw", "cid is away", approver="qc_cid")
    p.fire(a["lab"], "note")
    w.second_node("node 2")
    w.noise(3)
    p.decide(a["qc_ben"], "pass", "approve")
    p.decide(a["qc_ann"], "pass", "approve")
    p.fire(a["lab"], "pass")                            # what is left of the rejected chain is withdrawn
    p.open(a["ines"], "release")
    p.decide(a["qp"], "release", "approve")
    p.open(a["ines"], "reject-batch")
    p.fire(a["lab"], "send-back", "label misprint")     # an approved and a pending gate become moot
    p.open(a["ines"], "pass")
    p.decide(a["qc_cid"], "pass", "approve")
    p.decide(a["qc_ben"], "pass", "approve")
    p.fire(a["lab"], "pass")
    p.open(a["ines"], "release")
    p.decide(a["qp"], "release", "reject", "seal broken")
    p.open(a["ines"], "release")
    p.decide(a["qp"], "release", "approve", "seal replaced")
    p.fire(a["ines"], "release")
    return w, w.export(a["audit"], p, 96)


def scenario_signed() -> tuple[World, Bundle]:
    """Every act of a person is signed, services act by token: the administrator's first key is registered with a token, and nothing else is."""
    w = World("signed", rules=3, signatures="people")
    w.admin = w.add_key(w.admin, w.admin, "admin/1")
    a = {ref: w.register(w.admin, ref) for ref in ("ines", "qp_santos", "auditor")}
    a["lab"] = w.register(w.admin, "lab", key=False, token=True, kind="service")
    for ref, scopes in {"ines": ["workflows:start", "workflows:open-gate", "workflows:fire"], "auditor": ["audit:read"], "lab": ["workflows:fire:batch-release"]}.items():
        w.grant(w.admin, a[ref], *scopes)
    w.issue(w.admin, a["ines"], "lost-and-found")       # tokens go on opening what only reads
    w.publish(w.admin, "batch-release", 1, *SIMPLE)
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0021")
    p.fire(a["lab"], "submit")
    w.noise(2)
    p.open(a["ines"], "release")
    p.decide(a["qp_santos"], "release", "approve", "all results within specification")
    p.fire(a["ines"], "release")
    return w, w.export(a["auditor"], p, 49)


def scenario_replaced() -> tuple[World, Bundle]:
    """The second edition: a start names approvers where the definition lets it; steps that go with their chain have a record each; a tree of 96."""
    w = World("replaced", rules=2)
    a = staff(w)
    spec = {**FULL[1], "qc-board": {**FULL[1]["qc-board"], "replaceable": True}, "qp-sign-off": {"scope": "pharma:batch-release:qp-sign-off", "replaceable": True},
            "spare": {"approver_ref": "qp_santos", "scope": "pharma:spare", "replaceable": True, "selfApproval": True}}
    declaration = {**FULL[0], "transitions": [*FULL[0]["transitions"], {"from": "qp-review", "action": "annotate", "to": "qp-review", "guard": "spare"}]}
    w.publish(w.admin, "batch-release", 2, declaration, spec)
    board = {"approvers": ["qc_ann", "qc_ben", "qc_cid", "qp_santos"], "quorum": {"rule": "m-of-n", "m": 3}, "scope": "pharma:batch-release:qc"}
    p = Process(w, a["ines"], "batch-release@2", "batch/2026-0005", gate_spec={
        "qc-board": board, "qp-sign-off": {"approver_ref": "qc_ann", "scope": "pharma:batch-release:qp-sign-off"}, "spare": {"approver_ref": "ines", "scope": "pharma:spare"}})
    p.fire(a["lab"], "submit")
    p.open(a["ines"], "pass")
    p.decide(a["qc_ann"], "pass", "approve")
    p.fire(a["lab"], "return")                          # a pending chain becomes moot, and three steps go with it
    p.fire(a["lab"], "submit")
    p.open(a["ines"], "pass")
    p.decide(a["qc_ann"], "pass", "approve")
    p.decide(a["ines"], "pass", "withdraw", "one more sample", whole=True)
    p.open(a["ines"], "pass")
    p.decide(a["ines"], "pass", "withdraw", "ann is away", approver="qc_ann")
    p.decide(a["ines"], "pass", "withdraw", "ben is away", approver="qc_ben")     # its quorum cannot be reached any more
    w.noise(2)
    p.open(a["ines"], "pass")
    for ref in ("qc_ann", "qc_ben", "qc_cid"):
        p.decide(a[ref], "pass", "approve")
    p.fire(a["lab"], "pass")
    p.open(a["ines"], "annotate")
    p.decide(a["ines"], "annotate", "approve")
    p.fire(a["ines"], "annotate")
    p.open(a["ines"], "release")
    p.decide(a["qc_ann"], "release", "approve")
    p.fire(a["ines"], "release")
    return w, w.export(a["audit"], p, 96)


def scenario_asked() -> tuple[World, Bundle]:
    """What the approvers are asked is recorded, and each decision is bound to it: of one person, and of a quorum; a tree of 62."""
    w = World("asked", rules=2)
    a = staff(w)
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0012")
    p.fire(a["lab"], "submit")
    p.open(a["ines"], "pass", request={"samples": 3, "report": "sha256:4f1c"})
    p.decide(a["qc_ann"], "pass", "approve")
    p.decide(a["qc_ben"], "pass", "approve")
    p.fire(a["lab"], "pass")
    p.open(a["ines"], "release", "complete", request={"batch": "2026-0012", "yield": 98})
    p.decide(a["qp"], "release", "approve", "within specification")
    p.fire(a["ines"], "release")
    return w, w.export(a["audit"], p, 62)


def scenario_delegated() -> tuple[World, Bundle]:
    """Substitutes whom approvers named decide in their place: of one person, and of a quorum; a tree of 84."""
    w = World("delegated", rules=2)
    a = staff(w)
    spec = {k: {**v, "delegable": True} if k != "qp-rejection" else v for k, v in FULL[1].items()}
    w.publish(w.admin, "batch-release", 2, FULL[0], spec)
    vega = w.register(w.admin, "qp_vega")
    w.issue(w.admin, a["qp"], "qp-desk")
    leave = w.delegate(a["qp"], vega, "pharma:batch-release:qp-sign-off", reason="on leave")
    w.delegate(a["qp"], vega, "pharma:batch-release:qp-rejection")
    board = w.delegate(a["qc_cid"], vega, "pharma:batch-release:qc")
    w.end_delegation(a["qp"], w.delegate(a["qp"], a["qc_ann"], "pharma:batch-release:qp-sign-off"))
    p = Process(w, a["ines"], "batch-release@2", "batch/2026-0040")
    p.fire(a["lab"], "submit")
    p.open(a["ines"], "pass")
    p.decide(vega, "pass", "approve", approver="qc_cid", delegation=board)
    p.decide(a["qc_ann"], "pass", "approve")
    p.fire(a["lab"], "pass")
    w.noise(3)
    p.open(a["ines"], "reject-batch")
    p.decide(a["qp"], "reject-batch", "reject", "nothing speaks against it")
    p.open(a["ines"], "release")
    p.decide(vega, "release", "approve", "within specification", delegation=leave)
    p.fire(a["ines"], "release")
    return w, w.export(a["audit"], p, 84)


def scenario_purge() -> tuple[World, Bundle]:
    """Holds, a purge after retention, keys rotated and revoked, a grant revoked; a tree of 65."""
    w = World("purge", retention_days=30)
    a = staff(w, board=False)
    w.grant(w.admin, a["audit"], "audit:hold", "audit:purge")
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0004")
    p.fire(a["ines"], "submit")
    p.open(a["ines"], "release")
    refused = p.decide(a["qp"], "release", "reject", "patient name on the label")[0]
    hold = w.hold(a["audit"], refused, "inspection announced", "case-7")
    w.noise(2)
    second = w.add_key(a["qp"], a["qp"], "qp_santos/2")
    w.revoke_key(second, a["qp"], "card lost")
    token = w.issue(w.admin, a["ines"], "ines-tablet")
    p.open(token, "release")
    w.revoke_credential(w.admin, token)
    p.decide(second, "release", "approve")
    w.now += 31 * DAY
    w.release_hold(a["audit"], refused, hold, "inspection closed")
    w.purge(a["audit"], refused)
    temporary = w.grant(w.admin, a["qp"], "workflows:fire")[0]
    p.fire(second, "release")
    w.revoke(w.admin, temporary)
    w.noise(4)
    return w, w.export(a["audit"], p, 65)


def scenario_window() -> tuple[World, Bundle]:
    """Three processes in a window, one before it; decisions by bearer token, for nothing here is regulated; a tree of 70."""
    w = World("window", regulated=False)
    a = staff(w, board=False, signed=False)
    qp = w.issue(w.admin, a["qp"], "qp-desk")
    before = Process(w, a["ines"], "batch-release@1", "batch/2026-0010")
    before.fire(a["ines"], "submit")
    after = w.now + 1
    p = [Process(w, a["ines"], "batch-release@1", f"batch/2026-001{i}") for i in (1, 2, 3)]
    p[0].fire(a["ines"], "submit")
    p[1].fire(a["ines"], "submit")
    p[0].open(a["ines"], "release")
    p[1].open(a["ines"], "reject-batch")
    p[0].decide(qp, "release", "approve", "by token")
    p[1].decide(a["qp"], "reject-batch", "approve", "by key")
    w.noise(2)
    p[1].fire(a["ines"], "reject-batch")
    until = w.now
    p[0].fire(a["ines"], "release")
    p[2].fire(a["ines"], "submit")
    p[2].open(a["ines"], "release")
    return w, w.export_window(a["audit"], after, until, 70)


def scenario_retired() -> tuple[World, Bundle]:
    """A definition is retired while its process goes on, and published again; schedules of another one are paused and resumed; a tree of 52."""
    w = World("retired")
    a = staff(w, board=False)
    w.grant(w.admin, a["ines"], "runs:control:nightly")
    w.publish(w.admin, "nightly", 1, *SIMPLE)
    w.mark(a["ines"], "schedule_paused", "nightly", 1, "the press is being cleaned")
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0030")
    w.mark(w.admin, "definition_retired", "batch-release", 1, "replaced by version 2")
    p.fire(a["ines"], "submit")
    w.mark(a["ines"], "schedule_resumed", "nightly", 1, "it is clean")
    w.publish(w.admin, "batch-release", 2, *SIMPLE)
    again = Process(w, a["ines"], "batch-release@2", "batch/2026-0031")
    p.open(a["ines"], "release")
    p.decide(a["qp"], "release", "approve")
    p.fire(a["ines"], "release")
    again.fire(a["ines"], "submit")
    return w, w.export_window(a["audit"], None, None, 52)


def scenario_governed() -> tuple[World, Bundle]:
    """A process and the governance chain: problems that events open and resolve, and one that the engine observed; a worker class that was frozen in between; a tree of 56."""
    w = World("governed", regulated=False)
    a = staff(w, board=False)
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0050")
    failed, corrected, dead = w.new_id(), w.new_id(), w.new_id()
    run = {"category": "failed_runs", "key": failed, "run_id": failed, "detail": "the run failed"}
    step = {"category": "dlq", "key": failed + ".2.0", "run_id": failed, "step": "PAY", "detail": "the step is dead, and its run is held"}
    w.govern(opened=[{"problem_id": w.new_id(), "event_id": dead, "since_us": w.now, **run}, {"problem_id": w.new_id(), "event_id": dead, "since_us": w.now, **step}])
    first, second = (e["problem_id"] for e in json.loads(w.chains[GOVERNANCE][0].payload or "")["problems"])
    p.fire(a["ines"], "submit")
    silent = {"category": "silent_workers", "key": "orders:http", "detail": "no tick for 60 s"}
    w.govern(observed=[{**silent, "state": "breached", "at_us": w.now}],
             opened=[{"problem_id": w.new_id(), "since_us": w.now, "worker_class": "orders:http", **silent}],
             resolved=[{"problem_id": second, "category": "dlq", "event_id": corrected}])
    third = json.loads(w.chains[GOVERNANCE][2].payload or "")["problems"][0]["problem_id"]
    w.noise(2)
    w.grant(w.admin, a["ines"], "governance:act")
    w.mark_workers(a["ines"], "worker_class_frozen", "orders:http", "it is being repaired")
    p.open(a["ines"], "release")
    w.mark_workers(a["ines"], "worker_class_thawed", "orders:http", "it is repaired")
    w.govern(observed=[{**silent, "detail": "it ticks again", "state": "healed", "at_us": w.now}],
             resolved=[{"problem_id": first, "category": "failed_runs", "event_id": corrected}, {"problem_id": third, "category": "silent_workers"}])
    w.govern(opened=[{"problem_id": w.new_id(), "event_id": w.new_id(), "since_us": w.now, **run}])
    return w, w.export_window(a["audit"], None, None, 56)


def scenario_rotated() -> tuple[World, Bundle]:
    """The application key is rotated once and the log key twice; the auditor trusts the first; a tree of 61."""
    w = World("rotated")
    a = staff(w, board=False, signed=False)
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0020")
    w.noise(3)
    w.rotate_log("second")
    p.fire(a["ines"], "submit")
    w.rotate_app("second")
    p.open(a["ines"], "release")
    w.noise(2)
    w.rotate_log("third")
    again = w.add_key(w.admin, a["qp"], "qp_santos/by the administrator")
    p.decide(again, "release", "approve", "with a key that the administrator added")
    p.fire(a["ines"], "release")
    return w, w.export(a["audit"], p, 61)


def scenario_rotated_new() -> tuple[World, Bundle]:
    """The same, for an auditor who trusts the last key."""
    w, b = scenario_rotated()
    w.trusted = w.log_key
    return w, b


def scenario_effects() -> tuple[World, Bundle]:
    import effects
    return effects.effects()


def scenario_proposed() -> tuple[World, Bundle]:
    import proposals
    return proposals.scenario_proposed()


def scenario_replayed() -> tuple[World, Bundle]:
    import dead_letters
    return dead_letters.scenario_replayed()


def scenario_of_run(name: str) -> tuple[World, Bundle]:
    import runs
    return runs.SCENARIOS["run-" + name]()


SCENARIOS: dict[str, Callable[[], tuple[World, Bundle]]] = {
    "release": scenario_release, "quorum": scenario_quorum, "loop": scenario_loop, "replaced": scenario_replaced, "asked": scenario_asked, "signed": scenario_signed, "delegated": scenario_delegated, "purge": scenario_purge, "window": scenario_window, "governed": scenario_governed,
    "retired": scenario_retired, "rotated": scenario_rotated, "rotated-new": scenario_rotated_new,
    "passkey": functools.partial(passkeys.scenario_passkey, *SIMPLE), "passkey-chromium": functools.partial(passkeys.scenario_chromium, *SIMPLE)}
SCENARIOS["proposed"] = scenario_proposed
SCENARIOS["effects"] = scenario_effects
SCENARIOS["replayed"] = scenario_replayed
SCENARIOS |= {f"run-{name}": functools.partial(scenario_of_run, name) for name in ("linear", "dag", "together", "saga", "inputs", "steered", "called-off", "listed", "gate", "cancelled", "window", "people", "steps", "unclaimed", "tasks", "own", "child", "book", "book-caps", "book-failed", "book-dry", "book-child")}


RANDOM = ({"states": ["a", "b", "c", "end"],
           "transitions": [{"from": "a", "action": "x", "to": "b", "guard": "board"}, {"from": "a", "action": "y", "to": "b"},
                           {"from": "a", "action": "z", "to": "a", "guard": "pair"}, {"from": "b", "action": "x", "to": "a", "guard": "person"},
                           {"from": "b", "action": "y", "to": "c", "guard": "pair"}, {"from": "b", "action": "w", "to": "b", "guard": "board"},
                           {"from": "c", "action": "back", "to": "a"}, {"from": "c", "action": "finish", "to": "end", "guard": "person"}],
           "initial_state": "a", "terminal_states": ["end"]},
          {"pair": {"approvers": ["qp_santos", "ines"], "quorum": {"rule": "all-of-n"}, "scope": "s:pair"}, "person": {"approver_ref": "qp_santos", "scope": "s:person"}})
RULES: list[dict[str, Any]] = [{"rule": "m-of-n", "m": 2}, {"rule": "all-of-n"}, {"rule": "one-of-n"}, {"rule": "m-of-n", "m": 3}, {"rule": "m-of-n", "m": 1}]


def scenario_random(seed: int) -> tuple[World, Bundle]:
    """An honest server under a random walk: gates opened, decided, trailed, withdrawn, fired, left; some records held and purged."""
    rnd = random.Random(seed)
    w = World(f"random {seed}".replace(" ", "-"), regulated=rnd.random() < 0.5, retention_days=rnd.choice([None, 1]), rules=rnd.choice([1, 2]))
    a = staff(w, signed=rnd.random() < 0.5)
    w.grant(w.admin, a["audit"], "audit:hold", "audit:purge")
    w.grant(w.admin, a["lab"], "workflows:fire")
    board = {"approvers": ["qc_ann", "qc_ben", "qc_cid"], "quorum": rnd.choice(RULES), "scope": "s:board"}
    w.publish(w.admin, "random", 1, RANDOM[0], {**RANDOM[1], "board": board})
    people = {x.ref: x for x in a.values()}
    processes = [Process(w, a["ines"], "random@1", f"subject/{i}") for i in range(rnd.choice([1, 1, 2]))]
    for i in range(rnd.randint(5, 45)):
        random_move(rnd, rnd.choice(processes), a, people)
        w.noise(rnd.choice([0] * 9 + [3]))
        if rnd.random() < 0.03:
            w.grant(w.admin, a["qp"], f"other:{i}")
    if w.retention_days and rnd.random() < 0.7:
        w.now += 3 * DAY
        for r in [r for p in processes for r in list(w.chains[p.id])]:
            if rnd.random() < 0.2:
                if rnd.random() < 0.3:
                    w.release_hold(a["audit"], r, w.hold(a["audit"], r, "inspection"), "closed")
                w.purge(a["audit"], r)
    size = len(w.log) + 1 + rnd.randint(0, 9)
    return w, w.export(a["audit"], processes[0], size) if len(processes) == 1 else w.export_window(a["audit"], None, None, size)


def random_move(rnd: random.Random, p: Process, a: dict[str, Actor], people: dict[str, Actor]) -> None:
    """One thing that may be done now, if chance finds one."""
    if p.state in p.declaration["terminal_states"]:
        return

    def status(gate_id: str) -> tuple[str, str]:
        gate = p.gates[gate_id]
        return gate["chain_state"] or p.steps[gate_id]["state"], gate["fate"]

    kind = rnd.choices(["open", "decide", "fire"], [35, 45, 20])[0]
    here = [t for t in p.declaration["transitions"] if t["from"] == p.state]
    rnd.shuffle(here)
    if kind == "open":
        for t in here:
            bound = p.bound.get((p.state, t["action"]))
            if "guard" in t and (bound is None or status(bound) not in (("Pending", "unspent"), ("Approved", "unspent"))):
                p.open(a["ines"], t["action"], rnd.choice([None, "please"]))
                return
    elif kind == "decide":
        pending = [s for s in p.steps.values() if s["state"] == "Pending"]
        if not pending:
            return
        step = rnd.choice(pending)
        decision = rnd.choices(["approve", "reject", "withdraw"], [6, 2, 1])[0]
        whole = decision == "withdraw" and p.gates[step["gate_id"]]["chain_state"] == "Pending" and rnd.random() < 0.5
        by = a["ines"] if decision == "withdraw" else people[step["approver_ref"]]
        p.decide(by, step["action"], decision, rnd.choice([None, "fine"]) if decision == "approve" else "not now", approver=step["approver_ref"], whole=whole, gate_id=step["gate_id"])
    else:
        for t in here:
            if "guard" not in t or (p.state, t["action"]) in p.bound and status(p.bound[(p.state, t["action"])]) == ("Approved", "unspent"):
                p.fire(rnd.choice([a["ines"], a["lab"]]), t["action"], rnd.choice([None, "onwards"]))
                return


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        print("usage: make.py OUTDIR", file=sys.stderr)
        return 2
    out = pathlib.Path(argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, scenario in SCENARIOS.items():
        world, bundle = scenario()
        bundle.write(out / f"{name}.zip")
        (out / f"{name}.policy.txt").write_text(world.policy(), encoding="utf-8")
        (out / f"{name}.keys.json").write_text(json.dumps(world.keyfile(), indent=1) + "\n", encoding="utf-8")
        print(f"{name}.zip: {len(bundle.records)} records, {bundle.manifest['instances']} instances, tree of {bundle.manifest['tree_size']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
