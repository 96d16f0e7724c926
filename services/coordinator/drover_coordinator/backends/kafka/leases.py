"""The table of leases on Kafka: compare and set in partition 0 of the control topic.

All coordinators write it under one transactional id. Whoever begins to write fences those who have
begun before, and what it reads to the end after that stays so until it is fenced itself: so what it
decides on that, and writes in one transaction, holds.
"""

import asyncio
import random
from collections.abc import Sequence

import structlog

from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.log.kafka.control import CONTROL_PARTITION, ControlTopic
from drover.log.kafka.records import Produced
from drover.log.kafka.writer import TransactionalWriter
from drover_coordinator.backends.kafka.control import Control
from drover_coordinator.backends.kafka.control_records import (
    COORDINATOR_PREFIX,
    LEASE_PREFIX,
    decode_table,
    encode_changes,
)
from drover_coordinator.core.ownership.lease_table import Identity, LeaseTable, carried_out
from drover_coordinator.core.ownership.machine import TableSeen, Write

#: Another coordinator that writes at the same moment fences this one.
ATTEMPTS = 3
PAUSE_MAX_S = 0.03

_log = structlog.get_logger("drover.coordinator")


class KafkaLeases:
    """A ``LeaseStore``. Nobody sees whether another process runs: ``ended`` is always empty."""

    def __init__(self, control: Control, who: Identity) -> None:
        self._control = control
        self._who = who
        self._writer = TransactionalWriter(
            control.client, f"drover-leases-{control.client.storage.group_id}"
        )
        #: whether others write as well: they have fenced this one by the time of its next write
        self._shares = False
        #: the offset after what was written here
        self._written_end = 0
        self._told: set[str] = set()

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
        """Finish what is under way."""
        await self._writer.close()

    async def _write(self, topic: ControlTopic, writes: Sequence[Write]) -> LeaseTable:
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(random.uniform(0, PAUSE_MAX_S))
            if self._shares or not self._writer.begun:
                await self._writer.begin()
            await topic.refresh(self._written_end)
            before = self._table(topic)
            table = carried_out(before, self._who, writes)
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
            f"other coordinators wrote the leases in {topic.topic} at the same moment, {ATTEMPTS}"
            " times in a row: tried again at the next look",
        )

    def _table(self, topic: ControlTopic) -> LeaseTable:
        return decode_table(
            {**topic.values(LEASE_PREFIX), **topic.values(COORDINATOR_PREFIX)},
            self._control.group_shards,
            self._tell_unreadable,
        )

    def _tell_unreadable(self, key: str, why: str) -> None:
        """Once for each key."""
        if key not in self._told:
            self._told.add(key)
            _log.warning(
                "a lease cannot be read and counts as not there",
                topic=self._control.client.storage.topics.control,
                partition=CONTROL_PARTITION,
                key=key,
                why=why,
            )
