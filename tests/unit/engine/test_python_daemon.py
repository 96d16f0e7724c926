"""The parent of Spark's Python workers."""

import socket
import sys
from pathlib import Path

import pytest

from drover_worker.engine.python_daemon import (
    ending_with_its_connection,
    use_installed_pyspark,
)


def flush(connection: socket.socket, _authenticated: bool) -> int:
    with connection.makefile("wb") as output:
        output.write(b"x")
        output.flush()
    return 0


def test_an_idle_worker_that_spark_ends_leaves_no_traceback() -> None:
    ours, sparks = socket.socketpair()
    with ours:
        assert ending_with_its_connection(flush)(ours, True) == 0
        sparks.close()
        assert ending_with_its_connection(flush)(ours, True) != 0, "the worker is not used again"


def test_another_reason_why_output_is_lost_is_raised() -> None:
    def fail(_connection: socket.socket, _authenticated: bool) -> int:
        raise MemoryError

    ours, sparks = socket.socketpair()
    with ours, sparks, pytest.raises(MemoryError):
        ending_with_its_connection(fail)(ours, True)


def test_an_installed_pyspark_is_used_instead_of_sparks_archives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archives = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10.9-src.zip"]
    other = "/opt/own/functions.zip"
    monkeypatch.setattr(sys, "path", [*archives, other, *sys.path])
    monkeypatch.setitem(sys.path_importer_cache, archives[0], None)
    installed = sys.path[2:]
    use_installed_pyspark()
    assert sys.path == installed
    assert archives[0] not in sys.path_importer_cache


def test_sparks_archives_are_used_where_no_pyspark_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = ["/opt/spark/python/lib/pyspark.zip", str(tmp_path)]
    monkeypatch.setattr(sys, "path", list(path))
    use_installed_pyspark()
    assert sys.path == path
