#!/usr/bin/env python3
"""Makes chromium.json: a passkey of Chromium's virtual authenticator, and its assertions for the statements of the scenario
`passkey-chromium`. Needs Chromium; the vectors themselves do not.

    python3 spec/vectors/chromium.py [/usr/bin/chromium]

A new run makes a new passkey, so run `test_vectors.py --update` afterwards.
"""
from __future__ import annotations

import base64
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make  # noqa: E402
import passkeys  # noqa: E402

PORT = 17433
ORIGIN = f"http://localhost:{PORT}"


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>passkeys</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Browser:
    """Chromium over its debugging pipe: messages that end with a zero byte, from its descriptor 4, to its descriptor 3."""

    def __init__(self, program: str, profile: str):
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def descriptors() -> None:
            # First out of the way, for either may be 3 or 4 already.
            reads, writes = os.dup(to_browser), os.dup(from_browser)
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen([program, *arguments], preexec_fn=descriptors, close_fds=False, stderr=subprocess.DEVNULL)
        self.number, self.buffer, self.session = 0, b"", None

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, **({"sessionId": self.session} if self.session else {})}
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                read = os.read(self.read_end, 65536)
                if not read:
                    raise SystemExit("Chromium has gone")
                self.buffer += read
            text, _, self.buffer = self.buffer.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]

    def run(self, script: str) -> Any:
        result = self.call("Runtime.evaluate", expression=f"(async () => JSON.stringify({script}))()", awaitPromise=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"{script}: {result['exceptionDetails']}")
        return json.loads(result["result"]["value"])


def standard(text: str) -> str:
    return base64.b64encode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))).decode()


def main() -> int:
    program = sys.argv[1] if len(sys.argv) > 1 else "/usr/bin/chromium"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(program, profile)
        try:
            target = browser.call("Target.createTarget", url=ORIGIN + "/")["targetId"]
            browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            version = browser.run("navigator.userAgent")
            while browser.run("[location.origin, document.readyState]") != [ORIGIN, "complete"]:
                pass
            browser.call("WebAuthn.enable")
            browser.call("WebAuthn.addVirtualAuthenticator", options={"protocol": "ctap2", "transport": "internal", "hasResidentKey": True,
                                                                      "hasUserVerification": True, "isUserVerified": True})
            options = {"rp": {"id": "localhost", "name": "Countersign"}, "user": {"id": passkeys.b64url(b"qp_santos"), "name": "qp_santos", "displayName": "Dr. Santos"},
                       "challenge": passkeys.b64url(bytes(32)), "pubKeyCredParams": [{"type": "public-key", "alg": -7}],
                       "authenticatorSelection": {"residentKey": "required", "userVerification": "required"}, "attestation": "none"}
            made = browser.run(f"(await navigator.credentials.create({{publicKey: PublicKeyCredential.parseCreationOptionsFromJSON({json.dumps(options)})}})).toJSON()")
            kept: dict[str, Any] = {"made_by": version, "credential": {"id": made["id"], "publicKey": made["response"]["publicKey"], "rp_id": "localhost", "origin": ORIGIN}, "assertions": {}}
            passkeys.CHROMIUM.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
            world, _ = make.SCENARIOS["passkey-chromium"]()
            for digest in dict.fromkeys(h for keys in world.passkeys.values() for key in keys for h in key.asked):
                options = {"challenge": passkeys.b64url(bytes.fromhex(digest)), "rpId": "localhost", "userVerification": "required", "allowCredentials": []}
                said = browser.run(f"(await navigator.credentials.get({{publicKey: PublicKeyCredential.parseRequestOptionsFromJSON({json.dumps(options)})}})).toJSON()")["response"]
                kept["assertions"][digest] = {"authenticator_data": standard(said["authenticatorData"]), "client_data_json": standard(said["clientDataJSON"]),
                                              "signature": standard(said["signature"])}
            passkeys.CHROMIUM.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
            print(f"{passkeys.CHROMIUM.name}: {len(kept['assertions'])} assertions by {version}")
        finally:
            browser.process.terminate()
            browser.process.wait()
            server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
