"""Random histories of a group, checked with a simple model of membership.

The model has none of the machine's states, timers or parked calls. From outside it tracks each
member's requests and last contact, and checks:

- a generation consists of exactly the members whose joins were parked when it was stored;
- a member is removed only because it left, exceeded its session, or missed a rebalance or a sync;
- a static member's place keeps its assignment, and its leadership, whichever process holds it;
- a member that received FENCED_INSTANCE_ID is never a member again, also across restarts;
- a generation has no more members than the group's maximum;
- generations never decrease, each has one leader, and an assignment is sent only in its own;
- every call is answered at most once (the harness checks this), also across restarts.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drover.errors import Reason, UnavailableError
from drover.model.group import (
    GroupState,
    Joined,
    LeaveOutcome,
    LeavingMember,
    MemberIdRequired,
    OfferedProtocol,
    Synced,
)
from drover_coordinator.core.groups.events import JoinGroup, SyncGroup
from drover_coordinator.core.groups.records import FloorRecord, GroupMetadata, GroupRecord
from drover_coordinator.core.groups.settings import GroupSettings
from tests.support.group_harness import DISK_FULL, Call, GroupHarness

SESSION_MS = 10_000
REBALANCE_MS = 20_000
GRACE_MS = 1_000
OFFERS = tuple(
    (OfferedProtocol("p", version), OfferedProtocol("q", version)) for version in (b"1", b"2")
)
picks = st.integers(0, 1_000)


class GroupLife(RuleBasedStateMachine):
    """Members that join and leave, a coordinator that crashes, a disk that fails."""

    @initialize(
        delay_ms=st.sampled_from([0, 3_000]),
        max_size=st.sampled_from([3, 100]),
        member_count=st.integers(0, 3),
    )
    def start(self, delay_ms: int, max_size: int, member_count: int) -> None:
        self.group = GroupHarness(
            GroupSettings(
                initial_rebalance_delay_ms=delay_ms,
                disconnect_grace_ms=GRACE_MS,
                group_max_size=max_size,
                offsets_retention_check_ms=30_000,  # an empty group is removed quickly
            )
        )
        self.ids: list[str] = []
        self.waiting: list[Call] = []
        self.generation_of: dict[str, int] = {}  # as each member believes
        #: by place: the instance id of a static member, the member id of another
        self.leaders: dict[int, str] = {}
        #: by generation: its places, and the holder of each when the leader received the members
        self.members_told: dict[int, dict[str, str]] = {}
        self.instances: dict[str, str] = {}
        self.fenced: set[str] = set()
        self.last: GroupMetadata | None = None
        self.heard_ms: dict[str, int] = {}
        self.graced: set[str] = set()
        self.left: set[str] = set()
        self.highest = 0
        self.floor = 0
        self.seen_records = 0
        for _ in range(member_count):
            self.newcomer_joins()
        self.settle()

    # --- what members do ---------------------------------------------------------------------

    @rule()
    def newcomer(self) -> None:
        new_id = f"m{len(self.ids)}"
        call = self.call(self.group.first_join(new_id, session_ms=SESSION_MS, protocols=OFFERS[0]))
        if call.responses:
            assert call.response == MemberIdRequired(new_id)
            self.ids.append(new_id)

    @rule()
    def newcomer_joins(self) -> None:
        """Both joins in one step: random steps seldom produce the sequence."""
        known = len(self.ids)
        self.newcomer()
        if len(self.ids) > known:
            self.join(known, version=0, patience_ms=60_000)

    @rule(instance=st.sampled_from(["A", "B"]), patience_ms=st.sampled_from([500, 60_000]))
    def static_process_starts(self, instance: str, patience_ms: int) -> None:
        new_id = f"{instance}{len(self.ids)}"
        self.ids.append(new_id)
        self.instances[new_id] = instance
        self.call(
            self.group.join_static(
                new_id,
                instance,
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
                protocols=OFFERS[0],
                patience_ms=patience_ms,
            )
        )

    @precondition(lambda self: self.instances)
    @rule(pick=picks)
    def static_member_beats(self, pick: int) -> None:
        """With its instance id: the response may be FENCED_INSTANCE_ID."""
        member_id = sorted(self.instances)[pick % len(self.instances)]
        generation = self.group.describe().generation
        instance_id = self.instances[member_id]
        self.call(self.group.heartbeat(member_id, generation, instance_id=instance_id))

    @rule(instance=st.sampled_from(["A", "B"]))
    def place_is_left(self, instance: str) -> None:
        held = {each.instance_id: each.member_id for each in self.group.describe().members}
        call = self.call(self.group.leave(LeavingMember("", instance)))
        if call.responses:
            outcome = call.responses[0][0].outcome  # type: ignore[index]
            assert (outcome is LeaveOutcome.LEFT) == (instance in held)
        self.left.update(held[instance] for _ in [0] if instance in held)

    @rule()
    def settle(self) -> None:
        """Each member does what the protocol requires, until the group is stable."""
        for _ in range(4):
            members = self.group.describe()
            waits = {self.caller(call) for call in self.waiting}
            for member_id in sorted({each.member_id for each in members.members} - waits):
                if members.state is GroupState.PREPARING_REBALANCE:
                    self.join(self.ids.index(member_id), version=0, patience_ms=60_000)
                elif members.state is GroupState.COMPLETING_REBALANCE:
                    self.generation_of[member_id] = members.generation
                    self.sync(sorted(self.generation_of).index(member_id), stale=False)
            if members.state is GroupState.PREPARING_REBALANCE:
                self.time_passes(3_000)

    @precondition(lambda self: self.ids)
    @rule(pick=picks, version=st.integers(0, 1), patience_ms=st.sampled_from([500, 4_000, 60_000]))
    def join(self, pick: int, version: int, patience_ms: int) -> None:
        member_id = self.ids[pick % len(self.ids)]
        self.call(
            self.group.join(
                member_id,
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
                protocols=OFFERS[version],
                patience_ms=patience_ms,
            )
        )

    @precondition(lambda self: self.generation_of)
    @rule(pick=picks, stale=st.booleans())
    def sync(self, pick: int, stale: bool) -> None:
        member_id = self.pick_member(pick)
        generation = self.generation_of[member_id] - stale
        leads = self.leaders.get(generation) == self.place(member_id)
        members = self.members_told.get(generation, {}) if leads else {}
        assignments = {
            member: f"{generation}:{place}".encode() for place, member in sorted(members.items())
        }
        self.call(self.group.sync(member_id, generation, assignments))

    @precondition(lambda self: self.generation_of)
    @rule(pick=picks)
    def heartbeat(self, pick: int) -> None:
        member_id = self.pick_member(pick)
        self.call(self.group.heartbeat(member_id, self.generation_of[member_id]))

    @precondition(lambda self: self.ids)
    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        member_id = self.ids[pick % len(self.ids)]
        call = self.call(self.group.leave(member_id))
        if call.responses:
            outcome = call.responses[0][0].outcome  # type: ignore[index]
            assert outcome in (LeaveOutcome.LEFT, LeaveOutcome.UNKNOWN_MEMBER_ID)
        self.left.add(member_id)

    @precondition(lambda self: self.generation_of)
    @rule(pick=picks)
    def watch(self, pick: int) -> None:
        self.call(self.group.watch(self.pick_member(pick)))

    @precondition(lambda self: self.generation_of)
    @rule(pick=picks)
    def break_watch(self, pick: int) -> None:
        member_id = self.pick_member(pick)
        self.group.break_watch(member_id)
        self.graced.add(member_id)
        self.look()

    @precondition(lambda self: self.waiting)
    @rule(pick=picks)
    def abandon(self, pick: int) -> None:
        call = self.waiting[pick % len(self.waiting)]
        self.group.abandon(call)
        if isinstance(call.event, SyncGroup):
            self.waiting.remove(call)  # the caller gets no response
        self.heard(self.caller(call))
        self.look()

    @precondition(lambda self: self.generation_of)
    @rule(pick=picks)
    def one_misses_a_rebalance(self, pick: int) -> None:
        """A live member does not join before the rebalance timeout."""
        absent = self.pick_member(pick)
        self.newcomer_joins()
        for member_id in self.group.member_ids():
            if member_id != absent:
                self.join(self.ids.index(member_id), version=0, patience_ms=60_000)
        for _ in range(4):
            self.time_passes(REBALANCE_MS // 4)
            self.call(self.group.heartbeat(absent, self.generation_of[absent]))

    # --- what the world does -----------------------------------------------------------------

    @rule(duration_ms=st.sampled_from([1, 500, 1_000, 3_000, 9_999, 20_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.group.advance(duration_ms)
        self.look()

    @rule()
    def append_fails_next_time(self) -> None:
        self.group.append_error = DISK_FULL

    @rule()
    def coordinator_crashes(self) -> None:
        before = {
            record.group_id: record.metadata
            for record in self.group.records
            if isinstance(record, GroupRecord)
        }
        self.group.append_error = None
        self.group.restart()
        self.waiting.clear()
        description = self.group.describe()
        metadata = before.get("g")
        if metadata is not None:
            assert description.generation == metadata.generation
            assert {each.member_id for each in description.members} == {
                each.member_id for each in metadata.members
            }
            for member in metadata.members:
                self.heard_ms[member.member_id] = self.group.now_ms
                self.left.discard(member.member_id)  # it left a generation that is still current
        self.look()

    # --- the model ---------------------------------------------------------------------------

    def pick_member(self, pick: int) -> str:
        ids = sorted(self.generation_of)
        return ids[pick % len(ids)]

    def place(self, member_id: str) -> str:
        return self.instances.get(member_id, member_id)

    @staticmethod
    def caller(call: Call) -> str:
        """The member of a call; the first join of a static member belongs to its new id."""
        event = call.event
        if isinstance(event, JoinGroup) and event.instance_id is not None:
            return event.member_id or event.new_member_id
        return getattr(event, "member_id", "")

    def heard(self, member_id: str) -> None:
        self.heard_ms[member_id] = self.group.now_ms

    def call(self, call: Call) -> Call:
        self.waiting.append(call)
        self.look()
        return call

    def look(self) -> None:
        """Process durable records first, and responses second."""
        joining = {
            self.caller(call)
            for call in self.waiting
            if isinstance(call.event, JoinGroup) and (call.waits or self.is_joined(call))
        }
        for record in self.group.records[self.seen_records :]:
            if isinstance(record, FloorRecord):
                self.floor = record.generation
            if not isinstance(record, GroupRecord):
                continue
            metadata = record.metadata
            if metadata is None:
                assert self.highest == self.floor, "a generation was forgotten"
                continue
            assert metadata.generation >= self.highest, "a generation went back"
            last, self.last = self.last, metadata
            if last is not None and self.is_handed_over(last, metadata):
                continue
            if metadata.assigned:
                assert metadata.generation == self.highest, "an old generation was assigned"
                for member in metadata.members:
                    told = f"{metadata.generation}:{self.place(member.member_id)}".encode()
                    assert member.assignment in (b"", told), "an assignment leaked"
                continue
            assert metadata.generation in (self.highest, self.highest + 1)
            assert metadata.generation > self.highest or metadata.generation == self.floor
            self.highest = metadata.generation
            assert len(metadata.members) <= self.group.settings.group_max_size
            assert {
                each.member_id for each in metadata.members if each.instance_id is None
            } <= joining
            assert metadata.leader_id in {"", *joining}
        self.seen_records = len(self.group.records)
        for call in [each for each in self.waiting if not each.waits]:
            self.waiting.remove(call)
            self.answered(call)

    def is_handed_over(self, last: GroupMetadata, metadata: GroupMetadata) -> bool:
        """Whether only the holder of a place changed; everything else must be the same."""
        if (last.generation, last.assigned) != (metadata.generation, metadata.assigned):
            return False
        places = [(self.place(each.member_id), each.assignment) for each in last.members]
        assert places == [(self.place(m.member_id), m.assignment) for m in metadata.members]
        assert self.place(last.leader_id) == self.place(metadata.leader_id)
        return True

    @staticmethod
    def is_joined(call: Call) -> bool:
        return bool(call.responses) and isinstance(call.responses[0], Joined)

    def answered(self, call: Call) -> None:
        member_id = self.caller(call)
        if call.errors:
            error = call.errors[0]
            if error.reason is Reason.FENCED_INSTANCE_ID:
                self.fenced.add(member_id)
            if isinstance(error, UnavailableError) and member_id in self.group.member_ids():
                self.heard(member_id)  # its parked call ended
            return
        self.heard(member_id)
        if isinstance(call.event, JoinGroup | SyncGroup) or call.responses[0] is not None:
            self.graced.discard(member_id)
        match call.responses[0]:
            case Joined() as joined:
                assert joined.generation <= self.highest, "answered before it was durable"
                assert joined.generation >= self.generation_of.get(member_id, 0)
                self.generation_of[member_id] = joined.generation
                leads = self.place(joined.leader_id)
                leader = self.leaders.setdefault(joined.generation, leads)
                assert leader == leads, "a generation has two leaders"
                assert bool(joined.members) == (joined.leader_id == member_id)
                if joined.members:
                    told = {self.place(each.member_id): each.member_id for each in joined.members}
                    before = self.members_told.get(joined.generation, told)
                    assert before.keys() == told.keys()
                    self.members_told[joined.generation] = told
            case Synced(assignment):
                assert isinstance(call.event, SyncGroup)
                told_here = f"{call.event.generation}:{self.place(member_id)}".encode()
                assert assignment in (b"", told_here), "an assignment leaked"

    @invariant()
    def nobody_stays_who_left(self) -> None:
        if hasattr(self, "group"):
            assert not self.left & set(self.group.member_ids())

    @invariant()
    def nobody_comes_back_who_was_fenced(self) -> None:
        if hasattr(self, "group"):
            assert not self.fenced & set(self.group.member_ids())

    @invariant()
    def nobody_goes_without_a_reason(self) -> None:
        """In a stable group, each removed member had left or had exceeded its session."""
        if not hasattr(self, "group"):
            return
        description = self.group.describe()
        present = {self.place(each.member_id) for each in description.members}
        if description.state is not GroupState.STABLE:
            return
        told = self.members_told.get(description.generation)
        assert told is None or told.keys() == present, (
            "a stable group differs from its leader's member list"
        )

    @invariant()
    def nobody_silent_stays(self) -> None:
        """A member without contact for a session and without a parked call is removed."""
        if not hasattr(self, "group"):
            return
        waits = {self.caller(call) for call in self.waiting}
        for member_id in sorted(set(self.group.member_ids()) - waits):
            silent_ms = self.group.now_ms - self.heard_ms.get(member_id, self.group.now_ms)
            assert silent_ms < SESSION_MS, f"{member_id} was silent for {silent_ms} ms"


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(max_examples=100, stateful_step_count=40)
