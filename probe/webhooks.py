"""Receivers of events that mean no good. None of them costs memory, delays the others, or is led elsewhere."""

import time
import uuid

from .report import Probe, hold
from .server import eventually
from .stubs import HTTP_BEHAVIOURS, Stub, answering

webhooks = Probe("webhooks")
PROBES = [webhooks]

FLOW = "kind: workflow\nname: {name}\nqueue: {name}\nsteps: [{{name: A}}]\n"


def section(name, url, more='allow_private = true\ntimeout = "2s"\n'):
    return f'[[webhooks]]\nname = "{name}"\nurl = "{url}"\nsecret = "s"\n{more}'


def emit(server, count=3):
    """Runs whose step sends an event; the ids that receivers should see are the engine's."""
    name = f"e-{uuid.uuid4().hex[:8]}"
    server.admin.publish(FLOW.format(name=name)).made()
    for n in range(count):
        server.admin.start_run(name).made()
        task = server.admin.claim(name)[0]
        events = [{"type": "probe.happened", "data": {"n": n}}]
        report = {"lease_token": task["lease_token"], "output": {}, "outbound_events": events}
        server.admin.post(f"/v1/tasks/{task['task_id']}/complete", report).made()


def attack(lab, store, behaviours):
    """One server with an honest receiver and these hostile ones beside it."""
    honest = Stub(answering(200))
    hostile = {name: Stub(behave) for name, behave in behaviours.items()}
    sections = [section("honest", f"{honest.url}/in")]
    sections += [section(f"hostile-{n}", f"{stub.url}/in") for n, stub in enumerate(hostile.values())]
    server = lab.server(store, "\n".join(sections)).start()
    try:
        with server.watched(memory_mb=200):
            emit(server)
            eventually(lambda: len(honest.requests) >= 3, 15, "the honest receiver did not get its events")
            eventually(lambda: all(stub.connections for stub in hostile.values()), 15, "a hostile receiver was never called")
            time.sleep(3)
        began = time.monotonic()
        server.stop()
        hold(time.monotonic() - began < 30, "it did not stop in time")
        server.start()
        server.sound()
    finally:
        for stub in (honest, *hostile.values()):
            stub.__exit__()
        server.remove()


@webhooks.case("hostile receivers cost no memory and delay nobody", short=("sqlite",), own=True)
def hostile_receivers(lab, store):
    attack(lab, store, HTTP_BEHAVIOURS)


@webhooks.case("redirects are not followed, wherever they point", short=("sqlite",), own=True)
def redirects(lab, store):
    target = Stub(answering(200))
    stubs = [
        Stub(answering(status, headers=b"Location: %s/elsewhere\r\n" % target.url.encode())) for status in (301, 302, 307, 308)
    ]
    server = lab.server(store, "\n".join(section(f"r{n}", stub.url) for n, stub in enumerate(stubs))).start()
    try:
        emit(server)
        eventually(lambda: all(stub.requests for stub in stubs), 15, "a receiver was never called")
        time.sleep(1)
        hold(target.connections == 0, "a redirect was followed")
        server.sound()
    finally:
        for stub in (*stubs, target):
            stub.__exit__()
        server.remove()


@webhooks.case("private addresses are not reached unless that is allowed, however they are written", short=("sqlite",), own=True)
def private(lab, store):
    target = Stub(answering(200))
    port = target.port
    forms = [
        f"http://127.0.0.1:{port}", f"http://localhost:{port}", f"http://[::1]:{port}", f"http://127.1:{port}",
        f"http://2130706433:{port}", f"http://0x7f000001:{port}", f"http://0177.0.0.1:{port}", f"http://0.0.0.0:{port}",
        f"http://[::ffff:127.0.0.1]:{port}", f"http://[::]:{port}", f"http://[64:ff9b::7f00:1]:{port}",
        f"http://[2002:7f00:1::]:{port}", "http://169.254.169.254", f"http://LOCALHOST.:{port}",
    ]
    sections = [section(f"p{n}", form, 'timeout = "2s"\n') for n, form in enumerate(forms)]
    server = lab.server(store, "\n".join(sections)).start()
    try:
        emit(server)
        listed = lambda: server.admin.get("/v1/outbox?limit=100").made()["items"]
        eventually(lambda: "attempts" in str(listed()), 10, "nothing was tried")
        time.sleep(3)
        hold(target.connections == 0, f"{target.connections} connections to a private address")
        server.sound()
    finally:
        target.__exit__()
        server.remove()


@webhooks.case("http steps against hostile servers end in time and cost no memory", own=True)
def http_steps(lab, store):
    stubs = {name: Stub(behave) for name, behave in HTTP_BEHAVIOURS.items()}
    server = lab.server(store, "[executors.http]\nallow_private = true\n").start()
    try:
        steps = ", ".join(
            f'{{name: S{n}, run: http, url: "{stub.url}/x", timeout: 4s, onFailure: skip, retryPolicy: {{maxRetries: 0}}}}'
            for n, stub in enumerate(stubs.values())
        )
        server.admin.publish(
            f"kind: workflow\nname: calls\nsteps: [{{name: go}}, {steps.replace('run: http', 'dependsOn: [go], run: http')}]\n"
        ).made()
        with server.watched(memory_mb=200):
            run = server.admin.start_run("calls").made()["run_id"]
            task = server.admin.claim()[0]
            server.admin.post(f"/v1/tasks/{task['task_id']}/complete", {"lease_token": task["lease_token"]}).made()
            ended = lambda: server.admin.get(f"/v1/runs/{run}").made()
            eventually(lambda: ended()["state"] in ("completed", "failed"), 40, f"the run did not end: {ended()['state']}")
        server.sound()
    finally:
        for stub in stubs.values():
            stub.__exit__()
        server.remove()
