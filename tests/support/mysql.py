"""A real MySQL on loopback with its own data folder."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support import debian
from tests.support.mariadb import MAKE_USER, MariaDb, make_system_tables, running_server

#: No stable release of Debian has MySQL.
_PACKAGE, _SUITE = "mysql-server-core", "sid"
_FLAGS = (
    "--innodb-flush-method=nosync",
    "--max-allowed-packet=16M",
    "--mysqlx=OFF",
    "--secure-file-priv=NULL",
    "--log-bin-trust-function-creators=ON",  # else only an administrator makes triggers
)


def server_command() -> list[str]:
    """The command of an installed mysqld, or of Debian's package with its own libraries."""
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
    """A server for the block; it leaves nothing behind."""
    command = server_command()
    bootstrap = partial(_bootstrap, command)
    with running_server("mysql", [*command, *_FLAGS], bootstrap) as server:
        yield server


def _version_of(binary: str) -> str:
    done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)
    return done.stdout


def _bootstrap(command: Sequence[str], data: Path, user: str | None) -> None:
    """Create the system tables and a user with all privileges."""
    statements = data.with_name("users.sql")
    statements.write_text("\n".join((*MAKE_USER, "")))
    make_system_tables([*command, "--initialize-insecure", f"--init-file={statements}"], data, user)
