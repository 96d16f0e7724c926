"""Drover's services as processes on Kafka: on the topics that a Kafka Connect has, or will have."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

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
from tests.support.addresses import HOST, free_ports
from tests.support.child_process import ChildProcess
from tests.support.kafka.connect import ConnectOptions

T = TypeVar("T")

CONFIG_STORE, STATUS_STORE, COORDINATOR = "config-store", "status-store", "coordinator"
ALL_SERVICES = (CONFIG_STORE, STATUS_STORE, COORDINATOR)
_HEALTH_TIMEOUT_S = 30


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
        environment: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        ports = dict(zip(ALL_SERVICES, free_ports(len(ALL_SERVICES)), strict=True))
        self.addresses = {name: f"{HOST}:{port}" for name, port in ports.items()}
        self.options = options
        self.processes = {
            name: ChildProcess(
                f"Drover's {name}",
                [sys.executable, "-m", f"drover_{name.replace('-', '_')}"],
                log_path=directory / f"{name}.log",
                environment={
                    **kafka_environment(bootstrap, options),
                    f"DROVER_{name.upper().replace('-', '_')}_LISTEN": self.addresses[name],
                    **(environment or {}),
                },
            )
            for name in services
        }

    def start(self) -> None:
        """Returns once all serve."""
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(self.start_one, self.processes))

    def start_one(self, name: str) -> None:
        """Returns once it serves; it has read its topics then."""
        self.processes[name].start(ready=lambda: self.health(name) == "SERVING")

    def stop(self) -> None:
        """In good order; those that do not run are left alone."""
        for process in self.processes.values():
            process.stop()

    def health(self, name: str, service: str = "") -> str:
        """What the health service says of the process, or of a part of it; "" without an answer."""
        with grpc.insecure_channel(self.addresses[name]) as connection:
            stub: Any = health_pb2_grpc.HealthStub(connection)
            try:
                answer = stub.Check(
                    health_pb2.HealthCheckRequest(service=service), timeout=_HEALTH_TIMEOUT_S
                )
            except grpc.RpcError:
                return ""
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

    def call(self, use: Callable[[Clients], Awaitable[T]]) -> T:
        """Run calls to the services in an event loop of their own."""

        async def run() -> T:
            async with AsyncExitStack() as stack:
                connect = [
                    await stack.enter_async_context(channel(self.addresses[name]))
                    for name in (CONFIG_STORE, STATUS_STORE)
                ]
                # one that has lost its lease for a moment is asked again
                coordinator = CoordinatorsClient([self.addresses[COORDINATOR]])
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
        for line in self.processes[name].log().splitlines():
            with suppress(ValueError):
                logged = json.loads(line)
                if isinstance(logged, dict) and event in ("", logged.get("event")):
                    found.append(logged)
        return found

    def assert_unharmed(self) -> None:
        """All run and have met no defect."""
        for process in self.processes.values():
            assert process.is_alive, process.shown_log()
            log = process.log()
            for sign in ("Traceback", "defect", '"level": "error"', '"level":"error"'):
                assert sign not in log, log[max(0, log.find(sign) - 500) :][:3_000]
