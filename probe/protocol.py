"""HTTP as a hostile peer speaks it, and what the description promises."""

from .matrix import SCOPES
from .report import Probe, hold
from .server import raw

http = Probe("http")
PROBES = [http]

REFUSED = (b"HTTP/1.1 400", b"HTTP/1.1 4", b"")


def status(answer):
    return answer.split(b"\r\n", 1)[0]


def refused(server, request, what):
    """400 (or a closed connection), and never an answer as if nothing were wrong."""
    answer = raw(server.port, request)
    hold(not answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 5")), f"{what}: {status(answer)!r}")


@http.case("a request without a Host, or with two, is refused", short=("sqlite",))
def host(server):
    refused(server, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", "no Host")
    refused(server, b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n", "two different Hosts")
    refused(server, b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: a\r\nConnection: close\r\n\r\n", "the same Host twice")
    answer = raw(server.port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    hold(answer.startswith(b"HTTP/1.1 200"), f"one Host: {status(answer)!r}")


@http.case("two lengths, or a length and chunks, never make two requests of one", short=("sqlite",))
def smuggling(server):
    smuggled = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    head = b"POST /v1/ledger/seal HTTP/1.1\r\nHost: x\r\n"
    for what, fields in (
        ("two lengths", b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(smuggled)),
        ("a list of lengths", b"Content-Length: 0, %d\r\n" % len(smuggled)),
        ("a signed length", b"Content-Length: +0\r\n"),
        ("length and chunks", b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % (5 + len(smuggled))),
        ("doubled chunks", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
        ("a blank before the colon", b"Transfer-Encoding : chunked\r\n"),
    ):
        body = b"0\r\n\r\n" + smuggled if b"chunks" in what.encode() or b"colon" in what.encode() else smuggled
        answer = raw(server.port, head + fields + b"\r\n" + body)
        hold(b"# TYPE" not in answer, f"{what}: the second request was answered")
        hold(b"HTTP/1.1 5" not in answer, f"{what}: {status(answer)!r}")


@http.case("bytes that are no HTTP, and heads without end, cost one connection", short=("sqlite",))
def garbage(server):
    endless = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A" * 2_000_000
    many = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(5000)) + b"\r\n"
    long = b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    with server.watched(memory_mb=150):
        for what, bytes_ in (
            ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)),
            ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
            ("zeros", bytes(100_000)),
            ("an endless field", endless), ("many fields", many), ("a long address", long),
            ("a bare CR", b"GET / HTTP/1.1\rHost: x\r\r"),
            ("no version", b"GET /healthz\r\n\r\n"),
        ):
            refused(server, bytes_, what)


@http.case("paths that climb, and escapes of all kinds, reach nothing", short=("sqlite",))
def paths(server):
    admin = server.admin
    for path in (
        "/errors/..%2f..%2fCargo.toml", "/errors/%2e%2e/%2e%2e/etc/passwd", "/errors/not-known%00.md",
        "/v1/runs/%ff%fe", "/v1/runs/%zz", "//v1//runs", "/v1/./runs", "/v1/definitions/%2f", "/v1/runs/" + "a" * 5000,
    ):
        answer = admin.get(path)
        hold(400 <= answer.status < 500, f"{path}: {answer}")


@http.case("operationIds are unique and every scope is documented in /openapi.json", short=("sqlite",))
def description(server):
    document = server.anonymous.get("/openapi.json").made()
    ids, twice = set(), []
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if isinstance(operation, dict) and "operationId" in operation:
                if operation["operationId"] in ids:
                    twice.append(operation["operationId"])
                ids.add(operation["operationId"])
    hold(not twice, f"used twice: {sorted(set(twice))}")
    text = server.anonymous.get("/openapi.json").body.decode()
    missing = [scope for scope in SCOPES if scope not in text]
    hold(not missing, f"scopes that it does not name: {missing}")


@http.case("JSON that two readers could take for different things is refused with its place", short=("sqlite",))
def ambiguous(server):
    admin = server.admin
    for body in (
        b'{"subject_ref": "x", "subject_ref": "admin", "action_scope": "y"}',
        b'{"subject_ref": "x", "action_scope": "y", "extra": 1}',
        b'{"subject_ref": "a\\u0000b", "action_scope": "y"}',
        b'{"subject_ref": "x", "action_scope": "y"} {}',
        b'\xff\xfe{"subject_ref": "x"}', b'{"subject_ref": "\\ud800", "action_scope": "y"}',
        b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000, b"", b"null", b"[]",
    ):
        answer = admin.call("POST", "/v1/grants", body, headers={"Content-Type": "application/json"})
        hold(answer.status == 400 or answer.status == 413, f"{body[:40]!r}: {answer}")
    run = '{"definition": "x", "input": %s}'
    for number in ("1e400", "9007199254740993", "-9007199254740993", "NaN"):
        answer = admin.call("POST", "/v1/runs", run % number, headers={"Content-Type": "application/json"})
        hold(answer.status == 400, f"{number}: {answer}")
