#!/usr/bin/env bash
# Everything that has to hold before a change goes in. This is what CI runs.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh cargo lint cc postgres nats
scripts/lint.sh
scripts/tla.sh
scripts/vectors.sh
# Every failure is worth knowing, not the first one only.
scripts/with-postgres.sh cargo test --workspace --locked --no-fail-fast
