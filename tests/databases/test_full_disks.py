"""A full disk under a database: the error names the cause, and no record is lost."""

import random
import shutil
import string
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drover.connector import RetriableError
from drover.connectors.postgres.remedies import MAKE_ROOM
from tests.databases.conftest import Sqlite
from tests.support.postgres import Postgres, running_postgres, unprivileged_user
from tests.support.server_disk import disk_of_a_server
from tests.support.service_process import fill
from tests.support.table_reading import TableReader
from tests.support.table_records import address_with_ledger, item, records, write

_ROWS, _ROW_CHARS = 500, 20_000
_COUNT = "SELECT count(*), sum(length(name)) FROM items"


@contextmanager
def table_on_a_small_disk(database: Postgres | Sqlite, disk: Path) -> Iterator[Postgres | Sqlite]:
    """Yields a database whose table "items" with two columns is on the small disk."""
    columns = "(id BIGINT PRIMARY KEY, name TEXT)"
    match database:
        case Postgres():
            space = f"small_{database.database}"
            (disk / "pg").mkdir()
            shutil.chown(disk / "pg", unprivileged_user() or disk.owner())
            database.execute(
                f"CREATE TABLESPACE {space} LOCATION '{disk / 'pg'}'",
                f"CREATE TABLE items {columns} TABLESPACE {space}",
            )
            yield database
            database.execute("DROP TABLE items")
            drop_tablespace(database, space)
        case Sqlite():
            found = Sqlite(disk / "a.db")
            found.execute(f"CREATE TABLE items {columns}")
            yield found


def drop_tablespace(database: Postgres, space: str) -> None:
    """A checkpoint is needed: a server killed later would look for the tablespace at recovery."""
    database.execute("CHECKPOINT", f"DROP TABLESPACE {space}")


def incompressible(chars: int) -> str:
    """Text that does not compress."""
    return "".join(random.choices(string.ascii_letters, k=chars))


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_a_sink_goes_on_when_there_is_room(kind: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(kind)
    with disk_of_a_server("48m") as disk, table_on_a_small_disk(server, disk) as database:
        address = address_with_ledger(database.settings)
        write(address, records(item(0, "a")))
        batch = records(
            *(item(number, incompressible(_ROW_CHARS)) for number in range(1, _ROWS + 1)), start=1
        )
        filler = fill(disk, leave_bytes=256 * 1024)
        told = rf"writing at .*(full|left on device).*: {MAKE_ROOM}"
        with pytest.raises(RetriableError, match=told):
            write(address, batch)
        assert database.rows(_COUNT) == [(1, 1)]
        filler.unlink()
        assert write(address, batch) == _ROWS
        assert database.rows(_COUNT) == [(_ROWS + 1, _ROWS * _ROW_CHARS + 1)]


def test_a_source_goes_on_when_there_is_room(postgres: Postgres) -> None:
    """Without an index, the source's query sorts its rows in temporary files."""
    with disk_of_a_server("32m") as disk:
        space = f"sorted_{postgres.database}"
        postgres.execute(
            f"CREATE TABLESPACE {space} LOCATION '{disk}'",
            "CREATE TABLE items (id BIGINT NOT NULL, name TEXT)",
            "INSERT INTO items SELECT n, repeat(md5(n::text), 10) FROM generate_series(1, 50000) n",
            f"ALTER DATABASE {postgres.database} SET temp_tablespaces = '{space}'",
            f"ALTER DATABASE {postgres.database} SET work_mem = '64kB'",
        )
        reader = TableReader(postgres, "incrementing")
        filler = fill(disk, leave_bytes=256 * 1024)
        with pytest.raises(RetriableError, match=f"No space left on device: {MAKE_ROOM}"):
            reader.ids()
        filler.unlink()
        assert TableReader(postgres, "incrementing").ids() == [*range(1, 50_001)]
        postgres.execute(f"ALTER DATABASE {postgres.database} RESET temp_tablespaces")
        drop_tablespace(postgres, space)


@pytest.mark.faults("connectors")
def test_a_server_that_ended_for_want_of_room_is_waited_for() -> None:
    """A PostgreSQL whose WAL disk is full shuts down, and starts only once there is room."""
    with (
        disk_of_a_server("48m") as disk,
        running_postgres(log_directory=disk / "log") as server,
    ):
        address = address_with_ledger(server.settings)
        write(address, records(item(0, "a")))
        rows = [item(number, incompressible(_ROW_CHARS)) for number in range(1, _ROWS + 1)]
        filler = fill(disk)
        for _ in range(2):  # while it shuts down, and after that
            with pytest.raises(RetriableError, match="writing at"):
                write(address, records(*rows, start=1))
        filler.unlink()
        server.start()
        assert server.rows(_COUNT) == [(1, 1)]
        assert write(address, records(*rows, start=1)) == _ROWS
        assert server.rows(_COUNT) == [(_ROWS + 1, _ROWS * _ROW_CHARS + 1)]
