import pytest

from drover.dataplane.store import EmbeddedStore
from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
from tests.unit.dataplane.writer import Writer, blob_count

TASK = TaskId("connector", 0)


def claim(store: EmbeddedStore, generation: int, request_id: str, owner: str = "w") -> Term:
    return store.claim_task(TASK, generation=generation, owner=owner, request_id=request_id)


def test_every_claim_is_above_all_earlier_ones(store: EmbeddedStore) -> None:
    terms = [
        claim(store, generation, f"r{index}") for index, generation in enumerate([1, 1, 4, 4, 9])
    ]
    assert terms == [Term(1, 1), Term(1, 2), Term(4, 3), Term(4, 4), Term(9, 5)]
    assert store.current_claim(TASK) == Term(9, 5)


def test_a_slow_starter_of_an_old_generation_cannot_steal_a_task(store: EmbeddedStore) -> None:
    claim(store, 5, "new")
    with pytest.raises(FailedPreconditionError) as caught:
        claim(store, 4, "old")
    assert caught.value.reason is Reason.STALE_TERM
    assert store.current_claim(TASK) == Term(5, 1)


def test_the_same_request_gets_the_same_claim(store: EmbeddedStore) -> None:
    assert claim(store, 1, "r") == claim(store, 1, "r")


def test_a_late_retry_of_a_superseded_request_fences_nobody(store: EmbeddedStore) -> None:
    claim(store, 1, "first")
    current = claim(store, 1, "second")
    with pytest.raises(FailedPreconditionError) as caught:
        claim(store, 1, "first")
    assert caught.value.reason is Reason.STALE_TERM
    assert store.current_claim(TASK) == current


def test_tasks_do_not_fence_each_other(store: EmbeddedStore) -> None:
    first = claim(store, 1, "a")
    store.claim_task(TaskId("connector", 1), generation=7, owner="w", request_id="b")
    assert store.current_claim(TASK) == first


@pytest.mark.parametrize("later_generation", [1, 2])
def test_a_fenced_task_can_neither_commit_stage_nor_publish(
    store: EmbeddedStore, later_generation: int
) -> None:
    zombie = Writer(store, TASK)
    staged = zombie.stage([b"x"])
    owner = Writer(store, TASK, later_generation)
    commit = TaskOffsets(TASK, zombie.claim, [CommittedOffset("{}", '{"at":1}')])
    assert store.commit_offsets([commit])[0].outcome is CommitOutcome.STALE_CLAIM
    for attempt in (
        lambda: store.publish(TASK, zombie.claim, staged, [CommittedOffset("{}", '{"at":1}')]),
        lambda: store.stage(TASK, zombie.claim, b""),
    ):
        with pytest.raises(FailedPreconditionError) as caught:
            attempt()
        assert caught.value.reason is Reason.STALE_CLAIM
    assert store.fetch_offsets(TASK.connector) == []
    assert store.end_offsets("topic") == {0: 0}
    assert blob_count(store) == 0
    assert owner.publish([b"y"]).record_count == 1


def test_a_claim_that_was_never_granted_is_refused(store: EmbeddedStore) -> None:
    commit = TaskOffsets(TASK, Term(3, 3), [CommittedOffset("{}", "{}")])
    result = store.commit_offsets([commit])[0]
    assert result.outcome is CommitOutcome.STALE_CLAIM
    assert "claim the task first" in result.message
