"""Tests of the connectors in Drover's test kit, without a cluster: `pytest` in this folder."""

from collections.abc import Callable
from pathlib import Path

from drover.testing import SinkKit, SourceKit
from json_files import JsonFiles, JsonFolder


def test_the_source_reads_each_file_once(
    source_kit: Callable[..., SourceKit], tmp_path: Path
) -> None:
    (tmp_path / "1.json").write_text('{"n": 1}\n{"n": 2}\n')
    kit = source_kit(JsonFiles, directory=str(tmp_path), topic="rows")
    kit.run()
    assert [record.value for record in kit.records("rows")] == [b'{"n":1}', b'{"n":2}']
    assert kit.committed == [({"directory": str(tmp_path)}, {"last": "1.json"})]
    kit.run()
    assert len(kit.records("rows")) == 2


def test_a_redelivered_batch_overwrites_its_folder(
    sink_kit: Callable[..., SinkKit], tmp_path: Path
) -> None:
    kit = sink_kit(JsonFolder, directory=str(tmp_path))
    kit.feed([{"n": 1}, {"n": 2}])
    kit.run_uncommitted()
    kit.run()
    (folder,) = tmp_path.iterdir()
    assert folder.name == "records-0-00000000000000000000"
    parts = sorted(folder.glob("*.txt"))
    assert "".join(part.read_text() for part in parts) == '{"n":1}\n{"n":2}\n'
