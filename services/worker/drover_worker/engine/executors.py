"""Whether the executors of a remote Spark master are there, and whether they run Drover's code."""

import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import structlog

from drover.clock import Clock, SystemClock

_LOOK_EVERY_S = 0.5
_NO_DROVER = re.compile(r"No module named 'drover")
#: Of pyspark, and of the archive's Python.
_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH|executors need Python")
_CAUSE_MAX_CHARS = 500

log = structlog.get_logger(__name__)


class Executors:
    """Checks whether a remote master gave the application executors; a local one always does."""

    def __init__(
        self, spark: Any, master: str, *, remote: bool, clock: Clock | None = None
    ) -> None:
        self._context = spark.sparkContext
        self._master = master
        self._remote = remote
        self._clock = clock or SystemClock()
        self._missing_since_ms: int | None = None

    @property
    def missing_since_ms(self) -> int | None:
        """Since when there is none, in milliseconds since the epoch; None while there are."""
        return self._missing_since_ms

    def look(self) -> None:
        """Ask Spark; costs a call into its JVM with a remote master, and nothing with a local one.

        Raises:
            Exception: Spark does not answer.
        """
        if not self._remote:
            return
        # the driver is in the map too
        count = self._context._jsc.sc().getExecutorMemoryStatus().size() - 1
        if count > 0:
            self._missing_since_ms = None
        elif self._missing_since_ms is None:
            self._missing_since_ms = self._clock.now_ms()

    def wait_for_first(self, stop: threading.Event, on_wait: Callable[[str], None]) -> bool:
        """Wait until there is one; False when ``stop`` was set first.

        ``on_wait`` gets the reason, once.
        """
        self.look()
        if self._missing_since_ms is not None:
            reason = (
                f"it waits for an executor of Spark master {self._master}: the cluster has no free"
                " core or memory for this worker's application (spark.cores.max,"
                " spark.executor.memory in DROVER_SPARK_CONF), or executors cannot reach this"
                " machine"
            )
            log.info("the engine has no executor yet", reason=reason)
            on_wait(reason)
        while self._missing_since_ms is not None:
            if stop.wait(_LOOK_EVERY_S):
                return False
            self.look()
        return True


def why_not_started(error: Exception, master: str) -> str:
    """Why executors of a remote master cannot run the engine's first job: one line."""
    text = f"{error} {error.__cause__ or ''}"
    if _NO_DROVER.search(text):
        cause = (
            "they have no Drover: pack it with `drover spark-archive FILE.tar.gz` where this worker"
            ' is installed, and set {"spark.archives": "FILE.tar.gz#drover"} in DROVER_SPARK_CONF'
        )
    elif _OTHER_PYTHON.search(text):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        cause = (
            f"they need Python {version}, as this worker has: install it there, or set"
            " spark.executorEnv.DROVER_EXECUTOR_PYTHON in DROVER_SPARK_CONF to its path"
        )
    else:
        cause = " ".join(text.split())[:_CAUSE_MAX_CHARS]
    return f"executors of Spark master {master} cannot run Drover's code: {cause}"
