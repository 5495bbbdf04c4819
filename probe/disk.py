"""A full disk: a small file system in memory, which needs root. Without it, a limit on the size of files stands in for it,
and the probe says so."""

import contextlib
import os
import resource
import subprocess
import uuid

from .report import Broken, Probe, hold
from .server import eventually

disk = Probe("full disk")
PROBES = [disk]


def large():
    """Something that no store can compress."""
    return {"x": os.urandom(20_000).hex()}


@contextlib.contextmanager
def small(lab, megabytes, owner=None):
    """A file system of this size; None where it cannot be mounted."""
    path = os.path.join(lab.directory, f"small-{uuid.uuid4().hex[:6]}")
    os.makedirs(path)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", path]
    if subprocess.run(mount, capture_output=True).returncode:
        yield None
        return
    try:
        if owner:
            subprocess.run(["chown", owner, path], check=True)
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=False)


def fill(server, most=4000):
    """Starts runs until one is refused for want of room; the acknowledged ones."""
    kept = []
    for _ in range(most):
        answer = server.admin.start_run("w", large())
        if answer.status == 201:
            kept.append(answer["run_id"])
        elif answer.status == 503:
            return kept
        else:
            raise Broken(f"on a full disk: {answer}")
    raise Broken("the disk never became full")


def check(server, full, free):
    """Fills it, looks at it while it is full, frees room, and sees that nothing is lost."""
    server.start()
    server.admin.publish("kind: workflow\nname: w\nsteps: [{name: A}]\n").made()
    with server.watched(memory_mb=300):
        kept = fill(server)
        full()
        for _ in range(20):
            hold(server.admin.start_run("w", large()).status == 503, "it writes on a full disk")
        ready = server.anonymous.get("/readyz")
        hold(ready.status == 503, f"/readyz on a full disk: {ready}")
        hold(server.admin.get(f"/v1/runs/{kept[0]}").status == 200, "reads fail on a full disk")
    free()
    eventually(lambda: server.admin.start_run("w", large()).status == 201, 30, "writes do not come back once there is room")
    eventually(lambda: server.anonymous.get("/readyz").status == 200, 30, "/readyz does not come back")
    lost = [run for run in kept if server.admin.get(f"/v1/runs/{run}").status != 200]
    hold(not lost, f"{len(lost)} acknowledged runs are gone")
    server.kill()
    server.start()
    lost = [run for run in kept if server.admin.get(f"/v1/runs/{run}").status != 200]
    hold(not lost, f"{len(lost)} acknowledged runs are gone after kill -9")
    server.sound()


def ballast(path, size):
    with open(path, "wb") as file:
        file.write(bytes(size))


@disk.case("writes are refused, /readyz says so, reads go on, and nothing acknowledged is lost", short=True, own=True,
           stores=("sqlite",))
def sqlite(lab, store):
    with small(lab, 24) as path:
        server = lab.server(store)
        if path is None:
            print("  note: no file system can be mounted here; a limit of the size of files stands in for a full disk")
            server.limits = {resource.RLIMIT_FSIZE: 12 << 20}
            unlimited = lambda: resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            try:
                check(server, lambda: None, unlimited)
            finally:
                server.remove()
            return
        server.data_dir = os.path.join(path, "data")
        filler = os.path.join(path, "ballast")
        ballast(filler, 8 << 20)
        try:
            check(server, lambda: None, lambda: os.unlink(filler))
        finally:
            server.remove()


@disk.case("a database without room: writes are refused, reads go on, nothing acknowledged is lost", own=True,
           stores=("postgres",))
def postgres(lab, store):
    with small(lab, 60, "postgres" if os.geteuid() == 0 else None) as path:
        if path is None:
            raise Broken("this case needs root: a small file system has to be mounted")
        os.chmod(lab.directory, 0o755)
        space = f"small_{uuid.uuid4().hex[:6]}"
        inner = os.path.join(path, "space")
        subprocess.run(["install", "-d", "-o", "postgres", inner], check=True)
        filler = os.path.join(path, "ballast")
        ballast(filler, 12 << 20)
        lab.postgres.sql(f"CREATE TABLESPACE {space} LOCATION '{inner}'")
        server = lab.server(store)
        server.database = lab.postgres.database(space)
        try:
            check(server, lambda: None, lambda: os.unlink(filler))
        finally:
            server.remove()
            lab.postgres.sql(f"DROP TABLESPACE {space}", check=False)
