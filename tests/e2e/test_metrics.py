"""A real Prometheus on a real cluster: every metric exists, every panel has data, alerts fire."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from drover.metrics.metric import Kind
from drover.metrics.table import CERTIFICATE_END, CONNECTOR_QUARANTINED, METRICS
from tests.support import plugins_for_tests as plugins
from tests.support.addresses import free_address
from tests.support.prometheus import Prometheus, expressions, running_prometheus
from tests.support.shared_cluster import SharedCluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="session"),
]

TIMEOUT_S = 180.0
#: The names, or their beginnings, of metrics that the shared cluster lacks: it has no certificates,
#: no gateway and no connector in quarantine.
ABSENT = (CERTIFICATE_END.name, "drover_http_", "drover_gateway_", CONNECTOR_QUARANTINED.name)
TELLING, FAILING = "metrics-telling", "metrics-failing"
#: The alerts of a cluster with one failing connector and one target without a process.
EXPECTED = {("DroverTaskFailed", FAILING), ("DroverProcessDown", "")}


@pytest_asyncio.fixture(loop_scope="session")
async def prometheus(unharmed: SharedCluster, tmp_path: Path) -> AsyncIterator[Prometheus]:
    """Prometheus has scraped every process, and one target without a process."""
    processes = unharmed.cluster.supervisor.processes.values()
    targets = [process.spec.metrics_address for process in processes]
    async with AsyncExitStack() as stack:
        for name, kind in ((TELLING, plugins.Telling), (FAILING, plugins.RaisesInPoll)):
            config = {"connector.class": plugins.plugin(kind), "restart.policy": "never"}
            await stack.enter_async_context(unharmed.connector(name, config))
        await unharmed.cluster.wait_for_task(FAILING, state="FAILED")
        running = running_prometheus(tmp_path, [*targets, free_address()])
        yield stack.enter_context(running)


async def waited(prometheus: Prometheus, *names: str) -> None:
    """Wait until Prometheus has data for every one of these queries."""
    left = list(names)

    async def found() -> bool:
        left[:] = [each for each in left if not await asyncio.to_thread(prometheus.query, each)]
        return not left

    await wait_until_async(found, timeout_s=TIMEOUT_S, describe=lambda: f"no data: {left}")


async def test_a_real_prometheus_sees_everything(
    prometheus: Prometheus, unharmed: SharedCluster
) -> None:
    # every metric of the table, except the absent ones, is exported by some process, and no other
    # metric is
    suffix = {Kind.SUMMARY: "_count", Kind.HISTOGRAM: "_bucket"}
    here = [each for each in METRICS if not each.name.startswith(ABSENT)]
    await waited(prometheus, *(f"{each.name}{suffix.get(each.kind, '')}" for each in here))
    parts = {Kind.SUMMARY: ("_count", "_sum"), Kind.HISTOGRAM: ("_bucket", "_count", "_sum")}
    known = {f"{each.name}{part}" for each in METRICS for part in parts.get(each.kind, ("",))}
    told = {each for each in prometheus.names() if each.startswith(("drover_", "process_"))}
    assert told <= known

    # every panel of every dashboard has data
    queries = {
        expression: place
        for place, expression in expressions("30s")
        if not any(each in expression for each in ABSENT)
    }
    await waited(prometheus, *queries)

    # the expected alerts fire for the expected connectors; a slow machine may fire others
    def alerts() -> set[tuple[str, str]]:
        firing = {(each["alertname"], each.get("connector", "")) for each in prometheus.firing()}
        return {each for each in firing if each[0] in dict(EXPECTED)}

    await wait_until_async(lambda: alerts() == EXPECTED, timeout_s=TIMEOUT_S, describe=alerts)

    # the metrics count the work of the flow's tasks
    flow = unharmed.flow
    lines = flow.output.read_bytes().count(b"\n")
    written = f'sum(drover_task_records_written_total{{connector="{flow.sink}"}})'
    await wait_until_async(
        lambda: prometheus.value(written) >= lines, timeout_s=TIMEOUT_S, describe=written
    )
    assert prometheus.value(f'drover_task_figure{{connector="{TELLING}"}}') == 7

    # a deleted connector's series end with it
    await unharmed.client.delete_connector(TELLING)
    of_it = f'{{connector="{TELLING}"}}'
    await wait_until_async(
        lambda: not prometheus.query(of_it), timeout_s=TIMEOUT_S, describe=f"no more {of_it}"
    )
