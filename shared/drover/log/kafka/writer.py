"""Writing: in transactions that fence, and plainly."""

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
from drover.log.kafka.jobs import Answer, Job, JobThread
from drover.log.kafka.reader import TRANSACTION_TIMEOUT_S
from drover.log.kafka.records import GroupPosition, Place, Produced

COMMIT_AT_LEAST_S = 2.0
COMMIT_TRIES = 3
MAX_KEPT_GROUPS = 1_000
#: What a transaction fails with whose records only the writer threw away, and what has librdkafka
#: take a new epoch, in which it counts anew. Beside a record that is refused others are thrown away
#: unsent: one bad record shall not cost all who share the writer their claim, again and again.
_NO_NUMBER_TWICE = frozenset(
    {
        KafkaError._INCONSISTENT,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        *errors.TOO_LARGE,
        *errors.BAD_RECORD,
    }
)


class TransactionalWriter:
    """Writes in transactions under one transactional id; the last to ``begin`` fences the others.

    Calls that wait share a transaction; it has all of their records or none.

    What is given up leaves a gap in the producer's sequence numbers, which are never used twice: a
    leader that has the record after all would take the next for its repetition (ADR 0009).
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
        """Whether it may write, as far as is known here; who is fenced learns of it by writing."""
        return self._producer is not None

    async def begin(self) -> None:
        """Become the only writer of this transactional id; may be repeated at any time.

        Transactions of earlier ones are ended before it returns: what they wrote is in the log or
        will never be.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, it is no writer now.
            FailedPreconditionError: STORAGE_MISCONFIGURED, not authorised.
        """
        await self._thread.submit(begins=True)

    async def write(
        self, records: Sequence[Produced], positions: Sequence[GroupPosition] = ()
    ) -> list[Place]:
        """Write all of it or nothing; durable when it returns the place of each record.

        Other readers may see it some milliseconds later.

        Raises:
            FailedPreconditionError: STALE_WRITER_EPOCH, another one has begun, or this one has not;
                after a transaction that could not be ended too. Begin again and read to the end.
                NON_EMPTY_GROUP, somebody consumes with the group id of a position.
            UnavailableError: STORAGE_UNAVAILABLE. Nothing was written, unless the metadata's
                ``outcome`` is ``unknown``: then every later write fails with STALE_WRITER_EPOCH.
            InvalidArgumentError: TOO_LARGE, nothing was written.
            ResourceExhaustedError: QUEUE_FULL.
        """
        return await self.submit(records, positions)

    def submit(
        self, records: Sequence[Produced], positions: Sequence[GroupPosition] = ()
    ) -> "asyncio.Future[list[Place]]":
        """As ``write``, but queued when it returns: later calls come after it.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, closed.
            ResourceExhaustedError: QUEUE_FULL.
        """
        return self._thread.submit(records, positions)

    async def close(self) -> None:
        """Finish the writes under way and end; idempotent."""
        await asyncio.to_thread(self._thread.stop)

    # on the writer's thread

    def _do(self, jobs: Sequence[Job]) -> Sequence[Answer]:
        if jobs[0].begins:
            return [self._begin()]
        refusal = self._commit(jobs)
        if refusal is None or len(jobs) == 1 or not _is_ones_own(refusal):
            return [refusal] * len(jobs)
        return [self._commit([job]) for job in jobs]

    def _begin(self) -> Answer:
        self._drop()
        doing = f"{self.transactional_id} cannot become a writer"
        try:
            producer = self._client.producer(
                {
                    "transactional.id": self.transactional_id,
                    "transaction.timeout.ms": int(1_000 * TRANSACTION_TIMEOUT_S),
                    # no request may outlive the transaction that it is about
                    "socket.timeout.ms": int(1_000 * TRANSACTION_TIMEOUT_S),
                }
            )
            connect(producer, self._client.timeout_s)
            # the first one ever has the brokers make a topic of their own
            insist(producer.init_transactions, 2 * self._client.timeout_s)
        except KafkaException as error:
            return self._client.translated(error, doing=doing)
        except DroverError as error:
            return error
        self._producer = producer
        return None

    def _commit(self, jobs: Sequence[Job]) -> Answer:
        """All of ``jobs`` in one transaction: None, or why nothing was written."""
        for _ in range(COMMIT_TRIES):
            self._has_gap = False
            answer = self._commit_once(jobs)
            if not self._has_gap or not self.begun or self._must_abort:
                break
        return answer

    def _commit_once(self, jobs: Sequence[Job]) -> Answer:
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
            for job in jobs:
                topic = job.records[0].topic if job.records else ""
                job.produce(producer)
            topic = ""
            with as_raised():
                producer.flush(left_s(deadline_s))
            for job in jobs:
                if job.error is not None:
                    topic = job.failed_topic
                    raise KafkaException(job.error)
                if job.missing_count:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            # a position that is refused has librdkafka throw away records that are still queued
            self._add_positions(producer, jobs, deadline_s)
        except KafkaException as error:
            return self._give_up(producer, error, topic, deadline_s)
        return self._end_transaction(producer, deadline_s)

    def _add_positions(self, producer: Producer, jobs: Sequence[Job], deadline_s: float) -> None:
        by_group: dict[str, list[TopicPartition]] = {}
        for job in jobs:
            for each in job.positions:
                place = TopicPartition(each.topic, each.partition, each.offset, each.metadata)
                by_group.setdefault(each.group_id, []).append(place)
        for group_id, places in by_group.items():
            limit_s = max(ABORT_S, left_s(deadline_s))
            group = self._group(group_id)
            bounded(partial(producer.send_offsets_to_transaction, places, group, limit_s), limit_s)

    def _group(self, group_id: str) -> Any:
        """What names a group to the producer: only a consumer can make it."""
        group = self._groups.pop(group_id, None)
        if group is None:
            consumer = self._client.consumer({"group.id": group_id})
            group = consumer.consumer_group_metadata()
            consumer.close()
        self._groups[group_id] = group
        if len(self._groups) > MAX_KEPT_GROUPS:
            self._groups.popitem(last=False)
        return group

    def _end_transaction(self, producer: Producer, deadline_s: float) -> Answer:
        try:
            insist(producer.commit_transaction, max(COMMIT_AT_LEAST_S, left_s(deadline_s)))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                return self._give_up(producer, error, "", deadline_s)
            self._drop()
            meant = self._translated(error, "")
            return meant if meant.reason is Reason.STALE_WRITER_EPOCH else self._unknown(error)
        self._must_abort = False
        self._open = ()
        return None

    def _give_up(
        self, producer: Producer, error: KafkaException, topic: str, deadline_s: float
    ) -> DroverError:
        """End the transaction without its records; a writer that is fenced is none any more."""
        what = error.args[0]
        if what.code() in (KafkaError._PURGE_QUEUE, KafkaError._FATAL):
            what = why_given_up(producer)
        self._has_gap = what.code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
        meant = self._translated(KafkaException(what), topic)
        if what.fatal() or meant.reason is Reason.STALE_WRITER_EPOCH:
            self._drop()
            return meant
        try:
            self._abort(producer, deadline_s)
        except KafkaException as while_aborting:
            # it will never be committed; whether it can be aborted is seen at the next write
            if not while_aborting.args[0].retriable():
                self._drop()
        return meant

    def _abort(self, producer: Producer, deadline_s: float) -> None:
        with as_raised():
            if producer.flush(left_s(deadline_s)):
                producer.purge(in_flight=False)
                if producer.flush(ABORT_S):
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))
        purged = [job for job in self._open if job.was_purged]
        if purged and why_given_up(producer).code() in _NO_NUMBER_TWICE:
            for job in purged:
                job.was_purged = False
        insist(producer.abort_transaction, max(ABORT_S, left_s(deadline_s)))
        self._must_abort = False
        if any(job.was_purged for job in self._open):
            self._drop()

    def _drop(self) -> None:
        """Be no writer any more. What was not committed never will be."""
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
        meant = self._client.translated(error, doing=doing, topic=topic)
        return self._fenced() if meant.reason is Reason.STALE_WRITER_EPOCH else meant

    def _fenced(self) -> DroverError:
        return FailedPreconditionError(
            Reason.STALE_WRITER_EPOCH,
            f"{self.transactional_id} is written by another process, or by nobody since a"
            " transaction could not be ended: begin again",
            metadata={"transactionalId": self.transactional_id},
        )

    def _unknown(self, error: KafkaException) -> DroverError:
        doing = f"whether {self.transactional_id} has written is not known, the brokers are silent"
        meant = self._client.translated(error, doing=doing)
        return UnavailableError(
            Reason.STORAGE_UNAVAILABLE,
            meant.message,
            metadata={**meant.metadata, "outcome": "unknown"},
        )


class PlainWriter:
    """Writes without a transaction, each record at most once and in order.

    Fences nobody and is fenced by nobody.
    """

    def __init__(self, client: KafkaClient, name: str = "plain writer") -> None:
        self._client = client
        self._producer: Producer | None = None
        self._thread = JobThread(f"kafka {name}", do=self._do, idle=self._idle, end=self._drop)

    async def write(self, records: Sequence[Produced]) -> list[Place]:
        """Write the records in order; durable when it returns the place of each.

        When it fails some of the first may have been written; repeat the call.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            InvalidArgumentError: TOO_LARGE, nothing was written as far as can be told before.
            ResourceExhaustedError: QUEUE_FULL.
        """
        return await self._thread.submit(records)

    async def close(self) -> None:
        """Finish the writes under way and end; idempotent."""
        await asyncio.to_thread(self._thread.stop)

    # on the writer's thread

    def _do(self, jobs: Sequence[Job]) -> Sequence[Answer]:
        answers = self._write(jobs)
        if len(jobs) > 1:
            # the brokers refuse batches, and with a record its neighbours
            for index, answer in enumerate(answers):
                if isinstance(answer, InvalidArgumentError):
                    answers[index] = self._write([jobs[index]])[0]
        return answers

    def _write(self, jobs: Sequence[Job]) -> list[Answer]:
        try:
            producer = self._made()
        except DroverError as error:
            return [error] * len(jobs)
        except KafkaException as error:
            return [self._translated(error, jobs[0].records[0].topic)] * len(jobs)
        answers: list[Answer] = []
        for job in jobs:
            try:
                job.produce(producer)
                answers.append(None)
            except KafkaException as error:
                answers.append(self._translated(error, job.records[0].topic))
        # messages time out, but not while their request is under way
        left_count = producer.flush(self._client.timeout_s + ABORT_S)
        if left_count:
            producer.purge()
            producer.flush(ABORT_S)
        must_drop = left_count > 0
        for index, job in enumerate(jobs):
            failure = job.error
            if failure is None and job.missing_count:  # nobody knows what became of the rest
                failure = KafkaError(KafkaError._TIMED_OUT)
            if failure is not None:
                must_drop |= failure.fatal()
                if answers[index] is None:
                    topic = job.failed_topic or job.records[0].topic
                    answers[index] = self._translated(KafkaException(failure), topic)
        if must_drop:
            self._drop()
        return answers

    def _made(self) -> Producer:
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
            error, doing=f"records for the topic {topic} may not be written", topic=topic
        )


def _is_ones_own(error: DroverError) -> bool:
    """Whether it may be one job's fault, and not that of all that share its transaction."""
    if isinstance(error, InvalidArgumentError):
        return True
    return error.reason in (Reason.STORAGE_MISCONFIGURED, Reason.NON_EMPTY_GROUP)
