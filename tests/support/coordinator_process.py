"""Coordinators as separate processes that tests observe from outside, kill and freeze."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from drover.client import CoordinatorClient, CoordinatorsClient, channel
from drover.errors import DroverError
from tests.support.addresses import free_addresses
from tests.support.coordinator_pair import SHARDS, group_of
from tests.support.freezing import freeze, thaw
from tests.support.service_process import ServiceProcess
from tests.support.waiting import wait_until_async

MIB = 1024 * 1024
START_TIMEOUT_S = 60.0


class CoordinatorProcess:
    """Start, kill and restart a coordinator at the same address without blocking the test's event
    loop.
    """

    def __init__(self, directory: Path, **settings: object) -> None:
        environment = {
            "DROVER_STORAGE_URL": f"sqlite://{directory}",
            "DROVER_INITIAL_REBALANCE_DELAY_MS": "50",
            **{f"DROVER_{key.upper()}": str(value) for key, value in settings.items()},
        }
        self._service = ServiceProcess("coordinator", directory, environment)
        self.address = self._service.address
        self.log = self._service.process.log
        self.memory_bytes = self._service.process.memory_bytes
        self.assert_unharmed = self._service.assert_unharmed

    async def start(self) -> None:
        """Start it; returns once it serves."""
        await asyncio.to_thread(self._service.start)

    async def launch(self) -> None:
        """Start it without waiting until it serves."""
        await asyncio.to_thread(self._service.launch)

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        await asyncio.to_thread(self._service.process.kill)

    async def stop(self) -> None:
        """Stop it gracefully; idempotent."""
        await asyncio.to_thread(self._service.process.stop)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[CoordinatorClient]:
        """A client on a new connection."""
        async with channel(self.address) as connection:
            yield CoordinatorClient(connection)


@asynccontextmanager
async def coordinator_process(
    directory: Path, **settings: object
) -> AsyncIterator[CoordinatorProcess]:
    """A running coordinator; at the end it is checked for defects and stopped gracefully."""
    running = CoordinatorProcess(directory, **settings)
    await running.start()
    try:
        yield running
        running.assert_unharmed()
    finally:
        await running.stop()


class CoordinatorProcesses:
    """Several coordinators that share a directory; an async context that ends all of them."""

    def __init__(
        self, directory: Path, *, count: int = 2, env: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.addresses = free_addresses(count)
        environment = {
            "DROVER_STORAGE_URL": f"sqlite://{directory / 'data'}",
            "DROVER_COORDINATORS": ",".join(self.addresses),
            "DROVER_LOG_LEVEL": "DEBUG",
            **(env or {}),
        }
        self._services = {
            address: ServiceProcess("coordinator", directory, environment, address=address)
            for address in self.addresses
        }

    async def __aenter__(self) -> "CoordinatorProcesses":
        for address in self.addresses:
            self.start(address)
        await self.wait_until_shared()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for service in self._services.values():
            service.process.kill()

    def start(self, address: str) -> None:
        """Start or restart the coordinator at an address."""
        self._services[address].launch()

    def kill(self, address: str) -> None:
        """kill -9."""
        self._services[address].process.kill()

    async def freeze(self, address: str) -> None:
        """SIGSTOP at a moment when it holds no file lock."""
        await freeze(lambda: [self._services[address].process.pid], self.directory / "data")

    def thaw(self, address: str) -> None:
        """SIGCONT."""
        thaw([self._services[address].process.pid])

    def stop(self, address: str) -> int | None:
        """SIGTERM; returns the exit code."""
        return self._services[address].process.stop()

    def log(self, address: str) -> str:
        """A coordinator's output."""
        return self._services[address].process.log()

    def other(self, address: str) -> str:
        """The other one of two coordinators."""
        [found] = [each for each in self.addresses if each != address]
        return found

    def client(self, *addresses: str) -> CoordinatorsClient:
        """A client that knows these addresses, by default all."""
        return CoordinatorsClient(addresses or self.addresses)

    async def owners(self, asked: str) -> list[str]:
        """The owner of each shard, as reported by one coordinator; "" where unknown."""

        async def owner(client: CoordinatorsClient, shard: int) -> str:
            with suppress(DroverError):
                return await client.find_coordinator(group_of(shard), timeout_s=2)
            return ""

        async with self.client(asked) as client:
            return list(await asyncio.gather(*(owner(client, s) for s in range(SHARDS))))

    async def wait_until_shared(self) -> None:
        """Wait until all own their even part of the shards, and agree on it."""

        async def shared() -> bool:
            seen = [await self.owners(address) for address in self.addresses]
            counts = [seen[0].count(address) for address in self.addresses]
            return all(each == seen[0] for each in seen) and min(counts) >= SHARDS // len(counts)

        await wait_until_async(shared, timeout_s=START_TIMEOUT_S, describe=self._logs)

    async def wait_until_owned_by(self, address: str) -> None:
        """Wait until one of them owns everything."""

        async def owned() -> bool:
            return await self.owners(address) == [address] * SHARDS

        await wait_until_async(owned, timeout_s=START_TIMEOUT_S, describe=self._logs)

    def _logs(self) -> str:
        return "\n".join(f"{a}: {self.log(a)[-2000:]}" for a in self.addresses)
