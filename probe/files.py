"""What happens to the files of a server while it is down, or while it runs: vanished, emptied, replaced, readable by all."""

import glob
import os
import shutil

from .report import Broken, Probe, hold
from .server import eventually

files = Probe("files")
PROBES = [files]


def used(lab, store, config=""):
    """A server with some history, stopped."""
    server = lab.server(store, config).start()
    server.admin.publish("kind: workflow\nname: w\nsteps: [{name: A}]\n").made()
    for _ in range(3):
        server.admin.start_run("w").made()
    server.sound()
    return server


def database(server):
    return os.path.join(server.data_dir, "countersign.sqlite")


def without_wal(server):
    for path in glob.glob(database(server) + "-*"):
        os.unlink(path)


@files.case("a database that vanished beside its keys is not replaced by an empty one", short=True, own=True)
def vanished(lab, store):
    server = used(lab, store)
    try:
        server.stop()
        if store == "sqlite":
            os.unlink(database(server))
            without_wal(server)
        else:
            lab.postgres.drop(server.database)
            lab.postgres.sql(f'CREATE DATABASE "{server.database}"')
        server.refuses_to_start()
        server.arguments = ["--new-store"]
        server.start()
        hold(server.admin.get("/v1/runs").status in (200, 401), "with --new-store it does not serve")
    finally:
        server.remove()


@files.case("a database that was truncated to nothing is not an empty store", short=True, own=True, stores=("sqlite",))
def truncated(lab, store):
    server = used(lab, store)
    try:
        server.stop()
        without_wal(server)
        os.truncate(database(server), 0)
        server.refuses_to_start()
    finally:
        server.remove()


@files.case("a database file that is unlinked or replaced while open is noticed", own=True, stores=("sqlite",))
def unlinked(lab, store):
    for replace in (False, True):
        server = used(lab, store)
        try:
            copy = database(server) + ".copy"
            shutil.copy(database(server), copy)
            os.unlink(database(server))
            if replace:
                os.rename(copy, database(server))
            noticed = lambda: not server.alive() or server.anonymous.get("/readyz").status != 200 or (
                server.admin.start_run("w").status == 503)
            eventually(noticed, 15, "it goes on as if nothing had happened", pause=0.5)
        finally:
            server.remove()


@files.case("a second server on a hard link of the database is refused", own=True, stores=("sqlite",))
def hard_link(lab, store):
    first = used(lab, store)
    second = lab.server(store)
    try:
        os.makedirs(second.data_dir)
        os.link(database(first), database(second))
        for name in ("application.key", "log.key", "admin.token"):
            source = os.path.join(first.data_dir, name)
            if os.path.exists(source):
                shutil.copy(source, os.path.join(second.data_dir, name))
        second.refuses_to_start()
        first.sound()
    finally:
        second.remove()
        first.remove()


@files.case("a missing or foreign application.key is never replaced silently", short=True, own=True)
def application_key(lab, store):
    server = used(lab, store)
    other = lab.server(store).start()
    try:
        server.stop()
        key = os.path.join(server.data_dir, "application.key")
        kept = key + ".kept"
        os.rename(key, kept)
        server.refuses_to_start()
        hold(not os.path.exists(key), "a new key was made")
        shutil.copy(os.path.join(other.data_dir, "application.key"), key)
        server.refuses_to_start()
        os.replace(kept, key)
        server.start()
        server.sound()
    finally:
        other.remove()
        server.remove()


@files.case("files with secrets that others can read are warned of, and refused where regulated", short=True, own=True)
def loose_modes(lab, store):
    server = used(lab, store)
    try:
        hold(os.stat(os.path.join(server.data_dir, "admin.token")).st_mode & 0o077 == 0, "a token was written for all to read")
        server.stop()
        for name in ("application.key", "log.key", "admin.token"):
            path = os.path.join(server.data_dir, name)
            if not os.path.exists(path):
                raise Broken(f"there is no {name}")
            os.chmod(path, 0o644)
            server.config = ""
            server.start()
            hold(name in server.log(), f"{name} with mode 644: the log does not warn")
            server.stop()
            server.config = "regulated = true\n"
            hold(name in server.refuses_to_start(), f"{name} with mode 644: the refusal does not name it")
            os.chmod(path, 0o600)
    finally:
        server.remove()


@files.case("a database with bytes turned is refused or reported, never believed", own=True, stores=("sqlite",))
def damaged(lab, store):
    server = used(lab, store)
    try:
        server.stop()
        size = os.path.getsize(database(server))
        with open(database(server), "r+b") as file:
            for place in range(size // 3, size, max(size // 9, 1)):
                file.seek(place)
                byte = file.read(1) or b"\0"
                file.seek(place)
                file.write(bytes([byte[0] ^ 0x5A]))
        try:
            server.start()
        except Broken:
            hold(server.process.poll() is not None and server.process.returncode > 0, f"it crashed: {server.last_words()}")
            return
        status, said = server.command("audit", "verify")
        whole = status == 0 and "Verified" in said
        hold(not whole or len(server.admin.get("/v1/runs").made()["items"]) == 3, f"it believes what was damaged: {said}")
    finally:
        server.remove()
