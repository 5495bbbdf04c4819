"""Files of the bundle are missing, foreign or not in their form."""
from __future__ import annotations

from .kit import Tamper, mutation


@mutation("file-missing", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.files["grants.jsonl"] = None


@mutation("file-added", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.files["README.txt"] = b"trust me\n"


@mutation("line-not-json", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.line("state.jsonl", lambda s: s.replace("{", "[", 1))


@mutation("bytes-not-utf-8", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.files["documents.jsonl"] = t.b.files()["documents.jsonl"].replace(b"states", b"st\xe4tes", 1)


@mutation("salt-alone-removed", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.one().salt = None
