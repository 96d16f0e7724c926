"""Drover's services as processes on Kafka: on the topics that a Kafka Connect has, or will have."""

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
    """What makes a service of Drover one of the cluster that ``options`` describe."""
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
        # one shard is soon read, and there are few groups
        "DROVER_GROUP_SHARDS": "1",
        "DROVER_INITIAL_REBALANCE_DELAY_MS": "200",
        # where a machine is busy it renews late, and is not to load its shards again for that
        "DROVER_COORDINATOR_LEASE_MS": "15000",
    }


def control_topic(options: ConnectOptions) -> str:
    """Where Drover keeps what is its own."""
    return f"{options.group_id}-control"


@dataclass(frozen=True, slots=True)
class Clients:
    """One of each; those whose service was not started answer nothing."""

    configs: ConfigStoreClient
    statuses: StatusStoreClient
    coordinator: CoordinatorClient


class DroverServices:
    """Stores and coordinator without workers; each keeps its address over any number of starts."""

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
        """Returns once all serve; they have read their topics then."""
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(ServiceProcess.start, self._services.values()))

    def stop(self) -> None:
        """In good order; those that do not run are left alone."""
        for each in self._services.values():
            each.process.stop()

    def restart(self, name: str, *, kill: bool = False) -> None:
        """Stop or kill one; returns once it serves again."""
        process = self._services[name].process
        if kill:
            process.kill()
        else:
            process.stop()
        self._services[name].start()

    def call(self, use: Callable[[Clients], Awaitable[T]]) -> T:
        """Run calls to the services in an event loop of their own."""

        async def run() -> T:
            async with AsyncExitStack() as stack:
                connect = [
                    await stack.enter_async_context(channel(self._addresses[name]))
                    for name in (CONFIG_STORE, STATUS_STORE)
                ]
                # one that has lost its lease for a moment is asked again
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
        """What the coordinator knows of a connector's offsets."""
        group_id = self.options.group_id
        return self.call(
            lambda clients: clients.coordinator.fetch_offsets(
                group_id=group_id, connector=connector
            )
        )

    def events(self, name: str, event: str = "") -> list[dict[str, Any]]:
        """What a service has logged, or all that it has logged about one thing."""
        found = []
        for line in self._services[name].process.log().splitlines():
            with suppress(ValueError):
                logged = json.loads(line)
                if isinstance(logged, dict) and event in ("", logged.get("event")):
                    found.append(logged)
        return found

    def assert_unharmed(self) -> None:
        """All run and have met no defect."""
        for each in self._services.values():
            each.assert_unharmed()
