"""Edits behind the server's back, in the live store: `audit verify` finds each one, and says so instead of failing. And
hostile bundles for the auditor's verifier: bounded memory and time."""

import contextlib
import io
import os
import resource
import sqlite3
import subprocess
import zipfile

from .report import Broken, Probe, hold

verification = Probe("verification")
bundles = Probe("hostile bundles", stores=("sqlite",))
PROBES = [verification, bundles]


class Store:
    """The server's tables, by whatever way there is. `records` is where history is."""

    def __init__(self, server):
        self.server = server

    def run(self, statement):
        if self.server.store == "postgres":
            return self.server.lab.postgres.sql(statement, self.server.database)
        path = os.path.join(self.server.data_dir, "countersign.sqlite")
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as connection, connection:
            return connection.execute(statement).fetchall()


def told(lab, store):
    """A server with a finished story, sealed."""
    server = lab.server(store).start()
    approver = server.actor(kind="human")
    server.admin.publish(
        "kind: process\nname: p\nstates: [a, b]\ninitial_state: a\nterminal_states: [b]\n"
        "transitions: [{from: a, action: go, to: b, guard: g}]\n"
        f"gate_spec: {{g: {{approver_ref: {approver.name}, scope: s}}}}\n"
    ).made()
    ids = []
    for subject in ("one", "two"):
        instance = server.admin.post("/v1/processes", {"definition": "p", "subject_ref": subject}).made()["instance_id"]
        server.admin.post(f"/v1/processes/{instance}/gates", {"action": "go"}).made()
        decision = {"decision": "approve", "reason": f"reviewed {subject}"}
        approver.post(f"/v1/processes/{instance}/gates/go/decision", decision).made()
        ids.append(instance)
    server.admin.post(f"/v1/processes/{ids[0]}/transitions", {"action": "go"}).made()
    server.sound()
    return server, ids


def finds(server, what):
    status, said = server.command("audit", "verify")
    hold(status == 1 and "Verified" not in said, f"{what}: audit verify says ({status}): {said[-400:]}")
    answer = server.admin.post("/v1/ledger/verify-log", {}, timeout=120)
    hold(answer.status == 200, f"{what}: verify-log answers {answer}")
    hold(b"failed-verification" in answer.body, f"{what}: {answer}")


@verification.case("a record that is changed or gone is found, and nothing stops at it", short=True, own=True)
def records(lab, store):
    for what in ("changed", "gone"):
        server, ids = told(lab, store)
        try:
            newest = "event_id = (SELECT event_id FROM records ORDER BY event_id DESC LIMIT 1)"
            payload = "x'7b7d'" if store == "sqlite" else "'\\x7b7d'::bytea"
            edit = f"UPDATE records SET payload = {payload}" if what == "changed" else "DELETE FROM records"
            Store(server).run(f"{edit} WHERE {newest}")
            finds(server, f"the newest record is {what}")
            if what == "gone":
                # The instance that was cut takes no more.
                answer = server.admin.post(f"/v1/processes/{ids[0]}/gates", {"action": "go"})
                hold(answer.status >= 400, f"the cut instance goes on: {answer}")
        finally:
            server.remove()


@verification.case("the state of a process that was edited is found", own=True)
def state(lab, store):
    server, ids = told(lab, store)
    try:
        Store(server).run("UPDATE instances SET state = 'b' WHERE state = 'a'")
        finds(server, "the state is another")
    finally:
        server.remove()


# ---------------------------------------------------------------- bundles


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (2_000_000_000, 2_000_000_000))


def judged(lab, directory, data, key):
    """How the verifier ends with these bytes. It may refuse; it may not crash, hang or eat memory."""
    path = os.path.join(directory, "hostile.zip")
    with open(path, "wb") as file:
        file.write(data)
    run = subprocess.run(
        [lab.verifier, path, "--key", key], capture_output=True, timeout=60, preexec_fn=limited, cwd=directory)
    hold(run.returncode in (1, 2), f"it ended with {run.returncode}: {(run.stdout + run.stderr)[-300:]!r}")


def packed(files, method=zipfile.ZIP_DEFLATED):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return made.getvalue()


@bundles.case("bombs, lies about sizes, odd names and endless lines are refused in bounded memory", short=True, own=True)
def hostile(lab, _):
    directory = os.path.join(lab.directory, "bundles")
    os.makedirs(directory, exist_ok=True)
    server = lab.server("sqlite").start()
    try:
        key = server.admin.get("/v1/ledger/key").body.decode().strip()
        server.admin.publish("kind: workflow\nname: w\nsteps: [{name: A}]\n").made()
        run = server.admin.start_run("w").made()["run_id"]
        path = os.path.join(directory, "good.zip")
        status, said = server.command("audit", "export", "--instance", run, "-o", path)
        hold(status == 0, said)
    finally:
        server.remove()
    with zipfile.ZipFile(path) as archive:
        good = [(name, archive.read(name)) for name in archive.namelist()]
    bomb = (16 if lab.short else 120) << 20
    replaced = lambda name, content: packed([(n, content if n == name else c) for n, c in good])
    cases = {
        "nothing": b"", "zeros": bytes(100_000), "only an end": b"PK\x05\x06" + bytes(18),
        "a bomb of records": replaced("records.jsonl", b"\n" * bomb),
        "a bomb in one line": replaced("records.jsonl", b" " * bomb),
        "a bomb of state": replaced("state.jsonl", b"[" * bomb),
        "a deep manifest": replaced("bundle.json", b"[" * 900_000),
        "a great checkpoint": replaced("checkpoint", b"a\n1\n" + b"\xe2\x80\x94 a AAAA\n" * 70_000),
        "many grants": replaced("grants.jsonl", b"{}\n" * (bomb // 4)),
        "twenty thousand files": packed([(f"f{n}", b"") for n in range(20_000)]),
        "names that climb": packed([*good, ("../../etc/passwd", b"x"), ("/etc/passwd", b"x")]),
        "no compression, cut": packed(good, zipfile.ZIP_STORED)[:-100],
    }
    whole = packed(good)
    for shift in range(0, len(whole), max(len(whole) // (12 if lab.short else 60), 1)):
        edited = bytearray(whole)
        edited[shift : shift + 4] = b"\xff\xff\xff\xff"
        cases[f"four bytes at {shift}"] = bytes(edited)
    broken = []
    for what, data in cases.items():
        try:
            judged(lab, directory, data, key)
        except (Broken, subprocess.TimeoutExpired) as problem:
            # Four bytes may fall where nothing is said.
            if not (what.startswith("four bytes") and "ended with 0" in str(problem)):
                broken.append(f"{what}: {problem}")
    hold(not broken, "; ".join(broken))
