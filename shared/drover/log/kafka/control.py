"""Partition 0 of the control topic: the cluster's identity, claims of logs, and leases."""

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
    """The identity of the cluster that owns the topics.

    ``group_shards`` is None until a coordinator has written it.
    """

    group_id: str
    group_shards: int | None


class ControlTopic:
    """The newest value of each key of partition 0; create it with ``open``, once per process.

    To compare and set, use a transactional writer: ``begin`` it, ``refresh``, decide, and write.
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
        """Create the topic or missing partitions, and read partition 0.

        Args:
            client: Reaches the brokers; the caller closes it.
            group_shards: The number of shards of groups; None if unknown to the caller.

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
        """Write the record with the cluster's identity, or compare it with the existing one.

        Args:
            group_id: The cluster's name.
            group_shards: The number of shards of groups; None for services other than the
                coordinator, which write no number.

        Raises:
            FailedPreconditionError: STORAGE_OWNED, the topics belong to another cluster;
                STORAGE_MISCONFIGURED, another number of shards, or not authorised.
            DataLossError: LOG_CORRUPT, a newer version of Drover wrote the topic.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        own = _Cluster(group_id, group_shards)
        await self.refresh()
        if self._update_for(own) is None:
            return
        writer = TransactionalWriter(self._client, f"drover-cluster-{self.topic}")
        try:
            for _ in range(_CAS_TRIES):
                try:
                    await writer.begin()
                    await self.refresh()
                    update = self._update_for(own)
                    if update is not None:
                        ((_, offset),) = await writer.write([self._record(update)])
                        await self.wait_until_read(offset)
                    return
                except FailedPreconditionError as error:
                    if error.reason is not Reason.STALE_WRITER_EPOCH:
                        raise
            raise UnavailableError(
                Reason.STORAGE_UNAVAILABLE,
                f"the cluster's identity could not be written to the topic {self.topic}, because"
                " other processes write it too: retry",
            )
        finally:
            await writer.close()

    async def refresh(self, at_least: int = 0) -> None:
        """Return once all records that were stable before the call have been read.

        Args:
            at_least: Read at least up to this offset, after the caller's own writes, which may not
                be stable yet.

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
        """Wait until the record at ``offset`` has been read here, and so is visible to all readers.

        A commit returns some milliseconds before its records are visible.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, the record was not read in time.
            DataLossError: LOG_CORRUPT.
        """
        await self._progress.reach({CONTROL_PARTITION: offset + 1}, self._client.timeout_s)

    def value(self, key: str) -> bytes | None:
        """The newest value of ``key`` as of the last ``refresh``; None if it has none."""
        return self._values.get(key)

    def values(self, prefix: str) -> Mapping[str, bytes]:
        """The newest values of all keys with this prefix, by key."""
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

    def _update_for(self, own: _Cluster) -> _Cluster | None:
        """The record to write for ``own``; None if the stored one is equal."""
        stored = self._stored()
        if stored is None:
            return own
        if stored.group_id != own.group_id:
            raise FailedPreconditionError(
                Reason.STORAGE_OWNED,
                f"the topic {self.topic} on {self._client.storage.bootstrap_servers} belongs to the"
                f" cluster {stored.group_id!r}, not to {own.group_id!r}: set DROVER_GROUP_ID to"
                " that name, or configure other topics for this cluster",
                metadata={"topic": self.topic, "groupId": stored.group_id},
            )
        if own.group_shards is None or own.group_shards == stored.group_shards:
            return None
        if stored.group_shards is None:
            return own
        raise errors.misconfigured(
            f"DROVER_GROUP_SHARDS is {own.group_shards}, but the groups in {self.topic} are in"
            f" {stored.group_shards} shards: set it to that number, which cannot be changed",
            {"topic": self.topic, "groupShards": str(stored.group_shards)},
        )

    def _stored(self) -> _Cluster | None:
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
                f"has format {format_number}, but this version of Drover reads {CLUSTER_FORMAT}:"
                " use the version that wrote it, or configure other topics for this cluster"
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
