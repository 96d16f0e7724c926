"""A real MariaDB on loopback with its own data folder, and the code that it shares with MySQL."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pymysql

from drover.security.certificates import TlsFiles
from tests.support.addresses import free_ports
from tests.support.certificates import Authority, issue
from tests.support.debian import install
from tests.support.postgres import PASSWORD, unprivileged_user
from tests.support.waiting import wait_until

PACKAGE = "mariadb-server-core"
_USER = "drover"
#: Statements that create a user with all privileges.
MAKE_USER = (
    f"CREATE USER '{_USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';",
    f"GRANT ALL ON *.* TO '{_USER}'@'127.0.0.1' WITH GRANT OPTION;",
)
_SHARE = Path("/usr/share/mysql")
_SYSTEM_TABLES = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
)
_FLAGS = (
    "--no-defaults",
    "--innodb-flush-method=nosync",
    "--innodb-log-file-size=64M",
    "--innodb-buffer-pool-size=128M",
)


@dataclass(frozen=True)
class MariaDb:
    """A running server: MariaDB, or MySQL according to ``kind``; ``database`` is the current
    test's.

    ``tls`` is its certificate, valid for 127.0.0.1 only; clients may use it too. ``kill`` ends the
    server with SIGKILL and restarts it.
    """

    port: int
    kind: str
    tls: TlsFiles
    database: str = "mysql"
    kill: Callable[[], None] = field(default=lambda: None, compare=False)

    @property
    def url(self) -> str:
        """The connection URL for a config."""
        return f"jdbc:{self.kind}://127.0.0.1:{self.port}/{self.database}"

    @property
    def settings(self) -> dict[str, str]:
        """A connector's settings for the server."""
        return {
            "connection.url": self.url,
            "connection.user": _USER,
            "connection.password": PASSWORD,
        }

    def created(self, database: str) -> "MariaDb":
        """Create a database."""
        self.execute(f"CREATE DATABASE {database}")
        return replace(self, database=database)

    def execute(self, *statements: str) -> None:
        """Run statements with autocommit; names may be in double quotes."""
        with self._connected() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """The rows of a query."""
        with self._connected() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def _connected(self) -> "closing[pymysql.Connection]":
        return closing(
            pymysql.connect(
                host="127.0.0.1",
                port=self.port,
                user=_USER,
                password=PASSWORD,
                database=self.database,
                charset="utf8mb4",
                sql_mode="ANSI_QUOTES,STRICT_ALL_TABLES",
                autocommit=True,
            )
        )


def server_binary() -> Path | None:
    """The path of mariadbd; CI unpacks Debian's package if it is missing."""
    found = _installed()
    if found is None and os.environ.get("CI") and os.geteuid() == 0 and shutil.which("apt-get"):
        with (Path(tempfile.gettempdir()) / "drover-apt.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = _installed() or _install()
    return found


def _installed() -> Path | None:
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return Path(found) if found and (_SHARE / _SYSTEM_TABLES[0]).exists() else None


def _install() -> Path | None:
    install(PACKAGE)
    return _installed()


@contextmanager
def running_mariadb() -> Iterator[MariaDb]:
    """A server for the block; it leaves nothing behind."""
    binary = server_binary()
    assert binary is not None, f"install MariaDB ({PACKAGE} of Debian or Ubuntu)"
    command = [str(binary), *_FLAGS, "--character-set-server=utf8mb4"]
    with running_server("mariadb", command, partial(_bootstrap, binary)) as server:
        yield server


@contextmanager
def running_server(
    kind: str, command: Sequence[str], bootstrap: Callable[[Path, str | None], None]
) -> Iterator[MariaDb]:
    """Run a server command; ``bootstrap`` initializes its data folder as the given user."""
    user = unprivileged_user()
    directory = Path(tempfile.mkdtemp(prefix=f"drover-{kind}-"))
    data = directory / "data"
    data.mkdir()
    try:
        tls = issue(directory / "tls", Authority.make(), hosts=("127.0.0.1",))
        if user is not None:
            for path in (directory, data, *map(Path, (tls.ca, tls.cert, tls.key))):
                shutil.chown(path, user)
        bootstrap(data, user)
        (port,) = free_ports(1)
        process = _Process(
            [
                *(*command, f"--datadir={data}", f"--port={port}"),
                *("--bind-address=127.0.0.1", f"--socket={directory}/socket"),
                *(f"--pid-file={directory}/pid", f"--tmpdir={directory}", "--skip-name-resolve"),
                *("--default-time-zone=-05:00", f"--ssl-ca={tls.ca}"),
                *(f"--ssl-cert={tls.cert}", f"--ssl-key={tls.key}"),
            ],
            directory,
            user,
        )
        server = MariaDb(port, kind, tls, kill=process.kill_and_start)
        try:
            process.start(server)
            yield server
        finally:
            process.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _bootstrap(binary: Path, data: Path, user: str | None) -> None:
    """Create the system tables and a user with all privileges."""
    statements = [
        "CREATE DATABASE mysql;",
        "USE mysql;",
        *((_SHARE / each).read_text() for each in _SYSTEM_TABLES),
        "FLUSH PRIVILEGES;",
        *MAKE_USER,
        "",
    ]
    command = [str(binary), *_FLAGS, "--bootstrap", f"--tmpdir={data.parent}"]
    make_system_tables(command, data, user, "\n".join(statements))


def make_system_tables(
    command: Sequence[str], data: Path, user: str | None, statements: str = ""
) -> None:
    """Run a server that initializes its data folder and ends."""
    done = subprocess.run(
        [*command, f"--datadir={data}"],
        input=statements,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        user=user,
        cwd=data,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"the server made no system tables: {done.stdout[-2_000:]}"


class _Process:
    """The server's process, which can be killed and restarted."""

    def __init__(self, command: list[str], directory: Path, user: str | None) -> None:
        self._command = command
        self._directory = directory
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        self._server: MariaDb | None = None

    def start(self, server: MariaDb) -> None:
        self._server = server
        self._launch()
        wait_until(self._answers, timeout_s=120, describe=self._told)

    def kill_and_start(self) -> None:
        assert self._process is not None
        assert self._server is not None
        self._process.kill()
        self._process.wait()
        self.start(self._server)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()  # its folder is removed, so its data need not be flushed
        self._process.wait()

    def _launch(self) -> None:
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, user=self._user, cwd=self._directory
            )

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._server is not None
        assert self._process.poll() is None, f"the server ended: {self._told()}"
        with suppress(pymysql.err.OperationalError):
            self._server.execute("SELECT 1")
            return True
        return False

    def _told(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-2_000:]
