"""Coordinators in this process that share a directory, and clients that follow the owners."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from drover.client import CoordinatorsClient
from drover.errors import DroverError
from drover.model.group import shard_of
from tests.support.addresses import free_addresses
from tests.support.group_members import GroupMember, RunningCoordinator
from tests.support.waiting import wait_until_async

SHARDS = 4


def group_of(shard: int, number: int = 0) -> str:
    """The id of a group that belongs to a shard."""
    found = (f"group-{n}" for n in range(10_000) if shard_of(f"group-{n}", SHARDS) == shard)
    return [next(found) for _ in range(number + 1)][-1]


class Coordinators:
    """Several coordinators on one directory; each can be started and stopped."""

    def __init__(self, directory: Path, count: int = 2, **settings: object) -> None:
        self.directory = directory
        self.addresses = free_addresses(count)
        self.each = [self._make(address, settings) for address in self.addresses]

    def _make(self, address: str, settings: dict[str, object]) -> RunningCoordinator:
        made = RunningCoordinator(self.directory, coordinators=",".join(self.addresses), **settings)
        made.address = address
        return made

    @asynccontextmanager
    async def client(self) -> AsyncIterator[CoordinatorsClient]:
        """A client that knows all coordinators."""
        async with CoordinatorsClient(self.addresses) as client:
            yield client

    async def owners(self, address: str | None = None) -> list[str]:
        """The owner of each shard, as reported by one coordinator (by default the first)."""
        async with CoordinatorsClient([address or self.addresses[0]]) as client:
            return [await client.find_coordinator(group_of(s), timeout_s=10) for s in range(SHARDS)]

    async def wait_until_shared(self, among: Sequence[str] | None = None) -> list[str]:
        """Wait until these coordinators (by default all) own the shards evenly and agree on it."""
        wanted = list(among or self.addresses)
        last: list[list[str]] = []

        async def shared() -> bool:
            with suppress(DroverError):
                last[:] = [await self.owners(address) for address in wanted]
                counts = [last[0].count(address) for address in wanted]
                agreed = all(owners == last[0] for owners in last)
                return agreed and sum(counts) == SHARDS and max(counts) - min(counts) <= 1
            return False

        await wait_until_async(shared, describe=lambda: (wanted, last))
        return last[0]

    async def stop(self) -> None:
        for each in self.each:
            await each.stop()


class FollowingMember(GroupMember):
    """A member that follows its group."""

    def __init__(self, addresses: Sequence[str], name: str, **options: object) -> None:
        super().__init__("", name, **options)  # type: ignore[arg-type]
        self._addresses = addresses

    async def __aenter__(self) -> "FollowingMember":
        self.client = await self._stack.enter_async_context(CoordinatorsClient(self._addresses))
        return self
