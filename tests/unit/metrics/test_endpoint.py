"""The metrics endpoint that Prometheus scrapes over HTTP."""

import asyncio
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

from drover.metrics import endpoint, scrape_server, table
from drover.metrics.endpoint import Metrics, serving_metrics
from drover.metrics.figures import Distribution, Tally
from drover.metrics.metric import Sample
from tests.support.addresses import free_address
from tests.support.waiting import wait_until_async


def fetch(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


async def scraped(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    async with serving_metrics("127.0.0.1:0", metrics) as address:
        text = await asyncio.to_thread(fetch, address)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(**labels: str) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


async def test_every_kind_is_told_as_prometheus_has_it() -> None:
    seconds, tally = Distribution((0.1, 1.0)), Tally()
    for value in (0.1, 0.5, 7.0):
        seconds.add(value)
        tally.add(value)

    def source() -> Iterator[Sample]:
        yield table.LOG_APPENDS.at(3, "config-store")
        yield table.LOG_QUEUE.at(2, "config-store")
        yield table.LOG_SECONDS.at(seconds, "config-store")
        yield table.REBALANCES.at(tally)

    metrics = Metrics()
    metrics.add(source)
    found = await scraped(metrics)
    log = of(log="config-store")
    assert found["drover_log_appends_total", log] == 3
    assert found["drover_log_queued_events", log] == 2
    buckets = [
        found["drover_log_append_seconds_bucket", of(log="config-store", le=bound)]
        for bound in ("0.1", "1.0", "+Inf")
    ]
    assert buckets == [1, 2, 3]
    assert found["drover_log_append_seconds_count", log] == 3
    assert found["drover_log_append_seconds_sum", log] == pytest.approx(7.6)
    assert found["drover_worker_rebalance_seconds_count", of()] == 3
    assert found["drover_event_loop_lag_seconds", of()] >= 0
    assert found["process_open_fds", of()] > 0


async def test_labels_may_hold_anything() -> None:
    odd = 'a "quoted"\\name\nof two lines é'
    metrics = Metrics()
    metrics.add(lambda: [table.GROUP_MEMBERS.at(1, odd)])
    assert (await scraped(metrics))["drover_group_members", of(group=odd)] == 1


async def test_too_many_series_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "SERIES_MAX", 10)
    metrics = Metrics()
    metrics.add(lambda: [table.TASK_RETRIES.at(1, "c", str(n)) for n in range(13)])
    metrics.add(lambda: [table.TASK_LAG.at(1, "c", "0")])
    found = await scraped(metrics)
    assert sum(name == "drover_task_retries_total" for name, _ in found) == 10
    assert found["drover_series_left_out", of()] == 3
    assert found["drover_task_lag_records", of(connector="c", task="0")] == 1


async def test_a_source_that_fails_fails_the_scrape_and_nothing_else() -> None:
    def source() -> Iterator[Sample]:
        raise ZeroDivisionError

    metrics = Metrics()
    metrics.add(source)
    async with serving_metrics("127.0.0.1:0", metrics) as address:
        with pytest.raises((urllib.error.HTTPError, ConnectionError, OSError)):
            await asyncio.to_thread(fetch, address)


async def test_without_an_address_nothing_is_served() -> None:
    async with serving_metrics("", Metrics()) as address:
        assert address == ""


async def test_a_port_in_use_is_told() -> None:
    taken = free_address()
    async with serving_metrics(taken, Metrics()):
        with pytest.raises(OSError, match=f"cannot serve metrics on {taken}: .*in use"):
            async with serving_metrics(taken, Metrics()):
                pass


async def test_clients_that_say_nothing_take_a_bounded_number_of_places() -> None:
    metrics = Metrics()
    metrics.add(lambda: [table.TASK_LAG.at(1, "c", "0")])
    async with serving_metrics("127.0.0.1:0", metrics) as address:
        host, _, port = address.rpartition(":")
        silent = [
            socket.create_connection((host, int(port)), 30)
            for _ in range(scrape_server.CONNECTIONS_MAX)
        ]
        with socket.create_connection((host, int(port)), 30) as one_too_many:
            assert await asyncio.to_thread(one_too_many.recv, 1) == b""  # it was closed at once
        for each in silent:
            each.close()

        async def served() -> bool:
            with suppress(OSError):
                return "drover_task_lag_records" in await asyncio.to_thread(fetch, address)
            return False

        await wait_until_async(served, describe="a place is free")


async def test_it_listens_on_ipv6_too() -> None:
    async with serving_metrics("[::1]:0", Metrics()) as address:
        assert "drover_build_info" in await asyncio.to_thread(fetch, address)
