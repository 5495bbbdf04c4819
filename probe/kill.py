"""`kill -9` under load: everything acknowledged is there afterwards. The long form reuses countersign-torture."""

import os
import re
import subprocess
import time

from .database import Load
from .report import Probe, hold

kill = Probe("kill -9")
PROBES = [kill]


@kill.case("acknowledged writes survive kill -9 under load", short=True, own=True)
def killed(lab, store):
    server = lab.server(store).start()
    acknowledged = 0
    try:
        for _ in range(2 if lab.short else 5):
            with Load(server) as load:
                time.sleep(1.0)
                server.process.kill()
                server.process.wait()
                load.done.set()
            server.start()
            refused = {what: n for what, n in load.answers.items() if isinstance(what, int) and what not in (201, 429, 503)}
            hold(not refused, f"other answers: {refused}")
            load.kept(allowed=tuple(load.answers))
            acknowledged += len(load.acknowledged)
        hold(acknowledged > 20, f"only {acknowledged} writes were acknowledged")
        server.sound()
    finally:
        server.remove()


@kill.case("after a restart with thousands of live runs, /readyz is honest and the first write comes soon", own=True)
def restarted(lab, store):
    server = lab.server(store).start()
    try:
        server.admin.publish("kind: workflow\nname: w\nsteps: [{name: A}]\n").made()
        until = time.monotonic() + 60
        runs = 0
        while runs < 5000 and time.monotonic() < until:
            server.admin.start_run("w").made()
            runs += 1
        server.kill()
        began = time.monotonic()
        server.start()
        ready = time.monotonic()
        server.admin.start_run("w").made()
        hold(time.monotonic() - ready < 2, f"the first write took {time.monotonic() - ready:.1f} s after /readyz ({runs} runs)")
        hold(ready - began < 15, f"it was ready after {ready - began:.1f} s ({runs} runs)")
        server.sound()
    finally:
        server.remove()


@kill.case("a step of countersign-torture: crashes under load with workers and two nodes", own=True)
def torture(lab, store):
    hold(os.path.exists(lab.torture), f"{lab.torture} was not built")
    environment = {**os.environ, "COUNTERSIGN_BIN": lab.binary}
    command = [lab.torture, "--store", store, "--only", "crash", "--minutes", "0", "--seed", str(lab.seed)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500)
    said = run.stdout + run.stderr
    hold(run.returncode == 0 and re.search(r"\d+ parts passed", said), said[-1500:])
