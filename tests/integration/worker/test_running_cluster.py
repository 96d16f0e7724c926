"""A cluster refuses to start at addresses of a running cluster."""

import socket
from pathlib import Path

from drover.local.running_cluster import refuse_beside_another
from drover.local.state import ClusterError
from tests.support.addresses import free_address
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster


async def told(**wanted: str) -> str:
    """The error that refuses a start at these addresses, by service; empty if it may start."""
    try:
        await refuse_beside_another({name.replace("_", "-"): at for name, at in wanted.items()})
    except ClusterError as error:
        return str(error)
    return ""


async def test_a_running_cluster_is_named_with_what_to_do(tmp_path: Path) -> None:
    async with WorkerCluster(tmp_path) as cluster:
        coordinator, store = cluster.addresses["coordinator_address"], cluster.config_store_address
        one = await wait_until_async(lambda: told(coordinator=coordinator, worker_1=free_address()))
        assert f"a cluster already runs at {coordinator} (its coordinator): " in one
        worker = await cluster.add_worker()
        both = await told(coordinator=coordinator, worker_1=free_address(), worker_2=worker.address)
        assert f"already runs at {worker.address}, with its data in sqlite://{tmp_path}: " in both
        assert "--port-base" in both
        await wait_until_async(lambda: told(config_store=store))
        assert not await told(status_store=store), "it is another service than is asked for"


async def test_what_is_not_of_drover_does_not_matter() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert not await told(worker_1=address, coordinator=free_address())
