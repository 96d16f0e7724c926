"""The stores as processes: signals, kill -9 and invalid settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drover.client import ConfigStoreClient, channel
from drover.model.ids import Term
from tests.support.service_process import ServiceProcess, assert_one_clear_line, run_to_its_end

pytestmark = pytest.mark.e2e

STORES = ["config-store", "status-store"]


@contextmanager
def running(store: str, directory: Path) -> Iterator[ServiceProcess]:
    service = ServiceProcess(store, directory, {"DROVER_STORAGE_URL": f"sqlite://{directory}"})
    service.start()
    try:
        yield service
    finally:
        service.process.kill()


async def test_a_request_repeated_after_kill_9_gets_the_same_answer(tmp_path: Path) -> None:
    async def create(address: str) -> tuple[int, int]:
        async with channel(address) as connection:
            client = ConfigStoreClient(connection)
            claim = await client.claim_writer(owner="w:1", term=Term(1, 1))
            written = await client.put_connector_config(
                name="a",
                config={"x": "1"},
                writer_epoch=claim.writer_epoch,
                expected_revision=0,
                request_id="create-a",
            )
            assert await client.get_end_offset() == 1
            return claim.writer_epoch, written.revision

    with running("config-store", tmp_path) as store:
        first = await create(store.address)
        store.process.kill()
        store.start()
        assert await create(store.address) == first


@pytest.mark.parametrize("store", [*STORES, "coordinator"])
def test_sigterm_ends_it_in_good_order(store: str, tmp_path: Path) -> None:
    with running(store, tmp_path) as service:
        assert service.process.stop() == 0


@pytest.mark.parametrize("store", STORES)
async def test_bad_settings_are_told(store: str, tmp_path: Path) -> None:
    variable = f"DROVER_{store.upper().replace('-', '_')}_LISTEN"
    done = await run_to_its_end(store, tmp_path, {variable: "nowhere"})
    assert_one_clear_line(done, store, variable, exit_code=2)
    done = await run_to_its_end(store, tmp_path, {"DROVER_STORAGE_URL": "mysql://host/db"})
    assert_one_clear_line(done, store, "DROVER_STORAGE_URL", exit_code=2)
