"""Writes records to topics, in transactions that fence other writers or without transactions."""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from drover.errors import (
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    Reason,
    UnavailableError,
)
from drover.log.kafka import errors
from drover.log.kafka.calls import (
    ABORT_S,
    as_raised,
    bounded,
    connect,
    insist,
    left_s,
    poll,
    why_given_up,
)
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.jobs import Job, JobResult, JobThread
from drover.log.kafka.reader import TRANSACTION_TIMEOUT_S
from drover.log.kafka.records import GroupPosition, Place, Produced

COMMIT_AT_LEAST_S = 2.0
COMMIT_TRIES = 3
MAX_KEPT_GROUPS = 1_000
#: Errors after which librdkafka bumps the epoch, so sequence numbers of purged records are not
#: reused. When a broker rejects one record, librdkafka purges others that it has not sent; the
#: writer survives this, so one bad record does not revoke the claim of all callers that share it.
_EPOCH_BUMPS = frozenset(
    {
        KafkaError._INCONSISTENT,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        *errors.TOO_LARGE,
        *errors.BAD_RECORD,
    }
)


class TransactionalWriter:
    """Writes in transactions under one transactional id; the last to ``begin`` fences the others.

    Queued calls share a transaction, which commits all of their records or none.

    Records that are given up leave a gap in the producer's sequence numbers, which are never
    reused: a partition leader that did append the record would drop the next record with this
    number as a duplicate (ADR 0009).
    """

    def __init__(self, client: KafkaClient, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._client = client
        self._producer: Producer | None = None
        self._must_abort = False
        self._has_gap = False
        self._open: Sequence[Job] = ()
        self._groups: OrderedDict[str, Any] = OrderedDict()
        self._thread = JobThread(
            f"kafka {transactional_id}", do=self._do, idle=self._idle, end=self._drop
        )

    @property
    def begun(self) -> bool:
        """Whether it has a producer; a fenced writer detects this only when it writes."""
        return self._producer is not None

    async def begin(self) -> None:
        """Become the only writer of this transactional id; callers may repeat it at any time.

        When it returns, the transactions of earlier writers are committed or aborted.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE; later writes fail until ``begin`` succeeds.
            FailedPreconditionError: STORAGE_MISCONFIGURED, not authorised.
        """
        await self._thread.submit(begins=True)

    async def write(
        self, records: Sequence[Produced], positions: Sequence[GroupPosition] = ()
    ) -> list[Place]:
        """Write all records and positions, or nothing; returns the place of each record.

        The write is durable when it returns; readers may see it some milliseconds later.

        Raises:
            FailedPreconditionError: STALE_WRITER_EPOCH, another writer has begun, this one has not,
                or an earlier transaction could not be ended. Begin again and read to the end.
                NON_EMPTY_GROUP, the consumer group of a position has live members.
            UnavailableError: STORAGE_UNAVAILABLE. Nothing was written, unless the metadata's
                ``outcome`` is ``unknown``: then every later write fails with STALE_WRITER_EPOCH.
            InvalidArgumentError: TOO_LARGE, nothing was written.
            ResourceExhaustedError: QUEUE_FULL.
        """
        return await self.submit(records, positions)

    def submit(
        self, records: Sequence[Produced], positions: Sequence[GroupPosition] = ()
    ) -> "asyncio.Future[list[Place]]":
        """As ``write``, but returns when the write is queued. Writes execute in this order.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, closed.
            ResourceExhaustedError: QUEUE_FULL.
        """
        return self._thread.submit(records, positions)

    async def close(self) -> None:
        """Finish the writes in flight and stop the thread; idempotent."""
        await asyncio.to_thread(self._thread.stop)

    # on the writer's thread

    def _do(self, jobs: Sequence[Job]) -> Sequence[JobResult]:
        if jobs[0].begins:
            return [self._begin()]
        error = self._commit(jobs)
        if error is None or len(jobs) == 1 or not _may_concern_one_job(error):
            return [error] * len(jobs)
        return [self._commit([job]) for job in jobs]

    def _begin(self) -> JobResult:
        self._drop()
        doing = f"the transactional id {self.transactional_id} cannot be initialised"
        try:
            producer = self._client.producer(
                {
                    "transactional.id": self.transactional_id,
                    "transaction.timeout.ms": int(1_000 * TRANSACTION_TIMEOUT_S),
                    # a request must not outlive its transaction
                    "socket.timeout.ms": int(1_000 * TRANSACTION_TIMEOUT_S),
                }
            )
            connect(producer, self._client.timeout_s)
            # the first call in a Kafka cluster takes longer: brokers create __transaction_state
            insist(producer.init_transactions, 2 * self._client.timeout_s)
        except KafkaException as error:
            return self._client.translated(error, doing=doing)
        except DroverError as error:
            return error
        self._producer = producer
        return None

    def _commit(self, jobs: Sequence[Job]) -> JobResult:
        """Write all ``jobs`` in one transaction; returns an error if nothing was written."""
        for _ in range(COMMIT_TRIES):
            self._has_gap = False
            result = self._commit_once(jobs)
            if not self._has_gap or not self.begun or self._must_abort:
                break
        return result

    def _commit_once(self, jobs: Sequence[Job]) -> JobResult:
        producer = self._producer
        if producer is None:
            return self._fenced()
        deadline_s = time.monotonic() + self._client.timeout_s
        topic = ""
        try:
            if self._must_abort:
                self._abort(producer, deadline_s)
                if not self.begun:
                    return self._fenced()
            producer.begin_transaction()
            self._must_abort = True
            self._open = jobs
            has_failed = False
            for job in jobs:
                topic = job.records[0].topic if job.records else ""
                try:
                    job.produce(producer)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError._STATE:
                        raise
                    has_failed = True  # the delivery report of an earlier record has the cause
            topic = ""
            with as_raised():
                producer.flush(left_s(deadline_s))
            for job in jobs:
                if job.error is not None:
                    topic = job.failed_topic
                    raise KafkaException(job.error)
            if has_failed:
                raise KafkaException(why_given_up(producer))
            for job in jobs:
                if job.missing_count:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            # only after the flush: if a position is rejected, librdkafka purges queued records
            self._add_positions(producer, jobs, deadline_s)
        except KafkaException as error:
            return self._give_up(producer, error, topic, deadline_s)
        return self._end_transaction(producer, deadline_s)

    def _add_positions(self, producer: Producer, jobs: Sequence[Job], deadline_s: float) -> None:
        by_group: dict[str, list[TopicPartition]] = {}
        for job in jobs:
            for each in job.positions:
                offset = TopicPartition(each.topic, each.partition, each.offset, each.metadata)
                by_group.setdefault(each.group_id, []).append(offset)
        for group_id, offsets in by_group.items():
            limit_s = max(ABORT_S, left_s(deadline_s))
            group = self._group_metadata(group_id)
            bounded(partial(producer.send_offsets_to_transaction, offsets, group, limit_s), limit_s)

    def _group_metadata(self, group_id: str) -> Any:
        """The group's metadata for the producer; only a consumer can create it."""
        group = self._groups.pop(group_id, None)
        if group is None:
            consumer = self._client.consumer({"group.id": group_id})
            group = consumer.consumer_group_metadata()
            consumer.close()
        self._groups[group_id] = group
        if len(self._groups) > MAX_KEPT_GROUPS:
            self._groups.popitem(last=False)
        return group

    def _end_transaction(self, producer: Producer, deadline_s: float) -> JobResult:
        try:
            insist(producer.commit_transaction, max(COMMIT_AT_LEAST_S, left_s(deadline_s)))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                return self._give_up(producer, error, "", deadline_s)
            self._drop()
            translated = self._translated(error, "")
            is_fenced = translated.reason is Reason.STALE_WRITER_EPOCH
            return translated if is_fenced else self._outcome_unknown(error)
        self._must_abort = False
        self._open = ()
        return None

    def _give_up(
        self, producer: Producer, error: KafkaException, topic: str, deadline_s: float
    ) -> DroverError:
        """Abort the transaction and translate the error; drop the producer if it is fenced."""
        cause = error.args[0]
        if cause.code() in (KafkaError._PURGE_QUEUE, KafkaError._FATAL):
            cause = why_given_up(producer)
        self._has_gap = cause.code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
        translated = self._translated(KafkaException(cause), topic)
        if cause.fatal() or translated.reason is Reason.STALE_WRITER_EPOCH:
            self._drop()
            return translated
        try:
            self._abort(producer, deadline_s)
        except KafkaException as abort_error:
            # the transaction is never committed; the next write tries the abort again
            if not abort_error.args[0].retriable():
                self._drop()
        return translated

    def _abort(self, producer: Producer, deadline_s: float) -> None:
        with as_raised():
            if producer.flush(left_s(deadline_s)):
                producer.purge(in_flight=False)
                if producer.flush(ABORT_S):
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))
        purged = [job for job in self._open if job.was_purged]
        if purged and why_given_up(producer).code() in _EPOCH_BUMPS:
            for job in purged:
                job.was_purged = False
        insist(producer.abort_transaction, max(ABORT_S, left_s(deadline_s)))
        self._must_abort = False
        if any(job.was_purged for job in self._open):
            self._drop()

    def _drop(self) -> None:
        """Drop the producer; its open transaction is never committed."""
        producer, self._producer = self._producer, None
        self._must_abort = False
        self._open = ()
        if producer is not None:
            with contextlib.suppress(KafkaException, RuntimeError), as_raised():
                producer.purge()
                producer.poll(0)

    def _idle(self) -> None:
        poll(self._producer)

    def _translated(self, error: KafkaException, topic: str) -> DroverError:
        doing = f"nothing was written by {self.transactional_id}"
        translated = self._client.translated(error, doing=doing, topic=topic)
        return self._fenced() if translated.reason is Reason.STALE_WRITER_EPOCH else translated

    def _fenced(self) -> DroverError:
        return FailedPreconditionError(
            Reason.STALE_WRITER_EPOCH,
            f"the transactional id {self.transactional_id} was taken by another process, or its"
            " last transaction could not be ended: begin again",
            metadata={"transactionalId": self.transactional_id},
        )

    def _outcome_unknown(self, error: KafkaException) -> DroverError:
        doing = f"the outcome of a transaction of {self.transactional_id} is not known"
        translated = self._client.translated(error, doing=doing)
        return UnavailableError(
            Reason.STORAGE_UNAVAILABLE,
            translated.message,
            metadata={**translated.metadata, "outcome": "unknown"},
        )


class PlainWriter:
    """Writes without transactions, each record at most once and in order; there is no fencing."""

    def __init__(self, client: KafkaClient, name: str = "plain writer") -> None:
        self._client = client
        self._producer: Producer | None = None
        self._thread = JobThread(f"kafka {name}", do=self._do, idle=self._idle, end=self._drop)

    async def write(self, records: Sequence[Produced]) -> list[Place]:
        """Write the records durably and in order; returns the place of each.

        If it fails, a prefix of the records may be written; repeat the call.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            InvalidArgumentError: TOO_LARGE, a record is too large for the client or the topic.
            ResourceExhaustedError: QUEUE_FULL.
        """
        return await self._thread.submit(records)

    async def close(self) -> None:
        """Finish the writes in flight and stop the thread; idempotent."""
        await asyncio.to_thread(self._thread.stop)

    # on the writer's thread

    def _do(self, jobs: Sequence[Job]) -> Sequence[JobResult]:
        results = self._write(jobs)
        if len(jobs) > 1:
            # brokers reject whole batches, so records beside the invalid one failed too
            for index, result in enumerate(results):
                if isinstance(result, InvalidArgumentError):
                    results[index] = self._write([jobs[index]])[0]
        return results

    def _write(self, jobs: Sequence[Job]) -> list[JobResult]:
        try:
            producer = self._connected_producer()
        except DroverError as error:
            return [error] * len(jobs)
        except KafkaException as error:
            return [self._translated(error, jobs[0].records[0].topic)] * len(jobs)
        results: list[JobResult] = []
        for job in jobs:
            try:
                job.produce(producer)
                results.append(None)
            except KafkaException as error:
                results.append(self._translated(error, job.records[0].topic))
        # messages time out, but not while their request is in flight
        left_count = producer.flush(self._client.timeout_s + ABORT_S)
        if left_count:
            producer.purge()
            producer.flush(ABORT_S)
        must_drop = left_count > 0
        for index, job in enumerate(jobs):
            failure = job.error
            if failure is None and job.missing_count:  # the outcome of these records is unknown
                failure = KafkaError(KafkaError._TIMED_OUT)
            if failure is not None:
                must_drop |= failure.fatal()
                if results[index] is None:
                    topic = job.failed_topic or job.records[0].topic
                    results[index] = self._translated(KafkaException(failure), topic)
        if must_drop:
            self._drop()
        return results

    def _connected_producer(self) -> Producer:
        if self._producer is None:
            timeout_ms = int(1_000 * self._client.timeout_s)
            producer = self._client.producer({"message.timeout.ms": timeout_ms})
            connect(producer, self._client.timeout_s)
            self._producer = producer
        return self._producer

    def _drop(self) -> None:
        self._producer = None

    def _idle(self) -> None:
        poll(self._producer)

    def _translated(self, error: KafkaException, topic: str) -> DroverError:
        return self._client.translated(
            error, doing=f"records for the topic {topic} may be unwritten", topic=topic
        )


def _may_concern_one_job(error: DroverError) -> bool:
    """Whether one job may have caused the error, so the others can succeed without it."""
    if isinstance(error, InvalidArgumentError):
        return True
    return error.reason in (Reason.STORAGE_MISCONFIGURED, Reason.NON_EMPTY_GROUP)
