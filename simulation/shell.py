"""The other parts of a worker's shell: views, statuses and commits.

Each class does what the part of the real shell with the same name does, with shorter waits.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from drover.errors import (
    DeadlineExceededError,
    DroverError,
    InvalidArgumentError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnavailableError,
)
from drover.model.offsets import TaskOffsets
from drover.model.status import StatusKey, StatusWrite
from drover_status_store.core.events import PutStatuses
from simulation.coordinator import CommitOffsets
from simulation.network import Heard, Stream
from simulation.stores import Changes, GetSnapshot, Watch

if TYPE_CHECKING:
    from simulation.worker import Worker

CALL_TIMEOUT_MS = 4_000
PUT_TIMEOUT_MS = 2_000
BACKOFF_FIRST_MS = 100
BACKOFF_MAX_MS = 1_000


class Mirror:
    """Follows a store's log for ever, as ``drover.client.watch.follow`` does.

    Args:
        worker: The owner of the view.
        store: The store's name.
        on_snapshot: Gets the whole state.
        on_changes: Gets changes and the offset up to which the view is complete.
    """

    def __init__(
        self,
        worker: "Worker",
        store: str,
        on_snapshot: Callable[[object], None],
        on_changes: Callable[[Sequence[object], int], None],
    ) -> None:
        self._worker = worker
        self._store = store
        self._on_snapshot = on_snapshot
        self._on_changes = on_changes
        self._position: int | None = None
        self._failures = 0
        self._read()

    def _read(self) -> None:
        if self._position is None:
            self._worker.call(self._store, GetSnapshot(), self._snapshot_came)
        else:
            self._watch()

    def _snapshot_came(self, snapshot: object) -> None:
        if isinstance(snapshot, DroverError):
            self._again(snapshot)
            return
        self._position = snapshot.end_offset  # type: ignore[attr-defined]
        self._on_snapshot(snapshot)
        self._watch()

    def _watch(self) -> None:
        assert self._position is not None
        worker = self._worker
        Stream(
            worker.network, worker, self._store, Watch(self._position), self._changed, self._again
        )

    def _changed(self, message: object) -> None:
        assert isinstance(message, Changes)
        assert self._position is not None
        self._failures = 0
        assert message.end_offset >= self._position, "the log is another one"
        changes = [event for event in message.events if event.offset >= self._position]
        if changes or message.end_offset > self._position:
            self._position = message.end_offset
            self._on_changes(changes, message.end_offset)

    def _again(self, error: DroverError) -> None:
        if isinstance(error, OutOfRangeError):
            self._position = None
        pause_ms = min(BACKOFF_FIRST_MS << min(self._failures, 5), BACKOFF_MAX_MS)
        self._failures += 1
        self._worker.after(self._worker.world.between(pause_ms // 2, pause_ms), self._read)


class StatusWriter:
    """Writes statuses to the status store; retries the last status of each key until it is
    written.
    """

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._name = f"{worker.name}-{worker.incarnation}"
        self._numbers = count(1)
        self._waiting: dict[StatusKey, StatusWrite] = {}
        self._busy = False
        self._backoff_ms = BACKOFF_FIRST_MS

    @property
    def idle(self) -> bool:
        """Whether all statuses are written."""
        return not self._waiting and not self._busy

    def write(self, write: StatusWrite) -> None:
        """Queue a status."""
        self._waiting.pop(write.status.key, None)
        self._waiting[write.status.key] = write
        if not self._busy:
            self._busy = True
            self._worker.deliver(0, self._put)

    def _put(self) -> None:
        batch = tuple(self._waiting.values())
        self._waiting.clear()
        if not batch:
            self._busy = False
            return
        self._worker.call(
            "status-store",
            PutStatuses(call_id="", writes=batch, writer=self._name, number=next(self._numbers)),
            partial(self._written, batch),
            timeout_ms=PUT_TIMEOUT_MS,
        )

    def _written(self, batch: Sequence[StatusWrite], result: object) -> None:
        if isinstance(result, DroverError) and not isinstance(result, InvalidArgumentError):
            newer = self._waiting
            older = {w.status.key: w for w in batch if w.status.key not in newer}
            self._waiting = {**older, **newer}
            self._worker.after(self._backoff_ms, self._put)
            self._backoff_ms = min(2 * self._backoff_ms, BACKOFF_MAX_MS)
        else:
            self._backoff_ms = BACKOFF_FIRST_MS
            self._put()


class OffsetCommitter:
    """Sends sink commits to the coordinator: one call at a time, retried until it is answered."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._waiting: deque[tuple[TaskOffsets, Heard]] = deque()
        self._busy = False
        self._engine_life = 0
        self._numbers = count(1)

    def commit(self, commit: TaskOffsets, heard: Heard) -> None:
        """Queue a task's commit."""
        self._waiting.append((replace(commit, number=next(self._numbers)), heard))
        if not self._busy:
            self._busy = True
            self._next_batch()

    def forget(self) -> None:
        """The engine ended: drop the queued commits."""
        self._waiting.clear()
        self._engine_life += 1

    def _next_batch(self) -> None:
        batch = tuple(self._waiting)
        self._waiting.clear()
        if batch:
            self._send(batch, self._engine_life, BACKOFF_FIRST_MS)
        else:
            self._busy = False

    def _send(self, batch: Sequence[tuple[TaskOffsets, Heard]], life: int, backoff_ms: int) -> None:
        if life != self._engine_life:
            self._next_batch()
            return
        self._worker.call_group(
            CommitOffsets(self._worker.group_id, [commit for commit, _ in batch]),
            partial(self._answered, batch, life, backoff_ms),
        )

    def _answered(
        self,
        batch: Sequence[tuple[TaskOffsets, Heard]],
        life: int,
        backoff_ms: int,
        results: object,
    ) -> None:
        if isinstance(results, UnavailableError | DeadlineExceededError | ResourceExhaustedError):
            next_ms = min(2 * backoff_ms, BACKOFF_MAX_MS)
            self._worker.after(backoff_ms, partial(self._send, batch, life, next_ms))
            return
        assert isinstance(results, list), results
        if life == self._engine_life:
            for (_, heard), result in zip(batch, results, strict=True):
                heard(result)
        self._next_batch()
