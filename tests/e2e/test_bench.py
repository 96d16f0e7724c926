"""The benchmarks run with tiny sizes; no duration is checked."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import pyarrow.parquet
import pytest

from bench import (
    config_load,
    config_seen,
    fail_over,
    group_core,
    hand_over,
    heartbeats,
    joins,
    plot,
    postgres_to_parquet,
    rebalance_core,
    status_writes,
)
from bench.databases import fill_table, make_table
from bench.kafka_sides import DroverSide, source_config
from tests.support.postgres import running_postgres
from tests.support.shared_cluster import SharedCluster
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.e2e


async def test_a_tiny_group_joins_and_its_figures_are_drawn() -> None:
    points = [point async for point in joins.points(sizes=(3, 5), rounds=1)]
    assert [point.member_count for point in points] == [3, 5]
    assert all(point.rpc_count >= 3 * point.member_count for point in points)
    series = plot.series_of(point.figure().line() for point in points)
    assert [sorted(each.seconds) for each in series] == [[3, 5], [3, 5]]
    svg = ET.fromstring(plot.drawing(series))
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}circle"))) == 4


async def test_heartbeats_go_through_all_three_that_are_compared() -> None:
    rpcs, core = await heartbeats.measure(calls_each=1, core_calls=2_000, rounds=1)
    assert rpcs.peer_value
    assert core.peer_value == rpcs.value


async def test_a_group_is_served_again_after_its_coordinator_was_killed() -> None:
    assert (await fail_over.measure(rounds=1)).value > 0


async def test_a_config_write_is_seen_by_watchers_of_both_servers() -> None:
    figure = await config_seen.measure(watcher_count=3, writes=2, rounds=1)
    assert figure.value > 0
    assert figure.peer_value


def test_a_log_is_loaded_in_a_process_of_its_own() -> None:
    load, memory = config_load.measure(connector_count=3, rounds=1)
    assert load.peer_value
    assert 0 < memory.value < 600


async def test_statuses_are_written_in_batches_and_singly_and_read_again(tmp_path: Path) -> None:
    env = {"DROVER_STORAGE_URL": f"sqlite://{tmp_path}"}
    writes, start = await status_writes.measure(
        "sqlite", env, status_count=1_000, single_count=10, rounds=1
    )
    assert writes.peer_value
    assert start.value > 0


async def test_the_tasks_of_a_killed_worker_start_elsewhere(tmp_path: Path) -> None:
    median, worst = await hand_over.measure(tmp_path, connectors=2, rounds=1)
    assert 0 < median.value <= worst.value


def test_a_group_that_fills_loses_a_member_and_gets_another_is_measured() -> None:
    assert rebalance_core.measure(connectors=20, members=3, rounds=1).value > 0


def test_memory_is_measured_in_a_process_of_its_own() -> None:
    memory = group_core.memory(calls=2_000)
    assert memory.warm_bytes > 0
    assert memory.end_bytes > 0


def test_a_part_that_does_not_exist_is_answered_with_those_that_do() -> None:
    command = [sys.executable, "-m", "bench", "--only", "nothing"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "'joins'" in refused.stderr


@pytest.mark.spark
@pytest.mark.asyncio(loop_scope="session")
async def test_connectors_of_a_cluster_are_counted_as_they_come_and_go(
    unharmed: SharedCluster,
) -> None:
    side, source = DroverSide(unharmed.client), source_config("idle", Path("/nowhere/in.txt"))

    async def has(count: int) -> bool:
        return await side.running_count() == count

    flow_count = 2
    await wait_until_async(partial(has, flow_count))
    await side.create("counted", source)
    try:
        await wait_until_async(partial(has, flow_count + 1))
    finally:
        await side.delete("counted")
    await wait_until_async(partial(has, flow_count))


@pytest.mark.spark
@pytest.mark.asyncio(loop_scope="session")
async def test_a_table_gets_into_parquet(unharmed: SharedCluster, tmp_path: Path) -> None:
    with running_postgres() as postgres:
        make_table(postgres, postgres_to_parquet.TABLE)
        fill_table(postgres, postgres_to_parquet.TABLE, first=1, last=50)
        target = tmp_path / "parquet-copy"
        assert await postgres_to_parquet.drover_seconds(unharmed.client, postgres, target, 50) > 0
    assert pyarrow.parquet.read_table(target)["id"].to_pylist() == list(range(1, 51))


@pytest.mark.spark
@pytest.mark.faults("connectors")
async def test_a_table_gets_into_parquet_beside_dlt(tmp_path: Path) -> None:
    python = postgres_to_parquet.find_dlt()
    with running_postgres() as postgres:
        figures = await postgres_to_parquet.measure(
            postgres, tmp_path, python, row_count=50, rounds=1
        )
    assert all(each.value > 0 and each.peer_value for each in figures)
