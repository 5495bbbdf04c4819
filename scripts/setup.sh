#!/usr/bin/env bash
# Makes sure that what the build needs from the system is there:
#
#   scripts/setup.sh cargo cc postgres
#
#   cargo     looked for, never installed
#   lint      rustfmt and clippy: looked for, never installed
#   cc        a C compiler, for the bundled SQLite: installed where missing
#   postgres  server binaries for scripts/with-postgres.sh: installed where missing, unless
#             COUNTERSIGN_TEST_POSTGRES names a server
#   faketime  libfaketime, for the tests of a clock that jumps: installed where missing
#   node      Node.js 20 and npm, for the console: looked for; installed where missing
#   browser   Chromium, for the console's tests: installed where missing
#   java      a Java runtime, for the model checker: installed where missing
#   nats      nats-server, and openssl for its certificates, for the tests of events: installed where missing
#
# Installs only as root on Debian and its relatives; elsewhere it says what to install. Where nothing is
# missing, it does nothing and takes no time.
set -euo pipefail

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

need_cargo() {
    command -v cargo >/dev/null ||
        die "cargo was not found. Install Rust with rustup (https://rustup.rs), open a new shell and try again."
}

need_lint() {
    local tool
    for tool in fmt clippy; do
        cargo "$tool" --version >/dev/null 2>&1 ||
            die "cargo $tool is missing. Get it with: rustup component add rustfmt clippy"
    done
}

# Compiles and links for real: the compiler may be there without the C library's headers.
have_cc() {
    printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' | cc -x c - -o /dev/null 2>/dev/null
}

have_postgres() {
    local found
    [[ -n ${COUNTERSIGN_TEST_POSTGRES:-} ]] && return
    for found in /usr/lib/postgresql/*/bin/initdb; do
        [[ -x $found ]] && return
    done
    command -v initdb >/dev/null
}

have_node() {
    command -v npm >/dev/null && command -v node >/dev/null && (($(node -p 'process.versions.node.split(".")[0]') >= 20))
}

have_browser() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null
}

have_nats() {
    [[ -x /usr/sbin/nats-server ]] || command -v nats-server >/dev/null
}

have_faketime() {
    local found
    for found in /usr/lib/*/faketime/libfaketimeMT.so.1; do
        [[ -e $found ]] && return
    done
    return 1
}

missing=()
for need in "$@"; do
    case $need in
        cargo) need_cargo ;;
        lint) need_lint ;;
        cc) have_cc || missing+=(gcc libc6-dev) ;;
        postgres) have_postgres || missing+=(postgresql) ;;
        faketime) have_faketime || missing+=(libfaketime) ;;
        node) have_node || missing+=(nodejs npm) ;;
        java) java -version >/dev/null 2>&1 || missing+=(default-jre-headless) ;;
        browser) have_browser || missing+=(chromium) ;;
        nats)
            have_nats || missing+=(nats-server)
            command -v openssl >/dev/null || missing+=(openssl)
            ;;
        *) die "unknown need '$need'" ;;
    esac
done
((${#missing[@]} > 0)) || exit 0

if ! command -v apt-get >/dev/null; then
    die "a C compiler, Node.js 20 or newer, PostgreSQL 15 or newer and (for the tests) chromium, nats-server and libfaketime are needed; missing here (Debian's names): ${missing[*]}"
fi
if ((EUID != 0)); then
    die "missing system packages; as root, run: apt-get update && apt-get install ${missing[*]}"
fi
say "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
