"""Memory and file descriptors that strangers could take: announcements, slow bodies, many and large runs."""

import contextlib
import json
import resource
import socket
import time
import uuid

from .report import Probe, hold
from .server import MB, Actor, eventually, raw

memory = Probe("memory")
PROBES = [memory]


@contextlib.contextmanager
def connections(server, count, data=b""):
    """Open connections that say this much and wait. Those that are refused count as well."""
    held = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", server.port), timeout=5)
                held.append(connection)
                connection.sendall(data)
        yield held
    finally:
        for connection in held:
            connection.close()


def more_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))


@memory.case("2,000 connections that announce a megabyte and send nothing", short=("sqlite",))
def announced(server):
    more_files()
    count = 600 if server.lab.short else 2000
    head = b"POST /v1/grants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1048576\r\n\r\n{"
    for token in (b"nobody", server.admin.token.encode()):
        with server.watched(memory_mb=150):
            with connections(server, count, head % token):
                time.sleep(1)
                server.healthy()
    server.healthy()


@memory.case("2,000 connections that say nothing at all", short=("sqlite",))
def silent(server):
    more_files()
    with server.watched(memory_mb=100):
        with connections(server, 600 if server.lab.short else 2000):
            time.sleep(0.5)
            server.healthy()
            server.admin.get("/v1/inbox").made()


@memory.case("bodies that trickle in hold nobody up")
def trickle(server):
    head = b"POST /v1/grants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n" % (
        server.admin.token.encode())
    with server.watched(memory_mb=100):
        with connections(server, 100, head) as held:
            for _ in range(20):
                for connection in held:
                    with contextlib.suppress(OSError):
                        connection.sendall(b" ")
                server.admin.get("/v1/inbox").made()
                time.sleep(0.1)


@memory.case("bodies beyond the limit are refused before they are kept", short=("sqlite",))
def too_large(server):
    head = b"POST /v1/grants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % server.admin.token.encode()
    piece = b"100000\r\n" + b"a" * 0x100000 + b"\r\n"
    with server.watched(memory_mb=100):
        answer = raw(server.port, head + b"Content-Length: 99999999999\r\n\r\n" + b"x" * 1_000, timeout=15)
        hold(b"413" in answer.split(b"\r\n", 1)[0], f"a great length: {answer[:100]!r}")
        answer = raw(server.port, head + b"Transfer-Encoding: chunked\r\n\r\n" + piece * 30, timeout=3)
        hold(b" 2" not in answer.split(b"\r\n", 1)[0][8:10], f"endless chunks: {answer[:100]!r}")


@memory.case("runs of 950 KB do not stay in memory")
def large_runs(server):
    name = f"large-{uuid.uuid4().hex[:8]}"
    server.admin.publish(f"kind: workflow\nname: {name}\nsteps: [{{name: A}}]\n").made()
    input = {"x": ["x" * 1000] * 945}
    count = 100 if server.lab.short else 400
    with server.watched(memory_mb=250, health_s=5):
        for _ in range(count):
            server.admin.start_run(name, input).made()
        for item in server.admin.get(f"/v1/runs?definition={name}&limit=100").made()["items"]:
            server.admin.get(f"/v1/runs/{item['run_id']}").made()


@memory.case("60 versions of 400 KB do not stay in memory")
def large_definitions(server):
    name = f"versions-{uuid.uuid4().hex[:8]}"
    with server.watched(memory_mb=250, health_s=5):
        for version in range(60):
            steps = [{"name": f"S{n}", "input": {"x": "y" * 350}} for n in range(990)]
            steps.append({"name": "LAST", "input": {"version": version}})
            document = {"kind": "workflow", "name": name, "order": "linear", "steps": steps}
            answer = server.admin.publish(json.dumps(document))
            hold(answer.status < 500, f"{answer}")


@memory.case("many kept answers of idempotency keys, long names and wide events cost no memory for ever")
def keys(server):
    with server.watched(memory_mb=150, health_s=5):
        for n in range(2000):
            body = {"subject_ref": "admin", "action_scope": f"probe:{'k' * 400}{n}"}
            answer = server.admin.post("/v1/grants", body, headers={"Idempotency-Key": uuid.uuid4().hex * 3})
            hold(answer.status in (201, 400), f"{answer}")


@memory.case("running out of file descriptors is survived and logged", short=("sqlite",), own=True)
def descriptors(lab, store):
    more_files()
    server = lab.server(store, limits={resource.RLIMIT_NOFILE: 160}).start()
    try:
        with connections(server, 400):
            time.sleep(1.5)
            hold(server.alive(), f"the server ended: {server.last_words()}")
        # A new connection is served once the others are gone.
        eventually(lambda: served(server), 20, "it does not accept connections again")
        log = server.log().lower()
        hold("too many open files" in log or "emfile" in log or "connections" in log, "the log does not say so")
        server.sound()
    finally:
        server.remove()


def served(server):
    try:
        return Actor(server, None).get("/healthz", timeout=2).status == 200
    except OSError:
        return False


@memory.case("answers that are never read hold nobody up")
def never_read(server):
    more_files()
    request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 20
    with server.watched(memory_mb=200, health_s=5):
        with connections(server, 100, request):
            time.sleep(1)
            server.admin.get("/v1/inbox").made()
    hold(server.memory() < 2000 * MB, "memory stays taken")
