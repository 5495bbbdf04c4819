#!/usr/bin/env bash
# Builds the verifier for browsers and puts it where the console's build takes it from.
set -euo pipefail
cd "$(dirname "$0")/.."
target=wasm32-unknown-unknown
out=console/src/wasm/verifier.wasm
mkdir -p "$(dirname "$out")"
cannot() {
    echo "wasm: $1; the console offers the command line instead of verifying" >&2
    : >"$out"
    exit 0
}
if ! rustup target list --installed 2>/dev/null | grep -qx "$target"; then
    rustup target add "$target" || cannot "the target $target cannot be installed"
fi
# The passkeys' signatures are checked with ring, which does not build for browsers yet (docs/adr/0043-console.md).
cargo build --locked --profile wasm -p countersign-verifier-wasm --target "$target" || cannot "the verifier does not build for browsers"
cp "${CARGO_TARGET_DIR:-target}/$target/wasm/countersign_verifier_wasm.wasm" "$out"
