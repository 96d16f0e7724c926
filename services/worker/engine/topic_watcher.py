"""Wakes sinks when there is something new to read.

One thread for all idle sinks. It asks the store every ``interval_ms`` while someone waits, which
costs no disk access as long as nothing was written; batches published in this process are told to
it and wake their readers at once.
"""

import threading
from collections.abc import Callable, Iterable, Mapping

import structlog

from drover.dataplane.store import EmbeddedStore
from drover.errors import DroverError

#: How often a store that cannot be read is tried again.
_RETRY_S = 1.0

log = structlog.get_logger(__name__)


class TopicWatcher:
    """Watches topic partitions for several waiters; thread-safe."""

    def __init__(self, store: EmbeddedStore, *, interval_ms: int) -> None:
        self._store = store
        self._interval_s = interval_ms / 1000
        self._changed = threading.Condition()
        self._waiting: dict[Callable[[], None], _Wait] = {}
        self._published = False
        threading.Thread(target=self._watch, name="topic-watcher", daemon=True).start()

    def wait(
        self,
        wake: Callable[[], None],
        starts: Mapping[tuple[str, int], int],
        missing_topics: Iterable[str] = (),
    ) -> None:
        """Call ``wake`` once, on another thread: when a partition has records from its start on, or
        one of the missing topics was created.
        """
        with self._changed:
            first = not self._waiting
            self._waiting[wake] = _Wait(dict(starts), frozenset(missing_topics))
            self._published = True  # what came between the caller's last look and now
            if first:
                self._changed.notify()

    def forget(self, wake: Callable[[], None]) -> None:
        """Do not call ``wake`` any more."""
        with self._changed:
            self._waiting.pop(wake, None)

    def published(self) -> None:
        """This process has just published records."""
        with self._changed:
            if self._waiting:
                self._published = True
                self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                if not self._published:
                    self._changed.wait(self._interval_s)
                self._published = False
                waiting = dict(self._waiting)
            try:
                due = self._due(waiting)
            except DroverError as error:
                log.warning("the store cannot be watched", error=str(error))
                with self._changed:
                    self._changed.wait(_RETRY_S)
                continue
            for wake in due:
                with self._changed:
                    # unless it was forgotten, or waits for something else by now
                    current = self._waiting.get(wake) is waiting[wake]
                    if current:
                        del self._waiting[wake]
                if current:
                    wake()

    def _due(self, waiting: Mapping[Callable[[], None], "_Wait"]) -> list[Callable[[], None]]:
        # one question for all of them, as the answer is no most of the time
        starts: dict[tuple[str, int], int] = {}
        for wait in waiting.values():
            for key, start in wait.starts.items():
                starts[key] = min(start, starts.get(key, start))
        missing = any(wait.missing_topics for wait in waiting.values())
        if not missing and not self._store.has_data(starts):
            return []
        return [wake for wake, wait in waiting.items() if self._is_due(wait)]

    def _is_due(self, wait: "_Wait") -> bool:
        if self._store.has_data(wait.starts):
            return True
        return any(self._store.end_offsets(topic) for topic in wait.missing_topics)


class _Wait:
    """What one waiter waits for."""

    def __init__(
        self, starts: Mapping[tuple[str, int], int], missing_topics: frozenset[str]
    ) -> None:
        self.starts = starts
        self.missing_topics = missing_topics
