"""A task's producer that passes records to librdkafka one by one."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Producer

from drover.dataplane.kafka.producing import DELIVERY_TIMEOUT_MS, Sending, producer_settings
from drover.dataplane.kafka.staging import StagedPart, read_staged
from drover.dataplane.kafka.task_producer import ABORT_S, COMMIT_S, TaskProducer
from drover.errors import DroverError
from drover.log.kafka.calls import as_raised, connect, insist, why_given_up
from drover.log.kafka.client import SOCKET_TIMEOUT_MS
from drover.log.kafka.errors import FENCED
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId
from drover.model.offset_json import METADATA_HEADER

#: Delivery errors that hide their cause, which has to be queried.
_GIVEN_UP = frozenset(
    {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL, KafkaError._STATE}
)


class OneRecordProducer(TaskProducer):
    """See TaskProducer. Supports every setting of librdkafka."""

    def __init__(self, storage: KafkaStorage, task: TaskId, *, offsets_topic: str = "") -> None:
        super().__init__(storage, task, offsets_topic=offsets_topic)
        self._producer: Producer | None = None
        self._failures: list[KafkaError] = []

    def init(self) -> None:
        """See TaskProducer."""
        self._drop()
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failures.append(error)

        settings: Mapping[str, object] = {
            **producer_settings(self._storage),
            "transactional.id": self.id,
            "transaction.timeout.ms": self.timeout_ms,
            "message.timeout.ms": min(DELIVERY_TIMEOUT_MS, self.timeout_ms),
            # no request may outlive its transaction
            "socket.timeout.ms": min(SOCKET_TIMEOUT_MS, self.timeout_ms),
            "queue.buffering.max.kbytes": 64 * 1024,
            "on_delivery": on_delivery,
        }
        self._failures = failures
        producer = self._client.producer(settings)
        with self._telling(f"{self.id} cannot start to write"):
            connect(producer, self._client.timeout_s)
            # the very first producer makes the brokers create their transaction log
            insist(producer.init_transactions, 2 * self._client.timeout_s)
        self._producer = producer

    def produce(self, parts: Sequence[StagedPart]) -> None:
        """See TaskProducer."""
        producer = self._begun()
        with self._telling(f"{self.id} cannot start a transaction"), as_raised():
            producer.begin_transaction()
        self._begin()
        with self._given_up():
            sending = Sending(self._storage, producer, self._failures)
            with as_raised():
                for part in parts:
                    for topic, records, places in read_staged(part):
                        sending.send(topic, records, places)
                # so that consumers of the shared offsets topic hardly ever wait
                sending.finish()

    def add_offsets(self, records: Sequence[tuple[bytes, bytes | None, str]]) -> None:
        """See TaskProducer."""
        producer = self._begun()
        with self._given_up(), as_raised():
            for key, value, metadata in records:
                headers: list[tuple[str, str | bytes | None]] = []
                if metadata:
                    headers.append((METADATA_HEADER, metadata.encode()))
                for topic in self._offset_topics:
                    producer.produce(topic, value=value, key=key, headers=headers)
            Sending(self._storage, producer, self._failures).finish()

    def commit(self) -> None:
        """See TaskProducer."""
        producer = self._begun()
        with self._telling(f"the outcome of the transaction of {self.id} is unknown"):
            insist(producer.commit_transaction, COMMIT_S)
        self._in_transaction = False

    def close(self) -> None:
        """See TaskProducer."""
        producer = self._producer
        if producer is not None and self._in_transaction:
            with contextlib.suppress(KafkaException, RuntimeError), as_raised():
                producer.purge()
                insist(producer.abort_transaction, ABORT_S)
        self._drop()

    def _drop(self) -> None:
        """Drop the producer; the next one ends its open transaction."""
        producer, self._producer = self._producer, None
        self._in_transaction = False
        if producer is not None:
            with contextlib.suppress(KafkaException, RuntimeError), as_raised():
                producer.purge()
                producer.poll(0)

    def _begun(self) -> Producer:
        assert self._producer is not None, "init was not called"
        return self._producer

    @contextlib.contextmanager
    def _given_up(self) -> Iterator[None]:
        """As ``_telling``, for failed records, which do not carry the cause."""
        try:
            yield
        except KafkaException as error:
            raise self._meaning(self._why(error.args[0]), f"{self.id} cannot write") from error
        except DroverError as error:
            cause = error.__cause__
            raised = [cause.args[0]] if isinstance(cause, KafkaException) else self._failures
            if not raised or raised[0].code() not in _GIVEN_UP | FENCED:
                raise
            raise self._meaning(self._why(raised[0]), f"{self.id} cannot write") from error

    def _why(self, error: KafkaError) -> KafkaError:
        return why_given_up(self._begun()) if error.code() in _GIVEN_UP else error
