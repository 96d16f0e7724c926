"""Spark's Python Data Sources as source connectors, in the test kit."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from drover.connectors.python_data_source import PythonDataSource, goes_back
from drover.errors import InvalidArgumentError
from drover.testing import KillPoint, SourceKit, TaskFailedError

pytestmark = pytest.mark.spark

MODULE = "tests.support.data_sources"
MakeSource = Callable[..., SourceKit]


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_PLUGIN_MODULES", MODULE)


def made(
    source_kit: MakeSource,
    name: str,
    path: Path | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> SourceKit:
    options = json.dumps({} if path is None else {"path": str(path)})
    settings = {"datasource": f"{MODULE}:{name}", "datasource.options": options, "topic": "t"}
    return source_kit(PythonDataSource, {**settings, **more})


def rows(kit: SourceKit) -> list[Any]:
    return [record.json["payload"] for record in kit.records("t")]


def test_a_streaming_one_is_read_from_offset_to_offset(
    source_kit: MakeSource, tmp_path: Path
) -> None:
    path = tmp_path / "end"
    path.write_text("7")
    kit = made(source_kit, "Counter", path, {"key.columns": "id"})
    kit.run()
    kit.stop()
    path.write_text("9")
    kit.run()
    assert rows(kit) == [{"id": n, "text": f"number {n}"} for n in range(9)]
    assert [record.json["payload"] for record in kit.records("t")][8]["id"] == 8
    assert kit.committed == [({"datasource": f"{MODULE}:Counter"}, {"offset": {"next": 9}})]
    assert Path(f"{path}.commits").read_text() == '{"next": 7}\n{"next": 9}\n'


def test_one_that_goes_back_is_refused(source_kit: MakeSource, tmp_path: Path) -> None:
    path = tmp_path / "end"
    path.write_text("7")
    kit = made(source_kit, "Counter", path)
    kit.run()
    path.write_text("3")
    with pytest.raises(TaskFailedError, match=r'went back: from the offset \{"next": 7\}'):
        kit.run()
    assert len(rows(kit)) == 7


def test_a_simple_one_is_read_once_for_each_batch(source_kit: MakeSource, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("one\ntwo\n")
    kit = made(source_kit, "Lines", path)
    kit.run()
    path.write_text("one\ntwo\nthree\n")
    kit.run()
    assert rows(kit) == [{"line": "one"}, {"line": "two"}, {"line": "three"}]


def test_one_without_streams_is_read_as_a_whole_once_or_every_so_often(
    source_kit: MakeSource,
) -> None:
    kit = made(source_kit, "Whole")
    kit.run()
    kit.stop()
    kit.run()
    assert rows(kit) == [{"part": 1}, {"part": 2}]
    again = made(source_kit, "Whole", more={"datasource.every.ms": "1"})
    again.run(until=lambda: len(rows(again)) == 6)


def test_one_without_streams_cannot_stream(source_kit: MakeSource) -> None:
    kit = made(source_kit, "Whole", more={"datasource.mode": "streaming"})
    with pytest.raises(ValueError, match="has no stream reader"):
        kit.run()


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"datasource": "os:path"}, "'os' is not allowed"),
        ({"datasource": f"{MODULE}:Span"}, "derives from pyspark's DataSource"),
        ({"datasource": "nothing"}, "entry point of drover.data_sources"),
        ({"datasource.options": "[]"}, "must be a JSON object of texts"),
        ({"datasource.options.secret": '{"a": 1}'}, "must be a JSON object of texts"),
        ({"datasource.mode": "slow"}, "must be one of auto, streaming, batch"),
    ],
)
def test_faults_are_told_before_it_starts(
    source_kit: MakeSource, changed: dict[str, str], fault: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        made(source_kit, "Whole", more=changed)
    assert any(fault in each.description for each in caught.value.violations)


@pytest.mark.parametrize(
    ("start", "end", "back"),
    [
        ({"a": 2}, {"a": 1}, True),
        ({"a": 2}, {"a": 2}, False),
        ({"day": 1, "row": 9}, {"day": 2, "row": 0}, False),
        ({"p": {"a": [3, 4]}, "x": "b"}, {"p": {"a": [3, 2]}, "x": "a"}, True),
        ({"a": 1}, {"b": 0}, False),
        (None, {"a": 0}, False),
    ],
)
def test_an_offset_goes_back_when_its_numbers_do(start: Any, end: Any, back: bool) -> None:
    assert goes_back(start, end) is back


@pytest.mark.faults("connectors")
def test_a_kill_loses_nothing_and_doubles_nothing(source_kit: MakeSource, tmp_path: Path) -> None:
    path = tmp_path / "end"
    path.write_text("7")
    kit = made(source_kit, "Counter", path)
    kit.kill(KillPoint.AFTER_WRITE)
    kit.kill(KillPoint.AFTER_COMMIT)
    kit.run()
    assert [row["id"] for row in rows(kit)] == list(range(7))
