"""Previews on a real engine; a preview writes nothing."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from drover.api.common.v1.preview_pb2 import Preview
from drover.api.engine.v1 import engine_pb2
from tests.spark.engine.harness import Harness

pytestmark = [pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]


async def preview(
    engine: Harness, config: Mapping[str, str], rows: int = 10
) -> engine_pb2.EngineReport:
    command = engine_pb2.PreviewConnector(config={"name": "p", **config}, row_count=rows)
    return await engine.call(preview_connector=command)


def values(found: Preview, step: int) -> list[object]:
    return [json.loads(row.records[step].value) for row in found.rows if len(row.records) > step]


async def test_rows_of_a_file_are_shown_after_each_step_and_what_fails_in_place(
    engine: Harness, tmp_path: Path
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,city\n1,oslo\n2\n3,bonn\n")
    settings = {
        "connector.class": "FilesSource",
        "path": str(file),
        "topic": "previewed",
        "schema": "id int, city string",
        "transforms": "only,mask,route",
        "transforms.only.type": "Filter",
        "transforms.only.predicate": "oslo",
        "transforms.mask.type": "MaskField$Value",
        "transforms.mask.fields": "id",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": "pre(.*)",
        "transforms.route.replacement": "$1",
        "predicates": "oslo",
        "predicates.oslo.type": "FieldMatches",
        "predicates.oslo.field": "city",
        "predicates.oslo.equals": "oslo",
    }
    found = (await preview(engine, settings)).preview
    assert list(found.steps) == [
        "read", "transforms.only (Filter)", "transforms.mask (MaskField$Value)",
        "transforms.route (RegexRouter)", "write",
    ]  # fmt: skip
    rows = {Path(row.place).name: row for row in found.rows}
    assert sorted(rows) == ["a.csv:2", "a.csv:3", "a.csv:4"]
    assert rows["a.csv:2"].dropped_by == "transforms.only (Filter)"
    bad = rows["a.csv:3"]
    assert (bad.failed_step, len(bad.records)) == ("read", 0)
    assert "columns" in bad.error
    assert values(found, 0) == [{"id": 1, "city": "oslo"}, {"id": 3, "city": "bonn"}]
    assert values(found, 2) == [{"id": 0, "city": "bonn"}]
    assert [(each.step, list(each.values)) for each in found.schemas] == [
        (step, ["struct<id: int32, city: string>"]) for step in found.steps[:-1]
    ]
    topics = [[(each.topic, each.read_topic) for each in one.topics] for one in found.schemas]
    assert topics == [[("previewed", "previewed")]] * 3 + [[("viewed", "previewed")]]
    assert {each.value for each in found.schemas[-1].topics} == {"struct<id: int32, city: string>"}
    (written,) = values(found, 4)
    assert isinstance(written, dict)
    assert written["payload"] == {"id": 0, "city": "bonn"}
    assert engine.store.topic("previewed") is None


async def test_a_sinks_topics_are_read_and_a_missing_one_is_noted(
    engine: Harness, tmp_path: Path
) -> None:
    await engine.start_task("counted", plugin="Counter", topic="counted", limit="5", step="5")
    await engine.wait_for_records("counted", 5)
    await engine.stop_task("counted")
    settings = {
        "connector.class": "FilesSink",
        "topics": "counted,nowhere",
        "path": str(tmp_path / "out"),
        "value.converter": "StringConverter",
    }
    found = (await preview(engine, settings, 3)).preview
    assert list(found.steps) == ["read", "write"]
    assert [row.place for row in found.rows] == ["counted-0@0", "counted-0@1", "counted-0@2"]
    assert list(found.notes) == ["missing topics: nowhere"]
    assert not (tmp_path / "out").exists()


async def test_what_cannot_be_previewed_says_why(engine: Harness) -> None:
    answer = await preview(engine, {"connector.class": "Nowhere"})
    assert answer.failure.plugin_not_found


async def test_a_record_without_a_key_for_a_compacted_topic_fails_in_a_preview_too(
    engine: Harness, tmp_path: Path
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a\n")
    settings = {
        "connector.class": "FilesSource",
        "path": str(file),
        "format": "text",
        "topic": "previewed-compacted",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.cleanup.policy": "compact",
        "value.converter": "JsonConverter",
    }
    (row,) = (await preview(engine, settings)).preview.rows
    assert row.failed_step == "write"
    assert "no key, but the topic previewed-compacted" in row.error
