"""Connectors in the test kit: what authors can write, run by the engine's own code."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drover.connector import GeneratorError, TopicPartition
from drover.testing import SinkKit, SourceKit, TaskFailedError
from tests.support import kit_connectors as connectors

pytestmark = pytest.mark.spark

FIRST, SECOND = TopicPartition("records", 0), TopicPartition("records", 1)
MakeSink = Callable[..., SinkKit]
MakeSource = Callable[..., SourceKit]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out"


def numbers(*values: int) -> list[dict[str, int]]:
    return [{"n": n} for n in values]


def test_a_generator_is_a_source(source_kit: MakeSource) -> None:
    kit = source_kit(connectors.counter, limit=25)
    kit.run(batches=1)
    assert kit.committed == [({}, {"next": 10})]
    kit.stop()
    kit.run()
    found = kit.records("numbers")
    assert [each.json["payload"] for each in found] == numbers(*range(25))
    assert kit.committed == [({}, {"next": 25})]


@pytest.mark.parametrize(
    ("mode", "error", "words"),
    [
        ("ends", GeneratorError, "the generator of counter ended"),
        ("raises", RuntimeError, "no more numbers"),
        ("odd", GeneratorError, "yielded dict"),
    ],
)
def test_what_a_generator_must_not_do_fails_its_task(
    source_kit: MakeSource, mode: str, error: type[Exception], words: str
) -> None:
    kit = source_kit(connectors.counter, limit=10, mode=mode)
    with pytest.raises(TaskFailedError, match=words) as caught:
        kit.run()
    assert isinstance(caught.value.__cause__, error)
    assert kit.committed == [({}, {"next": 10})]


def test_a_generator_that_is_to_be_called_again_goes_on_from_what_is_committed(
    source_kit: MakeSource,
) -> None:
    kit = source_kit(connectors.hesitant, {"errors.retry.timeout": "60000"})
    kit.run()
    assert [each.json["payload"]["n"] for each in kit.records("numbers")] == [1, 2]


def test_a_null_value_of_a_source_is_a_tombstone_beside_rows_that_are_bad(
    source_kit: MakeSource,
) -> None:
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"}
    kit = source_kit(connectors.customers, letters)
    kit.run(batches=1)
    found = [(each.key, each.value) for each in kit.records("customers")]
    assert found == [("1", {"city": "Oslo"}), ("2", None)]
    assert [each.value for each in kit.records("bad")] == [b"?"]


def test_a_bad_row_of_a_table_of_records_is_named_by_its_origin(source_kit: MakeSource) -> None:
    kit = source_kit(connectors.customers)
    with pytest.raises(TaskFailedError, match=r"row 3.*no customer"):
        kit.run()


def test_a_function_is_a_sink(sink_kit: MakeSink, path: Path) -> None:
    kit = sink_kit(connectors.lines, path=path)
    kit.feed(numbers(1, 2, 3))
    kit.run(batch_records=2)
    assert path.read_text() == "1\n2\n3\n"
    assert kit.committed == {FIRST: 3}
    assert kit.metadata == {FIRST: "done"}


def test_a_batch_whose_commit_is_lost_comes_again_cut_otherwise(
    sink_kit: MakeSink, path: Path
) -> None:
    kit = sink_kit(connectors.lines, path=path)
    kit.feed(numbers(1, 2, 3))
    kit.run_uncommitted(batch_records=2)
    assert kit.committed == {}
    kit.run()
    assert path.read_text() == "1\n2\n1\n2\n3\n"


def test_of_each_key_the_last_row_is_left(sink_kit: MakeSink, path: Path) -> None:
    kit = sink_kit(connectors.latest, path=path)
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    rows = pa.Table.from_pylist([{"id": n % 2, "n": n} for n in range(5)], schema)
    keyless = pa.Table.from_pylist([{"id": None, "n": n} for n in (8, 9)], schema)
    for partition in (0, 1):
        kit.feed(rows, keys="id", partition=partition, partition_count=2)
        kit.feed([None], keys=[0], partition=partition)
        kit.feed(keyless, partition=partition)
    kit.run()
    each = "[(1, 3), (None, 8), (None, 9)]"
    assert path.read_text() == f"0: {each}\n1: {each}\n"


def test_a_sink_receives_keys_values_headers_and_deletions(sink_kit: MakeSink, path: Path) -> None:
    kit = sink_kit(connectors.records, path=path)
    kit.feed([{"n": 1}, None], keys=["a", "b"], headers=[("trace", b"7")])
    kit.feed([{"n": 2.5}])
    kit.run()
    assert path.read_text().splitlines() == [
        "records-0@0 'a' set {'n': 1} (('trace', b'7'),)",
        "records-0@1 'b' deleted None (('trace', b'7'),)",
        "records-0@2 None set {'n': 2.5} ()",
    ]
    assert kit.committed == {FIRST: 3}


def test_a_sink_without_converters_receives_records_as_bytes(
    sink_kit: MakeSink, path: Path
) -> None:
    kit = sink_kit(connectors.bytes_records, path=path)
    kit.feed([b"{not json", None], keys=[b"a", b"b"])
    kit.run()
    assert path.read_text().splitlines() == ["b'a' b'{not json'", "b'b' None"]


def test_a_record_without_a_python_object_becomes_a_dead_letter(
    sink_kit: MakeSink, path: Path
) -> None:
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"}
    kit = sink_kit(connectors.records, letters, path=path)
    date = {"type": "int32", "name": "org.apache.kafka.connect.data.Date", "version": 1}
    schema = {"type": "struct", "fields": [{"field": "day", **date}]}
    values = [{"schema": schema, "payload": {"day": day}} for day in (1, 3_000_000)]
    kit.feed([json.dumps(each).encode() for each in values])
    kit.run()
    assert path.read_text() == "records-0@0 None set {'day': datetime.date(1970, 1, 2)} ()\n"
    assert kit.committed == {FIRST: 2}
    assert len(kit.records("bad")) == 1


def test_a_generator_is_a_sink_that_is_closed_at_its_end(sink_kit: MakeSink, path: Path) -> None:
    kit = sink_kit(connectors.gathered, path=path)
    kit.feed(numbers(1, 2, 3))
    kit.run(batch_records=2)
    assert kit.metadata == {FIRST: "written"}
    kit.stop()
    assert path.read_text() == "1\n2\n3\nclosed\n"


def test_a_sink_that_is_to_be_called_again_sees_what_is_committed_by_then(
    sink_kit: MakeSink, path: Path
) -> None:
    kit = sink_kit(connectors.journal, {"errors.retry.timeout": "60000"}, path=path)
    kit.feed(numbers(1, 2, 3, 4))
    kit.run(batch_records=1)
    assert path.read_text() == "1\n2\n3\n4\n"
    assert kit.metadata == {FIRST: "8"}


@pytest.mark.parametrize(("mode", "words"), [("ends", "ended without"), ("odd", "yielded int")])
def test_what_a_generator_must_not_do_fails_its_sink(
    sink_kit: MakeSink, path: Path, mode: str, words: str
) -> None:
    kit = sink_kit(connectors.gathered, path=path, mode=mode)
    kit.feed(numbers(1))
    with pytest.raises(TaskFailedError, match=words):
        kit.run()
    assert kit.committed == {}


def test_a_sink_that_holds_back_commits_what_it_wrote(sink_kit: MakeSink, path: Path) -> None:
    kit = sink_kit(connectors.Buffer, path=path)
    kit.feed(numbers(1, 2), partition_count=2, partition=0)
    kit.feed(numbers(3), partition=1)
    kit.run(batch_records=2)
    assert kit.committed == {}
    assert not path.exists()
    kit.let_time_pass()
    assert kit.committed == {FIRST: 2, SECOND: 1}
    kit.feed(numbers(4))
    kit.run(batch_records=2)
    kit.stop()
    kit.feed(numbers(*range(5, 10)))
    kit.run()
    assert path.read_text() == "[1, 2, 3]\n[4, 5, 6, 7, 8, 9]\n"
    assert kit.committed == {FIRST: 8, SECOND: 1}


def test_a_task_that_asked_for_nothing_is_not_called_without_records(
    sink_kit: MakeSink, path: Path
) -> None:
    kit = sink_kit(connectors.lines, path=path)
    kit.run()
    with pytest.raises(AssertionError, match="did not request"):
        kit.let_time_pass()


def test_values_without_fields_are_told(sink_kit: MakeSink, path: Path) -> None:
    kit = sink_kit(connectors.lines, {"value.converter": "StringConverter"}, path=path)
    kit.feed(["text"])
    with pytest.raises(TaskFailedError, match="record records-0@0: its value has the type string"):
        kit.run()


def test_a_config_with_faults_is_told_at_once(sink_kit: MakeSink) -> None:
    with pytest.raises(Exception, match="path"):
        sink_kit(connectors.lines)


def test_a_sink_pauses_a_partition_and_resumes_it(sink_kit: MakeSink) -> None:
    kit = sink_kit(connectors.Asking, mode="pauses")
    kit.feed(numbers(1, 2), partition=0, partition_count=2)
    kit.feed(numbers(3, 4), partition=1)
    kit.run(batch_records=2)
    assert kit.committed == {FIRST: 2, SECOND: 1}
    kit.feed(numbers(5), partition=0)
    kit.run(batch_records=2)
    assert kit.committed == {FIRST: 3, SECOND: 1}
    kit.task.context.resume(SECOND)
    kit.run(batch_records=2)
    assert kit.committed == {FIRST: 3, SECOND: 2}
    assert kit.task.given == [(0, 0, 1), (1, 0, 1), (0, 1, 2), (0, 2, 3), (1, 1, 2)]


def test_a_sink_that_goes_back_gets_records_again_and_commits_no_more_than_that(
    sink_kit: MakeSink,
) -> None:
    kit = sink_kit(connectors.Asking, mode="rewinds")
    kit.feed(numbers(1, 2, 3))
    kit.run(batches=1)
    assert kit.committed == {FIRST: 1}
    kit.run()
    assert kit.task.given == [(0, 0, 3), (0, 1, 3)]
    assert kit.committed == {FIRST: 3}


def test_a_sink_that_knows_better_where_it_is_begins_there(sink_kit: MakeSink) -> None:
    kit = sink_kit(connectors.Asking, mode="knows")
    kit.feed(numbers(1, 2, 3))
    kit.run()
    assert kit.task.given == [(0, 2, 3)]


@pytest.mark.parametrize(
    ("mode", "words"), [("beyond", "up to 3"), ("others", "not assigned to this")]
)
def test_a_sink_cannot_commit_what_it_was_not_given(
    sink_kit: MakeSink, mode: str, words: str
) -> None:
    kit = sink_kit(connectors.Asking, mode=mode)
    kit.feed(numbers(1, 2, 3))
    with pytest.raises(TaskFailedError, match=words):
        kit.run()
    assert kit.committed == {}


def test_a_source_is_told_what_is_committed_before_it_is_polled_again(
    source_kit: MakeSource,
) -> None:
    kit = source_kit(connectors.Acking, {"errors.retry.timeout": "60000"})
    kit.run()
    told: list[Any] = [(1, ({}, {"next": 1})), (1, ({}, {"next": 1})), (2, ({}, {"next": 2}))]
    assert kit.task.told == told
