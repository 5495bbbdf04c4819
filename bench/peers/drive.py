#!/usr/bin/env python3
"""Drives one peer through W1, W2 and W3 and prints a JSON line per result. See README.md; run it through run.sh.

    drive.py PEER STORE --postgres URL --workdir DIR -- COMMAND...

The peer's program does the work and nothing else. What is counted (time, durable rows, WAL, commits) is counted
here, in the same way for everyone.
"""

import argparse
import json
import pathlib
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from urllib.parse import urlsplit, urlunsplit

HERE = pathlib.Path(__file__).parent
STEPS = 10
W2_RUNS = 200
# A backend of PostgreSQL reports what it counted at the latest when it has been idle for ten seconds.
REPORTED_S = 11
# How long rows may take to appear after the program said that the work was done.
SETTLED_S = 10


class Postgres:
    """A database of its own on the server of `url`, gone afterwards."""

    def __init__(self, peer, url):
        self.name = "peer_" + re.sub(r"\W", "_", peer)
        self.server = url
        self.url = urlunsplit(urlsplit(url)._replace(path="/" + self.name))

    def __enter__(self):
        psql(self.server, f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
        psql(self.server, f"CREATE DATABASE {self.name}")
        if psql(self.server, "SHOW fsync") != "on":
            print("note: fsync is off, so these numbers mean nothing", file=sys.stderr)
        return self

    def __exit__(self, *_):
        psql(self.server, f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")

    def count(self, sql):
        return int(psql(self.url, sql))

    def written(self):
        """WAL flushes, WAL bytes and commits up to now."""
        time.sleep(REPORTED_S)
        version = int(psql(self.url, "SHOW server_version_num"))
        syncs = "wal_sync" if version < 180000 else "(SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal')"
        row = psql(self.url, f"SELECT {syncs}, wal_bytes, xact_commit FROM pg_stat_wal, pg_stat_database "
                             f"WHERE datname = '{self.name}'")
        return [int(field) for field in row.split("|")]


class Sqlite:
    """A file in the peer's working directory."""

    def __init__(self, peer, directory):
        self.path = directory / f"{peer}.sqlite"
        self.url = f"sqlite:///{self.path}"

    def __enter__(self):
        self.__exit__()
        return self

    def __exit__(self, *_):
        for file in self.path.parent.glob(self.path.name + "*"):
            file.unlink()

    def count(self, sql):
        connection = sqlite3.connect(self.path, timeout=30)
        try:
            return connection.execute(sql).fetchone()[0]
        finally:
            connection.close()

    def written(self):
        return None


class Own:
    """A store of the peer's own: a directory, and the program says what is in it."""

    def __init__(self, peer, directory):
        self.path = directory / f"{peer}.store"
        self.url = str(self.path)
        self.program = None

    def __enter__(self):
        self.__exit__()
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def count(self, query):
        return self.program.do("COUNT", f"0 {query}")[0]

    def written(self):
        return None


def psql(url, sql):
    run = subprocess.run(["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql, url], text=True, capture_output=True)
    if run.returncode:
        raise SystemExit(f"psql: {run.stderr.strip()}")
    return run.stdout.strip()


class Program:
    """The peer's program: answers "W1 200" with the milliseconds of each run, or with [] where only the whole counts."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer("ready")

    def answer(self, start):
        for line in self.process.stdout:
            if line.startswith(start):
                return line
            print(line, end="", file=sys.stderr)
        raise SystemExit(f"the program ended with status {self.process.wait()}")

    def do(self, work, count):
        print(f"{work} {count}", file=self.process.stdin, flush=True)
        return json.loads(self.answer("["))

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def version(peer, package):
    """From the lock file: the one place where it is pinned."""
    directory = HERE / peer
    for name, pattern in [
        ("Cargo.lock", rf'name = "{package}"\nversion = "([^"]+)"'),
        ("package-lock.json", rf'"node_modules/{package}": {{\s*"version": "([^"]+)"'),
        ("requirements.txt", rf"(?m)^{package}==(\S+)"),
    ]:
        if (directory / name).exists():
            return re.search(pattern, (directory / name).read_text())[1]
    raise SystemExit(f"{peer} has no lock file")


def checked(place, program, work, count, rows_sql):
    """Has the work done and makes sure that every step of it left its row. Returns the answer and the seconds."""
    expected = place.count(rows_sql) + count * (1 if work == "W3" else STEPS)
    begin = time.monotonic()
    milliseconds = program.do(work, count)
    seconds = time.monotonic() - begin
    while (rows := place.count(rows_sql)) < expected and time.monotonic() < begin + seconds + SETTLED_S:
        time.sleep(0.1)
    if rows != expected:
        raise SystemExit(f"{work}: {rows} rows of durable steps where {expected} belong: this program measures something else")
    return milliseconds, seconds


def measure(place, program, settings):
    rows_sql = settings.get("rows")
    if count := settings.get("W1"):
        checked(place, program, "W1", max(count // 10, 10), rows_sql)
        before = place.written()
        _, seconds = checked(place, program, "W1", count, rows_sql)
        result = {"work": "W1", "per_s": count / seconds}
        if before:
            syncs, size, commits = (after - b for after, b in zip(place.written(), before))
            result |= {"wal_syncs_per_workflow": syncs / count, "wal_kib_per_workflow": size / 1024 / count,
                       "commits_per_workflow": commits / count}
        yield result
        checked(place, program, "W2", 10, rows_sql)
        milliseconds, seconds = checked(place, program, "W2", W2_RUNS, rows_sql)
        percentiles = statistics.quantiles(milliseconds, n=100, method="inclusive")
        yield {"work": "W2", "per_s": W2_RUNS / seconds, "p50_ms": percentiles[49], "p99_ms": percentiles[98]}
    if count := settings.get("W3"):
        jobs_sql = settings.get("jobs", rows_sql)
        checked(place, program, "W3", max(count // 10, 10), jobs_sql)
        _, seconds = checked(place, program, "W3", count, jobs_sql)
        yield {"work": "W3", "per_s": count / seconds}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer")
    parser.add_argument("store", choices=["postgres", "sqlite", "own"])
    parser.add_argument("--postgres", required=True)
    parser.add_argument("--workdir", required=True, type=pathlib.Path)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()

    peer = json.loads((HERE / args.peer / "peer.json").read_text())
    head = {"peer": args.peer, "version": version(args.peer, peer["package"]), "store": args.store}
    if args.store == "postgres":
        place = Postgres(args.peer, args.postgres)
    else:
        place = {"sqlite": Sqlite, "own": Own}[args.store](args.peer, args.workdir.resolve())
    with place:
        program = place.program = Program([*args.command, place.url])
        try:
            for result in measure(place, program, peer["stores"][args.store]):
                rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in result.items()}
                print(json.dumps(head | rounded), flush=True)
        finally:
            program.end()


if __name__ == "__main__":
    main()
