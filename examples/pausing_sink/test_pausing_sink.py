"""Tests of the sink in Drover's test kit, without a cluster: `pytest` in this folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drover.connector import TopicPartition
from drover.testing import KillPoint, SinkKit
from pausing_sink import PausingSink

FIRST, SECOND = TopicPartition("records", 0), TopicPartition("records", 1)
MakeSink = Callable[..., SinkKit]


def take(root: Path, partition: int) -> list[Any]:
    """Read and delete the files of a mailbox, as another program does."""
    taken = []
    for path in sorted((root / f"records-{partition}").glob("*.jsonl")):
        taken += [json.loads(line)["n"] for line in path.read_text().splitlines()]
        path.unlink()
    return taken


def full_mailboxes(sink_kit: MakeSink, root: Path) -> SinkKit:
    """A sink that has filled both mailboxes while more records wait in the topic."""
    kit = sink_kit(PausingSink, {"files.max": "1"}, directory=root)
    for partition in (0, 1):
        rows = [{"n": n} for n in range(4)]
        kit.feed(rows, partition=partition, partition_count=2)
    kit.run(batch_records=4)
    assert kit.committed == {FIRST: 2, SECOND: 2}
    return kit


def test_a_full_mailbox_pauses_only_its_partition(sink_kit: MakeSink, tmp_path: Path) -> None:
    kit = full_mailboxes(sink_kit, tmp_path)
    kit.let_time_pass()
    assert kit.committed == {FIRST: 2, SECOND: 2}
    assert take(tmp_path, 0) == [0, 1]
    kit.let_time_pass()
    assert kit.committed == {FIRST: 4, SECOND: 2}
    assert take(tmp_path, 0) == [2, 3]
    assert take(tmp_path, 1) == [0, 1]


def test_a_killed_sink_fills_no_mailbox_twice(sink_kit: MakeSink, tmp_path: Path) -> None:
    kit = full_mailboxes(sink_kit, tmp_path)
    assert take(tmp_path, 0) == [0, 1]
    kit.kill(before_line="filled.replace(box / FILLED)", batch_records=3)
    kit.kill(KillPoint.AFTER_WRITE, batch_records=4)
    assert kit.committed == {FIRST: 2, SECOND: 2}
    assert take(tmp_path, 0) == [2, 3]
    kit.run(batch_records=4)
    assert take(tmp_path, 0) == []
    assert take(tmp_path, 1) == [0, 1]
    kit.let_time_pass()
    assert take(tmp_path, 1) == [2, 3]
    assert kit.committed[SECOND] == 4
