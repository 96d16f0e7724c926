"""Typed asynchronous clients of Drover's services.

    async with channel("127.0.0.1:7401") as coordinator:
        client = CoordinatorClient(coordinator)
        waiting = await client.heartbeat(group_id="drover", member_id=me, generation=3)

Every call takes ``timeout_s``, the time limit for the call and all its retries, and raises only
``drover.errors``. Idempotent calls are retried while the server is unavailable.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import drover.rpc  # noqa: F401 - sets environment variables that gRPC reads at its import

if TYPE_CHECKING:
    from drover.client.calls import channel
    from drover.client.config_store import ConfigStoreClient, ConfigWritten, WriterGrant
    from drover.client.connect import ConnectClient
    from drover.client.coordinator import CoordinatorClient, CoordinatorsClient
    from drover.client.failover import FailoverChannel
    from drover.client.status_store import StatusesWritten, StatusStoreClient
    from drover.client.watch import EventsRead, SnapshotRead, follow
    from drover.client.worker import WorkerClient

__all__ = [
    "ConfigStoreClient",
    "ConfigWritten",
    "ConnectClient",
    "CoordinatorClient",
    "CoordinatorsClient",
    "EventsRead",
    "FailoverChannel",
    "SnapshotRead",
    "StatusStoreClient",
    "StatusesWritten",
    "WorkerClient",
    "WriterGrant",
    "channel",
    "follow",
]

#: Each name is imported on first use: a command needs one client, and all take half a second.
_MODULES = {
    "ConfigStoreClient": "config_store",
    "ConfigWritten": "config_store",
    "ConnectClient": "connect",
    "CoordinatorClient": "coordinator",
    "CoordinatorsClient": "coordinator",
    "EventsRead": "watch",
    "FailoverChannel": "failover",
    "SnapshotRead": "watch",
    "StatusStoreClient": "status_store",
    "StatusesWritten": "status_store",
    "WorkerClient": "worker",
    "WriterGrant": "config_store",
    "channel": "calls",
    "follow": "watch",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
