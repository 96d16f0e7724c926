"""Rows through a topic as Avro, or as Protobuf, with a real schema registry, into files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from drover.connector import RetriableError
from drover.connectors.datagen.source import DatagenSource
from drover.connectors.files.files_sink import FilesSink
from tests.spark.pipeline import Pipeline
from tests.support.apicurio import Apicurio
from tests.support.http_gate import http_gate

pytestmark = pytest.mark.spark

_COLUMNS = (
    "id bigint, name string, price decimal(8,2), at timestamp, day date, score double, "
    "flags array<boolean>, place struct<city:string,zip:int>"
)


def source_of(url: str, topic: str, **more: str) -> dict[str, str]:
    return {
        "name": f"source-{topic}",
        "schema": _COLUMNS,
        "topic": topic,
        "max.records": "200",
        "key": "id",
        **of_avro(url),
        **more,
    }


def of_avro(url: str, **more: str) -> dict[str, str]:
    found = {}
    for side in ("key", "value"):
        found[f"{side}.converter"] = "io.confluent.connect.avro.AvroConverter"
        found[f"{side}.converter.schema.registry.url"] = url
        found[f"{side}.converter.max.retries"] = "0"
    return found | more


def sink_of(url: str, topic: str, path: Path, **more: str) -> dict[str, str]:
    name = f"sink-{topic}"
    return {"name": name, "topics": topic, "path": str(path), **of_avro(url), **more}


def table_in(path: Path) -> pa.Table:
    return ds.dataset(path).to_table().sort_by("id")


def test_rows_reach_files_as_they_were(pipeline: Pipeline, schema_registry: Apicurio) -> None:
    topic, as_json = "avro-rows", "json-rows"
    raw = source_of(schema_registry.url, topic)
    pipeline.start_source(DatagenSource, raw).run_until_idle()
    plain = {name: text for name, text in raw.items() if "converter" not in name}
    plain |= {"name": "plain", "topic": as_json}
    pipeline.start_source(DatagenSource, plain).run_until_idle()
    folders = [pipeline.directory / "avro", pipeline.directory / "json"]
    avro_sink = sink_of(schema_registry.url, topic, folders[0])
    pipeline.start_sink(FilesSink, avro_sink).run_until_idle(max_records=70)
    json_sink = {"name": "json-sink", "topics": as_json, "path": str(folders[1])}
    pipeline.start_sink(FilesSink, json_sink).run_until_idle(max_records=70)
    found, wanted = (table_in(each) for each in folders)
    assert found.num_rows == 200
    assert found.schema.equals(wanted.schema)
    assert found.equals(wanted)
    (schema,) = schema_registry.schemas(f"{topic}-value")
    assert [each["name"] for each in schema["fields"]] == wanted.schema.names
    assert schema_registry.schemas(f"{topic}-key") == [["null", "long"]]


def test_rows_reach_files_as_messages_of_protobuf(
    pipeline: Pipeline, schema_registry: Apicurio
) -> None:
    topic, folder = "proto-rows", pipeline.directory / "proto"
    of_protobuf = {
        f"{side}.converter": "io.confluent.connect.protobuf.ProtobufConverter"
        for side in ("key", "value")
    }
    raw = source_of(schema_registry.url, topic, **of_protobuf)
    pipeline.start_source(DatagenSource, raw).run_until_idle()
    plain = {name: text for name, text in raw.items() if "converter" not in name}
    plain |= {"name": "plain-rows", "topic": "plain-rows"}
    pipeline.start_source(DatagenSource, plain).run_until_idle()
    sink = sink_of(schema_registry.url, topic, folder, **of_protobuf)
    pipeline.start_sink(FilesSink, sink).run_until_idle(max_records=70)
    wanted = pipeline.directory / "wanted"
    plain_sink = {"name": "plain-sink", "topics": "plain-rows", "path": str(wanted)}
    pipeline.start_sink(FilesSink, plain_sink).run_until_idle(max_records=70)
    assert table_in(folder).to_pylist() == table_in(wanted).to_pylist()
    (text,) = schema_registry.texts(f"{topic}-value")
    assert "confluent.type.Decimal price = 3" in text


def test_records_of_another_format_are_dead_letters(
    pipeline: Pipeline, schema_registry: Apicurio
) -> None:
    topic = "avro-mixed"
    raw = source_of(schema_registry.url, topic, **{"max.records": "50"})
    pipeline.start_source(DatagenSource, raw).run_until_idle()
    plain: dict[str, Any] = {name: text for name, text in raw.items() if "converter" not in name}
    pipeline.start_source(DatagenSource, plain | {"name": "other"}).run_until_idle()
    folder = pipeline.directory / "mixed"
    running = pipeline.start_sink(
        FilesSink,
        sink_of(
            schema_registry.url,
            topic,
            folder,
            **{"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"},
        ),
    )
    running.run_until_idle()
    assert running.report.dead_lettered_count == 50
    assert "do not begin with 0" in running.report.failures[0].message
    assert table_in(folder).num_rows == 50
    assert sum(pipeline.store.end_offsets("bad").values()) == 50


def test_a_registry_that_is_away_costs_time_and_no_record(
    pipeline: Pipeline, schema_registry: Apicurio
) -> None:
    topic, folder = "avro-away", pipeline.directory / "away"
    with http_gate(schema_registry.port) as gate:
        url = f"{gate.address}/apis/ccompat/v7"
        gate.rule = lambda _: 503
        source = pipeline.start_source(
            DatagenSource,
            source_of(url, topic, **{"errors.tolerance": "all", "batch.size": "1000"}),
        )
        with pytest.raises(RetriableError, match="answered 503"):
            source.step()
        there = [each for each in pipeline.store.topics() if each.name == topic]
        assert not any(sum(pipeline.store.end_offsets(each.name).values()) for each in there)
        gate.rule = lambda _: None
        again = pipeline.start_source(DatagenSource, source_of(url, topic))
        assert again.run_until_idle() == 200
    sink = pipeline.start_sink(FilesSink, sink_of(schema_registry.url, topic, folder))
    sink.run_until_idle()
    assert table_in(folder).column("id").to_pylist() == list(range(200))


def test_a_transform_renames_the_topic_that_a_batch_names(
    pipeline: Pipeline, schema_registry: Apicurio
) -> None:
    route = {
        "transforms": "route",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": "avro-(.*)",
        "transforms.route.replacement": "renamed-$1",
    }
    raw = source_of(schema_registry.url, "avro-orders", **route)
    pipeline.start_source(DatagenSource, raw).run_until_idle()
    assert sum(pipeline.store.end_offsets("renamed-orders").values()) == 200
    assert schema_registry.schemas("renamed-orders-value")
