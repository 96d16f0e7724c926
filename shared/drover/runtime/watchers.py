"""Bounded queues between a machine and its watchers."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from drover.errors import DroverError, Reason, ResourceExhaustedError


class Watcher:
    """An async iterator over the messages of its channels, from its creation on.

    Iteration ends when ``close`` is called, and raises:
        ResourceExhaustedError: QUEUE_FULL, this watcher did not keep up; messages are missing.
        UnavailableError: DRAINING, the runtime was closed.

    Use it as a context manager, so that it is always removed:

        with runtime.watch("statuses", max_queue=1_000) as watcher:
            async for message in watcher: ...
    """

    def __init__(
        self, channels: Sequence[str], max_queue: int, forget: Callable[["Watcher"], None]
    ) -> None:
        self.channels = tuple(channels)
        self._max_queue = max_queue
        self._forget = forget
        self._queue: deque[object] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: DroverError | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> object:
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._closed:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("a watcher serves one reader at a time")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._queue.popleft()

    def take_ready(self, limit: int) -> list[object]:
        """Take up to ``limit`` queued messages without waiting, so that a stream can batch them."""
        return [self._queue.popleft() for _ in range(min(limit, len(self._queue)))]

    def close(self) -> None:
        """Stop watching; idempotent."""
        self._closed = True
        self._queue.clear()
        self._forget(self)
        self._wake()

    def offer(self, message: object) -> None:
        """Queue ``message``, or drop the watcher when its queue is full."""
        if len(self._queue) < self._max_queue:
            self._queue.append(message)
            self._wake()
            return
        self._queue.clear()
        self.end(
            ResourceExhaustedError(
                Reason.QUEUE_FULL,
                f"the watch of {self.channels[0]} is too slow, more than {self._max_queue} messages"
                " are queued: read a snapshot and watch from its end",
            )
        )

    def end(self, error: DroverError) -> None:
        """Let the reader get the queued messages, then ``error``."""
        self._error = error
        self._forget(self)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Watchers:
    """All watchers of a runtime, by channel."""

    def __init__(self, max_watchers: int) -> None:
        self._max_watchers = max_watchers
        self._by_channel: dict[str, dict[Watcher, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, channel: str, max_queue: int, *, also: Sequence[str] = ()) -> Watcher:
        """Create a watcher of ``channel`` and of the channels ``also``.

        Raises:
            ResourceExhaustedError: QUEUE_FULL, there are too many watchers.
        """
        if self._count >= self._max_watchers:
            raise ResourceExhaustedError(
                Reason.QUEUE_FULL,
                f"{self._max_watchers} watchers are connected, the maximum: retry later",
            )
        watcher = Watcher((channel, *also), max_queue, self._remove)
        for each in watcher.channels:
            self._by_channel.setdefault(each, {})[watcher] = None
        self._count += 1
        return watcher

    def notify(self, channel: str, message: object) -> None:
        """Offer ``message`` to all watchers of ``channel``."""
        for watcher in list(self._by_channel.get(channel, ())):
            watcher.offer(message)

    def end_all(self, error: DroverError) -> None:
        """End every watch with ``error``."""
        for watchers in list(self._by_channel.values()):
            for watcher in list(watchers):
                watcher.end(error)

    def _remove(self, watcher: Watcher) -> None:
        if watcher not in self._by_channel.get(watcher.channels[0], ()):
            return
        self._count -= 1
        for channel in watcher.channels:
            watchers = self._by_channel[channel]
            del watchers[watcher]
            if not watchers:
                del self._by_channel[channel]
