"""Alerts of a real Prometheus when processes lose what they need."""

from pathlib import Path

import pytest

from tests.support.addresses import free_address
from tests.support.alerts import wait_until_fired, wait_until_over, wait_until_silent
from tests.support.prometheus import running_prometheus
from tests.support.service_process import ServiceProcess, fill, small_disk
from tests.support.store_process import writing

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.faults("coordinator")]


async def test_a_store_whose_disk_is_full(tmp_path: Path) -> None:
    metrics = free_address()
    (tmp_path / "prometheus").mkdir()
    with small_disk(tmp_path / "disk", "16m") as disk:
        environment = {
            "DROVER_STORAGE_URL": f"sqlite://{disk}",
            "DROVER_METRICS_LISTEN": metrics,
        }
        store = ServiceProcess("config-store", tmp_path, environment)
        store.start()
        try:
            with running_prometheus(tmp_path / "prometheus", [metrics]) as prometheus:
                await wait_until_silent(prometheus, [metrics])
                async with writing(store):
                    filler = fill(disk)
                    await wait_until_fired(
                        prometheus, "DroverStorageAlmostFull", "DroverAppendsFail"
                    )
                    filler.unlink()
                    await wait_until_over(prometheus, "DroverStorageAlmostFull")
        finally:
            store.process.stop()
