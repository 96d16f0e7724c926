"""The simulated coordinator: the real group machine, and the claims and offsets of ``data.db``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from drover.errors import DroverError
from drover.model.claims import ClaimRequest, TaskSet
from drover.model.group import GroupDescription, WatchedGroup
from drover.model.ids import TaskId
from drover.model.offsets import TaskOffsets
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
from drover_coordinator.core.groups.settings import GroupSettings
from drover_coordinator.core.ownership.machine import OwnershipSettings
from drover_coordinator.record_codec import decode_record, encode_record
from simulation.data_store import DataStore
from simulation.disk import Disk
from simulation.network import Heard, Network, ServerCall, Stream
from simulation.process import Process
from simulation.rules import Rules
from simulation.service import SimulatedRuntime
from simulation.shard_manager import (
    GROUPS_LOADING,
    FindCoordinator,
    GroupRuntime,
    ShardFence,
    SimulatedShardManager,
)
from simulation.world import Action, BrokenRuleError
from tests.support.lease_table import MemoryLeaseTable

#: The coordinator answers a parked join this long before its caller's deadline.
JOIN_MARGIN_MS = 100
LEASE_MS = 1_500
VALIDATE_EVERY = 4


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


@dataclass(slots=True, eq=False)
class _GroupWatch:
    """One member's watch; ``last_change`` is None until the first message."""

    stream: Stream
    runtime: GroupRuntime
    group_id: str
    member_id: str
    watch_id: str
    last_change: int | None = None

    @property
    def channels(self) -> tuple[str, str]:
        """The channels that this watch is subscribed to."""
        own = member_channel(self.group_id, self.member_id)
        return watch_channel(self.group_id), own


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

    shard_manager: SimulatedShardManager

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
        self._watches: dict[str, dict[_GroupWatch, None]] = {}

    def started(self) -> None:
        """Read the logs, then serve."""
        self._watches = {}
        #: By connector: the task set whose predecessors' producers are fenced.
        self._fenced: dict[str, TaskSet] = {}
        self.shard_manager = SimulatedShardManager(
            self._network,
            self,
            self._make_runtime,
            self._disks,
            self._table,
            self._peers,
            OwnershipSettings(lease_ms=LEASE_MS),
        )

    def _make_runtime(
        self, shard: int, fence: ShardFence | None, on_loaded: Callable[[], None]
    ) -> GroupRuntime:
        def end(why: DroverError) -> None:
            watches = dict.fromkeys(each for some in self._watches.values() for each in some)
            for watch in watches:
                if watch.runtime is runtime and self._forget(watch):
                    watch.stream.fail(why)

        runtime: GroupRuntime = SimulatedRuntime(
            self,
            self._disks[shard],
            GroupsMachine(self._settings),
            encode=encode_record,
            decode=decode_record,
            notify=self._notify,
            released=self._rules.group_answered,
            on_loaded=on_loaded,
            validate_every=VALIDATE_EVERY,
            fence=fence,
            on_end=end,
        )
        return runtime

    def crashed(self) -> None:
        """The process crashed, perhaps during an append."""
        for disk in self._disks:
            disk.process_crashed(self)

    @property
    def runtimes(self) -> Sequence[GroupRuntime]:
        """The runtimes of the shards that this coordinator serves or loads."""
        return tuple(self.shard_manager.runtimes.values())

    def describe(self, group_id: str) -> GroupDescription | None:
        """The group as an operator sees it; None when this coordinator does not serve it."""
        runtime = self.shard_manager.runtime(group_id)
        if isinstance(runtime, DroverError):
            return None
        event = DescribeGroup("describe", group_id)
        (instruction,) = runtime.machine.handle(event, self.now_ms).instructions
        description = getattr(instruction, "response", None)
        assert isinstance(description, GroupDescription)
        return description

    def receive(self, call: ServerCall) -> None:
        """A call of the coordinator's API."""
        request: object = call.request
        if isinstance(request, FindCoordinator):
            call.answer(self.shard_manager.owner_of(request.group_id))
            return
        group_id: str = request.group_id  # type: ignore[attr-defined]
        runtime = self.shard_manager.runtime(group_id)
        if not isinstance(runtime, DroverError):
            self._serve(call, runtime)
        elif runtime is GROUPS_LOADING and isinstance(request, Heartbeat):
            call.answer(False)  # nothing is wrong with the member
        else:
            call.answer(runtime)

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
        request = stream.request
        assert isinstance(request, WatchGroup)
        runtime = self.shard_manager.runtime(request.group_id)
        if isinstance(runtime, DroverError):
            stream.fail(runtime)
            return
        watch_id = f"watch {self.world.next_id()}"
        watch = _GroupWatch(stream, runtime, request.group_id, request.member_id, watch_id)
        for channel in watch.channels:
            self._watches.setdefault(channel, {})[watch] = None
        stream.on_broken = lambda: self._over(watch, by_server=False)

        def started(answer: object) -> None:
            if isinstance(answer, DroverError):
                self._forget(watch)
                stream.fail(answer)
                return
            assert isinstance(answer, WatchStarted)
            watch.last_change = answer.change
            stream.push(answer.watched)

        runtime.submit(
            WatchOpened(watch_id, request.group_id, request.member_id), watch_id, started
        )

    def _notify(self, channel: str, message: object) -> None:
        for watch in list(self._watches.get(channel, ())):
            if isinstance(message, MemberRemoved):
                if watch.last_change is not None:
                    watch.stream.fail(_removal(watch, message))
                    self._over(watch, by_server=True)
                continue
            assert isinstance(message, GroupChanged)
            if watch.last_change is not None and message.change > watch.last_change:
                watch.last_change = message.change
                watch.stream.push(message.watched)

    def _over(self, watch: _GroupWatch, *, by_server: bool) -> None:
        if self._forget(watch):
            ended = WatchEnded if by_server else MemberStreamBroken
            watch.runtime.post(ended(watch.group_id, watch.member_id, watch.watch_id))

    def _forget(self, watch: _GroupWatch) -> bool:
        """Remove a watch; returns whether it existed."""
        found = [self._watches.get(each, {}).pop(watch, watch) is None for each in watch.channels]
        return any(found)


def _removal(watch: _GroupWatch, message: MemberRemoved) -> DroverError:
    if message.fenced_instance_id is not None:
        return fenced_instance(watch.group_id, watch.member_id, message.fenced_instance_id)
    return unknown_member(watch.group_id, watch.member_id)


__all__ = [
    "ClaimTask",
    "CommitOffsets",
    "Coordinator",
    "FetchOffsets",
    "WatchGroup",
    "WatchedGroup",
]
