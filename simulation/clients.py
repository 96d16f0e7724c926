"""Clients of the simulated services, with the methods of ``drover.client`` that a worker uses."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from drover.client.config_store import ConfigWritten, WriterGrant
from drover.client.watch import EventsRead
from drover.errors import InvalidArgumentError
from drover.model.config import ConfigSnapshot, TargetState
from drover.model.group import (
    Joined,
    JoinOutcome,
    LeavingMember,
    MemberAssignment,
    OfferedProtocol,
    Synced,
    SyncOutcome,
    WatchedGroup,
)
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitResult, CommittedOffset, TaskOffsets
from drover.model.status import StatusSnapshot, StatusWrite
from drover_config_store.core.events import (
    DeleteConnector,
    PutConnectorConfig,
    PutRestartRequest,
    PutSessionKey,
    PutTargetState,
    PutTaskConfigs,
    WriteAnswer,
)
from drover_coordinator.core.groups.events import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from drover_status_store.core.events import PutStatuses
from drover_worker.core import requests
from drover_worker.core.rebalance.protocol import decode_assignment
from simulation.coordinator import ClaimTask, CommitOffsets, FetchOffsets, WatchGroup
from simulation.network import Call, Stream
from simulation.stores import Changes, ClaimWriter, GetEndOffset, GetSnapshot, Watch
from simulation.waits import asked, messages
from simulation.world import BrokenRuleError

if TYPE_CHECKING:
    from simulation.worker import Worker

#: For calls without a timeout: shorter than in production, so that faults fit into a seed.
CALL_TIMEOUT_S = 4.0
CONFIG_STORE, STATUS_STORE = "config-store", "status-store"


class Coordinators:
    """A worker's client of the coordinators; as ``drover.client.coordinator``."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker

    async def join(
        self,
        *,
        group_id: str,
        member_id: str,
        client_id: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str,
        protocols: Sequence[OfferedProtocol],
        reason: str,
        timeout_s: float,
    ) -> JoinOutcome:
        """Join the group."""
        event = JoinGroup(
            call_id="",
            group_id=group_id,
            member_id=member_id,
            new_member_id="",
            client_id=client_id,
            client_host=client_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=tuple(protocols),
            parked_until_ms=0,
        )
        outcome: JoinOutcome = await self._worker.routing.ask(
            event, timeout_s=timeout_s, retry=bool(member_id)
        )
        if isinstance(outcome, Joined):
            rules = self._worker.rules
            rules.generation_seen(self._worker, "join", group_id, outcome.generation)
        return outcome

    async def sync(
        self,
        *,
        group_id: str,
        member_id: str,
        generation: int,
        protocol_type: str,
        protocol_name: str,
        assignments: Sequence[MemberAssignment],
        timeout_s: float,
    ) -> SyncOutcome:
        """Get the assignment."""
        event = SyncGroup(
            call_id="",
            group_id=group_id,
            member_id=member_id,
            generation=generation,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple(assignments),
        )
        outcome: SyncOutcome = await self._worker.routing.ask(event, timeout_s=timeout_s)
        if isinstance(outcome, Synced):
            with suppress(InvalidArgumentError):
                assigned = decode_assignment(outcome.assignment)
                self._worker.assigned_offsets[generation] = assigned.config_offset
        return outcome

    async def heartbeat(
        self, *, group_id: str, member_id: str, generation: int, timeout_s: float
    ) -> bool:
        """Send a heartbeat."""
        beat = Heartbeat("", group_id, member_id, generation)
        rejoin: bool = await self._worker.routing.ask(beat, timeout_s=timeout_s)
        return rejoin

    async def leave(
        self, *, group_id: str, members: Sequence[LeavingMember], timeout_s: float
    ) -> None:
        """Leave the group."""
        await self._worker.routing.ask(
            LeaveGroup("", group_id, tuple(members)), timeout_s=timeout_s
        )

    async def watch_group(
        self, *, group_id: str, member_id: str
    ) -> AsyncGenerator[WatchedGroup, None]:
        """Watch the group."""
        worker = self._worker
        changes = worker.routing.stream(WatchGroup(group_id, member_id))
        async with aclosing(changes):
            async for change in changes:
                worker.rules.generation_seen(worker, "watch", group_id, change.generation)
                yield change

    async def claim_task(
        self,
        *,
        group_id: str,
        member_id: str,
        generation: int,
        task: TaskId,
        task_config_generation: int,
        request_id: str,
    ) -> Term:
        """Claim a task."""
        worker = self._worker
        offset = worker.herder.context.view.offset
        assigned_offset = worker.assigned_offsets.get(generation, 0)
        if offset < assigned_offset:
            raise BrokenRuleError(
                "no work before the config log is read as far as the leader had",
                f"{worker.name} starts {task} at offset {offset}, assigned at {assigned_offset}",
                worker.name,
                task,
            )
        request = ClaimTask(
            group_id, member_id, generation, task, task_config_generation, request_id
        )
        claim: Term = await worker.routing.ask(request, timeout_s=CALL_TIMEOUT_S)
        return claim

    async def commit_offsets(
        self, *, group_id: str, tasks: Sequence[TaskOffsets], timeout_s: float
    ) -> Sequence[CommitResult]:
        """Commit offsets of tasks."""
        timeout_s = min(timeout_s, CALL_TIMEOUT_S)
        results: Sequence[CommitResult] = await self._worker.routing.ask(
            CommitOffsets(group_id, tasks), timeout_s=timeout_s
        )
        return results

    async def fetch_offsets(
        self, *, group_id: str, connector: str, **how: object
    ) -> list[CommittedOffset]:
        """A connector's offsets."""
        found: list[CommittedOffset] = await self._worker.routing.ask(
            FetchOffsets(group_id, connector), timeout_s=CALL_TIMEOUT_S
        )
        return found


class _StoreClient:
    """The common part of the clients of both stores."""

    server = ""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker

    async def _ask(self, request: object, timeout_s: float = CALL_TIMEOUT_S) -> Any:
        worker, timeout_ms = self._worker, int(timeout_s * 1000)
        return await asked(
            lambda heard: Call(
                worker.network,
                worker,
                self.server,
                request,
                heard,
                timeout_ms=timeout_ms,
                retry=True,
            )
        )

    async def watch(
        self, start_offset: int, log_id: str = ""
    ) -> AsyncGenerator[EventsRead[Any], None]:
        """The changes from an offset on."""
        worker = self._worker
        changes = messages(
            lambda heard, ended: Stream(
                worker.network, worker, self.server, Watch(start_offset), heard, ended
            )
        )
        async with aclosing(changes):
            async for message in changes:
                assert isinstance(message, Changes)
                yield EventsRead(message.events, message.end_offset)


class ConfigStoreClient(_StoreClient):
    """A worker's client of the config store; as ``drover.client.config_store``."""

    server = CONFIG_STORE

    async def get_snapshot(self) -> ConfigSnapshot:
        """The whole state."""
        snapshot: ConfigSnapshot = await self._ask(GetSnapshot())
        return snapshot

    async def get_end_offset(self, *, timeout_s: float) -> int:
        """The log's end."""
        end_offset: int = await self._ask(GetEndOffset(), timeout_s)
        return end_offset

    async def claim_writer(self, *, owner: str, term: Term) -> WriterGrant:
        """Claim the log."""
        return WriterGrant(*await self._ask(ClaimWriter(owner, term)))

    async def put_connector_config(self, *, author: str, **fields: Any) -> ConfigWritten:
        """Write a connector's config."""
        answer = await self._write(PutConnectorConfig(call_id="", **fields))
        return ConfigWritten(answer.revision, answer.end_offset)

    async def delete_connector(self, *, author: str, **fields: Any) -> int:
        """Remove a connector."""
        return (await self._write(DeleteConnector(call_id="", **fields))).end_offset

    async def put_task_configs(
        self,
        *,
        connector: str,
        task_configs: Sequence[Mapping[str, str]],
        writer_epoch: int,
        request_id: str,
    ) -> int:
        """Write a set of task configs."""
        event = PutTaskConfigs(
            call_id="",
            request_id=request_id,
            writer_epoch=writer_epoch,
            connector=connector,
            task_configs=tuple(
                (TaskId(connector, index), config) for index, config in enumerate(task_configs)
            ),
        )
        return (await self._write(event)).end_offset

    async def put_target_state(
        self, *, name: str, target_state: TargetState, author: str, request_id: str
    ) -> int:
        """Write a target state."""
        event = PutTargetState(
            call_id="", request_id=request_id, name=name, target_state=target_state
        )
        return (await self._write(event)).end_offset

    async def put_restart_request(self, *, author: str, **fields: Any) -> int:
        """Write a request to restart."""
        return (await self._write(PutRestartRequest(call_id="", **fields))).end_offset

    async def put_session_key(self, **fields: Any) -> int:
        """Write the key that signs calls."""
        return (await self._write(PutSessionKey(call_id="", **fields))).end_offset

    async def _write(self, event: object) -> WriteAnswer:
        answer: WriteAnswer = await self._ask(event)
        return answer


class StatusStoreClient(_StoreClient):
    """A worker's client of the status store; as ``drover.client.status_store``."""

    server = STATUS_STORE

    async def get_snapshot(self) -> StatusSnapshot:
        """The whole state."""
        snapshot: StatusSnapshot = await self._ask(GetSnapshot())
        return snapshot

    async def put_statuses(
        self, writes: Sequence[StatusWrite], *, writer: str, number: int, timeout_s: float
    ) -> None:
        """Write statuses."""
        event = PutStatuses(call_id="", writes=tuple(writes), writer=writer, number=number)
        await self._ask(event, min(timeout_s, CALL_TIMEOUT_S / 2))


class OtherWorkers:
    """A worker's clients of the other workers; as ``drover_worker.adapters.worker_channels``."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker

    def get(self, address: str) -> "OtherWorker":
        """The client of one."""
        return OtherWorker(self._worker, address)


class OtherWorker:
    """A client of another worker."""

    def __init__(self, worker: "Worker", address: str) -> None:
        self._worker = worker
        self._address = address

    async def submit_task_configs(
        self, *, connector: str, task_configs: Sequence[Mapping[str, str]], request_id: str
    ) -> None:
        """Send the leader task configs to write."""
        request = requests.SubmitTaskConfigs(connector, task_configs, request_id)
        await self._worker.call_worker(self._address, request, timeout_s=CALL_TIMEOUT_S, retry=True)
