"""Finds the connector that makes the engine run out of memory."""

from collections.abc import Mapping, Sequence

from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.core.events import EngineLost

#: After this many ends in a row the only connector that was active at each is taken as the cause.
_ENDS_MIN = 2
#: Ends further apart are treated as unrelated.
_WINDOW_MS = 3_600_000


class MemoryDeaths:
    """Compares the connectors that were active at each out-of-memory end of the engine.

    The only connector that was active at the last ends is taken as the cause. A single end is no
    evidence: another connector may have used the memory and kept it.
    """

    def __init__(self) -> None:
        self._last_ms = 0
        self._count = 0
        #: The connectors that were active at each of the last ``_count`` ends.
        self._suspects: frozenset[str] = frozenset()

    def faults(self, ended: EngineLost, now_ms: int) -> Mapping[StatusKey, str]:
        """The trace for each connector and task that caused this end; empty if it is unknown."""
        if ended.starved is None:
            return {}
        self._count_end(ended.starved, now_ms)
        if len(self._suspects) != 1 or self._count < _ENDS_MIN:
            return {}
        trace = (
            f"out of memory {self._count} times in a row while this connector was active: "
            f"{ended.reason}\n"
            "The engine ended with all its connectors and tasks. No other connector was active each"
            " time. Lower batch.max.bytes or batch.max.records, look for memory growth in the"
            " connector's code, or give the worker more memory."
        )
        return {key: trace for key in ended.starved if _connector_of(key) in self._suspects}

    def _count_end(self, active: Sequence[StatusKey], now_ms: int) -> None:
        names = frozenset(_connector_of(key) for key in active)
        common = self._suspects & names
        if not common or now_ms - self._last_ms > _WINDOW_MS:
            common, self._count = names, 0
        self._last_ms, self._suspects = now_ms, common
        self._count += 1


def _connector_of(key: StatusKey) -> str:
    return key.connector if isinstance(key, TaskId) else key
