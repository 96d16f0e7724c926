"""Partition 0 of the control topic: who the cluster is, who claimed which log, leases."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from drover.errors import (
    DataLossError,
    DroverError,
    FailedPreconditionError,
    Reason,
    UnavailableError,
)
from drover.log.connect_json import UnreadableRecordError, dump, parse_object
from drover.log.kafka import errors
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.progress import Progress
from drover.log.kafka.reader import TopicReader
from drover.log.kafka.records import EARLIEST, Produced, ReadBatch
from drover.log.kafka.topics import control_topic, ensure_topics
from drover.log.kafka.writer import TransactionalWriter
from drover.log.log import closed_error

CONTROL_PARTITION = 0
CLUSTER_KEY = "cluster"
CLUSTER_FORMAT = 1
_CAS_TRIES = 5


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Whose topics these are; no ``group_shards`` until somebody knows them."""

    group_id: str
    group_shards: int | None


class ControlTopic:
    """The newest value of each key of partition 0. Make it with ``open``; one for each process.

    Whoever writes there uses a writer of its own: to compare and set is to ``begin`` it,
    ``refresh``, decide, and write.
    """

    def __init__(self, client: KafkaClient) -> None:
        self.topic = client.storage.topics.control
        self._client = client
        self._values: dict[str, bytes] = {}
        starts = {CONTROL_PARTITION: EARLIEST}
        self._progress = Progress(starts)
        self._reader = TopicReader(client, self.topic, starts)
        self._follower = asyncio.create_task(self._follow(), name=f"{self.topic} follower")

    @classmethod
    async def open(cls, client: KafkaClient, group_shards: int | None = None) -> "ControlTopic":
        """Make the topic if it is missing, or the partitions that it lacks, and read partition 0.

        Args:
            client: The way to the brokers; it stays the caller's.
            group_shards: How many shards of groups there are, from whom it is known.

        Raises:
            FailedPreconditionError: STORAGE_MISCONFIGURED.
            UnavailableError: STORAGE_UNAVAILABLE.
            DataLossError: LOG_CORRUPT.
        """
        await ensure_topics(client, [control_topic(client.storage, group_shards)])
        control = cls(client)
        try:
            await control.refresh()
        except BaseException:
            await control.close()
            raise
        return control

    async def check_cluster(self, group_id: str, group_shards: int | None) -> None:
        """Write the record that says whose topics these are, or compare with the one there.

        Args:
            group_id: The cluster's name.
            group_shards: How many shards of groups there are; None for those who have none, which
                leaves the number to who knows it.

        Raises:
            FailedPreconditionError: STORAGE_OWNED, the topics belong to another cluster;
                STORAGE_MISCONFIGURED, another number of shards, or not authorised.
            DataLossError: LOG_CORRUPT, a newer Drover wrote the topic.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        own = _Cluster(group_id, group_shards)
        await self.refresh()
        if self._agreed(own) is None:
            return
        writer = TransactionalWriter(self._client, f"drover-cluster-{self.topic}")
        try:
            for _ in range(_CAS_TRIES):
                try:
                    await writer.begin()
                    await self.refresh()
                    agreed = self._agreed(own)
                    if agreed is not None:
                        ((_, offset),) = await writer.write([self._record(agreed)])
                        await self.wait_until_read(offset)
                    return
                except FailedPreconditionError as error:
                    if error.reason is not Reason.STALE_WRITER_EPOCH:
                        raise
            raise UnavailableError(
                Reason.STORAGE_UNAVAILABLE,
                f"several processes write whose topic {self.topic} is; try again in a moment",
            )
        finally:
            await writer.close()

    async def refresh(self, at_least: int = 0) -> None:
        """Return once everything is known that could be read before the call.

        Args:
            at_least: The offset after what the caller has written, which may not be stable yet.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            DataLossError: LOG_CORRUPT.
            FailedPreconditionError: STORAGE_MISCONFIGURED.
        """
        ends = await self._client.stable_offsets(self.topic, [CONTROL_PARTITION])
        end = max(at_least, ends[CONTROL_PARTITION])
        if end > 0:
            await self._progress.reach({CONTROL_PARTITION: end}, self._client.timeout_s)

    async def wait_until_read(self, offset: int) -> None:
        """Wait until a record that was written at ``offset`` is known here, and so can be read
        anywhere: a commit is told some milliseconds before.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, not yet.
            DataLossError: LOG_CORRUPT.
        """
        await self._progress.reach({CONTROL_PARTITION: offset + 1}, self._client.timeout_s)

    def value(self, key: str) -> bytes | None:
        """The newest value of ``key`` as of the last look; None if there is none."""
        return self._values.get(key)

    def values(self, prefix: str) -> Mapping[str, bytes]:
        """The newest values by key, of keys that begin with ``prefix``."""
        return {key: value for key, value in self._values.items() if key.startswith(prefix)}

    async def close(self) -> None:
        """Stop reading; idempotent."""
        await self._reader.close()
        await asyncio.wait([self._follower])

    async def _follow(self) -> None:
        try:
            async with aclosing(self._reader.batches()) as batches:
                async for batch in batches:
                    self._apply(batch)
            self._progress.fail(closed_error())
        except DroverError as error:
            self._progress.fail(error)

    def _apply(self, batch: ReadBatch) -> None:
        for record in batch.records:
            key = (record.key or b"").decode(errors="replace")
            if record.value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = record.value
        self._progress.advance(batch)

    def _agreed(self, own: _Cluster) -> _Cluster | None:
        """What to write so that all agree; None if they do."""
        standing = self._standing()
        if standing is None:
            return own
        if standing.group_id != own.group_id:
            raise FailedPreconditionError(
                Reason.STORAGE_OWNED,
                f"the topic {self.topic} on {self._client.storage.bootstrap_servers} belongs to the"
                f" cluster {standing.group_id!r}, and this is {own.group_id!r}: set DROVER_GROUP_ID"
                " to that name, or give this cluster topics of its own",
                metadata={"topic": self.topic, "groupId": standing.group_id},
            )
        if own.group_shards is None or own.group_shards == standing.group_shards:
            return None
        if standing.group_shards is None:
            return own
        raise errors.misconfigured(
            f"DROVER_GROUP_SHARDS is {own.group_shards}, but the groups of {self.topic} live in"
            f" {standing.group_shards} shards: set it to that number, which cannot be changed",
            {"topic": self.topic, "groupShards": str(standing.group_shards)},
        )

    def _standing(self) -> _Cluster | None:
        value = self.value(CLUSTER_KEY)
        if value is None:
            return None
        try:
            fields: dict[str, Any] = parse_object(value)
            format_number, group_id = fields["format"], fields["group_id"]
            group_shards = fields.get("group_shards")
        except (UnreadableRecordError, KeyError) as error:
            raise self._corrupt(f"cannot be read ({error})") from error
        if format_number != CLUSTER_FORMAT:
            raise self._corrupt(
                f"has format {format_number}, this Drover knows {CLUSTER_FORMAT}; use the Drover"
                " that wrote it, or give this cluster topics of its own"
            )
        if not isinstance(group_id, str) or not isinstance(group_shards, int | None):
            raise self._corrupt("has fields of wrong types")
        return _Cluster(group_id, group_shards)

    def _corrupt(self, what: str) -> DataLossError:
        return DataLossError(
            Reason.LOG_CORRUPT,
            f"the record {CLUSTER_KEY!r} in partition {CONTROL_PARTITION} of the topic {self.topic}"
            f" {what}",
            metadata={"topic": self.topic, "partition": str(CONTROL_PARTITION)},
        )

    def _record(self, cluster: _Cluster) -> Produced:
        fields: dict[str, object] = {"format": CLUSTER_FORMAT, "group_id": cluster.group_id}
        if cluster.group_shards is not None:
            fields["group_shards"] = cluster.group_shards
        return Produced(self.topic, CLUSTER_KEY.encode(), dump(fields), partition=CONTROL_PARTITION)
