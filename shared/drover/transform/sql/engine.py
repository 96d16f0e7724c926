"""DuckDB connections without access to files, extensions, settings and Python variables."""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_MEMORY = "512MB"
#: How much the process may grow during a query. DuckDB's limit does not count texts in
#: expressions, such as intermediate results of ``||``.
GROWTH_MAX_BYTES = 1024**3
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
_growth = threading.Lock()
#: The queries that run, and the limit of the process without them.
_limited_count, _limit_before = 0, resource.RLIM_INFINITY


def missing_modules() -> str | None:
    """The error for a missing DuckDB, as the end of a sentence; None if it is installed."""
    if find_spec("duckdb") is not None:
        return None
    return "needs DuckDB on the workers: pip install 'drover-connect[sql]'"


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


@contextmanager
def memory_limit() -> Iterator[None]:
    """Limit the growth of the process's address space; DuckDB then raises OutOfMemoryException.

    For processes that work for one caller only: other threads could not get memory, either.

    A query also ends sooner: DuckDB looks for an interrupt between calls of functions only, and a
    call takes time in proportion to its result.
    """
    global _limited_count, _limit_before
    with _growth:
        _limited_count += 1
        if _limited_count == 1:
            _limit_before, hard = resource.getrlimit(resource.RLIMIT_AS)
            used = _address_space_bytes()
            bounds = [each for each in (_limit_before, hard) if each != resource.RLIM_INFINITY]
            if used is not None:
                with suppress(OSError, ValueError):  # macOS cannot limit it
                    limit = min([used + GROWTH_MAX_BYTES, *bounds])
                    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        with _growth:
            _limited_count -= 1
            if not _limited_count:
                _, hard = resource.getrlimit(resource.RLIMIT_AS)
                with suppress(OSError, ValueError):
                    resource.setrlimit(resource.RLIMIT_AS, (_limit_before, hard))


def _address_space_bytes() -> int | None:
    """The size of the process's address space; None where the system has no such file."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return None
