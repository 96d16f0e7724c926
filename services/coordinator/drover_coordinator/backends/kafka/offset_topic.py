"""Follows the topic of source offsets, which Kafka Connect writes too."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence

import structlog

from drover.errors import DroverError, UnavailableError
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.progress import Progress
from drover.log.kafka.reader import TopicReader
from drover.log.kafka.records import EARLIEST, KafkaRecord, Place, Produced
from drover.log.log import closed_error
from drover.model.offset_json import METADATA_HEADER, metadata_of
from drover.model.offsets import CommittedOffset
from drover.model.source_offsets import SourceOffsets, UnreadableOffsetError
from drover_coordinator.shared_writes import SharedWrites

REFRESHES_WAITING_MAX = 1_000
WARNINGS_MAX = 1_000

_log = structlog.get_logger("drover.coordinator")


class OffsetTopic:
    """The offsets in the topic, read to its end and followed; ``close`` it.

    Args:
        client: Reaches the brokers.
        partition_count: The number of partitions of the topic.
    """

    def __init__(self, client: KafkaClient, partition_count: int) -> None:
        self._client = client
        self._topic = client.storage.topics.offset
        self._partitions = range(partition_count)
        #: by partition: the offset after the last record written here
        self._written: dict[int, int] = {}
        self._offsets = SourceOffsets()
        self._progress = Progress({})
        self._following: asyncio.Task[None] | None = None
        self._closed = False
        self._warned: set[tuple[int, int]] = set()
        self._refreshes = SharedWrites(
            self._refresh_together,
            size=lambda _: 1,
            waiting_max=REFRESHES_WAITING_MAX,
            name="reading source offsets",
        )

    async def load(self) -> None:
        """Return once the topic is read up to its last stable offset.

        Raises:
            DroverError: As ``refresh``.
        """
        await self._read_to(await self._client.stable_offsets(self._topic, self._partitions))

    async def refresh(self) -> None:
        """Return once all records committed before the call are read.

        Tasks write to the topic too, and an open transaction of a task hides committed records
        behind it. So this waits for the end of every transaction that is open now.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, no record arrived within the client's timeout.
            DroverError: The topic cannot be read; the next call reads it from the start.
        """
        await self._refreshes.submit(None)

    def of(self, connector: str) -> list[tuple[str, CommittedOffset]]:
        """A connector's offsets with their canonical partitions, as of the last refresh."""
        return self._offsets.of(connector)

    def produced(self, connector: str, offset: CommittedOffset) -> list[Produced]:
        """The records that commit a valid offset."""
        return [
            Produced(
                self._topic,
                each.key,
                each.value,
                headers=((METADATA_HEADER, each.metadata.encode()),) if each.metadata else (),
            )
            for each in self._offsets.records(connector, offset)
        ]

    def wrote(self, places: Iterable[Place]) -> None:
        """Make the next refresh wait until records committed here are read back."""
        for partition, offset in places:
            self._written[partition] = max(offset + 1, self._written.get(partition, 0))

    async def close(self) -> None:
        """Stop reading; idempotent."""
        self._closed = True
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        await self._refreshes.close()

    # --- reading -----------------------------------------------------------------------------

    async def _refresh_together(self, waiting: Sequence[None]) -> Sequence[None]:
        if self._closed:
            raise closed_error()
        await self._read_to(await self._client.last_offsets(self._topic, self._partitions))
        return waiting

    async def _read_to(self, ends: Mapping[int, int]) -> None:
        if self._following is None or self._following.done():
            self._follow()
        await self._reach(
            {each: max(ends[each], self._written.get(each, 0)) for each in self._partitions}
        )

    async def _reach(self, ends: Mapping[int, int]) -> None:
        """Wait for ``ends`` as long as records keep arriving."""
        progress = self._progress
        while True:
            before = dict(progress.positions)
            try:
                return await progress.reach(ends, self._client.timeout_s)
            except UnavailableError:
                if progress.positions == before:
                    raise

    def _follow(self) -> None:
        """Start to read the topic from its beginning."""
        starts = dict.fromkeys(self._partitions, EARLIEST)
        self._offsets, self._progress = SourceOffsets(), Progress(starts)
        reader = TopicReader(self._client, self._topic, starts)
        self._following = asyncio.create_task(self._run(reader), name="source offsets")

    async def _run(self, reader: TopicReader) -> None:
        try:
            async with contextlib.aclosing(reader.batches()) as batches:
                async for batch in batches:
                    for record in batch.records:
                        self._replay(record)
                    self._progress.advance(batch)
        except DroverError as error:
            _log.error("source offsets cannot be read", topic=self._topic, error=error.message)
            self._progress.fail(error)
            self._written.clear()  # the topic may have been deleted
        finally:
            self._progress.fail(closed_error())
            reader.stop()

    def _replay(self, record: KafkaRecord) -> None:
        try:
            self._offsets.replay(
                record.key,
                record.value,
                timestamp_ms=record.timestamp_ms,
                metadata=metadata_of(record.headers),
            )
        except UnreadableOffsetError as error:
            self._warn(record, str(error))

    def _warn(self, record: KafkaRecord, why: str) -> None:
        """Log once for each record, even if the topic is read again."""
        place = (record.partition, record.offset)
        if place in self._warned or len(self._warned) >= WARNINGS_MAX:
            return
        self._warned.add(place)
        _log.warning(
            "a source offset cannot be read and is skipped",
            topic=self._topic,
            partition=record.partition,
            offset=record.offset,
            key=(record.key or b"")[:200].decode(errors="backslashreplace"),
            why=why,
        )
