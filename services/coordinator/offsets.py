"""Claims, committed offsets and retention: the blocking store behind an asynchronous front.

Membership is the machine's; what a task may commit is the store's. Writes take turns on one thread,
in the order of their calls, and commits that arrive while one is being written share the next
transaction. Reads have a thread of their own, so that a busy file does not hold them up.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from drover.dataplane.offsets import canonical_json
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import RetentionResult
from drover.errors import (
    InvalidArgumentError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
    Violation,
)
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitResult, CommittedOffset, TaskOffsets

WAITING_MAX = 1_000
#: A call whose turn comes later than this is refused; with the wait for the file itself that is
#: less than the deadlines of callers.
WAIT_MAX_S = 5.0
PAGE_MAX_BYTES = 1024 * 1024
BATCH_MAX_TASKS = 10_000

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Commit:
    tasks: Sequence[TaskOffsets]
    done: "asyncio.Future[list[CommitResult]]"


class OffsetStore:
    """The coordinator's use of ``EmbeddedStore``. At most 1,000 calls wait for it.

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
        self._queue: list[_Commit] = []
        self._committer: asyncio.Task[None] | None = None

    async def claim(
        self,
        task: TaskId,
        *,
        generation: int,
        owner: str,
        request_id: str,
        task_config_generation: int,
    ) -> Term:
        """Make ``owner`` the task's one committer.

        Raises:
            FailedPreconditionError: STALE_TERM.
        """
        return await self._run(
            self._writes,
            lambda: self._store.claim_task(
                task,
                generation=generation,
                owner=owner,
                request_id=request_id,
                task_config_generation=task_config_generation,
            ),
        )

    async def commit(self, tasks: Sequence[TaskOffsets]) -> list[CommitResult]:
        """Commit offsets of tasks; a result for each, in order, durable when it returns."""
        self._check_waiting(len(self._queue))
        commit = _Commit(tasks, asyncio.get_running_loop().create_future())
        self._queue.append(commit)
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all(), name="offset commits")
        return await commit.done

    async def fetch(self, connector: str, page_token: str) -> tuple[list[CommittedOffset], str]:
        """A page of a connector's offsets, and the token of the next one; empty on the last.

        A token is the partition that the page before ended with.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, a token that no page gave.
        """
        after = _canonical_token(page_token)
        return await self._run(
            self._reads, lambda: _page(self._store.fetch_offsets(connector), after)
        )

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
        if self._committer is not None:
            await self._committer
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._reads, lambda: None)  # after the reads under way
        await loop.run_in_executor(self._writes, self._store.close)
        for threads in (self._reads, self._writes):
            threads.shutdown(wait=True)

    async def _commit_all(self) -> None:
        """Commit until nothing waits; what fails together is told together."""
        try:
            while self._queue:
                batch = self._take_batch()
                tasks = [each for commit in batch for each in commit.tasks]
                try:
                    results = await self._run(
                        self._writes, partial(self._store.commit_offsets, tasks)
                    )
                except Exception as error:  # noqa: BLE001 - it is the callers' to hear
                    for commit in batch:
                        if not commit.done.done():
                            commit.done.set_exception(error)
                    continue
                answers = iter(results)
                for commit in batch:
                    answer = [next(answers) for _ in commit.tasks]
                    if not commit.done.done():
                        commit.done.set_result(answer)
        finally:
            self._committer = None

    def _take_batch(self) -> list[_Commit]:
        batch: list[_Commit] = []
        task_count = 0
        while self._queue and (not batch or task_count < BATCH_MAX_TASKS):
            commit = self._queue.pop(0)
            task_count += len(commit.tasks)
            batch.append(commit)
        return batch

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        self._check_waiting(self._waiting_count)
        self._waiting_count += 1
        try:
            turn = partial(_in_time, work, time.monotonic() + WAIT_MAX_S)
            return await asyncio.get_running_loop().run_in_executor(threads, turn)
        finally:
            self._waiting_count -= 1

    def _check_waiting(self, count: int) -> None:
        if count >= WAITING_MAX:
            raise ResourceExhaustedError(
                Reason.QUEUE_FULL, f"{WAITING_MAX} calls wait for the store; try again later"
            )


def _page(offsets: Sequence[CommittedOffset], after: str) -> tuple[list[CommittedOffset], str]:
    page: list[CommittedOffset] = []
    size_bytes = 0
    for offset in offsets:
        if after and canonical_json(offset.partition_json) <= after:
            continue
        size_bytes += _size_bytes(offset)
        if page and size_bytes > PAGE_MAX_BYTES:
            return page, page[-1].partition_json
        page.append(offset)
    return page, ""


def _in_time(work: Callable[[], T], deadline_s: float) -> T:
    if time.monotonic() > deadline_s:
        raise UnavailableError(
            Reason.STORAGE_UNAVAILABLE,
            f"other calls kept the store busy for {WAIT_MAX_S:.0f} s: try again",
        )
    return work()


def _size_bytes(offset: CommittedOffset) -> int:
    texts = (offset.partition_json, offset.offset_json or "", offset.metadata)
    return sum(len(text.encode()) for text in texts) + 32


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
