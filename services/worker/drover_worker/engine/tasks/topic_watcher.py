"""Wakes idle sinks when there are new records.

One thread serves all idle sinks. While a sink waits, the thread polls the data plane every
``interval_ms``, with one request for all sinks. A batch published by this process wakes its readers
early: brokers acknowledge a commit some milliseconds before its records are readable.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import structlog

from drover.dataplane.plane import DataPlane, PartitionKey
from drover.errors import DroverError, UnavailableError

#: Retry interval while the store is unavailable.
_RETRY_S = 1.0
#: The first pause after a publish; it doubles up to the interval.
_NOT_THERE_YET_S = 0.005

log = structlog.get_logger(__name__)


class TopicWatcher:
    """Watches topic partitions for several waiters; thread-safe."""

    def __init__(self, plane: DataPlane, *, interval_ms: int) -> None:
        self._plane = plane
        self._interval_s = interval_ms / 1000
        self._pause_s = self._interval_s
        self._changed = threading.Condition()
        self._waiting: dict[Callable[[], None], _Wait] = {}
        self._published = False
        self._away = False
        threading.Thread(target=self._watch, name="topic-watcher", daemon=True).start()

    def wait(
        self,
        wake: Callable[[], None],
        starts: Mapping[PartitionKey, int],
        partition_counts: Mapping[str, int],
        topic_ids: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Call ``wake`` once, on another thread, when a partition's end offset differs from its
        start offset, a topic has more partitions than its count (0 is for a missing topic), or a
        topic has another id.
        """
        with self._changed:
            first = not self._waiting
            self._waiting[wake] = _Wait(dict(starts), dict(partition_counts), dict(topic_ids))
            self._published = True  # check now: records may have arrived since the caller's read
            if first:
                self._changed.notify()

    def forget(self, wake: Callable[[], None]) -> None:
        """Stop waiting for ``wake``."""
        with self._changed:
            self._waiting.pop(wake, None)

    def published(self) -> None:
        """Check soon: this process has just published records."""
        with self._changed:
            if self._waiting:
                self._published = True
                self._pause_s = min(_NOT_THERE_YET_S, self._interval_s)
                self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                if not self._published:
                    self._changed.wait(self._pause_s)
                    self._pause_s = min(2 * self._pause_s, self._interval_s)
                self._published = False
                waiting = dict(self._waiting)
            due, error = self._due_of_any(waiting)
            if error is not None:
                self._log_away(error)
            elif self._away:
                self._away = False
                log.info("topics are available again")
            for wake in due:
                with self._changed:
                    # skip it if it was removed or replaced during the request
                    current = self._waiting.get(wake) is waiting[wake]
                    if current:
                        del self._waiting[wake]
                if current:
                    wake()
            if error is not None:
                with self._changed:
                    self._changed.wait(_RETRY_S)

    def _due_of_any(
        self, waiting: Mapping[Callable[[], None], "_Wait"]
    ) -> tuple[list[Callable[[], None]], DroverError | None]:
        """The due waiters, and the last error. A topic that cannot be read delays its own readers
        only.
        """
        try:
            return self._due(waiting), None
        except DroverError as error:
            # unavailable brokers affect all topics: each request would wait for them
            if len(waiting) == 1 or isinstance(error, UnavailableError):
                return [], error
            found: list[Callable[[], None]] = []
            last = error
            for wake, wait in waiting.items():
                try:
                    found += self._due({wake: wait})
                except DroverError as own:
                    last = own
            return found, last

    def _log_away(self, error: DroverError) -> None:
        """Log an outage once."""
        if not self._away:
            log.warning("topics are unavailable; idle sinks wait", error=str(error))
        self._away = True

    def _due(self, waiting: Mapping[Callable[[], None], "_Wait"]) -> list[Callable[[], None]]:
        partitions = {key for wait in waiting.values() for key in wait.starts}
        topics = {topic for wait in waiting.values() for topic in wait.partition_counts}
        ends = self._plane.end_offsets(partitions) if partitions else {}
        known = {topic for wait in waiting.values() for topic in wait.topic_ids}
        ids = self._plane.topic_ids(known) if known else {}
        counts = self._plane.partition_counts(topics) if topics else {}
        return [
            wake
            for wake, wait in waiting.items()
            if any(ends.get(key, start) != start for key, start in wait.starts.items())
            or any(counts.get(topic, 0) > count for topic, count in wait.partition_counts.items())
            or any(ids.get(topic, id_) != id_ for topic, id_ in wait.topic_ids.items())
        ]


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    """What one waiter waits for."""

    starts: Mapping[PartitionKey, int] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
