"""Connectors of Drover in the kit, killed where it hurts: each record is there once."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from drover.connectors.file_stream_sink import FileStreamSink
from drover.connectors.file_stream_source import FileStreamSource
from drover.connectors.files_sink import FilesSink
from drover.testing import KillPoint, SinkKit, SourceKit

pytestmark = [pytest.mark.spark, pytest.mark.faults("connectors")]


def test_file_stream_source_reads_each_line_once(
    source_kit: Callable[..., SourceKit], tmp_path: Path
) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"line {n}\n" for n in range(20)))
    kit = source_kit(FileStreamSource, file=path, topic="lines")
    kit.kill(KillPoint.AFTER_WRITE)
    kit.kill(KillPoint.AFTER_COMMIT)
    kit.run()
    assert [each.value for each in kit.records("lines")] == [b"line %d" % n for n in range(20)]


def test_file_stream_sink_writes_each_line_once(
    sink_kit: Callable[..., SinkKit], tmp_path: Path
) -> None:
    path = tmp_path / "lines.txt"
    kit = sink_kit(FileStreamSink, file=path)
    kit.feed([b"line %d" % n for n in range(20)])
    kit.kill(KillPoint.AFTER_WRITE, after_batches=1, batch_records=6)
    kit.kill(KillPoint.AFTER_WRITE, batch_records=9)
    kit.run(batch_records=4)
    assert path.read_text() == "".join(f"line {n}\n" for n in range(20))


def test_files_sink_writes_each_row_once(sink_kit: Callable[..., SinkKit], tmp_path: Path) -> None:
    kit = sink_kit(FilesSink, {"format": "json"}, path=tmp_path / "out")
    kit.feed([{"n": n} for n in range(20)])
    kit.kill(KillPoint.AFTER_WRITE, after_batches=1, batch_records=6)
    kit.kill(KillPoint.AFTER_WRITE, batch_records=9)
    kit.run(batch_records=4)
    files = [each for each in (tmp_path / "out").rglob("*.json*") if each.is_file()]
    rows = [json.loads(line)["n"] for each in files for line in each.read_text().splitlines()]
    assert sorted(rows) == list(range(20))
