"""Two config stores on one log, and clients that fail over to the other store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from drover.client import ConfigStoreClient, SnapshotRead, channel, follow
from drover.errors import Reason
from drover.model.ids import Term
from drover.testing import raises_reason
from drover_config_store.server import wire
from tests.support.refusals import refusal
from tests.support.replicas import Replica, Replicas, two_replicas
from tests.support.waiting import wait_until_async


@pytest.fixture
async def stores() -> AsyncIterator[Replicas]:
    async with two_replicas(wire) as running:
        yield running


@pytest.fixture
def client(stores: Replicas) -> ConfigStoreClient:
    return ConfigStoreClient(stores.channel.as_channel())


async def lead(client: ConfigStoreClient, sequence: int = 1) -> int:
    claim = await client.claim_writer(owner="w", term=Term(1, sequence))
    return claim.writer_epoch


async def names(client: ConfigStoreClient) -> list[str]:
    return sorted((await client.get_snapshot()).connectors)


async def at(replica: Replica, name: str) -> None:
    """Wait until the replica serves this connector."""
    async with channel(replica.address) as connection:
        client = ConfigStoreClient(connection)

        async def known() -> bool:
            return name in await names(client)

        await wait_until_async(known)


async def test_what_one_store_writes_the_other_serves(
    stores: Replicas, client: ConfigStoreClient
) -> None:
    epoch = await lead(client)
    written = await client.put_connector_config(name="a", config={"x": "1"}, writer_epoch=epoch)
    async with channel(stores.two.address) as connection:
        other = ConfigStoreClient(connection)
        assert await other.get_end_offset() == written.end_offset
        assert await names(other) == ["a"]
        with raises_reason(Reason.STALE_WRITER_EPOCH):
            await other.put_connector_config(name="b", config={}, writer_epoch=epoch)


async def test_a_watch_goes_on_at_the_other_store(
    stores: Replicas, client: ConfigStoreClient
) -> None:
    """The watch needs no new snapshot, and misses and repeats no event."""
    seen: list[object] = []

    async def watch() -> None:
        async with aclosing(follow(client, name="test")) as reads:  # type: ignore[type-var]
            async for read in reads:
                seen.extend([read] if isinstance(read, SnapshotRead) else read.events)

    watching = asyncio.create_task(watch())
    await wait_until_async(lambda: len(seen) == 1)
    epoch = await lead(client)
    await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
    await wait_until_async(lambda: len(seen) == 2)
    await stores.one.stop()
    epoch = await lead(client, 2)
    await client.put_connector_config(name="b", config={}, writer_epoch=epoch)
    await wait_until_async(lambda: len(seen) == 3)
    assert stores.channel.address == stores.two.address
    assert [event.change.connector.name for event in seen[1:]] == ["a", "b"]  # type: ignore[attr-defined]
    watching.cancel()
    await asyncio.wait([watching])


async def test_a_watch_waits_for_a_store_that_is_behind(
    stores: Replicas, client: ConfigStoreClient
) -> None:
    stores.two.log.hold_tail()
    epoch = await lead(client)
    written = await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
    async with channel(stores.two.address) as connection:
        other = ConfigStoreClient(connection)
        log_id = (await other.get_snapshot()).log_id
        async with asyncio.timeout(30), aclosing(other.watch(written.end_offset, log_id)) as reads:
            first = asyncio.ensure_future(anext(reads))
            await asyncio.wait([first], timeout=0.2)
            assert not first.done()
            stores.two.log.release_tail()
            assert (await first).end_offset == written.end_offset


async def test_a_repeated_request_is_recognised_by_the_other_store(
    stores: Replicas, client: ConfigStoreClient
) -> None:
    epoch = await lead(client)
    first = await client.put_connector_config(
        name="a", config={}, writer_epoch=epoch, request_id="r-1", expected_revision=0
    )
    await stores.one.stop()
    await lead(client, 2)
    again = await client.put_connector_config(
        name="a", config={}, writer_epoch=epoch, request_id="r-1", expected_revision=0
    )
    assert again == first
    assert len(stores.two.log.records) == 1


async def test_a_request_that_failed_though_it_was_written_is_written_once(
    stores: Replicas, client: ConfigStoreClient
) -> None:
    epoch = await lead(client)
    stores.one.log.fail_next_append(written=True)
    # the client retries at the other store, where the epoch has no claim yet
    with raises_reason(Reason.STALE_WRITER_EPOCH):
        stores.two.log.hold_tail()
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch, request_id="r-1")
    claiming = asyncio.create_task(lead(client, 2))
    await asyncio.wait([claiming], timeout=0.2)
    assert not claiming.done()  # the claim waits until the store has read the log to its end
    stores.two.log.release_tail()
    epoch = await claiming
    await client.put_connector_config(name="a", config={}, writer_epoch=epoch, request_id="r-1")
    assert len(stores.two.log.records) == 1


async def test_a_leader_whose_store_is_gone_claims_at_the_other(
    stores: Replicas, client: ConfigStoreClient
) -> None:
    epoch = await lead(client)
    await stores.one.stop()
    with raises_reason(Reason.STALE_WRITER_EPOCH):
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
    epoch = await lead(client, 2)
    await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
    await at(stores.two, "a")


async def test_the_end_is_known_though_another_store_wrote_last(
    stores: Replicas, client: ConfigStoreClient
) -> None:
    epoch = await lead(client)
    stores.two.log.hold_tail()
    written = await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
    async with channel(stores.two.address) as connection:
        other = ConfigStoreClient(connection)
        asking = asyncio.ensure_future(other.get_end_offset())
        await asyncio.wait([asking], timeout=0.2)
        assert not asking.done()
        stores.two.log.release_tail()
        assert await asking == written.end_offset
        assert await names(other) == ["a"]


async def test_calls_fail_when_no_store_is_there(
    stores: Replicas, client: ConfigStoreClient
) -> None:
    await stores.one.stop()
    await stores.two.stop()
    await refusal(Reason.SERVICE_UNREACHABLE, lambda: client.get_end_offset(timeout_s=1))
