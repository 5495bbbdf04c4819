"""Generated requests for everything that /openapi.json describes, by schemathesis, with links between operations."""

import os
import re
import subprocess
import sys
import time

from .matrix import SCOPES
from .report import Broken, Probe, hold

openapi = Probe("generated requests")
PROBES = [openapi]

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,ignored_auth"
# Schemathesis infers links from the description; fewer than this means that nothing got behind the door.
LINKS = 5
HOOKS = os.path.join(os.path.dirname(__file__), "hooks")


def furnish(server, caller):
    """What the hooks name."""
    flow = "kind: workflow\nname: probe-flow\non: [{event: probe.asked}]\norder: linear\n"
    flow += f"gate_spec: {{cancel: {{approver_ref: {caller.name}, scope: s}}}}\nsteps: [{{name: A}}, {{name: B, run: human, pic: {caller.name}}}]\n"
    process = "kind: process\nname: probe-process\nstates: [a, b]\ninitial_state: a\nterminal_states: [b]\n"
    process += "transitions: [{from: a, action: turn, to: a}, {from: a, action: go, to: b, guard: g}]\n"
    process += f"gate_spec: {{g: {{approver_ref: {caller.name}, scope: s}}}}\n"
    for document in (flow, process):
        server.admin.publish(document).made()


def generate(server, phases, examples, seconds, *more):
    """One run of schemathesis: how many requests it made. Its caller has every scope and is not admin: what it revokes by
    chance is its own."""
    caller = server.actor(*SCOPES)
    furnish(server, caller)
    report = os.path.join(server.directory, "schemathesis")
    os.makedirs(report, exist_ok=True)
    # Links would lead it to its own grants and tokens, and everything after that would be refused.
    left_out = "/revoke$|^/v1/stream$" if "stateful" in phases else "^/v1/stream$"
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{server.port}/openapi.json",
        "--header", f"Authorization: Bearer {caller.token}", "--phases", phases, "--max-examples", str(examples),
        "--seed", str(server.lab.seed), "--checks", CHECKS, "--continue-on-failure", "--suppress-health-check", "all",
        "--request-timeout", "30", "--no-color", "--warnings", "off", "--workers", "1", "--max-failures", "20",
        "--generation-database", "none", "--exclude-path-regex", left_out, *more,
    ]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "countersign_hooks", "PYTHONPATH": HOOKS}
    run = subprocess.run(command, cwd=report, env=environment, capture_output=True, text=True, timeout=seconds)
    said = run.stdout + run.stderr
    hold(server.alive(), f"the server ended: {server.last_words()}")
    if run.returncode:
        raise Broken(f"schemathesis says ({run.returncode}):\n{interesting(said)}")
    found = re.search(r"(\d+) generated", said)
    hold(found and int(found.group(1)) > 50, f"it made hardly a request: {said[-600:]}")
    links = re.search(r"API Links:\s+(\d+) covered", said)
    if "stateful" in phases:
        hold(links and int(links.group(1)) >= LINKS, f"hardly a link was followed: {links and links.group(0)}")
    server.lab.note(f"{found.group(1)} requests generated{f', {links.group(1)} links followed' if links else ''}")


def interesting(said):
    """The failures, without the banner and the progress."""
    start = said.find("= FAILURES =")
    if start < 0:
        start = max(said.find("= ERRORS ="), 0)
    return said[start : start + 6000]


@openapi.case("no generated request gets a 5xx or an answer that is not described", short=("sqlite",))
def stateless(server):
    short = server.lab.short
    with server.watched(memory_mb=400, health_s=5):
        generate(server, "fuzzing" if short else "examples,coverage,fuzzing", 4 if short else 40, 1800)


@openapi.case("nor does a sequence of linked requests")
def stateful(server):
    with server.watched(memory_mb=400, health_s=5):
        generate(server, "stateful", 60, 1800)


@openapi.case("what is revoked by chance breaks nothing", own=True)
def revocations(lab, store):
    server = lab.server(store).start()
    try:
        began = time.monotonic()
        caller = server.actor("actors:manage", "permissions:manage")
        while time.monotonic() - began < 5:
            for path in ("grants/x", "actors/x/keys/y", "actors/%00/tokens/z", "actors/admin/tokens/z"):
                answer = caller.post(f"/v1/{path}/revoke", {})
                hold(answer.status in (400, 403, 404, 409), f"{path}: {answer}")
        server.sound()
    finally:
        server.remove()
