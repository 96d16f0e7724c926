"""Watch streams over the history of a log-backed machine: resume, follow, mark progress."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

from drover.codec.common import invalid_field
from drover.errors import OutOfRangeError, Reason
from drover.runtime.change_buffer import ChangeBuffer
from drover.runtime.runtime import APPLIED_CHANNEL, Runtime
from drover.runtime.watchers import Watcher

EventT = TypeVar("EventT")
MessageT = TypeVar("MessageT")

MAX_APPENDS_BEHIND = 1_000
PROGRESS_INTERVAL_S = 10.0


class ChangeFeed(Generic[EventT, MessageT]):
    """Serves every Watch stream of a store.

    A stream reads the history from its own position and is woken by each append, so what it holds
    is bounded however slow its client is, and records that change nothing still move its end.

    Args:
        runtime: Wakes the streams.
        history: The changes.
        encode: Messages for changes, the offset up to which they go, and whether the first message
            is the stream's first; at least one message, also without changes.
        max_appends_behind: A stream whose client is further behind is ended.
        progress_interval_s: How long a stream is silent at most.
    """

    def __init__(
        self,
        *,
        runtime: Runtime[Any],
        history: ChangeBuffer[EventT],
        encode: Callable[[Sequence[EventT], int, bool], Iterable[MessageT]],
        max_appends_behind: int = MAX_APPENDS_BEHIND,
        progress_interval_s: float = PROGRESS_INTERVAL_S,
    ) -> None:
        self._runtime = runtime
        self._history = history
        self._encode = encode
        self._max_appends_behind = max_appends_behind
        self._progress_interval_s = progress_interval_s
        #: what was encoded last, and for which range: most watchers are at the same place
        self._shared: tuple[tuple[int, int], MessageT] | None = None

    async def watch(self, start_offset: int, log_id: str = "") -> AsyncGenerator[MessageT, None]:
        """The messages of one stream, from the changes at ``start_offset`` on.

        Args:
            start_offset: Where the client is.
            log_id: Names the sequence that it counts in (``Runtime.log_id``); not checked if empty.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, a negative offset.
            OutOfRangeError: REVISION_COMPACTED, the history does not reach back that far, or the
                offset counts in another sequence.
            ResourceExhaustedError: QUEUE_FULL, the client does not keep up.
            UnavailableError: LOADING or DRAINING; STORAGE_UNAVAILABLE, another server of this log
                has told more than is known here, and the log cannot be asked.
        """
        if start_offset < 0:
            raise invalid_field("start_offset", "must not be negative")
        if log_id and log_id != self._runtime.log_id:
            raise OutOfRangeError(
                Reason.REVISION_COMPACTED,
                f"offset {start_offset} is one of the log {log_id!r}, this is"
                f" {self._runtime.log_id!r}: read a snapshot and watch from its end",
            )
        if log_id and start_offset > self._history.end_offset:
            await self._runtime.catch_up()  # another server of the same log was faster
        position, created = start_offset, True
        with self._runtime.watch(APPLIED_CHANNEL, self._max_appends_behind) as watcher:
            due = True
            while True:
                end_offset = self._history.end_offset
                if due or end_offset > position:
                    for message in self._messages(position, end_offset, created):
                        yield message
                    position, created = end_offset, False
                due = await self._silent_for_long(watcher)

    async def _silent_for_long(self, watcher: Watcher) -> bool:
        """Wait for the next append; True when a sign of life is due instead."""
        try:
            async with asyncio.timeout(self._progress_interval_s):
                await anext(watcher)
        except TimeoutError:
            return True
        watcher.take_ready(self._max_appends_behind)
        return False

    def _messages(self, position: int, end_offset: int, created: bool) -> Iterable[MessageT]:
        place = (position, end_offset)
        if not created and self._shared is not None and self._shared[0] == place:
            return (self._shared[1],)
        messages = iter(self._encode(self._history.read(position), end_offset, created))
        first = next(messages)
        second = next(messages, None)
        if second is not None:
            return chain((first, second), messages)
        if not created:
            self._shared = (place, first)
        return (first,)
