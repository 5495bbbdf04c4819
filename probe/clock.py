"""Clocks that jump: libfaketime moves the wall clock of a live server, its monotonic clock goes on."""

import glob
import os
import time
import uuid

from .report import Broken, Probe, hold
from .server import eventually

clock = Probe("clock jumps")
PROBES = [clock]

DAY = 86_400

FLOW = """
kind: workflow
name: {name}
queue: {name}
order: linear
steps:
  - {{name: A, retryPolicy: {{maxRetries: 5, backoff: constant, initialDelay: 500ms, maxDelay: 1s}}}}
  - {{name: B, run: wait, for: 1s}}
"""


def library():
    for pattern in ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1", "/usr/lib64/faketime/libfaketimeMT.so.1"):
        for found in glob.glob(pattern):
            return found
    raise Broken("libfaketime is not installed (Debian: faketime)")


class Clock:
    def __init__(self, lab, store):
        self.path = os.path.join(lab.directory, f"clock-{uuid.uuid4().hex[:6]}")
        self.move(0)
        environment = {
            "LD_PRELOAD": library(), "FAKETIME_TIMESTAMP_FILE": self.path, "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1",
        }
        self.server = lab.server(store, environment=environment).start()
        self.admin = self.server.admin

    def move(self, seconds):
        """The wall clock is this far ahead of the real one from now on."""
        with open(self.path + ".new", "w") as file:
            file.write(f"{seconds:+d}\n")
        os.replace(self.path + ".new", self.path)

    def begin(self):
        name = f"c-{uuid.uuid4().hex[:8]}"
        self.admin.publish(FLOW.format(name=name)).made()
        return name, self.admin.start_run(name).made()["run_id"]

    def step(self, run, name):
        return next(s for s in self.admin.get(f"/v1/runs/{run}").made()["steps"] if s["name"] == name)

    def time_passes(self, what):
        """Leases expire, retries come due, waits end, and records have times of their own."""
        name, run = self.begin()
        task = self.admin.claim(name, lease_ms=1000)[0]
        eventually(lambda: self.step(run, "A").get("attempts") == 1, 15, f"{what}: a lease of a second did not expire")
        tasks = eventually(lambda: self.admin.claim(name), 15, f"{what}: the step is not handed out again")
        hold(tasks[0]["attempt"] == 2, f"{what}: {tasks}")
        report = {"lease_token": tasks[0]["lease_token"], "last_error": "again"}
        self.admin.post(f"/v1/tasks/{task['task_id']}/retry", report).made()
        tasks = eventually(lambda: self.admin.claim(name), 15, f"{what}: a retry after half a second did not come due")
        report = {"lease_token": tasks[0]["lease_token"], "output": {}}
        self.admin.post(f"/v1/tasks/{tasks[0]['task_id']}/complete", report).made()
        ended = lambda: self.admin.get(f"/v1/runs/{run}").made()["state"] == "completed"
        eventually(ended, 15, f"{what}: a wait of a second did not end")
        times = [r["recorded_at"] for r in self.admin.get(f"/v1/ledger/records?instance_id={run}&limit=100").made()["items"]]
        ordered = sorted(times)
        hold(times in (ordered, ordered[::-1]), f"{what}: record times go back: {times}")


def jumped(lab, store, *moves, restart=False):
    clock = Clock(lab, store)
    try:
        clock.time_passes("before the jump")
        for seconds in moves:
            clock.move(seconds)
            # Something is recorded under the clock that is wrong.
            clock.begin()
            time.sleep(0.5)
        if restart:
            clock.server.restart()
            clock.admin = clock.server.admin
        clock.time_passes(f"after jumps by {moves} s{', restarted' if restart else ''}")
        clock.server.sound()
        return clock
    finally:
        clock.server.remove() if not restart else clock.server.kill()


@clock.case("ahead by 30 days and back: leases, retries and waits still come due", short=True, own=True)
def ahead_and_back(lab, store):
    jumped(lab, store, 30 * DAY, 0)


@clock.case("the same after a restart", own=True)
def after_restart(lab, store):
    jumped(lab, store, 30 * DAY, 0, restart=True).server.remove()


@clock.case("back by 30 days: leases, retries and waits still come due", own=True)
def back(lab, store):
    jumped(lab, store, -30 * DAY)


@clock.case("an hour ahead: nobody's lease is taken before its time", own=True)
def lease_survives(lab, store):
    clock = Clock(lab, store)
    try:
        name, run = clock.begin()
        task = clock.admin.claim(name, lease_ms=600_000)[0]
        clock.move(3600)
        time.sleep(2)
        answer = clock.admin.post(f"/v1/tasks/{task['task_id']}/heartbeat", {"lease_token": task["lease_token"]})
        hold(answer.status == 200, f"a lease of ten minutes is lost after seconds: {answer}")
        clock.server.sound()
    finally:
        clock.server.remove()


@clock.case("a jump is logged, and shown as a metric", own=True)
def visible(lab, store):
    clock = Clock(lab, store)
    try:
        clock.move(30 * DAY)
        clock.begin()
        clock.move(0)
        clock.begin()
        told = lambda: "clock" in clock.server.log().lower()
        eventually(told, 15, "the log does not say that the clock jumped")
        metrics = clock.server.anonymous.get("/metrics").body.decode()
        hold("clock" in metrics, "no metric counts it")
    finally:
        clock.server.remove()
