#!/usr/bin/env bash
# Installs one peer and measures it; a JSON line per result on standard output, everything else on standard error.
#
#   bench/peers/run.sh PEER --postgres URL --workdir DIR
#
# PEER is a directory here. It is installed into DIR/PEER, at the versions of its lock file.
# Exit status: 0 measured, 1 measuring failed, 3 the peer could not be installed here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

say() { printf 'peers: %s\n' "$*" >&2; }
usage() { say "usage: $0 PEER --postgres URL --workdir DIR"; exit 2; }

(($# == 5)) || usage
peer=$1
shift
while (($# > 0)); do
    case $1 in
        --postgres) postgres=$2 ;;
        --workdir) workdir=$2 ;;
        *) usage ;;
    esac
    shift 2
done
source=$here/$peer
[[ -f $source/peer.json ]] || { say "there is no peer '$peer'"; exit 2; }
mkdir -p "$workdir/$peer"
installed=$(cd "$workdir/$peer" && pwd)

need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { say "$peer: $tool is missing here"; return 1; }
    done
}

# Each leaves the command that starts the peer's program in `command`.
install_cargo() {
    need cargo
    cargo build --release --locked --quiet --manifest-path "$source/Cargo.toml" --target-dir "$installed/target" >&2
    command=("$installed/target/release/peer-$peer")
}

install_pip() {
    need python3
    export PEER_BIN=$installed/venv/bin
    [[ -x $PEER_BIN/python ]] || python3 -m venv "$installed/venv" >&2
    "$PEER_BIN/python" -m pip install --quiet --no-deps --disable-pip-version-check -r "$source/requirements.txt" >&2
    command=("$PEER_BIN/python" "$source/main.py")
}

# Node looks for packages beside the program, so the program goes to its packages. A peer may bring its own Node.
install_npm() {
    need npm node
    cp "$source"/*.json "$source"/*.mjs "$here/protocol.mjs" "$installed"
    (cd "$installed" && npm ci --no-audit --no-fund --loglevel=error) >&2
    command=(env "PATH=$installed/node_modules/node/bin:$PATH" node "$installed/main.mjs")
}

install() {
    need python3 psql
    [[ ! -f $source/Cargo.lock ]] || install_cargo
    [[ ! -f $source/requirements.txt ]] || install_pip
    [[ ! -f $source/package-lock.json ]] || install_npm
    installation=complete
}

# A trap, because `install || …` would switch off errexit in there.
trap '[[ -n ${installation:-} ]] || { say "$peer: SKIPPED: it cannot be installed here; the reason stands above"; exit 3; }' EXIT
install
trap - EXIT

stores=$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["stores"])' "$source/peer.json")
for store in $stores; do
    say "$peer on $store"
    python3 "$here/drive.py" "$peer" "$store" --postgres "$postgres" --workdir "$installed" -- "${command[@]}"
done
