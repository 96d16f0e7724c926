"""How built-in plugins check the offsets that an operator sets or removes."""

from typing import Any

import pytest

from drover.connector.catalogue import PluginNotFoundError, PluginRegistry
from drover_worker.engine.plugins.offset_changes import alter_offsets

LINES = {"name": "a", "connector.class": "FileStreamSource", "file": "/f", "topic": "t"}
FILES = {"name": "a", "connector.class": "FilesSource", "path": "/d/*.csv", "topic": "t"}
ROWS = {"name": "a", "connector.class": "DatagenSource", "quickstart": "orders"}
SINK = {"name": "a", "connector.class": "FileStreamSink", "file": "/f", "topics": "t"}
CONSOLE = {"name": "a", "connector.class": "ConsoleSink", "topics": "t"}
AT_ONE = ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 1})
FILE = {"filename": "/f"}


def alter(config: dict[str, str], *changes: tuple[dict[str, Any], dict[str, Any] | None]) -> bool:
    return alter_offsets(PluginRegistry(), config, changes)


def test_sources_that_keep_nothing_elsewhere_say_so() -> None:
    assert alter(LINES, (FILE, {"position": 7}), ({"filename": "/g"}, None))
    assert alter(FILES, ({"path": "/d/a.csv"}, {"position": 7, "lines": 1}))
    assert alter(ROWS, ({"lane": 3}, {"next": 0}))
    assert alter(LINES)


def test_a_sink_whose_file_belongs_to_its_offsets_confirms_a_change() -> None:
    assert alter(SINK, AT_ONE)
    assert alter(SINK)


def test_a_plugin_that_says_nothing_may_have_more_to_change() -> None:
    assert not alter(CONSOLE, AT_ONE)


@pytest.mark.parametrize(
    ("config", "partition", "offset", "told"),
    [
        (LINES, {"file": "/f"}, {"position": 1}, "filename"),
        (LINES, {"filename": 7}, {"position": 1}, "filename"),
        (LINES, FILE, {"position": -1}, "position"),
        (LINES, FILE, {"position": "7"}, "position"),
        (LINES, FILE, {"position": True}, "position"),
        (LINES, FILE, {}, "position"),
        (FILES, {"path": "/d/a.csv"}, {"position": 7}, "every field of its offset"),
        (ROWS, {"lane": "3"}, {"next": 0}, "lane"),
        (ROWS, {"lane": 3}, {"next": None}, "next"),
    ],
)
def test_offsets_that_no_task_could_go_on_from_are_refused(
    config: dict[str, str], partition: dict[str, Any], offset: dict[str, Any] | None, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        alter(config, (partition, offset))


def test_offsets_of_another_connector_may_be_removed() -> None:
    assert alter(LINES, ({"protocol": "1", "table": "shop.public.orders"}, None))
    assert alter(FILES, ({"server": "shop"}, None))


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"position of .*/f.*; position of .*/g"):
        alter(LINES, (FILE, {}), ({"filename": "/g"}, {}))


def test_a_plugin_that_is_not_installed() -> None:
    with pytest.raises(PluginNotFoundError):
        alter({**LINES, "connector.class": "Nope"})
