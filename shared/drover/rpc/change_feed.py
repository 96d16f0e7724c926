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

    Each append wakes the streams, and each stream reads the history from its own position. So the
    memory of a stream is bounded even if its client is slow, and its end offset advances with
    records that change nothing too.

    Args:
        runtime: Wakes the streams.
        history: The changes.
        encode: Encodes changes, given their end offset and whether the first message is the first
            of the stream. Returns at least one message, even without changes.
        max_appends_behind: The maximum lag of a client; a stream with a larger lag is ended.
        progress_interval_s: The maximum time between two messages of a stream.
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
        #: the last encoded message and its range of offsets: most watchers read the same range
        self._shared: tuple[tuple[int, int], MessageT] | None = None

    async def watch(self, start_offset: int, log_id: str = "") -> AsyncGenerator[MessageT, None]:
        """Yield the messages of one stream, with the changes from ``start_offset`` on.

        Args:
            start_offset: The client's next offset.
            log_id: The log to which the offset belongs (``Runtime.log_id``); not checked if empty.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, a negative offset.
            OutOfRangeError: REVISION_COMPACTED, the history starts after the offset, or the offset
                belongs to another log.
            ResourceExhaustedError: QUEUE_FULL, the client is too slow.
            UnavailableError: LOADING or DRAINING. STORAGE_UNAVAILABLE, the offset is beyond this
                server's end offset, because another server of this log was ahead, and the log
                cannot be read.
        """
        if start_offset < 0:
            raise invalid_field("start_offset", "must not be negative")
        if log_id and log_id != self._runtime.log_id:
            raise OutOfRangeError(
                Reason.REVISION_COMPACTED,
                f"offset {start_offset} belongs to the log {log_id!r}, but this server has the log"
                f" {self._runtime.log_id!r}: read a snapshot and watch from its end",
            )
        if log_id and start_offset > self._history.end_offset:
            await self._runtime.catch_up()  # another server of the same log was ahead
        position, created = start_offset, True
        with self._runtime.watch(APPLIED_CHANNEL, self._max_appends_behind) as watcher:
            is_progress_due = True
            while True:
                end_offset = self._history.end_offset
                if is_progress_due or end_offset > position:
                    for message in self._messages(position, end_offset, created):
                        yield message
                    position, created = end_offset, False
                is_progress_due = not await self._wait_for_append(watcher)

    async def _wait_for_append(self, watcher: Watcher) -> bool:
        """Wait for the next append; False if there was none in the progress interval."""
        try:
            async with asyncio.timeout(self._progress_interval_s):
                await anext(watcher)
        except TimeoutError:
            return False
        watcher.take_ready(self._max_appends_behind)
        return True

    def _messages(self, position: int, end_offset: int, created: bool) -> Iterable[MessageT]:
        offsets = (position, end_offset)
        if not created and self._shared is not None and self._shared[0] == offsets:
            return (self._shared[1],)
        messages = iter(self._encode(self._history.read(position), end_offset, created))
        first = next(messages)
        second = next(messages, None)
        if second is not None:
            return chain((first, second), messages)
        if not created:
            self._shared = (offsets, first)
        return (first,)
