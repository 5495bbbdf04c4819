#!/usr/bin/env python3
"""Breaks a valid evidence bundle in many ways and says which finding each must lead to.

    python3 spec/vectors/tamper.py BUNDLE KEYS.json OUTDIR

Works on bundles of make.py and on bundles of a real server, given KEYS.json:

    {"vkey": the log's verifier key, "log": {"name": origin, "seed": hex}, "application": {"actor_ref": text, "seed": hex},
     "actors": {actor_ref: [seed hex, ...]}, "policy": text of a policy file, or absent}

`actors` may be empty or hold some actors only. Three forms of attack:

    naive    a file is edited, nothing is computed anew
    insider  the attacker has the database, the log's key and the application actor's: digests, links, tree, proofs, checkpoint and
             stores are made anew, and the application actor's records signed anew; the people's keys are out of reach
    engine   a faulty engine: it accepted what it must refuse, and the people really signed what they sent

OUTDIR gets one ZIP per mutation, policy.txt where there is one, and expected.json: {"vkey", "cases": [{"file", "name", "form",
"claim", "expected": [codes of which at least one must be found], "policy"?: file to verify with, "key"?: verifier key in place of
"vkey"}], "skipped": [{"name", "form", "reason"}]}.
"""
from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Optional

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from attacks import MUTATIONS, Skip, Tamper  # noqa: E402
from bundle import Bundle, write_zip  # noqa: E402


def tamper(bundle: Bundle, keys: dict[str, Any], out: pathlib.Path, only: Optional[set[str]] = None) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    cases, skipped = [], []
    for name, form, claim, expected, f in MUTATIONS:
        if only is not None and f"{name}.{form}" not in only:
            continue
        t = Tamper(bundle, keys)
        try:
            f(t)
            if t.use_policy and not t.policy:
                raise Skip("no policy with witnesses")
            if form != "naive" and t.b.checkpoint == bundle.checkpoint:
                t.reseal()
        except (Skip, StopIteration, IndexError) as s:
            skipped.append({"name": name, "form": form, "reason": str(s) or "nothing of this kind in the bundle"})
            continue
        files: dict[str, Optional[bytes]] = {**t.b.files(), **t.files}
        write_zip(out / f"{name}.{form}.zip", {k: v for k, v in files.items() if v is not None})
        case: dict[str, Any] = {"file": f"{name}.{form}.zip", "name": name, "form": form, "claim": claim, "expected": expected}
        if t.use_policy:
            case["policy"] = "policy.txt"
        if t.vkey:
            case["key"] = t.vkey
        cases.append(case)
    answer = {"vkey": keys["vkey"], "cases": cases, "skipped": skipped}
    (out / "expected.json").write_text(json.dumps(answer, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if keys.get("policy"):
        (out / "policy.txt").write_text(keys["policy"], encoding="utf-8")
    return answer


def main(argv: list[str]) -> int:
    if len(argv) != 4:
        print("usage: tamper.py BUNDLE KEYS.json OUTDIR", file=sys.stderr)
        return 2
    keys = json.loads(pathlib.Path(argv[2]).read_text(encoding="utf-8"))
    answer = tamper(Bundle.read(argv[1]), keys, pathlib.Path(argv[3]))
    print(f"{len(answer['cases'])} broken bundles, {len(answer['skipped'])} mutations skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
