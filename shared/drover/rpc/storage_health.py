"""Reports the health of the storage on Kafka, as a health status and as log events."""

import asyncio
import time
from contextlib import suppress

import structlog

from drover.errors import DroverError, Reason, UnavailableError
from drover.log.kafka.client import KafkaClient
from drover.rpc.server import RpcServer

PROBE_EVERY_S = 2.0
#: The storage is unhealthy for this long after a failed write, since brokers may respond to reads
#: while a write has too few in-sync replicas.
WRITE_FAILURE_COUNTS_S = 10.0

_log = structlog.get_logger("drover.rpc")


class StorageHealth:
    """Probes the brokers periodically; logs an event only when the result changes.

    Args:
        server: The server with the health status ``STORAGE_HEALTH``.
        client: Reaches the brokers.
        topic: The topic that each probe describes.
    """

    def __init__(self, server: RpcServer, client: KafkaClient, topic: str) -> None:
        self._server = server
        self._client = client
        self._topic = topic
        self._serving: bool | None = None
        self._write_failed_s: float | None = None
        self._probe_now = asyncio.Event()

    async def watch(self) -> None:
        """Run until cancelled."""
        while True:
            self._probe_now.clear()
            await self._report(await self._fault())
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_EVERY_S):
                    await self._probe_now.wait()

    def write_ended(self, ok: bool) -> None:
        """Note the result of a write; a change triggers the next probe immediately."""
        failed_before = self._write_failed_s is not None
        self._write_failed_s = None if ok else time.monotonic()
        if ok == failed_before:
            self._probe_now.set()

    async def report_failure(self, error: DroverError) -> None:
        """Report that the storage could not be used."""
        await self._report(error)

    async def _fault(self) -> DroverError | None:
        try:
            await self._client.describe_topic(self._topic)
        except DroverError as error:
            return error
        failed_s = self._write_failed_s
        if failed_s is None or time.monotonic() - failed_s > WRITE_FAILURE_COUNTS_S:
            return None
        return UnavailableError(
            Reason.STORAGE_UNAVAILABLE, f"the last write to topic {self._topic!r} failed"
        )

    async def _report(self, fault: DroverError | None) -> None:
        if (fault is None) == self._serving:
            return
        if fault is not None:
            _log.warning("the storage is unavailable", topic=self._topic, why=fault.message)
        elif self._serving is not None:
            _log.info("the storage is available again", topic=self._topic)
        self._serving = fault is None
        await self._server.set_storage_serving(self._serving)
