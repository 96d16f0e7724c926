"""Checks that no other cluster on this machine uses the addresses of a new one."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from drover.client import ConnectClient, channel
from drover.errors import DroverError
from drover.local import ports
from drover.local.health import HealthChannel
from drover.local.state import ClusterError
from drover.local.tls_check import shown_certificate

_ANSWER_TIMEOUT_S = 2.0
_HEALTH_NAMES = {
    "coordinator": "drover.api.coordinator.v1.CoordinatorService",
    "config-store": "drover.api.config_store.v1.ConfigStoreService",
    "status-store": "drover.api.status_store.v1.StatusStoreService",
    "worker": "drover.api.connect.v1.ConnectService",
}


async def refuse_beside_another(addresses: Mapping[str, str]) -> None:
    """Refuse to start where another cluster runs.

    Args:
        addresses: The addresses of the new cluster, by process name.

    Raises:
        ClusterError: A Drover service listens on one of them, or a gRPC server over TLS, which may
            be one.
    """
    taken = [(name, at) for name, at in addresses.items() if not _is_free(at)]
    serving = await asyncio.gather(*(_is_drover(name, at) for name, at in taken))
    services = [place for place, is_drover in zip(taken, serving, strict=True) if is_drover]
    if not services:
        await _refuse_beside_tls([at for _, at in taken])
        return
    # prefer a worker: commands connect to workers
    name, address = next((each for each in services if each[0].startswith("worker")), services[0])
    storage_url = await _storage_url(address) if name.startswith("worker") else ""
    where = f", with its data in {storage_url}" if storage_url else ""
    kind = "" if name.startswith("worker") else f" (its {name})"
    raise ClusterError(
        f"a cluster already runs at {address}{kind}{where}: use it from any folder, stop it with"
        " `drover down` in its own folder, or start a second one with --port-base 8400 (0 for any"
        " free ports)"
    )


async def _refuse_beside_tls(taken: Sequence[str]) -> None:
    shown = await asyncio.gather(*(asyncio.to_thread(shown_certificate, at) for at in taken))
    servers = [at for at, certificate in zip(taken, shown, strict=True) if certificate is not None]
    if servers:
        raise ClusterError(
            f"a cluster seems to run at {', '.join(servers)}, where a gRPC server uses TLS: use it"
            " with --tls-ca and your certificate or token, stop it with `drover down` in its own"
            " folder, or start a second one with --port-base 8400 (0 for any free ports)"
        )


def _is_free(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return ports.is_free(host, int(port))


async def _is_drover(name: str, address: str) -> bool:
    """Whether a Drover service listens at the address, whether it is ready or not."""
    kind = next(kind for kind in _HEALTH_NAMES if name.startswith(kind))
    async with HealthChannel(address, service=_HEALTH_NAMES[kind]) as health:
        return await health.status(_ANSWER_TIMEOUT_S) in ("SERVING", "NOT_SERVING")


async def _storage_url(address: str) -> str:
    async with channel(address) as opened:
        with suppress(DroverError):
            info = await ConnectClient(opened).get_cluster_info(timeout_s=_ANSWER_TIMEOUT_S)
            return info.storage_url
    return ""
