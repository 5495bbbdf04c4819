#!/usr/bin/env bash
# Builds the verifier for browsers and puts it where the console's build takes it from.
#
# Where the compiler's target for WebAssembly cannot be had, the page offers the command line instead of verifying; in CI that
# is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
target=wasm32-unknown-unknown
out=console/src/wasm/verifier.wasm
mkdir -p "$(dirname "$out")"
# Whether the compiler has the target's standard library, whichever way it was installed.
have_target() { [[ -d $(rustc --print target-libdir --target "$target" 2>/dev/null) ]]; }
if ! have_target && ! { rustup target add "$target" && have_target; }; then
    [[ -z ${CI:-} ]] || { echo "wasm: the target $target cannot be installed" >&2; exit 1; }
    echo "wasm: the target $target cannot be installed; the console offers the command line instead of verifying" >&2
    : >"$out"
    exit 0
fi
cargo build --quiet --locked --profile wasm -p countersign-verifier-wasm --target "$target"
cp "${CARGO_TARGET_DIR:-target}/$target/wasm/countersign_verifier_wasm.wasm" "$out"
