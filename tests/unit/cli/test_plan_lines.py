"""`drover connector plan` shows each schema once, with topic names and marks at changed lines."""

from pathlib import Path
from typing import Any

from drover.api.common.v1.preview_pb2 import StepSchemas, TopicSchema
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.plans import schema_lines
from tests.support.fake_cluster import FakeCluster, Run

READ = "shop.public.orders"
BEFORE = "struct<id: int64, total: string, tags: list<item: string>>"
AFTER = "struct<id: int64, total: double, tags: list<item: string>, note: decimal128(9, 2)>"


def schemas(*topics: TopicSchema) -> StepSchemas:
    return StepSchemas(
        keys=[each.key for each in topics if each.key],
        values=[each.value for each in topics if each.value],
        topics=topics,
    )


def schema(topic: str, value: str, key: str = "", read_topic: str = READ) -> TopicSchema:
    return TopicSchema(topic=topic, read_topic=read_topic, key=key, value=value)


def lines(**parts: Any) -> list[str]:
    return list(schema_lines(pb.PlanConnectorConfigResponse(**parts)))


def test_changed_lines_are_marked() -> None:
    assert lines(
        input_schemas=schemas(schema(READ, BEFORE)),
        present_output_schemas=schemas(schema("orders", BEFORE)),
        output_schemas=schemas(schema("orders", AFTER)),
    ) == [
        "topic orders (read as shop.public.orders)",
        "  value",
        "    id: int64",
        "  ~ total: string -> double",
        "    tags: list<item: string>",
        "  + note: decimal128(9, 2)",
    ]


def test_a_removed_field_is_marked() -> None:
    found = lines(
        input_schemas=schemas(schema(READ, AFTER)), output_schemas=schemas(schema(READ, BEFORE))
    )
    assert found[-1] == "  - note: decimal128(9, 2)"
    assert found[0] == "topic shop.public.orders"


def test_a_schema_that_does_not_change_is_shown_once() -> None:
    found = lines(
        input_schemas=schemas(schema(READ, BEFORE)),
        present_output_schemas=schemas(schema(READ, BEFORE)),
        output_schemas=schemas(schema(READ, BEFORE)),
    )
    assert found[:2] == [
        "topic shop.public.orders",
        "  the schema is the same as written now",
    ]
    assert sum("total: string" in line for line in found) == 1


def test_the_effect_of_a_router_on_topics_is_shown() -> None:
    found = lines(
        input_schemas=schemas(schema(READ, BEFORE)),
        present_output_schemas=schemas(schema(READ, BEFORE)),
        output_schemas=schemas(schema("orders", BEFORE)),
    )
    assert found[0] == (
        "topic orders (read as shop.public.orders, written to shop.public.orders now)"
    )


def test_each_topic_is_compared_with_its_own_records() -> None:
    found = lines(
        input_schemas=schemas(
            schema("a", "struct<x: int32>", read_topic="a"),
            schema("b", "struct<y: int32>", read_topic="b"),
        ),
        output_schemas=schemas(
            schema("b", "struct<y: int64>", read_topic="b"),
            schema("a", "struct<x: int32>", read_topic="a"),
        ),
    )
    assert "  ~ y: int32 -> int64" in found
    assert "    x: int32" in found


def test_a_topic_that_gets_no_more_records_is_shown() -> None:
    found = lines(
        input_schemas=schemas(schema("a", "schemaless", read_topic="a")),
        present_output_schemas=schemas(
            schema("a", "schemaless", read_topic="a"), schema("b", "schemaless", read_topic="b")
        ),
        output_schemas=schemas(schema("a", "schemaless", read_topic="a")),
    )
    assert found[-1] == "no records of b would be written; now: topic b"


def test_keys_and_other_types_are_shown_as_they_are() -> None:
    found = lines(
        input_schemas=schemas(schema(READ, "schemaless", key="string")),
        output_schemas=schemas(schema(READ, "struct<id: int64>", key="int64")),
    )
    assert found[1:] == [
        *("  key", "  ~ string -> int64"),
        *("  value", "  ~ schemaless -> struct<id: int64>"),
    ]


def test_a_worker_of_an_earlier_version_gives_no_topics() -> None:
    plain = StepSchemas(values=["struct<a: string>"])
    assert lines(input_schemas=plain, output_schemas=plain) == [
        "records as read: value struct<a: string>",
        "records written after: the same as records as read",
    ]


def test_the_command_shows_settings_topics_and_the_hash(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["PlanConnectorConfig"] = pb.PlanConnectorConfigResponse(
        changes=[pb.SettingChange(name="transforms", before="route", after="route,cast")],
        output_schemas=schemas(schema("orders", AFTER)),
        plan_hash="5f0c",
    )
    Path("c.yaml").write_text("name: c\nconnector.class: X\n")
    out = drover("connector", "plan", "c.yaml")[1].splitlines()
    assert out[1] == "  ~ transforms: route -> route,cast"
    assert out[2] == "topic orders (read as shop.public.orders)"
    assert out[-2:] == ["plan 5f0c", "drover connector apply -f c.yaml --plan 5f0c"]
