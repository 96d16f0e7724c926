"""Claims, committed offsets and retention: the blocking store behind an asynchronous front.

Membership is the machine's; what a task may commit is the store's. Writes take turns on one thread.
Claims that wait while one is being written share the next transaction, and so do commits: the disk
is forced once for all of them. Reads have a thread of their own, so that a busy file does not hold
them up.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from drover.dataplane.offsets import canonical_json
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import RetentionResult
from drover.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
    Violation,
)
from drover.model.claims import ClaimRequest
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitResult, CommittedOffset, TaskOffsets

WAITING_MAX = 1_000
#: A claim takes little room, and all tasks of a cluster may start at once.
CLAIMS_WAITING_MAX = 20_000
#: A call whose turn comes later than this is refused; with the wait for the file itself that is
#: less than the deadlines of callers.
WAIT_MAX_S = 5.0
PAGE_MAX_BYTES = 1024 * 1024
#: What one transaction takes on: tasks and offsets are counted alike. It is over in well below a
#: second, so that nobody else waits for long.
BATCH_MAX_ITEMS = 10_000

T = TypeVar("T")
RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")


class OffsetStore:
    """The coordinator's use of ``EmbeddedStore``. At most 1,000 calls, and 20,000 claims, wait.

    Every call raises UnavailableError STORAGE_UNAVAILABLE while another process keeps the file
    busy for too long or the disk refuses the write, and ResourceExhaustedError QUEUE_FULL when too
    many calls wait. A call that is given up before its turn is not carried out.

    Args:
        store: Closed by ``close``.
    """

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._writes = ThreadPoolExecutor(1, thread_name_prefix="offsets-write")
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="offsets-read")
        self._waiting_count = 0
        self._claims = _SharedWrites(
            self._write_claims, size=lambda _: 1, waiting_max=CLAIMS_WAITING_MAX, name="claims"
        )
        self._commits = _SharedWrites(
            self._write_commits, size=_item_count, waiting_max=WAITING_MAX, name="offset commits"
        )

    async def claim(
        self,
        task: TaskId,
        *,
        generation: int,
        owner: str,
        request_id: str,
        task_config_generation: int,
    ) -> Term:
        """Make ``owner`` the task's one committer; durable when it returns.

        Raises:
            FailedPreconditionError: STALE_TERM.
        """
        answer = await self._claims.submit(
            ClaimRequest(task, generation, owner, request_id, task_config_generation)
        )
        if isinstance(answer, FailedPreconditionError):
            raise answer
        return answer

    async def commit(self, tasks: Sequence[TaskOffsets]) -> list[CommitResult]:
        """Commit offsets of tasks; a result for each, in order, durable when it returns."""
        return await self._commits.submit(tasks)

    async def fetch(self, connector: str, page_token: str) -> tuple[list[CommittedOffset], str]:
        """A page of a connector's offsets, and the token of the next one; empty on the last.

        A token is the partition that the page before ended with.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, a token that no page gave.
        """
        after = _canonical_token(page_token)
        page, more = await self._run(
            self._reads,
            lambda: self._store.fetch_offsets_page(
                connector, after_partition_json=after, max_bytes=PAGE_MAX_BYTES
            ),
        )
        return page, page[-1].partition_json if more else ""

    async def apply_retention(
        self, *, retention_ms: int | None, retention_bytes: int | None
    ) -> RetentionResult:
        """Remove a bounded number of old batches of topics; nothing was left when it removes none.

        None for a limit that does not apply.
        """
        return await self._run(
            self._writes,
            lambda: self._store.apply_retention(
                retention_ms=retention_ms, retention_bytes=retention_bytes
            ),
        )

    async def give_space_back(self) -> bool:
        """Make a file that is mostly free space a step smaller; True while there is more."""
        return await self._run(self._writes, self._store.give_space_back)

    async def close(self) -> None:
        """Finish what is under way and close the store."""
        await self._claims.close()
        await self._commits.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._reads, lambda: None)  # after the reads under way
        await loop.run_in_executor(self._writes, self._store.close)
        for threads in (self._reads, self._writes):
            threads.shutdown(wait=True)

    async def _write_claims(
        self, requests: Sequence[ClaimRequest]
    ) -> Sequence[Term | FailedPreconditionError]:
        return await self._run(self._writes, partial(self._store.claim_tasks, requests))

    async def _write_commits(
        self, commits: Sequence[Sequence[TaskOffsets]]
    ) -> Sequence[list[CommitResult]]:
        tasks = [each for commit in commits for each in commit]
        results = iter(await self._run(self._writes, partial(self._store.commit_offsets, tasks)))
        return [[next(results) for _ in commit] for commit in commits]

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        _check_waiting(self._waiting_count, WAITING_MAX)
        self._waiting_count += 1
        try:
            turn = partial(_in_time, work, time.monotonic() + WAIT_MAX_S)
            return await asyncio.get_running_loop().run_in_executor(threads, turn)
        finally:
            self._waiting_count -= 1


@dataclass(slots=True, eq=False)
class _Waiting(Generic[RequestT, AnswerT]):
    request: RequestT
    deadline_s: float
    answer: "asyncio.Future[AnswerT]"


class _SharedWrites(Generic[RequestT, AnswerT]):
    """Requests that wait while others are written are written together.

    Args:
        write: Writes some requests, an answer for each; what it raises is told to all of them.
        size: How many items a request is, of ``BATCH_MAX_ITEMS``.
        waiting_max: How many requests may wait.
        name: For the task that writes.
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
        """Have ``request`` written soon."""
        _check_waiting(len(self._queue), self._waiting_max)
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
                except Exception as error:  # noqa: BLE001 - it is the callers' to hear
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
        """The next requests; without those that nobody waits for, or that waited for too long."""
        batch: list[_Waiting[RequestT, AnswerT]] = []
        item_count = 0
        now_s = time.monotonic()
        while self._queue:
            waiting = self._queue[0]
            if waiting.answer.done():
                self._queue.popleft()
                continue
            if now_s > waiting.deadline_s:
                self._queue.popleft().answer.set_exception(_too_late())
                continue
            item_count += self._size(waiting.request)
            if batch and item_count > BATCH_MAX_ITEMS:
                break
            batch.append(self._queue.popleft())
        return batch


def _item_count(tasks: Sequence[TaskOffsets]) -> int:
    return sum(1 + len(each.offsets) for each in tasks)


def _check_waiting(count: int, waiting_max: int) -> None:
    if count >= waiting_max:
        raise ResourceExhaustedError(
            Reason.QUEUE_FULL, f"{waiting_max} calls wait for the store; try again later"
        )


def _in_time(work: Callable[[], T], deadline_s: float) -> T:
    if time.monotonic() > deadline_s:
        raise _too_late()
    return work()


def _too_late() -> UnavailableError:
    return UnavailableError(
        Reason.STORAGE_UNAVAILABLE,
        f"other calls kept the store busy for {WAIT_MAX_S:.0f} s: try again",
    )


def _canonical_token(page_token: str) -> str:
    if not page_token:
        return ""
    try:
        return canonical_json(page_token)
    except ValueError as error:
        raise InvalidArgumentError(
            Reason.INVALID_REQUEST,
            "page_token: give the next_page_token of the page before",
            violations=(Violation("page_token", "is not a token of FetchOffsets"),),
        ) from error
