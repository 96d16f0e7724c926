"""Behaviour of every store of claims and offsets; a test class for each store inherits it.

``offsets`` is the store. Connector names are unique per test, because stores may be shared.
"""

import asyncio
import itertools

import pytest

from drover.errors import FailedPreconditionError, InvalidArgumentError, Reason
from drover.model import pages
from drover.model.claims import REMEMBERED_REQUESTS, ClaimRequest, TaskSet
from drover.model.ids import TaskId, Term
from drover.model.offset_json import canonical_json
from drover.model.offsets import (
    METADATA_MAX_BYTES,
    CommitOutcome,
    CommitResult,
    CommittedOffset,
    OffsetsChange,
    TaskOffsets,
)
from drover_coordinator.offset_store import OffsetStore

FIRST, SECOND = 5, 9
_numbers = itertools.count()

COMMITTED, STALE, INVALID = (
    CommitOutcome.COMMITTED,
    CommitOutcome.STALE_CLAIM,
    CommitOutcome.INVALID,
)


def own_connector() -> str:
    """A unique connector name."""
    return f"connector-{next(_numbers)}"


async def claim(
    store: OffsetStore,
    task: TaskId,
    generation: int = 1,
    request_id: str = "",
    *,
    configs: int = 0,
) -> Term:
    """Claim a task, by default with a new request id."""
    request_id = request_id or f"request-{next(_numbers)}"
    return await store.claim(ClaimRequest(task, generation, "w", request_id, configs))


async def refused_claim(
    store: OffsetStore,
    task: TaskId,
    generation: int = 1,
    request_id: str = "",
    *,
    configs: int = 0,
) -> None:
    """A claim that must be rejected."""
    with pytest.raises(FailedPreconditionError) as caught:
        await claim(store, task, generation, request_id, configs=configs)
    assert caught.value.reason is Reason.STALE_TERM


def at(position: int, partition_json: str = '{"file":"f"}', metadata: str = "") -> CommittedOffset:
    return CommittedOffset(partition_json, f'{{"at":{position}}}', metadata)


async def commit(
    store: OffsetStore, task: TaskId, term: Term, *offsets: CommittedOffset, number: int = 0
) -> CommitResult:
    [result] = await store.commit([TaskOffsets(task, term, offsets, number)])
    assert result.task == task
    return result


def removed(partition_json: str) -> CommittedOffset:
    return CommittedOffset(partition_json, None)


async def change(
    store: OffsetStore, connector: str, *offsets: CommittedOffset, configs: int = 0
) -> None:
    """Alter offsets, of a connector with an empty task set."""
    await store.change(OffsetsChange(connector, TaskSet(1, configs), offsets))


async def remove_all(store: OffsetStore, connector: str) -> None:
    """Reset a connector's offsets."""
    await store.change(OffsetsChange(connector, TaskSet(1, 0), None))


async def can_commit(store: OffsetStore, task: TaskId, term: Term) -> bool:
    return (await commit(store, task, term, at(1))).outcome is COMMITTED


async def fetched(store: OffsetStore, connector: str) -> dict[str, tuple[str | None, str]]:
    """Offset and metadata by canonical partition, of all pages."""
    found: dict[str, tuple[str | None, str]] = {}
    token = ""
    while True:
        page, token = await store.fetch(connector, token)
        for each in page:
            found[canonical_json(each.partition_json)] = (each.offset_json, each.metadata)
        if not token:
            return found


class OffsetStoreSuite:
    """Claims, commits, offsets."""

    # --- claims ------------------------------------------------------------------------------

    async def test_every_claim_is_above_all_earlier_ones(self, offsets: OffsetStore) -> None:
        task = TaskId(own_connector(), 0)
        terms = [await claim(offsets, task, generation) for generation in (1, 1, 4, 4, 9)]
        assert terms == [Term(1, 1), Term(1, 2), Term(4, 3), Term(4, 4), Term(9, 5)]
        assert [await can_commit(offsets, task, term) for term in terms] == [False] * 4 + [True]

    async def test_a_slow_starter_of_an_old_generation_cannot_steal_a_task(
        self, offsets: OffsetStore
    ) -> None:
        task = TaskId(own_connector(), 0)
        held = await claim(offsets, task, 5)
        await refused_claim(offsets, task, 4)
        assert await can_commit(offsets, task, held)

    async def test_the_same_request_gets_the_same_claim(self, offsets: OffsetStore) -> None:
        task = TaskId(own_connector(), 0)
        assert await claim(offsets, task, 1, "r") == await claim(offsets, task, 1, "r")

    async def test_a_late_retry_of_a_superseded_request_fences_nobody(
        self, offsets: OffsetStore
    ) -> None:
        task = TaskId(own_connector(), 0)
        await claim(offsets, task, 1, "first")
        current = await claim(offsets, task, 1, "second")
        await refused_claim(offsets, task, 1, "first")
        assert await can_commit(offsets, task, current)

    async def test_requests_are_remembered_for_a_while(self, offsets: OffsetStore) -> None:
        task = TaskId(own_connector(), 0)
        for number in range(REMEMBERED_REQUESTS + 1):
            current = await claim(offsets, task, 1, f"r{number}")
        await refused_claim(offsets, task, 1, "r1")
        assert await claim(offsets, task, 1, "r0") > current

    async def test_tasks_do_not_fence_each_other(self, offsets: OffsetStore) -> None:
        connector = own_connector()
        first = await claim(offsets, TaskId(connector, 0))
        await claim(offsets, TaskId(connector, 1), 7)
        assert await can_commit(offsets, TaskId(connector, 0), first)

    async def test_claims_at_once_each_have_their_own_answer(self, offsets: OffsetStore) -> None:
        connector, another = own_connector(), own_connector()
        held = await claim(offsets, TaskId(connector, 3), 5)
        tasks = [TaskId(connector, number) for number in range(7)] + [TaskId(another, 0)]
        answers = await asyncio.gather(
            *(claim(offsets, task, 4) for task in tasks), return_exceptions=True
        )
        refused = answers.pop(3)
        assert isinstance(refused, FailedPreconditionError)
        assert refused.reason is Reason.STALE_TERM
        assert answers == [Term(4, 1)] * 7
        assert await can_commit(offsets, TaskId(connector, 3), held)

    async def test_the_last_of_claims_at_once_counts(self, offsets: OffsetStore) -> None:
        task = TaskId(own_connector(), 0)
        terms = await asyncio.gather(*(claim(offsets, task) for _ in range(40)))
        assert sorted(terms) == [Term(1, number + 1) for number in range(40)]
        assert not await can_commit(offsets, task, sorted(terms)[-2])
        assert await can_commit(offsets, task, max(terms))

    async def test_a_claim_that_was_never_granted_is_refused(self, offsets: OffsetStore) -> None:
        result = await commit(offsets, TaskId(own_connector(), 0), Term(3, 3), at(1))
        assert result.outcome is STALE
        assert "claim the task first" in result.message

    async def test_a_commit_under_a_stale_claim_harms_nobody(self, offsets: OffsetStore) -> None:
        task, other = TaskId(own_connector(), 0), TaskId(own_connector(), 0)
        stale, current = await claim(offsets, task), await claim(offsets, task)
        others = await claim(offsets, other)
        results = await offsets.commit(
            [
                TaskOffsets(task, stale, [at(1)]),
                TaskOffsets(task, current, [at(2)]),
                TaskOffsets(other, others, [at(3)]),
            ]
        )
        assert [each.outcome for each in results] == [STALE, COMMITTED, COMMITTED]
        assert f"{current} is the current claim" in results[0].message
        assert await fetched(offsets, task.connector) == {'{"file":"f"}': ('{"at":2}', "")}
        assert await fetched(offsets, other.connector) == {'{"file":"f"}': ('{"at":3}', "")}

    # --- sets of task configs ----------------------------------------------------------------

    @pytest.mark.parametrize(
        ("generation", "configs"),
        [(1, SECOND), (2, SECOND), (2, FIRST - 1)],
        ids=["same generation", "later generation", "numbers begin again"],
    )
    async def test_the_first_claim_of_a_new_set_fences_every_task_of_the_old_one(
        self, offsets: OffsetStore, generation: int, configs: int
    ) -> None:
        tasks = [TaskId(own_connector(), 0)]
        tasks += [TaskId(tasks[0].connector, number) for number in (1, 2)]
        old = [await claim(offsets, task, configs=FIRST) for task in tasks]
        new = await claim(offsets, tasks[1], generation, configs=configs)
        for task, term in zip(tasks, old, strict=True):
            assert not await can_commit(offsets, task, term)
        message = (await commit(offsets, tasks[0], old[0], at(1))).message
        assert "task configs or offsets have changed" in message
        assert await can_commit(offsets, tasks[1], new)
        assert await claim(offsets, tasks[0], generation, configs=configs) > old[0]

    async def test_other_connectors_have_sets_of_their_own(self, offsets: OffsetStore) -> None:
        other = TaskId(own_connector(), 0)
        others = await claim(offsets, other, configs=FIRST)
        await claim(offsets, TaskId(own_connector(), 0), 2, configs=SECOND)
        assert await can_commit(offsets, other, others)

    @pytest.mark.parametrize(("generation", "configs"), [(2, FIRST), (1, SECOND + 1)])
    async def test_a_late_claim_of_an_older_set_is_refused_for_any_task(
        self, offsets: OffsetStore, generation: int, configs: int
    ) -> None:
        connector = own_connector()
        for number in range(3):
            await claim(offsets, TaskId(connector, number), configs=FIRST)
        new = await claim(offsets, TaskId(connector, 0), 2, configs=SECOND)
        for number in range(4):
            await refused_claim(offsets, TaskId(connector, number), generation, configs=configs)
        assert await can_commit(offsets, TaskId(connector, 0), new)

    async def test_a_repeated_request_of_a_fenced_set_gets_a_claim_that_counts(
        self, offsets: OffsetStore
    ) -> None:
        connector = own_connector()
        task, other = TaskId(connector, 0), TaskId(connector, 1)
        lost = await claim(offsets, task, 1, "r", configs=FIRST)
        await claim(offsets, other, 1, "r", configs=SECOND)
        await refused_claim(offsets, task, 1, "r", configs=FIRST)
        again = await claim(offsets, task, 1, "r", configs=SECOND)
        assert again > lost
        assert await claim(offsets, task, 1, "r", configs=SECOND) == again
        # and so does one that is repeated with the new set before another request claims it
        later = await claim(offsets, task, 1, "r", configs=SECOND + 1)
        assert later > again
        assert await can_commit(offsets, task, later)

    # --- late copies -------------------------------------------------------------------------

    async def test_a_late_or_repeated_copy_of_a_commit_sets_nothing_back(
        self, offsets: OffsetStore
    ) -> None:
        task = TaskId(own_connector(), 0)
        term = await claim(offsets, task)
        for number, position, found in ((3, 1, 1), (5, 2, 2), (3, 1, 2), (5, 9, 2), (6, 3, 3)):
            result = await commit(offsets, task, term, at(position), number=number)
            assert result.outcome is COMMITTED
            assert await fetched(offsets, task.connector) == {
                '{"file":"f"}': (f'{{"at":{found}}}', "")
            }

    async def test_copies_at_once_are_told_apart(self, offsets: OffsetStore) -> None:
        task = TaskId(own_connector(), 0)
        term = await claim(offsets, task)
        results = await offsets.commit(
            [TaskOffsets(task, term, [at(number)], number) for number in (1, 3, 2, 3)]
        )
        assert {each.outcome for each in results} == {COMMITTED}
        assert await fetched(offsets, task.connector) == {'{"file":"f"}': ('{"at":3}', "")}

    async def test_each_claim_and_each_task_counts_for_itself(self, offsets: OffsetStore) -> None:
        task = TaskId(own_connector(), 0)
        other = TaskId(task.connector, 1)
        first, others = await claim(offsets, task), await claim(offsets, other)
        await commit(offsets, task, first, at(1), number=7)
        await commit(offsets, other, others, at(2), number=1)
        assert await fetched(offsets, task.connector) == {'{"file":"f"}': ('{"at":2}', "")}
        await commit(offsets, task, await claim(offsets, task), at(3), number=1)
        assert await fetched(offsets, task.connector) == {'{"file":"f"}': ('{"at":3}', "")}

    async def test_a_commit_without_a_number_is_always_written(self, offsets: OffsetStore) -> None:
        task = TaskId(own_connector(), 0)
        term = await claim(offsets, task)
        await commit(offsets, task, term, at(1), number=7)
        await commit(offsets, task, term, at(2))
        assert await fetched(offsets, task.connector) == {'{"file":"f"}': ('{"at":2}', "")}

    # --- offsets -----------------------------------------------------------------------------

    async def test_partitions_equal_as_json_are_one(self, offsets: OffsetStore) -> None:
        task = TaskId(own_connector(), 0)
        term = await claim(offsets, task)
        await commit(offsets, task, term, at(1, '{"b": 1,  "a":"é"}', "one"))
        await commit(offsets, task, term, at(2, '{"a":"\\u00e9","b":1}', "two"))
        found = await fetched(offsets, task.connector)
        assert found == {'{"a":"é","b":1}': ('{"at":2}', "two")}

    async def test_partitions_that_differ_are_kept_apart(self, offsets: OffsetStore) -> None:
        task = TaskId(own_connector(), 0)
        term = await claim(offsets, task)
        partitions = ['{"a":1}', '{"a":"1"}', '{"a":[1]}', "{}"]
        await commit(offsets, task, term, *(at(1, each) for each in partitions))
        assert set(await fetched(offsets, task.connector)) == set(partitions)
        assert await fetched(offsets, own_connector()) == {}

    async def test_an_offset_of_none_removes_its_partition(self, offsets: OffsetStore) -> None:
        task = TaskId(own_connector(), 0)
        term = await claim(offsets, task)
        await commit(offsets, task, term, at(1, '{"a":1}'), at(1, '{"a":2}'))
        removal = CommittedOffset('{ "a": 1 }', None)
        assert (await commit(offsets, task, term, removal)).outcome is COMMITTED
        assert set(await fetched(offsets, task.connector)) == {'{"a":2}'}

    @pytest.mark.parametrize(
        "faulty",
        [
            CommittedOffset("[]", "{}"),
            CommittedOffset("{}", "7"),
            CommittedOffset("not json", "{}"),
            CommittedOffset('{"a":NaN}', "{}"),
            CommittedOffset('{"a":"\\ud800"}', "{}"),
            CommittedOffset("{}", "{}", "é" * (METADATA_MAX_BYTES // 2 + 1)),
        ],
        ids=["array", "number", "no json", "nan", "half a pair", "metadata"],
    )
    async def test_a_faulty_offset_refuses_all_of_its_task_and_none_of_others(
        self, offsets: OffsetStore, faulty: CommittedOffset
    ) -> None:
        task, other = TaskId(own_connector(), 0), TaskId(own_connector(), 1)
        terms = [await claim(offsets, each) for each in (task, other)]
        results = await offsets.commit(
            [TaskOffsets(task, terms[0], [at(1), faulty]), TaskOffsets(other, terms[1], [at(2)])]
        )
        assert [each.outcome for each in results] == [INVALID, COMMITTED]
        assert "offsets[1]" in results[0].message
        assert await fetched(offsets, task.connector) == {}
        assert await fetched(offsets, other.connector) == {'{"file":"f"}': ('{"at":2}', "")}

    async def test_metadata_may_be_as_long_as_the_limit(self, offsets: OffsetStore) -> None:
        task, metadata = TaskId(own_connector(), 0), "é" * (METADATA_MAX_BYTES // 2)
        await commit(offsets, task, await claim(offsets, task), at(1, metadata=metadata))
        assert await fetched(offsets, task.connector) == {'{"file":"f"}': ('{"at":1}', metadata)}

    async def test_pages_hold_every_offset_once(
        self, offsets: OffsetStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pages, "PAGE_BYTES_MAX", 1_000)
        task = TaskId(own_connector(), 0)
        names = [f'{{"file":"f{number:03}"}}' for number in range(50)]
        term = await claim(offsets, task)
        await commit(offsets, task, term, *(at(1, each, "x" * 100) for each in reversed(names)))
        found: list[str] = []
        token, page_count = "", 0
        while token or not page_count:
            page, token = await offsets.fetch(task.connector, token)
            found += [each.partition_json for each in page]
            page_count += 1
        assert found == names
        assert page_count > 5

    async def test_an_offset_larger_than_a_page_still_comes(
        self, offsets: OffsetStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pages, "PAGE_BYTES_MAX", 10)
        task = TaskId(own_connector(), 0)
        await commit(offsets, task, await claim(offsets, task), at(1))
        page, token = await offsets.fetch(task.connector, "")
        assert (len(page), token) == (1, "")

    @pytest.mark.parametrize("token", ["x", "[]", "1", '{"a":'])
    async def test_a_token_that_no_page_gave(self, offsets: OffsetStore, token: str) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            await offsets.fetch("c", token)
        assert [each.field for each in caught.value.violations] == ["page_token"]

    # --- changes by hand

    async def test_a_change_writes_and_removes_what_it_names(self, offsets: OffsetStore) -> None:
        task = TaskId(own_connector(), 0)
        kept, moved, gone = '{"file":"kept"}', '{"file":"moved"}', '{"file":"gone"}'
        term = await claim(offsets, task)
        await commit(offsets, task, term, *(at(7, each, "m") for each in (kept, moved, gone)))
        await change(offsets, task.connector, at(3, '{ "file": "moved" }'), removed(gone))
        assert await fetched(offsets, task.connector) == {
            kept: ('{"at":7}', "m"),
            moved: ('{"at":3}', ""),
        }

    async def test_a_change_of_all_leaves_none_and_touches_no_other_connector(
        self, offsets: OffsetStore
    ) -> None:
        task, other = TaskId(own_connector(), 0), TaskId(own_connector(), 0)
        for each in (task, other):
            await commit(offsets, each, await claim(offsets, each), at(1), at(2, '{"file":"g"}'))
        for _ in range(2):
            await remove_all(offsets, task.connector)
        assert await fetched(offsets, task.connector) == {}
        assert len(await fetched(offsets, other.connector)) == 2

    async def test_a_change_of_offsets_that_never_were(self, offsets: OffsetStore) -> None:
        connector = own_connector()
        await change(offsets, connector, at(5), removed('{"file":"g"}'))
        assert await fetched(offsets, connector) == {'{"file":"f"}': ('{"at":5}', "")}

    async def test_a_task_that_still_runs_commits_nothing_over_a_change(
        self, offsets: OffsetStore
    ) -> None:
        tasks = [TaskId(own_connector(), 0)]
        tasks.append(TaskId(tasks[0].connector, 1))
        terms = [await claim(offsets, each, request_id=f"mine-{each}") for each in tasks]
        await change(offsets, tasks[0].connector, at(3), configs=0)
        for task, term in zip(tasks, terms, strict=True):
            result = await commit(offsets, task, term, at(8))
            assert result.outcome is STALE
            assert "or offsets have changed" in result.message
        assert await fetched(offsets, tasks[0].connector) == {'{"file":"f"}': ('{"at":3}', "")}
        renewed = await claim(offsets, tasks[0])
        assert renewed > terms[0]
        assert await can_commit(offsets, tasks[0], renewed)

    async def test_after_a_change_no_task_of_an_earlier_set_of_configs_starts(
        self, offsets: OffsetStore
    ) -> None:
        task = TaskId(own_connector(), 0)
        await claim(offsets, task, configs=FIRST)
        await change(offsets, task.connector, at(3), configs=SECOND)
        await refused_claim(offsets, task, configs=FIRST)
        assert await can_commit(offsets, task, await claim(offsets, task, configs=SECOND + 1))

    @pytest.mark.parametrize("task_set", [TaskSet(2, FIRST), TaskSet(1, SECOND)])
    async def test_a_change_comes_too_late_when_tasks_were_started_anew(
        self, offsets: OffsetStore, task_set: TaskSet
    ) -> None:
        task = TaskId(own_connector(), 0)
        term = await claim(offsets, task, 2, configs=SECOND)
        for wanted in ([at(3)], None):
            with pytest.raises(FailedPreconditionError) as caught:
                await offsets.change(OffsetsChange(task.connector, task_set, wanted))
            assert caught.value.reason is Reason.STALE_TERM
        assert await fetched(offsets, task.connector) == {}
        assert await can_commit(offsets, task, term)

    async def test_a_change_with_a_fault_changes_nothing(self, offsets: OffsetStore) -> None:
        task = TaskId(own_connector(), 0)
        term = await claim(offsets, task)
        with pytest.raises(InvalidArgumentError) as caught:
            await change(offsets, task.connector, at(1), CommittedOffset("[]", "{}"))
        assert [each.field for each in caught.value.violations] == ["offsets[1].partition_json"]
        assert await fetched(offsets, task.connector) == {}
        assert await can_commit(offsets, task, term)
