#!/usr/bin/env bash
# Attacks a real server from outside, on SQLite and on a throw-away PostgreSQL, and says what held:
#
#   scripts/probe.sh [--short] [arguments of `python -m probe`]
#   scripts/probe.sh --probe matrix --store sqlite --verbose
#
# The long form probes the release binaries and takes about half an hour. The short form is part of `make test`: it takes the
# debug binaries, which the tests have built anyway, and the cases that are marked as short.
#
# Python with its venv, libfaketime and nats-server are installed where missing, as root on Debian and its relatives; the
# Python packages go into a virtual environment under target/, in the versions of probe/requirements.txt. What cannot be had
# is an error: a probe that did not run has shown nothing.
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

# ---------------------------------------------------------------- what the probes need

have_faketime() { compgen -G '/usr/lib*/*/faketime/libfaketimeMT.so.1' >/dev/null || compgen -G '/usr/lib*/faketime/libfaketimeMT.so.1' >/dev/null; }

missing=()
command -v python3 >/dev/null || missing+=(python3)
# Also tells whether pip can be set up in it.
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
have_faketime || missing+=(faketime)
if ((${#missing[@]} > 0)); then
    command -v apt-get >/dev/null || die "missing here (Debian's names): ${missing[*]}"
    ((EUID == 0)) || die "missing system packages; as root, run: apt-get update && apt-get install ${missing[*]}"
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$home/apt.log" 2>&1 ||
        die "the packages ${missing[*]} could not be installed; see apt.log in target/probe"
fi
scripts/setup.sh postgres nats

python=$home/venv/bin/python
if ! { [[ -x $python ]] && cmp -s probe/requirements.txt "$home/venv/requirements.txt"; }; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "Python 3.10 or later is needed"
    rm -rf "$home/venv"
    python3 -m venv "$home/venv" >"$home/pip.log" 2>&1 || die "no virtual environment could be made; see pip.log in target/probe"
    "$python" -m pip install --quiet --disable-pip-version-check --retries 2 --timeout 30 --only-binary :all: \
        -r probe/requirements.txt >>"$home/pip.log" 2>&1 ||
        die "the packages of probe/requirements.txt could not be installed; see pip.log in target/probe"
    cp probe/requirements.txt "$home/venv/requirements.txt"
fi

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
