"""The throw-away PostgreSQL that scripts/with-postgres.sh started for us: databases, sessions, faults."""

import glob
import os
import subprocess
import urllib.parse
import uuid

from .report import Broken


class Postgres:
    def __init__(self, address):
        self.parsed = urllib.parse.urlsplit(address)
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))
        self.bin = found[-1] if found else ""

    def url(self, database, options=""):
        return f"postgres://{self.parsed.netloc}/{database}{options}"

    def program(self, name):
        path = os.path.join(self.bin, name)
        return path if os.path.exists(path) else name

    def sql(self, statement, database="postgres", check=True, timeout=120):
        command = [self.program("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.url(database)]
        run = subprocess.run([*command, "-c", statement], capture_output=True, text=True, timeout=timeout)
        if check and run.returncode:
            raise Broken(f"psql: {run.stderr.strip()}")
        return run.stdout.strip()

    def session(self, script, database):
        """A session that goes on by itself."""
        command = [self.program("psql"), "-X", "-q", "-d", self.url(database), "-c", script]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def database(self, tablespace=None):
        name = f"probe_{uuid.uuid4().hex[:12]}"
        more = f" TABLESPACE {tablespace}" if tablespace else ""
        self.sql(f'CREATE DATABASE "{name}"{more}')
        return name

    def drop(self, database):
        self.sql(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)', check=False)

    def terminate(self, database):
        """Ends every session in this database; how many."""
        return int(self.sql(
            f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'"
        ))

    # ------------------------------------------------------------ the server itself

    def control(self, *arguments):
        """`pg_ctl` on its data directory, as the account that owns it."""
        if not getattr(self, "data", None):
            self.data = self.sql("SHOW data_directory")
        log = os.path.join(os.path.dirname(self.data), "log.probe")
        command = [self.program("pg_ctl"), *arguments, "-D", self.data, "-l", log, "-w", "-t", "60"]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        run = subprocess.run(command, capture_output=True, text=True, cwd="/", stdin=subprocess.DEVNULL, timeout=120)
        if run.returncode:
            raise Broken(f"pg_ctl {arguments}: {run.stdout}{run.stderr}")
