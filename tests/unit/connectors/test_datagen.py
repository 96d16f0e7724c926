"""Generated rows: the same in every run, for any number of tasks and any batch sizes."""

import hashlib
import json
import pickle
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from drover.connector import ConnectorContext
from drover.connector.settings import parse_config
from drover.connectors.datagen.row_generator import QUICKSTARTS, RowGenerator
from drover.connectors.datagen.source import (
    LANE_COUNT,
    TASK_LANES,
    DatagenSource,
    RowReader,
    even_groups,
    next_ranges,
)
from drover.connectors.key_columns import key_columns

BASE = {"name": "d", "connector.class": "DatagenSource"}
EVERY_TYPE = (
    "id bigint, b boolean, t tinyint, s smallint, i int, f float, d double, e decimal(10,2), "
    "large decimal(38,10), small decimal(2,2), text string, at timestamp, day date, raw binary, "
    "inner struct<name: string, tags: array<string>>, list array<struct<price: decimal(4,1)>>"
)


def numbers(start: int, end: int) -> Any:
    return np.arange(start, end, dtype=np.uint64)


@pytest.mark.parametrize("ddl", [*QUICKSTARTS.values(), EVERY_TYPE])
def test_a_row_does_not_depend_on_the_rows_beside_it(ddl: str) -> None:
    generator = RowGenerator(ddl, seed=7)
    together = generator.rows(numbers(0, 2000))
    together.validate(full=True)
    apart = [generator.rows(numbers(n, n + 1)) for n in (0, 1, 999, 1999)]
    assert [each.to_pylist()[0] for each in apart] == [
        together.slice(n, 1).to_pylist()[0] for n in (0, 1, 999, 1999)
    ]


def test_rows_are_the_same_in_every_version() -> None:
    rows = RowGenerator(QUICKSTARTS["orders"], seed=1).rows(numbers(0, 1000)).to_pylist()
    digest = hashlib.sha256(json.dumps(rows, default=str).encode()).hexdigest()
    assert digest[:16] == "f3c9827531a38f78"


def test_another_seed_gives_other_rows_of_the_same_numbers() -> None:
    one, two = (RowGenerator(QUICKSTARTS["orders"], seed).rows(numbers(0, 100)) for seed in (1, 2))
    assert one.column("order_id") == two.column("order_id") == pa.array(range(100))
    assert one.column("customer") != two.column("customer")


def test_timestamps_never_go_back_and_values_are_spread() -> None:
    rows = RowGenerator(QUICKSTARTS["orders"], seed=3).rows(numbers(0, 10_000))
    times = rows.column("at").cast(pa.int64()).to_pylist()
    assert times == sorted(times)
    assert len(set(rows.column("city").to_pylist())) == 32
    assert set(rows.column("quantity").to_pylist()) == set(range(1, 10))


def lanes_of(task: int, count: int) -> range:
    return range(task, LANE_COUNT, count)


@pytest.mark.parametrize("seed", range(5))
def test_a_change_of_the_number_of_tasks_loses_and_doubles_nothing(seed: int) -> None:
    chance = random.Random(seed)
    end = chance.randrange(1, 60_000)
    positions = {lane: lane * 1000 for lane in range(LANE_COUNT)}
    made: list[int] = []
    idle = False
    while not idle:
        count = chance.randrange(1, LANE_COUNT + 1)
        idle = True
        for task in range(count):
            own = {lane: positions[lane] for lane in lanes_of(task, count)}
            for _ in range(chance.randrange(1, 4)):
                ranges, own, moved = next_ranges(own, chance.randrange(1, 5000), end)
                made += [n for each in ranges for n in range(*each)]
                idle = idle and not ranges
                assert all(own[lane] != positions[lane] for lane in moved)
                positions |= own
    assert sorted(made) == list(range(end))


def test_one_task_makes_the_rows_in_order() -> None:
    positions = {lane: lane * 1000 for lane in range(LANE_COUNT)}
    ranges, behind, moved = next_ranges(positions, 33_500, None)
    assert ranges == [(0, 33_500)]
    assert moved == list(range(LANE_COUNT))
    assert next_ranges(behind, 10, None)[0] == [(33_500, 33_510)]


def test_groups_make_the_rows_of_their_ranges() -> None:
    groups = even_groups([(0, 30_000), (45_000, 80_000)], 2)
    assert groups == (((0, 30_000), (45_000, 47_500)), ((47_500, 80_000),))
    reader = pickle.loads(pickle.dumps(RowReader(RowGenerator("id bigint", 0), groups)))
    made = [n for group in range(2) for batch in reader(group) for n in batch["id"].to_pylist()]
    assert made == [*range(30_000), *range(45_000, 80_000)]


def test_tasks_share_the_lanes() -> None:
    connector = DatagenSource()
    connector.start(ConnectorContext("d"), {})
    assert connector.task_configs(3) == [{TASK_LANES: f"{n}/3"} for n in range(3)]
    assert len(connector.task_configs(99)) == LANE_COUNT


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        ({"quickstart": "orders"}, []),
        ({"quickstart": "orders", "key": "city,order_id"}, []),
        ({"schema": "id bigint", "topic": "t", "max.records": "0"}, []),
        ({}, ["quickstart"]),
        ({"quickstart": "order"}, ["quickstart"]),
        ({"quickstart": "orders", "schema": "id bigint"}, ["schema"]),
        ({"schema": "id bigint"}, ["topic"]),
        ({"schema": "id bigints", "topic": "t"}, ["schema"]),
        ({"schema": "m map<string, int>", "topic": "t"}, ["schema"]),
        ({"quickstart": "orders", "key": "id"}, ["key"]),
        ({"quickstart": "orders", "max.records": "-1"}, ["max.records"]),
    ],
)
def test_faults_of_a_config_are_found(config: dict[str, str], fields: list[str]) -> None:
    assert [each.field for each in parse_config(DatagenSource, BASE | config).violations] == fields


def test_one_key_column_is_the_key_and_several_are_its_fields() -> None:
    assert key_columns(None) is None
    assert key_columns(["a"]) == "a"
    assert key_columns(["a", "b"]) == ["a", "b"]
