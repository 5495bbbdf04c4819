"""Definitions that cost much: schemas, patterns and expressions. Each is refused where it is published, or fails its
step in bounded time; meanwhile the server answers others."""

import json
import sys
import threading
import time
import uuid
from http.client import HTTPException

from .report import Broken, Probe, hold
from .server import patience

schemas = Probe("schemas and expressions")
PROBES = [schemas]

# Generous: 50 ms of CPU per command is measured by a bench, here a busy machine and a debug binary must pass.
COMMAND_S = 5.0
# Documents of great depth are written here, too.
sys.setrecursionlimit(50_000)


def fresh(prefix="d"):
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def workflow(name, **more):
    return json.dumps({"kind": "workflow", "name": name, "queue": name, "steps": [{"name": "A"}], **more})


def chain(depth):
    """Each definition refers to the next."""
    defs = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(depth)}
    defs[f"d{depth}"] = {"type": "object"}
    return {"$ref": "#/$defs/d0", "$defs": defs}


def doubling(levels):
    """Each level is one of twice the next: 2^levels ways through."""
    defs = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(levels)}
    defs[f"d{levels}"] = {"type": "string", "maxLength": 0}
    return {"$ref": "#/$defs/d0", "$defs": defs}


def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def quick(server, what, call):
    """A command that is answered in bounded time, whatever the answer is, by a server that lives on."""
    began, answer = time.monotonic(), None
    try:
        answer = call()
    except TimeoutError as error:
        raise Broken(f"{what}: no answer within a minute") from error
    except (OSError, HTTPException) as error:
        time.sleep(0.5)
        died = f"the server ended with {server.process.poll()}: {server.last_words()[-200:]}"
        raise Broken(f"{what}: {died if not server.alive() else error}") from error
    took = time.monotonic() - began
    hold(took <= COMMAND_S * patience(), f"{what} took {took:.1f} s ({answer})")
    hold(answer.status < 500 or answer.status == 503, f"{what}: {answer}")
    return answer


def published(server, document):
    """Whether it was published; a refusal is an answer, too."""
    answer = quick(server, "publishing", lambda: server.admin.publish(document))
    return answer.status in (200, 201)


def bounded(server, name, input, memory_mb=300):
    """Starting a run and working on it, with other people's commands going on beside it."""
    others = Others(server)
    with server.watched(memory_mb=memory_mb), others:
        started = quick(server, "starting a run", lambda: server.admin.start_run(name, input))
        if started.status == 201:
            quick(server, "claiming", lambda: server.admin.post(f"/v1/queues/{name}/claim", {"worker_id": "probe"}))
            time.sleep(0.3)
    others.check()
    return started


class Others:
    """Somebody else's commands: they are not held up."""

    def __init__(self, server):
        self.server, self.slowest, self.done = server, 0.0, threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.done.set()
        self.thread.join(120)

    def work(self):
        while not self.done.is_set():
            began = time.monotonic()
            try:
                self.server.admin.post("/v1/grants", {"subject_ref": "admin", "action_scope": f"probe:{fresh()}"})
            except OSError:
                return
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.done.wait(0.05)

    def check(self):
        hold(self.slowest <= COMMAND_S * patience(), f"another caller's command took {self.slowest:.1f} s meanwhile")


@schemas.case("a chain of 10,000 references cannot crash the server, nor keep it from starting", short=True, own=True)
def reference_chain(lab, store):
    server = lab.server(store).start()
    try:
        names = []
        for field in ["inputSchema"] if lab.short else ["inputSchema", "outputSchema"]:
            for depth in [10_000] if lab.short else [60, 2_000, 10_000]:
                name, schema = fresh(), chain(depth)
                more = {field: schema} if field == "inputSchema" else {"steps": [{"name": "A", field: schema}]}
                more["schedule"] = [{"cron": "* * * * *"}]
                quick(server, "publishing", lambda: server.admin.publish(workflow(name, **more)))
                hold(server.alive(), f"{depth} references in {field}: the server ended: {server.last_words()}")
                if server.admin.get(f"/v1/definitions/{name}").status == 200:
                    names.append((name, depth))
        server.restart()
        # What was stored is loaded when it is first needed.
        for name, depth in names:
            quick(server, "starting a run", lambda: server.admin.start_run(name, {}))
            hold(server.alive(), f"a run with {depth} references: the server ended: {server.last_words()}")
        server.restart()
        server.sound()
    finally:
        server.remove()


@schemas.case("schemas, expressions and documents of great depth are refused or loaded, never fatal", short=("sqlite",), own=True)
def deep(lab, store):
    server = lab.server(store).start()
    try:
        problems = []
        deep_json = '{"a":' * 3000 + "1" + "}" * 3000
        for what, document in {
            "nested arrays": workflow(fresh(), inputSchema=nested(3000)),
            "a loop of references": workflow(
                fresh(), inputSchema={"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            "parentheses": workflow(fresh(), steps=[{"name": "A", "when": "${" + "(" * 5000 + "true" + ")" * 5000 + "}"}]),
            "negations": workflow(fresh(), steps=[{"name": "A", "when": "${" + "!" * 20000 + "true}"}]),
            "a long sum": workflow(fresh(), steps=[{"name": "A", "input": {"x": "${" + "1+" * 20000 + "1}"}}]),
            "lists in lists": workflow(fresh(), steps=[{"name": "A", "input": {"x": "${" + "[" * 5000 + "]" * 5000 + "}"}}]),
            "a deep document": workflow(fresh()).replace('"steps"', f'"output": {deep_json}, "steps"'),
            "deep YAML": f"kind: workflow\nname: {fresh()}\noutput: " + "{a: " * 3000 + "1" + "}" * 3000 + "\nsteps: [{name: A}]\n",
            "YAML's aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
                f"{c}: &{c} [{','.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi")),
        }.items():
            try:
                with server.watched():
                    quick(server, what, lambda: server.admin.publish(document))
                    quick(server, what, lambda: server.admin.call("POST", "/v1/definitions/validate", document))
            except Broken as broken:
                problems.append(str(broken))
                if not server.alive():
                    server.start()
        hold(not problems, "; ".join(problems))
        server.restart()
        server.sound()
    finally:
        server.remove()


@schemas.case("20 levels of `anyOf` of two references: bounded time and memory", short=("sqlite",))
def any_of(server):
    name = fresh()
    if published(server, workflow(name, inputSchema=doubling(20))):
        started = bounded(server, name, {"x": 1})
        hold(started.status >= 400, f"what fits no branch was accepted: {started}")


@schemas.case("20 levels of `anyOf` behind a worker's output: bounded, and the step fails")
def any_of_output(server):
    name = fresh()
    steps = [{"name": "A", "outputSchema": doubling(20)}]
    if not published(server, workflow(name, steps=steps)):
        return
    run = server.admin.start_run(name, {}).made()["run_id"]
    task = server.admin.claim(name)[0]
    with server.watched():
        report = {"lease_token": task["lease_token"], "output": {"x": 1}}
        quick(server, "completing", lambda: server.admin.post(f"/v1/tasks/{task['task_id']}/complete", report)).made()
    hold(server.admin.get(f"/v1/runs/{run}").made()["steps"][0]["state_code"] == "failed", "the step did not fail")


@schemas.case("an enum of 20,000 values over 50,000 items: bounded", short=("sqlite",))
def enum(server):
    name = fresh()
    values = [{"v": n} for n in range(20_000)]
    schema = {"type": "object", "properties": {"x": {"type": "array", "items": {"enum": values}}}}
    if published(server, workflow(name, inputSchema=schema)):
        bounded(server, name, {"x": [{"v": -n} for n in range(1, 50_001)]})


@schemas.case("uniqueItems, patterns and numbers over large inputs: bounded")
def keywords(server):
    many = list(range(80_000))
    for schema, input in (
        ({"properties": {"x": {"uniqueItems": True}}}, {"x": [{"a": n} for n in range(40_000)]}),
        ({"properties": {"x": {"items": {"pattern": "^(a+)+$"}}}}, {"x": ["a" * 200 + "!"] * 2000}),
        ({"properties": {"x": {"contains": {"const": -1}, "minContains": 1}}}, {"x": many}),
        ({"properties": {"x": {"items": {"multipleOf": 0.0001}}}}, {"x": many}),
        ({"patternProperties": {f"^{n}.*(a|b)+$": {"type": "string"} for n in range(500)}}, {f"k{n}": 1 for n in range(5000)}),
        ({"properties": {"x": {"dependentSchemas": {f"p{n}": {"required": ["q"]} for n in range(2000)}}}}, {"x": {"p1": 1}}),
    ):
        name = fresh()
        if published(server, workflow(name, inputSchema=schema)):
            bounded(server, name, input)


@schemas.case("`matches` in a loop is charged: bounded, EXPRESSION_ERROR where it is too much", short=("sqlite",))
def matches(server):
    for expression in (
        "${input.x.all(s, s.matches('^(a|b|c|d|e|f|g|h)+[0-9]{1,200}$'))}",
        "${input.x.exists(s, input.x.exists(t, (s + t).matches('x{1,500}y{1,500}z')))}",
        "${input.x.all(s, s.matches(s + '{1,300}'))}",
    ):
        name = fresh()
        steps = [{"name": "A", "input": {"v": expression}}]
        if published(server, workflow(name, steps=steps)):
            bounded(server, name, {"x": [f"a{n}" for n in range(20_000)]})


@schemas.case("200 `when`s, each within a budget, share one budget", short=("sqlite",))
def whens(server):
    name = fresh()
    condition = "${input.x.all(a, input.x.all(b, a + b >= 0)) && false}"
    steps = [{"name": f"S{n}", "when": condition} for n in range(200)]
    document = json.dumps({"kind": "workflow", "name": name, "queue": name, "order": "linear", "steps": steps})
    if published(server, document):
        bounded(server, name, {"x": list(range(500))})


@schemas.case("nested comprehensions and growing strings: bounded")
def comprehensions(server):
    for expression, input in (
        ("${input.x.map(a, input.x.map(b, input.x.map(c, [a, b, c])))}", {"x": list(range(300))}),
        ("${input.x.map(a, input.s + input.s)}", {"x": list(range(2000)), "s": "x" * 100_000}),
        ("${input.x.all(a, input.x.all(b, input.x.all(c, a + b + c >= 0)))}", {"x": list(range(1000))}),
        ("${" + " + ".join(["input.s"] * 500) + "}", {"s": "x" * 500_000}),
    ):
        name = fresh()
        if published(server, workflow(name, steps=[{"name": "A", "input": {"v": expression}}])):
            bounded(server, name, input)


@schemas.case("a definition that would cost too much to load is quarantined, and its neighbours run", own=True)
def neighbours(lab, store):
    server = lab.server(store).start()
    try:
        server.admin.publish(workflow("good")).made()
        for document in (workflow("bad-chain", inputSchema=chain(10_000)), workflow("bad-any", inputSchema=doubling(24))):
            server.admin.publish(document)
        server.kill()
        try:
            server.start(wait=30)
        except Broken as broken:
            raise Broken(f"after a restart: {broken}") from broken
        run = server.admin.start_run("good", {}).made()["run_id"]
        hold(server.admin.get(f"/v1/runs/{run}").status == 200, "the good one does not run")
        server.sound()
    finally:
        server.remove()
