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


# -- late copies of commits ------------------------------------------------------------------


def committed(writer: Writer, number: int, at: int) -> str | None:
    """The offset after a commit of ``at`` under a number, which is always answered alike."""
    offset = CommittedOffset("{}", f'{{"at":{at}}}')
    commit = TaskOffsets(writer.task, writer.claim, [offset], number)
    assert writer.store.commit_offsets([commit])[0].outcome is CommitOutcome.COMMITTED
    return writer.store.fetch_offsets(writer.task.connector)[0].offset_json


def test_a_late_or_repeated_copy_of_a_commit_sets_nothing_back(store: EmbeddedStore) -> None:
    writer = Writer(store, TASK)
    assert committed(writer, 3, at=1) == '{"at":1}'
    assert committed(writer, 5, at=2) == '{"at":2}'
    assert committed(writer, 3, at=1) == '{"at":2}'
    assert committed(writer, 5, at=9) == '{"at":2}'
    assert committed(writer, 6, at=3) == '{"at":3}'


def test_each_claim_and_each_task_counts_for_itself(store: EmbeddedStore) -> None:
    other = Writer(store, TaskId(TASK.connector, TASK.task + 1))
    assert committed(Writer(store, TASK), 7, at=1) == '{"at":1}'
    assert committed(other, 1, at=2) == '{"at":2}'
    assert committed(Writer(store, TASK), 1, at=3) == '{"at":3}'


def test_a_commit_without_a_number_is_always_written(store: EmbeddedStore) -> None:
    writer = Writer(store, TASK)
    assert committed(writer, 7, at=1) == '{"at":1}'
    assert committed(writer, 0, at=2) == '{"at":2}'


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
    with pytest.raises(FailedPreconditionError, match="claimed with other task configs"):
        old[0].stage([b"z"])
    assert can_commit(new)
    assert store.fetch_offsets("other") == []


def test_tasks_of_one_set_do_not_fence_each_other(store: EmbeddedStore) -> None:
    first = tasks(store, 1, FIRST)
    kept = first[0].stage([b"kept"])
    second = [Writer(store, TaskId("connector", task), 2, FIRST) for task in (1, 2)]
    assert [can_commit(each) for each in (*first, *second)] == [True, False, False, True, True]
    assert store.publish(first[0].task, first[0].claim, kept).record_count == 1


def test_other_connectors_have_sets_of_their_own(store: EmbeddedStore) -> None:
    other = Writer(store, TaskId("other", 0), 1, FIRST)
    tasks(store, 2, SECOND)
    assert can_commit(other)


@pytest.mark.parametrize(("generation", "configs"), [(2, FIRST), (1, SECOND + 1)])
def test_a_late_claim_of_an_older_set_is_refused_for_any_task(
    store: EmbeddedStore, generation: int, configs: int
) -> None:
    tasks(store, 1, FIRST)
    new = Writer(store, TaskId("connector", 0), 2, SECOND)
    for task in (0, 1, 2, 3):
        with pytest.raises(FailedPreconditionError) as caught:
            Writer(store, TaskId("connector", task), generation, configs)
        assert caught.value.reason is Reason.STALE_TERM
    assert can_commit(new)


def test_a_repeated_request_of_a_fenced_set_gets_a_claim_that_counts(store: EmbeddedStore) -> None:
    def claim_first(task: int, configs: int) -> Term:
        return store.claim_task(
            TaskId("connector", task),
            generation=1,
            owner="w",
            request_id="r",
            task_config_generation=configs,
        )

    lost = claim_first(0, FIRST)
    claim_first(1, SECOND)
    with pytest.raises(FailedPreconditionError):
        claim_first(0, FIRST)
    again = claim_first(0, SECOND)
    assert again > lost
    assert claim_first(0, SECOND) == again
    # and so does one that is repeated with the new set before anybody else claimed that
    later = claim_first(0, SECOND + 1)
    assert later > again
    assert store.current_claim(TASK) == later


def test_claims_together_each_get_their_own_answer(store: EmbeddedStore) -> None:
    held = claim(store, 5, "held")
    other = TaskId("connector", 1)
    answers = store.claim_tasks(
        [
            ClaimRequest(other, 4, "w", "a"),
            ClaimRequest(TASK, 4, "w", "late"),
            ClaimRequest(other, 4, "w", "a"),  # repeated before it was answered
            ClaimRequest(TaskId("another", 0), 1, "w", "b"),
        ]
    )
    refused = answers.pop(1)
    assert isinstance(refused, FailedPreconditionError)
    assert refused.reason is Reason.STALE_TERM
    assert answers == [Term(4, 1), Term(4, 1), Term(1, 1)]
    assert store.current_claim(TASK) == held
    assert store.current_claim(other) == Term(4, 1)


def test_claims_together_remove_what_is_stale_and_only_that(store: EmbeddedStore) -> None:
    fenced, kept = Writer(store, TASK), Writer(store, TaskId("connector", 1))
    fenced.stage([b"x"])
    kept.stage([b"y"])
    store.claim_tasks([ClaimRequest(TASK, 2, "w", "r"), ClaimRequest(kept.task, 0, "w", "late")])
    assert blob_count(store) == 1


def test_the_last_of_claims_together_counts(store: EmbeddedStore) -> None:
    terms = store.claim_tasks([ClaimRequest(TASK, 1, "w", str(number)) for number in range(40)])
    assert terms == [Term(1, number + 1) for number in range(40)]
    assert store.current_claim(TASK) == terms[-1]
