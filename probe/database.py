"""PostgreSQL that fails in its ways: sessions ended, a restart, read-only, timeouts, locks, no connections left. Nothing
acknowledged is lost, callers are told within bounds, and service comes back by itself."""

import os
import signal
import threading
import time
import uuid

from .report import Broken, Probe, hold
from .server import eventually

database = Probe("postgresql faults", stores=("postgres",), alone=True)
PROBES = [database]


class Load:
    """Callers that start runs until told to stop, and remember what was acknowledged."""

    def __init__(self, server, callers=4):
        self.server, self.acknowledged, self.answers, self.slowest = server, [], {}, 0.0
        self.name = f"l-{uuid.uuid4().hex[:8]}"
        self.done, self.lock = threading.Event(), threading.Lock()
        server.admin.publish(f"kind: workflow\nname: {self.name}\nsteps: [{{name: A}}]\n").made()
        self.threads = [threading.Thread(target=self.call, daemon=True) for _ in range(callers)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        for thread in self.threads:
            thread.join(90)

    def call(self):
        while not self.done.is_set():
            began, what = time.monotonic(), None
            try:
                answer = self.server.admin.start_run(self.name, {"n": 1})
                what = answer.status
                if what == 201:
                    with self.lock:
                        self.acknowledged.append(answer["run_id"])
            except Exception as error:
                what = type(error).__name__
                self.done.wait(0.1)
            with self.lock:
                self.answers[what] = self.answers.get(what, 0) + 1
                self.slowest = max(self.slowest, time.monotonic() - began)

    def kept(self, allowed=(201, 429, 503)):
        """Everything acknowledged is there, and nobody got another answer than these."""
        hold(self.acknowledged, f"nothing was acknowledged: {self.answers}")
        other = {what: count for what, count in self.answers.items() if what not in allowed}
        hold(not other, f"other answers: {other}")
        lost = [run for run in self.acknowledged if self.server.admin.get(f"/v1/runs/{run}").status != 200]
        hold(not lost, f"{len(lost)} of {len(self.acknowledged)} acknowledged runs are gone, {lost[:2]}")


def recovers(server, load, within=30):
    before = len(load.acknowledged)
    eventually(lambda: len(load.acknowledged) > before + 5, within, f"writes do not come back: {load.answers}")
    eventually(lambda: server.anonymous.get("/readyz").status == 200, within, "/readyz does not come back")


@database.case("sessions that are ended under load: nothing acknowledged is lost", short=True)
def terminated(server):
    with Load(server) as load:
        time.sleep(0.5)
        for _ in range(3 if server.lab.short else 15):
            server.lab.postgres.terminate(server.database)
            time.sleep(0.3)
        recovers(server, load)
    load.kept()


@database.case("the database restarts at once: callers are told, service comes back", own=True)
def restarted(lab, store):
    server = lab.server(store).start()
    try:
        with Load(server) as load:
            time.sleep(0.5)
            lab.postgres.control("restart", "-m", "immediate")
            recovers(server, load)
        load.kept()
        server.sound()
    finally:
        server.remove()


@database.case("while the database is gone, /healthz answers, /readyz says so, and writes are refused in time", own=True)
def gone(lab, store):
    server = lab.server(store).start()
    port = lab.postgres.parsed.port
    try:
        lab.postgres.control("stop", "-m", "fast")
        try:
            with server.watched(memory_mb=100):
                eventually(lambda: server.anonymous.get("/readyz").status == 503, 15, "/readyz says that it is ready")
                began = time.monotonic()
                answer = server.admin.post("/v1/grants", {"subject_ref": "admin", "action_scope": "x"}, timeout=60)
                hold(answer.status in (429, 503), f"{answer}")
                hold(time.monotonic() - began < 30, "the refusal took too long")
        finally:
            lab.postgres.control("start", "-o", f"-p {port}")
        eventually(lambda: server.anonymous.get("/readyz").status == 200, 30, "/readyz does not come back")
        server.sound()
    finally:
        server.remove()


@database.case("a database that turns read-only refuses writes and reads on", short=True)
def read_only(server):
    name = server.database
    with Load(server) as load:
        time.sleep(0.3)
        server.lab.postgres.sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        server.lab.postgres.terminate(name)
        try:
            eventually(lambda: load.answers.get(503), 15, f"writes go on: {load.answers}")
            server.admin.get("/v1/runs?limit=1").made()
        finally:
            server.lab.postgres.sql(f'SET default_transaction_read_only = off; ALTER DATABASE "{name}" RESET default_transaction_read_only')
            server.lab.postgres.terminate(name)
        recovers(server, load)
    load.kept()


@database.case("statements that time out, and locks that others hold, end in bounded time")
def timeouts(server):
    name = server.database
    with Load(server) as load:
        time.sleep(0.3)
        locked = server.lab.postgres.session("BEGIN; LOCK TABLE records IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(6); COMMIT", name)
        with server.watched(memory_mb=100):
            locked.wait(30)
        recovers(server, load)
        server.lab.postgres.sql(f'ALTER DATABASE "{name}" SET statement_timeout = 1')
        server.lab.postgres.terminate(name)
        time.sleep(2)
        server.lab.postgres.sql(f'ALTER DATABASE "{name}" RESET statement_timeout')
        server.lab.postgres.terminate(name)
        recovers(server, load)
    load.kept()
    hold(load.slowest < 45, f"a caller waited {load.slowest:.0f} s")


@database.case("a database without free connections: callers are told, service comes back")
def no_connections(server):
    name = server.database
    with Load(server) as load:
        time.sleep(0.3)
        server.lab.postgres.sql(f'ALTER DATABASE "{name}" CONNECTION LIMIT 0')
        # Superusers are not limited; allowing no connections at all limits them, too.
        server.lab.postgres.sql(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        server.lab.postgres.terminate(name)
        try:
            eventually(lambda: load.answers.get(503), 20, f"writes go on: {load.answers}")
            server.healthy()
        finally:
            server.lab.postgres.sql(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true CONNECTION LIMIT -1')
        recovers(server, load)
    load.kept()


@database.case("a database that does not answer holds up neither /healthz nor callers for ever", own=True)
def frozen(lab, store):
    server = lab.server(store).start()
    try:
        with Load(server) as load:
            time.sleep(0.5)
            backends = lab.postgres.sql(f"SELECT pid FROM pg_stat_activity WHERE datname = '{server.database}'").split()
            if not backends:
                raise Broken("no sessions to freeze")
            for pid in backends:
                os.kill(int(pid), signal.SIGSTOP)
            try:
                with server.watched(memory_mb=100):
                    time.sleep(8)
            finally:
                for pid in backends:
                    try:
                        os.kill(int(pid), signal.SIGCONT)
                    except ProcessLookupError:
                        pass
            recovers(server, load, within=60)
        load.kept()
        server.sound()
    finally:
        server.remove()
