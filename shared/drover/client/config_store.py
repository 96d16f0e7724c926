"""The config store: what should run."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import grpc.aio

from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.api.config_store.v1 import config_store_service_pb2_grpc as pb_grpc
from drover.client.calls import (
    CALL_TIMEOUT_S,
    new_request_id,
    pages,
    server_stream,
    snapshot,
    unary,
)
from drover.client.multipart import put_parts
from drover.client.watch import EventsRead
from drover.codec.common import encode_term
from drover.codec.config_store import (
    TARGET_STATES,
    decode_event,
    decode_history_entry,
    decode_snapshot,
    encode_task_config,
    join_fragments,
)
from drover.model.config import (
    ConfigEvent,
    ConfigMap,
    ConfigSnapshot,
    HistoryEntry,
    TargetState,
)
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
    stays the same over retries, so that each write happens once. ``author`` is who asked for it,
    for the history; empty if unknown.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = pb_grpc.ConfigStoreServiceStub(channel)

    async def get_snapshot(self, *, timeout_s: float = CALL_TIMEOUT_S) -> ConfigSnapshot:
        """The whole state."""
        return decode_snapshot(
            await snapshot(self._stub.GetSnapshot, pb.GetSnapshotRequest(), timeout_s=timeout_s)
        )

    async def watch(
        self, start_offset: int, log_id: str = ""
    ) -> AsyncGenerator[EventsRead[ConfigEvent], None]:
        """The changes from an offset on, until the stream breaks; ``follow`` resumes it.

        Args:
            start_offset: A snapshot's ``end_offset``, or that of the last read.
            log_id: The snapshot's; not checked if empty.

        Raises:
            OutOfRangeError: REVISION_COMPACTED, the history does not reach back that far, or the
                store that is asked now counts in another sequence.
        """
        request = pb.WatchConfigsRequest(start_offset=start_offset, log_id=log_id)
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

    async def connector_history(
        self, name: str, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> list[HistoryEntry]:
        """What was written about a connector, oldest first: its last configs and removals, and as
        many target states and restarts; empty when nothing is known of it. Nothing is masked.
        """

        async def fetch(token: str) -> pb.GetConnectorHistoryResponse:
            request = pb.GetConnectorHistoryRequest(name=name, page_token=token)
            return await unary(
                self._stub.GetConnectorHistory, request, timeout_s=timeout_s, retry=True
            )

        found = [
            decode_history_entry(entry) async for page in pages(fetch) for entry in page.entries
        ]
        return [entry for entry in found if entry is not None]

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
        author: str = "",
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
            author=author,
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
        author: str = "",
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> int:
        """Remove a connector's config and target state."""
        request = pb.DeleteConnectorRequest(
            name=name,
            writer_epoch=writer_epoch,
            request_id=request_id or new_request_id(),
            author=author,
        )
        response = await unary(self._stub.DeleteConnector, request, timeout_s=timeout_s, retry=True)
        return response.end_offset

    async def put_task_configs(
        self,
        *,
        connector: str,
        task_configs: Sequence[ConfigMap],
        writer_epoch: int,
        author: str = "",
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> int:
        """Write a connector's whole set of task configs; task i gets the config at index i.

        A large set goes in several messages, and is there as a whole or not at all.

        Raises:
            AbortedError: PART_MISSING, the store lost what was sent again and again.
        """
        entries = [
            encode_task_config(TaskId(connector, index), config)
            for index, config in enumerate(task_configs)
        ]
        request_id = request_id or new_request_id()
        response = await put_parts(
            self._stub.PutTaskConfigs,
            entries,
            lambda part: pb.PutTaskConfigsRequest(
                connector=connector,
                task_configs=part,
                writer_epoch=writer_epoch,
                request_id=request_id,
                author=author,
            ),
            timeout_s=timeout_s,
        )
        return response.end_offset

    async def put_target_state(
        self,
        *,
        name: str,
        target_state: TargetState,
        author: str = "",
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> int:
        """Write what a connector should be doing; needs no writer epoch."""
        request = pb.PutTargetStateRequest(
            name=name,
            target_state=TARGET_STATES.encode(target_state),
            request_id=request_id or new_request_id(),
            author=author,
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
        author: str = "",
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
            author=author,
        )
        response = await unary(
            self._stub.PutRestartRequest, request, timeout_s=timeout_s, retry=True
        )
        return response.end_offset

    async def put_task_count(
        self,
        *,
        name: str,
        task_count: int,
        writer_epoch: int,
        author: str = "",
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> int:
        """Record how many tasks may hold transactional ids, once the earlier ones were fenced."""
        request = pb.PutTaskCountRequest(
            name=name,
            task_count=task_count,
            writer_epoch=writer_epoch,
            request_id=request_id or new_request_id(),
            author=author,
        )
        response = await unary(self._stub.PutTaskCount, request, timeout_s=timeout_s, retry=True)
        return response.end_offset

    async def put_session_key(
        self,
        *,
        key: bytes,
        algorithm: str,
        writer_epoch: int,
        author: str = "",
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> int:
        """Write the key that signs calls between workers."""
        request = pb.PutSessionKeyRequest(
            key=key,
            algorithm=algorithm,
            writer_epoch=writer_epoch,
            request_id=request_id or new_request_id(),
            author=author,
        )
        response = await unary(self._stub.PutSessionKey, request, timeout_s=timeout_s, retry=True)
        return response.end_offset

    async def put_logger_level(
        self,
        *,
        logger: str,
        level: str,
        author: str = "",
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> int:
        """Set a logger's level on every worker; needs no writer epoch."""
        request = pb.PutLoggerLevelRequest(
            logger=logger,
            level=level,
            request_id=request_id or new_request_id(),
            author=author,
        )
        response = await unary(self._stub.PutLoggerLevel, request, timeout_s=timeout_s, retry=True)
        return response.end_offset
