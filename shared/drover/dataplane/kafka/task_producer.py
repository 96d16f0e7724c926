"""What writes a task's records and offsets to Kafka in transactions, step by step."""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaError, KafkaException

from drover.dataplane.kafka.clients import shared_client
from drover.dataplane.kafka.record_batches import Encoding
from drover.dataplane.kafka.staging import StagedPart
from drover.errors import FailedPreconditionError
from drover.log.kafka.errors import FENCED, FORBIDDEN
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId, producer_id

#: Kafka Connect's default. A transaction of an owner that is gone holds readers up for so long at
#: most; the next owner ends it before.
TRANSACTION_TIMEOUT_MS = 60_000
ABORT_S = 2.0
COMMIT_S = 30.0


class FencedError(Exception):
    """Another producer has begun under the transactional id.

    ``timed_out``: the brokers have done so, it seems, as the transaction took longer than it may.
    """

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class TaskProducer(ABC):
    """The producer of one task; for one thread at a time.

    Each step raises FencedError, or the DroverError that tells why it was not done. After an error
    only ``init`` is of use.
    """

    def __init__(self, storage: KafkaStorage, task: TaskId, *, offsets_topic: str = "") -> None:
        self.id = producer_id(storage.group_id, task)
        self._storage = storage
        shared = storage.topics.offset
        #: Where source offsets go: the workers' topic, and the connector's own one.
        self._offset_topics = tuple(dict.fromkeys([shared, offsets_topic or shared]))
        self._client = shared_client(storage)
        self._in_transaction = False
        self._began_s = 0.0
        self.timeout_ms = int(
            storage.client_config.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        )

    @property
    def encoding(self) -> Encoding | None:
        """How the files that it is given are staged: as record batches, or (None) as records."""
        return None

    @abstractmethod
    def init(self) -> None:
        """Begin: end what earlier producers of the id have open, and fence them."""

    @abstractmethod
    def produce(self, parts: Sequence[StagedPart]) -> None:
        """Begin a transaction with the records of what is staged; the brokers have them then."""

    @abstractmethod
    def add_offsets(self, records: Sequence[tuple[bytes, bytes | None, str]]) -> None:
        """Add keys, values and notes to each topic of offsets."""

    @abstractmethod
    def commit(self) -> None:
        """Have all of it count. After an error that is not known."""

    @abstractmethod
    def close(self) -> None:
        """Write no more; what is open is ended if the brokers answer soon."""

    def _begin(self) -> None:
        self._in_transaction = True
        self._began_s = time.monotonic()

    @contextlib.contextmanager
    def _telling(self, doing: str) -> Iterator[None]:
        """What Kafka raises as what it means to the task."""
        try:
            yield
        except KafkaException as error:
            raise self._meaning(error.args[0], doing) from error

    def _meaning(self, error: KafkaError, doing: str) -> Exception:
        if error.code() in FENCED:
            took_s = time.monotonic() - self._began_s if self._in_transaction else 0.0
            timed_out = took_s >= self.timeout_ms / 1000
            return FencedError(f"{doing}: {error.str()}", timed_out=timed_out)
        meant = self._client.translated(error, doing=doing)
        if error.code() not in FORBIDDEN:
            return meant
        return FailedPreconditionError(
            meant.reason,
            f"{meant.message}: for exactly once that is Write and Describe of the transactional id "
            f"{self.id}, and Write of {' and '.join(self._offset_topics)}. Without, set "
            "DROVER_EXACTLY_ONCE_SOURCE_SUPPORT=disabled",
            metadata=meant.metadata,
        )
