#!/usr/bin/env python3
"""A second verifier for evidence bundles, written from record.md, checkpoint.md, bundle.md, run.md and governance.md alone.

    python3 spec/verify.py evidence.zip --key VKEY [--policy FILE] [--json]

Exit status 0: passed; 1: findings; 2: the bundle or the arguments could not be read. It needs Python 3.10 or later and the one
package of requirements.txt, for Ed25519 signatures. It shares no code with the engine. Its parts are in verifier/, in the
order of the specification: texts, found, files, records, chains, log, registry, identity, replay (of processes) and runs, rows,
governance, permission, retention, questions.
"""
from __future__ import annotations

import argparse
import base64
import json
import sys

from verifier.chains import check_chains
from verifier.files import read_bundle
from verifier.found import CLAIM_OF, Report, TITLES
from verifier.governance import check_governance
from verifier.identity import Identity
from verifier.keys import Policy, parse_policy, parse_vkey
from verifier.log import check_checkpoint, check_log, check_tail
from verifier.permission import check_permission
from verifier.questions import ask
from verifier.registry import Registry, check_checkpoint_key
from verifier.replay import check_instances
from verifier.retention import check_retention
from verifier.texts import Json, REGISTRY, Unreadable


def verify(path: str, policy: Policy) -> dict[str, Json]:
    report = Report()
    b = read_bundle(path, report)
    check_chains(b, report)
    checkpoint = check_checkpoint(b.checkpoint, b.manifest, policy, b.rotations, report)
    registry = Registry(b.chains.get(REGISTRY, []), report)
    check_checkpoint_key(checkpoint, registry, report)
    check_log(b, checkpoint, report)
    check_tail(b, report)
    identity = Identity(b, registry, report)
    for r in b.records:
        identity.check(r)
    identity.counters.check(report)
    replays = check_instances(b, registry, report)
    check_governance(b, registry, replays, report)
    check_permission(b, registry, report)
    check_retention(b, report)
    claims = []
    for claim, title in TITLES.items():
        findings = [f for f in report.findings if CLAIM_OF[f["code"]] == claim]
        result = "failed" if findings else "unverifiable" if claim in report.unverifiable else "verified"
        claims.append({"claim": claim, "title": title, "result": result, "checked": report.checked[claim], "findings": findings})
    return {"result": "failed-verification" if report.findings else "verified", "origin": checkpoint.origin if checkpoint else b.manifest.get("origin"),
            "tree_size": checkpoint.size if checkpoint else b.manifest.get("tree_size"), "root": base64.b64encode(checkpoint.root).decode() if checkpoint else None,
            "records": len(b.records), "instances": len(set(b.chains) - {REGISTRY}), "claims": claims, "notes": report.notes, "questions": ask(b, registry, replays)}


def print_answer(answer: dict[str, Json]) -> None:
    print(f"{answer['result']}: {answer['origin']}@{answer['tree_size']}, {answer['records']} records, {answer['instances']} instances")
    for c in answer["claims"]:
        print(f"  {c['claim']:>9}  {c['result']:<12} {c['title']} ({c['checked']} checked)")
        for f in c["findings"]:
            print(f"             {f['code']}: {f['detail']}" + (f" [{f['event_id']}]" if "event_id" in f else ""))
    for n in answer["notes"]:
        print(f"  note: {n['code']}: {n['detail']}" + (f" [{n['event_id']}]" if "event_id" in n else ""))
    print("Left to people (with --json: the facts): " + " ".join(q["question"] for q in answer["questions"]))


def main() -> int:
    parser = argparse.ArgumentParser(description="Check an evidence bundle offline.")
    parser.add_argument("bundle")
    parser.add_argument("--key", action="append", default=[], help="verifier key of the log; may be repeated")
    parser.add_argument("--policy", help="file with trusted log keys, witnesses and quorum")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        policy = Policy()
        if args.policy:
            with open(args.policy, encoding="utf-8") as f:
                policy = parse_policy(f.read())
        policy.logs += [parse_vkey(k.strip(), 1) for k in args.key]
        if not policy.logs:
            raise Unreadable("no log key: give --key, or a policy with a log line")
        answer = verify(args.bundle, policy)
    except (Unreadable, OSError, UnicodeDecodeError) as e:
        print(f"verify.py: {e}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(answer, ensure_ascii=False, indent=1))
    else:
        print_answer(answer)
    return 0 if answer["result"] == "verified" else 1


if __name__ == "__main__":
    sys.exit(main())
