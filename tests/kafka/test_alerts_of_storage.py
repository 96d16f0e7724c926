"""Alerts of a real Prometheus when the brokers go away."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.addresses import free_address
from tests.support.alerts import TIMEOUT_S, wait_until_fired, wait_until_silent
from tests.support.kafka.broker import KafkaBroker
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.store_process import OnKafka, StoreProcess
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.timeout(900), pytest.mark.faults("kafka")]


async def test_brokers_that_freeze_and_come_back(
    mortal_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    where = OnKafka(bootstrap=mortal_broker.bootstrap, prefix=topic_prefix)
    (tmp_path / "prometheus").mkdir()
    targets: list[str] = []
    with ExitStack() as stack:

        def launch(service: str) -> StoreProcess:
            targets.append(free_address())
            made = StoreProcess(service, where, tmp_path, DROVER_METRICS_LISTEN=targets[-1])
            stack.callback(made.process.stop)
            made.launch()
            return made

        launch("config-store")
        launch("coordinator")
        dies = launch("status-store")
        prometheus = stack.enter_context(running_prometheus(tmp_path / "prometheus", targets))
        await wait_until_silent(prometheus, targets)
        mortal_broker.freeze()
        await wait_until_all_tell(prometheus, "DroverStorageAway", targets)
        # a process started during the outage does not serve
        dies.process.kill()
        dies.launch()
        await wait_until_fired(prometheus, "DroverNotServing")
        mortal_broker.thaw()
        await wait_until_silent(prometheus, targets)


async def wait_until_all_tell(prometheus: Prometheus, name: str, targets: list[str]) -> None:
    """Wait until the alert fires for each target."""
    seen: set[str] = set()

    async def fired() -> bool:
        firing = await asyncio.to_thread(prometheus.firing)
        seen.clear()
        seen.update(each["instance"] for each in firing if each["alertname"] == name)
        return seen == set(targets)

    await wait_until_async(
        fired, timeout_s=TIMEOUT_S, describe=lambda: f"{name} at {targets}, not {seen}"
    )
