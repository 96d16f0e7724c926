"""What the leader keeps of the last rebalances, and how they are shown."""

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import decode_duration, encode_timestamp
from drover.model.group import RebalanceInProgress
from drover.model.ids import TaskId
from drover_worker.admin.rebalances import merged
from drover_worker.core import events, instructions
from drover_worker.core.rebalance.log import (
    MOVES_MAX,
    REBALANCES_MAX,
    Move,
    Rebalance,
    RebalanceLog,
)
from drover_worker.core.rebalance.protocol import (
    Assignment,
    AssignmentError,
    MemberMetadata,
)
from drover_worker.core.rebalance.stage import Stage
from drover_worker.core.rebalance.strategy import ComputedAssignments
from tests.support.herder_driver import ME, OTHER, HerderDriver, entry

C0, C1 = TaskId("c", 0), TaskId("c", 1)
COUNTS = {"c": 2}


def computed(
    *,
    held: dict[str, tuple[str | TaskId, ...]] | None = None,
    draining: tuple[str, ...] = (),
    error: AssignmentError = AssignmentError.NO_ERROR,
    **work: tuple[str | TaskId, ...],
) -> ComputedAssignments:
    """Assignments by worker url, which is the member id too."""
    members = {
        url: MemberMetadata(url, 1, held=(held or {}).get(url), draining=url in draining)
        for url in work
    }
    assignments = {
        url: Assignment(
            error=error,
            leader_id="a",
            leader_url="a",
            config_offset=1,
            connectors=[each for each in keys if isinstance(each, str)],
            tasks=[each for each in keys if isinstance(each, TaskId)],
        )
        for url, keys in work.items()
    }
    return ComputedAssignments(members, assignments, {})


def led(log: RebalanceLog, work: ComputedAssignments, generation: int, **counts: int) -> Rebalance:
    log.entered(Stage.JOINING, 10)
    log.led(work, counts or COUNTS, generation, "why", now_ms=20)
    log.entered(Stage.SYNCING, 20)
    log.entered(Stage.SETTLED, 25)
    return log.all()[-1]


def test_new_work_starts_and_lost_work_moves() -> None:
    log = RebalanceLog()
    first = led(log, computed(a=("c", C0), b=(C1,)), 1)
    assert set(first.moves) == {Move("c", "", "a"), Move(C0, "", "a"), Move(C1, "", "b")}
    assert (first.begin_ms, first.duration_ms, first.reason) == (10, 15, "why")
    second = led(log, computed(a=("c", C0, C1)), 2)
    assert second.moves == (Move(C1, "b", "a"),)
    assert (second.moved_connector_count, second.moved_task_count) == (0, 1)
    assert led(log, computed(a=("c", C0, C1)), 3).moves == ()


def test_revoked_work_is_shown_once_and_then_where_it_moved() -> None:
    log = RebalanceLog()
    led(log, computed(a=("c", C0, C1)), 1)
    revoking = computed(held={"a": ("c", C0, C1), "b": ()}, a=("c", C0), b=())
    assert led(log, revoking, 2).moves == (Move(C1, "a", ""),)
    waiting = computed(held={"a": ("c", C0), "b": ()}, a=("c", C0), b=())
    assert led(log, waiting, 3).moves == ()
    assigned = computed(held={"a": ("c", C0), "b": ()}, a=("c", C0), b=(C1,))
    assert led(log, assigned, 4).moves == (Move(C1, "a", "b"),)


def test_removed_connectors_and_tasks_do_not_move() -> None:
    log = RebalanceLog()
    led(log, computed(a=("c", C0, C1)), 1)
    assert led(log, computed(a=("c", C0)), 2, c=1).moves == ()
    assert led(log, computed(a=()), 3, other=1).moves == ()


def test_a_new_leader_sees_what_the_members_held() -> None:
    log = RebalanceLog()
    found = led(log, computed(held={"a": (C0,), "b": (C1,)}, a=("c", C0, C1), b=()), 7)
    assert set(found.moves) == {Move("c", "", "a"), Move(C1, "b", "a")}


def test_what_others_assigned_in_between_is_not_guessed() -> None:
    log = RebalanceLog()
    led(log, computed(a=("c",), b=(C0, C1)), 1)
    log.followed()
    assert Move(C0, "", "a") in led(log, computed(a=("c", C0, C1)), 3).moves


def test_an_interrupted_rebalance_has_no_duration() -> None:
    log = RebalanceLog()
    log.entered(Stage.JOINING, 10)
    log.led(computed(a=("c",)), COUNTS, 1, "one", now_ms=20)
    log.entered(Stage.SYNCING, 20)
    log.entered(Stage.JOINING, 30)
    log.led(computed(a=("c",)), COUNTS, 2, "two", now_ms=40)
    log.entered(Stage.SYNCING, 40)
    log.entered(Stage.CATCHING_UP, 41)
    log.entered(Stage.SETTLED, 45)
    assert [(each.begin_ms, each.duration_ms) for each in log.all()] == [(10, None), (30, 15)]


def test_a_leader_that_may_not_assign_yet_is_left_out() -> None:
    log = RebalanceLog()
    mismatch = computed(error=AssignmentError.CONFIG_MISMATCH, a=(), b=())
    log.entered(Stage.JOINING, 10)
    log.led(mismatch, COUNTS, 1, "why", now_ms=20)
    log.entered(Stage.SETTLED, 30)
    assert log.all() == ()


def test_what_is_kept_is_bounded_and_all_moves_are_counted() -> None:
    log = RebalanceLog()
    many = tuple(TaskId("c", index) for index in range(1_000))
    for generation in range(REBALANCES_MAX + 20):
        work = computed(a=many, b=()) if generation % 2 else computed(a=(), b=many)
        led(log, work, generation, c=1_000)
    assert len(log.all()) == REBALANCES_MAX
    assert {len(each.moves) for each in log.all()} == {MOVES_MAX}
    assert {each.moved_task_count for each in log.all()} == {1_000}


def test_the_worker_keeps_what_it_leads(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader()
    (first,) = herder.herder.membership.rebalances.all()
    assert (first.generation, first.workers) == (1, [ME])
    assert first.duration_ms is not None
    assert {str(each.key) for each in first.moves} == {"c", "c-0"}
    herder.run_engine()
    herder.put("d")
    herder.gather()
    herder.run_engine()
    herder.settle_as_leader(generation=2, others={"member-b": MemberMetadata(OTHER, 0)})
    second = herder.herder.membership.rebalances.all()[-1]
    assert second.reason == "connectors or tasks changed"
    assert second.workers == sorted((ME, OTHER))


def test_a_sync_that_another_rebalance_ends_is_kept_without_a_duration(
    herder: HerderDriver,
) -> None:
    herder.ready(entry("c", tasks=1))
    herder.join(generation=1)
    sync = herder.take(instructions.SyncGroup)
    herder.step(events.SyncAnswered(sync.cause_id, RebalanceInProgress()))
    herder.settle_as_leader(generation=2)
    found = herder.herder.membership.rebalances.all()
    assert [each.duration_ms is None for each in found] == [True, False]


def shown(
    time_ms: int,
    *workers: str,
    reason: str = "the group rebalances",
    draining: tuple[str, ...] = (),
) -> pb.Rebalance:
    return pb.Rebalance(
        begin_time=encode_timestamp(time_ms),
        generation=time_ms,
        reason=reason,
        worker_ids=workers,
        draining_worker_ids=draining,
    )


def test_workers_that_joined_left_and_drain_are_the_reason() -> None:
    by_a = pb.ListRebalancesResponse(
        rebalances=[
            shown(4, "a", "b", reason="connectors or tasks changed"),
            shown(3, "a", "b", draining=("b",)),
            shown(1, "a", reason="the worker is ready"),
        ]
    )
    by_b = pb.ListRebalancesResponse(rebalances=[shown(5, "b"), shown(2, "a", "b")])
    found = merged({"a": by_a, "b": by_b, "c": None})
    assert [(each.generation, each.reason) for each in found.rebalances] == [
        (5, "a left or was lost"),
        (4, "b accepts work again, connectors or tasks changed"),
        (3, "b drains"),
        (2, "b joined"),
        (1, "the first one that is known"),
    ]
    assert found.rebalances[3].joined_worker_ids == ["b"]
    assert found.rebalances[0].left_worker_ids == ["a"]
    assert found.silent_worker_ids == ["c"]
    assert decode_duration(found.rebalances[0].duration) == 0


def test_only_the_last_rebalances_of_all_workers_are_merged() -> None:
    responses = {
        name: pb.ListRebalancesResponse(
            rebalances=[shown(10 * number + at, "a") for number in range(REBALANCES_MAX)]
        )
        for at, name in enumerate("ab")
    }
    found = merged(dict(responses))
    assert len(found.rebalances) == REBALANCES_MAX
    assert found.rebalances[0].generation == 10 * REBALANCES_MAX - 9
