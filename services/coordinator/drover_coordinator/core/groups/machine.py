"""The machine of all groups in one log: routes each event to its group."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from drover.errors import DroverError
from drover.machine import AppendFailed, Complete, Fail, Instruction, Outcome, Replayed
from drover.model.group import GroupDescription, GroupState
from drover_coordinator.core.groups import (
    deletion,
    expiry,
    group_offsets,
    heartbeat,
    join,
    leave,
    listing,
    rebalance,
    static_members,
    sync,
    validate,
    watch,
)
from drover_coordinator.core.groups.events import (
    AssignmentNotDurable,
    CallAbandoned,
    CheckMember,
    CommitGroupOffsets,
    CreationNotDurable,
    DeleteGroup,
    DeleteGroupOffsets,
    DescribeGroup,
    Event,
    ExpiryDue,
    ExpiryNotDurable,
    FetchGroupOffsets,
    GenerationNotDurable,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    MemberStreamBroken,
    ParkedJoinDue,
    PendingDue,
    RebalanceDue,
    SessionDue,
    StaticMemberNotDurable,
    SyncDue,
    SyncGroup,
    Unloaded,
    WatchEnded,
    WatchOpened,
)
from drover_coordinator.core.groups.failures import (
    not_available,
    too_many_groups,
    too_many_offsets,
    unknown_member,
)
from drover_coordinator.core.groups.fencing import member_error
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.member import Member
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.records import FloorRecord, LogValue, OffsetRecord
from drover_coordinator.core.groups.sessions import set_session_end
from drover_coordinator.core.groups.settings import GROUPS_MAX, OFFSETS_MAX, GroupSettings

_LIVE = frozenset({GroupState.COMPLETING_REBALANCE, GroupState.STABLE})
_NOTHING: Outcome[LogValue] = Outcome()


class GroupsMachine:
    """The groups of one log. ``drover.machine`` documents the contract.

    Args:
        settings: Bounds and delays.
    """

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self._settings = settings or GroupSettings()
        self._groups: dict[str, Group] = {}
        #: the highest generation of any removed group
        self._floor = 0
        self._offset_count = 0
        self._sweep: expiry.Sweep | None = None
        self._is_loaded = False
        self._is_unloaded = False
        self._handlers: dict[type, Callable[..., Outcome[LogValue]]] = {
            Heartbeat: self._heartbeat,
            JoinGroup: self._join,
            SyncGroup: self._sync,
            LeaveGroup: self._leave,
            DescribeGroup: self._describe,
            ListGroups: self._list,
            DeleteGroup: self._of_group(validate.check_group_deletion, self._delete_group),
            CommitGroupOffsets: self._of_group(validate.check_group_commit, self._commit_offsets),
            FetchGroupOffsets: self._of_group(validate.check_group_fetch, group_offsets.fetch),
            DeleteGroupOffsets: self._of_group(
                validate.check_offsets_deletion, group_offsets.delete
            ),
            CheckMember: self._check_member,
            WatchOpened: self._watch_opened,
            CallAbandoned: self._call_abandoned,
            MemberStreamBroken: self._stream_broken,
            WatchEnded: self._watch_ended,
            Unloaded: self._unloaded,
            SessionDue: self._session_due,
            PendingDue: self._pending_due,
            ParkedJoinDue: self._parked_join_due,
            RebalanceDue: self._rebalance_due,
            SyncDue: self._sync_due,
            ExpiryDue: self._expiry_due,
            AppendFailed: self._append_failed,
        }

    # --- the machine -------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> Outcome[LogValue]:
        """Decide ``event``; changes soft state only."""
        return self._handlers[type(event)](event, now_ms)

    def replay(self, replayed: Replayed[LogValue]) -> Sequence[Instruction]:
        """Apply a durable record."""
        record = replayed.record
        if isinstance(record, OffsetRecord):
            self._replay_offset(record)
            return ()
        if isinstance(record, FloorRecord):
            self._raise_floor(record.generation)
            return ()
        metadata = record.metadata
        if metadata is None:
            self._forget(record.group_id)
            return ()
        group = self._groups.get(record.group_id)
        if group is None:
            group = self._new_group(record.group_id, metadata.state_timestamp_ms)
        if not self._is_loaded:
            group.load(metadata)
            return ()
        builder = OutcomeBuilder(metadata.state_timestamp_ms)
        hard = group.hard
        if hard is None or (metadata.generation, metadata.assigned) == (
            hard.generation,
            hard.assigned,
        ):
            group.note(metadata)  # the group was created, or a static member replaced
        elif metadata.assigned:
            rebalance.assignment_replayed(group, metadata, builder, self._settings)
        else:
            rebalance.generation_replayed(group, metadata, builder, self._settings)
        return builder.instructions

    def loaded(self, now_ms: int, end_offset: int) -> Sequence[Instruction]:
        """Start all session timers (rule P3).

        A group whose generation has no assignment rebalances, and so does one with too many
        members; all other groups keep their generation.
        """
        self._is_loaded = True
        builder = OutcomeBuilder(now_ms)
        self._groups = {
            group_id: group
            for group_id, group in self._groups.items()
            if group.hard is not None or group.offsets
        }
        expiry.set_timer(builder, in_ms=self._settings.offsets_retention_check_ms, begins=True)
        for group in self._groups.values():
            group.restore()
            for member in group.members.values():
                set_session_end(group, member, builder, member.session_timeout_ms)
            too_many = len(group.members) > self._settings.group_max_size
            if group.state is GroupState.COMPLETING_REBALANCE or too_many:
                rebalance.prepare(group, builder, self._settings)
            elif group.is_unused:
                # its pending ids were soft state and are lost
                due_ms = now_ms + self._settings.session_timeout_min_ms
                key = join.pending_key(group.group_id, "")
                builder.set_timer(key, due_ms, PendingDue(group.group_id, ""))
        return builder.instructions

    @property
    def groups(self) -> Collection[Group]:
        """Every group, for reading."""
        return self._groups.values()

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        parked: list[str] = []
        for group_id, group in self._groups.items():
            assert group.group_id == group_id
            assert group.hard is not None or group.generation == self._floor, group_id
            assert self._is_unloaded or group.state is not GroupState.DEAD, group_id
            group.validate()
            for member in group.members.values():
                parked += filter(None, (member.join_call_id, member.sync_call_id))
        assert len(parked) == len(set(parked)), "a call is parked in two groups"
        assert self._offset_count == sum(len(group.offsets) for group in self._groups.values())

    def hard_state(self) -> dict[str, object]:
        """The durable state of the groups, which a restart does not change."""
        state: dict[str, object] = {
            group.group_id: (group.hard, dict(group.offsets))
            for group in self._groups.values()
            if group.hard or group.offsets
        }
        return {**state, "\0floor": self._floor} if self._floor else state

    # --- calls -------------------------------------------------------------------------------

    def _heartbeat(self, event: Heartbeat, now_ms: int) -> Outcome[LogValue]:
        group = self._groups.get(event.group_id)
        if group is None:
            return self._unknown_member("Heartbeat", event)
        member = group.members.get(event.member_id)
        if (
            member is not None
            and event.generation == group.generation
            and group.state in _LIVE
            and event.instance_id in (None, member.instance_id)
            and not member.watch_broken
        ):
            # fast path, same effect as ``heartbeat.heartbeat``: nearly all calls are heartbeats
            member.alive_until_ms = now_ms + member.session_timeout_ms
            return Outcome((), (Complete(event.call_id, False),))
        error = validate.check_heartbeat(event)
        if error is not None:
            return _failed(event.call_id, error)
        builder = OutcomeBuilder(now_ms)
        heartbeat.heartbeat(group, event, builder)
        return builder.outcome()

    def _join(self, event: JoinGroup, now_ms: int) -> Outcome[LogValue]:
        error = validate.check_join(event, self._settings)
        if error is not None:
            return _failed(event.call_id, error)
        group = self._groups.get(event.group_id)
        if group is None:
            if self._is_unloaded:
                return _failed(event.call_id, not_available(event.group_id))
            if event.member_id:
                return _failed(event.call_id, unknown_member(event.group_id, event.member_id))
            if len(self._groups) >= GROUPS_MAX:
                return _failed(event.call_id, too_many_groups(event.group_id))
            group = self._new_group(event.group_id, now_ms)
        builder = OutcomeBuilder(now_ms)
        join.join(group, event, builder, self._settings)
        return builder.outcome()

    def _sync(self, event: SyncGroup, now_ms: int) -> Outcome[LogValue]:
        error = validate.check_sync(event)
        if error is not None:
            return _failed(event.call_id, error)
        group = self._groups.get(event.group_id)
        if group is None:
            return self._unknown_member("SyncGroup", event)
        builder = OutcomeBuilder(now_ms)
        sync.sync(group, event, builder)
        return builder.outcome()

    def _leave(self, event: LeaveGroup, now_ms: int) -> Outcome[LogValue]:
        error = validate.check_leave(event)
        if error is not None:
            return _failed(event.call_id, error)
        group = self._groups.get(event.group_id)
        if group is None:
            return _completed(event.call_id, leave.unknown_leavers(event.leaving))
        builder = OutcomeBuilder(now_ms)
        leave.leave(group, event, builder, self._settings)
        self._drop_if_unused(group)
        return builder.outcome()

    def _describe(self, event: DescribeGroup, now_ms: int) -> Outcome[LogValue]:
        error = validate.check_group("DescribeGroup", event.group_id)
        if error is not None:
            return _failed(event.call_id, error)
        group = self._groups.get(event.group_id)
        if group is None or group.state is GroupState.DEAD:
            dead = GroupDescription(event.group_id, GroupState.DEAD)
            return _completed(event.call_id, dead)
        return _completed(event.call_id, group.describe())

    def _list(self, event: ListGroups, now_ms: int) -> Outcome[LogValue]:
        error = validate.check_list(event)
        if error is not None:
            return _failed(event.call_id, error)
        return _completed(event.call_id, listing.page_of(self._groups, event))

    def _of_group(
        self, check: Callable[..., DroverError | None], rule: Callable[..., None]
    ) -> Callable[..., Outcome[LogValue]]:
        """The handler of a call that ``rule`` handles for existing and missing groups."""

        def handle(event: Any, now_ms: int) -> Outcome[LogValue]:
            error = check(event)
            if error is None and self._is_unloaded:
                error = not_available(event.group_id)
            if error is not None:
                return _failed(event.call_id, error)
            builder = OutcomeBuilder(now_ms)
            rule(self._groups.get(event.group_id), event, builder)
            return builder.outcome()

        return handle

    def _delete_group(
        self, group: Group | None, event: DeleteGroup, builder: OutcomeBuilder
    ) -> None:
        deletion.delete(group, event, builder, self._floor)

    def _commit_offsets(
        self, group: Group | None, event: CommitGroupOffsets, builder: OutcomeBuilder
    ) -> None:
        if group is None and len(self._groups) >= GROUPS_MAX:
            builder.fail(event.call_id, too_many_groups(event.group_id))
        elif self._offset_count + group_offsets.new_count(group, event) > OFFSETS_MAX:
            builder.fail(event.call_id, too_many_offsets(event.group_id))
        else:
            group_offsets.commit(group, event, builder)

    def _check_member(self, event: CheckMember, now_ms: int) -> Outcome[LogValue]:
        group = self._groups.get(event.group_id)
        if group is None:
            return self._unknown_member("ClaimTask", event)
        error = member_error(group, event.member_id, None, event.generation)
        if error is not None:
            return _failed(event.call_id, error)
        return _completed(event.call_id, None)

    def _watch_opened(self, event: WatchOpened, now_ms: int) -> Outcome[LogValue]:
        group = self._groups.get(event.group_id)
        if group is None:
            return self._unknown_member("WatchGroup", event)
        builder = OutcomeBuilder(now_ms)
        watch.watch_opened(group, event, builder)
        return builder.outcome()

    def _unknown_member(
        self, what: str, event: Heartbeat | SyncGroup | CheckMember | WatchOpened
    ) -> Outcome[LogValue]:
        instance_id = event.instance_id if isinstance(event, Heartbeat | SyncGroup) else None
        error: DroverError | None = validate.check_member(
            what, event.group_id, event.member_id, instance_id
        )
        if error is None and self._is_unloaded:
            error = not_available(event.group_id)
        return _failed(event.call_id, error or unknown_member(event.group_id, event.member_id))

    # --- ends of calls and streams -----------------------------------------------------------

    def _call_abandoned(self, event: CallAbandoned, now_ms: int) -> Outcome[LogValue]:
        builder = OutcomeBuilder(now_ms)
        if (located := self._member(event.group_id, event.member_id)) is not None:
            group, member = located
            if member.join_call_id == event.call_id:
                join.end_parked_join(group, member, builder, self._settings)
            elif member.sync_call_id == event.call_id:
                sync.end_parked_sync(group, member, builder, self._settings)
        return builder.outcome()

    def _stream_broken(self, event: MemberStreamBroken, now_ms: int) -> Outcome[LogValue]:
        builder = OutcomeBuilder(now_ms)
        if (located := self._member(event.group_id, event.member_id)) is not None:
            watch.stream_broken(*located, event.watch_id, builder, self._settings)
        return builder.outcome()

    def _watch_ended(self, event: WatchEnded, now_ms: int) -> Outcome[LogValue]:
        if (located := self._member(event.group_id, event.member_id)) is not None:
            located[1].watches.discard(event.watch_id)
        return _NOTHING

    def _unloaded(self, event: Unloaded, now_ms: int) -> Outcome[LogValue]:
        self._is_unloaded = True
        builder = OutcomeBuilder(now_ms)
        for group in self._groups.values():
            rebalance.end_service(group, event.error, builder)
        return builder.outcome()

    # --- timers ------------------------------------------------------------------------------

    def _session_due(self, event: SessionDue, now_ms: int) -> Outcome[LogValue]:
        builder = OutcomeBuilder(now_ms)
        if (located := self._member(event.group_id, event.member_id)) is not None:
            heartbeat.session_due(*located, builder, self._settings)
        return builder.outcome()

    def _pending_due(self, event: PendingDue, now_ms: int) -> Outcome[LogValue]:
        group = self._groups.get(event.group_id)
        builder = OutcomeBuilder(now_ms)
        if group is not None and group.state is not GroupState.DEAD:
            if group.pending.get(event.member_id, 0) > now_ms:
                return _NOTHING
            group.pending.pop(event.member_id, None)
            join.after_removal_of_pending(group, builder, self._settings)
            self._drop_if_unused(group)
        return builder.outcome()

    def _parked_join_due(self, event: ParkedJoinDue, now_ms: int) -> Outcome[LogValue]:
        builder = OutcomeBuilder(now_ms)
        located = self._member(event.group_id, event.member_id)
        if located is not None and located[1].join_call_id == event.call_id:
            join.end_parked_join(*located, builder, self._settings)
        return builder.outcome()

    def _rebalance_due(self, event: RebalanceDue, now_ms: int) -> Outcome[LogValue]:
        group = self._groups.get(event.group_id)
        builder = OutcomeBuilder(now_ms)
        if group is not None:
            rebalance.rebalance_due(group, builder, self._settings)
        return builder.outcome()

    def _sync_due(self, event: SyncDue, now_ms: int) -> Outcome[LogValue]:
        group = self._groups.get(event.group_id)
        builder = OutcomeBuilder(now_ms)
        if group is not None:
            rebalance.sync_due(group, event.generation, builder, self._settings)
        return builder.outcome()

    def _expiry_due(self, event: ExpiryDue, now_ms: int) -> Outcome[LogValue]:
        if self._is_unloaded:
            return _NOTHING
        builder = OutcomeBuilder(now_ms)
        if event.begins or self._sweep is None:
            self._sweep = expiry.begin(self._groups)
        if expiry.step(self._sweep, self._groups, builder, self._settings, self._floor):
            expiry.set_timer(builder, in_ms=expiry.STEP_PAUSE_MS, begins=False)
        else:
            self._sweep = None
            expiry.set_timer(builder, in_ms=self._settings.offsets_retention_check_ms, begins=True)
        return builder.outcome()

    # --- failed appends ----------------------------------------------------------------------

    def _append_failed(self, event: AppendFailed, now_ms: int) -> Outcome[LogValue]:
        failed = event.event
        builder = OutcomeBuilder(now_ms)
        if isinstance(failed, ExpiryNotDurable):
            self._sweep = None
            expiry.set_timer(builder, in_ms=self._settings.offsets_retention_check_ms, begins=True)
            return builder.outcome()
        assert isinstance(
            failed,
            CreationNotDurable
            | GenerationNotDurable
            | AssignmentNotDurable
            | StaticMemberNotDurable,
        )
        group = self._groups.get(failed.group_id)
        if group is None:
            return _NOTHING
        if isinstance(failed, GenerationNotDurable):
            if failed.static_join is not None:
                static_members.undo_static_join(group, failed.static_join)
            rebalance.generation_not_durable(group, builder, self._settings)
        elif isinstance(failed, StaticMemberNotDurable):
            static_members.static_member_not_durable(
                group, failed.static_join, event.error, builder
            )
        elif isinstance(failed, AssignmentNotDurable):
            rebalance.assignment_not_durable(group, builder, self._settings)
        else:
            join.creation_not_durable(group, failed.member_id, event.error, builder)
            self._drop_if_unused(group)
        return builder.outcome()

    # --- helpers -----------------------------------------------------------------------------

    def _member(self, group_id: str, member_id: str) -> tuple[Group, Member] | None:
        """A group and its member; None if the event is stale."""
        group = self._groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return None
        member = group.members.get(member_id)
        return None if member is None else (group, member)

    def _new_group(self, group_id: str, now_ms: int) -> Group:
        group = self._groups[group_id] = Group(group_id, now_ms, self._floor)
        return group

    def _replay_offset(self, record: OffsetRecord) -> None:
        group = self._groups.get(record.group_id)
        offset = record.offset
        if offset is None:
            if group is not None and group.offsets.pop(record.partition, None) is not None:
                self._offset_count -= 1
            return
        if group is None:
            group = self._new_group(record.group_id, offset.commit_time_ms)
        self._offset_count += record.partition not in group.offsets
        group.offsets[record.partition] = offset

    def _raise_floor(self, generation: int) -> None:
        """Raise the generation floor, including that of groups without a record."""
        self._floor = generation
        for group in self._groups.values():
            if group.hard is None:
                group.generation = self._floor

    def _forget(self, group_id: str) -> None:
        """Apply a group's tombstone; its offsets stay until their own tombstones.

        During a load an offset's tombstone may follow, or the offset may have been committed after
        the group was deleted.
        """
        group = self._groups.pop(group_id, None)
        if group is not None and group.offsets:
            self._new_group(group_id, group.state_time_ms).offsets = group.offsets

    def _drop_if_unused(self, group: Group) -> None:
        """Remove an unused group without a record in the log."""
        if group.hard is None and group.is_unused and group.state is GroupState.EMPTY:
            del self._groups[group.group_id]


def _completed(call_id: str, response: object) -> Outcome[LogValue]:
    return Outcome(instructions=(Complete(call_id, response),))


def _failed(call_id: str, error: DroverError) -> Outcome[LogValue]:
    return Outcome(instructions=(Fail(call_id, error),))
