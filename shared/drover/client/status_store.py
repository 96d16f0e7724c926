"""The status store: what is running."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import grpc.aio

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.api.status_store.v1 import status_store_service_pb2_grpc as pb_grpc
from drover.client.calls import CALL_TIMEOUT_S, server_stream, snapshot, unary
from drover.client.watch import EventsRead
from drover.codec.status_store import decode_event, decode_snapshot, encode_write
from drover.model.status import StatusEvent, StatusSnapshot, StatusWrite


@dataclass(frozen=True, slots=True)
class StatusesWritten:
    """For each write, in order, whether it was written (else superseded); the log's end after."""

    written: Sequence[bool]
    end_offset: int


class StatusStoreClient:
    """Calls a status store over one channel; see ``drover.client`` for what all calls share."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = pb_grpc.StatusStoreServiceStub(channel)

    async def put_statuses(
        self, writes: Sequence[StatusWrite], *, timeout_s: float = CALL_TIMEOUT_S
    ) -> StatusesWritten:
        """Write statuses in one append; at least one."""
        request = pb.PutStatusesRequest(writes=[encode_write(write) for write in writes])
        response = await unary(self._stub.PutStatuses, request, timeout_s=timeout_s, retry=True)
        return StatusesWritten(
            tuple(outcome == pb.STATUS_WRITE_OUTCOME_WRITTEN for outcome in response.outcomes),
            response.end_offset,
        )

    async def get_snapshot(self, *, timeout_s: float = CALL_TIMEOUT_S) -> StatusSnapshot:
        """Every status."""
        return decode_snapshot(
            await snapshot(self._stub.GetSnapshot, pb.GetSnapshotRequest(), timeout_s=timeout_s)
        )

    async def watch(self, start_offset: int) -> AsyncGenerator[EventsRead[StatusEvent], None]:
        """The changes from an offset on, until the stream breaks; ``follow`` resumes it.

        Raises:
            OutOfRangeError: REVISION_COMPACTED, the history does not reach back that far.
        """
        request = pb.WatchStatusesRequest(start_offset=start_offset)
        async with aclosing(server_stream(self._stub.WatchStatuses, request)) as messages:
            async for message in messages:
                found = [decode_event(event) for event in message.events]
                yield EventsRead([e for e in found if e is not None], message.end_offset)
