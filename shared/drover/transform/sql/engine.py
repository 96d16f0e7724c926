"""DuckDB connections without access to files, extensions, settings and Python variables."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

_MEMORY = "512MB"
_SETTINGS: dict[str, Any] = {
    "threads": "1",  # Spark's tasks already run in parallel
    "memory_limit": _MEMORY,
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
}
_of_thread = threading.local()


def missing_modules() -> str | None:
    """The error for a missing DuckDB, as the end of a sentence; None if it is installed."""
    if find_spec("duckdb") is not None:
        return None
    return "needs DuckDB on the workers: pip install 'drover-connect[sql]', then restart them"


def connection() -> Any:
    """This thread's connection to an empty in-memory database."""
    opened = getattr(_of_thread, "connection", None)
    if opened is None:
        # the import takes 50 ms, and DuckDB may not be installed
        import duckdb

        opened = duckdb.connect(":memory:", config=_SETTINGS)
        # date functions use UTC, regardless of the machine's time zone
        opened.execute("LOAD icu; SET TimeZone = 'UTC'; SET lock_configuration = true").fetchall()
        _of_thread.connection = opened
    return opened


def answer(query: str, argument: str) -> str:
    """The single value that a query with one argument returns, as text."""
    # fetchall: a result that is not fully read keeps the connection busy
    ((value,),) = connection().execute(query, [argument]).fetchall()
    return str(value)


@contextmanager
def time_limit(engine: Any, limit_s: float) -> Iterator[None]:
    """Interrupt the connection's query after ``limit_s``."""
    timer = threading.Timer(limit_s, engine.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
