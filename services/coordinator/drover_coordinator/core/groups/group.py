"""One group: its members, its parked calls, and its next record.

Hard state is the last durable record (``hard``) and the fields copied from it: the generation, the
leader, the assignments. Only ``apply`` and ``note`` change it. All other state is soft and lost in
a restart: members that joined after the record, parked calls, pending ids.
"""

from collections import Counter
from dataclasses import dataclass, replace

from drover.model.group import (
    GroupDescription,
    GroupListing,
    GroupState,
    Joined,
    JoinedMember,
    OfferedProtocol,
)
from drover.model.offsets import GroupOffset, TopicPartition
from drover_coordinator.core.groups.member import Member, member_from
from drover_coordinator.core.groups.records import GroupMetadata, MemberRecord
from drover_coordinator.core.groups.states import check_transition
from drover_coordinator.core.groups.supported_protocols import SupportedProtocols

_WITHOUT_MEMBERS = frozenset({GroupState.EMPTY, GroupState.DEAD})
_REBALANCING = frozenset({GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE})
_WITH_PROTOCOL = frozenset({GroupState.COMPLETING_REBALANCE, GroupState.STABLE})


@dataclass(slots=True)
class InitialDelay:
    """The wait for the first members of an empty group (KIP-134).

    Attributes:
        round_ms: The length of this round.
        remaining_ms: The time left for later rounds.
        member_joined: Whether a member joined in this round, so that another round follows.
    """

    round_ms: int
    remaining_ms: int
    member_joined: bool = False


class Group:
    """One group's state. Its rules are in ``rebalance`` and in the modules of the calls."""

    __slots__ = (
        "_parked_join_count",
        "_parked_static_count",
        "change",
        "disconnected",
        "generation",
        "group_id",
        "hard",
        "initial_delay",
        "instances",
        "leader_id",
        "members",
        "offsets",
        "pending",
        "protocol_name",
        "protocol_type",
        "rebalance_began_ms",
        "rebalance_count",
        "rebalance_due_ms",
        "rebalances_ms",
        "state",
        "state_time_ms",
        "supported_protocols",
        "unsynced",
    )

    def __init__(self, group_id: str, now_ms: int, generation: int = 0) -> None:
        self.group_id = group_id
        # hard
        self.hard: GroupMetadata | None = None
        #: the log's generation floor until the group has a record
        self.generation = generation
        self.leader_id = ""
        self.protocol_name = ""
        self.offsets: dict[TopicPartition, GroupOffset] = {}
        # soft
        self.state = GroupState.EMPTY
        self.state_time_ms = now_ms
        self.protocol_type = ""
        self.members: dict[str, Member] = {}
        #: the ids of static members, by instance id
        self.instances: dict[str, str] = {}
        #: issued member ids without a join, and when they expire
        self.pending: dict[str, int] = {}
        #: members of this generation that have not synced
        self.unsynced: set[str] = set()
        #: removed members whose watch had broken, and the generation that they were in
        self.disconnected: dict[str, int] = {}
        self.initial_delay: InitialDelay | None = None
        self.rebalance_due_ms = 0
        #: rebalances that ended on this server, and their total duration
        self.rebalance_count = 0
        self.rebalances_ms = 0
        self.rebalance_began_ms = now_ms
        #: the number of the last notification
        self.change = 0
        self.supported_protocols = SupportedProtocols()
        self._parked_join_count = 0
        self._parked_static_count = 0

    # --- queries -----------------------------------------------------------------------------

    @property
    def is_unused(self) -> bool:
        """Whether the group never had a generation, and has no members, pending ids and offsets.

        Such a group can be removed at once. A group that had a generation has its members' protocol
        type; ``deletion`` removes it and raises the generation floor, so that no generation is
        issued twice.
        """
        had_members = self.hard is not None and self.hard.protocol_type
        return not (had_members or self.members or self.pending or self.offsets)

    @property
    def all_joined(self) -> bool:
        """Whether every member has joined the next generation and no member id is pending."""
        return not self.pending and self._parked_join_count == len(self.members)

    @property
    def max_rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def holder(self, instance_id: str | None) -> Member | None:
        """The static member with the instance id."""
        member_id = None if instance_id is None else self.instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def accepts(self, known: Member | None, max_size: int) -> bool:
        """Whether the group has room for ``known``, or for a new member if None (rule J3).

        In a rebalance members are accepted in the order in which they join, up to ``max_size``;
        room is reserved for absent static members.
        """
        if self.state in _WITHOUT_MEMBERS:
            return True
        if self.state is GroupState.PREPARING_REBALANCE:
            if known is not None:
                return known.join_call_id is not None or self._parked_join_count < max_size
            absent_static_count = len(self.instances) - self._parked_static_count
            return self._parked_join_count + absent_static_count < max_size
        return known is not None or len(self.members) < max_size

    def supports(self, protocol_type: str, protocols: tuple[OfferedProtocol, ...]) -> bool:
        """Whether every member supports one of these protocols (rule J5)."""
        if not self.members:
            return True
        return protocol_type == self.protocol_type and any(
            self.supported_protocols.member_count(protocol.name) == len(self.members)
            for protocol in protocols
        )

    def select_protocol(self) -> str:
        """The protocol that most members prefer, of the ones that all members support (rule B4).

        With equal votes the first one voted for wins.
        """
        candidates = self.supported_protocols.supported_by(len(self.members))
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in candidates)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    # --- soft changes ------------------------------------------------------------------------

    def transition(self, state: GroupState, now_ms: int) -> None:
        """Move to ``state``; AssertionError if the table of states does not allow it."""
        check_transition(self.state, state)
        if state in _REBALANCING and self.state not in _REBALANCING:
            self.rebalance_began_ms = now_ms
        elif state not in _REBALANCING and self.state in _REBALANCING:
            self.rebalance_count += 1
            self.rebalances_ms += now_ms - self.rebalance_began_ms
        self.state = state
        self.state_time_ms = now_ms

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one sets the group's protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self.supported_protocols.add(member)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member; the caller completes or fails its parked calls."""
        del self.members[member.member_id]
        self.unsynced.discard(member.member_id)
        self.supported_protocols.remove(member)
        if member.join_call_id is not None:
            self._count_parked(member, -1)
        if member.instance_id is not None:
            del self.instances[member.instance_id]

    def replace_member(self, old: Member, new: Member) -> None:
        """Replace a static member by another with the same instance id; neither is parked.

        The new member inherits the assignment, and whether the old one has synced.
        """
        assert old.instance_id is not None
        assert old.instance_id == new.instance_id
        assert not old.is_parked
        assert not new.is_parked
        new.assignment = old.assignment
        if old.member_id in self.unsynced:
            self.unsynced.remove(old.member_id)
            self.unsynced.add(new.member_id)
        in_order = [new if each is old else each for each in self.members.values()]
        self.members = {each.member_id: each for each in in_order}
        self.instances[old.instance_id] = new.member_id
        self.supported_protocols.remove(old)
        self.supported_protocols.add(new)

    def update_protocols(self, member: Member, protocols: tuple[OfferedProtocol, ...]) -> None:
        """Replace the protocols of a member."""
        self.supported_protocols.remove(member)
        member.protocols = protocols
        self.supported_protocols.add(member)

    def park_join(self, member: Member, call_id: str) -> None:
        """Park a join until the next generation."""
        if member.join_call_id is None:
            self._count_parked(member, 1)
        member.join_call_id = call_id

    def unpark_join(self, member: Member) -> str:
        """Unpark the member's join; returns its call id, which the caller completes or fails."""
        call_id = member.join_call_id
        assert call_id is not None, f"{member.member_id} has no parked join"
        member.join_call_id = None
        self._count_parked(member, -1)
        return call_id

    def _count_parked(self, member: Member, change: int) -> None:
        self._parked_join_count += change
        if member.instance_id is not None:
            self._parked_static_count += change

    # --- records and hard changes ------------------------------------------------------------

    def as_created(self, now_ms: int) -> GroupMetadata:
        """The record of a new group, which has no members."""
        return GroupMetadata(
            protocol_type="",
            generation=self.generation,
            protocol_name="",
            leader_id="",
            state_timestamp_ms=now_ms,
        )

    def as_next_generation(self, now_ms: int) -> GroupMetadata:
        """The record of the next generation, with the current members."""
        if not self.members:
            return GroupMetadata(
                protocol_type=self.protocol_type,
                generation=self.generation + 1,
                protocol_name="",
                leader_id="",
                state_timestamp_ms=now_ms,
            )
        leader = self.members.get(self._current_leader_id)
        if leader is None or leader.join_call_id is None:
            leader = next(each for each in self.members.values() if each.join_call_id is not None)
        return GroupMetadata(
            protocol_type=self.protocol_type,
            generation=self.generation + 1,
            protocol_name=self.select_protocol(),
            leader_id=leader.member_id,
            state_timestamp_ms=now_ms,
            members=tuple(member.record() for member in self.members.values()),
        )

    def as_assigned(self, assignments: dict[str, bytes], now_ms: int) -> GroupMetadata:
        """The record of this generation with the leader's assignments, empty where it has none."""
        return GroupMetadata(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id,
            state_timestamp_ms=now_ms,
            members=tuple(
                member.record(assignments.get(member.member_id, b""))
                for member in self.members.values()
            ),
            assigned=True,
        )

    @property
    def _current_leader_id(self) -> str:
        """The leader's id; if a static member has replaced it since the last record, that id."""
        for record in self.hard.members if self.hard else ():
            if record.member_id == self.leader_id and record.instance_id is not None:
                return self.instances.get(record.instance_id, self.leader_id)
        return self.leader_id

    def durable_holder(self, instance_id: str) -> str | None:
        """The member id of an instance id in the last record."""
        for record in self.hard.members if self.hard else ():
            if record.instance_id == instance_id:
                return record.member_id
        return None

    def as_member_replaced(self, holder: Member) -> GroupMetadata:
        """The last record with ``holder`` as the member of its instance id.

        Generation and assignment stay. The holder's protocols and timeouts enter the record only in
        a stable group, because they have to match the selected protocol.
        """
        hard = self.hard
        assert hard is not None
        old_id = self.durable_holder(holder.instance_id or "")
        is_stable = self.state is GroupState.STABLE

        def replaced(record: MemberRecord) -> MemberRecord:
            if record.member_id != old_id:
                return record
            if is_stable:
                return holder.record(record.assignment)
            return replace(record, member_id=holder.member_id)

        return replace(
            hard,
            leader_id=holder.member_id if hard.leader_id == old_id else hard.leader_id,
            members=tuple(replaced(record) for record in hard.members),
        )

    def apply(self, metadata: GroupMetadata) -> None:
        """Apply a durable record to the hard state and the members.

        It does not change ``state``: ``rebalance`` sets it live, ``restore`` after a load.
        """
        self.note(metadata)
        self.protocol_type = metadata.protocol_type
        before = self.members
        self.members = {}
        self.instances = {}
        self.supported_protocols = SupportedProtocols()
        for record in metadata.members:
            member = before.get(record.member_id) or member_from(record)
            member.assignment = record.assignment
            self.members[member.member_id] = member
            self.supported_protocols.add(member)
            if member.instance_id is not None:
                self.instances[member.instance_id] = member.member_id

    def load(self, metadata: GroupMetadata) -> None:
        """Apply a record during the load; its members replace all earlier ones."""
        self.members = {}
        self.apply(metadata)

    def note(self, metadata: GroupMetadata) -> None:
        """Apply a durable record to the hard state, but not to the members.

        Hard state changes nowhere else.
        """
        self.hard = metadata
        self.generation = metadata.generation
        self.leader_id = metadata.leader_id
        self.protocol_name = metadata.protocol_name

    def restore(self) -> None:
        """Derive ``state`` from the last record after the load."""
        if self.hard is not None:
            self.state_time_ms = self.hard.state_timestamp_ms
        if self.hard is None or not self.members:
            self.state = GroupState.EMPTY
        elif self.hard.assigned:
            self.state = GroupState.STABLE
        else:
            self.state = GroupState.COMPLETING_REBALANCE

    # --- responses ---------------------------------------------------------------------------

    def joined(self, member: Member, metadata: GroupMetadata) -> Joined:
        """The response to a join of the generation in ``metadata``."""
        members: tuple[JoinedMember, ...] = ()
        disconnected: tuple[str, ...] = ()
        if member.member_id == metadata.leader_id:
            disconnected = tuple(
                sorted(
                    member_id
                    for member_id, generation in self.disconnected.items()
                    if generation == metadata.generation - 1
                )
            )
            members = tuple(
                JoinedMember(
                    each.member_id, each.metadata_of(metadata.protocol_name), each.instance_id
                )
                for each in self.members.values()
            )
        return Joined(
            generation=metadata.generation,
            member_id=member.member_id,
            leader_id=metadata.leader_id,
            protocol_type=metadata.protocol_type,
            protocol_name=metadata.protocol_name,
            members=members,
            disconnected_member_ids=disconnected,
        )

    def note_disconnected(self, member_id: str) -> None:
        """Remember a member that disconnected, for the next leader's JoinGroup response."""
        current = {m: at for m, at in self.disconnected.items() if at == self.generation}
        self.disconnected = {**current, member_id: self.generation}

    def describe(self) -> GroupDescription:
        """The group's description (rule A1)."""
        stable = self.state is GroupState.STABLE
        return GroupDescription(
            group_id=self.group_id,
            state=self.state,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name if stable else "",
            generation=self.generation,
            leader_id=self.leader_id,
            members=tuple(
                self.members[member_id].describe(self.protocol_name if stable else None)
                for member_id in sorted(self.members)
            ),
            state_change_time_ms=self.state_time_ms,
        )

    def listing(self) -> GroupListing:
        """The group's entry in a list of groups."""
        return GroupListing(
            group_id=self.group_id,
            state=self.state,
            protocol_type=self.protocol_type,
            member_count=len(self.members),
            generation=self.generation,
        )

    # --- invariants --------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        where = f"group {self.group_id!r} in {self.state}"
        hard = self.hard
        assert hard is None or self.generation == hard.generation, where
        assert self.leader_id == (hard.leader_id if hard else ""), where
        assert self.protocol_name == (hard.protocol_name if hard else ""), where
        assert not self.members.keys() & self.pending.keys(), f"{where}: pending members"
        assert self.unsynced <= self.members.keys(), f"{where}: an unsynced id is not a member"
        instances = {
            each.instance_id: each.member_id
            for each in self.members.values()
            if each.instance_id is not None
        }
        assert instances == self.instances, f"{where}: {self.instances} hold instance ids"
        for record in hard.members if hard else ():
            holder_id = self.instances.get(record.instance_id or "", record.member_id)
            assert holder_id == record.member_id, f"{where}: holder {holder_id} is not in the log"
        if self.state in _WITHOUT_MEMBERS:
            assert self.state is GroupState.DEAD or not self.members, f"{where}: has members"
        if self.state in _WITH_PROTOCOL:
            assert hard is not None, where
            assert self.leader_id in self.members, f"{where}: the leader is not a member"
            assert set(self.members) == {each.member_id for each in hard.members}, where
            assert hard.assigned == (self.state is GroupState.STABLE), where
            assert not any(each.is_new for each in self.members.values()), where
            assert self.supported_protocols.member_count(self.protocol_name) == len(self.members), (
                where
            )
        else:
            assert not self.unsynced, f"{where}: members wait to sync without a generation"
        if self.state is GroupState.PREPARING_REBALANCE and self.initial_delay is None:
            assert not (self.members and self.all_joined), f"{where}: all members have joined"
        else:
            assert self.state is GroupState.PREPARING_REBALANCE or self.initial_delay is None, where
        self._validate_members(where)

    def _validate_members(self, where: str) -> None:
        parked: list[str] = []
        for member_id, member in self.members.items():
            assert member.member_id == member_id, where
            if member.join_call_id is not None:
                assert self.state is GroupState.PREPARING_REBALANCE, f"{where}: a join waits"
                parked.append(member.join_call_id)
            if member.sync_call_id is not None:
                assert self.state is GroupState.COMPLETING_REBALANCE, f"{where}: a sync waits"
                assert member_id not in self.unsynced, where
                parked.append(member.sync_call_id)
            if not member.is_parked and self.state is not GroupState.DEAD:
                assert member.timer_at_ms is not None, f"{where}: {member_id} has no session timer"
                assert member.timer_at_ms <= member.alive_until_ms, f"{where}: {member_id}"
        assert self.supported_protocols == SupportedProtocols(self.members.values()), (
            f"{where}: protocols are miscounted"
        )
        assert len(parked) == len(set(parked)), f"{where}: a call is parked twice"
        joined = [each for each in self.members.values() if each.join_call_id is not None]
        assert len(joined) == self._parked_join_count, where
        static = [member for member in joined if member.instance_id is not None]
        assert len(static) == self._parked_static_count, where
