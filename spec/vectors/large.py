#!/usr/bin/env python3
"""Makes a window bundle of any size, to measure a verifier with: how much memory it needs, how many records it checks in a second.

    python3 spec/vectors/large.py PROCESSES OUT.zip

writes OUT.zip and prints the log's verifier key. Every process is the same release with a quorum and a named person, 16 records, most of them
signed. Needs little memory itself: processes go to temporary files as they end; proofs are added when the tree is whole.
"""
from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import zipfile
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bundle import REGISTRY, Record, Tree, det, dump, sha, signed_note, vkey  # noqa: E402
from honest import Actor, Process, World  # noqa: E402
from make import staff  # noqa: E402


def run(w: World, a: dict[str, Actor], number: int) -> Process:
    p = Process(w, a["ines"], "batch-release@1", f"batch/{number:07}")
    p.fire(a["lab"], "submit")
    p.open(a["ines"], "pass", "documents complete")
    p.decide(a["qc_ann"], "pass", "approve")
    p.decide(a["qc_ben"], "pass", "approve", "retested")
    p.fire(a["lab"], "pass")
    p.open(a["ines"], "release")
    p.open(a["ines"], "reject-batch")
    p.decide(a["qp"], "release", "approve", "all results within specification")
    p.fire(a["ines"], "release")
    return p


def main(argv: list[str]) -> int:
    if len(argv) != 3:
        print("usage: large.py PROCESSES OUT.zip", file=sys.stderr)
        return 2
    w = World("large")
    a = staff(w)
    leaves: list[bytes] = []
    heads = []
    count = 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as records, tempfile.TemporaryFile("w+", encoding="utf-8") as state:
        def number_log() -> None:
            for r in w.log:
                if r is not None:
                    r.log_index = len(leaves)
                leaves.append(r.hash if r is not None else det("somebody else", len(leaves)))
            w.log.clear()

        def put_aside(chain: list[Record]) -> int:
            for r in chain:
                records.write(dump({"log_index": r.log_index, "header": r.header, "payload": r.payload, "attestation": r.attestation, "salt": r.salt}) + "\n")
            return len(chain)

        number_log()
        for number in range(int(argv[1])):
            p = run(w, a, number)
            number_log()
            chain = w.chains[p.id]
            count += put_aside(chain)
            state.write(dump(p.row()) + "\n")
            heads.append(f"{p.id} {len(chain)} {chain[-1].hash.hex()}\n")
            del w.chains[p.id], w.processes[p.id]
        w.command(REGISTRY, [("evidence_exported", a["audit"], {"after_us": None, "before_us": None, "instances": len(heads), "heads_digest": sha("".join(heads).encode()).hex()})],
                  "export_evidence", "GET", "/v1/ledger/export", b"")
        number_log()
        tree = Tree(leaves)
        entry = w.definitions["batch-release@1"]
        documents = [{"digest": d, "body": w.documents[d]} for d in sorted((entry["declaration_digest"], entry["gate_spec_digest"]))]
        keys = ["grant_id", "subject_ref", "action_scope", "granted_at_us", "granted_seq", "revoked_at_us", "revoked_seq"]
        registry = w.chains[REGISTRY]
        manifest = {"v": 1, "kind": "countersign-evidence", "scope": {"after_us": None, "before_us": None}, "origin": w.origin, "tree_size": len(leaves),
                    "registry_sequence": len(registry), "instances": len(heads), "records": count + len(registry), "made_at_us": w.now, "made_by": "auditor", "software": "spec/vectors/large.py"}
        with zipfile.ZipFile(argv[2], "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z:
            z.writestr("bundle.json", dump(manifest) + "\n")
            z.writestr("checkpoint", signed_note(w.origin, len(leaves), tree.root, w.log_key, w.witnesses, w.now // 1_000_000))
            z.writestr("log.vkey", vkey(w.origin, w.log_key) + "\n")
            z.writestr("documents.jsonl", "".join(dump(d) + "\n" for d in documents))
            z.writestr("grants.jsonl", "".join(dump({k: g[k] for k in keys}) + "\n" for g in sorted(w.grants.values(), key=lambda g: g["granted_seq"])))
            with z.open("records.jsonl", "w", force_zip64=True) as out:
                def finish(line: dict[str, Any]) -> None:
                    line["proof"] = [h.hex() for h in tree.inclusion(line["log_index"])]
                    out.write((dump(line) + "\n").encode())
                for r in registry:
                    finish({"log_index": r.log_index, "header": r.header, "payload": r.payload, "attestation": r.attestation, "salt": r.salt})
                records.seek(0)
                for text in records:
                    finish(json.loads(text))
            state.seek(0)
            with z.open("state.jsonl", "w", force_zip64=True) as out:
                for text in state:
                    out.write(text.encode())
    print(vkey(w.origin, w.log_key))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
