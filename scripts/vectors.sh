#!/usr/bin/env bash
# Checks the test vectors of evidence bundles (spec/vectors) with both verifiers, spec/verify.py and
# countersign-verify, and that the two agree:
#
#   scripts/vectors.sh [arguments of spec/vectors/test_vectors.py]
#
# Good bundles have to pass, every kind of tampering has to be found, and bundles of random histories have to
# pass in both.
#
# Python with its venv is installed where missing, as root on Debian and its relatives; the one package that
# is needed goes into a virtual environment under target/. Where these cannot be had, this says SKIPPED and
# succeeds.
#
#   COUNTERSIGN_VECTORS_RANDOM  how many random histories; 15 unless told
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'vectors: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }
skip() { say "SKIPPED: $*"; exit 0; }

target=${CARGO_TARGET_DIR:-target}
home=$target/vectors
mkdir -p "$home"
home=$(cd "$home" && pwd)

# ---------------------------------------------------------------- what the Python side needs

# As setup.sh does it, but a failure is no error here.
install_packages() {
    ((EUID == 0)) && command -v apt-get >/dev/null || return 1
    say "installing $*"
    {
        DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    } >"$home/apt.log" 2>&1
}

python=$home/venv/bin/python

# The package in the version that is pinned.
have_package() {
    [[ -x $python ]] && cmp -s spec/requirements.txt "$home/venv/requirements.txt" &&
        "$python" -c 'import cryptography' >/dev/null 2>&1
}

make_venv() {
    rm -rf "$home/venv"
    python3 -m venv "$home/venv" >"$home/pip.log" 2>&1
}

install_package() {
    "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 --only-binary :all: \
        -r spec/requirements.txt >>"$home/pip.log" 2>&1 && cp spec/requirements.txt "$home/venv/requirements.txt"
}

if ! have_package; then
    command -v python3 >/dev/null || install_packages python3 python3-venv || skip "there is no Python"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "Python 3.10 or later is needed"
    make_venv || { install_packages python3-venv && make_venv; } || skip "Python has no venv (Debian: python3-venv)"
    install_package || skip "the Python package of spec/requirements.txt could not be had; see pip.log in target/vectors"
fi

# ---------------------------------------------------------------- both verifiers on everything

cargo build --quiet --locked -p countersign-verifier --bin countersign-verify
verifier=$target/debug/countersign-verify
[[ -x $verifier ]] || die "$verifier was not built"

began=$SECONDS
output=$home/output
# Another seed every time would make a failure hard to see again; `--seed` is there for whoever looks for more.
"$python" spec/vectors/test_vectors.py --verifier "$verifier" --random "${COUNTERSIGN_VECTORS_RANDOM:-15}" "$@" >"$output" 2>&1 || {
    grep -v '^note ' "$output" | tail -n 60
    die "the verifiers did not behave as expected; all output is in target/vectors/output"
}
say "$(tail -n 1 "$output"), both verifiers agree ($((SECONDS - began)) s)"
