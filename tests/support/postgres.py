"""A real PostgreSQL on loopback, with a data folder of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psycopg

from tests.support.addresses import free_address
from tests.support.waiting import wait_until

PASSWORD = "a pass/word"
_USER = "drover"
#: PostgreSQL does not run as root: these users are tried then.
_OTHERS = ("postgres", "nobody")


@dataclass(frozen=True)
class Postgres:
    """A running server; ``database`` is the one of the present test."""

    port: int
    database: str = "postgres"

    @property
    def url(self) -> str:
        """As a config has it."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{self.database}"

    @property
    def settings(self) -> dict[str, str]:
        """A connector's settings to reach it."""
        return {
            "connection.url": self.url,
            "connection.user": _USER,
            "connection.password": PASSWORD,
        }

    def execute(self, *statements: str) -> None:
        """Run statements, each committed by itself."""
        with self._connected() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """What a query finds."""
        with self._connected() as connection:
            return list(connection.execute(query.encode()).fetchall())

    def _connected(self) -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            dbname=self.database,
            user=_USER,
            password=PASSWORD,
            autocommit=True,
        )


def binaries() -> Path | None:
    """Where initdb and postgres are, if they are installed."""
    places = [Path(found).resolve().parent for found in [shutil.which("postgres")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = find_spec("pgserver")
    if package is not None and package.origin:
        places.append(Path(package.origin).parent / "pginstall" / "bin")
    return next((each for each in places if (each / "initdb").exists()), None)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server for a while; nothing is left of it."""
    bin_path = binaries()
    assert bin_path is not None, "install PostgreSQL (postgres and initdb)"
    user = _user()
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
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            user=user,
            cwd=directory,
        )
        port = int(free_address().rpartition(":")[2])
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(bin_path / "postgres", "-D", data, "-p", str(port), "-k", directory),
                    *("-h", "127.0.0.1", "-F", "-c", "timezone=America/New_York"),
                ],
                stdout=log,
                stderr=log,
                user=user,
                cwd=directory,
            )
        server = Postgres(port)
        try:
            wait_until(
                lambda: _answers(server, process),
                describe=lambda: (directory / "log").read_text()[-2_000:],
            )
            yield server
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _answers(server: Postgres, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, "it ended"
    try:
        server.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def _user() -> str | None:
    """Who runs the server; None for the present user."""
    if os.geteuid() != 0:
        return None
    import pwd

    names = {each.pw_name for each in pwd.getpwall()}
    return next(name for name in _OTHERS if name in names)
