"""The status store: what is running."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import grpc.aio

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.api.status_store.v1 import status_store_service_pb2_grpc as pb_grpc
from drover.client.calls import CALL_TIMEOUT_S, server_stream, snapshot, unary
from drover.client.watch import EventsRead
from drover.codec.common import encode_timestamp
from drover.codec.status_store import decode_event, decode_snapshot, encode_write
from drover.model.status import StatusChange, StatusSnapshot, StatusWrite


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
        self,
        writes: Sequence[StatusWrite],
        *,
        writer: str = "",
        number: int = 0,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> StatusesWritten:
        """Write statuses in one append; at least one.

        Args:
            writes: In order.
            writer: A name that this life of this process has alone; empty for a write without
                number.
            number: Higher than that of the writer's request before, so that the store knows late
                copies of that.
            timeout_s: For the whole call.
        """
        request = pb.PutStatusesRequest(
            writes=[encode_write(write) for write in writes], writer=writer, number=number
        )
        response = await unary(self._stub.PutStatuses, request, timeout_s=timeout_s, retry=True)
        return StatusesWritten(
            tuple(outcome == pb.STATUS_WRITE_OUTCOME_WRITTEN for outcome in response.outcomes),
            response.end_offset,
        )

    async def put_topic_statuses(
        self,
        connector: str,
        topics: Sequence[str],
        *,
        task: int,
        discovered_ms: int = 0,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Say that a task of a connector was seen to use topics; at least one.

        Args:
            connector: Its name.
            topics: Their names.
            task: The task's index.
            discovered_ms: When, in milliseconds since 1970; 0 for now, which leaves topics that are
                known already as they are.
            timeout_s: For the whole call.
        """
        request = pb.PutTopicStatusesRequest(
            connector=connector,
            topics=topics,
            task=task,
            discover_time=encode_timestamp(discovered_ms) if discovered_ms else None,
        )
        await unary(self._stub.PutTopicStatuses, request, timeout_s=timeout_s, retry=True)

    async def delete_topic_statuses(
        self, connector: str, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        """Forget the topics that a connector was seen to use."""
        request = pb.DeleteTopicStatusesRequest(connector=connector)
        await unary(self._stub.DeleteTopicStatuses, request, timeout_s=timeout_s, retry=True)

    async def flush(self, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Wait until everything that the store received before is durable and seen by readers."""
        await unary(self._stub.Flush, pb.FlushRequest(), timeout_s=timeout_s, retry=True)

    async def get_snapshot(self, *, timeout_s: float = CALL_TIMEOUT_S) -> StatusSnapshot:
        """Every status and topic."""
        return decode_snapshot(
            await snapshot(self._stub.GetSnapshot, pb.GetSnapshotRequest(), timeout_s=timeout_s)
        )

    async def watch(
        self, start_offset: int, log_id: str = ""
    ) -> AsyncGenerator[EventsRead[StatusChange], None]:
        """The changes from an offset on, until the stream breaks; ``follow`` resumes it.

        Raises:
            OutOfRangeError: REVISION_COMPACTED, the history does not reach back that far, or the
                offset is not one of the log ``log_id``.
        """
        request = pb.WatchStatusesRequest(start_offset=start_offset, log_id=log_id)
        async with aclosing(server_stream(self._stub.WatchStatuses, request)) as messages:
            async for message in messages:
                found = [decode_event(event) for event in message.events]
                yield EventsRead([e for e in found if e is not None], message.end_offset)
