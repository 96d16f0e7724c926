"""Kills by the test kit: the connector's process ends at once, and the next one resumes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drover.connector import TopicPartition
from drover.testing import KillPoint, SinkKit, SourceKit
from tests.support import kit_connectors as connectors

pytestmark = [pytest.mark.spark, pytest.mark.faults("connectors")]

FIRST = TopicPartition("records", 0)


def test_a_source_that_is_killed_gives_each_record_once(
    source_kit: Callable[..., SourceKit],
) -> None:
    kit = source_kit(connectors.counter, limit=40)
    kit.kill(KillPoint.AFTER_WRITE, after_batches=1)
    assert kit.committed == [({}, {"next": 10})]
    kit.kill(KillPoint.AFTER_COMMIT)
    assert kit.committed == [({}, {"next": 20})]
    kit.run()
    found = [each.json["payload"]["n"] for each in kit.records("numbers")]
    assert found == list(range(40))


def test_a_sink_is_killed_before_a_line_and_after_its_write(
    sink_kit: Callable[..., SinkKit], tmp_path: Path
) -> None:
    path = tmp_path / "out"
    kit = sink_kit(connectors.lines, path=path)
    kit.feed([{"n": 1}, {"n": 2}])
    kit.kill(before_line="for row in batch.arrow().run(iter):")
    assert path.read_text() == ""
    kit.kill(KillPoint.AFTER_WRITE)
    assert path.read_text() == "1\n2\n"
    assert kit.committed == {}
    kit.kill(KillPoint.AFTER_COMMIT, batch_records=1)
    assert kit.committed == {FIRST: 1}
    kit.run()
    assert path.read_text() == "1\n2\n1\n2\n"


def test_a_task_that_rests_before_it_is_killed_fails_the_test(
    sink_kit: Callable[..., SinkKit], tmp_path: Path
) -> None:
    kit = sink_kit(connectors.lines, path=tmp_path / "out")
    with pytest.raises(AssertionError, match="before it reached after write"):
        kit.kill(KillPoint.AFTER_WRITE)
