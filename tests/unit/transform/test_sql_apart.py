"""Queries of the transform Sql in processes without other work, as an engine runs them."""

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from drover.record.errors import PassError, RecordError, RowsError
from drover.transform.sql import apart
from drover.transform.sql.apart import QueryProcesses
from drover.transform.sql.statement import StatementError, parse_statement
from tests.unit.transform.test_sql import batch_of, row, sql, values_of

LIMIT_MS = 60_000
SERVE = (
    "import socket, sys; "
    "from drover.transform.sql.serve import serve_queries; "
    "serve_queries(socket.socket(fileno=int(sys.argv[1])))"
)
#: One call that takes hours: DuckDB looks for interrupts between calls only. The fixture waits for
#: the end of the process.
ENDLESS = "SELECT {'distance': levenshtein(value.cityName, value.cityName)} AS value FROM batch"
LONG = "a" * 4_000_000


class Started:
    """The processes that were started."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[bytes]] = []
        self.connections: list[socket.socket] = []

    def start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-P", "-c", SERVE, str(number)]
            self.running.append(subprocess.Popen(command, pass_fds=[number]))
        self.connections.append(ours)
        return self.connections[-1]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Runs all queries of this process in others."""
    found = Started()
    use(monkeypatch, found, LIMIT_MS)
    parse_statement.cache_clear()
    yield found
    monkeypatch.undo()
    parse_statement.cache_clear()
    for connection in found.connections:
        connection.close()
    for process in found.running:
        process.wait(60)


def use(monkeypatch: pytest.MonkeyPatch, started: Started, limit_ms: int) -> None:
    processes = QueryProcesses(started.start, limit_ms=limit_ms, limit_rule="the engine's limit")
    monkeypatch.setattr(apart, "_processes", processes)


def test_results_and_errors_are_those_of_this_process(started: Started) -> None:
    query = "SELECT {'id': value.id + 1} AS value FROM batch WHERE value.id > 1"
    assert values_of(query, row(1), row(2), row(3)) == [{"id": 3}, {"id": 4}]
    with pytest.raises(StatementError, match="must not call getenv"):
        parse_statement("SELECT getenv('HOME') AS value FROM batch")
    with pytest.raises(RowsError, match='Could not find key "nope" in struct'):
        values_of("SELECT value.nope AS value FROM batch", row(1))
    with pytest.raises(RowsError, match="Could not convert string 'x'") as raised:
        values_of(
            "SELECT {'id': value.cityName::INT} AS value FROM batch", row(1, "1"), row(2, "x")
        )
    assert list(raised.value.rows) == [1]
    assert values_of("SELECT * FROM batch", row(1)) == [row(1)]
    assert len(started.running) == 1


def test_a_query_that_needs_too_much_memory_limits_its_own_process_only(started: Started) -> None:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    copies = "list_transform(string_split(value.cityName, ''), lambda x: value.cityName)"
    with pytest.raises(RecordError, match="needs more than 1024 MiB of memory"):
        values_of(f"SELECT {copies} AS value FROM batch", row(1, "a" * 200_000))
    assert resource.getrlimit(resource.RLIMIT_AS) == limits
    assert values_of("SELECT {'id': value.id} AS value FROM batch", row(1)) == [{"id": 1}]


def test_a_query_ends_at_its_time_even_inside_one_call(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PassError, match=r"did not end within 500 ms \(timeout.ms\)"):
        sql(ENDLESS, **{"timeout.ms": "500"})(batch_of(row(1, LONG)))
    use(monkeypatch, started, 500)
    with pytest.raises(PassError, match=r"did not end within 500 ms \(the engine's limit\)"):
        values_of(ENDLESS, row(1, LONG))
    assert values_of("SELECT {'id': value.id} AS value FROM batch", row(1)) == [{"id": 1}]


def test_a_statement_whose_tree_has_no_bound_is_not_parsed(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, started, 2_000)
    case = "value"
    for _ in range(200):
        case = f"CASE {case} WHEN 1 THEN 1 WHEN 2 THEN 2 END"
    with pytest.raises(StatementError, match=r"too much|does not parse"):
        parse_statement(f"SELECT {case} AS value FROM batch")
    use(monkeypatch, started, LIMIT_MS)
    assert parse_statement("SELECT * FROM batch").text is None
