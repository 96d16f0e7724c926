"""The client of the config store: connector and task configs, target states."""

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
    encode_dead_letter_change,
    encode_task_config,
    join_fragments,
)
from drover.model.config import (
    ConfigEvent,
    ConfigMap,
    ConfigSnapshot,
    DeadLettersChanged,
    HistoryEntry,
    TargetState,
)
from drover.model.ids import TaskId, Term


@dataclass(frozen=True, slots=True)
class WriterGrant:
    """A writer's claim: its epoch, and the log's end offset when it was granted."""

    writer_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class ConfigWritten:
    """A durable config: its revision, and the log's end offset after the write."""

    revision: int
    end_offset: int


class ConfigStoreClient:
    """Calls a config store over one channel; see ``drover.client`` for timeouts and retries.

    Writes return the log's end offset after the write. All retries of a write have the same
    ``request_id``, so the store executes it once; by default it is generated here. ``author`` is
    the author of the change for the history; empty if unknown.
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
        """Yield the changes from an offset on, until the stream breaks; ``follow`` resumes it.

        Args:
            start_offset: The ``end_offset`` of the snapshot or of the last read.
            log_id: The log id of the snapshot; not checked if empty.

        Raises:
            OutOfRangeError: REVISION_COMPACTED, the history starts after the offset, or the store
                has another log.
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
        """The log's end offset."""
        response = await unary(
            self._stub.GetEndOffset, pb.GetEndOffsetRequest(), timeout_s=timeout_s, retry=True
        )
        return response.end_offset

    async def connector_history(
        self, name: str, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> list[HistoryEntry]:
        """The history of a connector, oldest first: its last configs and removals, and its last
        target states and restarts. Empty for an unknown connector; secrets are not masked.
        """

        async def fetch(token: str) -> pb.GetConnectorHistoryResponse:
            request = pb.GetConnectorHistoryRequest(name=name, page_token=token)
            return await unary(
                self._stub.GetConnectorHistory, request, timeout_s=timeout_s, retry=True
            )

        decoded = [
            decode_history_entry(entry) async for page in pages(fetch) for entry in page.entries
        ]
        return [entry for entry in decoded if entry is not None]

    async def claim_writer(
        self, *, owner: str, term: Term, timeout_s: float = CALL_TIMEOUT_S
    ) -> WriterGrant:
        """Claim the log as its only privileged writer."""
        request = pb.ClaimWriterRequest(owner=owner, term=encode_term(term))
        response = await unary(self._stub.ClaimWriter, request, timeout_s=timeout_s, retry=True)
        return WriterGrant(response.writer_epoch, response.end_offset)

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
        """Write a connector's config; ``expected_revision`` 0 means that it must not exist yet."""
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
        """Write the complete set of task configs of a connector; task i gets the config at index i.

        A large set is sent in several messages; the store writes all of it or nothing.

        Raises:
            AbortedError: PART_MISSING, the store lost parts of the set at every attempt.
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
        """Write a connector's target state; needs no writer epoch."""
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
        """Write a restart request, which every worker executes for its own tasks."""
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
        """Write the number of tasks with transactional ids, after the earlier ones are fenced."""
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

    async def put_dead_letter_states(
        self,
        change: DeadLettersChanged,
        states_json: str,
        *,
        expected_revision: int,
        author: str = "",
        request_id: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> int:
        """Write the states of a connector's dead letters; needs no writer epoch.

        Raises:
            AbortedError: REVISION_MISMATCH.
            NotFoundError: CONNECTOR_NOT_FOUND.
        """
        request = pb.PutDeadLetterStatesRequest(
            change=encode_dead_letter_change(change),
            states_json=states_json,
            expected_revision=expected_revision,
            request_id=request_id or new_request_id(),
            author=author,
        )
        call = self._stub.PutDeadLetterStates
        return (await unary(call, request, timeout_s=timeout_s, retry=True)).end_offset

    async def get_dead_letter_states(
        self, name: str, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> tuple[str, int]:
        """The states of a connector's dead letters and their revision; empty and 0 for none."""
        request = pb.GetDeadLetterStatesRequest(name=name)
        call = self._stub.GetDeadLetterStates
        response = await unary(call, request, timeout_s=timeout_s, retry=True)
        return response.states_json, response.revision

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
