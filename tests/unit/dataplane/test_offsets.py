import pytest

from drover.dataplane.store import EmbeddedStore
from drover.errors import InvalidArgumentError
from drover.model.ids import TaskId
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
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
