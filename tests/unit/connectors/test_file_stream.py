"""The file stream connectors without Spark: settings, splitting, watching, lengths."""

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drover.connector import ConnectorContext, SinkOffset, TopicPartition
from drover.connector.settings import parse_config
from drover.connectors.files.lines.file_stream_sink import FileStreamSink, committed_length
from drover.connectors.files.lines.file_stream_source import TASK_FILES, FileStreamSource
from drover.connectors.files.lines.part_writer import PartWriter, join_lines
from tests.support.waiting import wait_until

SOURCE = {"name": "s", "connector.class": "FileStreamSource", "topic": "t"}
SINK = {"name": "s", "connector.class": "FileStreamSink", "topics": "t"}


def started(pattern: Path, context: ConnectorContext | None = None) -> FileStreamSource:
    raw = {**SOURCE, "file": str(pattern), "rescan.interval.ms": "100"}
    connector = FileStreamSource()
    connector.start(
        context or ConnectorContext("s"), parse_config(FileStreamSource, raw).require_valid()
    )
    return connector


def files_of(connector: FileStreamSource, max_tasks: int) -> list[list[str]]:
    configs = connector.task_configs(max_tasks)
    return [[Path(path).name for path in json.loads(each[TASK_FILES])] for each in configs]


@pytest.mark.parametrize("file", ["", "relative.txt", "/a/b\0c", "/a/directory/"])
def test_a_path_has_to_be_absolute(file: str) -> None:
    for plugin, raw in ((FileStreamSource, SOURCE), (FileStreamSink, SINK)):
        violations = parse_config(plugin, {**raw, "file": file}).violations
        assert [each.field for each in violations] == ["file"]


def test_a_source_with_three_faults_has_three_violations() -> None:
    raw = {"name": "s", "connector.class": "x", "topic": "a b", "tasks.max": "many", "file": "x"}
    violations = parse_config(FileStreamSource, raw).violations
    assert sorted(each.field for each in violations) == ["file", "tasks.max", "topic"]


@pytest.mark.parametrize(("tasks", "count"), [("1", 0), ("2", 1), ("0", 1), ("many", 1)])
def test_a_sink_has_one_task(tasks: str, count: int) -> None:
    violations = parse_config(FileStreamSink, {**SINK, "file": "/f", "tasks.max": tasks}).violations
    assert [each.field for each in violations] == ["tasks.max"] * count


def test_a_path_is_one_task_whether_it_exists_or_not(tmp_path: Path) -> None:
    connector = started(tmp_path / "later.txt")
    assert files_of(connector, 5) == [["later.txt"]]
    connector.stop()


def test_the_files_of_a_glob_are_dealt_out(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / f"{name}.txt").touch()
    (tmp_path / "directory.txt").mkdir()
    connector = started(tmp_path / "*.txt")
    assert files_of(connector, 2) == [["a.txt", "c.txt", "e.txt"], ["b.txt", "d.txt"]]
    assert len(files_of(connector, 9)) == 5
    connector.stop()


def test_a_glob_that_matches_nothing_has_no_task_until_a_file_comes(tmp_path: Path) -> None:
    asked = threading.Event()
    connector = started(tmp_path / "*.txt", ConnectorContext("s", asked.set))
    assert files_of(connector, 3) == []
    (tmp_path / "new.txt").touch()
    wait_until(asked.is_set)
    assert files_of(connector, 3) == [["new.txt"]]
    connector.stop()


def test_a_new_file_is_told_once(tmp_path: Path) -> None:
    count = 0

    def ask() -> None:
        nonlocal count
        count += 1

    connector = started(tmp_path / "*.txt", ConnectorContext("s", ask))
    connector.task_configs(1)
    (tmp_path / "new.txt").touch()
    wait_until(lambda: count)
    (tmp_path / "newer.txt").touch()
    wait_until(lambda: count == 2)
    connector.stop()
    assert count == 2
    assert connector._watcher is not None
    assert not connector._watcher.is_alive()


# -- configs with Kafka Connect's class names -------------------------------------------------


JAVA_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
JAVA_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


def task_configs(plugin: type[FileStreamSource | FileStreamSink], raw: dict[str, str]) -> Any:
    connector = plugin()
    context = ConnectorContext("s", config_texts=raw)
    connector.start(context, parse_config(plugin, raw).require_valid())
    try:
        return connector.task_configs(9)
    finally:
        connector.stop()


@pytest.mark.parametrize(
    ("plugin", "raw", "task_class"),
    [
        (
            FileStreamSource,
            {**SOURCE, "connector.class": JAVA_SOURCE, "batch.size": "10"},
            "Source",
        ),
        (FileStreamSink, {**SINK, "connector.class": JAVA_SINK}, "Sink"),
    ],
)
def test_under_its_name_in_kafka_connect_a_connector_writes_the_task_config_that_it_would(
    plugin: type[FileStreamSource | FileStreamSink], raw: dict[str, str], task_class: str
) -> None:
    raw = {**raw, "file": "/data/lines.txt"}
    wanted = {**raw, "task.class": f"org.apache.kafka.connect.file.FileStream{task_class}Task"}
    assert task_configs(plugin, raw) == [wanted]


def test_a_glob_under_that_name_is_dealt_out_as_ever(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    raw = {**SOURCE, "connector.class": JAVA_SOURCE, "file": str(tmp_path / "*.txt")}
    assert task_configs(FileStreamSource, raw) == [
        {TASK_FILES: json.dumps([str(tmp_path / "a.txt")])}
    ]


# -- the sink's lengths and lines ------------------------------------------------------------


def test_the_committed_length_is_the_longest_that_any_offset_says() -> None:
    assert committed_length({}, ["t"]) == 0
    committed = {
        TopicPartition("t", 0): SinkOffset(5, '{"length": 70}'),
        TopicPartition("t", 1): SinkOffset(9, '{"length": 20}'),
    }
    assert committed_length(committed, ["t"]) == 70
    assert committed_length(committed, ["another by now"]) == 70


def test_an_offset_that_somebody_else_committed_says_no_length() -> None:
    committed = {
        TopicPartition("t", 0): SinkOffset(5, '{"length": 70}'),
        TopicPartition("t", 1): SinkOffset(9),
    }
    assert committed_length(committed, ["s", "t"]) is None
    assert committed_length(committed, ["s"]) == 70, (
        "the offset without a length is of a topic that the sink has left"
    )


@pytest.mark.parametrize("metadata", ["{}", "[]", "7", '{"length": -1}', '{"length": "x"}'])
def test_an_offset_that_does_not_say_the_length_is_told(metadata: str) -> None:
    with pytest.raises(ValueError, match="of t-3 has no file length"):
        committed_length({TopicPartition("t", 3): SinkOffset(5, metadata)}, ["t"])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_values_become_lines_and_null_an_empty_one(kind: pa.DataType) -> None:
    values = pa.array(["a", None, "", "é"], kind)
    assert bytes(join_lines(values)) == "a\n\n\né\n".encode()
    assert bytes(join_lines(values.slice(1, 2))) == b"\n\n"
    assert bytes(join_lines(values.slice(0, 0))) == b""


def test_values_of_another_type_are_told() -> None:
    with pytest.raises(ValueError, match="must be binary or string, not int64"):
        join_lines(pa.array([1]))


def test_a_part_is_the_lines_of_its_batches(tmp_path: Path) -> None:
    batches = [pa.RecordBatch.from_pydict({"value": [b"%d" % n]}) for n in range(3)]
    (row,) = next(iter(PartWriter(str(tmp_path))(batches))).to_pylist()
    assert Path(row["path"]).read_bytes() == b"0\n1\n2\n"
    assert row["size_bytes"] == 6
    empty = pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})
    assert list(PartWriter(str(tmp_path))([empty])) == []
