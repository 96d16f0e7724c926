"""Sink offsets, which are positions of consumer groups, as in Kafka Connect."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position

from drover.errors import DroverError, UnavailableError
from drover.log.kafka.aiokafka_client import can_reach
from drover.log.kafka.brokers import call, shared_brokers
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.errors import kafka_code
from drover.log.kafka.group_positions import group_positions
from drover.log.kafka.records import GroupPosition
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.sink_offsets import sink_offset

Partitions = Mapping[str, Sequence[int]]

#: How long a check of a group without members, or of an existing topic, stays valid.
CHECK_VALID_S = 5.0
CHECKS_KEPT_MAX = 10_000
PAUSE_S = 0.05
RETRY_MS = 10
#: A transaction for the group is in progress, or the group's coordinator has just moved.
PASSES_SOON = frozenset(
    {
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
WITH_MEMBERS = {
    ConsumerGroupState.STABLE,
    ConsumerGroupState.PREPARING_REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING,
}


@dataclass(frozen=True, slots=True)
class SinkGroupCheck:
    """The facts that can prevent a commit.

    Attributes:
        live: Groups that have members.
        partition_counts: The number of partitions by topic; 0 for a topic that does not exist.
    """

    live: Set[str] = frozenset()
    partition_counts: Mapping[str, int] = field(default_factory=dict)

    def faults(self, group_id: str, places: Iterable[TopicPartition]) -> list[str]:
        """The reasons why a group may not commit positions of ``places``; empty if it may."""
        faults = [
            f"partition {each.partition} of topic {each.topic} does not exist: was it deleted?"
            for each in places
            if each.partition >= self.partition_counts.get(each.topic, 0)
        ]
        if group_id in self.live:
            faults.append(
                f"consumer group {group_id} has live members, which commit offsets too: stop them "
                "(does another Kafka Connect cluster run this connector?)"
            )
        return faults


class _RecentChecks:
    """Results of recent checks without faults."""

    def __init__(self) -> None:
        self._results: dict[str, tuple[float, int]] = {}

    def valid(self, names: Iterable[str]) -> dict[str, int]:
        now_s = time.monotonic()
        results = {name: self._results.get(name, (0.0, 0)) for name in names}
        return {name: value for name, (until_s, value) in results.items() if until_s > now_s}

    def missing(self, names: Iterable[str]) -> list[str]:
        valid = self.valid(names)
        return [name for name in names if name not in valid]

    def note(self, results: Mapping[str, int]) -> None:
        if len(self._results) > CHECKS_KEPT_MAX:
            self._results.clear()
        until_s = time.monotonic() + CHECK_VALID_S
        self._results.update({name: (until_s, value) for name, value in results.items()})


class SinkGroups:
    """Reads, checks and deletes consumer groups of sinks."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._empty = _RecentChecks()
        self._topics = _RecentChecks()

    async def positions(self, group_id: str) -> list[CommittedOffset]:
        """A group's committed offsets, including those of other programs, without pending commits.

        Raises:
            DroverError: STORAGE_UNAVAILABLE, STORAGE_MISCONFIGURED.
        """
        deadline_s = time.monotonic() + self._client.timeout_s
        while True:
            try:
                return await self._client.run(
                    lambda: self._positions(group_id),
                    doing=f"the offsets of consumer group {group_id} cannot be read",
                )
            except UnavailableError as error:
                if kafka_code(error) not in PASSES_SOON or time.monotonic() > deadline_s:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def check(
        self, group_ids: Iterable[str], topics: Iterable[str], *, fresh: bool = False
    ) -> SinkGroupCheck:
        """Check whether sinks may commit offsets of topics.

        Checked before the commit: brokers reject a commit slowly, and accept some commits of
        groups with members. Results without faults are cached for some seconds; ``fresh`` bypasses
        the cache for members.

        Raises:
            DroverError: As ``positions``.
        """
        unchecked = list(group_ids) if fresh else self._empty.missing(group_ids)
        live: set[str] = set()
        if unchecked:
            doing = "the members of sinks' consumer groups cannot be read"
            live = await self._client.run(lambda: self._live(unchecked), doing=doing)
            self._empty.note({each: 0 for each in unchecked if each not in live})
        counts = self._topics.valid(topics)
        for topic in self._topics.missing(topics):
            state = await self._client.describe_topic(topic)
            counts[topic] = 0 if state is None else state.partition_count
            if state is not None:
                self._topics.note({topic: state.partition_count})
        return SinkGroupCheck(live, counts)

    async def delete(self, group_id: str) -> None:
        """Delete a group with its positions; succeeds if the group does not exist.

        Raises:
            DroverError: NON_EMPTY_GROUP, it has members; as ``positions``.
        """
        doing = f"consumer group {group_id} cannot be deleted"
        try:
            await self._client.run(lambda: self._delete(group_id), doing=doing)
        except DroverError as error:
            if kafka_code(error) != KafkaError.GROUP_ID_NOT_FOUND:
                raise

    # on a thread

    def _delete(self, group_id: str) -> None:
        admin, limit_s = self._client.admin, self._client.timeout_s
        deleted = admin.delete_consumer_groups([group_id], request_timeout=limit_s)
        self._client.waited(deleted[group_id])

    def _positions(self, group_id: str) -> list[CommittedOffset]:
        """Fetch the group's positions in the partitions of all topics.

        The admin client could fetch the group's own partitions, but librdkafka aborts the process
        if the group's coordinator moves or goes down during the call.
        """
        partitions = self._client.partitions_now()
        by_consumer = not can_reach(self._client.storage)
        fetch = self._fetch_by_consumer if by_consumer else self._fetch
        return [
            sink_offset(TopicPartition(each.topic, each.partition), each.offset, each.metadata)
            for each in fetch(group_id, partitions)
        ]

    def _fetch(self, group_id: str, partitions: Partitions) -> list[GroupPosition]:
        limit_s = self._client.timeout_s
        timeout_ms = int(limit_s * 1000)
        brokers = shared_brokers(self._client.storage, group_id, request_timeout_ms=timeout_ms)
        return call(group_positions(brokers, group_id, partitions), limit_s)

    def _fetch_by_consumer(self, group_id: str, partitions: Partitions) -> list[GroupPosition]:
        places = [Position(topic, each) for topic in partitions for each in partitions[topic]]
        consumer = self._client.consumer({"group.id": group_id, "retry.backoff.ms": RETRY_MS})
        try:
            committed = consumer.committed(places, timeout=self._client.timeout_s) if places else []
        finally:
            consumer.close()
        for each in committed:
            if each.error is not None:
                raise KafkaException(each.error)
        return [
            GroupPosition(group_id, each.topic, each.partition, each.offset, each.metadata or "")
            for each in committed
            if each.offset >= 0
        ]

    def _live(self, group_ids: list[str]) -> set[str]:
        """The groups with members; unreachable brokers are left out, and accept no commits."""
        listed = self._client.waited(
            self._client.admin.list_consumer_groups(
                states=WITH_MEMBERS, request_timeout=self._client.timeout_s
            )
        )
        return {each.group_id for each in listed.valid} & {*group_ids}
