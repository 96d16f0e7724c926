"""A real PostgreSQL on loopback with its own data folder."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import psycopg

from tests.support.addresses import free_address
from tests.support.waiting import wait_until

PASSWORD = "a pass/word"
_USER = "drover"
#: PostgreSQL refuses to run as root: these users are tried.
_OTHERS = ("postgres", "nobody")


@dataclass(frozen=True)
class Postgres:
    """A running server; ``database`` is the current test's.

    ``kill`` ends the server with SIGKILL and restarts it; ``end`` keeps it down until ``start``.
    """

    port: int
    database: str = "postgres"
    kill: Callable[[], None] = field(default=lambda: None, compare=False)
    end: Callable[[], None] = field(default=lambda: None, compare=False)
    start: Callable[[], None] = field(default=lambda: None, compare=False)

    @property
    def url(self) -> str:
        """The connection URL for a config."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{self.database}"

    @property
    def settings(self) -> dict[str, str]:
        """A connector's settings for the server."""
        return {
            "connection.url": self.url,
            "connection.user": _USER,
            "connection.password": PASSWORD,
        }

    @property
    def cdc_settings(self) -> dict[str, str]:
        """A change capture connector's settings for the server."""
        return {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": _USER,
            "database.password": PASSWORD,
            "database.dbname": self.database,
        }

    def execute(self, *statements: str) -> None:
        """Run statements with autocommit."""
        with self.connected() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """The rows of a query."""
        with self.connected() as connection:
            return list(connection.execute(query.encode()).fetchall())

    def insert(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows into ``name (columns)``."""
        with self.connected() as connection:
            for row in rows:
                places = ", ".join(["%s"] * len(row))
                connection.execute(f"INSERT INTO {table} VALUES ({places})".encode(), row)

    def session(self) -> "psycopg.Connection[tuple[object, ...]]":
        """A connection with explicit transactions; closed at the end of its context."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            dbname=self.database,
            user=_USER,
            password=PASSWORD,
        )

    def connected(self) -> "psycopg.Connection[tuple[object, ...]]":
        """A new session with autocommit."""
        connection = self.session()
        connection.autocommit = True
        return connection


def binaries() -> Path | None:
    """The folder of initdb and postgres, if they are installed."""
    places = [Path(found).resolve().parent for found in [shutil.which("postgres")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = find_spec("pgserver")
    if package is not None and package.origin:
        places.append(Path(package.origin).parent / "pginstall" / "bin")
    return next((each for each in places if (each / "initdb").exists()), None)


@contextmanager
def running_postgres(
    *,
    wal_level: str = "logical",
    log_directory: Path | None = None,
    bin_path: Path | None = None,
) -> Iterator[Postgres]:
    """A server for the block; it leaves nothing behind.

    ``log_directory`` is the folder of its WAL, in small segments, if not beside its data;
    ``bin_path`` the folder of its programs, if not the installed ones.
    """
    environment = dict(os.environ)
    if bin_path is not None:
        environment["LD_LIBRARY_PATH"] = str(bin_path.with_name("lib"))
    bin_path = bin_path or binaries()
    assert bin_path is not None, "install PostgreSQL (postgres and initdb)"
    user = unprivileged_user()
    directory = Path(tempfile.mkdtemp(prefix="drover-postgres-"))
    try:
        password_file = directory / "password"
        password_file.write_text(PASSWORD)
        if user is not None:
            for path in (directory, password_file):
                shutil.chown(path, user)
        data = directory / "data"
        subprocess.run(
            [
                *(bin_path / "initdb", "-D", data, "-U", _USER, "-A", "scram-sha-256"),
                *("--pwfile", password_file, "-E", "UTF8", "--no-locale", "--no-sync"),
                *(("-X", log_directory, "--wal-segsize=1") if log_directory else ()),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            user=user,
            cwd=directory,
            env=environment,
        )
        port = int(free_address().rpartition(":")[2])
        command = [
            *(bin_path / "postgres", "-D", data, "-p", str(port), "-k", directory),
            *("-h", "127.0.0.1", "-F", "-c", "timezone=America/New_York"),
            *("-c", f"wal_level={wal_level}", "-c", "max_replication_slots=50"),
            *("-c", "max_wal_senders=50"),
        ]
        with (directory / "log").open("ab") as log:
            start = partial(
                subprocess.Popen,
                command,
                stdout=log,
                stderr=log,
                user=user,
                cwd=directory,
                env=environment,
            )
            processes = [start()]

            def answers() -> bool:
                # the previous process still holds its shared memory
                if processes[-1].poll() is not None:
                    processes.append(start())
                return _answers(server)

            def end() -> None:
                processes[-1].kill()
                processes[-1].wait()

            def start_again() -> None:
                wait_until(answers, describe=told)

            def kill() -> None:
                end()
                start_again()

            def told() -> str:
                return (directory / "log").read_text()[-2_000:]

            server = Postgres(port, kill=kill, end=end, start=start_again)
            try:
                wait_until(answers, describe=told)
                yield server
            finally:
                processes[-1].terminate()
                with suppress(subprocess.TimeoutExpired):
                    processes[-1].wait(20)
                processes[-1].kill()
                processes[-1].wait()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _answers(server: Postgres) -> bool:
    try:
        server.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def unprivileged_user() -> str | None:
    """The user for a server that must not run as root; None for the current user."""
    if os.geteuid() != 0:
        return None
    import pwd

    names = {each.pw_name for each in pwd.getpwall()}
    return next(name for name in _OTHERS if name in names)
