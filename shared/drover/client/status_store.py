"""The client of the status store: statuses of connectors and tasks, active topics."""

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
    """The result of a request: for each write, in order, whether it was written or superseded; and
    the log's end offset after the request.
    """

    written: Sequence[bool]
    end_offset: int


class StatusStoreClient:
    """Calls a status store over one channel; see ``drover.client`` for timeouts and retries."""

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
        """Write statuses in one append.

        Args:
            writes: The writes, in order; at least one.
            writer: A unique name of this run of the process; empty for a request without a number.
            number: The writer's sequence number, higher than in its previous request. The store
                rejects delayed retries of earlier requests by it.
            timeout_s: The time limit for the call with its retries.
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
        """Write that a task of a connector uses topics.

        Args:
            connector: The connector's name.
            topics: The topics' names; at least one.
            task: The task's index.
            discovered_ms: The time of discovery, in milliseconds since 1970. 0 for the current
                time, which is written only for topics that the store does not know yet.
            timeout_s: The time limit for the call with its retries.
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
        """Remove the active topics of a connector."""
        request = pb.DeleteTopicStatusesRequest(connector=connector)
        await unary(self._stub.DeleteTopicStatuses, request, timeout_s=timeout_s, retry=True)

    async def flush(self, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Wait until all earlier writes are durable and visible to readers."""
        await unary(self._stub.Flush, pb.FlushRequest(), timeout_s=timeout_s, retry=True)

    async def get_snapshot(self, *, timeout_s: float = CALL_TIMEOUT_S) -> StatusSnapshot:
        """All statuses and active topics."""
        return decode_snapshot(
            await snapshot(self._stub.GetSnapshot, pb.GetSnapshotRequest(), timeout_s=timeout_s)
        )

    async def watch(
        self, start_offset: int, log_id: str = ""
    ) -> AsyncGenerator[EventsRead[StatusChange], None]:
        """Yield the changes from an offset on, until the stream breaks; ``follow`` resumes it.

        Raises:
            OutOfRangeError: REVISION_COMPACTED, the history starts after the offset, or the store
                has another log than ``log_id``.
        """
        request = pb.WatchStatusesRequest(start_offset=start_offset, log_id=log_id)
        async with aclosing(server_stream(self._stub.WatchStatuses, request)) as messages:
            async for message in messages:
                decoded = [decode_event(event) for event in message.events]
                events = [event for event in decoded if event is not None]
                yield EventsRead(events, message.end_offset)
