"""Drover's services as processes on Kafka, on the topics of a present or future Kafka Connect."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from drover.client import (
    ConfigStoreClient,
    CoordinatorClient,
    CoordinatorsClient,
    StatusStoreClient,
    channel,
)
from drover.model.config import ConfigSnapshot
from drover.model.offsets import CommittedOffset
from drover.model.status import StatusSnapshot
from tests.support.addresses import free_addresses
from tests.support.kafka.connect import ConnectOptions
from tests.support.service_process import ServiceProcess

T = TypeVar("T")

CONFIG_STORE, STATUS_STORE, COORDINATOR = "config-store", "status-store", "coordinator"
ALL_SERVICES = (CONFIG_STORE, STATUS_STORE, COORDINATOR)


def kafka_environment(
    bootstrap: str, options: ConnectOptions, *, group_id: str = ""
) -> dict[str, str]:
    """The environment of a Drover service in the cluster that ``options`` describe."""
    return {
        "DROVER_STORAGE_URL": f"kafka://{bootstrap}",
        "DROVER_GROUP_ID": group_id or options.group_id,
        "DROVER_CONFIG_STORAGE_TOPIC": options.config_topic,
        "DROVER_OFFSET_STORAGE_TOPIC": options.offset_topic,
        "DROVER_STATUS_STORAGE_TOPIC": options.status_topic,
        "DROVER_CONTROL_STORAGE_TOPIC": control_topic(options),
        "DROVER_OFFSET_STORAGE_PARTITIONS": str(options.offset_partitions),
        "DROVER_STATUS_STORAGE_PARTITIONS": str(options.status_partitions),
        "DROVER_STORAGE_REPLICATION_FACTOR": "1",
        "DROVER_EXACTLY_ONCE_SOURCE_SUPPORT": options.exactly_once_source,
        # one shard loads quickly, and there are few groups
        "DROVER_GROUP_SHARDS": "1",
        "DROVER_INITIAL_REBALANCE_DELAY_MS": "200",
        # on a busy machine renewals are late, which must not cost the shards
        "DROVER_COORDINATOR_LEASE_MS": "15000",
    }


def control_topic(options: ConnectOptions) -> str:
    """The topic for Drover's own records."""
    return f"{options.group_id}-control"


@dataclass(frozen=True, slots=True)
class Clients:
    """A client for each service; calls to a service that was not started fail."""

    configs: ConfigStoreClient
    statuses: StatusStoreClient
    coordinator: CoordinatorClient


class DroverServices:
    """Stores and coordinator without workers; each keeps its address over restarts."""

    def __init__(
        self,
        bootstrap: str,
        options: ConnectOptions,
        directory: Path,
        *,
        services: Sequence[str] = ALL_SERVICES,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.options = options
        environment = kafka_environment(bootstrap, options)
        addresses = zip(ALL_SERVICES, free_addresses(len(ALL_SERVICES)), strict=True)
        self._addresses = dict(addresses)
        self._services = {
            name: ServiceProcess(name, directory, environment, address=self._addresses[name])
            for name in services
        }

    def start(self) -> None:
        """Start all; returns once all have loaded their topics and serve."""
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(ServiceProcess.start, self._services.values()))

    def stop(self) -> None:
        """Stop running services gracefully."""
        for each in self._services.values():
            each.process.stop()

    def restart(self, name: str, *, kill: bool = False) -> None:
        """Stop or kill one service; returns once it serves again."""
        process = self._services[name].process
        if kill:
            process.kill()
        else:
            process.stop()
        self._services[name].start()

    def call(self, use: Callable[[Clients], Awaitable[T]]) -> T:
        """Run calls to the services in a separate event loop."""

        async def run() -> T:
            async with AsyncExitStack() as stack:
                connect = [
                    await stack.enter_async_context(channel(self._addresses[name]))
                    for name in (CONFIG_STORE, STATUS_STORE)
                ]
                # retries while a coordinator without a lease rejects calls
                coordinator = CoordinatorsClient([self._addresses[COORDINATOR]])
                await stack.enter_async_context(coordinator)
                return await use(
                    Clients(
                        ConfigStoreClient(connect[0]),
                        StatusStoreClient(connect[1]),
                        coordinator,
                    )
                )

        return asyncio.run(run())

    def configs(self) -> ConfigSnapshot:
        """All that the config store holds."""
        return self.call(lambda clients: clients.configs.get_snapshot())

    def statuses(self) -> StatusSnapshot:
        """All that the status store holds."""
        return self.call(lambda clients: clients.statuses.get_snapshot())

    def offsets(self, connector: str) -> list[CommittedOffset]:
        """A connector's offsets in the coordinator."""
        group_id = self.options.group_id
        return self.call(
            lambda clients: clients.coordinator.fetch_offsets(
                group_id=group_id, connector=connector
            )
        )

    def events(self, name: str, event: str = "") -> list[dict[str, Any]]:
        """A service's log events, all or those with one name."""
        found = []
        for line in self._services[name].process.log().splitlines():
            with suppress(ValueError):
                logged = json.loads(line)
                if isinstance(logged, dict) and event in ("", logged.get("event")):
                    found.append(logged)
        return found

    def assert_unharmed(self) -> None:
        """All services run and have logged no defect."""
        for each in self._services.values():
            each.assert_unharmed()
