"""Change capture through tasks on real Spark, from a real server."""

from decimal import Decimal
from pathlib import Path

import pytest

from drover.connector import RetriableError, SourceBatch, SourceTask
from drover.connector.offsets import parse_offsets
from drover.connectors.jdbc.sink import JdbcSink
from drover.connectors.postgres.server import ServerError
from drover.connectors.postgres.source import PostgresCdcSource
from tests.spark.connectors.cdc_shop import dropped, raw_of, records_of, run_until, stored_in
from tests.spark.pipeline import Pipeline
from tests.support.postgres import Postgres
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


def test_a_table_is_read_whole_and_then_followed(
    pipeline: Pipeline, shop: Postgres, tmp_path: Path
) -> None:
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop))
    run_until(source, 2)
    shop.execute(
        "INSERT INTO orders VALUES (3, 2.25, 'three')",
        "UPDATE orders SET note = 'uno' WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
    )
    run_until(source, 4)  # the deletion and its tombstone
    found = records_of(pipeline, "db.public.orders", tmp_path / "out")
    assert [each["op"] for each in found] == ["r", "r", "c", "u", "d"]
    assert found[0]["before"] is None
    assert (found[0]["after"]["id"], found[0]["after"]["note"]) == (1, "one")
    assert (found[1]["after"]["price"], found[1]["after"]["note"]) == (None, "")
    assert found[3]["after"]["note"] == "uno"
    assert found[4]["after"] is None
    assert found[4]["before"]["id"] == 2
    where = found[3]["source"]
    assert (where["db"], where["schema"], where["table"]) == (shop.database, "public", "orders")
    assert where["snapshot"] == "false"
    assert found[0]["source"]["snapshot"] == "true"


def test_change_events_go_into_a_table_by_configs_of_debezium(
    pipeline: Pipeline, shop: Postgres
) -> None:
    """Through Debezium's transform and its sink's settings: the copy is equal, deletions too."""
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop))
    run_until(source, 2)
    shop.execute(
        "INSERT INTO orders VALUES (3, 2.25, 'three')",
        "UPDATE orders SET note = 'uno' WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
    )
    run_until(source, 4)
    sink = {
        "name": "copy",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics": "db.public.orders",
        **shop.settings,
        "collection.name.format": "copied",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.add.fields": "op",
    }
    pipeline.start_sink(JdbcSink, sink).run_until_idle()
    found = shop.rows("SELECT id, price, note, __op FROM copied ORDER BY id")
    assert found == [(1, Decimal("1.50"), "uno", "u"), (3, Decimal("2.25"), "three", "c")]


def test_a_change_that_the_snapshot_shows_comes_once(pipeline: Pipeline, shop: Postgres) -> None:
    raw = raw_of(shop)
    shop.execute(
        f"SELECT pg_create_logical_replication_slot('{raw['slot.name']}', 'pgoutput')",
        "CREATE PUBLICATION drover_cdc FOR TABLE orders",
        "INSERT INTO orders VALUES (3), (4)",
        "UPDATE orders SET note = 'before' WHERE id = 3",
    )
    source = pipeline.start_source(PostgresCdcSource, raw)
    run_until(source, 4)
    shop.execute("INSERT INTO orders VALUES (5)")
    run_until(source, 1)


def test_rows_that_go_while_a_snapshot_is_interrupted_are_deleted(
    pipeline: Pipeline, shop: Postgres
) -> None:
    """Its first rows are in the topic, and the next snapshot does not contain them."""
    raw = raw_of(shop, record_layout="flat")
    first = pipeline.start_source(PostgresCdcSource, raw)

    def rows_came() -> bool:
        first.step()
        return pipeline.store.end_offsets("db.public.orders") == {0: 2}

    wait_until(rows_came)
    shop.execute(
        "DELETE FROM orders WHERE id = 1",
        "UPDATE orders SET note = 'later' WHERE id = 2",
        "INSERT INTO orders VALUES (3), (4)",
        "DELETE FROM orders WHERE id = 4",
    )
    second = pipeline.start_source(PostgresCdcSource, raw)
    run_until(second, 2 + 5)  # the table's current rows, and all later changes
    keys, values = (stored_in(pipeline, "db.public.orders", each) for each in ("key", "value"))
    rows: dict[int, str | None] = {}
    for key, value in zip(keys, values, strict=True):
        if value is None:
            del rows[key["payload"]["id"]]
        else:
            rows[key["payload"]["id"]] = value["payload"]["note"]
    assert rows == {2: "later", 3: None}
    third = pipeline.start_source(PostgresCdcSource, raw)
    shop.execute("INSERT INTO orders VALUES (5)")
    run_until(third, 1)


def test_a_large_transaction_goes_on_in_its_middle(
    pipeline: Pipeline, shop: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("drover.connectors.postgres.task._PART_CHANGES_MAX", 30)
    raw = raw_of(shop, batch_max_records="100", record_layout="flat")
    first = pipeline.start_source(PostgresCdcSource, raw)
    run_until(first, 2)
    shop.execute("INSERT INTO orders SELECT n, n, 'x' FROM generate_series(10, 999) n")
    for _ in range(2):
        wait_until(lambda: first.step() is not None)
    # a later claim ends the earlier one's session, which holds the slot
    second = pipeline.start_source(PostgresCdcSource, raw)
    moved = pipeline.store.end_offsets("db.public.orders")[0]
    assert 2 < moved < 992
    run_until(second, 992 - moved)
    found = records_of(pipeline, "db.public.orders", tmp_path / "out")
    assert [each["id"] for each in found] == [1, 2, *range(10, 1000)]


def test_every_type_is_the_same_in_a_snapshot_and_in_a_change(
    pipeline: Pipeline, shop: Postgres, tmp_path: Path
) -> None:
    shop.execute(
        "CREATE DOMAIN cents AS INTEGER",
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        """CREATE TABLE things (id BIGINT PRIMARY KEY, small SMALLINT, vast NUMERIC,
        price NUMERIC(10, 2), single REAL, twice DOUBLE PRECISION, yes BOOLEAN, raw BYTEA, day DATE,
        hour TIME, local TIMESTAMP, moment TIMESTAMPTZ, document JSONB, ident UUID,
        numbers INTEGER[], words TEXT[], cost cents, mood mood, span INTERVAL, "a.""b" TEXT,
        twofold BIGINT GENERATED ALWAYS AS (id * 2) STORED)""",
        """INSERT INTO things VALUES (7, 1, 123456789012345678901234567890.5, 12.5, 1.5, 2.5, true,
        '\\xff00', '2026-01-02', '03:04:05.006', '2026-01-02 03:04:05.000006',
        '2026-01-02 03:04:05+02', '{"a": [1, null]}', '12345678-1234-1234-1234-123456789abc',
        '{1,NULL,3}', '{"a,b",""}', 5, 'bad', '1 day', E'two\nlines')""",
    )
    raw = raw_of(shop, record_layout="flat", table_include_list=r"public\.things")
    source = pipeline.start_source(PostgresCdcSource, raw)
    run_until(source, 1)
    names = "small, vast, price, single, twice, yes, raw, day, hour, local, moment, document, ident"
    names += ', numbers, words, cost, mood, span, "a.""b"'
    shop.execute(f"INSERT INTO things (id, {names}) SELECT 8, {names} FROM things")
    run_until(source, 1)
    read, changed = records_of(pipeline, "db.public.things", tmp_path / "out")
    assert {**changed, "id": 7} == read
    assert read["vast"] == "123456789012345678901234567890.5"
    assert (read["cost"], read["mood"], read["span"]) == (5, "bad", "1 day")
    assert (read["numbers"], read["words"]) == ([1, None, 3], ["a,b", ""])
    assert read['a."b'] == "two\nlines"
    assert "twofold" not in read


def test_keys_that_change_and_columns_that_come(
    pipeline: Pipeline, shop: Postgres, tmp_path: Path
) -> None:
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop, skipped_operations="none"))
    run_until(source, 2)
    shop.execute(
        "UPDATE orders SET id = 9 WHERE id = 1",  # d, tombstone, c
        "ALTER TABLE orders ADD COLUMN extra INTEGER DEFAULT 4",
        "ALTER TABLE orders DROP COLUMN note",
        "UPDATE orders SET extra = 5 WHERE id = 9",
        "TRUNCATE orders",
    )
    run_until(source, 5)
    found = records_of(pipeline, "db.public.orders", tmp_path / "out")[2:]
    assert [each["op"] for each in found] == ["d", "c", "u", "t"]
    assert found[1]["after"] == {"id": 9, "price": found[1]["after"]["price"], "note": "one"}
    assert found[2]["after"]["extra"] == 5
    assert "note" not in found[2]["after"]


def test_columns_keys_and_times_are_as_asked_for(
    pipeline: Pipeline, shop: Postgres, tmp_path: Path
) -> None:
    shop.execute(
        "CREATE TABLE visits (id INTEGER PRIMARY KEY, who TEXT, day DATE, moment TIMESTAMPTZ,"
        " secret TEXT)",
        "ALTER TABLE visits REPLICA IDENTITY FULL",
        "INSERT INTO visits VALUES (1, 'ann', '1970-01-03', '2026-01-02 03:04:05.5+02', 'x')",
    )
    raw = raw_of(
        shop,
        table_include_list=r"public\.visits",
        column_exclude_list=r"public\.visits\.(secret|id)",
        message_key_columns=r"public\.visits:who,id",
        time_precision_mode="adaptive",
    )
    source = pipeline.start_source(PostgresCdcSource, raw)
    run_until(source, 1)
    shop.execute(
        "UPDATE visits SET secret = 'y'",
        "UPDATE visits SET who = 'bob'",  # another key: d, tombstone, c
        "DELETE FROM visits",
    )
    run_until(source, 6)
    found = records_of(pipeline, "db.public.visits", tmp_path / "out")
    assert [each["op"] for each in found] == ["r", "u", "d", "c", "d"]
    row = {"who": "ann", "day": 2, "moment": "2026-01-02T01:04:05.5Z"}
    assert found[0]["after"] == found[1]["after"] == found[1]["before"] == row
    ann, bob = {"who": "ann", "id": 1}, {"who": "bob", "id": 1}
    keys = stored_in(pipeline, "db.public.visits", "key")
    assert [each["payload"] for each in keys] == [ann, ann, ann, ann, bob, bob, bob]
    before, *_ = stored_in(pipeline, "db.public.visits", "value")[0]["schema"]["fields"]
    assert [each.get("name") for each in before["fields"]] == [
        None,
        "io.debezium.time.Date",
        "io.debezium.time.ZonedTimestamp",
    ]


def test_a_new_table_is_read_whole_before_its_changes(
    pipeline: Pipeline, shop: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("drover.connectors.postgres.task._LOOK_EVERY_S", 0.0)
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop))
    run_until(source, 2)
    shop.execute(
        "CREATE TABLE later (id INTEGER PRIMARY KEY, name TEXT)",
        "INSERT INTO later VALUES (1, 'a'), (2, 'b')",
    )
    run_until(source, 2)
    shop.execute("UPDATE later SET name = 'c' WHERE id = 1")
    run_until(source, 1)
    found = records_of(pipeline, "db.public.later", tmp_path / "out")
    assert [each["op"] for each in found] == ["r", "r", "u"]


def test_partitions_are_their_table(pipeline: Pipeline, shop: Postgres) -> None:
    shop.execute(
        "CREATE TABLE parted (id INTEGER PRIMARY KEY, name TEXT) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF parted FOR VALUES FROM (10) TO (20)",
        "INSERT INTO parted VALUES (1, 'a'), (11, 'b')",
    )
    source = pipeline.start_source(
        PostgresCdcSource, raw_of(shop, table_exclude_list=r"public\.orders")
    )
    run_until(source, 2)
    shop.execute("INSERT INTO parted VALUES (2, 'c'), (12, 'd')")
    run_until(source, 2)
    assert pipeline.store.end_offsets("db.public.parted") == {0: 4}


def test_a_slot_that_is_gone_is_told_and_begun_again_when_asked_for(
    pipeline: Pipeline, shop: Postgres
) -> None:
    raw = raw_of(shop)
    first = pipeline.start_source(PostgresCdcSource, raw)
    run_until(first, 2)
    first.source.stop()
    wait_until(lambda: dropped(shop, raw["slot.name"]))
    with pytest.raises(ServerError, match=r"does not exist.*--reset"):
        pipeline.start_source(PostgresCdcSource, raw)
    again = pipeline.start_source(PostgresCdcSource, {**raw, "snapshot.mode": "when_needed"})
    run_until(again, 2)


@pytest.mark.parametrize("how", ["made anew", "read from"])
def test_a_slot_that_somebody_else_moved_on_is_told(
    pipeline: Pipeline, shop: Postgres, how: str
) -> None:
    raw = raw_of(shop)
    first = pipeline.start_source(PostgresCdcSource, raw)
    run_until(first, 2)
    first.source.stop()
    slot = raw["slot.name"]
    shop.execute("INSERT INTO orders VALUES (3)")
    if how == "made anew":
        wait_until(lambda: dropped(shop, slot))
        shop.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    else:
        where = f"FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"
        wait_until(lambda: not shop.rows(f"SELECT {where}"))
        shop.execute(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
    with pytest.raises(ServerError, match=r"created again or read by another session.*--reset"):
        pipeline.start_source(PostgresCdcSource, raw)
    again = pipeline.start_source(PostgresCdcSource, {**raw, "snapshot.mode": "when_needed"})
    run_until(again, 3)


def test_heartbeats_move_the_position_and_run_a_statement(
    pipeline: Pipeline, shop: Postgres, tmp_path: Path
) -> None:
    shop.execute("CREATE TABLE beats (moment TIMESTAMPTZ)")
    raw = raw_of(
        shop,
        table_include_list=r"public\.orders",
        heartbeat_interval_ms="1",
        heartbeat_action_query="INSERT INTO beats VALUES (now())",
    )
    topic = "__debezium-heartbeat.db"
    source = pipeline.start_source(PostgresCdcSource, raw)
    position = {"server": "db"}

    def beaten() -> bool:
        source.step()
        return pipeline.store.end_offsets(topic).get(0, 0) > 1

    wait_until(beaten)
    assert shop.rows("SELECT count(*) > 1 FROM beats") == [(True,)]
    offsets = parse_offsets(pipeline.store.fetch_offsets("cdc"))
    assert [each for each, _ in offsets if each == position] == [position]
    shop.execute("INSERT INTO orders VALUES (3)")

    def there() -> bool:
        source.step()
        return pipeline.store.end_offsets("db.public.orders")[0] == 3

    wait_until(there)  # heartbeats leave room for changes
    found = records_of(pipeline, topic, tmp_path / "out")
    assert all(each.keys() == {"ts_ms"} for each in found)


def test_the_status_tells_how_far_the_slot_is_behind(
    pipeline: Pipeline, shop: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.connectors.postgres.task._LOOK_EVERY_S", 0.0)
    monkeypatch.setattr("drover.connectors.postgres.task._QUIET_COMMIT_EVERY_S", 0.0)
    shop.execute("CREATE TABLE busy (id INTEGER PRIMARY KEY)")
    source = pipeline.start_source(
        PostgresCdcSource, raw_of(shop, table_include_list=r"public\.orders")
    )
    for _ in range(2):  # the table's start, and its rows
        source.step()
    assert source.figures.values()["tables_to_read_count"] == 1
    run_until(source, 0)
    shop.execute("INSERT INTO busy SELECT generate_series(1, 10000)")
    source.step()
    told = source.figures.values()
    assert told["tables_to_read_count"] == 0
    assert told["slot_lag_bytes"] > 500_000
    assert told["slot_kept_bytes"] >= told["slot_lag_bytes"]

    def caught_up() -> bool:
        source.run_until_idle()
        return source.figures.values()["slot_lag_bytes"] < 500_000

    wait_until(caught_up, describe=lambda: str(source.figures.values()))
    shop.execute("INSERT INTO orders VALUES (3)")

    def moved() -> bool:
        receipt = source.step()
        return receipt is not None and receipt.record_count == 1

    wait_until(moved)
    assert 0 <= source.figures.values()["behind_ms"] < 600_000


def test_only_changes_with_no_data(pipeline: Pipeline, shop: Postgres) -> None:
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop, snapshot_mode="no_data"))
    assert source.run_until_idle() == 0
    shop.execute("INSERT INTO orders VALUES (3)")
    run_until(source, 1)


def test_a_server_that_restarts_is_found_again(pipeline: Pipeline, shop: Postgres) -> None:
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop))
    run_until(source, 2)
    shop.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    shop.execute("INSERT INTO orders VALUES (3)")

    def found() -> bool:
        try:
            return source.run_until_idle() == 1
        except RetriableError:
            return False

    wait_until(found)


def test_a_log_of_other_tables_is_let_go(
    pipeline: Pipeline, shop: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quiet table beside a busy one does not retain the server's WAL, and is still followed."""
    monkeypatch.setattr("drover.connectors.postgres.task._QUIET_COMMIT_EVERY_S", 0.1)
    raw = raw_of(shop, table_include_list=r"public\.orders")
    source = pipeline.start_source(PostgresCdcSource, raw)
    run_until(source, 2)
    shop.execute("CREATE TABLE busy (id INTEGER PRIMARY KEY)", "INSERT INTO orders VALUES (3)")
    run_until(source, 1)
    shop.execute("INSERT INTO busy SELECT generate_series(1, 10000)")
    ((end,),) = shop.rows("SELECT pg_current_wal_lsn()")

    def let_go() -> bool:
        source.run_until_idle()
        where = f"FROM pg_replication_slots WHERE slot_name = '{raw['slot.name']}'"
        return shop.rows(f"SELECT confirmed_flush_lsn >= '{end}' {where}") == [(True,)]

    wait_until(let_go)
    source.source.stop()
    again = pipeline.start_source(PostgresCdcSource, raw)
    shop.execute("INSERT INTO orders VALUES (4)")
    run_until(again, 1)


def test_a_batch_has_as_many_bytes_as_it_may(
    pipeline: Pipeline, shop: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One row exceeds a batch, and all rows exceed the reader's buffer."""
    monkeypatch.setattr("drover.connectors.postgres.stream._BUFFER_MAX_BYTES", 60_000)
    monkeypatch.setattr("drover.connectors.postgres.stream._AT_ONCE_BYTES", 5_000)
    raw = raw_of(shop, batch_max_bytes="300000", record_layout="flat")
    source = pipeline.start_source(PostgresCdcSource, raw)
    run_until(source, 2)
    shop.execute(
        "INSERT INTO orders SELECT n, 0, repeat('x', 20) FROM generate_series(10, 4009) n",
        "UPDATE orders SET note = repeat(note, 20000) WHERE id = 500",
        "INSERT INTO orders VALUES (5000)",
    )
    counts: list[int] = []

    def there() -> bool:
        receipt = source.step()
        counts.extend([receipt.record_count] if receipt is not None else [])
        return sum(counts) >= 4_002

    wait_until(there, describe=lambda: str(counts))
    assert max(counts) <= 300_000 // 512
    found = records_of(pipeline, "db.public.orders", tmp_path / "out")
    assert [each["id"] for each in found] == [1, 2, *range(10, 4010), 500, 5000]
    assert len(found[-2]["note"]) == 400_000


def test_a_slot_is_acknowledged_behind_what_is_committed_only(
    pipeline: Pipeline, shop: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch is polled before the previous one is published."""
    monkeypatch.setattr("drover.connectors.postgres.stream._FEEDBACK_EVERY_S", 0.0)
    raw = raw_of(shop, batch_max_records="1")
    source = pipeline.start_source(PostgresCdcSource, raw)
    run_until(source, 2)
    wait_until(lambda: source.step() is None)
    where = f"confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{raw['slot.name']}'"
    shop.execute(*(f"INSERT INTO orders VALUES ({number})" for number in range(3, 9)))
    polled: list[SourceBatch] = []

    def two_polled() -> bool:
        batch = source.source.poll()
        polled.extend([batch] if batch is not None else [])
        return len(polled) >= 2

    wait_until(two_polled)
    ((before,),) = shop.rows(f"SELECT {where}")
    # a lost stream resumes after the polled position, which the server still retains
    shop.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    wait_until(lambda: _is_lost(source.source))
    shop.execute("INSERT INTO orders VALUES (9)")
    wait_until(lambda: source.source.poll())
    assert shop.rows(f"SELECT {where}") == [(before,)]
    source.source.committed(polled[1].offsets)
    (_, offset), *_ = polled[1].offsets
    assert offset is not None
    is_there = f"confirmed_flush_lsn = '0/0'::pg_lsn + {offset['lsn']}, {where}"
    wait_until(lambda: shop.rows(f"SELECT {is_there}")[0][0])


def _is_lost(source: SourceTask) -> bool:
    try:
        source.poll()
    except RetriableError:
        return True
    return False
