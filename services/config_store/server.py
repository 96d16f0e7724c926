"""The gRPC shell of the config store: decode, submit, encode."""

import uuid
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any, cast

import grpc.aio

from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.api.config_store.v1 import config_store_service_pb2_grpc as pb_grpc
from drover.clock import Clock
from drover.codec.common import decode_config, decode_task_id, decode_term
from drover.codec.config_store import TARGET_STATES, encode_snapshot, encode_watch_responses
from drover.errors import (
    InvalidArgumentError,
    NotImplementedYetError,
    Reason,
    UnavailableError,
    Violation,
)
from drover.log.log import Log, LogRecord
from drover.model.config import ConfigEvent
from drover.rpc.change_feed import ChangeFeed
from drover.rpc.log_service import skipping_unreadable
from drover.rpc.server import RpcServer
from drover.runtime.runtime import Runtime
from services.config_store.core import records
from services.config_store.core.events import (
    ConfigRequest,
    DeleteConnector,
    PutConnectorConfig,
    PutRestartRequest,
    PutTargetState,
    PutTaskConfigs,
    WriteAnswer,
)
from services.config_store.core.machine import CHANGES_CHANNEL, ConfigMachine
from services.config_store.core.records import ConfigRecord

SERVICE = "config-store"
FULL_NAME = pb.DESCRIPTOR.services_by_name["ConfigStoreService"].full_name


Context = grpc.aio.ServicerContext[Any, Any]


def wire(log: Log, clock: Clock, server: RpcServer) -> Runtime[ConfigRecord]:
    """Make the machine and its runtime, and add their servicer to ``server``."""
    machine = ConfigMachine()
    runtime = Runtime(
        machine, log, encode=encode_record, decode=decode_record, clock=clock, name=SERVICE
    )
    servicer = ConfigStoreServicer(machine, runtime, log)
    server.add(pb_grpc.add_ConfigStoreServiceServicer_to_server, servicer, FULL_NAME)
    return runtime


def encode_record(record: ConfigRecord) -> LogRecord:
    """A record as the log keeps it."""
    return LogRecord(*records.encode(record))


decode_record = skipping_unreadable(records.decode, records.IGNORED, SERVICE)


class ConfigStoreServicer(pb_grpc.ConfigStoreServiceServicer):
    """Serves the config store's API.

    Args:
        machine: Read for snapshots and watches; written only through ``runtime``.
        runtime: Runs the machine.
        log: Where the right to write is claimed.
        feed: The watch streams; made here unless given.
    """

    def __init__(
        self,
        machine: ConfigMachine,
        runtime: Runtime[ConfigRecord],
        log: Log,
        feed: ChangeFeed[ConfigEvent, pb.WatchConfigsResponse] | None = None,
    ) -> None:
        self._machine = machine
        self._runtime = runtime
        self._log = log
        self._feed = feed or ChangeFeed(
            runtime=runtime,
            channel=CHANGES_CHANNEL,
            history=machine.history,
            encode=encode_changes,
        )

    async def GetSnapshot(
        self, request: pb.GetSnapshotRequest, context: Context
    ) -> AsyncGenerator[pb.GetSnapshotResponse, None]:
        """The whole state, in chunks."""
        self._check_loaded()
        for chunk in encode_snapshot(self._machine.snapshot()):
            yield chunk

    async def WatchConfigs(
        self, request: pb.WatchConfigsRequest, context: Context
    ) -> AsyncGenerator[pb.WatchConfigsResponse, None]:
        """Every change from an offset on."""
        async with aclosing(self._feed.watch(request.start_offset)) as messages:
            async for message in messages:
                yield message

    async def GetEndOffset(
        self, request: pb.GetEndOffsetRequest, context: Context
    ) -> pb.GetEndOffsetResponse:
        """The log's end: every write answered before is below it."""
        self._check_loaded()
        return pb.GetEndOffsetResponse(end_offset=self._machine.end_offset)

    async def ClaimWriter(
        self, request: pb.ClaimWriterRequest, context: Context
    ) -> pb.ClaimWriterResponse:
        """Make the caller the one privileged writer."""
        self._check_loaded()
        term = decode_term(request.term)
        violations = []
        if not request.owner:
            violations.append(Violation("owner", "must be set"))
        if not request.HasField("term") or term.generation < 0 or term.sequence < 0:
            violations.append(Violation("term", "must be set and not negative"))
        if violations:
            raise InvalidArgumentError.listing(violations)
        epoch = await self._log.claim(request.owner, term)
        # asked of the log itself: a fenced leader's last write may be durable but not applied yet
        end_offset = await self._log.end_offset()
        return pb.ClaimWriterResponse(writer_epoch=epoch, end_offset=end_offset)

    async def PutConnectorConfig(
        self, request: pb.PutConnectorConfigRequest, context: Context
    ) -> pb.PutConnectorConfigResponse:
        """Write a connector's config."""
        initial_state = None
        if request.HasField("initial_state"):
            initial_state = TARGET_STATES.decode(request.initial_state, "initial_state")
        has_revision = request.HasField("expected_revision")
        answer = await self._submit(
            PutConnectorConfig(
                call_id=uuid.uuid4().hex,
                request_id=request.request_id,
                writer_epoch=request.writer_epoch,
                name=request.name,
                config=decode_config(request.config),
                initial_state=initial_state,
                expected_revision=request.expected_revision if has_revision else None,
            )
        )
        return pb.PutConnectorConfigResponse(revision=answer.revision, end_offset=answer.end_offset)

    async def DeleteConnector(
        self, request: pb.DeleteConnectorRequest, context: Context
    ) -> pb.DeleteConnectorResponse:
        """Remove a connector's config and target state."""
        answer = await self._submit(
            DeleteConnector(
                call_id=uuid.uuid4().hex,
                request_id=request.request_id,
                writer_epoch=request.writer_epoch,
                name=request.name,
            )
        )
        return pb.DeleteConnectorResponse(end_offset=answer.end_offset)

    async def PutTaskConfigs(
        self, request: pb.PutTaskConfigsRequest, context: Context
    ) -> pb.PutTaskConfigsResponse:
        """Write a connector's whole set of task configs."""
        answer = await self._submit(
            PutTaskConfigs(
                call_id=uuid.uuid4().hex,
                request_id=request.request_id,
                writer_epoch=request.writer_epoch,
                connector=request.connector,
                task_configs=[
                    (decode_task_id(entry.task), decode_config(entry.config))
                    for entry in request.task_configs
                ],
            )
        )
        return pb.PutTaskConfigsResponse(end_offset=answer.end_offset)

    async def PutTargetState(
        self, request: pb.PutTargetStateRequest, context: Context
    ) -> pb.PutTargetStateResponse:
        """Write what a connector should be doing."""
        answer = await self._submit(
            PutTargetState(
                call_id=uuid.uuid4().hex,
                request_id=request.request_id,
                name=request.name,
                target_state=TARGET_STATES.decode(request.target_state, "target_state"),
            )
        )
        return pb.PutTargetStateResponse(end_offset=answer.end_offset)

    async def PutRestartRequest(
        self, request: pb.PutRestartRequestRequest, context: Context
    ) -> pb.PutRestartRequestResponse:
        """Ask every worker to restart its share of a connector."""
        answer = await self._submit(
            PutRestartRequest(
                call_id=uuid.uuid4().hex,
                request_id=request.request_id,
                writer_epoch=request.writer_epoch,
                name=request.name,
                only_failed=request.only_failed,
                include_tasks=request.include_tasks,
            )
        )
        return pb.PutRestartRequestResponse(end_offset=answer.end_offset)

    async def PutTaskCount(
        self, request: pb.PutTaskCountRequest, context: Context
    ) -> pb.PutTaskCountResponse:
        """Not built yet."""
        raise NotImplementedYetError("PutTaskCount")

    async def PutSessionKey(
        self, request: pb.PutSessionKeyRequest, context: Context
    ) -> pb.PutSessionKeyResponse:
        """Not built yet."""
        raise NotImplementedYetError("PutSessionKey")

    async def PutLoggerLevel(
        self, request: pb.PutLoggerLevelRequest, context: Context
    ) -> pb.PutLoggerLevelResponse:
        """Not built yet."""
        raise NotImplementedYetError("PutLoggerLevel")

    async def _submit(self, event: ConfigRequest) -> WriteAnswer:
        return cast("WriteAnswer", await self._runtime.submit(event, call_id=event.call_id))

    def _check_loaded(self) -> None:
        if not self._runtime.loaded:
            raise UnavailableError(Reason.LOADING, "the config log is being read; try again")


def encode_changes(
    events: Sequence[ConfigEvent], end_offset: int, created: bool
) -> Iterable[pb.WatchConfigsResponse]:
    """Messages of a watch stream."""
    return encode_watch_responses(events, end_offset, created=created)
