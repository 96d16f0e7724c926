"""Requests of a sink task to the engine: pause, resume, rewind, and calls without records.

For sinks that buffer records, or that wait for an external system.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from drover.connector.task import TaskContext
from drover.model.offsets import TopicPartition


def _ignore() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Written:
    """The result of ``SinkTask.write`` and ``SinkTask.idle``: how far the sink has written.

    Attributes:
        metadata: The metadata to commit, the same as the text that ``write`` may return instead.
        up_to: The next offset to write, by topic partition. Exactly these offsets are committed,
            for this batch or earlier ones, and none of other partitions. They may be lower than the
            records that the task has received, never higher; a committed offset is never decreased.
            None commits all records that ``write`` received, and nothing if ``idle`` returns it.
    """

    metadata: str = ""
    up_to: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class PredictedWrite:
    """What a sink would do with a record; see ``SinkConnector.predicted_writes``.

    Attributes:
        topic: The topic that the record was consumed from.
        partition: Its partition.
        offset: Its offset.
        target: Where the record would be written, such as a table or a directory.
        refusal: Why the sink would reject the record; empty if it would write it.
    """

    topic: str
    partition: int
    offset: int
    target: str = ""
    refusal: str = ""


class SinkControl:
    """The pending requests of one sink task; thread-safe."""

    def __init__(self, on_change: Callable[[], None] = _ignore) -> None:
        """``on_change`` is called if the engine should check for requests."""
        self._lock = threading.Lock()
        self._on_change = on_change
        self._paused: set[TopicPartition] = set()
        self._rewinds: dict[TopicPartition, int] = {}
        self._idle_at_s: float | None = None

    def pause(self, *partitions: TopicPartition) -> None:
        """See SinkTaskContext."""
        with self._lock:
            self._paused.update(TopicPartition(*each) for each in partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """See SinkTaskContext."""
        with self._lock:
            self._paused.difference_update(TopicPartition(*each) for each in partitions)
        self._on_change()

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See SinkTaskContext."""
        for key, offset in offsets.items():
            if not isinstance(offset, int) or offset < 0:
                raise ValueError(f"{key} cannot be rewound to {offset!r}: an offset is 0 or more")
        with self._lock:
            for key, at in offsets.items():
                place = TopicPartition(*key)
                self._rewinds[place] = min(at, self._rewinds.get(place, at))
        self._on_change()

    def call_after(self, delay_ms: int) -> None:
        """See SinkTaskContext."""
        if delay_ms < 0:
            raise ValueError(f"delay_ms must be 0 or more, not {delay_ms}")
        with self._lock:
            self._idle_at_s = time.monotonic() + delay_ms / 1000
        self._on_change()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        with self._lock:
            return frozenset(self._paused)

    def take_rewinds(self) -> dict[TopicPartition, int]:
        """Return and clear the rewinds that were requested since the last call."""
        with self._lock:
            found, self._rewinds = self._rewinds, {}
            return found

    def idle_in_s(self) -> float | None:
        """Seconds until the requested call without records; None if none is requested."""
        with self._lock:
            at_s = self._idle_at_s
        return None if at_s is None else max(0.0, at_s - time.monotonic())

    def called(self) -> None:
        """Note that the task is about to be called; the pending request is cleared."""
        with self._lock:
            self._idle_at_s = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledContext(TaskContext):
    """The requests that a sink task may make; every method may be called on any thread."""

    control: SinkControl = field(default_factory=SinkControl)

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver no records of these partitions, from the next batch on, until they are resumed or
        the task restarts.
        """
        self.control.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Continue with paused partitions."""
        self.control.resume(*partitions)

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Deliver the records from these offsets on again, in the next batch.

        Committed offsets stay. Nothing above these offsets is committed until their records have
        been delivered again. Of several rewinds of a partition the lowest one counts.
        """
        self.control.rewind(offsets)

    def call_after(self, delay_ms: int) -> None:
        """Request a call of ``SinkTask.idle`` after this delay, unless ``write`` is called before
        that; request it again there. The last request wins.
        """
        self.control.call_after(delay_ms)
