"""The config store: what should run."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import grpc.aio

from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.api.config_store.v1 import config_store_service_pb2_grpc as pb_grpc
from drover.client.calls import CALL_TIMEOUT_S, new_request_id, server_stream, snapshot, unary
from drover.client.watch import EventsRead
from drover.codec.common import encode_term
from drover.codec.config_store import (
    TARGET_STATES,
    decode_event,
    decode_snapshot,
    encode_task_config,
    join_fragments,
)
from drover.model.config import ConfigEvent, ConfigMap, ConfigSnapshot, TargetState
from drover.model.ids import TaskId, Term


@dataclass(frozen=True, slots=True)
class WriterClaim:
    """The right to write: its epoch, and the log's end when it was granted."""

    writer_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class ConfigWritten:
    """A durable config: its revision, and the log's end after the write."""

    revision: int
    end_offset: int


class ConfigStoreClient:
    """Calls a config store over one channel; see ``drover.client`` for what all calls share.

    Writes return the log's end after them. A write's ``request_id`` is made here unless given, and
    stays the same over retries, so that each write happens once.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = pb_grpc.ConfigStoreServiceStub(channel)

    async def get_snapshot(self, *, timeout_s: float = CALL_TIMEOUT_S) -> ConfigSnapshot:
        """The whole state."""
        return decode_snapshot(
            await snapshot(self._stub.GetSnapshot, pb.GetSnapshotRequest(), timeout_s=timeout_s)
        )

    async def watch(self, start_offset: int) -> AsyncGenerator[EventsRead[ConfigEvent], None]:
        """The changes from an offset on, until the stream breaks; ``follow`` resumes it.

        Raises:
            OutOfRangeError: REVISION_COMPACTED, the history does not reach back that far.
        """
        request = pb.WatchConfigsRequest(start_offset=start_offset)
        pending: list[pb.ConfigEvent] = []
        async with aclosing(server_stream(self._stub.WatchConfigs, request)) as messages:
            async for message in messages:
                pending = join_fragments(pending, message)
                if not message.fragment:
                    events = [event for event in map(decode_event, pending) if event is not None]
                    pending = []
                    yield EventsRead(events, message.end_offset)

    async def get_end_offset(self, *, timeout_s: float = CALL_TIMEOUT_S) -> int:
        """The log's end."""
        response = await unary(
            self._stub.GetEndOffset, pb.GetEndOffsetRequest(), timeout_s=timeout_s, retry=True
        )
        return response.end_offset

    async def claim_writer(
        self, *, owner: str, term: Term, timeout_s: float = CALL_TIMEOUT_S
    ) -> WriterClaim:
        """Become the one privileged writer."""
        request = pb.ClaimWriterRequest(owner=owner, term=encode_term(term))
        response = await unary(self._stub.ClaimWriter, request, timeout_s=timeout_s, retry=True)
        return WriterClaim(response.writer_epoch, response.end_offset)

    async def put_connector_config(
        self,
        *,
        name: str,
        config: ConfigMap,
        writer_epoch: int,
        initial_state: TargetState | None = None,
        expected_revision: int | None = None,
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> ConfigWritten:
        """Write a connector's whole config; ``expected_revision`` 0 is "must not exist"."""
        request = pb.PutConnectorConfigRequest(
            name=name,
            config=config,
            initial_state=None if initial_state is None else TARGET_STATES.encode(initial_state),
            writer_epoch=writer_epoch,
            request_id=request_id or new_request_id(),
            expected_revision=expected_revision,
        )
        response = await unary(
            self._stub.PutConnectorConfig, request, timeout_s=timeout_s, retry=True
        )
        return ConfigWritten(response.revision, response.end_offset)

    async def delete_connector(
        self,
        *,
        name: str,
        writer_epoch: int,
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> int:
        """Remove a connector's config and target state."""
        request = pb.DeleteConnectorRequest(
            name=name, writer_epoch=writer_epoch, request_id=request_id or new_request_id()
        )
        response = await unary(self._stub.DeleteConnector, request, timeout_s=timeout_s, retry=True)
        return response.end_offset

    async def put_task_configs(
        self,
        *,
        connector: str,
        task_configs: Sequence[ConfigMap],
        writer_epoch: int,
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> int:
        """Write a connector's whole set of task configs; task i gets the config at index i."""
        request = pb.PutTaskConfigsRequest(
            connector=connector,
            task_configs=[
                encode_task_config(TaskId(connector, index), config)
                for index, config in enumerate(task_configs)
            ],
            writer_epoch=writer_epoch,
            request_id=request_id or new_request_id(),
        )
        response = await unary(self._stub.PutTaskConfigs, request, timeout_s=timeout_s, retry=True)
        return response.end_offset

    async def put_target_state(
        self,
        *,
        name: str,
        target_state: TargetState,
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> int:
        """Write what a connector should be doing; needs no writer epoch."""
        request = pb.PutTargetStateRequest(
            name=name,
            target_state=TARGET_STATES.encode(target_state),
            request_id=request_id or new_request_id(),
        )
        response = await unary(self._stub.PutTargetState, request, timeout_s=timeout_s, retry=True)
        return response.end_offset

    async def put_restart_request(
        self,
        *,
        name: str,
        only_failed: bool,
        include_tasks: bool,
        writer_epoch: int,
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> int:
        """Write a restart request that every worker acts on."""
        request = pb.PutRestartRequestRequest(
            name=name,
            only_failed=only_failed,
            include_tasks=include_tasks,
            writer_epoch=writer_epoch,
            request_id=request_id or new_request_id(),
        )
        response = await unary(
            self._stub.PutRestartRequest, request, timeout_s=timeout_s, retry=True
        )
        return response.end_offset
