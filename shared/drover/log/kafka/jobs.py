"""The thread of a writer, which executes queued writes in groups."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog
from confluent_kafka import KafkaError, Message, Producer

from drover.errors import DroverError, InternalError
from drover.log.batching_queue import BatchingQueue, WaitingJob, complete
from drover.log.kafka.client_shutdown import wait_until_ended
from drover.log.kafka.records import GroupPosition, Place, Produced

_logger = structlog.get_logger(__name__)

IDLE_S = 1.0
_QUEUE_FULL_POLL_S = 0.05


@dataclass(slots=True, eq=False)
class Job(WaitingJob[list[Place]]):
    """A write, or with ``begins`` the request to become the writer.

    Attributes:
        missing_count: How many records have no delivery report yet.
        was_purged: Whether librdkafka has purged some records, which it may have sent.
    """

    records: Sequence[Produced] = ()
    positions: Sequence[GroupPosition] = ()
    begins: bool = False
    places: list[Place] = field(default_factory=list)
    error: KafkaError | None = None
    failed_topic: str = ""
    missing_count: int = 0
    was_purged: bool = False
    attempt: int = 0

    @property
    def size_bytes(self) -> int:
        """The size of all keys and values."""
        return sum(len(each.key) + len(each.value or b"") for each in self.records)

    @property
    def alone(self) -> bool:
        """See ``WaitingJob``; true for a job that begins."""
        return self.begins

    def produce(self, producer: Producer) -> None:
        """Pass the records to ``producer``; delivery reports complete the job.

        Raises:
            KafkaException: A record is rejected at once, such as one that is too large.
        """
        self.attempt += 1
        self.places = [(-1, -1)] * len(self.records)
        self.missing_count = 0
        self.was_purged = False
        self.error = None
        for index, record in enumerate(self.records):
            while True:
                try:
                    producer.produce(
                        record.topic,
                        value=record.value,
                        key=record.key,
                        partition=-1 if record.partition is None else record.partition,
                        on_delivery=partial(self._delivered, self.attempt, index),
                        timestamp=record.timestamp_ms or 0,
                        headers=list(record.headers),
                    )
                    self.missing_count += 1
                    break
                except BufferError:  # the queue is full; it drains, since messages time out
                    producer.poll(_QUEUE_FULL_POLL_S)

    def _delivered(
        self, attempt: int, index: int, error: KafkaError | None, message: Message
    ) -> None:
        if attempt != self.attempt:
            return  # a report of an aborted transaction
        self.missing_count -= 1
        if error is not None:
            self.was_purged |= error.code() == KafkaError._PURGE_QUEUE
            if self.error is None:
                self.error, self.failed_topic = error, message.topic() or ""
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.places[index] = partition, offset


JobResult = DroverError | None


class JobThread:
    """A thread that executes jobs in the order of submission.

    Args:
        name: The thread's name.
        do: Executes a group of writes, or one job that begins; returns a result for each.
        idle: Called periodically while there are no jobs.
        end: Called at the end, to release the client.
    """

    def __init__(
        self,
        name: str,
        *,
        do: Callable[[Sequence[Job]], Sequence[JobResult]],
        idle: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        self._do = do
        self._idle = idle
        self._end = end
        self._jobs: BatchingQueue[Job] = BatchingQueue("Kafka")
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(
        self,
        records: Sequence[Produced] = (),
        positions: Sequence[GroupPosition] = (),
        *,
        begins: bool = False,
    ) -> "asyncio.Future[list[Place]]":
        """Queue a job; the future has the place of each record.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, stopped.
            ResourceExhaustedError: QUEUE_FULL.
        """
        loop = asyncio.get_running_loop()
        job = Job(loop, loop.create_future(), records, positions, begins)
        self._jobs.put(job)
        return job.done

    def stop(self) -> None:
        """Reject new jobs and wait until the queued ones are finished; idempotent."""
        self._jobs.stop()
        wait_until_ended(self._thread, self._finished)

    def _run(self) -> None:
        try:
            self._work()
        finally:
            self._finished.set()
        self._end()

    def _work(self) -> None:
        while True:
            group = self._jobs.next_group(IDLE_S)
            if group is None:
                return
            if not group:
                self._idle()
                continue
            try:
                results = self._do(group)
            except Exception:
                _logger.exception("defect in a writer to Kafka")
                defect = InternalError("a writer to Kafka has a defect: see the log of the process")
                results = [defect] * len(group)
            complete(
                (job, job.places if error is None else error)
                for job, error in zip(group, results, strict=True)
            )
