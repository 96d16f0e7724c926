"""Coordinators as processes that share a directory, to be killed and frozen."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from drover.client import CoordinatorsClient
from drover.errors import DroverError
from tests.support.addresses import free_addresses
from tests.support.coordinator_pair import SHARDS, group_of
from tests.support.freezing import freeze, thaw
from tests.support.service_process import service_environment
from tests.support.waiting import wait_until_async

START_TIMEOUT_S = 60.0


class CoordinatorProcesses:
    """Several; an async context at whose end none is left."""

    def __init__(
        self, directory: Path, *, count: int = 2, env: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.addresses = free_addresses(count)
        self._env = dict(env or {})
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    async def __aenter__(self) -> "CoordinatorProcesses":
        for address in self.addresses:
            self.start(address)
        await self.wait_until_shared()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def start(self, address: str) -> None:
        """Start the coordinator at an address, maybe again."""
        with (self.directory / f"{address}.log").open("ab") as log:
            self._processes[address] = subprocess.Popen(
                [sys.executable, "-m", "drover_coordinator"],
                env={
                    **service_environment("coordinator", self.directory / "data"),
                    "DROVER_COORDINATOR_LISTEN": address,
                    "DROVER_COORDINATORS": ",".join(self.addresses),
                    "DROVER_LOG_LEVEL": "DEBUG",
                    **self._env,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, address: str) -> None:
        """kill -9."""
        process = self._processes[address]
        process.kill()
        process.wait()

    async def freeze(self, address: str) -> None:
        """SIGSTOP, while it keeps no file from the others."""
        await freeze(lambda: [self._processes[address].pid], self.directory / "data")

    def thaw(self, address: str) -> None:
        """SIGCONT."""
        thaw([self._processes[address].pid])

    def stop(self, address: str) -> int:
        """SIGTERM; its exit code."""
        self._processes[address].terminate()
        return self._processes[address].wait()

    def log(self, address: str) -> str:
        """What it has written."""
        return (self.directory / f"{address}.log").read_text(errors="replace")

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
