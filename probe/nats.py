"""NATS: servers that talk nonsense, and a real one that dies and comes back."""

import os
import shutil
import socket
import subprocess
import time

from .report import Broken, Probe, hold
from .server import eventually
from .stubs import Stub
from .webhooks import emit

nats = Probe("nats")
PROBES = [nats]

INFO = (b'INFO {"server_id":"X","version":"2.9.0","proto":1,"host":"127.0.0.1","port":4222,"headers":true,'
        b'"max_payload":%d}\r\n')


def section(name, port):
    return f'[[nats]]\nname = "{name}"\nurl = "nats://127.0.0.1:{port}"\ntimeout = "2s"\n'


def saying(*pieces, forever=False):
    def behave(connection, stub):
        for piece in pieces:
            connection.sendall(piece)
        while forever and not stub.done.is_set():
            connection.sendall(pieces[-1])
        connection.settimeout(1)
        while not stub.done.is_set():
            try:
                if not connection.recv(65536):
                    return
            except TimeoutError:
                continue

    return behave


def flood(connection, stub):
    """Answers every ping with messages that nobody asked for."""
    connection.sendall(INFO % 1048576 + b"PONG\r\n")
    while not stub.done.is_set():
        connection.sendall(b"MSG any 1 65536\r\n" + b"x" * 65536 + b"\r\n")


# Not here: a line or a message without end, which the client library reads into memory (ADR 33).
BEHAVIOURS = {
    "never speaks": saying(),
    "no protocol": saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "an INFO that is none": saying(b"INFO {nonsense\r\n"),
    "takes nothing": saying(INFO % 0 + b"PONG\r\n"),
    "refuses": saying(INFO % 1048576, b"-ERR 'Authorization Violation'\r\n"),
    "connects and is silent": saying(INFO % 1048576 + b"PONG\r\n"),
    "a flood of messages": flood,
}


@nats.case("hostile servers cost no memory and delay nobody", short=("sqlite",), own=True)
def hostile(lab, store):
    stubs = {name: Stub(behave) for name, behave in BEHAVIOURS.items()}
    config = "\n".join(section(f"n{n}", stub.port) for n, stub in enumerate(stubs.values()))
    server = lab.server(store, config).start()
    try:
        with server.watched(memory_mb=250):
            emit(server)
            time.sleep(6)
        unheard = [name for name, stub in stubs.items() if not stub.connections]
        hold(not unheard, f"never connected to: {unheard}")
        delivered = server.admin.get("/v1/outbox?state=delivered").made()["items"]
        hold(not delivered, "something counts as delivered that no stream took")
        server.stop()
        server.start()
        server.sound()
    finally:
        for stub in stubs.values():
            stub.__exit__()
        server.remove()


class Real:
    """nats-server with JetStream, which can be killed and started again on the same port and files."""

    def __init__(self, lab, directory):
        self.lab, self.directory = lab, directory
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.program = shutil.which("nats-server") or "/usr/sbin/nats-server"
        self.start()

    def start(self):
        command = [self.program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", os.path.join(self.directory, "js")]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.lab.started(self.process)
        eventually(self.answers, 10, "nats-server does not answer")

    def answers(self):
        try:
            self.ask(b"")
            return True
        except OSError:
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, command, expect=b"PONG\r\n"):
        """Speaks the protocol: what comes until `expect`."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            said = connection.recv(65536)
            connection.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n' + command + b"PING\r\n")
            until = time.monotonic() + 5
            while expect not in said and time.monotonic() < until:
                piece = connection.recv(65536)
                if not piece:
                    break
                said += piece
            return said

    def api(self, subject, payload=b""):
        reply = b"probe.reply"
        command = b"SUB probe.reply 1\r\nPUB %s %s %d\r\n%s\r\n" % (subject, reply, len(payload), payload)
        return self.ask(command, expect=b'"type":"io.nats')

    def stored(self):
        said = self.api(b"$JS.API.STREAM.INFO.PROBE")
        found = said.partition(b'"messages":')[2].partition(b",")[0]
        return int(found) if found else None


@nats.case("a real server is killed and comes back: every event arrives", own=True)
def killed(lab, store):
    directory = os.path.join(lab.directory, f"nats-{store}")
    os.makedirs(directory)
    real = Real(lab, directory)
    made = real.api(b"$JS.API.STREAM.CREATE.PROBE", b'{"name":"PROBE","subjects":["countersign.>"],"storage":"file"}')
    hold(b'"error"' not in made, f"no stream: {made[-300:]!r}")
    server = lab.server(store, section("real", real.port)).start()
    try:
        emit(server, 3)
        eventually(lambda: real.stored() == 3, 20, "the first events did not arrive")
        real.kill()
        emit(server, 3)
        server.healthy()
        real.start()
        try:
            eventually(lambda: real.stored() == 6, 60, "not every event arrived after the server came back", pause=1)
        except Broken as broken:
            raise Broken(f"{broken}: {real.stored()} of 6") from broken
        server.sound()
    finally:
        real.kill()
        server.remove()
