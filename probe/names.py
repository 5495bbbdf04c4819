"""Names that look like other names, and answers that tell what the caller may not read."""

import uuid

from .report import Probe, hold

names = Probe("names and secrets")
metrics = Probe("metrics", config='[metrics]\ntoken = "only-for-the-scraper"\n')
PROBES = [names, metrics]


@names.case("a name that looks like another, or that cannot be seen, is refused at registration", short=True)
def look_alikes(server):
    base = f"scott{uuid.uuid4().hex[:6]}"
    server.actor(name=base)
    alike = {
        "a trailing blank": base + " ",
        "a leading blank": " " + base,
        "a no-break space": base + "\u00a0",
        "a zero-width space": base[:3] + "\u200b" + base[3:],
        "a soft hyphen": base[:3] + "\u00ad" + base[3:],
        "a direction mark": base + "\u202e",
        "full-width letters": "".join(chr(ord(c) + 0xFEE0) if c.isalpha() else c for c in base),
        "a Cyrillic о": base.replace("o", "\u043e"),
        "a Cyrillic с": base.replace("s", "\u0455").replace("c", "\u0441"),
        "a mathematical letter": base.replace("t", "\U0001d42d", 1),
        "a tag character": base + "\U000e0041",
        "a variation selector": base + "\ufe0f",
        "an accent in two characters": base.replace("o", "o\u0335"),
    }
    taken = []
    for what, name in alike.items():
        answer = server.admin.post("/v1/actors", {"actor_ref": name, "kind": "human"})
        if answer.status != 400 and answer.status != 409:
            taken.append(f"{what} ({answer.status})")
    hold(not taken, f"registered: {', '.join(taken)}")


@names.case("names that resemble the engine's or admin's are refused", short=True)
def impersonation(server):
    taken = []
    for name in ("\u0430dmin", "admin ", "ａｄｍｉｎ", "countersign\u200b", "c\u043euntersign", "countersign-l\u043eg"):
        if server.admin.post("/v1/actors", {"actor_ref": name, "kind": "human"}).status not in (400, 409):
            taken.append(repr(name))
    hold(not taken, f"registered: {', '.join(taken)}")


@names.case("ordinary names of the world are accepted", short=True)
def ordinary(server):
    for name in ("Åsa Lindström", "山田太郎", "olga.петрова", "o'neill", "svc:billing/eu-1", "José"):
        answer = server.admin.post("/v1/actors", {"actor_ref": f"{name}{uuid.uuid4().hex[:4]}", "kind": "human"})
        # A name may mix scripts only where none of its letters can be taken for another's.
        hold(answer.status == 201 or "петрова" in name, f"{name}: {answer}")


FLOW = "kind: workflow\nname: {name}\ncorrelationKey: ${{input.k}}\nsteps: [{{name: A, run: wait, event: e, timeout: 1h}}]\n"


@names.case("`corrects` and `from_step` say the same of a run that may not be read and of none", short=True)
def corrects(server):
    for name in ("mine", "hidden"):
        server.admin.publish(FLOW.format(name=name)).made()
    hidden = server.admin.start_run("hidden", {"k": "secret"}).made()["run_id"]
    caller = server.actor("runs:start:mine", "runs:read:mine")
    nothing = "019a0000-0000-7000-8000-000000000000"
    for field in (lambda run: {"corrects": run}, lambda run: {"from_step": {"run_id": run, "step": "A"}}):
        seen = caller.start_run("mine", {"k": "x"}, **field(hidden))
        unseen = caller.start_run("mine", {"k": "x"}, **field(nothing))
        hold(seen.status >= 400, f"accepted: {seen}")
        same = (seen.status, seen.body.replace(hidden.encode(), b"")) == (
            unseen.status, unseen.body.replace(nothing.encode(), b""))
        hold(same, f"{seen} / {unseen}")


@names.case("an event tells nothing about the runs of a correlation key that may not be steered", short=True)
def correlation(server):
    for name in ("mine", "hidden"):
        server.admin.publish(FLOW.format(name=name)).made()
    hidden = server.admin.start_run("hidden", {"k": "key-of-the-hidden"}).made()["run_id"]
    caller = server.actor("tasks:work:mine")
    told = []
    for key in ("key-of-the-hidden", "key-of-nobody"):
        answer = caller.post("/v1/events", {"id": uuid.uuid4().hex, "type": "e", "correlation_key": key})
        told.append((answer.status, answer.body.replace(key.encode(), b"")))
        hold(hidden.encode() not in answer.body, f"the run is named: {answer}")
    hold(told[0] == told[1], f"{told[0]} / {told[1]}")


@names.case("a problem never repeats a token or a key", short=True)
def no_echo(server):
    secret = "cs_" + "5e" * 32
    answer = server.anonymous.get("/v1/inbox", headers={"Authorization": f"Bearer {secret}"})
    hold(secret.encode() not in answer.body, f"{answer}")
    hold(secret not in server.log(), "the token is in the log")


@metrics.case("with `[metrics] token`, /metrics needs it and nothing else does")
def metrics_token(server):
    get = lambda **headers: server.anonymous.get("/metrics", headers=headers)
    get().refused(401, 403)
    get(Authorization="Bearer wrong").refused(401, 403)
    get(Authorization=f"Bearer {server.admin.token}").refused(401, 403)
    hold(get(Authorization="Bearer only-for-the-scraper").status == 200, "the token does not open /metrics")
    hold(server.anonymous.get("/healthz").status == 200, "/healthz needs a token")
