"""The interface of producers that write a task's records and offsets in Kafka transactions."""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaError, KafkaException

from drover.dataplane.kafka.clients import shared_client
from drover.dataplane.kafka.record_batches import Encoding
from drover.dataplane.kafka.staging import StagedPart
from drover.dataplane.values import PublishedRange
from drover.errors import FailedPreconditionError
from drover.log.kafka.errors import FENCED, FORBIDDEN
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId, producer_id

#: Kafka Connect's default. The transaction of a lost owner delays consumers at most this long; the
#: next owner ends it earlier.
TRANSACTION_TIMEOUT_MS = 60_000
ABORT_S = 2.0
COMMIT_S = 30.0


class FencedError(Exception):
    """Another producer was initialised with the transactional id.

    ``timed_out``: probably the brokers fenced it, because the transaction exceeded its timeout.
    """

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class TaskProducer(ABC):
    """The producer of one task; for one thread at a time.

    Each step raises FencedError, or a DroverError with the reason of a failure. After an error only
    ``init`` may be called.
    """

    def __init__(self, storage: KafkaStorage, task: TaskId, *, offsets_topic: str = "") -> None:
        self.id = producer_id(storage.group_id, task)
        self._storage = storage
        shared = storage.topics.offset
        #: The topics for source offsets: the workers' topic, and the connector's own.
        self._offset_topics = tuple(dict.fromkeys([shared, offsets_topic or shared]))
        self._client = shared_client(storage)
        self._in_transaction = False
        self._began_s = 0.0
        self.timeout_ms = int(
            storage.client_config.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        )

    @property
    def encoding(self) -> Encoding | None:
        """The staging format of its files: record batches, or (None) single records."""
        return None

    @property
    def ranges(self) -> Sequence[PublishedRange] | None:
        """The offsets of the records of the last transaction, for each partition in the order of
        the records; None if they are not known.
        """
        return None

    @abstractmethod
    def init(self) -> None:
        """Initialise: end open transactions of earlier producers with the id, and fence them."""

    @abstractmethod
    def produce(self, parts: Sequence[StagedPart]) -> None:
        """Start a transaction with the staged records; the brokers have received them then."""

    @abstractmethod
    def add_offsets(self, records: Sequence[tuple[bytes, bytes | None, str]]) -> None:
        """Add keys, values and headers to each topic of offsets."""

    @abstractmethod
    def commit(self) -> None:
        """Commit. After an error the outcome is unknown."""

    @abstractmethod
    def close(self) -> None:
        """Close; ends an open transaction if the brokers respond quickly."""

    def _begin(self) -> None:
        self._in_transaction = True
        self._began_s = time.monotonic()

    @contextlib.contextmanager
    def _telling(self, doing: str) -> Iterator[None]:
        """Convert Kafka's errors."""
        try:
            yield
        except KafkaException as error:
            raise self._meaning(error.args[0], doing) from error

    def _meaning(self, error: KafkaError, doing: str) -> Exception:
        if error.code() in FENCED:
            took_s = time.monotonic() - self._began_s if self._in_transaction else 0.0
            timed_out = took_s >= self.timeout_ms / 1000
            return FencedError(f"{doing}: {error.str()}", timed_out=timed_out)
        of_id = error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        meant = self._client.translated(
            error,
            doing=doing,
            operation="Write",
            resource=f"the transactional id {self.id}" if of_id else "",
        )
        if error.code() not in FORBIDDEN:
            return meant
        return FailedPreconditionError(
            meant.reason,
            f"{meant.message}. Exactly once needs Write and Describe on the transactional id "
            f"{self.id}, and Write on {' and '.join(self._offset_topics)}. Without, set "
            "DROVER_EXACTLY_ONCE_SOURCE_SUPPORT=disabled",
            metadata=meant.metadata,
        )
