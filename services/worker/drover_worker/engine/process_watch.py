"""Finds the connector whose code changed the process of its engine, and restores the process."""

import threading
from collections import Counter
from contextlib import suppress

import structlog

from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.engine.process_state import Changes, ProcessState

_LOGGED_MAX = 1_000

log = structlog.get_logger(__name__)


class ProcessWatch:
    """Checks the process after each plugin call; thread-safe.

    A change belongs to a call that was in progress since the last check. If there were several, it
    is restored, and only the log names them.
    """

    def __init__(self, state: ProcessState | None = None) -> None:
        """Without a ``state`` nothing is checked."""
        self._state = state
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        #: The connectors whose code ran since the last check.
        self._ran: set[str] = set()
        #: What each connector's code changed.
        self._changed: dict[str, dict[str, None]] = {}
        #: The changes of several connectors that were logged.
        self._logged: set[tuple[tuple[str, ...], Changes]] = set()

    def note_of(self, connector: str) -> str:
        """What the connector's code changed, and what to do, for its status; may be empty."""
        changed = self._changed.get(connector)
        if not changed:
            return ""
        return (
            f"its code changed {', '.join(changed)} in the engine's process, which all connectors"
            " of the engine share; Drover restored this. Change such values only for the"
            " connector's own objects, such as a connection or a subprocess."
        )

    def started(self, key: StatusKey) -> None:
        """A connector or task is started again: forget what its code changed before."""
        self._changed.pop(_connector_of(key), None)

    def adopt(self) -> None:
        """Keep the present state of the process; for changes of the engine's own code."""
        if self._state is not None:
            with self._lock:
                self._state.adopt()

    def call_began(self, key: StatusKey) -> None:
        """A plugin call begins."""
        if self._state is None:
            return
        connector = _connector_of(key)
        with self._lock:
            self._running[connector] += 1
            self._ran.add(connector)

    def call_ended(self, key: StatusKey) -> bool:
        """Restore the process after a plugin call; False if it cannot continue."""
        if self._state is None:
            return True
        connector = _connector_of(key)
        with self._lock:
            changes = self._state.restore()
            suspects = sorted(self._ran)
            self._running[connector] -= 1
            if not self._running[connector]:
                del self._running[connector]
            self._ran = set(self._running)
            is_new = bool(changes) and self._note(changes, suspects)
        if is_new:
            # code may have closed the log's descriptor
            with suppress(OSError, ValueError):
                log.warning(
                    "code of a connector changed the engine's process",
                    connectors=suspects,
                    restored=list(changes.restored),
                    lost=list(changes.lost),
                )
        return not changes.lost

    def _note(self, changes: Changes, suspects: list[str]) -> bool:
        """Note a change; whether it is a new one. Requires the lock."""
        if len(suspects) != 1:
            found = {name for each in suspects for name in self._changed.get(each, ())}
            if found.issuperset(changes.restored) and not changes.lost:
                return False
            logged, entry = self._logged, (tuple(suspects), changes)
            is_new = entry not in logged and len(logged) < _LOGGED_MAX
            logged.add(entry)
            return is_new or bool(changes.lost)
        noted = self._changed.setdefault(suspects[0], {})
        new = [name for name in changes.restored if name not in noted]
        noted.update(dict.fromkeys(new))
        return bool(new or changes.lost)


def _connector_of(key: StatusKey) -> str:
    return key.connector if isinstance(key, TaskId) else key
