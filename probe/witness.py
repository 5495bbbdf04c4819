"""Witnesses that lie, and a witness that is lied to. The log goes on, and keeps nothing that does not verify."""

import base64
import os
import subprocess
import time

from .report import Probe, hold
from .server import eventually, raw
from .stubs import HTTP_BEHAVIOURS, Stub, request

witness = Probe("witness")
PROBES = [witness]


class Key:
    """A witness's key, and what it signs (C2SP signed-note, tlog-cosignature)."""

    def __init__(self, name="probe.witness"):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        import hashlib

        self.name, self.private = name, Ed25519PrivateKey.generate()
        raw_form = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        self.public = self.private.public_key().public_bytes(*raw_form)
        self.id = hashlib.sha256(name.encode() + b"\n\x04" + self.public).digest()[:4]

    def verifier(self):
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(bytes([4]) + self.public).decode()}"

    def line(self, text, seconds=1_700_000_000, spoil=False):
        signature = self.private.sign(b"cosignature/v1\ntime %d\n" % seconds + text)
        blob = self.id + seconds.to_bytes(8, "big") + (bytes(64) if spoil else signature)
        return "— ".encode() + self.name.encode() + b" " + base64.b64encode(blob) + b"\n"


def lying(key, answer):
    """A witness that tells its key, and answers checkpoints with `answer(note text, whole note)`: (status, body)."""

    def behave(connection, stub):
        while True:
            line, body = request(connection)
            if line is None:
                return
            stub.requests.append((line, body))
            status, said = (200, key.verifier().encode()) if line.startswith("GET") else answer(*parts(body))
            connection.sendall(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(said)) + said)

    return behave


def parts(body):
    """The text of the note (with its last line feed), and the whole note."""
    note = body.split(b"\n\n", 1)[1]
    return note[: note.rfind(b"\n\n") + 1], note


def lies(key):
    extra = b"\nanother text\n"
    return {
        "a wrong signature": lambda text, note: (200, key.line(text, spoil=True)),
        "a signature of something else": lambda text, note: (200, key.line(b"else\n")),
        "a text of its own behind the note": lambda text, note: (200, extra + b"\n" + key.line(note + extra)),
        "a huge line": lambda text, note: (200, "— ".encode() + b"A" * 3_000_000),
        "a size from before": lambda text, note: (409, b"0\n"),
        "a size that cannot be": lambda text, note: (409, b"18446744073709551615\n"),
        "a size that is none": lambda text, note: (409, b"many\n"),
        "a fork": lambda text, note: (422, b""),
        "no bytes": lambda text, note: (200, b""),
    }


def story(server):
    name = f"w-{time.monotonic_ns()}"
    server.admin.publish(f"kind: workflow\nname: {name}\nsteps: [{{name: A}}]\n").made()
    server.admin.start_run(name).made()
    server.admin.post("/v1/ledger/seal")


@witness.case("lies and endless answers of witnesses change nothing in the log", short=("sqlite",), own=True)
def liars(lab, store):
    key = Key()
    stubs = {name: Stub(lying(key, answer)) for name, answer in lies(key).items()}
    stubs |= {name: Stub(behave) for name, behave in HTTP_BEHAVIOURS.items()}
    urls = ", ".join(f'"{stub.url}"' for stub in stubs.values())
    server = lab.server(store, f"[log]\nwitnesses = [{urls}]\n").start()
    try:
        with server.watched(memory_mb=200):
            for _ in range(4):
                story(server)
                time.sleep(1)
        unasked = [name for name, stub in stubs.items() if not stub.requests]
        hold(not unasked, f"never asked: {unasked}")
        note = server.admin.get("/v1/ledger/checkpoint").body
        hold(b"another text" not in note and b"probe.witness" not in note, f"kept in the checkpoint: {note[-400:]!r}")
        server.stop()
        server.start()
        story(server)
        server.sound()
    finally:
        for stub in stubs.values():
            stub.__exit__()
        server.remove()


@witness.case("an honest witness beside a lying one cosigns", own=True)
def honest(lab, store):
    good, bad = Key("good.witness"), Key("bad.witness")
    cosigning = Stub(lying(good, lambda text, note: (200, bad.line(text) + good.line(text))))
    lying_one = Stub(lying(bad, lies(bad)["a text of its own behind the note"]))
    server = lab.server(store, f'[log]\nwitnesses = ["{lying_one.url}", "{cosigning.url}"]\n').start()
    try:
        story(server)
        checkpoint = lambda: server.admin.get("/v1/ledger/checkpoint").body
        eventually(lambda: b"good.witness" in checkpoint(), 15, "the honest cosignature is missing")
        hold(b"another text" not in checkpoint(), "the other one's text is in the checkpoint")
        server.sound()
    finally:
        cosigning.__exit__()
        lying_one.__exit__()
        server.remove()


@witness.case("`countersign witness` itself takes no nonsense and lives", short=("sqlite",), own=True, stores=("sqlite",))
def own_witness(lab, store):
    server = lab.server(store).start()
    directory = os.path.join(server.directory, "witness")
    key = server.admin.get("/v1/ledger/key").body.decode().strip()
    log = open(os.path.join(server.directory, "witness.log"), "wb")
    command = [lab.binary, "witness", "--data-dir", directory, "--listen", "127.0.0.1:0", "--log", key]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    lab.started(process)
    try:
        port = eventually(lambda: listening(process.pid), 20, "the witness does not listen")
        story(server)
        note = server.admin.get("/v1/ledger/checkpoint").body
        for what, body in {
            "nothing": b"", "zeros": bytes(1000), "an old size that is none": b"old x\n\n" + note,
            "a size beyond": b"old 18446744073709551615\n\n" + note, "no proof": b"old 5\n\n" + note,
            "another signature": b"old 0\n\n" + note.replace(b"A", b"B"), "too much": b"old 0\n\n" + note + b"\n" * 2_000_000,
            "proofs without end": b"old 0\n" + b"AAAA\n" * 10_000 + b"\n" + note,
        }.items():
            head = b"POST /add-checkpoint HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
            answer = raw(port, head + body, timeout=5)
            hold(not answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 5")), f"{what}: {answer[:80]!r}")
            hold(process.poll() is None, f"{what}: the witness ended")
    finally:
        process.kill()
        process.wait()
        server.remove()


def listening(pid):
    """The port on which a process listens, from /proc."""
    inodes = set()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    with open(f"/proc/{pid}/net/tcp") as file:
        for line in file.readlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                return int(fields[1].split(":")[1], 16)
    return None
