#!/usr/bin/env bash
# Everything that has to hold before a change goes in. This is what CI runs.
set -euo pipefail
cd "$(dirname "$0")/.."

# Incremental compilation pays from the second build on; CI builds once.
[[ -z ${CI:-} ]] || export CARGO_INCREMENTAL=0

scripts/setup.sh cargo lint cc postgres nats faketime node browser
# The server embeds the console, so it comes first.
scripts/console.sh --check
scripts/lint.sh
scripts/tla.sh
scripts/vectors.sh
# Every failure is worth knowing, not the first one only.
scripts/with-postgres.sh cargo test --workspace --locked --no-fail-fast
# The binaries that the tests have built are attacked from outside.
scripts/probe.sh --short
# The console in a real browser, on the binary that the tests have built.
scripts/browser-tests.sh
