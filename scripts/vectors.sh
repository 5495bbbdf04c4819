#!/usr/bin/env bash
# Checks the test vectors of evidence bundles (spec/vectors) with both verifiers, spec/verify.py and
# countersign-verify, and that the two agree:
#
#   scripts/vectors.sh [arguments of spec/vectors/test_vectors.py]
#
# Good bundles have to pass, every kind of tampering has to be found, and bundles of random histories have to
# pass in both.
#
#   COUNTERSIGN_VECTORS_RANDOM  how many random histories; 15 unless told
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'vectors: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }

target=${CARGO_TARGET_DIR:-target}
home=$target/vectors
mkdir -p "$home"
home=$(cd "$home" && pwd)

python=$(scripts/venv.sh "$home/venv" spec/requirements.txt)
# With the features of the whole workspace, as the tests build it: nothing is compiled twice.
cargo build --quiet --locked --workspace --bin countersign-verify
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
