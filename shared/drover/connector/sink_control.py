"""What a sink task asks of the engine between its batches: pauses, rewinds, calls without records.

Sinks that hold records back, or wait for something outside, need it; others never see it.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from drover.connector.offsets import TopicPartition
from drover.connector.task import TaskContext


def _ignore() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Written:
    """How far a sink has come; ``SinkTask.write`` and ``SinkTask.idle`` may return it.

    Attributes:
        metadata: As the text that ``write`` may return instead.
        up_to: The next offset to write, by topic partition: exactly these are committed, of this
            batch or of earlier ones, and none of what is not named. They may be lower than what
            the task was given, never higher; what is committed already is not taken back.
            None: all that ``write`` was given; nothing, when ``idle`` returns it.
    """

    metadata: str = ""
    up_to: Mapping[TopicPartition, int] | None = None


class SinkControl:
    """What one sink task has asked for; any thread may ask."""

    def __init__(self, on_change: Callable[[], None] = _ignore) -> None:
        """``on_change`` is called when the engine should look again."""
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
            self._rewinds.update({TopicPartition(*key): at for key, at in offsets.items()})
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
        """The partitions of which nothing is read now."""
        with self._lock:
            return frozenset(self._paused)

    def take_rewinds(self) -> dict[TopicPartition, int]:
        """What was asked for since the last time."""
        with self._lock:
            found, self._rewinds = self._rewinds, {}
            return found

    def idle_in_s(self) -> float | None:
        """How long until the call without records that was asked for; None for none."""
        with self._lock:
            at_s = self._idle_at_s
        return None if at_s is None else max(0.0, at_s - time.monotonic())

    def called(self) -> None:
        """The task is about to be called, and may ask for the next call."""
        with self._lock:
            self._idle_at_s = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledContext(TaskContext):
    """The part of a sink task's context that asks; every method may be called on any thread."""

    control: SinkControl = field(default_factory=SinkControl)

    def pause(self, *partitions: TopicPartition) -> None:
        """Give the task no more records of these partitions, from the next batch on, until they
        are resumed or the task starts again.
        """
        self.control.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with partitions that were paused."""
        self.control.resume(*partitions)

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Give the task the records from these offsets on again, in its next batch.

        What is committed stays; of the batch in flight nothing above these offsets is committed.
        """
        self.control.rewind(offsets)

    def call_after(self, delay_ms: int) -> None:
        """Have ``SinkTask.idle`` called once so much time has passed, unless ``write`` is called
        before; ask there again. Of several requests the last one counts.
        """
        self.control.call_after(delay_ms)
