"""Typed asynchronous clients of Drover's services.

    async with channel("127.0.0.1:7401") as coordinator:
        client = CoordinatorClient(coordinator)
        waiting = await client.heartbeat(group_id="drover", member_id=me, generation=3)

Every call takes ``timeout_s``, the time limit for the call and all its retries, and raises only
``drover.errors``. Idempotent calls are retried while the server is unavailable.
"""

import drover.rpc  # noqa: F401 - sets environment variables that gRPC reads at its import
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
