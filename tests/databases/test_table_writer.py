"""Topic records as table rows: keys, deletions, order, types, and redelivery."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drover.connector import TopicPartition
from drover.connector.settings import parse_config
from drover.connectors.jdbc.database import DatabaseAddress, DatabaseError
from drover.connectors.jdbc.sink import JdbcSink
from drover.model.ids import Term
from drover.record.schema import arrow_field
from tests.databases.conftest import Database, every_database
from tests.support.table_records import (
    LONG_TOPIC,
    RefusedError,
    address_with_ledger,
    item,
    records,
    write,
)

database = every_database
RAW = {
    "name": "sink",
    "connector.class": "JdbcSink",
    "topics": "items",
    "insert.mode": "upsert",
    "pk.mode": "record_key",
    "auto.create": "true",
}


@pytest.fixture
def address(database: Database) -> DatabaseAddress:
    return address_with_ledger(database.settings)


def items(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("SELECT id, name FROM items ORDER BY id")


def test_the_last_record_of_a_key_counts(database: Database, address: DatabaseAddress) -> None:
    batch = records(item(1, "a"), item(2, "b"), item(1, "c"), item(2, None), item(3, "d"))
    assert write(address, batch) == 5
    assert items(database) == [(1, "c"), (3, "d")]
    assert write(address, records(item(3, None), item(2, "again"), start=5)) == 2
    assert items(database) == [(1, "c"), (2, "again")]


def test_what_comes_again_is_left_out(database: Database, address: DatabaseAddress) -> None:
    first = records(item(1, "a"), item(2, "b"))
    write(address, first)
    database.execute("UPDATE items SET name = 'changed'")
    assert write(address, records(item(1, "a"), item(2, "b"), item(3, "c"))) == 1
    assert items(database) == [(1, "changed"), (2, "changed"), (3, "c")]


def test_each_partition_has_a_place_of_its_own(
    database: Database, address: DatabaseAddress
) -> None:
    write(address, records(item(1, "a"), item(2, "b")))
    batch = records(item(2, "old"), item(3, "c"), item(4, "d"), item(5, "e"))
    places = {"partition": pa.array([0, 0, 1, 1], pa.int32()), "offset": pa.array([1, 2, 0, 7])}
    for name, column in places.items():
        batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    assert write(address, batch) == 3
    assert write(address, batch) == 0
    assert items(database) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    found = database.rows('SELECT "partition", next_offset FROM drover_offsets ORDER BY 1')
    assert found == [(0, 3), (1, 8)]


def test_an_error_writes_nothing_of_the_batch(database: Database, address: DatabaseAddress) -> None:
    write(address, records(item(1, "a")))
    wrong = pa.struct([("id", pa.int64()), ("more", pa.string())])
    batches = [
        records(item(2, "b"), start=1),
        records(({"id": 3}, {"id": 3, "more": "x"}), start=2, value=wrong),
    ]
    with pytest.raises(DatabaseError, match="table 'items' has no column 'more'"):
        write(address, *batches)
    assert items(database) == [(1, "a")]
    assert write(address, records(item(2, "b"), start=1)) == 1


@pytest.mark.parametrize("topic", ["items", LONG_TOPIC])
def test_a_topic_of_the_same_name_is_written_from_its_start(
    database: Database, address: DatabaseAddress, topic: str
) -> None:
    def put(*rows: Any, output_id: str = "") -> int:
        batch = records(*rows, topic=topic)
        return write(address, batch, table_format="items", output_id=output_id)

    put(item(1, "a"), item(2, "b"))
    for output_id in ("0a1b2c3d", "ffffffff"):
        assert put(item(3, "c"), output_id=output_id) == 1
        assert put(item(3, "c"), item(4, "d"), item(5, "e"), output_id=output_id) == 2
    assert put(item(1, "a"), item(2, "b")) == 0
    assert [name for _, name in items(database)] == ["a", "b", "c", "d", "e"]
    config = parse_config(JdbcSink, RAW | database.settings).require_valid()
    key = TopicPartition(topic, 0)

    def traced(output_id: str = "", name: str = "sink", at: TopicPartition = key) -> Any:
        return JdbcSink.traced_offsets(name, config, {at: output_id}).get(at)

    assert [traced(), traced("0a1b2c3d"), traced("01234567")] == [2, 3, None]
    assert [traced(name="other"), traced(at=TopicPartition(topic, 1))] == [None, None]
    place: dict[str, Any] = {"kafka_topic": topic, "kafka_partition": 0}
    assert JdbcSink.alter_offsets(config, [(place, {"kafka_offset": 1})])
    assert put(item(3, "c"), item(4, "D"), output_id="ffffffff") == 1
    assert JdbcSink.alter_offsets(config, [])
    assert traced("ffffffff") is None


def test_a_database_without_a_table_of_offsets_shows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    key = TopicPartition("items", 0)
    raw = RAW | {"connection.url": f"jdbc:sqlite:{path}", "auto.create": "true"}
    for text, changed in (("no file", {}), ("no table", {}), ("unused", {"offsets.table": ""})):
        config = parse_config(JdbcSink, raw | changed).require_valid()
        assert JdbcSink.traced_offsets("sink", config, {key: ""}) == {}, text
        assert path.exists() is (text != "no file")
        path.touch()


def test_an_older_claim_writes_nothing(database: Database, address: DatabaseAddress) -> None:
    write(address, records(item(1, "a")), claim=Term(2, 1))
    with pytest.raises(DatabaseError, match="items-0 was taken over by another task"):
        write(address, records(item(2, "b"), start=1), claim=Term(1, 9))
    assert items(database) == [(1, "a")]


def test_tombstones_are_left_out_without_deletions(
    database: Database, address: DatabaseAddress
) -> None:
    write(address, records(item(1, "a"), item(1, None)), deletes=False)
    assert items(database) == [(1, "a")]


def test_a_table_is_not_missed_by_what_does_nothing_or_is_refused(
    database: Database, address: DatabaseAddress
) -> None:
    batch = records(item(1, None), item(2, None))
    assert write(address, batch, creates=False, deletes=False) == 0
    with pytest.raises(RefusedError, match="items-0@2: its key has no 'id'"):
        write(address, records(({"id": None}, {"id": 1, "name": "a"}), start=2), creates=False)
    with pytest.raises(DatabaseError, match="table 'items' does not exist"):
        write(address, records(item(3, "a"), start=2), creates=False)


def test_a_key_without_fields_has_the_one_name(
    database: Database, address: DatabaseAddress
) -> None:
    batch = records((7, {"name": "a"}), key=pa.int64(), value=pa.struct([("name", pa.string())]))
    write(address, batch, pk_fields=("id",))
    assert items(database) == [(7, "a")]


def test_deletions_may_be_found_by_different_fields(
    database: Database, address: DatabaseAddress
) -> None:
    database.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, name VARCHAR(9))",
        "INSERT INTO items VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    batch = records(('{"id":1}', None), ('{"name":"b"}', None), key=arrow_field("key", None))
    assert write(address, batch) == 2
    assert items(database) == [(3, "c")]


def test_rows_may_be_found_by_their_place(database: Database, address: DatabaseAddress) -> None:
    write(address, records(item(1, "a"), item(1, "b")), pk_mode="kafka", insert_mode="insert")
    found = database.rows("SELECT __connect_topic, __connect_offset, name FROM items ORDER BY 2")
    assert found == [("items", 0, "a"), ("items", 1, "b")]


@pytest.mark.parametrize(
    ("row", "changes", "told"),
    [
        (
            (None, {"id": 1, "name": "a"}),
            {"pk_fields": ("id",)},
            "record items-0@0: its key lacks the fields id",
        ),
        (({"id": None}, {"id": 1, "name": "a"}), {}, "has no 'id'"),
        (
            ({"id": 1}, {"id": None, "name": "a"}),
            {"pk_mode": "record_value", "pk_fields": ("id",)},
            "record items-0@0: its value has no 'id'",
        ),
    ],
)
def test_records_without_a_key(
    address: DatabaseAddress, row: tuple[Any, Any], changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(RefusedError, match=told):
        write(address, records(row), **changes)


def test_values_without_fields_are_refused(address: DatabaseAddress) -> None:
    batch = records(({"id": 1}, "text"), value=pa.string())
    with pytest.raises(RefusedError, match="record items-0@0: it has no fields"):
        write(address, batch)


def test_a_table_that_is_not_there(address: DatabaseAddress) -> None:
    with pytest.raises(DatabaseError, match="table 'items' does not exist"):
        write(address, records(item(1, "a")), creates=False)


def test_only_the_fields_that_are_named(database: Database, address: DatabaseAddress) -> None:
    write(address, records(item(1, "a")), fields=("id",))
    assert database.rows("SELECT * FROM items") == [(1,)]


def test_names_with_quotes_colons_and_capitals(
    database: Database, address: DatabaseAddress
) -> None:
    kind = pa.struct([("Id", pa.int64()), ('a:b "c" %(d)s', pa.string())])
    row = ({"id": 1}, {"Id": 1, 'a:b "c" %(d)s': "x"})
    more = pa.struct([*kind, ("E:f", pa.string())])
    options: dict[str, Any] = {"pk_mode": "none", "insert_mode": "insert", "evolves": True}
    write(address, records(row, value=kind, topic="My.Items"[3:]), **options)
    row[1]["E:f"] = "y"
    write(address, records(row, value=more, topic="Items", start=1), **options)
    assert database.rows('SELECT * FROM "Items"') == [(1, "x", None), (1, "x", "y")]


def test_nested_values_become_json(database: Database, address: DatabaseAddress) -> None:
    kind = pa.struct([("id", pa.int64()), ("doc", pa.struct([("a", pa.list_(pa.int64()))]))])
    write(address, records(({"id": 1}, {"id": 1, "doc": {"a": [1, None]}}), value=kind))
    (found,) = database.rows("SELECT doc FROM items")
    document = json.loads(found[0]) if isinstance(found[0], str) else found[0]
    assert document == {"a": [1, None]}


def test_what_the_database_refuses_is_told_without_values(
    database: Database, address: DatabaseAddress
) -> None:
    database.execute("CREATE TABLE items (id BIGINT PRIMARY KEY, name VARCHAR(3) NOT NULL)")
    batch = records(({"id": 1}, {"id": 1, "name": None}), ({"id": 2}, {"id": 2, "name": "s3c"}))
    with pytest.raises(RefusedError, match="record items-0@0: table 'items'") as caught:
        write(address, batch)
    assert "name" in str(caught.value)
    assert "s3c" not in str(caught.value)
    assert items(database) == []


def test_columns_with_the_characters_of_parameters(
    database: Database, address: DatabaseAddress
) -> None:
    database.execute(
        'CREATE TABLE items (id INTEGER PRIMARY KEY, "a:b%c" VARCHAR(20), "%s" VARCHAR(20))'
    )
    kind = pa.struct([("id", pa.int64()), ("a:b%c", pa.string()), ("%s", pa.string())])
    for start, mode in enumerate(("insert", "upsert", "update")):
        row = {"id": 1, "a:b%c": mode, "%s": "%s :x"}
        write(address, records(({"id": 1}, row), start=start, value=kind), insert_mode=mode)
        assert database.rows("SELECT * FROM items") == [(1, mode, "%s :x")]


def test_a_time_is_a_key(database: Database, address: DatabaseAddress) -> None:
    key = pa.struct([("at", pa.timestamp("us", "UTC"))])
    value = pa.struct([("n", pa.int64())])
    first = datetime(1000, 11, 18, 2, 6, 45, 641_123, tzinfo=UTC)
    rows = (({"at": first}, {"n": 1}), ({"at": first.replace(microsecond=5)}, {"n": 2}))
    write(address, records(*rows, key=key, value=value))
    write(address, records(({"at": first}, None), start=2, key=key, value=value))
    assert database.rows("SELECT n FROM items") == [(2,)]
    text = json.dumps({"at": "1000-11-18T02:06:45.000005Z"})
    schemaless = arrow_field("key", None)
    write(address, records((text, None), start=3, key=schemaless, value=schemaless))
    assert database.rows("SELECT n FROM items") == []


def test_a_topic_with_dots_and_without_a_router(
    database: Database, address: DatabaseAddress
) -> None:
    batch = records(item(1, "a"), topic="shop.public.items")
    with pytest.raises(DatabaseError, match="which does not exist: rename the topics with"):
        write(address, batch)
    assert write(address, batch, table_format='"${topic}"') == 1
    quote = "`" if not database.settings["connection.url"].startswith("jdbc:post") else '"'
    found = database.rows(f"SELECT id FROM {quote}shop.public.items{quote}")
    assert found == [(1,)]


@pytest.mark.parametrize("what", ["table", "column"])
def test_a_name_that_the_server_would_cut(
    database: Database, address: DatabaseAddress, what: str
) -> None:
    long = "c" * 65
    value = pa.struct([("id", pa.int64()), (long if what == "column" else "name", pa.string())])
    topic = long if what == "table" else "items"
    batch = records(({"id": 1}, {"id": 1}), topic=topic, value=value)
    if database.settings["connection.url"].startswith("jdbc:sqlite"):
        assert write(address, batch) == 1
        return
    with pytest.raises(DatabaseError, match=r"c{65}.* has 65 .*: rename it with a transform"):
        write(address, batch)
