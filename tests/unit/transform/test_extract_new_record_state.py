"""Change events become the same rows as with Debezium's transform."""

from typing import Any

import pytest

from drover.connector.settings import validate_config
from drover.connectors.datagen.source import DatagenSource
from drover.record import RecordError, Schema, Type
from tests.support.records import (
    optional,
    run,
    schemaless,
    side_of,
    struct,
    transform,
    with_schema,
)

KIND = "io.debezium.transforms.ExtractNewRecordState"
MODE = "delete.tombstone.handling.mode"
ROW = Schema(
    Type.STRUCT,
    optional=True,
    fields=struct(id=Schema(Type.INT32), city=optional(Type.STRING)).fields,
    name="shop.public.orders.Value",
)
EVENT = struct(
    before=ROW,
    after=ROW,
    source=struct(table=Schema(Type.STRING), lsn=optional(Type.INT64)),
    op=Schema(Type.STRING),
    ts_ms=optional(Type.INT64),
)
SOURCE = {"table": "orders", "lsn": 7}
OSLO, ROME = {"id": 1, "city": "oslo"}, {"id": 1, "city": None}


def event(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 5}


EVENTS = [
    event("c", None, OSLO),
    event("u", OSLO, ROME),
    event("d", ROME, None),
    None,
    event("t", None, None),
    event("r", None, OSLO),
]


def rows(**settings: str) -> list[Any]:
    """The rows of the events, which are the same with and without a schema."""
    config = transform(KIND, **settings)
    found = side_of(run(config, with_schema(EVENT, *EVENTS)))
    assert side_of(run(config, schemaless(*EVENTS))) == found
    one_by_one = [with_schema(EVENT, each) for each in EVENTS]
    assert side_of(run(config, *one_by_one)) == found
    return found


@pytest.mark.parametrize(
    ("mode", "deletion"),
    [("drop", []), ("tombstone", [None]), ("delete-to-tombstone", [None])],
)
def test_a_row_is_what_it_is_after_the_change(mode: str, deletion: list[Any]) -> None:
    assert rows(**{MODE: mode}) == [OSLO, ROME, *deletion, OSLO]


@pytest.mark.parametrize(("mode", "more"), [("rewrite", []), ("rewrite-with-tombstone", [None])])
def test_a_deletion_is_a_row_that_says_so(mode: str, more: list[Any]) -> None:
    there, gone = {"__deleted": "false"}, {"__deleted": "true"}
    wanted = [OSLO | there, ROME | there, ROME | gone, *more, OSLO | there]
    assert rows(**{MODE: mode}) == wanted


def test_by_default_tombstones_stay() -> None:
    assert rows() == [OSLO, ROME, None, OSLO]


def test_more_of_the_event_becomes_fields() -> None:
    found = rows(**{"add.fields": "op,table,source.lsn,no.such", "add.fields.prefix": "_"})
    more = {"_table": "orders", "_source_lsn": 7}
    assert found == [
        {**OSLO, "_op": "c", **more},
        {**ROME, "_op": "u", **more},
        None,
        {**OSLO, "_op": "r", **more},
    ]


def test_the_schema_is_that_of_the_row() -> None:
    (batch,) = run(transform(KIND), with_schema(EVENT, EVENTS[0]))
    found = batch.schema.field("value")
    assert [each.name for each in found.type] == ["id", "city"]
    assert b"shop.public.orders.Value" in str(found.metadata).encode()


def test_what_is_no_change_event_stays_as_it_is() -> None:
    plain = struct(op=Schema(Type.STRING))
    assert side_of(run(transform(KIND), with_schema(plain, {"op": "d"}))) == [{"op": "d"}]
    assert side_of(run(transform(KIND), schemaless(["d"], {"op": "d"}))) == [["d"], {"op": "d"}]
    assert side_of(run(transform(KIND), with_schema(Schema(Type.STRING), "d"))) == ["d"]


def test_an_added_field_does_not_replace_a_column_of_the_row() -> None:
    config = transform(KIND, add__fields="op", add__fields__prefix="")
    with pytest.raises(RecordError, match="more than one field called 'op'"):
        run(config, schemaless(event("c", None, {"id": 1, "op": "mine"})))


@pytest.mark.parametrize(
    ("mode", "drops", "meant"),
    [
        ("drop", "true", "drop"),
        ("drop", "false", "tombstone"),
        ("rewrite", None, "rewrite"),
        ("rewrite", "false", "rewrite-with-tombstone"),
        ("none", "true", "delete-to-tombstone"),
        (None, "false", "tombstone"),
    ],
)
def test_settings_of_earlier_releases_mean_the_same(
    mode: str | None, drops: str | None, meant: str
) -> None:
    given = {"delete.handling.mode": mode, "drop.tombstones": drops}
    settings = {name: text for name, text in given.items() if text is not None}
    assert rows(**settings) == rows(**{MODE: meant})


@pytest.mark.parametrize(
    "settings",
    [
        {"delete.handling.mode": "none", "drop.tombstones": "false"},
        {"delete.handling.mode": "rewrite", MODE: "drop"},
        {"add.headers": "op"},
        {"route.by.field": "city"},
        {"operation.header": "true"},
    ],
)
def test_settings_that_would_change_records_are_refused(settings: dict[str, str]) -> None:
    raw = {"transforms": "t", "transforms.t.type": KIND}
    raw |= {f"transforms.t.{name}": text for name, text in settings.items()}
    config = {"name": "c", "connector.class": "DatagenSource", "topic": "t", "schema": "id int"}
    values = validate_config(DatagenSource, {**config, **raw})
    blamed = [each.key.name for each in values if each.errors]
    assert len(blamed) == 1
    assert blamed[0].startswith("transforms.t.")
