#!/usr/bin/env bash
# Formatting, clippy, licences, doubled crates and advisories. A warning is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'lint: %s\n' "$*"; }

cargo fmt --all --check

# Clippy compiles what the tests run: `source scripts/clippy.sh` puts it in place of the compiler.
source scripts/clippy.sh
cargo test --workspace --locked --no-run --quiet

# deny.toml is in the form of cargo-deny 0.18; older ones do not know all licences. Building it takes longer than our tests, so
# it is used where it is and never installed.
oldest_deny=18
deny=$(cargo deny --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+' | head -n 1) || true
if [[ -n $deny ]] && { [[ ${deny%%.*} -gt 0 ]] || [[ ${deny#*.} -ge $oldest_deny ]]; }; then
    cargo deny --locked check bans licenses sources
else
    deny_is="not installed"
    [[ -z $deny ]] || deny_is="$deny is too old"
    say "cargo deny ${deny_is}: SKIPPED (crates/testing/tests/architecture.rs checks licences, sources and doubled crates)"
fi

# The database of advisories is fetched. Without it nothing is known: say so, and do not fail for it.
if cargo audit --version >/dev/null 2>&1; then
    if advisories=$(cargo audit --quiet 2>&1); then
        say "cargo audit: no advisory concerns us"
    elif grep -qiE "couldn't fetch|failed to fetch|unable to fetch|error fetching|network|could not resolve" <<<"$advisories"; then
        say "cargo audit: SKIPPED (the database of advisories cannot be fetched here)"
    else
        printf '%s\n' "$advisories"
        exit 1
    fi
else
    say "cargo audit not installed: SKIPPED (nobody looks for advisories here; cargo install cargo-audit)"
fi
