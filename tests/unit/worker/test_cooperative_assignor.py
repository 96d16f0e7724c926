"""The incremental cooperative assignor: loads after each round, and delays."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.core.rebalance.cooperative_assignor import CooperativeAssignor, Round

MAX_DELAY_MS = 300_000


class Group:
    """Members that apply the assignments of the leader's assignor."""

    def __init__(self, *members: str, max_delay_ms: int = MAX_DELAY_MS) -> None:
        self.max_delay_ms = max_delay_ms
        self.assignor = CooperativeAssignor(max_delay_ms)
        self.held: dict[str, set[StatusKey]] = {member: set() for member in members}
        self.draining: set[str] = set()
        #: members whose processes are known to have ended since the last round
        self.disconnected: set[str] = set()
        self.configured: set[StatusKey] = set()
        self.generation = 0
        self.now_ms = 1_000_000
        self.delay_ms = 0
        #: how many connectors and tasks were stopped in the last round
        self.stop_count = 0
        #: how often each was stopped in all rounds
        self.stops: Counter[StatusKey] = Counter()

    def add_connector(self, name: str, task_count: int) -> None:
        self.configured |= {name, *(TaskId(name, index) for index in range(task_count))}

    def remove_connector(self, name: str) -> None:
        self.configured = {
            key for key in self.configured if name not in (key, getattr(key, "connector", None))
        }

    def join(self, *members: str) -> None:
        self.held.update({member: set() for member in members})

    def leave(self, member: str) -> set[StatusKey]:
        self.draining.discard(member)
        return self.held.pop(member)

    def die(self, member: str) -> set[StatusKey]:
        self.disconnected.add(member)
        return self.leave(member)

    def new_leader(self) -> None:
        self.assignor = CooperativeAssignor(self.max_delay_ms)

    def rebalance(self, *, delivered: bool = True, after_ms: int = 0) -> Round:
        self.now_ms += after_ms
        last, self.generation = self.generation, self.generation + 1
        found = self.assignor.assign(
            self.held,
            self.configured,
            generation=self.generation,
            last_generation=last,
            now_ms=self.now_ms,
            draining=self.draining,
            disconnected=frozenset(self.disconnected),
        )
        self.disconnected = set()
        assert not any(found.changes[member].starts for member in self.draining)
        self.delay_ms = found.delay_ms
        self.stop_count = sum(len(change.stops) for change in found.changes.values())
        if not delivered:
            self.generation -= 1
            return found
        for member, change in found.changes.items():
            before = self.held[member] & self.configured
            self.stops.update(change.stops)
            self.held[member] = (before - set(change.stops)) | set(change.starts)
            assert sorted(map(str, self.held[member])) == sorted(map(str, change.runs))
        return found

    def counts(self, kind: type) -> list[int]:
        return sorted(sum(isinstance(k, kind) for k in keys) for keys in self.held.values())

    @property
    def connectors(self) -> list[int]:
        return self.counts(str)

    @property
    def tasks(self) -> list[int]:
        return self.counts(TaskId)


def group(
    *members: str, connectors: int = 2, tasks: int = 4, max_delay_ms: int = MAX_DELAY_MS
) -> Group:
    """A group with these connectors and ``tasks`` tasks each, after one rebalance."""
    made = Group(*members, max_delay_ms=max_delay_ms)
    for number in range(connectors):
        made.add_connector(f"connector{number}", tasks)
    made.rebalance()
    return made


def loads(made: Group) -> tuple[list[int], list[int]]:
    return made.connectors, made.tasks


def test_when_a_worker_joins_the_others_stop_its_share_and_it_starts_it_next() -> None:
    made = group("a")
    assert loads(made) == ([2], [8])
    made.join("b")
    for connectors, tasks, stops in (([0, 1], [0, 4], 5), ([1, 1], [4, 4], 0), ([1, 1], [4, 4], 0)):
        made.rebalance()
        assert loads(made) == (connectors, tasks)
        assert (made.stop_count, made.delay_ms) == (stops, 0)


def test_revocations_right_after_one_another_wait_longer_and_longer() -> None:
    made = group("a", connectors=1, tasks=12)
    waits = []
    for member, tasks in (
        ("b", [0, 6]),
        ("c", [3, 3, 6]),
        ("d", [0, 3, 3, 3]),
        ("e", [1, 2, 3, 3, 3]),
        ("f", [0, 1, 2, 2, 2, 2]),
        ("", [2, 2, 2, 2, 2, 2]),
    ):
        if member:
            made.join(member)
        made.rebalance(after_ms=made.delay_ms)
        assert made.tasks == tasks
        waits.append(made.delay_ms)
    assert waits == [0, 40, 0, 1_600, 0, 0]


def test_without_a_delay_they_do_not_wait() -> None:
    made = group("a", connectors=1, tasks=12, max_delay_ms=0)
    for member, tasks in (("b", [0, 6]), ("c", [3, 3, 4]), ("", [4, 4, 4])):
        if member:
            made.join(member)
        made.rebalance()
        assert (made.tasks, made.delay_ms) == (tasks, 0)


def test_a_wait_is_never_longer_than_the_longest_delay() -> None:
    made = group("a", connectors=1, tasks=12, max_delay_ms=1)
    for member, tasks, delay_ms in (("b", [0, 6], 0), ("c", [3, 3, 6], 1)):
        made.join(member)
        made.rebalance()
        assert (made.tasks, made.delay_ms) == (tasks, delay_ms)


def test_who_joins_during_a_wait_causes_no_revocation() -> None:
    made = group("a", connectors=1, tasks=12)
    for member in ("b", "c"):
        made.join(member)
        made.rebalance()
    assert made.delay_ms == 40
    for member in ("d", "e"):
        made.join(member)
        made.rebalance(after_ms=10)
        assert (made.stop_count, made.delay_ms > 0) == (0, True)
    made.rebalance(after_ms=made.delay_ms)
    made.rebalance(after_ms=made.delay_ms)
    made.rebalance(after_ms=made.delay_ms)
    assert made.tasks == [2, 2, 2, 3, 3]


def test_the_work_of_a_worker_that_left_waits_for_it_and_then_moves() -> None:
    made = group("a", "b")
    made.leave("b")
    made.rebalance()
    assert (loads(made), made.delay_ms) == (([1], [4]), MAX_DELAY_MS)
    made.rebalance(after_ms=MAX_DELAY_MS // 2)
    assert (loads(made), made.delay_ms) == (([1], [4]), MAX_DELAY_MS // 2)
    made.rebalance(after_ms=MAX_DELAY_MS // 2 + 1)
    assert (loads(made), made.delay_ms) == (([2], [8]), 0)


def test_a_worker_that_comes_back_in_time_gets_its_work_and_nobody_stops_any() -> None:
    made = group("a", "b")
    made.leave("b")
    made.rebalance()
    made.join("b")
    made.rebalance(after_ms=MAX_DELAY_MS // 2)
    assert (loads(made), made.stop_count) == (([0, 1], [0, 4]), 0)
    made.rebalance(after_ms=MAX_DELAY_MS // 2 + 1)
    assert (loads(made), made.stop_count, made.delay_ms) == (([1, 1], [4, 4]), 0, 0)


def test_a_new_leader_that_knows_nothing_moves_the_old_ones_work_at_once() -> None:
    made = group("a", "b", "c", connectors=3)
    made.leave("a")
    made.new_leader()
    made.rebalance()
    assert (loads(made), made.delay_ms) == (([1, 2], [6, 6]), 0)
    made.join("a")
    made.rebalance()
    assert loads(made) == ([0, 1, 1], [0, 4, 4])
    made.rebalance()
    assert loads(made) == ([1, 1, 1], [4, 4, 4])


def test_a_first_round_that_nobody_got_is_made_again_without_a_wait() -> None:
    made = Group("a", "b")
    made.add_connector("c", 8)
    made.rebalance(delivered=False)
    made.rebalance()
    assert (loads(made), made.delay_ms) == (([0, 1], [4, 4]), 0)


def test_a_revocation_that_nobody_got_is_made_again_after_a_wait() -> None:
    made = group("a", "b")
    made.join("c")
    made.rebalance(delivered=False)
    made.rebalance()
    assert (made.stop_count, made.delay_ms) == (0, 40)
    made.rebalance(after_ms=40)
    assert made.tasks == [0, 3, 3]
    made.rebalance()
    assert made.tasks == [2, 3, 3]


def test_deleted_connectors_leave_and_nothing_else_moves() -> None:
    made = group("a", "b", connectors=3)
    assert loads(made) == ([1, 2], [6, 6])
    made.remove_connector("connector2")
    made.rebalance()
    assert (loads(made), made.stop_count, made.delay_ms) == (([1, 1], [4, 4]), 0, 0)


@pytest.mark.parametrize(
    ("before", "count", "after"),
    [((2, 2, 2), 5, [3, 4, 4]), ((0, 0, 0), 5, [1, 2, 2]), ((2, 3, 4, 0), 15, [6, 6, 6, 6])],
)
def test_new_work_goes_to_those_who_have_least(
    before: Iterable[int], count: int, after: list[int]
) -> None:
    made = Group()
    for number, held in enumerate(before):
        name = f"held{number}"
        made.join(f"w{number}")
        made.held[f"w{number}"] = {TaskId(name, index) for index in range(held)}
        made.configured |= made.held[f"w{number}"]
    made.configured |= {TaskId("new", index) for index in range(count)}
    made.rebalance()
    assert made.tasks == after


def test_several_that_came_with_nothing_share_what_waited() -> None:
    made = group("a", "b", "c", connectors=3, tasks=4)
    lost = made.leave("c")
    made.rebalance()
    made.join("d", "e")
    made.rebalance(after_ms=1_000)
    assert made.assignor.candidates == ["d", "e"]
    made.add_connector("late", 4)
    made.rebalance(after_ms=1_000)
    assert made.held["d"], "new work does not wait for the delay"
    made.rebalance(after_ms=MAX_DELAY_MS)
    assert made.assignor.candidates == []
    got = (made.held["d"] | made.held["e"]) & lost
    assert got == lost
    assert all(made.held[member] & lost for member in ("d", "e"))


def test_a_candidate_that_is_gone_again_gets_nothing() -> None:
    made = group("a", "b")
    lost = made.leave("b")
    made.rebalance()
    made.join("d")
    made.rebalance(after_ms=1_000)
    made.leave("d")
    made.rebalance(after_ms=MAX_DELAY_MS)
    assert made.held["a"] >= lost
    assert (made.delay_ms, made.assignor.deadline_ms) == (0, 0)


def test_without_a_delay_lost_work_moves_at_once() -> None:
    made = group("a", "b", max_delay_ms=0)
    made.leave("b")
    made.rebalance()
    assert (loads(made), made.delay_ms) == (([2], [8]), 0)


def test_what_two_run_is_stopped_by_both_and_given_to_one() -> None:
    made = group("a", "b")
    twice = {next(key for key in made.held["a"] if isinstance(key, TaskId))}
    made.held["b"] |= twice
    found = made.rebalance()
    assert [list(change.stops) for change in found.changes.values()] == [list(twice)] * 2
    made.rebalance()
    assert made.tasks == [4, 4]


def test_what_two_run_of_a_deleted_connector_is_nobodys() -> None:
    made = group("a", "b")
    made.held["b"] |= {
        key for key in made.held["a"] if getattr(key, "connector", key) == "connector1"
    }
    made.remove_connector("connector1")
    made.rebalance()
    assert made.configured == made.held["a"] | made.held["b"]


def test_what_a_candidate_is_given_beyond_its_share_starts_elsewhere_at_once() -> None:
    made = group("a", "b", connectors=1, tasks=4)
    made.leave("b")
    made.join("c")
    made.rebalance()
    made.join("d", "e", "f")
    made.leave("a")
    made.rebalance(after_ms=made.delay_ms)
    assert loads(made) == ([0, 0, 0, 1], [1, 1, 1, 1])


# Draining


@pytest.mark.parametrize("max_delay_ms", [0, MAX_DELAY_MS])
def test_what_a_draining_member_holds_goes_to_the_others_without_a_wait(max_delay_ms: int) -> None:
    made = group("a", "b", "c", connectors=3, max_delay_ms=max_delay_ms)
    made.draining = {"b"}
    held = made.held["b"]
    found = made.rebalance()
    assert set(found.changes["b"].stops) == held
    assert (made.stop_count, made.delay_ms) == (len(held), 0)
    made.leave("b")
    made.rebalance()
    assert loads(made) == ([1, 2], [6, 6])
    assert (made.stop_count, made.delay_ms) == (0, 0)


def test_a_draining_member_that_stays_is_given_nothing() -> None:
    made = group("a", "b")
    made.draining = {"b"}
    made.rebalance()
    made.add_connector("more", 4)
    made.rebalance()
    assert made.held["b"] == set()
    assert made.held["a"] == made.configured
    made.draining = set()
    made.rebalance()
    made.rebalance()
    assert loads(made) == ([1, 2], [6, 6])


def test_work_moves_from_a_draining_member_while_a_lost_ones_waits() -> None:
    made = group("a", "b", "c", connectors=3)
    lost = made.leave("c")
    made.rebalance()
    assert made.delay_ms == MAX_DELAY_MS
    made.draining = {"b"}
    made.rebalance()
    made.leave("b")
    made.rebalance()
    assert made.held["a"] == made.configured - lost
    assert 0 < made.delay_ms <= MAX_DELAY_MS


def test_the_work_of_a_member_that_is_known_to_be_gone_does_not_wait() -> None:
    made = group("a", "b", "c", connectors=3, tasks=9)
    made.die("b")
    made.rebalance()
    assert (made.stop_count, made.delay_ms) == (0, 0)
    assert made.held["a"] | made.held["c"] == made.configured


def test_it_moves_while_that_of_another_one_waits() -> None:
    made = group("a", "b", "c", connectors=3, tasks=9)
    lost = made.leave("c")
    made.rebalance()
    made.die("b")
    made.rebalance(after_ms=1_000)
    assert made.held["a"] == made.configured - lost
    assert 0 < made.delay_ms < MAX_DELAY_MS
    made.rebalance(after_ms=MAX_DELAY_MS)
    assert made.held["a"] == made.configured


def test_a_death_between_two_rounds_of_a_move_does_not_wait() -> None:
    made = group("a", "b", connectors=2, tasks=8)
    made.join("c")
    made.rebalance()  # stops the work that moves to c
    assert made.stop_count
    made.die("b")
    made.rebalance()
    assert made.held["a"] | made.held["c"] == made.configured
    assert made.delay_ms == 0


def test_a_draining_member_is_no_candidate_for_what_was_lost() -> None:
    made = group("a", "b", "c", connectors=3)
    made.leave("c")
    made.rebalance()
    made.join("d")
    made.draining = {"d"}
    made.rebalance()
    made.rebalance(after_ms=made.delay_ms)
    assert made.held["d"] == set()
    assert made.held["a"] | made.held["b"] == made.configured


@pytest.mark.parametrize("max_delay_ms", [0, MAX_DELAY_MS])
def test_as_many_new_members_take_all_over_with_one_stop_of_each(max_delay_ms: int) -> None:
    made = group("a", "b", "c", connectors=3, tasks=4, max_delay_ms=max_delay_ms)
    made.stops.clear()
    made.join("d", "e", "f")
    for _ in range(4):
        made.rebalance(after_ms=made.delay_ms)
    assert loads(made)[1] == [2] * 6
    made.draining = {"a", "b", "c"}
    for _ in range(3):
        made.rebalance(after_ms=made.delay_ms)
    assert [len(made.held[member]) for member in "abc"] == [0, 0, 0]
    assert set(made.stops) == made.configured
    assert set(made.stops.values()) == {1}


def test_when_all_members_drain_nothing_moves_and_nothing_starts() -> None:
    made = group("a", "b")
    before = {member: set(keys) for member, keys in made.held.items()}
    made.draining = {"a", "b"}
    made.add_connector("more", 1)
    made.rebalance()
    assert made.held == before
    gone = made.leave("a")
    made.rebalance()
    assert made.held["b"] == before["b"]
    made.join("c")
    made.rebalance()
    made.rebalance()
    assert made.held["c"] >= gone | {"more", TaskId("more", 0)}


def test_a_rolling_restart_stops_only_what_leaves_and_comes_back() -> None:
    """With any leader, each worker's work moves away and back, and no other work stops."""
    made = group("a", "b", "c", connectors=9, max_delay_ms=0)
    for member in ("a", "b", "c"):
        moved = set(made.held[member])
        made.draining = {member}
        made.rebalance()
        made.leave(member)
        if member != "c":  # c does not lead
            made.new_leader()
        made.rebalance()
        made.join(member)
        made.rebalance()
        made.rebalance()
        assert made.held[member] == moved
    assert set(made.stops.values()) == {2}


def test_a_worker_that_comes_back_in_time_stops_each_task_once() -> None:
    """With a delay and without a hand-over, the work waits for the worker."""
    made = group("a", "b", "c", connectors=9)
    before = {member: set(keys) for member, keys in made.held.items()}
    for member in ("c", "b"):  # the group does not wait for the leader's own work
        made.leave(member)
        made.rebalance()
        made.join(member)
        made.rebalance(after_ms=10_000)
        made.rebalance(after_ms=made.delay_ms)
    assert made.held == before
    assert not made.stops


joins = st.lists(
    st.sampled_from(
        ["join", "leave", "add", "remove", "wait", "undelivered", "drain", "drain", "undo"]
    ),
    max_size=25,
)


@given(joins, st.sampled_from([0, 50, 5_000]))
def test_work_is_never_given_to_two_and_ends_balanced(steps: list[str], max_delay_ms: int) -> None:
    made = group("w0", max_delay_ms=max_delay_ms)
    for number, step in enumerate(steps, start=1):
        if step == "join" and len(made.held) < 6:
            made.join(f"w{number}")
        elif step == "leave" and len(made.held) > 1:
            made.leave(max(made.held))
        elif step == "add":
            made.add_connector(f"more{number}", number % 4)
        elif step == "remove":
            names = sorted(key for key in made.configured if isinstance(key, str))
            if names:
                made.remove_connector(names[0])
        elif step == "drain":
            made.draining.add(min(made.held.keys() - made.draining, default="w0"))
        elif step == "undo":
            made.draining.clear()
        made.draining &= made.held.keys()
        made.rebalance(delivered=step != "undelivered", after_ms=70 if step == "wait" else 1)
        held = [key for keys in made.held.values() for key in keys]
        assert len(held) == len(set(held)) or step == "undelivered"
    for _ in range(12):
        made.rebalance(after_ms=made.delay_ms)
    takers = made.held.keys() - made.draining
    assert not takers or not any(made.held[member] for member in made.draining)
    made.draining.clear()
    for _ in range(12):
        made.rebalance(after_ms=made.delay_ms)
    assert set().union(*made.held.values()) == made.configured
    for counts in loads(made):
        assert counts[-1] - counts[0] <= 1
    made.rebalance()
    assert (made.stop_count, made.delay_ms) == (0, 0)
