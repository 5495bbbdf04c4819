"""Cases, their verdicts, and the table at the end."""

import dataclasses
import sys
import threading
import time
import traceback


class Broken(Exception):
    """Something that must hold does not."""


def hold(condition, message):
    """What a case claims. The message says what happened instead."""
    if not condition:
        raise Broken(message)


class Probe:
    """A group of cases that share a server. Each case says in its title what must hold."""

    def __init__(self, name, config="", stores=("sqlite", "postgres"), alone=False):
        """`alone`: it disturbs the PostgreSQL that all share, so nothing else runs meanwhile."""
        self.name, self.config, self.stores, self.alone = name, config, stores, alone
        self.cases = []

    def case(self, title, short=(), own=False, stores=None):
        """`short`: the stores on which it is part of the short form, or True for all. `own`: the case is handed the lab and
        the store and starts servers itself."""

        def register(function):
            on = stores or self.stores
            self.cases.append(Case(title, function, on, on if short is True else tuple(short), own))
            return function

        return register


@dataclasses.dataclass
class Case:
    title: str
    function: object
    stores: tuple
    short: tuple
    own: bool


class Report:
    def __init__(self, verbose=False):
        self.verbose = verbose
        self.probes = {}
        self.failures = []
        self.lock = threading.Lock()

    def run(self, probe, title, function):
        """Runs one case. One that cannot be carried out has not held either; the others go on."""
        began, problem = time.monotonic(), None
        try:
            function()
        except Broken as broken:
            problem = str(broken)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            if self.verbose:
                traceback.print_exc()
        took = time.monotonic() - began
        self.count(probe, 0 if problem else 1, [(title, problem)] if problem else [], took)
        if self.verbose and not problem:
            print(f"  held    {probe}: {title} ({took:.1f} s)", flush=True)
        return problem is None

    def count(self, probe, held, failures, took=0.0):
        """Many small cases at once: `failures` is a list of (title, problem)."""
        with self.lock:
            row = self.probes.setdefault(probe, [0, 0, 0.0])
            row[0] += held
            row[1] += len(failures)
            row[2] += took
            self.failures += [(probe, title, problem) for title, problem in failures]
            for title, problem in failures[:25]:
                print(f"  FAILED  {probe}: {title}\n          {problem}", flush=True)
            if len(failures) > 25:
                print(f"  FAILED  {probe}: {len(failures) - 25} more of these", flush=True)

    def end(self):
        """Prints the table; the exit status."""
        passed = sum(held for held, _, _ in self.probes.values())
        failed = sum(broken for _, broken, _ in self.probes.values())
        width = max([len("probe")] + [len(name) for name in self.probes])
        print(f"\n{'probe':<{width}}  {'cases':>6}  {'held':>6}  {'failed':>6}  {'seconds':>7}")
        for name, (held, broken, took) in self.probes.items():
            print(f"{name:<{width}}  {held + broken:>6}  {held:>6}  {broken:>6}  {took:>7.1f}")
        if passed + failed == 0:
            print("no case was run", file=sys.stderr)
        print(f"{passed} passed, {failed} failed")
        return 0 if failed == 0 and passed > 0 else 1
