"""A coordinator that crashes after any append, and what a restart restores (P1 to P3)."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from drover.model.group import GroupDescription, GroupListing, GroupPage, GroupState
from drover.model.offsets import GroupOffset, TopicPartition
from drover_coordinator.core.groups.events import Event
from drover_coordinator.core.groups.settings import GroupSettings
from tests.support.group_harness import DISK_FULL, GROUP, SESSION_MS, GroupHarness

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SETTINGS = GroupSettings(offsets_retention_ms=100_000, offsets_retention_check_ms=20_000)


@dataclass(frozen=True)
class Moment:
    """What callers could see when ``record_count`` records were durable."""

    record_count: int
    now_ms: int
    hard_state: dict[str, object]
    groups: tuple[GroupListing, ...]
    description: GroupDescription
    offsets: dict[TopicPartition, int]


class Recorder(GroupHarness):
    """A coordinator that records a moment after each append."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        super().__init__(SETTINGS)

    def handle(self, event: Event) -> None:
        """Handle the event; record a moment if it appended."""
        before = len(self.records)
        super().handle(event)
        if len(self.records) > before:
            page = self.list_groups().response
            assert isinstance(page, GroupPage)
            self.moments.append(
                Moment(
                    record_count=len(self.records),
                    now_ms=self.now_ms,
                    hard_state=self.machine.hard_state(),
                    groups=tuple(page.groups),
                    description=self.describe(),
                    offsets=self.offsets(),
                )
            )


def life(group: GroupHarness) -> None:
    """Every event that appends records, at least once."""
    group.commit_offsets({A0: 1, B0: 1})  # a simple group
    group.first_join("a")  # its group is created
    group.join("a")
    group.join_static("s1", "seat")
    group.advance(6_000)
    group.assign("a", "s1")  # generation 1
    group.commit_offsets({A0: 2, A1: 2}, "a", 1)
    group.commit_offsets({A0: 3}, "s1", 1, instance_id="seat")
    group.join_static("s2", "seat")  # s2 replaces s1 without a rebalance
    group.sync("s2", 1, instance_id="seat")
    group.append_error = DISK_FULL
    group.commit_offsets({A0: 4}, "a", 1)  # the append is refused, so no restart restores it
    group.enter("b")
    group.commit_offsets({A0: 9}, "a", 1)  # in the middle of a rebalance
    group.join("a")
    group.join("s2", instance_id="seat")
    group.assign("a", "s2", "b")  # generation 2
    group.commit_offsets([GroupOffset("a", 0, 5, expire_time_ms=group.now_ms + 90_000)], "b", 2)
    group.leave("a", "s2", "b")  # empty
    group.delete_offsets(A1)
    group.commit_offsets({B0: 6})
    group.commit_offsets({A0: 1}, group_id="other")
    group.advance(200_000)  # all offsets expire, and with them the groups
    group.stable("n")  # starts above the generation floor
    group.commit_offsets({A0: 7}, "n", group.describe().generation)
    group.leave("n")
    group.delete_group()
    group.commit_offsets({A0: 8})


def recorded() -> list[Moment]:
    recorder = Recorder()
    life(recorder)
    return recorder.moments


MOMENTS = recorded()


def records_of_life() -> GroupHarness:
    harness = GroupHarness(SETTINGS)
    life(harness)
    return harness


ALL_RECORDS = records_of_life().records


def restarted(moment: Moment) -> GroupHarness:
    """A coordinator that restarts with the records durable at ``moment``."""
    group = GroupHarness(SETTINGS, first_id=10_000)
    group.now_ms = moment.now_ms
    group.records = list(ALL_RECORDS[: moment.record_count])
    group.restart_with_log()
    return group


def test_the_life_has_every_kind_of_moment() -> None:
    states = {moment.description.state for moment in MOMENTS}
    assert states == {
        GroupState.EMPTY,
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
        GroupState.PREPARING_REBALANCE,
        GroupState.DEAD,
    }
    assert len(MOMENTS) >= 20
    assert max(moment.description.generation for moment in MOMENTS) >= 4
    assert [each.record_count for each in MOMENTS] == sorted({m.record_count for m in MOMENTS})


@pytest.mark.parametrize("index", range(len(MOMENTS)))
def test_a_crash_after_any_append_keeps_exactly_what_was_acknowledged(index: int) -> None:
    moment = MOMENTS[index]
    group = restarted(moment)
    assert group.machine.hard_state() == moment.hard_state
    assert group.offsets() == moment.offsets
    description = group.describe()
    assert description.generation == moment.description.generation
    assert {each.member_id for each in description.members} == {
        each.member_id for each in moment.description.members
    } or moment.description.state is GroupState.PREPARING_REBALANCE
    page = group.list_groups().response
    assert isinstance(page, GroupPage)
    assert [each.group_id for each in page.groups] == [each.group_id for each in moment.groups]


def stable_moments() -> list[int]:
    return [
        index
        for index, moment in enumerate(MOMENTS)
        if moment.description.state is GroupState.STABLE
    ]


@pytest.mark.parametrize("index", stable_moments())
def test_members_that_come_back_in_time_notice_nothing(index: int) -> None:
    moment = MOMENTS[index]
    group = restarted(moment)
    assert group.describe() == moment.description
    record_count = len(group.records)
    members = moment.description.members
    for wait_ms in (SESSION_MS - 1, SESSION_MS - 1, 1):
        group.advance(wait_ms)
        for member in members:
            heartbeat = group.heartbeat(
                member.member_id, moment.description.generation, instance_id=member.instance_id
            )
            assert heartbeat.response is False
    for member in members:
        answer = group.sync(member.member_id, instance_id=member.instance_id).response
        assert answer.assignment == member.assignment  # type: ignore[attr-defined]
    assert group.describe() == moment.description
    assert len(group.records) == record_count


@pytest.mark.parametrize("index", stable_moments())
def test_members_that_do_not_come_back_are_out_after_their_session(index: int) -> None:
    group = restarted(MOMENTS[index])
    group.advance(SESSION_MS)
    assert group.describe().members == ()


@pytest.mark.parametrize("index", range(len(MOMENTS)))
def test_after_a_crash_no_generation_is_given_out_again(index: int) -> None:
    moment = MOMENTS[index]
    told = max(
        (each.description.generation for each in MOMENTS[: index + 1]),
        default=0,
    )
    group = restarted(moment)
    group.advance(SESSION_MS)  # the sessions of earlier members expire
    call = group.enter("new", session_ms=60_000)
    group.advance(60_000)
    assert call.joined.generation > told


def test_a_crash_between_appends_is_a_crash_after_the_last_one() -> None:
    """Restart after each step: the restart restores the state after the step."""
    steps: list[Callable[[GroupHarness], object]] = [
        lambda group: group.commit_offsets({A0: 1}),
        lambda group: group.stable("m"),
        lambda group: group.heartbeat("m"),
        lambda group: group.commit_offsets({A0: 2, B0: 2}, "m", 1),
        lambda group: group.watch("m"),
        lambda group: group.enter("n"),
        lambda group: group.heartbeat("m"),
        lambda group: group.delete_offsets(A0),
        lambda group: group.leave("m"),
        lambda group: group.delete_offsets(A0),
        lambda group: group.delete_group(),
    ]
    group = GroupHarness(SETTINGS)
    for step in steps:
        step(group)
        before = group.machine.hard_state()
        offsets = group.offsets()
        group.restart()
        group.restart()
        assert group.machine.hard_state() == before
        assert group.offsets() == offsets
        assert group.describe().state is not GroupState.PREPARING_REBALANCE
    assert group.describe(GROUP).state is GroupState.DEAD
