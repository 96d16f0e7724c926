"""Tables that are replaced, renamed, attached or forbidden while their changes are captured."""

from collections.abc import Sequence
from typing import Any

import pytest

from drover.connectors.postgres.source import PostgresCdcSource
from tests.spark.connectors.cdc_shop import raw_of, run_until, stored_in
from tests.spark.pipeline import Pipeline, RunningSource
from tests.support.postgres import PASSWORD, Postgres
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

Rows = dict[tuple[Any, ...], tuple[Any, ...]]


@pytest.fixture(autouse=True)
def _looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drover.connectors.postgres.task._LOOK_EVERY_S", 0.0)


def rows_in(pipeline: Pipeline, topic: str) -> Rows:
    """What an upserting sink has after the topic's records."""
    found: Rows = {}
    keys, values = (stored_in(pipeline, topic, each) for each in ("key", "value"))
    for key, value in zip(keys, values, strict=True):
        place = tuple(key["payload"].values())
        if value is None:
            found.pop(place, None)
        else:
            found[place] = tuple(value["payload"].values())
    return found


def comes_to(pipeline: Pipeline, source: RunningSource, topic: str, wanted: Rows) -> None:
    """Move batches until the topic has these rows, and no more batch changes them."""

    def there() -> bool:
        source.run_until_idle()
        return rows_in(pipeline, topic) == wanted

    wait_until(there, describe=lambda: str(rows_in(pipeline, topic)))
    source.run_until_idle()
    assert rows_in(pipeline, topic) == wanted


def by_key(*rows: Sequence[Any]) -> Rows:
    return {(row[0],): tuple(row) for row in rows}


def flat(postgres: Postgres, **changes: str) -> dict[str, str]:
    return raw_of(postgres, record_layout="flat", **changes)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_table_that_is_created_again_is_read_completely(
    pipeline: Pipeline, shop: Postgres, at_once: bool
) -> None:
    shop.execute("CREATE TABLE dc (id INT PRIMARY KEY, v TEXT)", "INSERT INTO dc VALUES (1, 'old')")
    source = pipeline.start_source(PostgresCdcSource, flat(shop))
    comes_to(pipeline, source, "db.public.dc", by_key((1, "old")))
    statements = [
        "UPDATE dc SET v = 'older' WHERE id = 1",
        "DROP TABLE dc",
        "CREATE TABLE dc (id INT PRIMARY KEY, v TEXT)",
        "INSERT INTO dc VALUES (1, 'new'), (2, 'new')",
    ]
    shop.execute(*(["; ".join(["BEGIN", *statements, "COMMIT"])] if at_once else statements))
    comes_to(pipeline, source, "db.public.dc", by_key((1, "new"), (2, "new")))
    shop.execute("INSERT INTO dc VALUES (3, 'after')", "DELETE FROM dc WHERE id = 1")
    comes_to(pipeline, source, "db.public.dc", by_key((2, "new"), (3, "after")))
    # a restart does not read it again
    count = pipeline.store.end_offsets("db.public.dc")
    source.source.stop()
    pipeline.start_source(PostgresCdcSource, flat(shop)).run_until_idle()
    assert pipeline.store.end_offsets("db.public.dc") == count


def test_a_table_that_is_created_again_while_the_connector_is_stopped(
    pipeline: Pipeline, shop: Postgres
) -> None:
    source = pipeline.start_source(PostgresCdcSource, flat(shop))
    comes_to(pipeline, source, "db.public.orders", by_key((1, "AJY=", "one"), (2, None, "")))
    source.source.stop()
    shop.execute(
        "UPDATE orders SET note = 'stale'",
        "DROP TABLE orders",
        "CREATE TABLE orders (id INT PRIMARY KEY, note TEXT)",
        "INSERT INTO orders VALUES (1, 'new'), (2, 'new')",
    )
    source = pipeline.start_source(PostgresCdcSource, flat(shop))
    comes_to(pipeline, source, "db.public.orders", by_key((1, "new"), (2, "new")))


@pytest.mark.parametrize("lists", [{}, {"table_include_list": r"public\.sw"}])
def test_a_table_that_takes_the_place_of_another_is_read_completely(
    pipeline: Pipeline, shop: Postgres, lists: dict[str, str]
) -> None:
    shop.execute(
        "CREATE TABLE sw (id INT PRIMARY KEY, v TEXT)",
        "INSERT INTO sw VALUES (1, 'a')",
        "CREATE TABLE sw_new (id INT PRIMARY KEY, v TEXT)",
        "INSERT INTO sw_new VALUES (1, 'b'), (2, 'b')",
    )
    source = pipeline.start_source(PostgresCdcSource, flat(shop, **lists))
    comes_to(pipeline, source, "db.public.sw", by_key((1, "a")))
    shop.execute(
        "BEGIN; UPDATE sw SET v = 'x'; INSERT INTO sw_new VALUES (3, 'b');"
        " ALTER TABLE sw RENAME TO sw_old; ALTER TABLE sw_new RENAME TO sw;"
        " INSERT INTO sw VALUES (4, 'c'); DELETE FROM sw_old; COMMIT"
    )
    wanted = by_key((1, "b"), (2, "b"), (3, "b"), (4, "c"))
    comes_to(pipeline, source, "db.public.sw", wanted)
    shop.execute("INSERT INTO sw_old VALUES (9, 'old')", "UPDATE sw SET v = 'd' WHERE id = 4")
    comes_to(pipeline, source, "db.public.sw", {**wanted, (4,): (4, "d")})


@pytest.mark.parametrize("lists", [{}, {"table_include_list": r"public\.rn"}])
@pytest.mark.parametrize("looks_between", [True, False])
def test_changes_of_a_table_that_has_another_name_for_a_time_arrive(
    pipeline: Pipeline, shop: Postgres, lists: dict[str, str], looks_between: bool
) -> None:
    shop.execute(
        "CREATE TABLE rn (id INT PRIMARY KEY, v TEXT)",
        "INSERT INTO rn VALUES (1, 'a'), (2, 'a')",
    )
    source = pipeline.start_source(PostgresCdcSource, flat(shop, **lists))
    comes_to(pipeline, source, "db.public.rn", by_key((1, "a"), (2, "a")))
    shop.execute("ALTER TABLE rn RENAME TO rn_away", "UPDATE rn_away SET v = 'b' WHERE id = 1")
    if looks_between:
        source.run_until_idle()
    shop.execute("INSERT INTO rn_away VALUES (3, 'b')", "ALTER TABLE rn_away RENAME TO rn")
    comes_to(pipeline, source, "db.public.rn", by_key((1, "b"), (2, "a"), (3, "b")))
    shop.execute("DELETE FROM rn WHERE id = 2")
    comes_to(pipeline, source, "db.public.rn", by_key((1, "b"), (3, "b")))


def test_a_table_that_is_renamed_within_a_transaction(pipeline: Pipeline, shop: Postgres) -> None:
    shop.execute("CREATE TABLE rn (id INT PRIMARY KEY, v TEXT)")
    source = pipeline.start_source(PostgresCdcSource, flat(shop))
    source.run_until_idle()
    shop.execute(
        "BEGIN; INSERT INTO rn VALUES (1, 'a'); ALTER TABLE rn RENAME TO rx; INSERT INTO rx VALUES"
        " (2, 'a'); ALTER TABLE rx RENAME TO rn; INSERT INTO rn VALUES (3, 'a'); COMMIT"
    )
    comes_to(pipeline, source, "db.public.rn", by_key((1, "a"), (2, "a"), (3, "a")))
    shop.execute(
        "BEGIN; INSERT INTO rn VALUES (4, 'a'); ALTER TABLE rn RENAME TO rx;"
        " INSERT INTO rx VALUES (5, 'a'); COMMIT"
    )
    comes_to(pipeline, source, "db.public.rx", by_key(*((n, "a") for n in range(1, 6))))


def test_a_partition_that_is_attached_with_rows(pipeline: Pipeline, shop: Postgres) -> None:
    shop.execute(
        "CREATE TABLE parts (id INT PRIMARY KEY, v TEXT) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "INSERT INTO parts VALUES (1, 'a')",
        "CREATE TABLE loaded (id INT PRIMARY KEY, v TEXT)",
        "INSERT INTO loaded VALUES (11, 'b')",
    )
    raw = flat(shop, table_include_list=r"public\.parts")
    source = pipeline.start_source(PostgresCdcSource, raw)
    comes_to(pipeline, source, "db.public.parts", by_key((1, "a")))
    shop.execute(
        "ALTER TABLE parts ATTACH PARTITION loaded FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (20) TO (30)",
        "INSERT INTO parts VALUES (12, 'c'), (21, 'c')",
    )
    wanted = by_key((1, "a"), (11, "b"), (12, "c"), (21, "c"))
    comes_to(pipeline, source, "db.public.parts", wanted)
    shop.execute("INSERT INTO parts VALUES (22, 'd')")
    comes_to(pipeline, source, "db.public.parts", {**wanted, (22,): (22, "d")})
    count = pipeline.store.end_offsets("db.public.parts")
    source.source.stop()
    pipeline.start_source(PostgresCdcSource, raw).run_until_idle()
    assert pipeline.store.end_offsets("db.public.parts") == count


def test_a_table_without_permission_does_not_stop_the_others(
    pipeline: Pipeline, shop: Postgres
) -> None:
    name = f"reader_{shop.database}"
    shop.execute(
        f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD '{PASSWORD}'",
        f"GRANT CREATE ON DATABASE {shop.database} TO {name}",
        f"ALTER TABLE orders OWNER TO {name}",
    )
    source = pipeline.start_source(PostgresCdcSource, flat(shop, database_user=name))
    orders = by_key((1, "AJY=", "one"), (2, None, ""))
    comes_to(pipeline, source, "db.public.orders", orders)
    shop.execute(
        "CREATE TABLE theirs (id INT PRIMARY KEY, v TEXT)",
        "INSERT INTO theirs VALUES (1, 'a')",
        "CREATE TABLE hidden (id INT PRIMARY KEY, v TEXT)",
        "ALTER PUBLICATION drover_cdc ADD TABLE hidden",  # may be streamed, but not read
        "INSERT INTO hidden VALUES (1, 'a')",
        "INSERT INTO orders VALUES (3, NULL, 'three')",
    )
    orders |= by_key((3, None, "three"))
    comes_to(pipeline, source, "db.public.orders", orders)
    assert source.figures.values()["tables_left_out_count"] == 2
    shop.execute(
        f"ALTER TABLE theirs OWNER TO {name}",
        f"GRANT SELECT ON hidden TO {name}",
    )
    comes_to(pipeline, source, "db.public.theirs", by_key((1, "a")))
    comes_to(pipeline, source, "db.public.hidden", by_key((1, "a")))
    assert source.figures.values()["tables_left_out_count"] == 0
    shop.execute("INSERT INTO hidden VALUES (2, 'b')", "UPDATE theirs SET v = 'b'")
    comes_to(pipeline, source, "db.public.hidden", by_key((1, "a"), (2, "b")))
    comes_to(pipeline, source, "db.public.theirs", by_key((1, "b")))
    source.source.stop()
    shop.execute(f"REASSIGN OWNED BY {name} TO drover", f"DROP OWNED BY {name}")


def test_rows_that_a_policy_hides_are_not_left_out_silently(
    pipeline: Pipeline, shop: Postgres
) -> None:
    name = f"policed_{shop.database}"
    shop.execute(
        f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD '{PASSWORD}'",
        "CREATE PUBLICATION drover_cdc FOR TABLE orders",
        f"GRANT SELECT ON orders TO {name}",
    )
    raw = flat(shop, database_user=name, table_include_list=r"public\.(orders|more)")
    source = pipeline.start_source(PostgresCdcSource, raw)
    source.run_until_idle()
    shop.execute(
        "CREATE TABLE more (id INT PRIMARY KEY)",
        "INSERT INTO more VALUES (1), (2)",
        "ALTER PUBLICATION drover_cdc ADD TABLE more",
        f"GRANT SELECT ON more TO {name}",
        "ALTER TABLE more ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY one ON more USING (id = 1)",
    )
    source.run_until_idle()
    assert source.figures.values()["tables_left_out_count"] == 1
    shop.execute(f"ALTER ROLE {name} BYPASSRLS")
    comes_to(pipeline, source, "db.public.more", by_key((1,), (2,)))
    source.source.stop()
    shop.execute(f"DROP OWNED BY {name}")


@pytest.mark.parametrize("layout", ["flat", "envelope"])
def test_a_skipped_truncate_is_counted_and_logged(
    pipeline: Pipeline, shop: Postgres, caplog: pytest.LogCaptureFixture, layout: str
) -> None:
    shop.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, of INT REFERENCES orders)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "CREATE TABLE parts (id INT PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
    )
    raw = raw_of(shop, record_layout=layout, table_exclude_list=r"public\.other")
    source = pipeline.start_source(PostgresCdcSource, raw)
    run_until(source, 2)
    assert source.figures.values()["truncates_skipped_count"] == 0
    shop.execute(
        "TRUNCATE other",
        "TRUNCATE orders CASCADE",
        "BEGIN; TRUNCATE parts; INSERT INTO parts VALUES (1); COMMIT",
    )
    with caplog.at_level("WARNING"):
        run_until(source, 1)
    assert source.figures.values()["truncates_skipped_count"] == 3
    told = [each.getMessage() for each in caplog.records if "TRUNCATE" in each.getMessage()]
    assert [each.split()[3] for each in told] == ["public.orders", "public.items", "public.parts"]
    assert all("skipped.operations=none" in each for each in told)
    assert all(("record.layout=envelope" in each) == (layout == "flat") for each in told)
    source.source.stop()
    source = pipeline.start_source(PostgresCdcSource, raw)
    assert source.run_until_idle() == 0
    assert source.figures.values()["truncates_skipped_count"] == 0
