"""Claims, committed offsets and retention in ``data.db``, on threads.

One thread writes; waiting writes share a transaction and its fsync. Another thread reads, so that a
locked file does not delay reads.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from drover.dataplane.store import EmbeddedStore
from drover.dataplane.topic_settings import RETENTION_BYTES, RETENTION_MS
from drover.dataplane.values import RetentionResult
from drover.errors import FailedPreconditionError
from drover.model import pages
from drover.model.claims import ClaimRequest
from drover.model.ids import Term
from drover.model.offsets import CommitResult, CommittedOffset, OffsetsChange, TaskOffsets
from drover_coordinator import offset_store, shared_writes
from drover_coordinator.offset_store import OffsetQueue, canonical_token
from drover_coordinator.shared_writes import check_waiting, too_late

T = TypeVar("T")


class EmbeddedOffsets:
    """The coordinator's use of ``EmbeddedStore``: an ``OffsetStore``, and retention.

    Args:
        store: Closed by ``close``.
    """

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._writes = ThreadPoolExecutor(1, thread_name_prefix="offsets-write")
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="offsets-read")
        self._waiting_count = 0
        self._queue = OffsetQueue(self._write_claims, self._write_commits)

    async def claim(self, request: ClaimRequest) -> Term:
        """See ``OffsetStore``."""
        return await self._queue.claim(request)

    async def commit(self, tasks: Sequence[TaskOffsets]) -> list[CommitResult]:
        """See ``OffsetStore``."""
        return await self._queue.commit(tasks)

    async def change(self, change: OffsetsChange) -> None:
        """See ``OffsetStore``."""
        await self._run(self._writes, lambda: self._store.change_offsets(change))

    async def fetch(
        self,
        connector: str,
        page_token: str,
        *,
        without_positions: bool = False,
        consumer_group: str = "",
        with_marks: bool = False,
    ) -> tuple[list[CommittedOffset], str]:
        """See ``OffsetStore``."""
        del without_positions, consumer_group  # there are no consumer groups
        after = canonical_token(page_token)
        page, more = await self._run(
            self._reads,
            lambda: self._store.fetch_offsets_page(
                connector, after_partition_json=after, max_bytes=pages.PAGE_BYTES_MAX
            ),
        )
        token = page[-1].partition_json if more else ""
        if with_marks and not more:  # few, so that they are part of the last page
            page += await self._run(self._reads, lambda: self._store.marks(connector))
        return page, token

    async def apply_retention(
        self, *, retention_ms: int | None, retention_bytes: int | None
    ) -> RetentionResult:
        """Remove a bounded number of old batches of topics; repeat until it removes none.

        A limit of None does not apply.
        """
        return await self._run(
            self._writes,
            lambda: self._store.apply_retention(
                retention_ms=retention_ms, retention_bytes=retention_bytes
            ),
        )

    async def set_default_retention(
        self, *, retention_ms: int | None, retention_bytes: int | None
    ) -> None:
        """Store the limits of topics without these settings, to be shown; None is no limit."""
        shown = {
            RETENTION_MS: str(-1 if retention_ms is None else retention_ms),
            RETENTION_BYTES: str(-1 if retention_bytes is None else retention_bytes),
        }
        await self._run(self._writes, partial(self._store.set_default_settings, shown))

    async def give_space_back(self) -> bool:
        """Shrink a file that is mostly free space by one step; True while there is more."""
        return await self._run(self._writes, self._store.give_space_back)

    async def close(self) -> None:
        """Finish the calls in progress and close the store."""
        await self._queue.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._reads, lambda: None)  # after the reads in progress
        await loop.run_in_executor(self._writes, self._store.close)
        for threads in (self._reads, self._writes):
            threads.shutdown(wait=True)

    async def _write_claims(
        self, requests: Sequence[ClaimRequest]
    ) -> Sequence[Term | FailedPreconditionError]:
        return await self._run(self._writes, partial(self._store.claim_tasks, requests))

    async def _write_commits(self, tasks: Sequence[TaskOffsets]) -> Sequence[CommitResult]:
        return await self._run(self._writes, partial(self._store.commit_offsets, tasks))

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        check_waiting(self._waiting_count, offset_store.WAITING_MAX)
        self._waiting_count += 1
        try:
            work_in_time = partial(_in_time, work, time.monotonic() + shared_writes.WAIT_MAX_S)
            return await asyncio.get_running_loop().run_in_executor(threads, work_in_time)
        finally:
            self._waiting_count -= 1


def _in_time(work: Callable[[], T], deadline_s: float) -> T:
    if time.monotonic() > deadline_s:
        raise too_late()
    return work()
