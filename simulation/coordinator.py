"""The simulated coordinator: the real group machine, and the claims and offsets of ``data.db``."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from drover.errors import DroverError, UnavailableError
from drover.model.claims import ClaimRequest, TaskSet
from drover.model.group import GroupDescription, WatchedGroup
from drover.model.ids import TaskId
from drover.model.offsets import TaskOffsets
from drover.runtime.runtime import Runtime
from drover_coordinator.core.groups.events import (
    CallAbandoned,
    CheckMember,
    CommitGroupOffsets,
    DeleteGroup,
    DescribeGroup,
    FetchGroupOffsets,
    GroupChanged,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MemberRemoved,
    MemberStreamBroken,
    SyncGroup,
    WatchEnded,
    WatchOpened,
    WatchStarted,
    member_channel,
    watch_channel,
)
from drover_coordinator.core.groups.failures import fenced_instance, unknown_member
from drover_coordinator.core.groups.machine import GroupsMachine
from drover_coordinator.core.groups.records import LogValue
from drover_coordinator.core.groups.settings import GroupSettings
from drover_coordinator.core.ownership.lease_table import Identity
from drover_coordinator.core.ownership.machine import Ownership, OwnershipSettings
from drover_coordinator.sharding.leases import LeaseClient
from drover_coordinator.sharding.shard_manager import ShardManager
from drover_coordinator.sharding.shards import Shard, Shards, SingleOwner
from simulation.data_store import DataStore
from simulation.disk import Disk
from simulation.network import Heard, Network, ServerCall, Stream
from simulation.process import Process
from simulation.rules import Rules
from simulation.service import WATCH_QUEUE_MAX, DiskLog, ProcessClock, Served
from simulation.shard_manager import (
    CheckedOwnership,
    FindCoordinator,
    SimulatedLeases,
    open_log,
)
from simulation.world import Action, BrokenRuleError
from tests.support.lease_table import MemoryLeaseTable

#: The coordinator answers a parked join this long before its caller's deadline.
JOIN_MARGIN_MS = 100
LEASE_MS = 1_500
VALIDATE_EVERY = 4
OPEN_AGAIN_S = 0.2

GroupRuntime = Served[GroupsMachine]


@dataclass(frozen=True, slots=True)
class ClaimTask:
    """Response: the claim's term."""

    group_id: str
    member_id: str
    generation: int
    task: TaskId
    task_config_generation: int
    request_id: str


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Response: a CommitResult per task."""

    group_id: str
    tasks: Sequence[TaskOffsets]


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Response: a connector's offsets."""

    group_id: str
    connector: str


@dataclass(frozen=True, slots=True)
class WatchGroup:
    """A stream of WatchedGroup."""

    group_id: str
    member_id: str


class Coordinator(Process):
    """The process of a coordinator.

    Args:
        network: Carries its calls.
        rules: Sees its responses and its durable records.
        disks: The logs of all shards.
        data: Claims and offsets.
        table: The leases by which several coordinators divide the shards.
        peers: All coordinators.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        rules: Rules,
        disks: Sequence[Disk],
        data: DataStore,
        table: MemoryLeaseTable | None,
        peers: Sequence[Process],
    ) -> None:
        super().__init__(network.world, name)
        self._network = network
        self._rules = rules
        self._disks = disks
        self._data = data
        self._table = table
        self._peers = peers
        self._settings = GroupSettings(
            session_timeout_min_ms=1_000,
            initial_rebalance_delay_ms=300,
            disconnect_grace_ms=400,
            offsets_retention_ms=network.mix.retention_ms,
            offsets_retention_check_ms=2_000,
        )

    def started(self) -> None:
        """Read the logs, then serve."""
        #: By connector: the task set whose predecessors' producers are fenced.
        self._fenced: dict[str, TaskSet] = {}
        self._served: dict[int, tuple[Shard, GroupRuntime]] = {}
        clock, count = ProcessClock(self), len(self._disks)
        self._alone = SingleOwner()
        self._alone.address = self.name
        self._shards = Shards(
            lambda shard: open_log(self._network, self, self._disks[shard]),
            shard_count=count,
            settings=self._settings,
            clock=clock,
            ownership=self._alone,
        )
        if self._table is None:
            self.spawn(self._load_all())
            return
        who = Identity(self.name, f"run {self.incarnation}")
        settings = OwnershipSettings(lease_ms=LEASE_MS)
        machine: Any = CheckedOwnership(
            Ownership(
                address=who.address,
                incarnation=who.incarnation,
                shard_count=count,
                settings=settings,
            ),
            self,
        )
        self._shards.ownership = machine
        leases = SimulatedLeases(self._network, self, who.incarnation, self._table, self._peers)
        self._manager = ShardManager(
            machine,
            LeaseClient(leases, clock),
            self._shards,
            who=who,
            clock=clock,
            settings=settings,
        )
        self._manager.start()

    async def _load_all(self) -> None:
        for shard in range(len(self._disks)):
            while True:
                try:
                    runtime = await self._shards.open(shard)
                    break
                except UnavailableError:
                    await asyncio.sleep(OPEN_AGAIN_S)
            await runtime.load()
            self._alone.loaded.add(shard)

    def crashed(self) -> None:
        """The process crashed, perhaps during an append."""
        for disk in self._disks:
            disk.process_crashed(self)

    @property
    def runtimes(self) -> Sequence[GroupRuntime]:
        """The runtimes of the shards that this coordinator serves or loads."""
        return [self._served_by(shard) for shard in self._shards.opened()]

    def _served_by(self, shard: Shard) -> GroupRuntime:
        served = self._served.get(id(shard))
        if served is None:
            disk = cast("DiskLog", shard.log).disk
            runtime: GroupRuntime = Served(
                self,
                disk,
                shard.machine,
                shard.runtime,
                released=self._rules.group_answered,
                validate_every=VALIDATE_EVERY,
            )
            self._served[id(shard)] = served = shard, runtime
        return served[1]

    def _runtime(self, group_id: str) -> GroupRuntime:
        """The runtime that serves a group; raises as ``Shards.runtime``."""
        runtime = self._shards.runtime(group_id)
        (shard,) = [each for each in self._shards.opened() if each.runtime is runtime]
        return self._served_by(shard)

    def describe(self, group_id: str) -> GroupDescription | None:
        """The group as an operator sees it; None when this coordinator does not serve it."""
        try:
            runtime = self._runtime(group_id)
        except DroverError:
            return None
        event = DescribeGroup("describe", group_id)
        (instruction,) = runtime.machine.handle(event, self.now_ms).instructions
        description = getattr(instruction, "response", None)
        assert isinstance(description, GroupDescription)
        return description

    def receive(self, call: ServerCall) -> None:
        """A call of the coordinator's API."""
        request: Any = call.request
        try:
            if isinstance(request, FindCoordinator):
                call.answer(self._shards.owner_of(request.group_id))
            elif isinstance(request, Heartbeat) and self._shards.is_loading(request.group_id):
                call.answer(False)  # nothing is wrong with the member
            else:
                self._serve(call, self._runtime(request.group_id))
        except DroverError as error:
            call.answer(error)

    def _serve(self, call: ServerCall, runtime: GroupRuntime) -> None:
        call_id = call.call_id
        match call.request:
            case JoinGroup() as event:
                self._join(call, runtime, event)
            case SyncGroup() as event:
                abandoned = CallAbandoned(event.group_id, event.member_id, call_id)
                runtime.serve(call, replace(event, call_id=call_id), abandoned)
            case (
                Heartbeat()
                | LeaveGroup()
                | CommitGroupOffsets()
                | FetchGroupOffsets()
                | DeleteGroup()
            ) as event:
                runtime.serve(call, replace(event, call_id=call_id))
            case ClaimTask() as request:
                self._claim(call, runtime, request)
            case CommitOffsets(_, tasks):
                self._commit(call, tasks)
            case FetchOffsets(_, connector):
                self._data.run(self, lambda: self._data.fetch(connector), call.answer)
            case unknown:
                raise BrokenRuleError("calls are known", str(unknown), self.name)

    def _commit(self, call: ServerCall, tasks: Sequence[TaskOffsets]) -> None:
        def commit() -> object:
            # a call that was cancelled while queued is not executed
            return self._data.commit(tasks) if call.is_open else None

        call.on_cancel = lambda: None
        self._data.run(self, commit, call.answer)

    def _join(self, call: ServerCall, runtime: GroupRuntime, event: JoinGroup) -> None:
        patience_ms = min(event.rebalance_timeout_ms, call.timeout_ms - JOIN_MARGIN_MS)
        new_member_id = f"{event.instance_id or event.client_id}#{self.world.next_id()}"
        arrived = replace(
            event,
            call_id=call.call_id,
            new_member_id=new_member_id,
            parked_until_ms=self.now_ms + max(patience_ms, 0),
        )
        parked_id = event.member_id or new_member_id
        abandoned = CallAbandoned(event.group_id, parked_id, call.call_id)
        runtime.serve(call, arrived, abandoned)

    def _claim(self, call: ServerCall, runtime: GroupRuntime, request: ClaimTask) -> None:
        def checked(result: object) -> None:
            if isinstance(result, DroverError):
                call.answer(result)
                return
            claim = ClaimRequest(
                request.task,
                request.generation,
                request.member_id,
                request.request_id,
                request.task_config_generation,
            )
            self._fence_former(claim, grant=partial(self._grant, call, claim), heard=call.answer)

        event = CheckMember(call.call_id, request.group_id, request.member_id, request.generation)
        runtime.submit(event, call.call_id, checked)

    def _grant(self, call: ServerCall, claim: ClaimRequest) -> None:
        self._data.run(self, lambda: self._data.grant(claim), call.answer)

    def _fence_former(self, claim: ClaimRequest, *, grant: Action, heard: Heard) -> None:
        """On Kafka, fence the producers of the previous task set; the claims of that set become
        stale first.
        """
        brokers, connector = self._data.brokers, claim.task.connector
        if brokers is None or self._fenced.get(connector) == claim.task_set:
            grant()
            return
        left: list[TaskId] = []

        def fence_next(result: object) -> None:
            if isinstance(result, DroverError):
                heard(result)
            elif left:
                brokers.request(self, partial(brokers.fence, left.pop()), fence_next)
            else:
                self._fenced[connector] = claim.task_set
                grant()

        def entered(result: object) -> None:
            left.extend(brokers.tasks_of(connector))
            fence_next(result)

        self._data.run(self, lambda: self._data.enter_set(claim), entered)

    # --- watches -----------------------------------------------------------------------------

    def open_stream(self, stream: Stream) -> None:
        """A member watches its group."""
        stream.on_broken = self.spawn(self._watch(stream)).cancel

    async def _watch(self, stream: Stream) -> None:
        """As ``WatchGroup`` of the production server."""
        request = stream.request
        assert isinstance(request, WatchGroup)
        group_id, member_id = request.group_id, request.member_id
        opened = WatchOpened(f"watch {self.world.next_id()}", group_id, member_id)
        ended: type[WatchEnded | MemberStreamBroken] = MemberStreamBroken
        runtime: Runtime[LogValue] | None = None
        try:
            runtime = self._shards.runtime(group_id)
            own = member_channel(group_id, member_id)
            with runtime.watch(watch_channel(group_id), WATCH_QUEUE_MAX, also=[own]) as watcher:
                started = await runtime.submit(opened, call_id=opened.call_id)
                assert isinstance(started, WatchStarted)
                last_change = started.change
                stream.push(started.watched)
                async for message in watcher:
                    if isinstance(message, MemberRemoved):
                        raise _removal(group_id, member_id, message)
                    assert isinstance(message, GroupChanged)
                    if message.change > last_change:
                        last_change = message.change
                        stream.push(message.watched)
        except DroverError as error:
            ended = WatchEnded
            stream.fail(error)
        finally:
            if runtime is not None:
                with suppress(DroverError):  # the runtime is closing, and so are its watches
                    runtime.post_nowait(ended(group_id, member_id, opened.call_id))


def _removal(group_id: str, member_id: str, message: MemberRemoved) -> DroverError:
    if message.fenced_instance_id is not None:
        return fenced_instance(group_id, member_id, message.fenced_instance_id)
    return unknown_member(group_id, member_id)


__all__ = [
    "ClaimTask",
    "CommitOffsets",
    "Coordinator",
    "FetchOffsets",
    "WatchGroup",
    "WatchedGroup",
]
