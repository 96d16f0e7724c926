"""Claims of tasks in a partition of the control topic, with a single fenced writer."""

from collections.abc import Sequence

import structlog

from drover.log.claims import WriterClaim, next_claim
from drover.log.connect_json import UnreadableRecordError
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.reader import read_to_end
from drover.log.kafka.records import EARLIEST, GroupPosition, KafkaRecord, Place, Produced
from drover.log.kafka.writer import TransactionalWriter
from drover.model.ids import Term
from drover_coordinator.backends.kafka.control_records import (
    OwnerRecord,
    decode_claims_record,
    encode_claims_record,
)
from drover_coordinator.core.claims.task_claims import ClaimsRecord, TaskClaims

_log = structlog.get_logger("drover.coordinator")


class ClaimsLog:
    """The claims log; call ``take`` first.

    Args:
        client: Reaches the brokers.
        partition: The partition of the control topic.
        transactional_id: Shared by all writers of the partition, so that a new one fences the last.
    """

    def __init__(self, client: KafkaClient, *, partition: int, transactional_id: str) -> None:
        self.claims = TaskClaims()
        self._client = client
        self._topic = client.storage.topics.control
        self._partition = partition
        self._writer = TransactionalWriter(client, transactional_id)
        self._owner = OwnerRecord("", 0)

    async def take(self, owner: str, epoch: int) -> None:
        """Fence earlier writers and read the log.

        Raises:
            FailedPreconditionError: STALE_TERM, the log was claimed with a later epoch.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        await self._writer.begin()
        async for batch in read_to_end(self._client, self._topic, {self._partition: EARLIEST}):
            for record in batch.records:
                self._replay(record)
        current = WriterClaim(self._owner.owner, Term(self._owner.epoch, 0), self._owner.epoch)
        next_claim(current, owner, Term(epoch, 0))
        await self._writer.write([self._produced(OwnerRecord(owner, epoch))])

    async def write(
        self,
        records: Sequence[ClaimsRecord],
        others: Sequence[Produced],
        positions: Sequence[GroupPosition],
    ) -> list[Place]:
        """Write claims, other records and consumer groups' offsets in one transaction.

        Returns:
            The places of the other records.

        Raises:
            DroverError: As ``TransactionalWriter.write``.
        """
        own = [self._produced(record) for record in records]
        places = await self._writer.write([*own, *others], positions)
        for record in records:
            self.claims.replay(record)
        return places[len(own) :]

    async def close(self) -> None:
        """Finish the write in progress; idempotent."""
        await self._writer.close()

    def _produced(self, record: ClaimsRecord | OwnerRecord) -> Produced:
        key, value = encode_claims_record(record)
        return Produced(self._topic, key, value, self._partition)

    def _replay(self, record: KafkaRecord) -> None:
        try:
            decoded = decode_claims_record(record.key or b"", record.value)
        except UnreadableRecordError as error:
            _log.warning(
                "a task claim record cannot be read and is skipped",
                topic=self._topic,
                partition=record.partition,
                offset=record.offset,
                why=str(error),
            )
            return
        if isinstance(decoded, OwnerRecord):
            self._owner = decoded
        elif decoded is not None:
            self.claims.replay(decoded)
