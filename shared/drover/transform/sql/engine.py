"""DuckDB as it runs statements: without files, other libraries, settings and Python's variables."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

_MEMORY = "512MB"
_SETTINGS: dict[str, Any] = {
    "threads": "1",  # Spark's tasks are what runs side by side
    "memory_limit": _MEMORY,
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
}
_of_thread = threading.local()


def missing_modules() -> str | None:
    """What is not installed and has to be, as a sentence; None when it is all there."""
    if find_spec("duckdb") is not None:
        return None
    return (
        "needs one more library on the workers: pip install 'drover-connect[sql]', then start them "
        "again"
    )


def connection() -> Any:
    """This thread's database, which is empty and in memory."""
    found = getattr(_of_thread, "connection", None)
    if found is None:
        # it takes 50 ms and may not be installed
        import duckdb

        found = duckdb.connect(":memory:", config=_SETTINGS)
        # hours and days of timestamps are those of UTC, whatever the machine's are
        found.execute("LOAD icu; SET TimeZone = 'UTC'; SET lock_configuration = true").fetchall()
        _of_thread.connection = found
    return found


def answer(query: str, argument: str) -> str:
    """The one value that a query gives for its one argument, as text."""
    # all rows: the connection is in use until the last one is fetched
    ((found,),) = connection().execute(query, [argument]).fetchall()
    return str(found)


@contextmanager
def time_limit(found: Any, limit_s: float) -> Iterator[None]:
    """Interrupts what the connection runs when it takes longer."""
    timer = threading.Timer(limit_s, found.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
