"""Runs the probes and prints what held. Every case runs against a real server on SQLite and on PostgreSQL."""

import argparse
import atexit
import concurrent.futures
import importlib
import os
import shutil
import sys
import tempfile
import time
import uuid

from .postgres import Postgres
from .report import Report
from .server import Server

# In this order: what is quick and tells most comes first.
PROBES = [
    "matrix", "authority", "names", "protocol", "runs", "schemas", "memory", "openapi", "files", "verification", "shell",
    "webhooks", "nats", "witness", "database", "disk", "clock", "kill",
]


class Lab:
    """Where servers are made, and what all of them need."""

    def __init__(self, options):
        self.binary = os.path.abspath(os.path.join(options.binaries, "countersign"))
        self.verifier = os.path.abspath(os.path.join(options.binaries, "countersign-verify"))
        self.torture = os.path.abspath(os.path.join(options.binaries, "countersign-torture"))
        self.short = options.short
        self.seed = options.seed
        self.report = Report(options.verbose)
        self.directory = tempfile.mkdtemp(prefix="countersign-probe.", dir=options.directory)
        self.processes = []
        address = os.environ.get("COUNTERSIGN_TEST_POSTGRES")
        self.postgres = Postgres(address) if address else None
        atexit.register(self.end)

    def note(self, text):
        print(f"  note    {text}", flush=True)

    def started(self, process):
        self.processes.append(process)

    def server(self, store, config="", environment=None, **more):
        """A server on an empty directory, not started yet."""
        directory = os.path.join(self.directory, uuid.uuid4().hex[:8])
        os.makedirs(directory)
        made = Server(self, store, directory, config, environment)
        for name, value in more.items():
            setattr(made, name, value)
        return made

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def run_probe(lab, probe, store, only):
    """All cases of a probe on one store. They share a server; one that was lost is replaced."""
    row = f"{probe.name} ({store})"
    wanted = [
        case for case in probe.cases
        if store in (case.short if lab.short else case.stores) and (only is None or only in f"{row}: {case.title}")
    ]
    if not wanted:
        return
    shared = None
    try:
        for case in wanted:
            if case.own:
                lab.report.run(row, case.title, lambda: case.function(lab, store))
                continue
            if shared is None:
                shared = lab.server(store, probe.config).start()
            lab.report.run(row, case.title, lambda: case.function(shared))
            if not shared.alive():
                shared.remove()
                shared = None
        if shared is not None:
            lab.report.run(row, "afterwards the log verifies, and so does an export", shared.sound)
    except Exception as error:
        lab.report.count(row, 0, [("the probe could be carried out", f"{type(error).__name__}: {error}")])
    finally:
        if shared is not None:
            shared.remove()


def main():
    parser = argparse.ArgumentParser(prog="probe", description=__doc__)
    parser.add_argument("--binaries", required=True, help="where countersign and countersign-verify are")
    parser.add_argument("--directory", help="parent of the working directory; a disk, not memory")
    parser.add_argument("--short", action="store_true", help="only the cases that make test runs")
    parser.add_argument("--store", choices=["sqlite", "postgres"], help="only on this store")
    parser.add_argument("--probe", action="append", choices=PROBES, help="only this probe; repeatable")
    parser.add_argument("--only", help="only cases whose title, behind the probe's name, holds this text")
    parser.add_argument("--seed", type=int, default=1, help="what generated requests are drawn from")
    parser.add_argument("--jobs", type=int, help="how many probes at a time; 1, or 2 in the short form")
    parser.add_argument("--verbose", action="store_true", help="also name what held")
    options = parser.parse_args()
    lab = Lab(options)
    stores = [options.store] if options.store else ["sqlite", "postgres"]
    if "postgres" in stores and lab.postgres is None:
        sys.exit("probe: COUNTERSIGN_TEST_POSTGRES names no server; run it as scripts/probe.sh")
    began = time.monotonic()
    probes = [p for name in options.probe or PROBES for p in importlib.import_module(f".{name}", __package__).PROBES]
    tasks = [(probe, store) for probe in probes for store in stores if store in probe.stores]
    with concurrent.futures.ThreadPoolExecutor(options.jobs or (2 if options.short else 1)) as pool:
        together = [task for task in tasks if not task[0].alone]
        list(pool.map(lambda task: run_probe(lab, *task, options.only), together))
    for probe, store in [task for task in tasks if task[0].alone]:
        run_probe(lab, probe, store, options.only)
    status = lab.report.end()
    print(f"probe: {time.monotonic() - began:.0f} s, seed {options.seed}")
    lab.end()
    sys.exit(status)


if __name__ == "__main__":
    main()
