"""The gRPC shell of the status store: decode, submit, encode."""

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import grpc.aio

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.api.status_store.v1 import status_store_service_pb2_grpc as pb_grpc
from drover.clock import Clock
from drover.codec.common import decode_timestamp
from drover.codec.status_store import decode_write, encode_snapshot, encode_watch_responses
from drover.errors import InvalidArgumentError, Violation
from drover.log.log import Log, LogRecord, StoredRecord
from drover.metrics import table
from drover.metrics.metric import Sample
from drover.model.ids import TaskId
from drover.model.status import StatusChange, StatusSnapshot, StatusWrite
from drover.rpc.change_feed import ChangeFeed
from drover.rpc.log_service import skipping_unreadable
from drover.rpc.log_servicer import StoreServicer
from drover.rpc.server import RpcServer
from drover.runtime.change_buffer import ChangeBuffer
from drover.runtime.runtime import Runtime
from drover_status_store.core import records
from drover_status_store.core.events import (
    DeleteTopicStatuses,
    Flush,
    PutStatuses,
    PutTopicStatuses,
    WriteOutcome,
)
from drover_status_store.core.machine import StatusMachine
from drover_status_store.core.records import AnyRecord

SERVICE = "status-store"
FULL_NAME = pb.DESCRIPTOR.services_by_name["StatusStoreService"].full_name

_OUTCOMES = {
    WriteOutcome.WRITTEN: pb.STATUS_WRITE_OUTCOME_WRITTEN,
    WriteOutcome.SUPERSEDED: pb.STATUS_WRITE_OUTCOME_SUPERSEDED,
}

Context = grpc.aio.ServicerContext[Any, Any]


def wire(log: Log, clock: Clock, server: RpcServer) -> Runtime[AnyRecord]:
    """Create the machine, its runtime and its servicer; add the servicer to ``server``."""
    machine = StatusMachine(ChangeBuffer.of(log))
    runtime = Runtime(
        machine, log, encode=encode_record, decode=decode_record, clock=clock, name=SERVICE
    )
    servicer = StatusStoreServicer(machine, runtime)
    server.add(pb_grpc.add_StatusStoreServiceServicer_to_server, servicer, FULL_NAME)

    def samples() -> Iterator[Sample]:
        statuses = machine.snapshot().statuses
        counts = Counter((isinstance(key, TaskId), each.state) for key, each in statuses.items())
        for (is_task, state), count in counts.items():
            yield table.STATUSES.at(count, "task" if is_task else "connector", state)

    server.metrics.add(samples)
    return runtime


def encode_record(record: AnyRecord) -> LogRecord:
    """Encode a record for the log; its mark becomes the request id."""
    return LogRecord(*records.encode(record), request_id=records.mark_text(record))


def decode_record(stored: StoredRecord) -> AnyRecord:
    """Decode a stored record; an unreadable one is logged and has no effect."""
    return records.with_mark(_decode(stored), stored.record.request_id)


_decode = skipping_unreadable(records.decode, records.IGNORED, SERVICE)


class StatusStoreServicer(
    StoreServicer[StatusSnapshot, StatusChange, pb.WatchStatusesResponse],
    pb_grpc.StatusStoreServiceServicer,
):
    """Serves the status store's API.

    Args:
        machine: Serves snapshots and watches; changes only through ``runtime``.
        runtime: Runs the machine.
        feed: Serves the watch streams; created here by default.
    """

    def __init__(
        self,
        machine: StatusMachine,
        runtime: Runtime[AnyRecord],
        feed: ChangeFeed[StatusChange, pb.WatchStatusesResponse] | None = None,
    ) -> None:
        super().__init__(machine, runtime, encode_watch_responses, feed)
        self._machine = machine

    async def PutStatuses(
        self, request: pb.PutStatusesRequest, context: Context
    ) -> pb.PutStatusesResponse:
        """Write any number of statuses in one append."""
        event = PutStatuses(
            call_id=self.next_call_id(),
            writes=_decode_writes(request.writes),
            writer=request.writer,
            number=request.number,
        )
        outcomes = cast("Sequence[WriteOutcome]", await self.submit(event))
        return pb.PutStatusesResponse(
            outcomes=[_OUTCOMES[outcome] for outcome in outcomes],
            end_offset=self._machine.end_offset,
        )

    async def GetSnapshot(
        self, request: pb.GetSnapshotRequest, context: Context
    ) -> AsyncGenerator[pb.GetSnapshotResponse, None]:
        """Stream every status, in chunks."""
        for chunk in encode_snapshot(self.snapshot()):
            yield chunk

    async def WatchStatuses(
        self, request: pb.WatchStatusesRequest, context: Context
    ) -> AsyncGenerator[pb.WatchStatusesResponse, None]:
        """Stream the changes from an offset on."""
        async with aclosing(self.watch(request)) as messages:
            async for message in messages:
                yield message

    async def PutTopicStatuses(
        self, request: pb.PutTopicStatusesRequest, context: Context
    ) -> pb.PutTopicStatusesResponse:
        """Record the topics that a task uses."""
        await self.submit(
            PutTopicStatuses(
                call_id=self.next_call_id(),
                connector=request.connector,
                topics=request.topics,
                task=request.task,
                discovered_ms=decode_timestamp(request.discover_time),
            )
        )
        return pb.PutTopicStatusesResponse()

    async def DeleteTopicStatuses(
        self, request: pb.DeleteTopicStatusesRequest, context: Context
    ) -> pb.DeleteTopicStatusesResponse:
        """Remove a connector's active topics."""
        await self.submit(
            DeleteTopicStatuses(call_id=self.next_call_id(), connector=request.connector)
        )
        return pb.DeleteTopicStatusesResponse()

    async def Flush(self, request: pb.FlushRequest, context: Context) -> pb.FlushResponse:
        """Return when all earlier requests are durable."""
        await self.submit(Flush(call_id=self.next_call_id()))
        return pb.FlushResponse()


def _decode_writes(messages: Iterable[pb.StatusWrite]) -> Sequence[StatusWrite]:
    """Decode all writes.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, with the violations of every write.
    """
    writes: list[StatusWrite] = []
    violations: list[Violation] = []
    for index, message in enumerate(messages):
        try:
            writes.append(decode_write(message, f"writes[{index}]"))
        except InvalidArgumentError as error:
            violations += error.violations
    if violations:
        raise InvalidArgumentError.listing(violations)
    return writes
