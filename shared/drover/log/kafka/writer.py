"""Writing: in transactions that fence, and plainly."""

from collections.abc import Sequence

from drover.errors import NotImplementedYetError
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.records import GroupPosition, Produced

Place = tuple[int, int]
"""Partition and offset of a record that was written."""


class TransactionalWriter:
    """Writes in transactions under one transactional id; the last to ``begin`` fences the others.

    Calls that wait share a transaction; it has all of their records or none.
    """

    def __init__(self, client: KafkaClient, transactional_id: str) -> None:
        self.transactional_id = transactional_id

    @property
    def begun(self) -> bool:
        """Whether it may write, as far as is known here; a fenced writer learns of it by writing."""
        raise NotImplementedYetError("Kafka")

    async def begin(self) -> None:
        """Become the only writer of this transactional id; may be repeated at any time.

        Transactions of earlier ones are ended before it returns: what they wrote is in the log or
        will never be.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, it is no writer now.
            FailedPreconditionError: STORAGE_MISCONFIGURED, not authorised.
        """
        raise NotImplementedYetError("Kafka")

    async def write(
        self, records: Sequence[Produced], positions: Sequence[GroupPosition] = ()
    ) -> list[Place]:
        """Write all of it or nothing; durable when it returns the place of each record.

        Other readers may see it some milliseconds later.

        Raises:
            FailedPreconditionError: STALE_WRITER_EPOCH, another one has begun, or this one has not;
                after an unknown outcome too. Begin again and read to the end.
            UnavailableError: STORAGE_UNAVAILABLE. Nothing was written, unless the metadata's
                ``outcome`` is ``unknown``: then every later write fails with STALE_WRITER_EPOCH.
            InvalidArgumentError: TOO_LARGE, nothing was written.
        """
        raise NotImplementedYetError("Kafka")

    async def close(self) -> None:
        """Finish the writes under way and end; idempotent."""


class PlainWriter:
    """Writes without a transaction, each record at most once and in order.

    Fences nobody and is fenced by nobody.
    """

    def __init__(self, client: KafkaClient) -> None:
        raise NotImplementedYetError("Kafka")

    async def write(self, records: Sequence[Produced]) -> list[Place]:
        """Write the records in order; durable when it returns the place of each.

        When it fails some of the first may have been written; repeat the call.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            InvalidArgumentError: TOO_LARGE, nothing was written as far as can be told before.
        """
        raise NotImplementedYetError("Kafka")

    async def close(self) -> None:
        """Finish the writes under way and end; idempotent."""
