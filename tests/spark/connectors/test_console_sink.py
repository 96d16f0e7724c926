"""Sinks that show and count records."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from drover.connectors.console_sink import ConsoleSink, NullSink
from drover.testing import SinkKit, TaskFailedError

pytestmark = pytest.mark.spark

MakeSink = Callable[..., SinkKit]


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": n, "name": f"a name of some length {n}"} for n in range(count)]


def shown(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "console_sink" in each.name]


def test_the_first_records_of_each_batch_are_shown(
    sink_kit: MakeSink, caplog: pytest.LogCaptureFixture
) -> None:
    kit = sink_kit(ConsoleSink, {"rows.max": "3", "record.max.chars": "20"})
    kit.feed(rows(100), keys="id")
    with caplog.at_level(logging.INFO, "drover.connectors.console_sink"):
        kit.run(batch_records=50)
    lines = shown(caplog)
    assert len(lines) == 2 * 4
    assert lines[0].startswith('records-0@0 0 {"id":0,"name":"')
    assert lines[0].endswith("…")
    assert lines[3] == "… of 50 records"
    assert lines[4].startswith('records-0@50 50 {"id":50')


def test_records_without_a_schema_are_shown_as_they_are(
    sink_kit: MakeSink, caplog: pytest.LogCaptureFixture
) -> None:
    plain = {
        "key.converter": "StringConverter",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    kit = sink_kit(ConsoleSink, plain)
    kit.feed([b'{"payload":{"id":0}}', b'{"payload":{"id":1}}'])
    with caplog.at_level(logging.INFO, "drover.connectors.console_sink"):
        kit.run()
    lines = shown(caplog)
    assert len(lines) == 2
    assert '"payload"' in lines[0]


def test_records_are_read_and_counted(sink_kit: MakeSink) -> None:
    transforms = {"transforms": "cast", "transforms.cast.type": "Cast$Value"}
    kit = sink_kit(NullSink, {**transforms, "transforms.cast.spec": "id:string"})
    kit.feed(rows(1_000))
    kit.run(batch_records=400)
    assert list(kit.committed.values()) == [1_000]
    failing = sink_kit(NullSink, {**transforms, "transforms.cast.spec": "name:int32"})
    failing.feed(rows(10))
    with pytest.raises(TaskFailedError, match="name"):
        failing.run()
