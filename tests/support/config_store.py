"""A config store in this process, and common steps of its tests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from drover.client import ConfigStoreClient
from drover.clock import Clock
from drover.log.log import Log
from drover.model.config import ConfigEvent
from drover.model.ids import Term
from drover.rpc.server import RpcServer
from drover.runtime.runtime import Runtime
from drover_config_store.core.records import ConfigRecord
from drover_config_store.server import wire
from tests.support.log_services import running_service

Wire = Callable[[Log, Clock, RpcServer], Runtime[ConfigRecord]]


@asynccontextmanager
async def store(path: Path, wiring: Wire = wire) -> AsyncIterator[ConfigStoreClient]:
    async with running_service(path, wiring) as service:
        yield ConfigStoreClient(service.channel)


async def lead(client: ConfigStoreClient, generation: int = 1) -> int:
    claim = await client.claim_writer(owner=f"w:{generation}", term=Term(generation, 1))
    return claim.writer_epoch


async def read_until(
    client: ConfigStoreClient, start_offset: int, end_offset: int
) -> list[ConfigEvent]:
    """The changes in a range, as a watcher gets them."""
    events: list[ConfigEvent] = []
    async with asyncio.timeout(30), aclosing(client.watch(start_offset)) as batches:
        async for batch in batches:
            events += batch.events
            if batch.end_offset >= end_offset:
                return events
    raise AssertionError("the watch ended early")
