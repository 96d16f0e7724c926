"""A real MySQL on loopback, with a data folder of its own."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support import debian
from tests.support.mariadb import USER, MariaDb, running_server
from tests.support.postgres import PASSWORD

#: No stable release of Debian has MySQL.
_PACKAGE, _SUITE = "mysql-server-core", "sid"
_FLAGS = (
    "--innodb-flush-method=nosync",
    "--max-allowed-packet=16M",
    "--mysqlx=OFF",
    "--secure-file-priv=NULL",
)
#: Else only an administrator makes triggers.
_TRIGGERS = "--log-bin-trust-function-creators=ON"


def server_command() -> list[str]:
    """How to run mysqld: what is installed, or that of Debian's package, with its own libraries."""
    installed = shutil.which("mysqld", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if installed is not None and "MySQL" in _version_of(installed):
        return [installed, "--no-defaults"]
    root = debian.root_of(_PACKAGE, _SUITE)
    (loader,) = root.glob("usr/lib/*/ld-linux-*.so.*")
    program = root / "usr/sbin/mysqld"
    command = [str(loader), "--library-path", str(loader.parent), str(program), "--no-defaults"]
    return [*command, f"--lc-messages-dir={root}/usr/share/mysql"]


@contextmanager
def running_mysql() -> Iterator[MariaDb]:
    """A server for a while; nothing is left of it."""
    command = server_command()
    bootstrap = partial(_bootstrap, command)
    with running_server("mysql", [*command, *_FLAGS, _TRIGGERS], bootstrap) as server:
        yield server


def _version_of(binary: str) -> str:
    done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)
    return done.stdout


def _bootstrap(command: Sequence[str], data: Path, user: str | None) -> None:
    """Make the system's tables and a user who may do everything."""
    statements = data.with_name("users.sql")
    statements.write_text(
        f"CREATE USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
        f"GRANT ALL ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;\n"
    )
    done = subprocess.run(
        [*command, "--initialize-insecure", f"--datadir={data}", f"--init-file={statements}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        user=user,
        cwd=data,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"mysqld made no system tables: {done.stdout[-2_000:]}"
