"""Base classes of servicers with a log: they serve requests, snapshots and watches."""

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
    """A request to a machine, which responds to its ``call_id``."""

    @property
    def call_id(self) -> str:
        """Unique among the calls of its servicer; see ``LogServicer.next_call_id``."""


class WatchRequest(Protocol):
    """The request of a Watch RPC."""

    @property
    def start_offset(self) -> int:
        """The first requested offset."""

    @property
    def log_id(self) -> str:
        """The log to which the offset belongs; may be empty."""


class Mirrored(Protocol[SnapshotT_co, ChangeT]):
    """A machine with snapshots and changes, from which clients mirror its whole state."""

    @property
    def history(self) -> ChangeBuffer[ChangeT]:
        """The latest changes."""

    def snapshot(self) -> SnapshotT_co:
        """The whole state."""


class EncodeWatch(Protocol[ChangeT_contra, MessageT_co]):
    """Encodes the messages of a watch stream; see ``drover.codec``."""

    def __call__(
        self, events: Iterable[ChangeT_contra], end_offset: int, *, created: bool, log_id: str
    ) -> Iterable[MessageT_co]:
        """The messages of ``events``; at least one, even without changes."""


class LogServicer:
    """Base class of a servicer that submits requests to machines and awaits the responses."""

    def __init__(self) -> None:
        self._call_ids = map(str, itertools.count(1))

    def next_call_id(self) -> str:
        """A new id for one call."""
        return next(self._call_ids)

    async def submit_to(
        self, runtime: Runtime[RecordT], request: Request, *, on_cancel: object | None = None
    ) -> object:
        """Submit a request; returns the response once its records are durable and applied.

        Args:
            runtime: Runs the machine.
            request: The request to the machine.
            on_cancel: The event to the machine if the caller cancels the call while it waits.

        Raises:
            DroverError: As ``Runtime.submit``.
        """
        return await runtime.submit(request, call_id=request.call_id, on_cancel=on_cancel)


class StoreServicer(LogServicer, Generic[SnapshotT, ChangeT, MessageT]):
    """Base class of a store's servicer: it has one machine, and clients mirror the machine's state.

    Args:
        machine: Read for snapshots and watches; written only through ``runtime``.
        runtime: Runs the machine.
        encode_watch: Encodes the messages of watch streams.
        feed: Serves the watch streams; created here if None.
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
