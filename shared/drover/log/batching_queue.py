"""A queue of jobs from event loops to one thread, which executes several jobs together."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from drover.errors import DroverError, Reason, ResourceExhaustedError
from drover.log.log import closed_error

GROUP_MAX_JOBS = 512
GROUP_MAX_BYTES = 8 << 20
MAX_WAITING_JOBS = 10_000

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class WaitingJob(Generic[T]):
    """A queued job; ``done`` is a future of the caller's event loop."""

    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[T]"

    @property
    def size_bytes(self) -> int:
        """The job's size, which counts towards ``GROUP_MAX_BYTES``."""
        return 0

    @property
    def alone(self) -> bool:
        """Whether it must be executed alone."""
        return False


JobT = TypeVar("JobT", bound=WaitingJob[Any])


class BatchingQueue(Generic[JobT]):
    """A first-in first-out queue of jobs.

    Args:
        waits_for: What the jobs wait for, for the message if the queue is full.
    """

    def __init__(self, waits_for: str) -> None:
        self._waits_for = waits_for
        self._jobs: deque[JobT] = deque()
        self._ready = threading.Condition()
        self._stopping = False

    def put(self, job: JobT) -> None:
        """Queue a job; never waits.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, stopped.
            ResourceExhaustedError: QUEUE_FULL.
        """
        with self._ready:
            if self._stopping:
                raise closed_error()
            if len(self._jobs) >= MAX_WAITING_JOBS:
                raise ResourceExhaustedError(
                    Reason.QUEUE_FULL,
                    f"{MAX_WAITING_JOBS} writes are waiting for {self._waits_for}, the maximum:"
                    " back off",
                )
            self._jobs.append(job)
            self._ready.notify()

    def next_group(self, timeout_s: float | None = None) -> list[JobT] | None:
        """Wait for the next jobs that may be executed together.

        Returns:
            None if the queue is stopped and empty; an empty list after ``timeout_s``.
        """
        with self._ready:
            self._ready.wait_for(lambda: self._jobs or self._stopping, timeout_s)
            if not self._jobs:
                return None if self._stopping else []
            group = [self._jobs.popleft()]
            size_bytes = group[0].size_bytes
            while (
                not group[0].alone
                and self._jobs
                and not self._jobs[0].alone
                and len(group) < GROUP_MAX_JOBS
                and size_bytes < GROUP_MAX_BYTES
            ):
                group.append(self._jobs.popleft())
                size_bytes += group[-1].size_bytes
            return group

    def stop(self) -> None:
        """Reject new jobs; queued jobs are still returned by ``next_group``. Idempotent."""
        with self._ready:
            self._stopping = True
            self._ready.notify()


def complete(results: Iterable[tuple[WaitingJob[T], T | DroverError]]) -> None:
    """Set the callers' results, from any thread, with one wake-up per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[T], T | DroverError]]] = {}
    for job, result in results:
        by_loop.setdefault(job.loop, []).append((job.done, result))
    for loop, settled in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so its callers are gone
            loop.call_soon_threadsafe(_settle, settled)


def _settle(results: Sequence[tuple["asyncio.Future[T]", T | DroverError]]) -> None:
    for done, result in results:
        if done.done():
            continue  # the caller was cancelled
        if isinstance(result, DroverError):
            done.set_exception(result)
        else:
            done.set_result(result)
