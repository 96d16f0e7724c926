"""Coordinators as processes of their own, which can be seen from outside, killed and frozen."""

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
    """Start, kill, and start again at the same address, while the loop of the test goes on."""

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
        """Returns once it serves."""
        await asyncio.to_thread(self._service.start)

    async def launch(self) -> None:
        """Start it, and leave it to it when it will serve."""
        await asyncio.to_thread(self._service.launch)

    async def kill(self) -> None:
        """Without a word: SIGKILL."""
        await asyncio.to_thread(self._service.process.kill)

    async def stop(self) -> None:
        """In good order; a second call does nothing."""
        await asyncio.to_thread(self._service.process.stop)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[CoordinatorClient]:
        """A client on a connection of its own."""
        async with channel(self.address) as connection:
            yield CoordinatorClient(connection)


@asynccontextmanager
async def coordinator_process(
    directory: Path, **settings: object
) -> AsyncIterator[CoordinatorProcess]:
    """It runs, and is stopped in good order and unharmed at the end."""
    running = CoordinatorProcess(directory, **settings)
    await running.start()
    try:
        yield running
        running.assert_unharmed()
    finally:
        await running.stop()


class CoordinatorProcesses:
    """Several that share a directory; an async context at whose end none is left."""

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
        """Start the coordinator at an address, maybe again."""
        self._services[address].launch()

    def kill(self, address: str) -> None:
        """kill -9."""
        self._services[address].process.kill()

    async def freeze(self, address: str) -> None:
        """SIGSTOP, while it keeps no file from the others."""
        await freeze(lambda: [self._services[address].process.pid], self.directory / "data")

    def thaw(self, address: str) -> None:
        """SIGCONT."""
        thaw([self._services[address].process.pid])

    def stop(self, address: str) -> int | None:
        """SIGTERM; its exit code."""
        return self._services[address].process.stop()

    def log(self, address: str) -> str:
        """What it has written."""
        return self._services[address].process.log()

    def other(self, address: str) -> str:
        """The other one of two."""
        [found] = [each for each in self.addresses if each != address]
        return found

    def client(self, *addresses: str) -> CoordinatorsClient:
        """A client that is told of these, by default of all."""
        return CoordinatorsClient(addresses or self.addresses)

    async def owners(self, asked: str) -> list[str]:
        """The owner of each shard, as one of them says; "" where it knows none."""

        async def owner(client: CoordinatorsClient, shard: int) -> str:
            with suppress(DroverError):
                return await client.find_coordinator(group_of(shard), timeout_s=2)
            return ""

        async with self.client(asked) as client:
            return list(await asyncio.gather(*(owner(client, s) for s in range(SHARDS))))

    async def wait_until_shared(self) -> None:
        """Wait until all own as many shards as they should, and agree on it."""

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
