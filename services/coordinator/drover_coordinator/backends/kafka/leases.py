"""The table of leases on Kafka: compare and set in partition 0 of the control topic.

All coordinators write under one transactional id. A new writer fences the earlier ones and then
reads the table to its end. The table cannot change until the writer is fenced itself, so its
transaction is a compare-and-set.
"""

import asyncio
import random
from collections.abc import Sequence

import structlog

from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.log.kafka.control import CONTROL_PARTITION, ControlTopic
from drover.log.kafka.records import Produced
from drover.log.kafka.writer import TransactionalWriter
from drover_coordinator.backends.kafka.control import LazyControlTopic
from drover_coordinator.backends.kafka.control_records import (
    COORDINATOR_PREFIX,
    LEASE_PREFIX,
    decode_table,
    encode_changes,
)
from drover_coordinator.core.ownership.lease_table import Identity, LeaseTable, apply_writes
from drover_coordinator.core.ownership.machine import TableSeen, Write

#: A concurrent write of another coordinator fences this one, so a write may need several attempts.
ATTEMPTS = 3
PAUSE_MAX_S = 0.03

_log = structlog.get_logger("drover.coordinator")


class KafkaLeases:
    """A ``LeaseStore``. It cannot see whether another process runs: ``ended`` is always empty."""

    def __init__(self, control: LazyControlTopic, who: Identity) -> None:
        self._control = control
        self._who = who
        self._writer = TransactionalWriter(
            control.client, f"drover-leases-{control.client.storage.group_id}"
        )
        #: whether other coordinators write too, and so may have fenced this writer
        self._shares = False
        #: the offset after this coordinator's last write
        self._written_end = 0
        self._warned: set[str] = set()

    async def exchange(self, writes: Sequence[Write], started_ms: int) -> TableSeen:
        """See ``LeaseStore``."""
        topic = await self._control.topic()
        if not writes:
            await topic.refresh(self._written_end)
            table = self._table(topic)
        else:
            table = await self._write(topic, writes)
        return TableSeen(started_ms, table.leases, table.peers)

    async def close(self) -> None:
        """Finish the exchange in progress."""
        await self._writer.close()

    async def _write(self, topic: ControlTopic, writes: Sequence[Write]) -> LeaseTable:
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(random.uniform(0, PAUSE_MAX_S))
            if self._shares or not self._writer.begun:
                await self._writer.begin()
            await topic.refresh(self._written_end)
            before = self._table(topic)
            table = apply_writes(before, self._who, writes)
            self._shares = bool(table.peers.keys() - {self._who.address})
            records = [
                Produced(topic.topic, key, value, CONTROL_PARTITION)
                for key, value in encode_changes(table, before)
            ]
            if not records:
                return table
            try:
                places = await self._writer.write(records)
            except FailedPreconditionError as error:
                if error.reason is not Reason.STALE_WRITER_EPOCH:
                    raise
            else:
                self._written_end = max(offset for _, offset in places) + 1
                return table
        raise UnavailableError(
            Reason.STORAGE_UNAVAILABLE,
            f"the leases in {topic.topic} could not be written: other coordinators fenced"
            f" {ATTEMPTS} attempts in a row; the next exchange retries",
        )

    def _table(self, topic: ControlTopic) -> LeaseTable:
        return decode_table(
            {**topic.values(LEASE_PREFIX), **topic.values(COORDINATOR_PREFIX)},
            self._control.group_shards,
            self._warn_unreadable,
        )

    def _warn_unreadable(self, key: str, why: str) -> None:
        """Log once for each key."""
        if key not in self._warned:
            self._warned.add(key)
            _log.warning(
                "a lease record cannot be read and is treated as missing",
                topic=self._control.client.storage.topics.control,
                partition=CONTROL_PARTITION,
                key=key,
                why=why,
            )
