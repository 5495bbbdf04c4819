"""Shell steps that misbehave: they end in time, leave nothing running, and cost no memory."""

import json
import os
import uuid

from .report import Probe, hold
from .server import eventually

shell = Probe("shell", config="[executors.shell]\nenabled = true\n")
PROBES = [shell]

MARK = "countersign-probe-marker"


def run_steps(server, commands, input=None, timeout="3s", within=40):
    """A run with one step per command, side by side; how each ended: {name: (state_code, last_error, output)}."""
    name = f"s-{uuid.uuid4().hex[:8]}"
    steps = [
        {"name": step, "run": "shell", "command": command, "timeout": timeout, "onFailure": "skip", "dependsOn": [],
         "retryPolicy": {"maxRetries": 0}}
        for step, command in commands.items()
    ]
    if len(steps) > 1:
        steps = [{"name": "go", "run": "shell", "command": "true"}] + [{**step, "dependsOn": ["go"]} for step in steps]
    for step in steps:
        if not step.get("dependsOn"):
            step.pop("dependsOn", None)
    server.admin.publish(json.dumps({"kind": "workflow", "name": name, "steps": steps})).made()
    run = server.admin.start_run(name, input or {}).made()["run_id"]
    view = lambda: server.admin.get(f"/v1/runs/{run}").made()
    ended = lambda: view()["state"] in ("completed", "failed")
    eventually(ended, within, f"the run did not end: {[(s['name'], s['state_code']) for s in view()['steps']]}", pause=0.2)
    return {
        step["name"]: (step["state_code"], step.get("last_error") or "", step.get("output"))
        for step in view()["steps"] if step["name"] != "go"
    }


def left(mark):
    """Processes whose command line or environment holds this."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read()
            if mark.encode() in line and b"probe" not in line.split(b"\0")[0]:
                found.append((pid, line.replace(b"\0", b" ")[:80]))
        except OSError:
            continue
    return found


def fresh_mark():
    return f"{MARK}-{uuid.uuid4().hex[:8]}"


def sleeping(mark):
    """A process that can be recognised."""
    return f"sh -c 'sleep 300; : {mark}'"


@shell.case("processes that ignore SIGTERM, fork, or outlive their step are gone with it", short=("sqlite",))
def leftovers(server):
    mark = fresh_mark()
    sleep = sleeping(mark)
    commands = {
        "ignores-term": f"trap '' TERM INT HUP; {sleep}",
        "forks": f"i=0; while [ $i -lt 100 ]; do {sleep} & i=$((i+1)); done; wait",
        "leaves-children": f"{sleep} >/dev/null 2>&1 & {sleep} >/dev/null 2>&1 & echo '{{}}'",
        "keeps-the-pipe": f"{sleep} & echo '{{}}'",
        "stops-itself": f"{sleep} & kill -STOP $$",
        "replaces-itself": f"exec {sleep}",
    }
    with server.watched(memory_mb=100):
        ended = run_steps(server, commands)
    hold(ended["leaves-children"][0] == "completed", f"{ended['leaves-children']}")
    hold("STEP_TIMEOUT" in ended["ignores-term"][1], f"{ended['ignores-term']}")
    eventually(lambda: not left(mark), 10, f"still there: {left(mark)[:3]}")


@shell.case("a process that leaves its session holds nobody up")
def session(server):
    mark = fresh_mark()
    try:
        # It cannot be killed with the group (ADR 17): whoever may publish a shell step may do as much as the server's user.
        ended = run_steps(server, {"leaves": f"setsid {sleeping(mark)} & echo '{{}}'"}, within=15)
        hold(ended["leaves"][0] == "completed", f"{ended}")
    finally:
        for pid, _ in left(mark):
            os.kill(int(pid), 9)


@shell.case("endless, binary, long and missing output is bounded", short=("sqlite",))
def output(server):
    commands = {
        "endless": "yes countersign",
        "endless-errors": "yes countersign >&2",
        "zeros": "head -c 50000000 /dev/zero",
        "one-line": "head -c 30000000 /dev/zero | tr '\\0' a",
        "nul-in-json": "printf '{\"a\": \"\\\\u0000\"}\\n'",
        "bytes": "printf '\\377\\376\\000{\"a\":1}\\n'",
        "deep": "head -c 200000 /dev/zero | tr '\\0' '['",
        "large-number": "echo '{\"a\": 1e999, \"b\": 99999999999999999999}'",
        "twice": "echo '{\"a\": 1, \"a\": 2}'",
        "closes": "exec >&- 2>&- <&-; sleep 1",
        "no-input": "exec <&-; echo '{\"ok\": true}'",
        "control": "printf '{\"result\": \"completed\", \"output\": {\"x\": \"\\\\u001b[31m\"}}\\n'",
        "pretends": "echo '{\"result\": \"waiting\", \"timeout_ms\": -5}'",
    }
    with server.watched(memory_mb=200):
        ended = run_steps(server, commands, input={"x": "y" * 500_000})
    hold("STEP_TIMEOUT" in ended["endless"][1], f"endless output: {ended['endless'][:2]}")
    hold(ended["no-input"][0] == "completed", f"no-input: {ended['no-input'][:2]}")
    for step, (_, error, value) in ended.items():
        hold(len(error) <= 8192, f"{step}: an error of {len(error)} characters")
        hold("\u0000" not in json.dumps(value) and "\\u0000" not in json.dumps(value), f"{step}: a NUL in the output")
    after = run_steps(server, {"fine": "echo '{\"fine\": true}'"})
    hold(after["fine"][0] == "completed" and after["fine"][2] == {"fine": True}, f"afterwards: {after}")


@shell.case("a step sees neither the server's environment nor its descriptors", short=("sqlite",))
def confined(server):
    ended = run_steps(server, {
        "environment": "env | tr '\\n' ';' | sed 's/\"//g; s/.*/{\"env\": \"&\"}/'",
        "descriptors": "ls /proc/self/fd | tr '\\n' ' ' | sed 's/.*/{\"fds\": \"&\"}/'",
        "directory": "pwd | sed 's/.*/{\"pwd\": \"&\"}/'; ls -A | wc -l >&2",
    })
    names = {item.split("=")[0] for item in ended["environment"][2]["env"].split(";") if item}
    known = {"PATH", "LANG", "HOME", "PWD", "OLDPWD", "SHLVL", "_"}
    hold(all(name in known or name.startswith("COUNTERSIGN_") for name in names), f"the environment holds {sorted(names)}")
    hold(server.admin.token not in json.dumps(ended), "the environment holds a token")
    fds = {int(number) for number in ended["descriptors"][2]["fds"].split()}
    hold(max(fds) < 10, f"open descriptors: {sorted(fds)}")


@shell.case("many steps at once, killed with the server, leave nothing behind", own=True)
def killed(lab, store):
    server = lab.server(store, "[executors.shell]\nenabled = true\n").start()
    mark = fresh_mark()
    try:
        document = {"kind": "workflow", "name": "many", "steps": [{"name": "A", "run": "shell", "command": sleeping(mark)}]}
        server.admin.publish(json.dumps(document)).made()
        for _ in range(20):
            server.admin.start_run("many").made()
        eventually(lambda: left(mark), 15, "nothing was started")
        server.kill()
        eventually(lambda: not left(mark), 15, f"still there after kill -9: {left(mark)[:3]}")
        server.start()
        server.sound()
    finally:
        server.remove()
