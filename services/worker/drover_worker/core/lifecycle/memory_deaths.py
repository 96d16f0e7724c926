"""Which connector has the engine end for want of memory."""

from collections.abc import Mapping, Sequence

from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.core.events import EngineLost

#: So many ends in a row with one connector at work at all of them, and it is the one.
_ENDS_TO_KNOW = 2
#: Ends further apart have nothing to do with each other.
_WINDOW_MS = 3_600_000


class MemoryDeaths:
    """Compares who was at work at each end of the engine for want of memory.

    Who alone was at work at the last ones is taken for the cause. One end says nothing: somebody
    else may have used the memory up, and kept it.
    """

    def __init__(self) -> None:
        self._last_ms = 0
        self._count = 0
        #: The connectors that were at work at each of the last ``_count`` ends.
        self._suspects: frozenset[str] = frozenset()

    def faults(self, ended: EngineLost, now_ms: int) -> Mapping[StatusKey, str]:
        """What this end of the engine counts against, and why; nothing when nobody can tell."""
        if ended.starved is None:
            return {}
        self._note(ended.starved, now_ms)
        if len(self._suspects) != 1 or self._count < _ENDS_TO_KNOW:
            return {}
        why = (
            f"out of memory {self._count} times in a row with this connector at work: "
            f"{ended.reason}\n"
            "The engine ended with everything in it. No other connector was at work each time. Ask "
            "for less at a time with batch.max.bytes or batch.max.records, look for what grows in "
            "the connector's own code, or give the worker more memory."
        )
        return {key: why for key in ended.starved if _connector_of(key) in self._suspects}

    def _note(self, at_work: Sequence[StatusKey], now_ms: int) -> None:
        names = frozenset(_connector_of(key) for key in at_work)
        common = self._suspects & names
        if not common or now_ms - self._last_ms > _WINDOW_MS:
            common, self._count = names, 0
        self._last_ms, self._suspects = now_ms, common
        self._count += 1


def _connector_of(key: StatusKey) -> str:
    return key.connector if isinstance(key, TaskId) else key
