"""The authorization matrix: every route × every scope alone × finer scopes × {token, cookie with its origin, cookie without, none}.

What is expected comes from `scopes.txt`. A denial is 401 without a credential and 403 `permission-denied` with one,
and it is the same answer whether the thing exists or not."""

import base64
import copy
import os
import re
import uuid

from .report import Broken, Probe
from .server import Actor

SCOPES = [
    "workflows:start", "workflows:open-gate", "workflows:fire", "workflows:read", "actors:manage", "permissions:manage",
    "definitions:publish", "definitions:shell", "audit:read", "audit:seal", "audit:purge", "audit:hold", "runs:start",
    "runs:control", "runs:read", "tasks:work", "governance:read", "governance:act",
    "proposals:write",
]
FINER = [scope for scope in SCOPES if scope.split(":")[0] in ("workflows", "runs", "tasks")]
NOWHERE = "019a0000-0000-7000-8000-000000000000"

matrix = Probe("authorization matrix")
PROBES = [matrix]


class Route:
    def __init__(self, line):
        address, who, finer, body = [part.strip() for part in line.split("|", 3)]
        self.method, self.path = address.split()
        self.who = who.split()
        self.finer = finer == "yes"
        self.query = body if body.startswith("?") else ""
        self.body = "" if self.query else body

    def open_to(self, scope):
        return self.who[0] in ("open", "token", "named") or scope in self.who


def routes():
    with open(os.path.join(os.path.dirname(__file__), "scopes.txt")) as file:
        lines = [line for line in file if line.strip() and not line.startswith("#")]
    return [Route(line) for line in lines]


class World:
    """Two definitions of each kind with something of each: `mine`, and `other` for finer scopes to be kept out of."""

    def __init__(self, server):
        self.server, admin = server, server.admin
        self.ids = {}
        for side in ("mine", "other"):
            self.ids[side] = self.furnish(admin, side)
        self.ids["nowhere"] = {
            **{name: NOWHERE for name in self.ids["mine"]},
            "name": "no-such-definition", "version": "1", "step": "NO_SUCH_STEP", "queue": "no-such-queue",
            "task_id": f"{NOWHERE}.0", "code": "not-known", "machine": "step", "action": "go", "actor_ref": "no-such-actor",
            "definition": "no-such-definition", "process": "no-such-definition", "sha256": "f" * 64,
            "actor": "nobody-else", "worker_class": "no-such-queue:nobody",
        }

    def furnish(self, admin, side):
        workflow, process = f"{side}-flow", f"{side}-process"
        admin.publish(
            f"kind: workflow\nname: {workflow}\nqueue: {side}\non: [{{event: {workflow}.asked}}]\n"
            f"order: linear\nsteps: [{{name: A}}, {{name: B, run: human, pic: nobody-here}}]\n"
        ).made()
        admin.publish(
            f"kind: process\nname: {process}\nstates: [a, b]\ninitial_state: a\nterminal_states: [b]\n"
            f"transitions: [{{from: a, action: go, to: b, guard: g}}]\n"
            f"gate_spec: {{g: {{approver_ref: approver-{side}, scope: s}}}}\n"
        ).made()
        run = admin.start_run(workflow).made()["run_id"]
        instance = admin.post("/v1/processes", {"definition": process, "subject_ref": "s"}).made()["instance_id"]
        admin.post(f"/v1/processes/{instance}/gates", {"action": "go"}).made()
        # Where a definition names who approves its next version, it is changed by a proposal.
        changing = f"kind: workflow\nname: {side}-changing\ngate_spec: {{publish: {{approver_ref: approver-{side}, scope: s}}}}\nsteps: [{{name: A}}]\n"
        admin.publish(changing).made()
        proposal = admin.post("/v1/proposals", {
            "proposal_kind": "workflow", "target": f"{side}-changing", "base_version": 1, "document": changing,
            "affected": [], "reason": "probe",
        }).made()["proposal_id"]
        # It holds no scope: whoever adds a credential to an actor must hold what that actor holds.
        victim = f"victim-{side}"
        admin.post("/v1/actors", {"actor_ref": victim, "kind": "service"}).made()
        token = admin.post(f"/v1/actors/{victim}/tokens").made()
        grant = self.server.grant(f"grantee-{side}", "probe:nothing")
        record = admin.get(f"/v1/ledger/records?instance_id={run}").made()["items"][0]["event_id"]
        hold = admin.post("/v1/ledger/holds", {"record_ref": record, "reason": "probe"}).made()["hold_id"]
        return {
            "instance_id": instance, "run_id": run, "run": run, "name": workflow, "version": "1", "step": "A",
            "action": "go", "queue": side, "task_id": f"{run}.0", "outbox_id": NOWHERE, "machine": "step",
            "code": "not-known", "actor_ref": victim, "actor": "somebody-else", "key_id": NOWHERE, "grant_id": grant,
            "credential_id": token["credential_id"], "event_id": record, "record": record, "hold_id": hold,
            "definition": workflow, "process": process, "lease": NOWHERE, "key": "", "sha256": "0" * 64,
            "session_id": "0" * 64, "delegation_id": NOWHERE, "worker_class": f"{side}:nobody",
            "id": proposal, "dead_letter_id": NOWHERE, "category": "failed_runs",
        }

    def ask(self, actor, route, side):
        names = {**self.ids[side], "unique": f"u-{uuid.uuid4().hex[:12]}"}
        if route.body and "$key" in route.body:
            names["key"] = fresh_key()
        path = re.sub(r"\{(\w+)\}", lambda found: names[found.group(1)], route.path)
        fill = lambda text: re.sub(r"\$(\w+)", lambda found: names[found.group(1)], text)
        body = fill(route.body) if route.body else None
        headers = {"Content-Type": "application/json"} if body else None
        return actor.call(route.method, path + fill(route.query), body, headers=headers)


def fresh_key():
    """A public key of Ed25519; its private key is thrown away."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    return base64.b64encode(Ed25519PrivateKey.generate().public_key().public_bytes(*raw)).decode()


def allowed(answer):
    return answer.status != 401 and answer.code != "permission-denied"


def denied(answer):
    return answer.status == 403 and answer.code == "permission-denied"


def blurred(answer, world, side):
    """The answer without the ids that the caller wrote down."""
    text = answer.body.decode("utf-8", "replace")
    for value in sorted(set(world.ids[side].values()), key=len, reverse=True):
        if len(value) > 3:
            text = text.replace(value, "…")
    return answer.status, text


class Tally:
    def __init__(self):
        self.held, self.failures = 0, []

    def check(self, right, title, answer):
        if right:
            self.held += 1
        else:
            self.failures.append((title, str(answer)))


def try_scopes(world, table, tally, scopes):
    for scope in scopes:
        actor = world.server.actor(scope)
        for route in table:
            if route.who == ["body"]:
                continue
            title = f"{route.method} {route.path} with {scope} alone"
            answer = world.ask(actor, route, "mine")
            if route.open_to(scope):
                tally.check(allowed(answer), f"{title}: allowed", answer)
                unknown = world.ask(actor, route, "nowhere")
                tally.check(allowed(unknown), f"{title}: told that it does not exist", unknown)
            else:
                tally.check(denied(answer), f"{title}: denied", answer)
                unknown = world.ask(actor, route, "nowhere")
                same = blurred(answer, world, "mine") == blurred(unknown, world, "nowhere")
                tally.check(same, f"{title}: the same for what does not exist", f"{answer} / {unknown}")


ORIGIN = "http://localhost:7433"
CONSOLE = f'[console]\norigin = "{ORIGIN}"\n'
OWN_PAGE = [{"Origin": ORIGIN}, {"Sec-Fetch-Site": "same-origin"}]
ELSEWHERE = [{}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]


class Browser(Actor):
    """Sends the cookie of a session, from the page that `page` describes."""

    def __init__(self, actor, page):
        super().__init__(actor.server, None, actor.name)
        self.page = page
        made = actor.server.anonymous.call("POST", "/v1/session", {"token": actor.token}, headers={"Origin": ORIGIN})
        made.made()
        self.cookie = made.headers["Set-Cookie"].split(";")[0]

    def at(self, page):
        """The same session, from another page."""
        other = copy.copy(self)
        other.page = page
        return other

    def call(self, method, path, body=None, headers=None, timeout=60):
        return super().call(method, path, body, {**(headers or {}), **self.page, "Cookie": self.cookie}, timeout)


def try_cookies(world, table, tally, scopes):
    """A cookie is worth what its actor's token is worth, from a page of the server, and nothing from anywhere else."""
    for number, scope in enumerate(scopes):
        actor = world.server.actor(scope)
        own = Browser(actor, OWN_PAGE[number % 2])
        others = [own.at(page) for page in ELSEWHERE]
        for place, route in enumerate(table):
            if route.who[0] in ("open", "body"):
                continue
            title = f"{route.method} {route.path} with {scope} alone"
            # The short form asks from each of the other pages in turn: every route and every scope meets all of them.
            asking = [others[(number + place) % len(others)]] if world.server.lab.short else others
            for other in asking:
                answer = world.ask(other, route, "mine")
                right = answer.status == 401 and answer.code == "invalid-credential"
                tally.check(right, f"{title}, a cookie from {other.page or 'nowhere'}: refused", answer)
            asked = Browser(actor, own.page) if route.path == "/v1/session" else own
            answer = world.ask(asked, route, "mine")
            expected = allowed if route.open_to(scope) else denied
            tally.check(expected(answer), f"{title}, a cookie from its own page: {expected.__name__}", answer)
        with open(world.server.log_path, "rb") as log:
            written = log.read()
        tally.check(own.cookie.split("=")[1].encode() not in written, "no session's id is in the log", "the log")


def try_finer(world, table, tally, scopes):
    """`<scope>:<definition>` opens what belongs to that definition, and nothing else."""
    for scope in scopes:
        kind = "process" if scope.startswith("workflows:") else "flow"
        actor = world.server.actor(f"{scope}:mine-{kind}")
        for route in table:
            if route.who[0] in ("open", "body", "token", "named"):
                continue
            title = f"{route.method} {route.path} with {scope}:mine-{kind} alone"
            held_off = [] if route.finer and scope in route.who else ["mine"]
            if not held_off:
                # Definitions are named by either kind: only that of the scope's own kind is asked for.
                if "{name}" in route.path and kind == "process":
                    continue
                answer = world.ask(actor, route, "mine")
                tally.check(allowed(answer), f"{title}: allowed for its own", answer)
                others = world.ids["other"]
                leaked = [name for name in ("run_id", "instance_id") if others[name].encode() in answer.body]
                tally.check(not leaked, f"{title}: nothing of another definition is shown", answer)
            if "{" in route.path and "{queue}" not in route.path or held_off:
                first, second = (world.ask(actor, route, side) for side in ("other", "nowhere"))
                if "{actor_ref}" in route.path or denied(first) or held_off or route.finer:
                    tally.check(denied(first), f"{title}: denied for another definition's", first)
                    same = blurred(first, world, "other") == blurred(second, world, "nowhere")
                    tally.check(same, f"{title}: the same for what does not exist", f"{first} / {second}")


def try_strangers(world, table, tally):
    server = world.server
    revoked = server.actor(name="revoked-actor")
    credential = server.admin.get("/v1/actors/revoked-actor/keys").made()["tokens"][0]["credential_id"]
    server.admin.post(f"/v1/actors/revoked-actor/tokens/{credential}/revoke").made()
    nobody = [
        ("no token", server.anonymous),
        ("a token of another server", Actor(server, "cs_" + "ab" * 32)),
        ("a revoked token", revoked),
        ("an empty token", Actor(server, " ")),
    ]
    for route in table:
        for who, actor in nobody:
            mine, nowhere = world.ask(actor, route, "mine"), world.ask(actor, route, "nowhere")
            title = f"{route.method} {route.path} with {who}"
            if route.who == ["open"]:
                tally.check(mine.status in (200, 503), f"{title}: open", mine)
                continue
            right = mine.status == 401 and mine.code == "invalid-credential"
            tally.check(right, f"{title}: refused", mine)
            same = blurred(mine, world, "mine") == blurred(nowhere, world, "nowhere")
            tally.check(same, f"{title}: the same for what does not exist", f"{mine} / {nowhere}")


@matrix.case("every route and every scope is known to the table", short=True)
def covered(server):
    document = server.anonymous.get("/openapi.json").made()
    served = {
        (method.upper(), path) for path, item in document["paths"].items() for method in item if method in METHODS
    }
    known = {(route.method, route.path) for route in routes()}
    if served - known:
        raise Broken(f"served, and not in probe/scopes.txt: {sorted(served - known)}")


METHODS = ("get", "post", "put", "patch", "delete", "head", "options")


def run(server, part):
    tally = Tally()
    document = server.anonymous.get("/openapi.json").made()
    table = [route for route in routes() if route.method.lower() in document["paths"].get(route.path, {})]
    part(World(server), table, tally)
    row = f"{matrix.name} ({server.store})"
    server.lab.report.count(row, tally.held, tally.failures)


@matrix.case("no scope opens more than the table says", short=True, own=True)
def single_scopes(lab, store):
    with_server(lab, store, lambda world, table, tally: try_scopes(world, table, tally, SCOPES))


@matrix.case("a cookie counts only from a page of the server, and then as its actor's token", short=True, own=True)
def cookies(lab, store):
    with_server(lab, store, lambda world, table, tally: try_cookies(world, table, tally, SCOPES))


@matrix.case("no finer scope opens more than its definition", short=True, own=True)
def finer_scopes(lab, store):
    scopes = ["runs:read", "workflows:read", "runs:control"] if lab.short else FINER
    with_server(lab, store, lambda world, table, tally: try_finer(world, table, tally, scopes))


@matrix.case("without a good credential nothing but the open routes answers", short=True, own=True)
def strangers(lab, store):
    with_server(lab, store, try_strangers)


def with_server(lab, store, part):
    server = lab.server(store, CONSOLE).start()
    try:
        run(server, part)
        server.sound()
    finally:
        server.remove()
