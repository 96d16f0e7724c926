"""The gRPC shell of the config store: decode, submit, encode."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Protocol, TypedDict, cast

import grpc.aio

from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.api.config_store.v1 import config_store_service_pb2_grpc as pb_grpc
from drover.clock import Clock
from drover.codec.common import decode_config, decode_task_id, decode_term, invalid_field
from drover.codec.config_store import (
    TARGET_STATES,
    decode_dead_letter_change,
    encode_history_entry,
    encode_snapshot,
    encode_watch_responses,
)
from drover.errors import InvalidArgumentError, Violation
from drover.log.log import Log, LogRecord
from drover.metrics import table
from drover.metrics.metric import Sample
from drover.model.config import ConfigEvent, ConfigSnapshot
from drover.model.pages import PAGE_BYTES_MAX
from drover.rpc.change_feed import ChangeFeed
from drover.rpc.log_service import skipping_unreadable
from drover.rpc.log_servicer import StoreServicer
from drover.rpc.multipart import PartsInProgress
from drover.rpc.server import RpcServer
from drover.runtime.change_buffer import ChangeBuffer
from drover.runtime.runtime import Runtime
from drover_config_store.core import records
from drover_config_store.core.connector_history import VERSIONS_MAX_DEFAULT
from drover_config_store.core.events import (
    ConfigRequest,
    DeleteConnector,
    PutConnectorConfig,
    PutDeadLetterStates,
    PutLoggerLevel,
    PutRestartRequest,
    PutSessionKey,
    PutTargetState,
    PutTaskConfigs,
    PutTaskCount,
    WriteAnswer,
)
from drover_config_store.core.machine import ConfigMachine
from drover_config_store.core.records import ConfigRecord

SERVICE = "config-store"
FULL_NAME = pb.DESCRIPTOR.services_by_name["ConfigStoreService"].full_name

Context = grpc.aio.ServicerContext[Any, Any]


def wire(
    log: Log, clock: Clock, server: RpcServer, *, versions_max: int = VERSIONS_MAX_DEFAULT
) -> Runtime[ConfigRecord]:
    """Create the machine, its runtime and its servicer; add the servicer to ``server``.

    ``versions_max`` limits the configs in each connector's history.
    """
    machine = ConfigMachine(ChangeBuffer.of(log), versions_max=versions_max)
    runtime = Runtime(
        machine, log, encode=encode_record, decode=decode_record, clock=clock, name=SERVICE
    )
    servicer = ConfigStoreServicer(machine, runtime, log, PartsInProgress(clock))
    server.add(pb_grpc.add_ConfigStoreServiceServicer_to_server, servicer, FULL_NAME)

    def samples() -> Iterator[Sample]:
        targets, task_count = machine.counts()
        for state, count in targets.items():
            yield table.CONNECTORS.at(count, state)
        yield table.TASKS.at(task_count)

    server.metrics.add(samples)
    return runtime


def encode_record(record: ConfigRecord) -> LogRecord:
    """Encode a record for the log."""
    return LogRecord(*records.encode(record))


decode_record = skipping_unreadable(records.decode, records.IGNORED, SERVICE)


class ConfigStoreServicer(
    StoreServicer[ConfigSnapshot, ConfigEvent, pb.WatchConfigsResponse],
    pb_grpc.ConfigStoreServiceServicer,
):
    """Serves the config store's API.

    Args:
        machine: Serves snapshots and watches; changes only through ``runtime``.
        runtime: Runs the machine.
        log: The log on which ``ClaimWriter`` claims the writer epoch.
        parts: The received parts of incomplete sets of task configs.
        feed: Serves the watch streams; created here by default.
    """

    def __init__(
        self,
        machine: ConfigMachine,
        runtime: Runtime[ConfigRecord],
        log: Log,
        parts: PartsInProgress[pb.TaskConfigEntry],
        feed: ChangeFeed[ConfigEvent, pb.WatchConfigsResponse] | None = None,
    ) -> None:
        super().__init__(machine, runtime, encode_watch_responses, feed)
        self._machine = machine
        self._log = log
        self._parts = parts

    async def GetSnapshot(
        self, request: pb.GetSnapshotRequest, context: Context
    ) -> AsyncGenerator[pb.GetSnapshotResponse, None]:
        """Stream the whole state, in chunks."""
        for chunk in encode_snapshot(self.snapshot()):
            yield chunk

    async def WatchConfigs(
        self, request: pb.WatchConfigsRequest, context: Context
    ) -> AsyncGenerator[pb.WatchConfigsResponse, None]:
        """Stream the changes from an offset on."""
        async with aclosing(self.watch(request)) as messages:
            async for message in messages:
                yield message

    async def GetEndOffset(
        self, request: pb.GetEndOffsetRequest, context: Context
    ) -> pb.GetEndOffsetResponse:
        """Return the log's end offset, after every write acknowledged before."""
        self.runtime.check_loaded()
        return pb.GetEndOffsetResponse(end_offset=await self.runtime.catch_up())

    async def ClaimWriter(
        self, request: pb.ClaimWriterRequest, context: Context
    ) -> pb.ClaimWriterResponse:
        """Make the caller the privileged writer and fence the previous one."""
        self.runtime.check_loaded()
        term = decode_term(request.term)
        violations = []
        if not request.owner:
            violations.append(Violation("owner", "must be set"))
        if not request.HasField("term") or term.generation < 0 or term.sequence < 0:
            violations.append(Violation("term", "must be set and not negative"))
        if violations:
            raise InvalidArgumentError.listing(violations)
        epoch = await self._log.claim(request.owner, term)
        # the fenced leader's last write may be durable but not applied yet
        end_offset = await self.runtime.catch_up()
        return pb.ClaimWriterResponse(writer_epoch=epoch, end_offset=end_offset)

    async def PutConnectorConfig(
        self, request: pb.PutConnectorConfigRequest, context: Context
    ) -> pb.PutConnectorConfigResponse:
        """Write a connector's config."""
        initial_state = None
        if request.HasField("initial_state"):
            initial_state = TARGET_STATES.decode(request.initial_state, "initial_state")
        has_revision = request.HasField("expected_revision")
        answer = await self._write(
            PutConnectorConfig(
                **self._privileged(request),
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
        write = DeleteConnector(**self._privileged(request), name=request.name)
        return pb.DeleteConnectorResponse(end_offset=(await self._write(write)).end_offset)

    async def PutTaskConfigs(
        self, request: pb.PutTaskConfigsRequest, context: Context
    ) -> pb.PutTaskConfigsResponse:
        """Collect the parts of a connector's set of task configs; write it with the last part."""
        self.runtime.check_loaded()
        entries = self._parts.add(request)
        if entries is None:
            return pb.PutTaskConfigsResponse()
        write = PutTaskConfigs(
            **self._privileged(request),
            connector=request.connector,
            task_configs=[
                (decode_task_id(entry.task), decode_config(entry.config)) for entry in entries
            ],
        )
        return pb.PutTaskConfigsResponse(end_offset=(await self._write(write)).end_offset)

    async def PutTargetState(
        self, request: pb.PutTargetStateRequest, context: Context
    ) -> pb.PutTargetStateResponse:
        """Write a connector's target state."""
        state = TARGET_STATES.decode(request.target_state, "target_state")
        write = PutTargetState(**self._open(request), name=request.name, target_state=state)
        return pb.PutTargetStateResponse(end_offset=(await self._write(write)).end_offset)

    async def PutRestartRequest(
        self, request: pb.PutRestartRequestRequest, context: Context
    ) -> pb.PutRestartRequestResponse:
        """Write a restart request, which every worker with a part of the connector carries out."""
        write = PutRestartRequest(
            **self._privileged(request),
            name=request.name,
            only_failed=request.only_failed,
            include_tasks=request.include_tasks,
        )
        return pb.PutRestartRequestResponse(end_offset=(await self._write(write)).end_offset)

    async def PutTaskCount(
        self, request: pb.PutTaskCountRequest, context: Context
    ) -> pb.PutTaskCountResponse:
        """Record how many tasks may hold transactional ids."""
        write = PutTaskCount(
            **self._privileged(request), name=request.name, task_count=request.task_count
        )
        return pb.PutTaskCountResponse(end_offset=(await self._write(write)).end_offset)

    async def PutSessionKey(
        self, request: pb.PutSessionKeyRequest, context: Context
    ) -> pb.PutSessionKeyResponse:
        """Write the key that signs calls between workers."""
        write = PutSessionKey(
            **self._privileged(request), key=request.key, algorithm=request.algorithm
        )
        return pb.PutSessionKeyResponse(end_offset=(await self._write(write)).end_offset)

    async def PutLoggerLevel(
        self, request: pb.PutLoggerLevelRequest, context: Context
    ) -> pb.PutLoggerLevelResponse:
        """Set a logger's level on every worker."""
        write = PutLoggerLevel(**self._open(request), logger=request.logger, level=request.level)
        return pb.PutLoggerLevelResponse(end_offset=(await self._write(write)).end_offset)

    async def PutDeadLetterStates(
        self, request: pb.PutDeadLetterStatesRequest, context: Context
    ) -> pb.PutDeadLetterStatesResponse:
        """Write the states of a connector's dead letters."""
        change = decode_dead_letter_change(request.change)
        write = PutDeadLetterStates(
            **self._open(request),
            name=change.name,
            states_json=request.states_json,
            change=change,
            expected_revision=request.expected_revision,
        )
        return pb.PutDeadLetterStatesResponse(end_offset=(await self._write(write)).end_offset)

    async def GetDeadLetterStates(
        self, request: pb.GetDeadLetterStatesRequest, context: Context
    ) -> pb.GetDeadLetterStatesResponse:
        """Return the states of a connector's dead letters, after every earlier write."""
        self.runtime.check_loaded()
        await self.runtime.catch_up()
        states_json, revision = self._machine.dead_letter_states(request.name)
        return pb.GetDeadLetterStatesResponse(states_json=states_json, revision=revision)

    async def GetConnectorHistory(
        self, request: pb.GetConnectorHistoryRequest, context: Context
    ) -> pb.GetConnectorHistoryResponse:
        """Return a page of a connector's history; its token is the offset of its last entry."""
        self.runtime.check_loaded()
        token = request.page_token
        if token and not (token.isascii() and token.isdigit() and len(token) < 20):
            raise invalid_field("page_token", "must be empty or a next_page_token")
        page = pb.GetConnectorHistoryResponse()
        size_bytes = 0
        for entry in self._machine.connector_history(request.name):
            if token and entry.offset <= int(token):
                continue
            message = encode_history_entry(entry)
            size_bytes += message.ByteSize() + 8
            if page.entries and size_bytes > PAGE_BYTES_MAX:
                page.next_page_token = str(page.entries[-1].offset)
                break
            page.entries.append(message)
        return page

    async def _write(self, write: ConfigRequest) -> WriteAnswer:
        return cast("WriteAnswer", await self.submit(write))

    def _open(self, request: "_WriteRequest") -> "_OpenFields":
        """The fields of a write that any worker may make."""
        return {
            "call_id": self.next_call_id(),
            "request_id": request.request_id,
            "author": request.author,
        }

    def _privileged(self, request: "_PrivilegedRequest") -> "_PrivilegedFields":
        """The fields of a write that only the leader may make."""
        return {**self._open(request), "writer_epoch": request.writer_epoch}


class _WriteRequest(Protocol):
    @property
    def request_id(self) -> str: ...
    @property
    def author(self) -> str: ...


class _PrivilegedRequest(_WriteRequest, Protocol):
    @property
    def writer_epoch(self) -> int: ...


class _OpenFields(TypedDict):
    """The fields of ``Write``."""

    call_id: str
    request_id: str
    author: str


class _PrivilegedFields(_OpenFields):
    """The fields of ``PrivilegedWrite``."""

    writer_epoch: int
