"""Bases of servicers whose state is a log: how requests, snapshots and watches are served."""

import itertools
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from drover.model.config import ConfigSnapshot
from drover.model.status import StatusSnapshot
from drover.rpc.change_feed import ChangeFeed
from drover.runtime.change_buffer import ChangeBuffer
from drover.runtime.runtime import Runtime

RecordT = TypeVar("RecordT")
SnapshotT = TypeVar("SnapshotT", ConfigSnapshot, StatusSnapshot)
SnapshotT_co = TypeVar("SnapshotT_co", ConfigSnapshot, StatusSnapshot, covariant=True)
ChangeT = TypeVar("ChangeT")
ChangeT_contra = TypeVar("ChangeT_contra", contravariant=True)
MessageT = TypeVar("MessageT")
MessageT_co = TypeVar("MessageT_co", covariant=True)


class Request(Protocol):
    """A request to a machine, which answers it by its ``call_id``."""

    @property
    def call_id(self) -> str:
        """Unique among the calls of its servicer; see ``LogServicer.next_call_id``."""


class WatchRequest(Protocol):
    """The request of a Watch RPC."""

    @property
    def start_offset(self) -> int:
        """The first offset that is wanted."""

    @property
    def log_id(self) -> str:
        """Names the sequence that the offset counts in; may be empty."""


class Mirrored(Protocol[SnapshotT_co, ChangeT]):
    """A machine whose whole state clients mirror."""

    @property
    def history(self) -> ChangeBuffer[ChangeT]:
        """The latest changes."""

    def snapshot(self) -> SnapshotT_co:
        """The whole state."""


class EncodeWatch(Protocol[ChangeT_contra, MessageT_co]):
    """Makes the messages of a watch stream; see ``drover.codec``."""

    def __call__(
        self, events: Iterable[ChangeT_contra], end_offset: int, *, created: bool, log_id: str
    ) -> Iterable[MessageT_co]:
        """At least one message, also without changes."""


class LogServicer:
    """Base of a servicer that submits its requests to machines and waits for their answers."""

    def __init__(self) -> None:
        self._call_ids = map(str, itertools.count(1))

    def next_call_id(self) -> str:
        """An id for one call."""
        return next(self._call_ids)

    async def submit_to(
        self, runtime: Runtime[RecordT], request: Request, *, on_cancel: object | None = None
    ) -> object:
        """The machine's answer, once the records that it depends on are durable and applied.

        Args:
            runtime: Runs the machine.
            request: Given to the machine.
            on_cancel: Given to the machine when the caller goes away while the request waits.

        Raises:
            DroverError: As ``Runtime.submit``.
        """
        return await runtime.submit(request, call_id=request.call_id, on_cancel=on_cancel)


class StoreServicer(LogServicer, Generic[SnapshotT, ChangeT, MessageT]):
    """Base of a store's servicer: one machine, whose state clients mirror.

    Args:
        machine: Read for snapshots and watches; written only through ``runtime``.
        runtime: Runs the machine.
        encode_watch: Makes the messages of watch streams.
        feed: The watch streams; made here unless given.
    """

    def __init__(
        self,
        machine: Mirrored[SnapshotT, ChangeT],
        runtime: Runtime[RecordT],
        encode_watch: EncodeWatch[ChangeT, MessageT],
        feed: ChangeFeed[ChangeT, MessageT] | None = None,
    ) -> None:
        super().__init__()
        self._snapshot_of: Callable[[], SnapshotT] = machine.snapshot
        self.runtime = runtime

        def encode(events: Sequence[ChangeT], end_offset: int, created: bool) -> Iterable[MessageT]:
            return encode_watch(events, end_offset, created=created, log_id=runtime.log_id)

        self._feed = feed or ChangeFeed(runtime=runtime, history=machine.history, encode=encode)

    async def submit(self, request: Request) -> object:
        """See ``submit_to``."""
        return await self.submit_to(self.runtime, request)

    def snapshot(self) -> SnapshotT:
        """The whole state.

        Raises:
            UnavailableError: LOADING or DRAINING.
        """
        self.runtime.check_loaded()
        return replace(self._snapshot_of(), log_id=self.runtime.log_id)

    def watch(self, request: WatchRequest) -> AsyncGenerator[MessageT, None]:
        """The messages of one watch stream; see ``ChangeFeed.watch``."""
        return self._feed.watch(request.start_offset, request.log_id)
