#!/usr/bin/env bash
# Attacks a real server from outside, on SQLite and on a throw-away PostgreSQL, and says what held:
#
#   scripts/probe.sh [--short] [arguments of `python -m probe`]
#   scripts/probe.sh --probe matrix --store sqlite --verbose
#
# The long form probes the release binaries and takes about half an hour. The short form is part of `make test`: it takes the
# debug binaries, which the tests have built anyway, and the cases that are marked as short.
#
# What it needs is installed where missing (scripts/setup.sh, scripts/venv.sh). What cannot be installed is an error.
#
#   COUNTERSIGN_PROBE_DIR  parent of the working directory (default: /var/tmp; a disk, not memory)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'probe: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }

short=
arguments=()
for argument in "$@"; do
    if [[ $argument == --short ]]; then short=1; else arguments+=("$argument"); fi
done

target=${CARGO_TARGET_DIR:-target}
home=$target/probe
mkdir -p "$home"
home=$(cd "$home" && pwd)

scripts/setup.sh postgres nats faketime
python=$(scripts/venv.sh "$home/venv" probe/requirements.txt)

# ---------------------------------------------------------------- the binaries

if [[ -n $short ]]; then
    # With the features of the whole workspace, as the tests build it: nothing is compiled twice.
    cargo build --quiet --locked --workspace --bin countersign --bin countersign-verify
    binaries=$target/debug
    arguments+=(--short)
else
    cargo build --quiet --release --locked --workspace --bin countersign --bin countersign-verify --bin countersign-torture
    binaries=$target/release
fi

# A server of its own: probes restart it, and end its sessions.
env -u COUNTERSIGN_TEST_POSTGRES scripts/with-postgres.sh "$python" -m probe --binaries "$binaries" \
    --directory "${COUNTERSIGN_PROBE_DIR:-/var/tmp}" "${arguments[@]+"${arguments[@]}"}"
