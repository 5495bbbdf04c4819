#!/usr/bin/env bash
# Runs the shell commands of README.md (its ```sh blocks) in the order in which a reader meets them, in an empty directory and with
# the debug binaries:
#
#   scripts/readme.sh
#
# Every command has to succeed. A command whose comment says `# refused` has to be refused (exit code 1); where a code follows, as in
# `# refused: gate-not-cleared`, the refusal has to name it. A command that ends with `&` goes on beside the next ones: the server is
# stopped at the end, and any other such command has to end by itself, with success.
#
# Left out is every block that calls `make` or `cargo`: it builds or tests the source tree, which is what called us.
set -euo pipefail
cd "$(dirname "$0")/.."

# A command that never ends is a failure, too.
limit_s=300
[[ -n ${README_LIMITED:-} ]] || exec env README_LIMITED=1 timeout "$limit_s" scripts/readme.sh

say() { printf 'readme: %s\n' "$*"; }
root=$PWD
binaries=$(cd "${CARGO_TARGET_DIR:-target}/debug" && pwd)
for binary in countersign countersign-verify; do
    [[ -x $binaries/$binary ]] || { say "$binaries/$binary is missing: the tests build it" >&2; exit 1; }
done

work=$(mktemp -d)
server=
finish() {
    local status=$?
    trap - EXIT
    # shellcheck disable=SC2046 # a list of process ids
    kill $(jobs -p) 2>/dev/null || true
    wait || true
    rm -rf -- "$work"
    exit "$status"
}
trap finish EXIT
trap 'say "stopped after $limit_s s, at README.md:${line:-0}" >&2; exit 143' TERM

# ---------------------------------------------------------------- the commands: LINE<tab>COMMAND

awk '
    /^```sh$/ { inside = 1; kept = ""; left_out = 0; next }
    /^```/ && inside { inside = 0; if (left_out) skipped++; else { printf "%s", kept; blocks++ } next }
    inside && /^ *(make|cargo)( |$)/ { left_out = 1 }
    inside && NF { kept = kept NR "\t" $0 "\n" }
    END { printf "%d %d\n", blocks, skipped > "/dev/stderr" }
' README.md >"$work/commands" 2>"$work/counts"
read -r blocks skipped <"$work/counts"
((blocks > 0 && $(wc -l <"$work/commands") > 0)) || { say "README.md has no command to run" >&2; exit 1; }

# ---------------------------------------------------------------- a checkout whose release build is the debug build

mkdir -p "$work/checkout/target" "$work/home" "$work/tmp"
ln -s "$binaries" "$work/checkout/target/release"
ln -s "$root/definitions" "$work/checkout/definitions"
for name in $(compgen -e | grep -E '^(COUNTERSIGN_|XDG_)'); do unset "$name"; done
export HOME=$work/home TMPDIR=$work/tmp

# Another server may have the standard port here.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export COUNTERSIGN_SERVER=http://127.0.0.1:$port
countersign() {
    case $1 in
        serve) exec "$binaries/countersign" "$@" --listen "127.0.0.1:$port" ;;
        *) command countersign "$@" ;;
    esac
}

# ---------------------------------------------------------------- run them

wrong=0
bad() {
    wrong=$((wrong + 1))
    say "README.md:$1: $2" >&2
    tail -n 20 "$work/out" "$work/err" >&2
}

cd "$work/checkout"
ran=0
declare -A beside=()
while IFS=$'\t' read -r -u 3 line text; do
    ran=$((ran + 1))
    status=0
    : >"$work/out" >"$work/err"
    if [[ ${text%%  #*} =~ \&\ *$ ]]; then
        eval "$text" >"$work/out.$line" 2>"$work/err.$line" </dev/null
        if [[ $text == 'countersign serve'* ]]; then server=$!; else beside[$line]=$!; fi
        continue
    fi
    eval "$text" >"$work/out" 2>"$work/err" </dev/null || status=$?
    case $text in
        *'# refused'*)
            code=$(sed -n 's/.*# refused: *\([a-z_-]*\).*/\1/p' <<<"$text")
            ((status == 1)) || bad "$line" "should be refused, and ended with $status: $text"
            grep -qF -- "$code" "$work/out" "$work/err" || bad "$line" "was not refused with $code: $text"
            ;;
        *) ((status == 0)) || bad "$line" "ended with $status: $text" ;;
    esac
done 3<"$work/commands"

for line in "${!beside[@]}"; do
    for ((tenths = 0; tenths < 300; tenths++)); do kill -0 "${beside[$line]}" 2>/dev/null || break; sleep 0.1; done
    kill "${beside[$line]}" 2>/dev/null && bad "$line" "did not end" && continue
    wait "${beside[$line]}" || { cp "$work/err.$line" "$work/err"; bad "$line" "a command in the background failed"; }
done
if [[ -n $server ]]; then
    kill "$server" 2>/dev/null || bad 0 "the server did not run until the end"
fi
((wrong == 0)) || { say "$wrong of $ran commands did not do what README.md says" >&2; exit 1; }
say "$ran commands of $blocks blocks did what README.md says; $skipped block(s) that build the source tree left out"
