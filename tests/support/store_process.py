"""Stores as separate processes, and a leader that writes to them through all faults."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drover.client import ConfigStoreClient, FailoverChannel
from drover.errors import DeadlineExceededError, FailedPreconditionError, Reason, UnavailableError
from drover.model.ids import Term
from tests.support.kafka.clients import read_all
from tests.support.service_process import ServiceProcess
from tests.support.waiting import wait_until_async


@dataclass(frozen=True, slots=True, kw_only=True)
class OnKafka:
    """A cluster's topics and brokers."""

    bootstrap: str
    prefix: str
    group_id: str = ""

    def environment(self) -> dict[str, str]:
        """The environment of each of its processes."""
        return {
            "DROVER_STORAGE_URL": f"kafka://{self.bootstrap}",
            "DROVER_GROUP_ID": self.group_id or f"{self.prefix}group",
            "DROVER_CONFIG_STORAGE_TOPIC": self.config_topic,
            "DROVER_OFFSET_STORAGE_TOPIC": f"{self.prefix}offsets",
            "DROVER_STATUS_STORAGE_TOPIC": self.status_topic,
            "DROVER_CONTROL_STORAGE_TOPIC": f"{self.prefix}control",
        }

    @property
    def config_topic(self) -> str:
        """The topic of its configs."""
        return f"{self.prefix}configs"

    @property
    def status_topic(self) -> str:
        """The topic of its statuses."""
        return f"{self.prefix}status"


class StoreProcess(ServiceProcess):
    """A config or status store on Kafka."""

    def __init__(self, service: str, where: OnKafka, directory: Path, **environment: str) -> None:
        super().__init__(service, directory, {**where.environment(), **environment})


@dataclass
class Leader:
    """Creates connectors, one after another, as a leader does: it claims again when it must, and
    retries unanswered calls.
    """

    client: ConfigStoreClient
    written: dict[str, int] = field(default_factory=dict)
    claims: int = 0
    failures: int = 0
    stopping: bool = False
    _epoch: int = -1

    async def write_until_stopped(self, prefix: str = "c") -> None:
        """Create connectors continuously."""
        number = 0
        while not self.stopping:
            await self.write(f"{prefix}{number}")
            number += 1

    async def write(self, name: str) -> None:
        """Create one connector; returns once it is acknowledged."""
        while True:
            try:
                done = await self.client.put_connector_config(
                    name=name,
                    config={"x": name},
                    writer_epoch=self._epoch,
                    expected_revision=0,
                    request_id=f"request {name}",
                    timeout_s=2,
                )
            except FailedPreconditionError as error:
                if error.reason is not Reason.STALE_WRITER_EPOCH:
                    raise
                await self._claim()
            except (UnavailableError, DeadlineExceededError):
                self.failures += 1
            else:
                self.written[name] = done.revision
                return

    async def _claim(self) -> None:
        try:
            claim = await self.client.claim_writer(
                owner="the leader", term=Term(1, self.claims), timeout_s=5
            )
        except (UnavailableError, DeadlineExceededError):
            self.failures += 1
            return
        self.claims += 1
        self._epoch = claim.writer_epoch


def connector_keys(records: Sequence[Any]) -> list[str]:
    """The connectors of a topic's config records, one per record."""
    keys = [(record.key or b"").decode() for record in records]
    return [key.removeprefix("connector-") for key in keys if key.startswith("connector-")]


@asynccontextmanager
async def at(*stores: ServiceProcess) -> AsyncIterator[ConfigStoreClient]:
    """A failover client of these stores."""
    async with FailoverChannel([each.address for each in stores]) as replicas:
        yield ConfigStoreClient(replicas.as_channel())


@asynccontextmanager
async def writing(*stores: ServiceProcess) -> AsyncIterator[Leader]:
    """A leader that writes for the block, without open calls at its end."""
    async with at(*stores) as client:
        leader = Leader(client)
        task = asyncio.create_task(leader.write_until_stopped())
        try:
            yield leader
            leader.stopping = True
            async with asyncio.timeout(60):
                await task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def wrote_more(leader: Leader, count: int = 20) -> None:
    """Wait until it has written ``count`` more connectors."""
    goal = len(leader.written) + count
    await wait_until_async(
        lambda: len(leader.written) >= goal, timeout_s=60, describe=lambda: leader
    )


async def assert_kept(leader: Leader, where: OnKafka, *stores: StoreProcess) -> None:
    """Every store has every acknowledged connector, and each was written once."""
    assert leader.written
    for each in stores:
        async with at(each) as client:
            await client.get_end_offset()
            snapshot = await client.get_snapshot()
        revisions = {name: entry.config_revision for name, entry in snapshot.connectors.items()}
        assert revisions == leader.written
        each.assert_unharmed()
    assert sorted(connector_keys(read_all(where.bootstrap, where.config_topic))) == sorted(
        leader.written
    )
