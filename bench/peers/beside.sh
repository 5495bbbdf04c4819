#!/usr/bin/env bash
# Measures the peers, then runs a command with their results: `make bench PEERS=1` puts this before our own benchmark.
#
#   PEERS="dbos-rust underway" bench/peers/beside.sh target/release/countersign-bench ARGUMENT...
#
# PEERS names peers, or is 1 for all of them. A peer that cannot be installed here is skipped, and the end says so; one
# that fails is an error. COUNTERSIGN_TEST_POSTGRES names the server: scripts/with-postgres.sh sets it.
set -euo pipefail
cd "$(dirname "$0")/../.."

all=(dbos-rust dbos-python underway absurd dbos-ts duroxide openworkflow restate pg-boss graphile-worker procrastinate)
workdir=target/bench/peers
results=target/bench/peers.jsonl

peers=("${all[@]}")
[[ ${PEERS:-1} == 1 ]] || read -ra peers <<<"$PEERS"
mkdir -p "$workdir"
: >"$results"
skipped=()
for peer in "${peers[@]}"; do
    status=0
    bench/peers/run.sh "$peer" --postgres "$COUNTERSIGN_TEST_POSTGRES" --workdir "$workdir" | tee -a "$results" || status=$?
    case $status in
        0) ;;
        3) skipped+=("$peer") ;;
        *) exit "$status" ;;
    esac
done
"$@" --peers "$results"
((${#skipped[@]} == 0)) || printf 'peers: not measured, because they cannot be installed here: %s\n' "${skipped[*]}" >&2
