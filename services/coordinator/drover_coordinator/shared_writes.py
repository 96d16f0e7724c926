"""Batches requests: the requests that arrive during a write share the next write."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from drover.errors import Reason, ResourceExhaustedError, UnavailableError

#: A request that waits longer is rejected; together with the store's own wait this is shorter than
#: the deadlines of callers.
WAIT_MAX_S = 5.0
#: The items of one batch; tasks and offsets count alike. Such a write takes well below a second.
BATCH_MAX_ITEMS = 10_000

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")


@dataclass(slots=True, eq=False)
class _Waiting(Generic[RequestT, AnswerT]):
    request: RequestT
    deadline_s: float
    answer: "asyncio.Future[AnswerT]"


class SharedWrites(Generic[RequestT, AnswerT]):
    """Batches requests: the requests that arrive during a write share the next write.

    Args:
        write: Writes a batch and returns a response for each request; an error fails the batch.
        size: The number of items of a request, which counts towards ``BATCH_MAX_ITEMS``.
        waiting_max: How many requests may wait.
        name: The name of the writing task.
    """

    def __init__(
        self,
        write: Callable[[Sequence[RequestT]], Awaitable[Sequence[AnswerT]]],
        *,
        size: Callable[[RequestT], int],
        waiting_max: int,
        name: str,
    ) -> None:
        self._write = write
        self._size = size
        self._waiting_max = waiting_max
        self._name = name
        self._queue: deque[_Waiting[RequestT, AnswerT]] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def submit(self, request: RequestT) -> AnswerT:
        """Write ``request`` with the next batch and return its response."""
        check_waiting(len(self._queue), self._waiting_max)
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(request, time.monotonic() + WAIT_MAX_S, answer))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all(), name=self._name)
        return await answer

    async def close(self) -> None:
        """Wait until everything is written."""
        if self._writer is not None:
            await self._writer

    async def _write_all(self) -> None:
        try:
            while batch := self._take_batch():
                try:
                    answers = await self._write([each.request for each in batch])
                except Exception as error:  # noqa: BLE001 - the callers get it
                    for waiting in batch:
                        if not waiting.answer.done():
                            waiting.answer.set_exception(error)
                    continue
                for waiting, answer in zip(batch, answers, strict=True):
                    if not waiting.answer.done():
                        waiting.answer.set_result(answer)
        finally:
            self._writer = None

    def _take_batch(self) -> list[_Waiting[RequestT, AnswerT]]:
        """The next batch, without requests that were cancelled or waited too long."""
        batch: list[_Waiting[RequestT, AnswerT]] = []
        item_count = 0
        now_s = time.monotonic()
        while self._queue:
            waiting = self._queue[0]
            if waiting.answer.done():
                self._queue.popleft()
                continue
            if now_s > waiting.deadline_s:
                self._queue.popleft().answer.set_exception(too_late())
                continue
            item_count += self._size(waiting.request)
            if batch and item_count > BATCH_MAX_ITEMS:
                break
            batch.append(self._queue.popleft())
        return batch


def check_waiting(count: int, waiting_max: int) -> None:
    """Raise ResourceExhaustedError QUEUE_FULL if ``count`` calls wait already."""
    if count >= waiting_max:
        raise ResourceExhaustedError(
            Reason.QUEUE_FULL, f"{waiting_max} calls are waiting for the store: retry later"
        )


def too_late() -> UnavailableError:
    """The error of a call that waited too long."""
    return UnavailableError(
        Reason.STORAGE_UNAVAILABLE,
        f"the call waited {WAIT_MAX_S:.0f} s for the store, which is busy with other calls: retry",
    )
