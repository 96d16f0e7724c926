"""The simulated coordinator: the real group machine, and the claims and offsets of ``data.db``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from drover.dataplane.claims import ClaimRequest
from drover.errors import DroverError, Reason, UnavailableError
from drover.model.group import GroupDescription, WatchedGroup
from drover.model.ids import TaskId
from drover.model.offsets import TaskOffsets
from services.coordinator.core.events import (
    CallAbandoned,
    CheckMember,
    DescribeGroup,
    GroupChanged,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MembersRemoved,
    MemberStreamBroken,
    SyncGroup,
    WatchEnded,
    WatchOpened,
    WatchStarted,
    watch_channel,
)
from services.coordinator.core.failures import fenced_instance, unknown_member
from services.coordinator.core.machine import GroupsMachine
from services.coordinator.core.settings import GroupSettings
from services.coordinator.records import decode_record, encode_record
from tests.simulation.data_store import DataStore
from tests.simulation.disk import Disk
from tests.simulation.network import Network, ServerCall, Stream
from tests.simulation.process import Process
from tests.simulation.rules import Rules
from tests.simulation.service import SimulatedRuntime
from tests.simulation.world import BrokenRuleError

#: A parked join is answered this long before its caller's deadline.
JOIN_MARGIN_MS = 100
GROUPS_LOADING = UnavailableError(Reason.COORDINATOR_LOAD_IN_PROGRESS, "the log is being read")


@dataclass(frozen=True, slots=True)
class ClaimTask:
    """Answered with a claim's term."""

    group_id: str
    member_id: str
    generation: int
    task: TaskId
    task_config_generation: int
    request_id: str


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Answered with a CommitResult for each task."""

    group_id: str
    tasks: Sequence[TaskOffsets]


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Answered with a connector's offsets."""

    group_id: str
    connector: str


@dataclass(frozen=True, slots=True)
class WatchGroup:
    """A stream of WatchedGroup."""

    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class _GroupWatch:
    """One member's watch; ``last_change`` is None until it has begun."""

    stream: Stream
    group_id: str
    member_id: str
    watch_id: str
    last_change: int | None = None


class Coordinator(Process):
    """The process of the coordinator.

    Args:
        network: Where it is.
        rules: Sees what it tells.
        disk: The group log.
        data: Claims and offsets.
    """

    def __init__(
        self, network: Network, name: str, rules: Rules, disk: Disk, data: DataStore
    ) -> None:
        super().__init__(network.world, name)
        self._network = network
        self._rules = rules
        self.disk = disk
        self._data = data
        self._settings = GroupSettings(
            session_timeout_min_ms=1_000, initial_rebalance_delay_ms=300, disconnect_grace_ms=400
        )
        self._watches: dict[str, dict[_GroupWatch, None]] = {}

    def started(self) -> None:
        """Read the log, then serve."""
        self._watches = {}
        self.runtime = SimulatedRuntime(
            self,
            self.disk,
            GroupsMachine(self._settings),
            encode=encode_record,
            decode=decode_record,
            notify=self._notify,
            released=self._rules.group_answered,
        )

    def crashed(self) -> None:
        """The process is gone, in the middle of an append perhaps."""
        self.disk.process_crashed()

    def describe(self, group_id: str) -> GroupDescription:
        """The group as an operator sees it."""
        event = DescribeGroup("describe", group_id)
        (instruction,) = self.runtime.machine.handle(event, self.now_ms).instructions
        description = getattr(instruction, "response", None)
        assert isinstance(description, GroupDescription)
        return description

    def receive(self, call: ServerCall) -> None:
        """A call of the coordinator's API."""
        if not self.runtime.loaded:
            call.answer(GROUPS_LOADING)
            return
        call_id = call.call_id
        match call.request:
            case Heartbeat() | LeaveGroup() as event:
                self.runtime.serve(call, replace(event, call_id=call_id))
            case JoinGroup() as event:
                self._join(call, event)
            case SyncGroup() as event:
                abandoned = CallAbandoned(event.group_id, event.member_id, call_id)
                self.runtime.serve(call, replace(event, call_id=call_id), abandoned)
            case ClaimTask() as request:
                self._claim(call, request)
            case CommitOffsets(_, tasks):
                self._data.run(self, lambda: self._data.commit(tasks), call.answer)
            case FetchOffsets(_, connector):
                self._data.run(self, lambda: self._data.fetch(connector), call.answer)
            case unknown:
                raise BrokenRuleError("calls are known", str(unknown), self.name)

    def _join(self, call: ServerCall, event: JoinGroup) -> None:
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
        self.runtime.serve(call, arrived, abandoned)

    def _claim(self, call: ServerCall, request: ClaimTask) -> None:
        def checked(result: object) -> None:
            if isinstance(result, DroverError):
                call.answer(result)
                return
            self._data.run(
                self,
                lambda: self._data.grant(
                    ClaimRequest(
                        request.task,
                        request.generation,
                        request.member_id,
                        request.request_id,
                        request.task_config_generation,
                    )
                ),
                call.answer,
            )

        event = CheckMember(call.call_id, request.group_id, request.member_id, request.generation)
        self.runtime.submit(event, call.call_id, checked)

    # --- watches -----------------------------------------------------------------------------

    def open_stream(self, stream: Stream) -> None:
        """A member watches its group."""
        request = stream.request
        assert isinstance(request, WatchGroup)
        if not self.runtime.loaded:
            stream.fail(GROUPS_LOADING)
            return
        watch_id = f"watch {self.world.next_id()}"
        watch = _GroupWatch(stream, request.group_id, request.member_id, watch_id)
        channel = watch_channel(request.group_id)
        self._watches.setdefault(channel, {})[watch] = None
        stream.on_broken = lambda: self._over(watch, by_server=False)

        def started(answer: object) -> None:
            if isinstance(answer, DroverError):
                self._watches[channel].pop(watch, None)
                stream.fail(answer)
                return
            assert isinstance(answer, WatchStarted)
            watch.last_change = answer.change
            stream.push(answer.watched)

        self.runtime.submit(
            WatchOpened(watch_id, request.group_id, request.member_id), watch_id, started
        )

    def _notify(self, channel: str, message: object) -> None:
        for watch in list(self._watches.get(channel, ())):
            if isinstance(message, MembersRemoved):
                if watch.member_id in message.member_ids and watch.last_change is not None:
                    watch.stream.fail(_removal(watch, message))
                    self._over(watch, by_server=True)
                continue
            assert isinstance(message, GroupChanged)
            if watch.last_change is not None and message.change > watch.last_change:
                watch.last_change = message.change
                watch.stream.push(message.watched)

    def _over(self, watch: _GroupWatch, *, by_server: bool) -> None:
        if self._watches[watch_channel(watch.group_id)].pop(watch, watch) is None:
            ended = WatchEnded if by_server else MemberStreamBroken
            self.runtime.post(ended(watch.group_id, watch.member_id, watch.watch_id))


def _removal(watch: _GroupWatch, message: MembersRemoved) -> DroverError:
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
