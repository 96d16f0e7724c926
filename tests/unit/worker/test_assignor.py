from dataclasses import replace

from drover.model.ids import TaskId
from drover_worker.core.rebalance.assignor import assign_eager, perform_assignment
from drover_worker.core.rebalance.protocol import AssignmentError, MemberMetadata


def dealt(members: list[str], counts: dict[str, int]) -> dict[str, set[str]]:
    return {
        member: {*work.connectors, *map(str, work.tasks)}
        for member, work in assign_eager(members, counts).items()
    }


def test_two_members_share_a_one_task_and_a_two_task_connector() -> None:
    assert dealt(["A", "B"], {"c1": 1, "c2": 2}) == {
        "A": {"c1", "c1-0", "c2-1"},
        "B": {"c2", "c2-0"},
    }


def test_leader_performs_assignment_of_single_task_connectors() -> None:
    assert dealt(["A", "B"], {"c1": 1, "c2": 1, "c3": 1}) == {
        "A": {"c1", "c3", "c2-0"},
        "B": {"c2", "c1-0", "c3-0"},
    }


def test_connectors_go_by_name_and_members_by_id_whatever_their_order() -> None:
    assert dealt(["B", "A"], {"c2": 2, "c1": 1}) == dealt(["A", "B"], {"c1": 1, "c2": 2})


def test_one_member_gets_everything() -> None:
    assert dealt(["A"], {"c1": 1, "c2": 0}) == {"A": {"c1", "c2", "c1-0"}}


def test_members_without_work_are_there_with_nothing() -> None:
    assert dealt(["A", "B"], {}) == {"A": set(), "B": set()}


def test_no_members_no_work() -> None:
    assert dealt([], {"c1": 1}) == {}


def test_every_task_is_dealt_once_and_evenly_in_a_large_cluster() -> None:
    counts = {f"connector-{index:03}": 100 for index in range(1000)}
    work = assign_eager([f"member-{index:03}" for index in range(1000)], counts)
    tasks = [task for part in work.values() for task in part.tasks]
    assert len(tasks) == len(set(tasks)) == 100_000
    assert {len(part.tasks) for part in work.values()} == {100}
    assert {len(part.connectors) for part in work.values()} == {1}


def members(**offsets: int) -> dict[str, MemberMetadata]:
    return {
        name: MemberMetadata(f"{name}:7411", offset, f"{name}:7421")
        for name, offset in offsets.items()
    }


def test_the_assignment_carries_the_leaders_offset_even_if_it_is_ahead() -> None:
    parts = perform_assignment(
        members=members(a=5, b=3), leader_id="a", task_counts={"c1": 1}, config_offset=8
    )
    assert {part.config_offset for part in parts.values()} == {8}
    assert {part.error for part in parts.values()} == {AssignmentError.NO_ERROR}
    assert {(part.leader_id, part.leader_url) for part in parts.values()} == {("a", "a:7411")}
    assert {part.leader_internal_url for part in parts.values()} == {"a:7421"}
    assert parts["a"].connectors == ("c1",)
    assert parts["b"].tasks == (TaskId("c1", 0),)


def test_a_leader_that_is_behind_a_member_assigns_nothing() -> None:
    parts = perform_assignment(
        members=members(a=5, b=9), leader_id="a", task_counts={"c1": 1}, config_offset=5
    )
    assert set(parts) == {"a", "b"}
    for part in parts.values():
        assert part.error is AssignmentError.CONFIG_MISMATCH
        assert part.config_offset == 9
        assert (part.connectors, part.tasks) == ((), ())
        assert (part.leader_id, part.leader_url) == ("a", "a:7411")
        assert part.leader_internal_url == "a:7421"


def test_members_that_are_draining_get_nothing() -> None:
    found = members(a=5, b=5)
    found["a"] = replace(found["a"], draining=True)
    counts = {"c1": 1}
    parts = perform_assignment(members=found, leader_id="a", task_counts=counts, config_offset=5)
    assert (parts["a"].keys, len(parts["b"].keys)) == ((), 2)
    found["b"] = replace(found["b"], draining=True)
    parts = perform_assignment(members=found, leader_id="a", task_counts=counts, config_offset=5)
    assert [part.keys for part in parts.values()] == [(), ()]
