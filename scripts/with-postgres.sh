#!/usr/bin/env bash
# Runs a command with a throw-away PostgreSQL:
#
#   scripts/with-postgres.sh cargo test --workspace
#   scripts/with-postgres.sh sh -c 'psql "$COUNTERSIGN_TEST_POSTGRES" -c "select version()"'
#
# The server listens on a free loopback port, keeps its files in a temporary directory and is gone when
# the command ends, however it ends. The command finds it in COUNTERSIGN_TEST_POSTGRES, and its exit
# status is ours. Where COUNTERSIGN_TEST_POSTGRES is set already, the command runs as it is.
#
#   COUNTERSIGN_TEST_PG_DIR    parent of the temporary directory (default: TMPDIR, /var/tmp, /tmp)
#   COUNTERSIGN_TEST_PG_FSYNC  on (default) or off; off is for quick loops, never for measurements
#
# shellcheck disable=SC2317 # the functions that traps call look unreachable
set -euo pipefail

say() { printf 'with-postgres: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

if (($# == 0)); then
    say "usage: $0 COMMAND [ARGUMENT...]"
    exit 2
fi
if [[ -n ${COUNTERSIGN_TEST_POSTGRES:-} ]]; then
    exec "$@"
fi

oldest_major=15
fsync=${COUNTERSIGN_TEST_PG_FSYNC:-on}
[[ $fsync == on || $fsync == off ]] || die "COUNTERSIGN_TEST_PG_FSYNC is on or off, not '$fsync'"

# ---------------------------------------------------------------- the binaries, newest first

find_binaries() {
    local dir
    while IFS= read -r dir; do
        if [[ -x $dir/initdb && -x $dir/pg_ctl && -x $dir/postgres ]]; then
            printf '%s\n' "$dir"
            return
        fi
    done < <(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV)
    dir=$(command -v pg_ctl) && dirname "$(readlink -f "$dir")"
}

bin=$(find_binaries) || die "PostgreSQL is not installed. On Debian: apt-get install postgresql"
version=$("$bin/postgres" --version | grep -oE '[0-9]+(\.[0-9]+)?' | head -n 1)
((${version%%.*} >= oldest_major)) || die "PostgreSQL $version in $bin is too old; $oldest_major or newer is needed"

# ---------------------------------------------------------------- the account: PostgreSQL refuses root

account=$(id -un)
if ((EUID == 0)); then
    account=postgres
    id -u "$account" >/dev/null 2>&1 || die "PostgreSQL refuses to run as root, and there is no user '$account' to run it as"
    command -v runuser >/dev/null || die "runuser (util-linux) is needed to start PostgreSQL as '$account'"
fi

# From a directory that the account can enter, in a language whose messages we can read.
as_account() {
    local run=(env -u PGDATA -u PGHOST -u PGPORT -u PGUSER -u PGOPTIONS LC_ALL=C "$@")
    if ((EUID == 0)); then
        run=(runuser -u "$account" -- "${run[@]}")
    fi
    (cd / && "${run[@]}")
}

# ---------------------------------------------------------------- whatever happens, leave nothing behind

dir=
child=

stop_server() {
    [[ -n $dir && -f $dir/data/postmaster.pid ]] || return 0
    # Immediate is right for data that nobody will read again; it also leaves no checkpoint to wait for.
    as_account "$bin/pg_ctl" stop -D "$dir/data" -m immediate -w -t 30 >/dev/null 2>&1 ||
        say "the server in $dir did not stop"
}

on_exit() {
    local status=$?
    trap '' INT TERM HUP
    trap - EXIT
    stop_server
    [[ -z $dir ]] || rm -rf -- "$dir" || say "could not remove $dir"
    exit "$status"
}

# The command has a process group of its own, so that a signal reaches all that it started.
on_signal() {
    trap '' INT TERM HUP
    if [[ -n $child ]] && kill -s "$1" -- "-$child" 2>/dev/null; then
        local tenths=100
        while ((tenths-- > 0)) && kill -0 -- "-$child" 2>/dev/null; do sleep 0.1; done
        kill -s KILL -- "-$child" 2>/dev/null || true
    fi
    exit "$2"
}

trap on_exit EXIT
trap 'on_signal HUP 129' HUP
trap 'on_signal INT 130' INT
trap 'on_signal TERM 143' TERM

# ---------------------------------------------------------------- a directory that the account can reach

# /var/tmp before /tmp: the latter is memory on many machines, where flushing to disk costs nothing.
make_directory() {
    local parent made
    for parent in "${COUNTERSIGN_TEST_PG_DIR:-}" "${TMPDIR:-}" /var/tmp /tmp; do
        [[ -n $parent && -d $parent ]] || continue
        made=$(mktemp -d "${parent%/}/countersign-pg.XXXXXX" 2>/dev/null) || continue
        # A socket's path may have 107 bytes.
        if ((${#made} <= 80)) && { ((EUID != 0)) || chown "$account" "$made"; } && as_account test -w "$made"; then
            printf '%s\n' "$made"
            return
        fi
        rm -rf -- "$made"
    done
    return 1
}

dir=$(make_directory) || die "no temporary directory that user '$account' can write to; set COUNTERSIGN_TEST_PG_DIR"
if [[ $(stat -f -c %T "$dir" 2>/dev/null) == tmpfs ]]; then
    say "note: $dir is in memory, so commits flush for free: do not compare speeds measured here"
fi

# ---------------------------------------------------------------- the server

# --no-sync concerns only the files that initdb itself writes.
if ! as_account "$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$dir/initdb.log" 2>&1; then
    cat "$dir/initdb.log" >&2
    die "initdb failed"
fi
cat >>"$dir/data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
unix_socket_directories = '$dir'
max_connections = 300
fsync = $fsync
synchronous_commit = on
full_page_writes = on
# Nobody replicates from this server. A commit is flushed all the same.
wal_level = minimal
max_wal_senders = 0
CONF

# The port is free when PostgreSQL can bind it; nothing else can say so without a race. Below 32768 we
# stay out of the range that Linux hands out to outgoing connections.
start_server() {
    local attempt
    for attempt in {1..20}; do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
        : >"$dir/log.$attempt"
        ((EUID != 0)) || chown "$account" "$dir/log.$attempt"
        if as_account "$bin/pg_ctl" start -D "$dir/data" -l "$dir/log.$attempt" -o "-p $port" -w -t 60 >/dev/null 2>&1; then
            return 0
        fi
        if ! grep -q 'could not bind' "$dir/log.$attempt"; then
            cat "$dir/log.$attempt" >&2
            die "PostgreSQL $version did not start; its log stands above"
        fi
    done
    die "found no free port on 127.0.0.1 in $attempt attempts"
}

start_server
export COUNTERSIGN_TEST_POSTGRES="postgres://postgres@127.0.0.1:$port/postgres"
say "PostgreSQL $version on 127.0.0.1:$port, fsync $fsync"

# ---------------------------------------------------------------- the command

# In the background, because bash attends to a signal only between foreground commands. A background
# process group may not read the terminal.
if [[ -t 0 ]]; then
    exec </dev/null
fi
set -m
"$@" &
child=$!
set +m
status=0
wait "$child" || status=$?
child=
exit "$status"
