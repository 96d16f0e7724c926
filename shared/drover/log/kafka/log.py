"""A log that lives in a topic."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass

from drover.clock import Clock
from drover.errors import NotImplementedYetError
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.control import ControlTopic
from drover.log.log import LogRecord, StoredRecord
from drover.model.ids import Term

REQUEST_ID_HEADER = "drover-request-id"
AUTHOR_HEADER = "drover-author"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLogSpec:
    """Which topic a log lives in, and how.

    ``partitions`` are those that belong to it, all if None. Privileged appends go through
    ``transactional_id``; a log without one cannot be claimed. A ``followed`` log has other writers;
    one that is not is written under its claim alone.
    """

    topic: str
    partitions: Sequence[int] | None = None
    transactional_id: str = ""
    followed: bool = True


class KafkaLog:
    """A ``Log`` in some partitions of a topic. Make it with ``open``.

    Where it differs from other logs:
        Offsets have gaps: markers of transactions and records that were given up take some.
        An append without an epoch is not atomic: when it fails some of its first records may be
        there. One with an epoch is.
        An append with an epoch whose outcome stays unknown fails with STORAGE_UNAVAILABLE and
        drops the claim: the next one fails with STALE_WRITER_EPOCH. Claim again and read again.
        The brokers compact the topic, by its settings; ``compact`` does nothing.
    """

    @classmethod
    async def open(
        cls, client: KafkaClient, control: ControlTopic, spec: KafkaLogSpec, clock: Clock
    ) -> "KafkaLog":
        """The log, a ``FollowedKafkaLog`` if it is followed. Its topic has to be there.

        Raises:
            FailedPreconditionError: STORAGE_MISCONFIGURED, no such topic or partition.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        raise NotImplementedYetError("Kafka")

    @property
    def log_id(self) -> str:
        """Names the sequence that offsets count in: the topic's own id where there is one
        partition, a new one for each opened log where there are several.
        """
        raise NotImplementedYetError("Kafka")

    async def append(self, records: Sequence[LogRecord], epoch: int | None = None) -> int:
        """Append; durable when it returns the offset after the last record."""
        raise NotImplementedYetError("Kafka")

    async def read(self, start_offset: int = 0) -> AsyncIterator[Sequence[StoredRecord]]:
        """Every record from ``start_offset`` to the present end.

        With several partitions only from 0, which begins to count anew.
        """
        raise NotImplementedYetError("Kafka")
        yield

    async def end_offset(self) -> int:
        """The last record's offset + 1 of what was written anywhere before the call."""
        raise NotImplementedYetError("Kafka")

    async def claim(self, owner: str, term: Term) -> int:
        """Make ``owner`` the privileged writer; returns its epoch."""
        raise NotImplementedYetError("Kafka")

    async def compact(
        self, *, keep_offsets: Collection[int] = (), below_offset: int | None = None
    ) -> int:
        """Nothing: the brokers compact."""
        raise NotImplementedYetError("Kafka")

    async def close(self) -> None:
        """Finish the appends under way; idempotent. The client and control topic stay open."""
        raise NotImplementedYetError("Kafka")


class FollowedKafkaLog(KafkaLog):
    """A ``FollowedLog``: other processes append to it as well.

    An append returns once its records can be read, by ``tail`` and anywhere. With several
    partitions it can be appended to only while ``tail`` is being read, which gives the offsets;
    what it returns then is an offset by which its records were brought.
    """

    async def tail(self, start_offset: int) -> AsyncIterator[Sequence[StoredRecord]]:
        """Every record from ``start_offset`` on, as it comes; ends when closed.

        With several partitions it goes on where ``read`` or the tail before has ended.
        """
        raise NotImplementedYetError("Kafka")
        yield
