#!/usr/bin/env python3
"""Checks the vectors with verify.py and, if asked, with another verifier.

    python3 spec/vectors/test_vectors.py [--verifier PATH] [--random N] [--update]
    python3 spec/vectors/test_vectors.py --bundle evidence.zip --keys keys.json [--verifier PATH]

Makes everything anew in a temporary directory and asserts: the committed bundles hold the same bytes; every good one passes;
in every broken one, committed or made here, at least one of the expected codes is found. `--verifier` runs a second program
(`countersign-verify`) on the same files with `--json` and says where the two disagree. `--random` adds N bundles of random honest
histories, with purged records in some, all of which must pass, and a few random mutations of each. `--update` writes the committed vectors.
The second form does the same with a bundle of a real server: it must pass, and every mutation of it must be found.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import zipfile
from typing import Any, Optional

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import make  # noqa: E402
import tamper  # noqa: E402
from bundle import Bundle  # noqa: E402

VERIFY = HERE.parent / "verify.py"
sys.path.insert(0, str(HERE.parent))     # verifier/
_spec = importlib.util.spec_from_file_location("verify", VERIFY)
assert _spec is not None and _spec.loader is not None
verify = importlib.util.module_from_spec(_spec)
sys.modules["verify"] = verify
_spec.loader.exec_module(verify)

# Notes that both verifiers give, or neither.
NOTED = ("application-key-added", "server-key-added", "log-key-lost", "credential-added-by-another")
# The committed broken bundles. All others are made and tested too, and thrown away.
COMMITTED = {
    "proposed": """merged-other-bytes.engine published-without-a-proposal.insider published-from-another-approval.insider merged-without-approval.insider
        self-approved.insider proposal-under-another-declaration.insider proposed-as-a-human.insider asked-for-something-else.insider
        merged-by-a-service.insider""",
    "replayed": """replayed-without-approval.insider replayed-twice.insider replayed-by-the-approval-of-another-letter.insider
        delivery-arrived-by-no-replay.insider""",
    "release": """payload-edited.naive payload-edited.insider attestation-edited.naive header-edited.naive header-white-space.insider
        header-member-twice.insider header-number-beyond-2-53.insider number-beyond-2-53.insider number-with-fraction.insider
        duplicate-key-in-payload.naive duplicate-key-in-payload.insider duplicate-key-in-signed-body.engine record-deleted.naive
        record-deleted.insider record-inserted.insider chain-reordered.insider decision-after-firing.insider log-reordered.insider
        time-turned-back.insider proof-edited.naive registry-seq-lowered.insider tail-cut.naive tail-cut-export-made-anew.insider
        tail-cut-seen-by-witnesses.insider log-forked.insider cosignature-dropped.naive checkpoint-signed-by-another-key.insider
        checkpoint-key-not-in-registry.insider file-missing.naive signature-moved.insider signature-edited.insider body-edited.insider
        class-not-the-headers.insider decision-turned.insider decision-without-meaning.engine nonce-reused.engine
        decision-server-attested.insider credential-null.insider actor-unknown.insider key-revoked-earlier.insider
        approver-swapped-in-decision.insider decision-by-somebody-else.engine approver-swapped-in-gate.insider
        fired-without-gate.insider fired-as-unguarded.insider fired-with-pending-gate.insider step-reused.insider
        declaration-swapped.naive declaration-swapped.insider gate-spec-swapped.insider undeclared-transition.insider
        store-current-state.naive store-step-state.naive store-assignment-active.naive store-transition-removed.naive
        store-transition-added.naive gate-opened-while-open.insider moot-forged-for-fired-gate.insider grant-removed.insider
        grant-revoked-earlier.insider action-after-its-revocation.insider action-before-its-grant.insider content-removed.naive
        destroyed-before-its-time.insider destroyed-under-hold.insider""",
    "quorum": "quorum-vote-deleted.insider quorum-lowered.insider chain-resolved-too-early.insider moot-deleted.insider",
    "replaced": """start-replaced-fixed.engine start-named-herself.engine start-named-herself-among-others.engine start-replaced-scope.engine
        start-replaced-untold.insider start-replaced-told-in-vain.insider definition-gates-missing.insider definition-gates-swapped.naive
        withdrawn-step-untold.insider withdrawn-step-told-twice.insider withdrawn-step-in-other-words.insider withdrawn-step-of-nobody.insider""",
    "asked": "request-edited.insider request-and-digest-edited.insider decision-bound-to-nothing.insider request-of-the-body-edited.insider",
    "delegated": """delegation-missing.insider delegation-revoked-before.insider delegation-outside-its-period.engine delegation-before-its-period.engine
        delegation-of-another-scope.engine delegation-to-another.engine delegation-of-a-gate-that-is-not-delegable.engine
        delegation-by-another-than-the-approver.engine delegation-without-a-signature.insider delegation-edited.insider substitute-for-nobody.insider
        substitute-for-another.insider substitute-by-another-delegation.insider substitute-told-by-half.insider substitute-has-a-voice-already.engine
        substitute-not-in-the-stores.naive transfer-not-in-the-stores.naive""",
    "signed": "act-server-attested.insider registry-act-server-attested.insider second-key-with-a-token.insider service-by-token-where-none-may.insider",
    "purge": "hold-release-deleted.insider destruction-record-deleted.insider",
    "window": "instance-left-out-of-window.naive",
    "effects": """effect-not-declared.insider effect-left-out.insider effect-of-another-definition.insider effect-of-a-plain-transition.insider
        origin-of-no-firing.insider origin-of-an-effect-that-is-none.insider origin-of-another-process.insider origin-twice.insider origin-depth.insider
        origin-that-sent-nothing.insider origin-without-a-cause.insider""",
    "rotated": """rotation-forged-as-lost.naive rotation-with-a-moved-signature.naive rotation-note-edited.naive
        rotation-not-signed-by-the-new-key.naive rotation-proof-edited.naive rotation-left-out.naive rotations-in-another-order.naive""",
    "passkey": """passkey-for-another-challenge.engine passkey-for-another-origin.engine passkey-for-another-rp-id.engine passkey-user-not-verified.engine
        passkey-user-not-present.engine passkey-registration-as-assertion.engine passkey-signature-edited.insider passkey-statement-edited.insider
        passkey-of-another-actor.engine passkey-revoked-earlier.insider passkey-registered-later.insider passkey-never-registered.insider
        passkey-replayed.insider passkey-counter-back.engine passkey-counter-again.engine passkey-said-to-be-a-key.insider passkey-key-swapped.insider
        passkey-member-missing.insider passkey-added-with-a-token.insider passkey-of-the-body-swapped.insider passkey-session-after-revocation.insider""",
    "passkey-chromium": """passkey-signature-edited.insider passkey-statement-edited.insider passkey-revoked-earlier.insider passkey-registered-later.insider
        passkey-replayed.insider""",
    "run-linear": """run-transition-skipped.insider run-transition-from-elsewhere.insider run-transition-with-unknown-id.insider
        run-step-completed-again.insider run-record-after-the-end.insider run-output-left-out.insider run-begun-before-its-turn.insider
        run-steps-miscounted.insider run-definition-swapped.insider run-store-step-state.naive run-store-output.naive""",
    "governed": """problem-resolved-without-an-event.insider worker-called-healthy-that-nobody-saw.insider workers-healed-without-a-tick.insider
        workers-healed-without-an-observation.insider workers-healed-while-frozen.insider workers-frozen-without-scope.insider""",
    "retired": "start-of-the-retired.insider paused-without-scope.insider",
    "run-people": """run-late-as-in-time.insider run-late-by-less.insider run-put-in-charge-afterwards.insider run-reopened-without-approval.insider
        run-reopened-beside-another-record.insider run-store-breach-erased.naive""",
    "run-steps": """run-unblocked-without-evidence.insider run-escalated-to-nobody-said.insider run-escalated-to-another.insider
        run-escalated-in-another-chain.insider run-block-escalated-without-review.insider run-block-red-before-its-time.insider
        run-reengaged-as-an-extension.insider run-held-elsewhere.insider""",
    "run-unclaimed": "run-overdue-before-its-time.insider run-unclaimed-step-recovers.insider run-store-start-by.naive",
    "run-child": """run-task-left-behind.insider run-child-waits-for-something-else.insider run-child-goes-on-without-one.insider""",
    "run-tasks": """run-task-by-the-class-of-a-step.insider run-step-completed-over-its-task.insider run-task-begun-before-its-step.insider
        run-tasks-miscounted.insider""",
    "run-own": """run-own-undeclared.insider run-own-from-elsewhere.insider run-own-as-proposed.insider run-own-left-out.insider
        run-own-floor-left-out.insider run-own-machine-unbound.insider run-own-store.naive""",
    "run-steered": "run-undoing-resumed-forward.insider run-failed-undo-not-held.insider run-undo-behind-a-failed-one.insider run-undo-declared-by-a-worker.insider",
    "run-called-off": "run-called-off-without-undoing.insider run-called-off-left-as-it-was.insider run-called-off-completed.insider run-undone-by-a-plain-cancel.insider",
    "run-saga": "run-compensations-swapped.insider run-compensation-left-out.insider",
    "run-inputs": """input-swapped.insider input-by-another-digest.insider input-left-out.insider input-of-another-step.insider input-of-a-run-without-one.insider
        input-said-twice.insider undo-handed-another-output.insider""",
    "run-listed": "run-compensation-not-listed.insider run-engine-record-by-a-worker.insider",
    "run-gate": """run-unblocked-without-approval.insider run-unblocked-though-only-fired.insider run-gate-passed-without-being-consumed.insider
        run-ready-without-its-gate.insider run-engine-record-by-a-worker.insider""",
    "run-book": """book-begun-without-a-survey.insider book-survey-after-the-resume-left-out.insider book-survey-without-a-pin.insider book-survey-of-another-value.insider
        book-drift-hidden.insider book-drift-passed-over.insider book-capture-left-out.insider book-captured-value-edited.insider book-resumed-without-approval.insider
        book-resumed-by-an-earlier-stop.insider book-pinned-anew-to-something-else.insider book-request-edited.insider book-decision-bound-to-nothing.insider
        book-check-left-out.insider book-effect-never-declared.insider book-stopped-for-a-hard-cap-that-was-not-reached.insider book-at-work-past-its-caps.insider
        book-begun-past-the-hard-cap.insider book-step-skipped.insider book-gated-step-taken-over.insider""",
    "run-book-caps": "book-voided-without-approval.insider book-stop-without-its-gate.insider",
    "run-book-failed": "book-refused-output-left-out.insider book-failed-check-turned.insider",
    "run-book-dry": "book-dry-run-as-a-real-one.insider book-dry-run-that-stops.insider",
    "run-book-child": "book-stopped-by-the-software.insider",
    "run-cancelled": "run-cancelled-without-its-gate.insider run-cancelled-by-another-approval.engine run-gate-left-open.insider run-gate-mooted-too-early.insider run-reason-edited.insider"}


class Failures:
    def __init__(self) -> None:
        self.count = 0

    def add(self, text: str) -> None:
        self.count += 1
        print("FAIL", text)


def contents(path: pathlib.Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as z:
        return {i.filename: z.read(i) for i in z.infolist()}


def codes(answer: dict[str, Any]) -> set[str]:
    return {f["code"] for claim in answer["claims"] for f in claim["findings"]}


def run_here(bundle: pathlib.Path, key: str, policy: Optional[pathlib.Path]) -> dict[str, Any]:
    p = verify.parse_policy(policy.read_text(encoding="utf-8")) if policy else verify.Policy()
    p.logs = [verify.parse_vkey(key, 1)]
    return verify.verify(str(bundle), p)


def run_program(command: list[str], bundle: pathlib.Path, key: str, policy: Optional[pathlib.Path]) -> tuple[int, Any]:
    done = subprocess.run([*command, str(bundle), "--key", key, *(["--policy", str(policy)] if policy else []), "--json"], capture_output=True, check=False)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, {"claims": [], "result": "no JSON: " + (done.stderr or done.stdout).decode(errors="replace")[:200]}


SHAPE = {"result", "origin", "tree_size", "root", "records", "instances", "claims", "notes", "questions"}
CLAIMS = ["integrity", "identity", "1", "2", "3", "4", "5", "retention"]


def check_shape(name: str, answer: dict[str, Any], failures: Failures) -> None:
    """bundle.md, section 5."""
    if set(answer) != SHAPE or [c.get("claim") for c in answer["claims"]] != CLAIMS:
        failures.add(f"{name}: the answer has not the shape of bundle.md section 5")
        return
    for c in answer["claims"]:
        if set(c) != {"claim", "title", "result", "checked", "findings"} or c["result"] not in ("verified", "failed", "unverifiable"):
            failures.add(f"{name}: claim {c.get('claim')} has not the shape")
        if (c["result"] == "failed") != bool(c["findings"]):
            failures.add(f"{name}: claim {c['claim']} is {c['result']} with {len(c['findings'])} findings")
        for f in c["findings"]:
            if verify.CLAIM_OF.get(f["code"]) != c["claim"] or not set(f) <= {"code", "event_id", "log_index", "instance_id", "detail"}:
                failures.add(f"{name}: finding {f} under claim {c['claim']}")
    if [q.get("check") for q in answer["questions"]] != [6, 7, 8]:
        failures.add(f"{name}: the three questions are not there")


class Case:
    """A bundle and what must be found in it: nothing, or one of `expected`."""

    def __init__(self, name: str, bundle: pathlib.Path, key: str, policy: Optional[pathlib.Path], expected: Optional[list[str]]):
        self.name, self.bundle, self.key, self.policy, self.expected = name, bundle, key, policy, expected

    def problem(self, answer: dict[str, Any], status: int) -> Optional[str]:
        found = codes(answer)
        if self.expected is None:
            return None if answer["result"] == "verified" and status == 0 and not found else f"must pass: {answer['result']}, {sorted(found)}"
        if answer["result"] != "failed-verification" or status != 1:
            return f"must fail: {answer['result']}, exit status {status}"
        return None if found & set(self.expected) else f"expected one of {self.expected}, found {sorted(found)}"


def check_cases(cases: list[Case], other: Optional[list[str]], failures: Failures) -> None:
    answers: list[tuple[int, Any]] = []
    if other:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
            answers = list(pool.map(lambda c: run_program(other, c.bundle, c.key, c.policy), cases))
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count() or 2) as pool:
        ours = list(pool.map(run_here, [c.bundle for c in cases], [c.key for c in cases], [c.policy for c in cases], chunksize=8))
    differ = 0
    for i, case in enumerate(cases):
        answer = ours[i]
        check_shape(case.name, answer, failures)
        problem = case.problem(answer, 0 if answer["result"] == "verified" else 1)
        if problem:
            failures.add(f"{case.name}: verify.py: {problem}")
        if other:
            status, theirs = answers[i]
            problem = case.problem(theirs, status)
            if problem:
                failures.add(f"{case.name}: {other[-1]}: {problem}")
            elif "claims" in theirs and theirs["claims"]:
                check_shape(f"{case.name} ({other[-1]})", theirs, failures)
            if theirs["result"] != answer["result"]:
                failures.add(f"{case.name}: the verifiers disagree: verify.py {answer['result']}, {other[-1]} {theirs['result']}")
            for member in ("origin", "tree_size", "root", "records", "instances"):
                if case.expected is None and theirs.get(member) != answer[member]:
                    failures.add(f"{case.name}: the verifiers disagree on {member}: {answer[member]!r}, {theirs.get(member)!r}")
            if case.expected is None and [c["result"] for c in theirs["claims"]] != [c["result"] for c in answer["claims"]]:
                failures.add(f"{case.name}: the verifiers disagree on the claims' results: {[c['result'] for c in answer['claims']]}, {[c['result'] for c in theirs['claims']]}")
            notes = [sorted({n["code"] for n in x["notes"] if n["code"] in NOTED}) for x in (answer, theirs)] if case.expected is None else [[], []]
            if notes[0] != notes[1]:
                failures.add(f"{case.name}: the verifiers disagree on notes: {notes[0]}, {notes[1]}")
            if codes(theirs) != codes(answer):
                differ += 1
                print(f"note {case.name}: only verify.py: {sorted(codes(answer) - codes(theirs))}, only {other[-1]}: {sorted(codes(theirs) - codes(answer))}")
    if other:
        print(f"{differ} of {len(cases)} bundles with different sets of codes (which is allowed beyond the expected ones)")


def tampered(name: str, bundle: Bundle, keys: dict[str, Any], out: pathlib.Path, covered: set[str], only: Optional[set[str]] = None) -> list[Case]:
    answer = tamper.tamper(bundle, keys, out, only)
    covered |= {f"{c['name']}.{c['form']}" for c in answer["cases"]}
    return [Case(f"{name}/{c['file']}", out / c["file"], c.get("key", answer["vkey"]), out / c["policy"] if "policy" in c else None, c["expected"]) for c in answer["cases"]]


def write_committed(made: pathlib.Path, good: pathlib.Path, broken: pathlib.Path) -> None:
    for folder in (good, broken):
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
    listed = []
    for name in make.SCENARIOS:
        for end in ("zip", "policy.txt", "keys.json"):
            (good / f"{name}.{end}").write_bytes((made / f"{name}.{end}").read_bytes())
        answer = json.loads((made / name / "expected.json").read_text(encoding="utf-8"))
        for c in answer["cases"]:
            if c["file"].removesuffix(".zip") in COMMITTED.get(name, "").split():
                file = f"{name}.{c['file']}"
                (broken / file).write_bytes((made / name / c["file"]).read_bytes())
                listed.append({**c, "file": file, "key": c.get("key", answer["vkey"]), **({"policy": f"{name}.policy.txt"} if "policy" in c else {})})
                if "policy" in c:
                    (broken / f"{name}.policy.txt").write_bytes((made / f"{name}.policy.txt").read_bytes())
    (broken / "expected.json").write_text(json.dumps({"cases": listed}, indent=1) + "\n", encoding="utf-8")


def check_committed(made: pathlib.Path, good: pathlib.Path, broken: pathlib.Path, failures: Failures) -> list[Case]:
    cases = []
    for name in make.SCENARIOS:
        if contents(good / f"{name}.zip") != contents(made / f"{name}.zip"):
            failures.add(f"good/{name}.zip is not what make.py makes")
        keys = json.loads((good / f"{name}.keys.json").read_text(encoding="utf-8"))
        cases.append(Case(f"good/{name}", good / f"{name}.zip", keys["vkey"], good / f"{name}.policy.txt", None))
    listed = json.loads((broken / "expected.json").read_text(encoding="utf-8"))["cases"]
    if {c["file"] for c in listed} != {p.name for p in broken.glob("*.zip")} or len(listed) != sum(len(v.split()) for v in COMMITTED.values()):
        failures.add("broken/expected.json does not list the files that are there")
    for c in listed:
        scenario, _, rest = c["file"].partition(".")
        if contents(broken / c["file"]) != contents(made / scenario / rest):
            failures.add(f"broken/{c['file']} is not what tamper.py makes")
        cases.append(Case(f"broken/{c['file']}", broken / c["file"], c["key"], broken / c["policy"] if "policy" in c else None, c["expected"]))
    return cases


def check_command_line(good: pathlib.Path, broken: pathlib.Path, temp: pathlib.Path, other: Optional[list[str]], failures: Failures) -> None:
    """Exit status 0, 1 and 2."""
    key = json.loads((good / "release.keys.json").read_text(encoding="utf-8"))["vkey"]
    (temp / "not-a-zip.zip").write_bytes(b"not a zip")
    (temp / "bad-policy.txt").write_text("quorum nobody\n", encoding="utf-8")
    runs = [(0, good / "release.zip", key, None), (0, good / "release.zip", key, good / "release.policy.txt"), (1, broken / "release.payload-edited.naive.zip", key, None),
            (2, temp / "not-a-zip.zip", key, None), (2, temp / "nothing.zip", key, None), (2, good / "release.zip", key[:-4], None), (2, good / "release.zip", key, temp / "bad-policy.txt")]
    for command in [[sys.executable, str(VERIFY)]] + ([other] if other else []):
        for status, bundle, with_key, policy in runs:
            got = run_program(command, bundle, with_key, policy)[0]
            if got != status:
                failures.add(f"{command[-1]} {bundle.name} {policy.name if policy else ''}: exit status {got} in place of {status}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--verifier", help="another verifier to compare with")
    parser.add_argument("--random", type=int, default=20, metavar="N", help="random histories to check; 20 unless told")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first")
    parser.add_argument("--update", action="store_true", help="write the committed vectors")
    parser.add_argument("--bundle", help="a bundle of a real server")
    parser.add_argument("--keys", help="its keys, as tamper.py says")
    args = parser.parse_args()
    failures, covered = Failures(), set[str]()
    other = [args.verifier] if args.verifier else None
    with tempfile.TemporaryDirectory() as folder:
        temp = pathlib.Path(folder)
        if args.bundle:
            keys = json.loads(pathlib.Path(args.keys).read_text(encoding="utf-8"))
            cases = [Case(args.bundle, pathlib.Path(args.bundle), keys["vkey"], None, None)]
            cases += tampered("real", Bundle.read(args.bundle), keys, temp / "real", covered)
            for s in json.loads((temp / "real" / "expected.json").read_text(encoding="utf-8"))["skipped"]:
                print(f"skipped {s['name']}.{s['form']}: {s['reason']}")
        else:
            cases = []
            for name, scenario in make.SCENARIOS.items():
                world, bundle = scenario()
                bundle.write(temp / f"{name}.zip")
                (temp / f"{name}.policy.txt").write_text(world.policy(), encoding="utf-8")
                (temp / f"{name}.keys.json").write_text(json.dumps(world.keyfile(), indent=1) + "\n", encoding="utf-8")
                cases += tampered(name, bundle, world.keyfile(), temp / name, covered)
            if args.update:
                write_committed(temp, HERE / "good", HERE / "broken")
            cases = check_committed(temp, HERE / "good", HERE / "broken", failures) + cases
            for seed in range(args.seed, args.seed + args.random):
                world, bundle = make.scenario_random(seed)
                bundle.write(temp / f"random-{seed}.zip")
                cases.append(Case(f"random/{seed}", temp / f"random-{seed}.zip", world.keyfile()["vkey"], None, None))
                if any(r.payload is None for r in bundle.records):
                    continue    # what a purged record leaves in doubt need not be found
                some = random.Random(seed).sample([f"{m[0]}.{m[1]}" for m in tamper.MUTATIONS], 5)
                cases += tampered(f"random-{seed}", bundle, world.keyfile(), temp / f"random-{seed}", covered, set(some))
            check_command_line(HERE / "good", HERE / "broken", temp, other, failures)
            for name, form, *_ in tamper.MUTATIONS:
                if f"{name}.{form}" not in covered:
                    failures.add(f"mutation {name}.{form} applies to no scenario")
            missing = set(verify.CLAIM_OF) - {code for c in cases for code in c.expected or []}
            if missing:
                failures.add(f"no mutation is expected to lead to {sorted(missing)}")
        check_cases(cases, other, failures)
    print(f"{len(cases)} bundles, {len(covered)} of {len(tamper.MUTATIONS)} mutations, {failures.count} failures")
    return 1 if failures.count else 0


if __name__ == "__main__":
    sys.exit(main())
