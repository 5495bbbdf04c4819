"""What steering and reporting must insist on: reasons, one output, one record per withdrawn step."""

import uuid

from .report import Probe, hold

runs = Probe("runs")
PROBES = [runs]

FLOW = "kind: workflow\nname: {name}\nqueue: {name}\norder: linear\nsteps: [{{name: A}}, {{name: B}}]\n"


def begun(server):
    name = f"r-{uuid.uuid4().hex[:10]}"
    server.admin.publish(FLOW.format(name=name)).made()
    return name, server.admin.start_run(name).made()["run_id"]


@runs.case("cancel, stop, void and pause need a reason, and keep it", short=True)
def reasons(server):
    for act in ("pause", "stop", "cancel", "void"):
        _, run = begun(server)
        for body in ({}, {"reason": ""}, {"reason": "  "}):
            server.admin.post(f"/v1/runs/{run}/{act}", body).refused(400)
        server.admin.post(f"/v1/runs/{run}/{act}", {"reason": f"because of {act}"}).made()
        view = server.admin.get(f"/v1/runs/{run}").made()
        hold(view.get("reason") == f"because of {act}", f"{act}: the run says {view.get('reason')!r}")


@runs.case("cancel knows `approval_id`", short=True)
def approval(server):
    _, run = begun(server)
    answer = server.admin.post(f"/v1/runs/{run}/cancel", {"reason": "x", "approval_id": uuid.uuid4().hex})
    hold("unknown field" not in answer.body.decode(), f"{answer}")


@runs.case("`complete` again with the same output answers as before, with another one is a conflict", short=True)
def repeated(server):
    name, _ = begun(server)
    task = server.admin.claim(name)[0]
    report = lambda output: server.admin.post(
        f"/v1/tasks/{task['task_id']}/complete", {"lease_token": task["lease_token"], "output": output})
    first = report({"n": 1}).made()
    again = report({"n": 1}).made()
    hold(first == again, f"{first} / {again}")
    other = report({"n": 2})
    hold(other.status == 409 and other.code == "conflict", f"another output: {other}")
    view = server.admin.get(f"/v1/runs/{task['run_id']}").made()
    hold(view["steps"][0]["output"] == {"n": 1}, f"the step's output is {view['steps'][0].get('output')}")


@runs.case("each step that the end of a chain withdraws has its own record", short=True)
def withdrawn(server):
    people = [server.actor(kind="human") for _ in range(3)]
    name = f"q-{uuid.uuid4().hex[:10]}"
    approvers = ", ".join(person.name for person in people)
    server.admin.publish(
        f"kind: process\nname: {name}\nstates: [a, b]\ninitial_state: a\nterminal_states: [b]\n"
        f"transitions: [{{from: a, action: go, to: b, guard: g}}]\n"
        f"gate_spec: {{g: {{approvers: [{approvers}], quorum: {{rule: all-of-n}}, scope: s}}}}\n"
    ).made()
    instance = server.admin.post("/v1/processes", {"definition": name, "subject_ref": "s"}).made()["instance_id"]
    steps = server.admin.post(f"/v1/processes/{instance}/gates", {"action": "go"}).made()["steps"]
    withdraw = {"decision": "withdraw", "reason": "mistaken"}
    server.admin.post(f"/v1/processes/{instance}/gates/go/decision", withdraw).made()
    records = server.admin.get(f"/v1/ledger/records?instance_id={instance}&limit=100").made()["items"]
    gone = {r["payload"].get("step_id") for r in records if r["action_ref"] == "step_withdrawn"}
    hold(gone == {step["step_id"] for step in steps}, f"{len(gone)} of {len(steps)} withdrawn steps have a record")
