"""Drives the group machine as the runtime does, without a runtime: decide, append, replay, release.

Time advances only in ``advance``, which fires each of the machine's timers at its deadline. After
every event the harness checks the machine's invariants, and that ``handle`` did not change hard
state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from drover.errors import DroverError, Reason, UnavailableError
from drover.machine import (
    AppendFailed,
    CancelTimer,
    Complete,
    Fail,
    Instruction,
    Notify,
    Replayed,
    SetTimer,
)
from drover.model.group import (
    GroupDescription,
    Joined,
    LeavingMember,
    MemberAssignment,
    OfferedProtocol,
    WatchedGroup,
)
from drover.model.offsets import GroupOffset, GroupOffsetPage, TopicPartition
from drover_coordinator.core.groups.events import (
    CallAbandoned,
    CheckMember,
    CommitGroupOffsets,
    DeleteGroup,
    DeleteGroupOffsets,
    DescribeGroup,
    Event,
    FetchGroupOffsets,
    GroupChanged,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    MemberRemoved,
    MemberStreamBroken,
    SyncGroup,
    WatchEnded,
    WatchOpened,
)
from drover_coordinator.core.groups.machine import GroupsMachine
from drover_coordinator.core.groups.records import GroupMetadata, GroupRecord, LogValue
from drover_coordinator.core.groups.settings import GroupSettings

GROUP = "g"
START_MS = 1_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DEFAULT_PROTOCOLS = (OfferedProtocol("default", b"meta"),)
DISK_FULL = UnavailableError(Reason.STORAGE_UNAVAILABLE, "the disk is full")


@dataclass(slots=True)
class Call:
    """A call, and its response once there is one."""

    call_id: str
    event: Event
    responses: list[object] = field(default_factory=list)
    errors: list[DroverError] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        """Whether the call is parked."""
        return not self.responses and not self.errors

    @property
    def response(self) -> object:
        """The response, which must exist and must not be an error."""
        assert not self.errors, f"{self.event} failed: {self.errors[0]!r}"
        assert self.responses, f"{self.event} is not answered"
        return self.responses[0]

    @property
    def joined(self) -> Joined:
        """The response of a successful join."""
        assert isinstance(self.response, Joined), self.response
        return self.response

    @property
    def reason(self) -> Reason:
        """The reason of the call's error, which must exist."""
        assert self.errors, f"{self.event} did not fail: {self.responses}"
        return self.errors[0].reason


class GroupHarness:
    """One coordinator, its log and its clock."""

    def __init__(self, settings: GroupSettings | None = None, *, first_id: int = 1) -> None:
        self.settings = settings or GroupSettings()
        self.now_ms = START_MS
        self.records: list[LogValue] = []
        self.calls: dict[str, Call] = {}
        self.watched: list[WatchedGroup] = []
        self.removed: list[str] = []
        self.fired: list[object] = []
        self.append_error: DroverError | None = None
        self._next_id = first_id
        self._timers: dict[str, tuple[int, int, object]] = {}
        self._watches: dict[tuple[str, str], list[str]] = {}
        self._sequence = 0
        self.machine = GroupsMachine(self.settings)
        self._load()

    # --- the world ---------------------------------------------------------------------------

    def restart(self) -> None:
        """Crash and load the log: parked calls and timers are lost."""
        before = self.machine.hard_state()
        self.machine = GroupsMachine(self.settings)
        self._timers.clear()
        self._watches.clear()
        self.calls = {key: call for key, call in self.calls.items() if not call.waits}
        self._load()
        assert self.machine.hard_state() == before

    def restart_with_log(self) -> None:
        """Load ``records`` that a test has written."""
        self.machine = GroupsMachine(self.settings)
        self._load()

    def _load(self) -> None:
        for offset, record in enumerate(self.records):
            self.machine.replay(Replayed(offset, record))
        self._release(self.machine.loaded(self.now_ms, len(self.records)))
        self.machine.validate()

    def advance(self, duration_ms: int) -> None:
        """Let time pass, firing timers in order."""
        target_ms = self.now_ms + duration_ms
        while self._timers:
            key = min(self._timers, key=lambda each: self._timers[each][:2])
            deadline_ms, _, event = self._timers[key]
            if deadline_ms > target_ms:
                break
            del self._timers[key]
            self.now_ms = max(self.now_ms, deadline_ms)
            self.fired.append(event)
            self.handle(event)  # type: ignore[arg-type]
        self.now_ms = target_ms

    def handle(self, event: Event) -> None:
        """Handle an event in the machine, and execute its instructions."""
        before = self.machine.hard_state()
        outcome = self.machine.handle(event, self.now_ms)
        assert self.machine.hard_state() == before, f"{event} changed hard state in handle"
        if outcome.records and self.append_error is not None:
            error, self.append_error = self.append_error, None
            for instruction in outcome.instructions:
                if isinstance(instruction, Complete | Fail):
                    self._answer(Fail(instruction.call_id, error))
            if outcome.on_append_failed is not None:
                self.handle(AppendFailed(outcome.on_append_failed, error))
        else:
            instructions: list[Instruction] = []
            for record in outcome.records:
                self.records.append(record)
                instructions += self.machine.replay(Replayed(len(self.records) - 1, record))
            self._release([*instructions, *outcome.instructions])
        self.machine.validate()

    def _release(self, instructions: Sequence[Instruction]) -> None:
        changes: list[GroupChanged] = []
        for instruction in instructions:
            if isinstance(instruction, SetTimer):
                self._sequence += 1
                self._timers[instruction.key] = (
                    instruction.deadline_ms,
                    self._sequence,
                    instruction.event,
                )
            elif isinstance(instruction, CancelTimer):
                self._timers.pop(instruction.key, None)
            elif isinstance(instruction, Notify):
                if isinstance(instruction.message, GroupChanged):
                    changes.append(instruction.message)
                elif isinstance(instruction.message, MemberRemoved):
                    self.removed.append(instruction.message.member_id)
            else:
                self._answer(instruction)
        self.watched += [each.watched for each in sorted(changes, key=lambda each: each.change)]

    def _answer(self, instruction: Complete | Fail) -> None:
        call = self.calls.get(instruction.call_id)
        assert call is not None, f"a response to an unknown call: {instruction}"
        assert call.waits, f"{call.event} is answered twice: {instruction}"
        if isinstance(instruction, Complete):
            call.responses.append(instruction.response)
        else:
            call.errors.append(instruction.error)

    # --- what members do ---------------------------------------------------------------------

    def call_id(self) -> str:
        """A new call id."""
        self._next_id += 1
        return str(self._next_id)

    def submit(self, event: Event) -> Call:
        """Make a call."""
        call = Call(event.call_id, event)  # type: ignore[union-attr]
        self.calls[call.call_id] = call
        self.handle(event)
        return call

    def join(
        self,
        member_id: str,
        *,
        new_id: str = "",
        group_id: str = GROUP,
        protocol_type: str = "connect",
        protocols: tuple[OfferedProtocol, ...] = DEFAULT_PROTOCOLS,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        patience_ms: int | None = None,
        instance_id: str | None = None,
    ) -> Call:
        """Join with a member id, or without one to get ``new_id``."""
        return self.submit(
            JoinGroup(
                call_id=self.call_id(),
                group_id=group_id,
                member_id=member_id,
                new_member_id=new_id,
                client_id="client",
                client_host="host",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=protocols,
                parked_until_ms=self.now_ms
                + (rebalance_ms + 1 if patience_ms is None else patience_ms),
                instance_id=instance_id,
            )
        )

    def first_join(self, new_id: str, **options: object) -> Call:
        """A first join; the coordinator answers with ``new_id``."""
        return self.join("", new_id=new_id, **options)  # type: ignore[arg-type]

    def join_static(self, new_id: str, instance_id: str, **options: object) -> Call:
        """The first join of a static member's process: with its instance id, as ``new_id``."""
        return self.first_join(new_id, instance_id=instance_id, **options)

    def enter(self, member_id: str, **options: object) -> Call:
        """Both joins of a new member; returns the second, parked call."""
        self.first_join(member_id, **options)
        return self.join(member_id, **options)  # type: ignore[arg-type]

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = GROUP,
        protocol_type: str = "",
        protocol_name: str = "",
        instance_id: str | None = None,
    ) -> Call:
        """Sync, with assignments as the leader; by default in the current generation."""
        if generation is None:
            generation = self.describe(group_id).generation
        handed_in = tuple(MemberAssignment(*each) for each in (assignments or {}).items())
        return self.submit(
            SyncGroup(
                self.call_id(),
                group_id,
                member_id,
                generation,
                protocol_type,
                protocol_name,
                handed_in,
                instance_id,
            )
        )

    def heartbeat(
        self,
        member_id: str,
        generation: int | None = None,
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
    ) -> Call:
        """A heartbeat, by default in the current generation."""
        if generation is None:
            generation = self.describe(group_id).generation
        return self.submit(Heartbeat(self.call_id(), group_id, member_id, generation, instance_id))

    def leave(self, *members: str | LeavingMember, group_id: str = GROUP) -> Call:
        """Remove members in one request."""
        leaving = tuple(LeavingMember(each) if isinstance(each, str) else each for each in members)
        return self.submit(LeaveGroup(self.call_id(), group_id, leaving))

    def check_member(self, member_id: str, generation: int, *, group_id: str = GROUP) -> Call:
        """Ask whether a member may claim a task."""
        return self.submit(CheckMember(self.call_id(), group_id, member_id, generation))

    def watch(self, member_id: str, *, group_id: str = GROUP) -> Call:
        """Open a watch."""
        call = self.submit(WatchOpened(self.call_id(), group_id, member_id))
        if call.responses:
            self._watches.setdefault((group_id, member_id), []).append(call.call_id)
        return call

    def break_watch(self, member_id: str, *, group_id: str = GROUP) -> None:
        """Break a member's oldest watch from the client's side; does nothing without one."""
        self.handle(MemberStreamBroken(group_id, member_id, self._oldest(group_id, member_id)))

    def end_watch(self, member_id: str, *, group_id: str = GROUP) -> None:
        """End a member's oldest watch from the server's side."""
        self.handle(WatchEnded(group_id, member_id, self._oldest(group_id, member_id)))

    def _oldest(self, group_id: str, member_id: str) -> str:
        open_watches = self._watches.get((group_id, member_id))
        return open_watches.pop(0) if open_watches else "none"

    def abandon(self, call: Call) -> None:
        """Cancel a parked join or sync."""
        event = call.event
        assert isinstance(event, JoinGroup | SyncGroup)
        member_id = event.member_id
        if isinstance(event, JoinGroup) and not member_id:
            member_id = event.new_member_id
        self.handle(CallAbandoned(event.group_id, member_id, call.call_id))

    def describe(self, group_id: str = GROUP) -> GroupDescription:
        """The group."""
        response = self.submit(DescribeGroup(self.call_id(), group_id)).response
        assert isinstance(response, GroupDescription)
        return response

    def list_groups(self, **options: object) -> Call:
        """A page of groups."""
        return self.submit(ListGroups(self.call_id(), **options))  # type: ignore[arg-type]

    def commit_offsets(
        self,
        offsets: Mapping[TopicPartition, int] | Sequence[GroupOffset],
        member_id: str = "",
        generation: int = -1,
        *,
        instance_id: str | None = None,
        group_id: str = GROUP,
    ) -> Call:
        """Commit positions, by default without a member id."""
        if isinstance(offsets, Mapping):
            offsets = [
                GroupOffset(at.topic, at.partition, offset) for at, offset in offsets.items()
            ]
        return self.submit(
            CommitGroupOffsets(
                self.call_id(), group_id, member_id, generation, tuple(offsets), instance_id
            )
        )

    def fetch_offsets(
        self, *partitions: TopicPartition, group_id: str = GROUP, **page: object
    ) -> Call:
        """Fetch positions, or a page of all."""
        return self.submit(
            FetchGroupOffsets(self.call_id(), group_id, partitions, **page)  # type: ignore[arg-type]
        )

    def offsets(self, group_id: str = GROUP) -> dict[TopicPartition, int]:
        """All positions of a group."""
        found: dict[TopicPartition, int] = {}
        token = ""
        while True:
            page = self.fetch_offsets(group_id=group_id, page_token=token).response
            assert isinstance(page, GroupOffsetPage)
            for each in page.offsets:
                found[TopicPartition(each.topic, each.partition)] = each.offset
            token = page.next_page_token
            if not token:
                return found

    def delete_offsets(self, *partitions: TopicPartition, group_id: str = GROUP) -> Call:
        """Remove positions."""
        return self.submit(DeleteGroupOffsets(self.call_id(), group_id, partitions))

    def delete_group(self, group_id: str = GROUP) -> Call:
        """Remove a group."""
        return self.submit(DeleteGroup(self.call_id(), group_id))

    # --- whole groups ------------------------------------------------------------------------

    def completing(self, *member_ids: str, **options: object) -> dict[str, Call]:
        """A new group whose first generation has been answered; the first id leads."""
        calls = {each: self.enter(each, **options) for each in member_ids}
        for _ in range(REBALANCE_MS // max(self.settings.initial_rebalance_delay_ms, 1) + 1):
            if not any(call.waits for call in calls.values()):
                break
            self.advance(self.settings.initial_rebalance_delay_ms)
        for call in calls.values():
            assert call.joined.leader_id == member_ids[0]
        return calls

    def stable(self, *member_ids: str, **options: object) -> None:
        """A new group whose members have their assignments: ``to-<id>``."""
        self.completing(*member_ids, **options)
        self.assign(*member_ids, group_id=str(options.get("group_id", GROUP)))

    def assign(self, leader_id: str, *member_ids: str, group_id: str = GROUP) -> None:
        """Sync all members, the leader last."""
        followers = [self.sync(each, group_id=group_id) for each in member_ids]
        everyone = {each: f"to-{each}".encode() for each in (leader_id, *member_ids)}
        leader = self.sync(leader_id, assignments=everyone, group_id=group_id)
        for call in (leader, *followers):
            assert call.responses, call

    def rejoin(self, *member_ids: str) -> dict[str, Call]:
        """Rejoin known members."""
        return {each: self.join(each) for each in member_ids}

    # --- results -----------------------------------------------------------------------------

    def member_ids(self, group_id: str = GROUP) -> list[str]:
        """The members, in order of their ids."""
        return [member.member_id for member in self.describe(group_id).members]

    def last_metadata(self) -> GroupMetadata:
        """The last record's value."""
        record = self.records[-1]
        assert isinstance(record, GroupRecord)
        assert record.metadata is not None
        return record.metadata
