"""A log stored in a Kafka topic."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import structlog

from drover.clock import Clock
from drover.errors import (
    DataLossError,
    FailedPreconditionError,
    InternalError,
    Reason,
    UnavailableError,
)
from drover.log.claims import WriterClaim, check_epoch, next_claim
from drover.log.connect_json import UnreadableRecordError
from drover.log.kafka import codec, errors
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.control import CONTROL_PARTITION, ControlTopic
from drover.log.kafka.reader import TRANSACTION_TIMEOUT_S, TopicReader, read_to_end
from drover.log.kafka.records import EARLIEST, Place, Produced, ReadBatch
from drover.log.kafka.stable import StableOffsets
from drover.log.kafka.topics import described_topic
from drover.log.kafka.writer import PlainWriter, TransactionalWriter
from drover.log.log import LogRecord, StoredRecord, closed_error
from drover.model.ids import Term

_logger = structlog.get_logger(__name__)

CLAIM_TRIES = 3
_Reach = Callable[[Mapping[int, int], float], Awaitable[None]]
_SCAN_GROWTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLogSpec:
    """The topic of a log and the way it is written.

    Attributes:
        topic: The topic's name.
        partitions: The log's partitions; None for all partitions of the topic.
        transactional_id: The transactional id of privileged appends; a log without one cannot be
            claimed.
        followed: Whether other processes append too; false if only the owner of the claim does.
    """

    topic: str
    partitions: Sequence[int] | None = None
    transactional_id: str = ""
    followed: bool = True


@dataclass(frozen=True, slots=True)
class _Frontier:
    """The read positions of a log by partition, and the number of records read."""

    positions: Mapping[int, int]
    count: int = 0


class KafkaLog:
    """A ``Log`` in some partitions of a topic. Create it with ``open``.

    Differences from other logs:
        Offsets have gaps: transaction markers and aborted records have offsets too.
        An append without an epoch is not atomic: if it fails, a prefix of its records may be
        written. An append with an epoch is atomic.
        If the outcome of an append with an epoch is unknown, it fails with STORAGE_UNAVAILABLE and
        drops the claim; the next append fails with STALE_WRITER_EPOCH. Claim and read again.
        The brokers compact the topic, by its settings; ``compact`` does nothing.
    """

    def __init__(
        self,
        client: KafkaClient,
        control: ControlTopic,
        spec: KafkaLogSpec,
        clock: Clock,
        *,
        partitions: Sequence[int],
        topic_id: str,
    ) -> None:
        self._client = client
        self._control = control
        self._topic = spec.topic
        self._partitions = tuple(partitions)
        #: the only partition, which then defines the log's offsets; None if there are several
        self._partition = partitions[0] if len(partitions) == 1 else None
        self._log_id = topic_id if self._partition is not None else uuid4().hex
        self._claim_key = codec.claim_key(spec.topic, partitions[0])
        self._clock = clock
        self._writer: TransactionalWriter | None = None
        if spec.transactional_id:
            self._writer = TransactionalWriter(client, spec.transactional_id)
        self._plain: PlainWriter | None = None
        self._own_claim = WriterClaim()
        self._order = asyncio.Lock()
        self._written: dict[int, int] = {}
        self._stable = StableOffsets(client, spec.topic, self._partitions)
        self._frontier = _Frontier(dict.fromkeys(partitions, EARLIEST))
        self._pending_count = 0
        self._none_pending = asyncio.Event()
        self._none_pending.set()
        self._closed = False

    @classmethod
    async def open(
        cls, client: KafkaClient, control: ControlTopic, spec: KafkaLogSpec, clock: Clock
    ) -> "KafkaLog":
        """Open the log of ``spec``, whose topic must exist; a ``FollowedKafkaLog`` if followed.

        Raises:
            FailedPreconditionError: STORAGE_MISCONFIGURED, the topic or a partition does not exist.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        needed = 1 if spec.partitions is None else 1 + max(spec.partitions)
        state = await described_topic(client, spec.topic, partition_count=needed)
        count = 0 if state is None else state.partition_count
        partitions = range(count) if spec.partitions is None else spec.partitions
        if state is None or count < needed:
            raise errors.misconfigured(
                f"the topic {spec.topic} on {client.storage.bootstrap_servers} has {count}"
                f" partitions, but the log needs {needed}: add partitions",
                {"topic": spec.topic},
            )
        firsts = await client.first_offsets(spec.topic, partitions)
        for partition, offset in firsts.items():
            if offset > 0:
                _logger.warning(
                    "brokers have deleted the oldest records of a log: set cleanup.policy=compact",
                    topic=spec.topic,
                    partition=partition,
                    first_offset=offset,
                )
        kind = FollowedKafkaLog if spec.followed else KafkaLog
        return kind(client, control, spec, clock, partitions=partitions, topic_id=state.topic_id)

    @property
    def log_id(self) -> str:
        """Identifies the sequence of offsets: the topic id for a log with one partition, a new id
        at each ``open`` for a log with several.
        """
        return self._log_id

    async def append(self, records: Sequence[LogRecord], epoch: int | None = None) -> int:
        """Append durably; returns the offset after the last record."""
        async with self._pending():
            if not records:
                if epoch is not None:
                    check_epoch(self._own_claim, epoch)
                return await self._end_offset()
            produced = [self._produced(record) for record in records]
            if epoch is None:
                places = await self._plain_writer().write(produced)
            else:
                places = await self._write_privileged(produced, epoch)
            for partition, offset in places:
                self._written[partition] = max(self._written.get(partition, 0), offset + 1)
            try:
                return await self._end_of(places)
            except UnavailableError as error:
                raise UnavailableError(
                    error.reason,
                    f"the append was written to the topic {self._topic}, but cannot be read yet:"
                    f" {error.message}",
                    metadata={**error.metadata, "outcome": "unknown"},
                ) from error

    async def read(self, start_offset: int = 0) -> AsyncIterator[Sequence[StoredRecord]]:
        """Read the records from ``start_offset`` to the current end.

        A log with several partitions is read from 0 only; this restarts its offsets.
        """
        self._check_open()
        self._frontier = _Frontier(self._starts_at(start_offset))
        batches = read_to_end(
            self._client, self._topic, self._frontier.positions, at_least=self._written
        )
        async with aclosing(self._stored(batches)) as stored:
            async for batch in stored:
                self._check_open()
                yield batch

    async def end_offset(self) -> int:
        """The last record's offset + 1, of the records that any process wrote before the call."""
        self._check_open()
        return await self._end_offset()

    async def claim(self, owner: str, term: Term) -> int:
        """Make ``owner`` the privileged writer; returns its epoch."""
        async with self._pending(), self._order:
            writer = self._writer
            if writer is None:
                raise InternalError(f"the log in {self._topic} has no transactional id")
            for _ in range(CLAIM_TRIES):
                current = await self._read_claim()
                if next_claim(current, owner, term) == self._own_claim and writer.begun:
                    return self._own_claim.epoch
                await writer.begin()
                claim = next_claim(await self._read_claim(), owner, term)
                try:
                    ((_, offset),) = await writer.write([self._claim_record(claim)])
                except FailedPreconditionError as error:
                    if error.reason is not Reason.STALE_WRITER_EPOCH:
                        raise
                else:
                    self._own_claim = claim
                    # until the claim is visible, a process with a lower term could fence this one
                    await self._control.wait_until_read(offset)
                    return claim.epoch
            raise UnavailableError(
                Reason.STORAGE_UNAVAILABLE,
                f"the log in {self._topic} could not be claimed, because other processes claim it"
                " too: retry",
            )

    async def compact(
        self, *, keep_offsets: Collection[int] = (), below_offset: int | None = None
    ) -> int:
        """Do nothing: the brokers compact."""
        self._check_open()
        return 0

    async def close(self) -> None:
        """Finish the appends in flight; idempotent. The client and control topic stay open."""
        self._closed = True
        await self._none_pending.wait()
        if self._writer is not None:
            await self._writer.close()
        if self._plain is not None:
            await self._plain.close()

    # writing

    def _produced(self, record: LogRecord) -> Produced:
        return codec.to_produced(
            record, topic=self._topic, partition=self._partition, now_ms=self._clock.now_ms()
        )

    def _plain_writer(self) -> PlainWriter:
        if self._plain is None:
            self._plain = PlainWriter(self._client, self._topic)
        return self._plain

    async def _write_privileged(self, produced: Sequence[Produced], epoch: int) -> list[Place]:
        # in the order of the calls: a claim fences the appends after it, not those before it
        async with self._order:
            check_epoch(self._own_claim, epoch)
            assert self._writer is not None, "a claim needs a writer"
            written = self._writer.submit(produced)
        try:
            return await written
        except FailedPreconditionError as error:
            if error.reason is not Reason.STALE_WRITER_EPOCH:
                raise
            raise await self._fenced(epoch, error) from error

    async def _fenced(self, epoch: int, error: FailedPreconditionError) -> FailedPreconditionError:
        """The error that names the new owner of the claim; ``error`` if the claim is unreadable."""
        try:
            current = await self._read_claim()
            check_epoch(current, epoch)
        except FailedPreconditionError as by_claim:
            return by_claim
        except (UnavailableError, DataLossError):
            return error
        return FailedPreconditionError(
            error.reason,
            f"the log in {self._topic}: {error.message}. {current.owner} still owns the claim:"
            " claim again with the same term",
            metadata={**error.metadata, "currentEpoch": str(current.epoch)},
        )

    async def _read_claim(self) -> WriterClaim:
        await self._control.refresh()
        value = self._control.value(self._claim_key)
        if value is None:
            return WriterClaim()
        try:
            return codec.parse_claim(value)
        except UnreadableRecordError as error:
            raise DataLossError(
                Reason.LOG_CORRUPT,
                f"the claim {self._claim_key!r} in the topic {self._control.topic} cannot be read"
                f" ({error}). Write a tombstone for this key to reset the claim",
                metadata={"topic": self._control.topic, "partition": str(CONTROL_PARTITION)},
            ) from error

    def _claim_record(self, claim: WriterClaim) -> Produced:
        return Produced(
            self._control.topic,
            self._claim_key.encode(),
            codec.dump_claim(claim),
            partition=CONTROL_PARTITION,
        )

    async def _end_of(self, places: Sequence[Place]) -> int:
        """The offset after records written to ``places``, once they can be read."""
        if self._partition is None:
            raise InternalError("a log of several partitions must be followed to append to it")
        return places[-1][1] + 1

    # reading

    def _starts_at(self, offset: int) -> dict[int, int]:
        if self._partition is not None:
            return {self._partition: offset or EARLIEST}
        if offset != 0:
            raise InternalError("a log of several partitions is read from offset 0 only")
        return dict.fromkeys(self._partitions, EARLIEST)

    async def _stored(
        self, batches: AsyncGenerator[ReadBatch, None]
    ) -> AsyncGenerator[list[StoredRecord], None]:
        """Convert batches to the log's records and advance the frontier."""
        async with aclosing(batches):
            async for batch in batches:
                before = self._frontier.count
                self._frontier = _Frontier(
                    {**self._frontier.positions, **batch.positions}, before + len(batch.records)
                )
                if batch.records:
                    base = before if self._partition is None else None
                    yield codec.to_stored(batch.records, base, topic=self._topic)

    async def _end_offset(self) -> int:
        if self._partition is None:
            return self._frontier.count
        return await self._scan_for_end(self._partition)

    async def _ends(self) -> dict[int, int]:
        """The stable end of each partition, or the end of this log's own writes if it is later."""
        ends = await self._client.stable_offsets(self._topic, self._partitions)
        return {
            partition: max(end, self._written.get(partition, 0)) for partition, end in ends.items()
        }

    async def _scan_for_end(self, partition: int) -> int:
        """The offset after the last record.

        Transaction markers may follow that record, so this scans backwards in growing steps.
        """
        end = (await self._ends())[partition]
        first = (await self._client.first_offsets(self._topic, [partition]))[partition]
        start, length = end, 1
        while start > first:
            start, length = max(end - length, first), length * _SCAN_GROWTH
            record_end = 0
            scan = read_to_end(
                self._client, self._topic, {partition: start}, at_least={partition: end}
            )
            async with aclosing(scan) as batches:
                async for batch in batches:
                    if batch.records:
                        record_end = batch.records[-1].offset + 1
            if record_end:
                return record_end
        return 0

    # closing

    @asynccontextmanager
    async def _pending(self) -> AsyncGenerator[None, None]:
        """An operation that ``close`` waits for; each operation has a timeout."""
        self._check_open()
        self._pending_count += 1
        self._none_pending.clear()
        try:
            yield
        finally:
            self._pending_count -= 1
            if self._pending_count == 0:
                self._none_pending.set()

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()


class FollowedKafkaLog(KafkaLog):
    """A ``FollowedLog``: other processes append to it too.

    An append returns once all readers can read its records. A log with several partitions gets its
    offsets from ``tail``, so an append needs a running ``tail``; it returns an offset by which
    ``tail`` has read the appended records.
    """

    _reader: TopicReader | None = None
    _reader_base = 0

    async def tail(self, start_offset: int) -> AsyncIterator[Sequence[StoredRecord]]:
        """Yield each record from ``start_offset`` on when it is committed; ends on ``close``.

        A log with several partitions continues where ``read`` or the previous ``tail`` ended.
        """
        self._check_open()
        if self._reader is not None:
            raise InternalError(f"the log in {self._topic} is followed twice")
        if self._partition is not None:
            self._frontier = _Frontier({self._partition: start_offset or EARLIEST})
        elif start_offset != self._frontier.count:
            raise InternalError(
                f"a tail of several partitions must start at offset {self._frontier.count}, where"
                f" the last read ended, not at {start_offset}"
            )
        reader = TopicReader(self._client, self._topic, self._frontier.positions)
        self._reader, self._reader_base = reader, start_offset
        try:
            async with aclosing(self._stored(reader.batches())) as stored:
                async for batch in stored:
                    yield batch
        finally:
            reader.stop()
            self._reader = None

    async def close(self) -> None:
        """Finish the appends in flight; idempotent. The client and control topic stay open."""
        await super().close()
        if self._reader is not None:
            await self._reader.close()

    async def _end_of(self, places: Sequence[Place]) -> int:
        ends: dict[int, int] = {}
        for partition, offset in places:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        reader = self._reader
        if reader is not None:
            await self._reach(reader.progress.reach, ends)
            if self._partition is None:
                return self._reader_base + reader.progress.record_count
        elif self._partition is None:
            raise InternalError(
                f"the log in {self._topic} has several partitions and must be followed to append"
            )
        else:
            await self._reach(self._stable.reach, ends)
        return places[-1][1] + 1

    async def _reach(self, reach: _Reach, ends: Mapping[int, int]) -> None:
        """Wait until ``ends`` are read.

        Waits longer than the timeout if the brokers respond: an open transaction may delay readers.
        """
        try:
            await reach(ends, self._client.timeout_s)
        except UnavailableError:
            await self._client.stable_offsets(self._topic, ends)
            await reach(ends, TRANSACTION_TIMEOUT_S)

    async def _end_offset(self) -> int:
        reader = self._reader
        if reader is None:
            return await super()._end_offset()
        ends = {partition: end for partition, end in (await self._ends()).items() if end > 0}
        await self._reach(reader.progress.reach, ends)
        if self._partition is None:
            return self._reader_base + reader.progress.record_count
        return max(self._reader_base, reader.progress.ends.get(self._partition, 0))
