"""Whether addresses that a cluster wants are those of another cluster on this machine."""

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


async def refuse_beside_another(wanted: Mapping[str, str]) -> None:
    """Refuse to start where another cluster runs.

    Args:
        wanted: Addresses that a cluster would have, by the names of its processes.

    Raises:
        ClusterError: One of them is a process of Drover's, or speaks gRPC over TLS, and does not
            tell strangers what it is; with its address and what to do.
    """
    taken = [(name, at) for name, at in wanted.items() if not _is_free(at)]
    serving = await asyncio.gather(*(_is_drover(name, at) for name, at in taken))
    found = [place for place, yes in zip(taken, serving, strict=True) if yes]
    if not found:
        await _refuse_beside_tls([at for _, at in taken])
        return
    # a worker first: that is what commands talk to
    name, address = next((each for each in found if each[0].startswith("worker")), found[0])
    storage_url = await _storage_url(address) if name.startswith("worker") else ""
    where = f", with its data in {storage_url}" if storage_url else ""
    kind = "" if name.startswith("worker") else f" (its {name})"
    raise ClusterError(
        f"a cluster already runs at {address}{kind}{where}: use it with `drover --help`'s commands"
        " from any folder, stop it with `drover down` in its own, or start another one beside it"
        " with --port-base 8400, or 0 for any free ports"
    )


async def _refuse_beside_tls(taken: Sequence[str]) -> None:
    shown = await asyncio.gather(*(asyncio.to_thread(shown_certificate, at) for at in taken))
    found = [at for at, certificate in zip(taken, shown, strict=True) if certificate is not None]
    if found:
        raise ClusterError(
            f"a cluster seems to run at {', '.join(found)}, where gRPC is spoken over TLS: use it"
            " with --tls-ca and your certificate or token, stop it with `drover down` in its own"
            " folder, or start another one beside it with --port-base 8400, or 0 for any free ports"
        )


def _is_free(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return ports.is_free(host, int(port))


async def _is_drover(name: str, address: str) -> bool:
    """Whether a service of Drover's is there, be it ready or not."""
    kind = next(kind for kind in _HEALTH_NAMES if name.startswith(kind))
    async with HealthChannel(address, service=_HEALTH_NAMES[kind]) as health:
        return await health.status(_ANSWER_TIMEOUT_S) in ("SERVING", "NOT_SERVING")


async def _storage_url(address: str) -> str:
    async with channel(address) as opened:
        with suppress(DroverError):
            info = await ConnectClient(opened).get_cluster_info(timeout_s=_ANSWER_TIMEOUT_S)
            return info.storage_url
    return ""
