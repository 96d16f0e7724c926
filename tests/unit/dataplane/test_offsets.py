import pytest

from drover.dataplane.store import EmbeddedStore
from drover.errors import InvalidArgumentError
from drover.model.ids import TaskId
from drover.model.offsets import METADATA_MAX_BYTES, CommitOutcome, CommittedOffset, TaskOffsets
from tests.unit.dataplane.writer import Writer, claim

TASK = TaskId("connector", 0)


def commit(store: EmbeddedStore, *offsets: CommittedOffset) -> CommitOutcome:
    term = store.current_claim(TASK) or claim(store, TASK)
    return store.commit_offsets([TaskOffsets(TASK, term, offsets)])[0].outcome


def test_partitions_equal_as_json_are_one_and_keep_their_first_bytes(store: EmbeddedStore) -> None:
    commit(store, CommittedOffset('{"b": 1,  "a":"é"}', '{"n":1}', "one"))
    commit(store, CommittedOffset('{"a":"\\u00e9","b":1}', '{"n": 2}', "two"))
    assert store.fetch_offsets("connector") == [
        CommittedOffset('{"b": 1,  "a":"é"}', '{"n": 2}', "two")
    ]


def test_partitions_that_differ_are_kept_apart(store: EmbeddedStore) -> None:
    for partition in ('{"a":1}', '{"a":"1"}', '{"a":[1]}', "{}"):
        commit(store, CommittedOffset(partition, "{}"))
    assert len(store.fetch_offsets("connector")) == 4
    assert store.fetch_offsets("another") == []


def test_an_offset_of_none_removes_its_partition(store: EmbeddedStore) -> None:
    commit(store, CommittedOffset('{"a":1}', "{}"), CommittedOffset('{"a":2}', "{}"))
    assert commit(store, CommittedOffset('{ "a": 1 }', None)) is CommitOutcome.COMMITTED
    assert [each.partition_json for each in store.fetch_offsets("connector")] == ['{"a":2}']


@pytest.mark.parametrize(
    "faulty",
    [
        CommittedOffset("[]", "{}"),
        CommittedOffset("{}", "7"),
        CommittedOffset("not json", "{}"),
        CommittedOffset('{"a":NaN}', "{}"),
        CommittedOffset('{"a":1e400}', "{}"),
        CommittedOffset("[" * 100_000, "{}"),
        CommittedOffset("{}", '{"n":' + "9" * 5_000 + "}"),
        CommittedOffset('{"a":"\\ud800"}', "{}"),
        CommittedOffset("{}", "{}", "é" * (METADATA_MAX_BYTES // 2 + 1)),
    ],
)
def test_a_faulty_offset_refuses_all_of_its_task_and_none_of_others(
    store: EmbeddedStore, faulty: CommittedOffset
) -> None:
    other = TaskId("connector", 1)
    good = CommittedOffset('{"good":1}', "{}")
    results = store.commit_offsets(
        [
            TaskOffsets(TASK, claim(store, TASK), [good, faulty]),
            TaskOffsets(other, claim(store, other), [CommittedOffset('{"other":1}', "{}")]),
        ]
    )
    assert [each.outcome for each in results] == [CommitOutcome.INVALID, CommitOutcome.COMMITTED]
    assert "offsets[1]" in results[0].message
    assert [each.partition_json for each in store.fetch_offsets("connector")] == ['{"other":1}']


def test_metadata_may_be_as_long_as_the_limit(store: EmbeddedStore) -> None:
    metadata = "é" * (METADATA_MAX_BYTES // 2)
    assert commit(store, CommittedOffset("{}", "{}", metadata)) is CommitOutcome.COMMITTED
    assert store.fetch_offsets("connector")[0].metadata == metadata


def test_publish_names_every_faulty_offset_and_writes_nothing(writer: Writer) -> None:
    blobs = writer.stage([b"x"])
    faulty = [CommittedOffset("[]", "1"), CommittedOffset("{}", "{}", "m" * 5000)]
    with pytest.raises(InvalidArgumentError) as caught:
        writer.store.publish(writer.task, writer.claim, blobs, faulty)
    assert [each.field for each in caught.value.violations] == [
        "offsets[0].partition_json",
        "offsets[0].offset_json",
        "offsets[1].metadata",
    ]
    assert writer.store.end_offsets("topic") == {0: 0}
    assert writer.store.publish(writer.task, writer.claim, blobs).record_count == 1


def test_pages_go_on_behind_the_one_before_and_read_no_more_than_they_hold(
    store: EmbeddedStore,
) -> None:
    written = [
        CommittedOffset(f'{{"n":"{number:03}"}}', '{"at":1}', "m" * 100) for number in range(9)
    ]
    commit(store, *written)
    found: list[CommittedOffset] = []
    more, after = True, ""
    while more:
        page, more = store.fetch_offsets_page(
            "connector", after_partition_json=after, max_bytes=500
        )
        assert 1 <= len(page) <= 3
        found += page
        after = f" {page[-1].partition_json} "  # as JSON, not as text
    assert found == written
    assert store.fetch_offsets_page("connector", after_partition_json=after, max_bytes=1) == (
        [],
        False,
    )
    assert store.fetch_offsets_page("connector", max_bytes=1) == (written[:1], True)
    assert store.fetch_offsets_page("another", max_bytes=1) == ([], False)
