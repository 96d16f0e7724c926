"""A preview of a source shows the records that a run writes: topic, key, value and order."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from drover.connectors.datagen.source import DatagenSource
from drover.connectors.files.files_source import FilesSource
from drover.connectors.files.lines.file_stream_source import FileStreamSource
from drover.testing import SourceKit
from tests.support.previews import previewed, raw_records

pytestmark = pytest.mark.spark

ROUTE = {
    "transforms": "route",
    "transforms.route.type": "RegexRouter",
    "transforms.route.regex": "(.*)",
    "transforms.route.replacement": "routed-$1",
}
CODES = "zip,price\n02134,007.50\n1e5,3\n,\n"
SCHEMALESS = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
CASES: Mapping[str, tuple[Any, dict[str, str]]] = {
    "datagen": (
        DatagenSource,
        {"schema": "id bigint, city string, at timestamp", "max.records": "5", "key": "id"},
    ),
    "datagen, schemaless": (
        DatagenSource,
        {"schema": "id bigint, price decimal(10,2)", "max.records": "5", **SCHEMALESS},
    ),
    "csv": (FilesSource, {"path": "{path}/a.csv"}),
    "csv with types": (
        FilesSource,
        {"path": "{path}/a.csv", "schema": "zip string, price decimal(10,2)", "key": "zip"},
    ),
    "json": (FilesSource, {"path": "{path}/a.json", "format": "json"}),
    "text": (FilesSource, {"path": "{path}/a.csv", "format": "text"}),
    "lines": (FileStreamSource, {"file": "{path}/a.csv"}),
}


def decoded(text: bytes | str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text.decode() if isinstance(text, bytes) else text


@pytest.mark.parametrize("routed", [False, True], ids=["", "routed"])
@pytest.mark.parametrize("name", CASES)
def test_a_run_writes_what_the_preview_shows(
    source_kit: Callable[..., SourceKit], tmp_path: Path, name: str, *, routed: bool
) -> None:
    (tmp_path / "a.csv").write_text(CODES)
    (tmp_path / "a.json").write_text(
        '{"id": 9007199254740993, "tags": ["a"], "n": 1.5}\n{"id": 18446744073709551615}\n'
    )
    kind, config = CASES[name]
    config = {key: text.replace("{path}", str(tmp_path)) for key, text in config.items()}
    kit = source_kit(kind, {"topic": "shown", **config, **(ROUTE if routed else {})})
    rows = previewed(kit).rows
    shown = [row.records[-1] for row in rows if not row.failed_step]
    kit.run()
    topic = "routed-shown" if routed else "shown"
    written = raw_records(kit, topic)
    assert {each.topic for each in shown} == {topic}
    seen = [(decoded(key), decoded(value)) for key, value in written]
    told = [
        (
            decoded(each.key) if each.HasField("key") else None,
            decoded(each.value) if each.HasField("value") else None,
        )
        for each in shown
    ]
    assert len(seen) > 1
    assert sorted(map(repr, told)) == sorted(map(repr, seen))
