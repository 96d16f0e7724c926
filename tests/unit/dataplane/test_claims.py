import pytest

from drover.dataplane.store import EmbeddedStore
from drover.errors import FailedPreconditionError, Reason
from drover.model.claims import ClaimRequest
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
from tests.unit.dataplane.writer import Writer, blob_count

TASK = TaskId("connector", 0)


def claim(store: EmbeddedStore, generation: int, request_id: str, owner: str = "w") -> Term:
    return store.claim_task(TASK, generation=generation, owner=owner, request_id=request_id)


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


# -- sets of task configs --------------------------------------------------------------------

FIRST, SECOND = 5, 9


def can_commit(writer: Writer) -> bool:
    commit = TaskOffsets(writer.task, writer.claim, [CommittedOffset('{"of":"test"}', "{}")])
    return writer.store.commit_offsets([commit])[0].outcome is CommitOutcome.COMMITTED


def tasks(store: EmbeddedStore, generation: int, configs: int) -> list[Writer]:
    return [Writer(store, TaskId("connector", task), generation, configs) for task in range(3)]


@pytest.mark.parametrize(
    ("generation", "configs"),
    [(1, SECOND), (2, SECOND), (2, FIRST - 1)],
    ids=["same generation", "later generation", "numbers begin again"],
)
def test_the_first_claim_of_a_new_set_fences_every_task_of_the_old_one(
    store: EmbeddedStore, generation: int, configs: int
) -> None:
    old = tasks(store, 1, FIRST)
    staged = [each.stage([b"x"]) for each in old]
    new = Writer(store, TaskId("connector", 1), generation, configs)
    assert not any(can_commit(each) for each in old)
    assert blob_count(store) == 0
    for zombie, blobs in zip(old, staged, strict=True):
        for attempt in (
            lambda zombie=zombie, blobs=blobs: store.publish(zombie.task, zombie.claim, blobs),
            lambda zombie=zombie: zombie.stage([b"y"]),
        ):
            with pytest.raises(FailedPreconditionError) as caught:
                attempt()
            assert caught.value.reason is Reason.STALE_CLAIM
    with pytest.raises(FailedPreconditionError, match="task configs or offsets have changed"):
        old[0].stage([b"z"])
    assert can_commit(new)
    assert store.fetch_offsets("other") == []


def test_tasks_of_one_set_do_not_fence_each_other(store: EmbeddedStore) -> None:
    first = tasks(store, 1, FIRST)
    kept = first[0].stage([b"kept"])
    second = [Writer(store, TaskId("connector", task), 2, FIRST) for task in (1, 2)]
    assert [can_commit(each) for each in (*first, *second)] == [True, False, False, True, True]
    assert store.publish(first[0].task, first[0].claim, kept).record_count == 1


def test_claims_together_remove_what_is_stale_and_only_that(store: EmbeddedStore) -> None:
    fenced, kept = Writer(store, TASK), Writer(store, TaskId("connector", 1))
    fenced.stage([b"x"])
    kept.stage([b"y"])
    store.claim_tasks([ClaimRequest(TASK, 2, "w", "r"), ClaimRequest(kept.task, 0, "w", "late")])
    assert blob_count(store) == 1
