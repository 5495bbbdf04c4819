"""A real server in a directory of its own: started, asked, watched, killed, and held to its evidence afterwards."""

import contextlib
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import uuid

from .report import Broken, hold

MB = 1024 * 1024


def patience():
    """By how much a ceiling of time is raised where the machine is busy with something else."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Answer:
    """What came back. `data` is its JSON, or None."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        try:
            self.data = json.loads(body) if body else None
        except ValueError:
            self.data = None

    @property
    def code(self):
        return self.data.get("code") if isinstance(self.data, dict) else None

    def __getitem__(self, name):
        return self.data[name]

    def __str__(self):
        return f"{self.status} {self.body[:300].decode('utf-8', 'replace')}"

    def made(self):
        """It must have worked."""
        if not 200 <= self.status < 300:
            raise Broken(f"refused: {self}")
        return self.data

    def refused(self, *statuses):
        """It must have been refused, with one of these statuses where there are any."""
        if not 400 <= self.status < 500 or (statuses and self.status not in statuses):
            raise Broken(f"expected a refusal {statuses or ''}, got {self}")
        return self


class Actor:
    """Somebody with a token, on one server. Each thread has a connection of its own."""

    def __init__(self, server, token, name=None):
        self.server, self.token, self.name = server, token, name
        self.local = threading.local()

    def call(self, method, path, body=None, headers=None, timeout=60):
        sent = {"Connection": "keep-alive", **(headers or {})}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        if isinstance(body, str):
            body = body.encode()
        for fresh in (False, True):
            connection = self.connection(timeout, fresh)
            try:
                connection.request(method, path, body, sent)
                answer = connection.getresponse()
                return Answer(answer.status, answer.headers, answer.read())
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                # A connection that was kept may be gone; a request on a new one is answered or lost.
                self.local.connection = None
                if fresh or not self.kept:
                    raise
            except Exception:
                self.local.connection = None
                raise

    def connection(self, timeout, fresh):
        found = getattr(self.local, "connection", None)
        port = self.server.port
        self.kept = found is not None and not fresh and getattr(self.local, "port", None) == port
        if not self.kept:
            found = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
            self.local.connection, self.local.port = found, port
        elif found.sock is not None:
            found.sock.settimeout(timeout)
        return found

    def get(self, path, **more):
        return self.call("GET", path, **more)

    def post(self, path, body=None, **more):
        return self.call("POST", path, {} if body is None else body, **more)

    def publish(self, document, **more):
        return self.call("POST", "/v1/definitions", document, **more)

    def start_run(self, definition, input=None, **more):
        body = {"definition": definition, **more}
        if input is not None:
            body["input"] = input
        return self.post("/v1/runs", body)

    def claim(self, queue="default", max=1, lease_ms=30000, wait_ms=0):
        asked = {"worker_id": "probe", "max": max, "lease_ms": lease_ms, "wait_ms": wait_ms}
        return self.post(f"/v1/queues/{queue}/claim", asked).made()["tasks"]


class Server:
    """One process of `countersign serve`, and the directory that outlives it."""

    def __init__(self, lab, store, directory, config="", environment=None):
        self.lab, self.store, self.directory = lab, store, directory
        self.config, self.environment = config, environment or {}
        self.process, self.port, self.starts = None, None, 0
        self.arguments = []
        self.limits = {}
        self.data_dir = os.path.join(directory, "data")
        self.database = None
        self.anonymous = Actor(self, None)

    # ------------------------------------------------------------ its life

    def start(self, wait=60):
        """Starts it and returns when it is ready. Raises `Broken` with what it said where it is not."""
        command = [self.lab.binary, "serve", "--data-dir", self.data_dir, "--listen", "127.0.0.1:0", *self.arguments]
        if self.store == "postgres":
            self.database = self.database or self.lab.postgres.database()
            command += ["--store", self.lab.postgres.url(self.database)]
        if self.config:
            path = os.path.join(self.directory, "countersign.toml")
            with open(path, "w") as file:
                file.write(self.config)
            command += ["--config", path]
        self.starts += 1
        self.log_path = os.path.join(self.directory, f"log.{self.starts}")
        environment = {**os.environ, "NO_COLOR": "1", **self.environment}
        environment.pop("COUNTERSIGN_TEST_POSTGRES", None)
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                preexec_fn=self.limit if self.limits else None,
            )
        self.lab.started(self.process)
        self.await_ready(wait)
        with contextlib.suppress(OSError):
            with open(os.path.join(self.data_dir, "admin.token")) as file:
                self.admin = Actor(self, file.read().strip(), "admin")
        return self

    def limit(self):
        for which, value in self.limits.items():
            resource.setrlimit(which, (value, value))

    def await_ready(self, wait):
        until = time.monotonic() + wait * patience()
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise Broken(f"the server ended with {self.process.returncode} at its start: {self.last_words()}")
            found = re.search(r'127\.0\.0\.1:(\d+)', self.said_serving())
            if found:
                self.port = int(found.group(1))
                with contextlib.suppress(OSError, http.client.HTTPException):
                    if self.anonymous.get("/readyz", timeout=5).status == 200:
                        return
            time.sleep(0.05)
        raise Broken(f"the server was not ready within {wait} s: {self.last_words()}")

    def said_serving(self):
        return "\n".join(line for line in self.log().splitlines() if '"serving"' in line or " serving " in line)

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def last_words(self):
        return self.log()[-600:].strip()

    def refuses_to_start(self, wait=30):
        """It must say why and end by itself; what it said."""
        try:
            self.start(wait)
        except Broken as broken:
            if self.process.poll() is None:
                self.kill()
                raise Broken(f"it neither started nor ended: {broken}")
            hold(self.process.returncode > 0, f"it crashed ({self.process.returncode}): {self.last_words()}")
            return self.log()
        self.stop()
        raise Broken("it started")

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, wait=40):
        """As an operator does; it must end in bounded time."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(wait)
            except subprocess.TimeoutExpired:
                self.kill()
                raise Broken(f"it did not stop within {wait} s of SIGTERM")

    def kill(self):
        if self.alive():
            self.process.kill()
            self.process.wait()

    def restart(self, wait=60):
        self.stop()
        return self.start(wait)

    def remove(self):
        self.kill()
        if self.database:
            self.lab.postgres.drop(self.database)
        shutil.rmtree(self.directory, ignore_errors=True)

    # ------------------------------------------------------------ who asks

    def actor(self, *scopes, name=None, kind="service"):
        name = name or f"actor-{uuid.uuid4().hex[:12]}"
        made = self.admin.post("/v1/actors", {"actor_ref": name, "kind": kind}).made()
        for scope in scopes:
            self.grant(name, scope)
        return Actor(self, made["token"], name)

    def grant(self, name, scope):
        return self.admin.post("/v1/grants", {"subject_ref": name, "action_scope": scope}).made()["grant_id"]

    # ------------------------------------------------------------ what it costs

    def memory(self, field="VmRSS"):
        """Bytes of resident memory; `VmHWM` is the most that it ever was."""
        with open(f"/proc/{self.process.pid}/status") as file:
            for line in file:
                if line.startswith(field):
                    return int(line.split()[1]) * 1024
        return 0

    @contextlib.contextmanager
    def watched(self, memory_mb=300, health_s=2.0):
        """While the block runs, `/healthz` answers within `health_s` and memory grows by no more than `memory_mb`."""
        watch = Watch(self)
        with watch:
            yield watch
        watch.check(memory_mb, health_s)

    def healthy(self, within=2.0):
        began = time.monotonic()
        answer = Actor(self, None).get("/healthz", timeout=60)
        took = time.monotonic() - began
        hold(answer.status == 200, f"/healthz: {answer}")
        hold(took <= within * patience(), f"/healthz took {took:.1f} s")

    # ------------------------------------------------------------ what it leaves

    def command(self, *arguments, binary=None, token=None, timeout=300):
        environment = {
            **os.environ,
            "NO_COLOR": "1",
            "COUNTERSIGN_SERVER": f"http://127.0.0.1:{self.port}",
            "COUNTERSIGN_TOKEN": token or self.admin.token,
            "COUNTERSIGN_PROFILES": os.path.join(self.directory, "profiles.toml"),
        }
        run = subprocess.run(
            [binary or self.lab.binary, *arguments], env=environment, capture_output=True, text=True, timeout=timeout
        )
        return run.returncode, run.stdout + run.stderr

    def sound(self):
        """Everything that it recorded verifies: on the server, and in a bundle by the auditor's verifier."""
        hold(self.alive(), f"the server ended with {self.process.returncode}: {self.last_words()}")
        status, said = self.command("audit", "verify")
        hold(status == 0 and "Verified" in said, f"audit verify: {status} {said[-800:]}")
        key = self.admin.get("/v1/ledger/key").body.decode().strip()
        bundle = os.path.join(self.directory, f"evidence.{uuid.uuid4().hex[:8]}.zip")
        status, said = self.command("audit", "export", "--from", "2000-01-01T00:00:00Z", "-o", bundle)
        hold(status == 0, f"audit export: {status} {said[-800:]}")
        status, said = self.command(bundle, "--key", key, binary=self.lab.verifier)
        # What it found comes first.
        hold(status == 0, f"countersign-verify: {status} {said[:1500]}")
        os.unlink(bundle)


class Watch:
    """Asks `/healthz` on a connection of its own and reads the process's memory, until it is left."""

    def __init__(self, server):
        self.server, self.slowest, self.problems = server, 0.0, []
        self.before = server.memory()
        self.most = self.before
        self.done = threading.Event()
        self.threads = [threading.Thread(target=self.ask, daemon=True), threading.Thread(target=self.weigh, daemon=True)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        for thread in self.threads:
            thread.join(60)

    def ask(self):
        asker = Actor(self.server, None)
        while not self.done.is_set():
            began = time.monotonic()
            try:
                answer = asker.get("/healthz", timeout=60)
                if answer.status != 200:
                    self.problems.append(str(answer))
            except Exception as error:
                self.problems.append(f"{type(error).__name__}: {error}")
                if not self.server.alive():
                    return
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.done.wait(0.1)

    def weigh(self):
        while not self.done.is_set():
            with contextlib.suppress(OSError):
                self.most = max(self.most, self.server.memory())
            self.done.wait(0.02)

    def check(self, memory_mb, health_s):
        server = self.server
        hold(server.alive(), f"the server ended with {server.process.returncode}: {server.last_words()}")
        hold(not self.problems, f"/healthz meanwhile: {self.problems[0] if self.problems else ''}")
        grown = (self.most - self.before) / MB
        hold(self.slowest <= health_s * patience(), f"/healthz took {self.slowest:.1f} s meanwhile (memory grew by {grown:.0f} MB)")
        hold(grown <= memory_mb, f"memory grew by {grown:.0f} MB, at most {memory_mb} MB are allowed")


def raw(port, data, timeout=10, shut=False, most=65536):
    """Bytes to the server as they are; what it answers until it closes or nothing more comes."""
    timeout *= patience()
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
            if shut:
                connection.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(OSError):
            while len(answer) < most:
                piece = connection.recv(65536)
                if not piece:
                    break
                answer += piece
        return answer


def eventually(check, within, message, pause=0.1):
    """Waits until `check` answers something true; what it answered."""
    until = time.monotonic() + within * patience()
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > until:
            raise Broken(f"{message} (within {within} s)")
        time.sleep(pause)


def quoted(part):
    return urllib.parse.quote(part, safe="")
