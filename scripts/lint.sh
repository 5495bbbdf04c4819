#!/usr/bin/env bash
# Formatting and clippy, without mercy: a warning is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
