#!/usr/bin/env bash
# The console's tests in Chromium, against a real server: console/e2e.
set -euo pipefail
cd "$(dirname "$0")/.."
export SERVER_BIN=${SERVER_BIN:-$PWD/${CARGO_TARGET_DIR:-target}/debug/countersign}
export VERIFIER_BIN=${VERIFIER_BIN:-$PWD/${CARGO_TARGET_DIR:-target}/debug/countersign-verify}
cd console
exec node --test --test-concurrency=1 e2e/*.test.mjs
