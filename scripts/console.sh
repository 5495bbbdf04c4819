#!/usr/bin/env bash
# Builds the web console into console/dist: packages, the verifier for browsers, then the page. Where nothing has changed since the
# last build, it does nothing.
#
#   --check   lint and test it as well
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'console: %s\n' "$*"; }

stamp() {
    find console crates/verifier crates/verifier-wasm Cargo.lock -type f \
        -not -path 'console/node_modules/*' -not -path 'console/dist/*' -not -path 'console/src/wasm/*' -not -name schema.d.ts -not -path console/src/api/statements.ts \
        -print0 | sort -z | xargs -0 sha256sum | sha256sum
}

now=$(stamp)
if [[ ! -f console/node_modules/.package-lock.json || console/package-lock.json -nt console/node_modules/.package-lock.json ]]; then
    say "installing packages"
    (cd console && npm ci --no-audit --no-fund --loglevel=error)
    touch console/node_modules/.package-lock.json
fi
if [[ ! -f console/dist/index.html || $(cat console/dist/.stamp 2>/dev/null) != "$now" ]]; then
    scripts/wasm.sh
    (cd console && npm run --silent build)
    printf '%s\n' "$now" >console/dist/.stamp
fi
if [[ ${1:-} == --check ]]; then
    (cd console && npm run --silent lint && npm run --silent test)
fi
