"""Telling health checks and the service's own log whether its storage on Kafka can be used."""

import asyncio
import time
from contextlib import suppress

import structlog

from drover.errors import DroverError, Reason, UnavailableError
from drover.log.kafka.client import KafkaClient
from drover.rpc.server import RpcServer

PROBE_EVERY_S = 2.0
#: A write that failed counts for so long: brokers may answer and yet not be enough to write.
WRITE_FAILURE_COUNTS_S = 10.0

_log = structlog.get_logger("drover.rpc")


class StorageHealth:
    """Asks the brokers for a topic again and again.

    That they are away is told once, and once that they are back.

    Args:
        server: Whose health tells it, as ``STORAGE_HEALTH``.
        client: The way to the brokers.
        topic: What is asked for.
    """

    def __init__(self, server: RpcServer, client: KafkaClient, topic: str) -> None:
        self._server = server
        self._client = client
        self._topic = topic
        self._serving: bool | None = None
        self._write_failed_s: float | None = None
        self._look = asyncio.Event()

    async def watch(self) -> None:
        """Run until cancelled."""
        while True:
            self._look.clear()
            await self._tell(await self._fault())
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_EVERY_S):
                    await self._look.wait()

    def written(self, ok: bool) -> None:
        """A write was answered, or could not be made."""
        failed_before = self._write_failed_s is not None
        self._write_failed_s = None if ok else time.monotonic()
        if ok == failed_before:
            self._look.set()

    async def away(self, error: DroverError) -> None:
        """The storage could not be used just now."""
        await self._tell(error)

    async def _fault(self) -> DroverError | None:
        try:
            await self._client.describe_topic(self._topic)
        except DroverError as error:
            return error
        failed_s = self._write_failed_s
        if failed_s is None or time.monotonic() - failed_s > WRITE_FAILURE_COUNTS_S:
            return None
        return UnavailableError(
            Reason.STORAGE_UNAVAILABLE, f"topic {self._topic!r} could not be written just now"
        )

    async def _tell(self, fault: DroverError | None) -> None:
        if (fault is None) == self._serving:
            return
        if fault is not None:
            _log.warning("the storage is away", topic=self._topic, why=fault.message)
        elif self._serving is not None:
            _log.info("the storage is back", topic=self._topic)
        self._serving = fault is None
        await self._server.set_storage_serving(self._serving)
