"""Tests of the sink in Drover's test kit, without a cluster: `pytest` in this folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from buffering_sink import BufferingSink
from drover.connector import TopicPartition
from drover.testing import KillPoint, SinkKit

FIRST = TopicPartition("records", 0)
MakeSink = Callable[..., SinkKit]


def files_in(directory: Path) -> list[list[Any]]:
    paths = sorted(directory.glob("*.jsonl"))
    return [[json.loads(line)["n"] for line in path.read_text().splitlines()] for path in paths]


def feed(kit: SinkKit, *numbers: int) -> None:
    kit.feed([{"n": n} for n in numbers])


def test_rows_are_written_in_full_files_and_after_the_wait(
    sink_kit: MakeSink, tmp_path: Path
) -> None:
    kit = sink_kit(BufferingSink, {"rows.min": "3"}, directory=tmp_path)
    feed(kit, *range(6))
    kit.run(batch_records=2)
    assert kit.committed == {FIRST: 4}
    kit.let_time_pass()
    assert files_in(tmp_path) == [[0, 1, 2, 3], [4, 5]]
    assert kit.committed == {FIRST: 6}


def test_rows_buffered_at_a_kill_are_redelivered(sink_kit: MakeSink, tmp_path: Path) -> None:
    kit = sink_kit(BufferingSink, {"rows.min": "4"}, directory=tmp_path)
    feed(kit, *range(20))
    kit.kill(before_line="unfinished.replace(path)", batch_records=3)
    kit.kill(KillPoint.AFTER_WRITE, after_batches=1, batch_records=3)
    assert (kit.committed, files_in(tmp_path)) == ({}, [[*range(6)]])
    kit.kill(KillPoint.AFTER_COMMIT, batch_records=5)
    assert kit.committed == {FIRST: 5}
    kit.run(batch_records=8)
    assert files_in(tmp_path) == [[*range(5)], [*range(5, 13)], [*range(13, 20)]]
    assert kit.committed == {FIRST: 20}
