#!/usr/bin/env bash
# Everything that has to hold before a change goes in. This is what CI runs. All parts run, whatever fails; the end lists what failed.
set -euo pipefail
cd "$(dirname "$0")/.."

# Incremental compilation pays from the second build on; CI builds once.
[[ -z ${CI:-} ]] || export CARGO_INCREMENTAL=0

passed=() failed=()
part() {
    local name=$1 began=$SECONDS
    shift
    if "$@"; then passed+=("$name"); else failed+=("$name"); fi
    printf 'test: %s took %d s\n' "$name" $((SECONDS - began))
}

scripts/setup.sh cargo lint cc postgres nats faketime node browser java
# Everything below uses one build, which clippy checks while it compiles.
source scripts/clippy.sh
# The server embeds the console, so it comes first.
part console scripts/console.sh --check
part lint scripts/lint.sh
part tla scripts/tla.sh
part vectors scripts/vectors.sh
part tests scripts/with-postgres.sh cargo test --workspace --locked --no-fail-fast
# The commands of README.md, with the binaries that the tests have built.
part readme scripts/readme.sh
# The binaries that the tests have built are attacked from outside.
part probe scripts/probe.sh --short
# The console in a real browser, on the binary that the tests have built.
part browser scripts/browser-tests.sh

((${#failed[@]} == 0)) || printf 'test: FAILED: %s\n' "${failed[*]}"
printf 'parts: %d passed, %d failed\n' ${#passed[@]} ${#failed[@]}
((${#failed[@]} == 0))
