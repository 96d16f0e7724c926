"""The group machine against a simple model of membership: same responses, members and states.

Both execute every action of members and environment in any order: dynamic and static joins, syncs,
heartbeats, leaves by either id, cancelled calls, time, failed appends, crashes. After each step all
responses so far, and the operator's view of the group, must be equal.

Two timers with the same deadline may fire in either order, so such a run is rejected. The durations
make this rare: each is a multiple of 128 ms plus its own power of two.
"""

from typing import Any

from hypothesis import reject, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from drover.errors import DroverError
from drover.model.group import (
    GroupState,
    Joined,
    LeaveResult,
    LeavingMember,
    MemberIdRequired,
    OfferedProtocol,
    RebalanceInProgress,
    RetryJoin,
    Synced,
)
from drover_coordinator.core.groups.settings import GroupSettings
from tests.support.group_harness import DISK_FULL, START_MS, Call, GroupHarness
from tests.support.naive_group import NaiveGroup
from tests.support.naive_people import Answer, Offers, Stored

TICK_MS = 128
SESSIONS_MS = (78 * TICK_MS + 1, 234 * TICK_MS + 2)
REBALANCES_MS = (156 * TICK_MS + 4, 350 * TICK_MS + 8)
DELAY_MS = 24 * TICK_MS + 16
PATIENCES_MS = (40 * TICK_MS + 32, 500 * TICK_MS + 64)
SESSION_MIN_MS = 46 * TICK_MS + 112
STEPS_MS = tuple(count * TICK_MS for count in (1, 4, 24, 25, 41, 79, 157, 235, 351))

OFFERS: tuple[Offers, ...] = (
    (("p", b"1"), ("q", b"1")),
    (("p", b"2"), ("q", b"1")),
    (("q", b"1"), ("p", b"1")),
    (("q", b"1"),),
    (("r", b"1"),),
)
INSTANCES = ("A", "B", "C")
often_first = st.sampled_from([0] * 8 + [1, 2, 3, 4])
picks = st.integers(0, 1_000)
coins = st.integers(0, 1)


class GroupAgainstModel(RuleBasedStateMachine):
    """Executes every action on both, and compares."""

    @initialize(delayed=st.booleans(), max_size=st.sampled_from([2, 3, 100]))
    def start(self, delayed: bool, max_size: int) -> None:
        delay_ms = DELAY_MS if delayed else 0
        self.group = GroupHarness(
            GroupSettings(
                session_timeout_min_ms=SESSION_MIN_MS,
                initial_rebalance_delay_ms=delay_ms,
                group_max_size=max_size,
                offsets_retention_check_ms=10**12,
            )
        )
        self.model = NaiveGroup(delay_ms=delay_ms, max_size=max_size, session_min_ms=SESSION_MIN_MS)
        self.model.now = START_MS
        #: every member id passed to a call, with its intended instance id
        self.names: dict[str, str | None] = {}
        #: the last generation that each member received
        self.generations: dict[str, int] = {}
        self.open: dict[str, Call] = {}

    # --- joins -------------------------------------------------------------------------------

    @rule(offers=often_first, session=coins, rebalance=coins, patience=coins)
    def newcomer(self, offers: int, session: int, rebalance: int, patience: int) -> None:
        name = self.new_name(None)
        self.join("", name, None, (offers, session, rebalance, patience))

    @rule(offers=often_first, session=coins, rebalance=coins)
    def newcomer_enters(self, offers: int, session: int, rebalance: int) -> None:
        """Both joins in one step: random steps seldom produce the sequence."""
        name = self.new_name(None)
        self.join("", name, None, (offers, session, rebalance, 1))
        self.join(name, "", None, (offers, session, rebalance, 1))

    @rule(
        instance=st.sampled_from(INSTANCES),
        offers=often_first,
        session=coins,
        rebalance=coins,
        patience=coins,
    )
    def static_process_starts(
        self, instance: str, offers: int, session: int, rebalance: int, patience: int
    ) -> None:
        name = self.new_name(instance)
        self.join("", name, instance, (offers, session, rebalance, patience))

    @precondition(lambda self: self.names)
    @rule(pick=picks, offers=often_first, patience=coins, named=st.booleans())
    def joins_again(self, pick: int, offers: int, patience: int, named: bool) -> None:
        name = self.pick(pick)
        instance = self.names[name] if named else None
        self.join(name, "", instance, (offers, 0, 0, patience))

    @rule()
    def all_join_again(self) -> None:
        for name in list(self.model.people):
            if self.model.state == "PREPARING_REBALANCE" and name in self.model.people:
                person = self.model.people[name]
                if person.joining is None:
                    self.join(name, "", person.word.instance, (0, 0, 0, 1))

    @rule(count=st.integers(1, 3), static=st.booleans())
    def a_stable_group_comes_about(self, count: int, static: bool) -> None:
        for instance in INSTANCES[:count]:
            if static:
                self.static_process_starts(instance, 0, 1, 0, 1)
            else:
                self.newcomer_enters(0, 1, 0)
        for _ in range(3):
            self.all_join_again()
            self.time_passes(25 * TICK_MS)
        self.all_sync()

    # --- other calls -------------------------------------------------------------------------

    @precondition(lambda self: self.names)
    @rule(pick=picks, stale=st.integers(0, 3), named=st.booleans())
    def sync(self, pick: int, stale: int, named: bool) -> None:
        name = self.pick(pick)
        self.do_sync(name, self.generation(name, stale), self.names[name] if named else None)

    @rule()
    def all_sync(self) -> None:
        for name in list(self.model.people):
            self.do_sync(name, self.generation(name, 1), self.names[name])

    @precondition(lambda self: self.names)
    @rule(pick=picks, stale=st.integers(0, 3), named=st.booleans())
    def heartbeat(self, pick: int, stale: int, named: bool) -> None:
        name = self.pick(pick)
        generation, instance = self.generation(name, stale), self.names[name] if named else None
        call = self.group.heartbeat(name, generation, instance_id=instance)
        self.model.heartbeat(call.call_id, name, generation, instance)
        self.compare(call)

    @precondition(lambda self: self.names)
    @rule(
        picked=st.lists(st.tuples(picks, st.sampled_from(["name", "instance", "both"])), max_size=3)
    )
    def leave(self, picked: list[tuple[int, str]]) -> None:
        leavers: list[tuple[str, str | None]] = []
        for pick, by in picked:
            name = self.pick(pick)
            instance = self.names[name]
            if instance is None or by == "name":
                leavers.append((name, None))
            else:
                leavers.append(("" if by == "instance" else name, instance))
        if leavers:
            call = self.group.leave(*(LeavingMember(*each) for each in leavers))
            self.model.leave(call.call_id, leavers)
            self.compare(call)

    @precondition(lambda self: any(self.names.values()))
    @rule(pick=picks, what=st.sampled_from(["heartbeat", "sync", "join", "leave"]))
    def one_that_may_be_fenced_shows_up(self, pick: int, what: str) -> None:
        """A call by a static member that a later process may have fenced."""
        names = [name for name, instance in self.names.items() if instance is not None]
        name = names[pick % len(names)]
        instance, generation = self.names[name], self.generation(name, 1)
        if what == "join":
            self.join(name, "", instance, (0, 0, 0, 1))
        elif what == "sync":
            self.do_sync(name, generation, instance)
        elif what == "leave":
            call = self.group.leave(LeavingMember(name, instance))
            self.model.leave(call.call_id, [(name, instance)])
            self.compare(call)
        else:
            call = self.group.heartbeat(name, generation, instance_id=instance)
            self.model.heartbeat(call.call_id, name, generation, instance)
            self.compare(call)

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def caller_goes_away(self, pick: int) -> None:
        call = list(self.open.values())[pick % len(self.open)]
        self.group.abandon(call)
        self.model.abandon(call.call_id)
        self.compare()
        self.open.pop(call.call_id, None)

    # --- the world ---------------------------------------------------------------------------

    @rule(duration_ms=st.sampled_from(STEPS_MS))
    def time_passes(self, duration_ms: int) -> None:
        self.model.advance(duration_ms)
        if self.model.tied:
            reject()
        self.group.advance(duration_ms)
        self.compare()

    @rule(step_ms=st.sampled_from(STEPS_MS[:5]))
    def time_passes_with_heartbeats(self, step_ms: int) -> None:
        """Two members send heartbeats and outlive their session timeout."""
        self.time_passes(step_ms)
        for name in list(self.model.people)[:2]:
            generation = self.generation(name, 1)
            call = self.group.heartbeat(name, generation)
            self.model.heartbeat(call.call_id, name, generation, None)
            self.compare(call)

    @rule()
    def the_next_append_fails(self) -> None:
        self.group.append_error = DISK_FULL
        self.model.write_fails = True

    @rule()
    def the_coordinator_crashes(self) -> None:
        self.group.append_error = None
        self.model.write_fails = False
        self.group.restart()
        self.model.restart()
        self.open.clear()
        self.compare()

    # --- both at once ------------------------------------------------------------------------

    def new_name(self, instance: str | None) -> str:
        name = f"{instance or 'm'}{len(self.names)}"
        self.names[name] = instance
        return name

    def pick(self, pick: int) -> str:
        """A name; present members are more likely than past ones."""
        present = sorted(self.model.people)
        names = present if present and pick % 3 else sorted(self.names)
        return names[pick // 3 % len(names)]

    def generation(self, name: str, stale: int) -> int:
        """The member's own generation or the current one; sometimes an invalid one."""
        present = self.model.log.generation if self.model.log else 0
        return self.generations.get(name, 0) if stale == 0 else present - (stale == 3)

    def join(
        self, name: str, new_name: str, instance: str | None, how: tuple[int, int, int, int]
    ) -> None:
        offers, session, rebalance, patience = how
        session_ms, rebalance_ms = SESSIONS_MS[session], REBALANCES_MS[rebalance]
        call = self.group.join(
            name,
            new_id=new_name,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            patience_ms=PATIENCES_MS[patience],
            protocols=tuple(OfferedProtocol(*each) for each in OFFERS[offers]),
            instance_id=instance,
        )
        word = Stored(instance, OFFERS[offers], session_ms, rebalance_ms)
        self.model.join(call.call_id, name, new_name, word, PATIENCES_MS[patience])
        self.compare(call)

    def do_sync(self, name: str, generation: int, instance: str | None) -> None:
        assignments = {each: f"{generation}:{each}".encode() for each in self.model.people}
        call = self.group.sync(name, generation, assignments, instance_id=instance)
        self.model.sync(call.call_id, name, generation, instance, assignments)
        self.compare(call)

    def compare(self, call: Call | None = None) -> None:
        if call is not None:
            self.open[call.call_id] = call
        for each in list(self.open.values()):
            said = answer(each)
            assert said == self.model.answers.get(each.call_id), each.event
            if said is not None:
                del self.open[each.call_id]
                if said[0] == "joined":
                    self.generations[said[2]] = said[1]
        assert seen(self.group) == self.model.seen()


def answer(call: Call) -> Answer | None:
    """A call's response in the model's terms."""
    if call.waits:
        return None
    if call.errors:
        error: DroverError = call.errors[0]
        return ("error", str(error.reason))
    match call.response:
        case Joined() as joined:
            members = tuple((m.member_id, m.metadata, m.instance_id) for m in joined.members)
            assert joined.protocol_type == "connect"
            return (
                "joined",
                joined.generation,
                joined.member_id,
                joined.leader_id,
                joined.protocol_name,
                members,
                joined.skip_assignment,
            )
        case MemberIdRequired(member_id):
            return ("id", member_id)
        case RetryJoin(member_id):
            return ("retry", member_id)
        case Synced(assignment):
            return ("assigned", assignment)
        case RebalanceInProgress():
            return ("rebalance",)
        case bool(rejoin):
            return ("alive", rejoin)
        case tuple(results):
            return ("left", tuple(left(each) for each in results))
    raise AssertionError(f"no words for {call.response}")


def left(result: LeaveResult) -> tuple[str, str]:
    return result.member_id, str(result.outcome)


def seen(group: GroupHarness) -> dict[str, Any]:
    """The group as an operator sees it, in the model's terms."""
    described = group.describe()
    if described.state is GroupState.DEAD:
        return {"state": "DEAD"}
    return {
        "state": str(described.state),
        "generation": described.generation,
        "leader": described.leader_id,
        "members": {
            each.member_id: (
                each.instance_id,
                each.session_timeout_ms,
                each.rebalance_timeout_ms,
                each.metadata,
                each.assignment,
            )
            for each in described.members
        },
    }


TestGroupAgainstModel = GroupAgainstModel.TestCase
TestGroupAgainstModel.settings = settings(max_examples=100, stateful_step_count=40)
