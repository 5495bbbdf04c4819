#!/usr/bin/env bash
# Makes a Python virtual environment with pinned packages, and prints the path of its python:
#
#   scripts/venv.sh target/vectors/venv spec/requirements.txt [further arguments of pip install]
#
# Where the environment holds exactly these packages already, this does nothing. Python and its venv are installed where missing, as
# root on Debian and its relatives. What cannot be installed is an error: a check that did not run has shown nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'venv: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

(($# >= 2)) || die "usage: $0 DIRECTORY REQUIREMENTS [ARGUMENT OF PIP...]"
venv=$1 requirements=$2
shift 2
mkdir -p "$(dirname "$venv")"
log=$venv.log
python=$venv/bin/python

if [[ -x $python ]] && cmp -s "$requirements" "$venv/requirements.txt"; then
    printf '%s\n' "$python"
    exit
fi

# Also shows whether pip can be set up in an environment.
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    command -v apt-get >/dev/null || die "Python 3.10 or newer with venv is needed"
    ((EUID == 0)) || die "missing system packages; as root, run: apt-get update && apt-get install python3 python3-venv"
    say "installing python3 python3-venv"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 python3-venv; } >"$log" 2>&1 ||
        die "python3 and python3-venv could not be installed; see $log"
fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "Python 3.10 or newer is needed; this is $(python3 --version)"

rm -rf "$venv"
python3 -m venv "$venv" >"$log" 2>&1 || die "no virtual environment could be made; see $log"
"$python" -m pip install --quiet --disable-pip-version-check --retries 2 --timeout 30 --only-binary :all: "$@" -r "$requirements" >>"$log" 2>&1 ||
    die "the packages of $requirements could not be installed; see $log"
cp "$requirements" "$venv/requirements.txt"
printf '%s\n' "$python"
