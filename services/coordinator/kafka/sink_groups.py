"""Sink offsets: positions of the consumer groups ``connect-<connector>``, as Kafka Connect's."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as Position

from drover.log.kafka.client import KafkaClient
from drover.model.offsets import CommittedOffset, TopicPartition
from services.coordinator.core.sink_offsets import group_of, sink_offset

#: A group without members, or a topic that is there, is not looked at again for so long.
LOOK_EVERY_S = 5.0
LOOKS_KEPT_MAX = 10_000
#: A transaction that commits for the group is under way.
UNSTABLE = KafkaError.UNSTABLE_OFFSET_COMMIT
UNSTABLE_PAUSE_S = 0.005
_WITHOUT_MEMBERS = {ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD}


@dataclass(frozen=True, slots=True)
class SinkLook:
    """What is in the way of commits: connectors whose groups have members, and how many partitions
    each topic has, 0 for one that is not there.
    """

    live: Set[str] = frozenset()
    partition_counts: Mapping[str, int] = field(default_factory=dict)

    def faults(self, connector: str, places: Iterable[TopicPartition]) -> list[str]:
        """Why a connector may not commit positions there."""
        faults = [
            f"partition {each.partition} of topic {each.topic} does not exist: was it deleted?"
            for each in places
            if each.partition >= self.partition_counts.get(each.topic, 0)
        ]
        if connector in self.live:
            faults.append(
                f"consumer group {group_of(connector)} has live members, which commit there as"
                f" well: stop connector {connector} where else it runs (another Kafka Connect?)"
            )
        return faults


class _Recent:
    """What was found to be in order a moment ago."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, int]] = {}

    def known(self, names: Iterable[str]) -> dict[str, int]:
        now_s = time.monotonic()
        found = {name: self._found.get(name, (0.0, 0)) for name in names}
        return {name: value for name, (until_s, value) in found.items() if until_s > now_s}

    def without(self, names: Iterable[str]) -> list[str]:
        known = self.known(names)
        return [name for name in names if name not in known]

    def note(self, found: Mapping[str, int]) -> None:
        if len(self._found) > LOOKS_KEPT_MAX:
            self._found.clear()
        until_s = time.monotonic() + LOOK_EVERY_S
        self._found.update({name: (until_s, value) for name, value in found.items()})


class SinkGroups:
    """Asks the brokers for consumer groups."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._empty = _Recent()
        self._topics = _Recent()

    async def positions(self, connector: str) -> list[CommittedOffset]:
        """A connector's positions, those included that others have set; none is under way.

        Raises:
            DroverError: STORAGE_UNAVAILABLE, STORAGE_MISCONFIGURED.
        """
        group_id = group_of(connector)
        doing = f"the offsets of group {group_id} cannot be read"
        deadline_s = time.monotonic() + self._client.timeout_s
        found = await self._client.run(lambda: self._list(group_id), doing=doing)
        while _unstable(found) is not None:
            # a commit is told before its marker is in the log; until then nothing is answered
            if time.monotonic() > deadline_s:
                raise self._client.translated(KafkaException(_unstable(found)), doing=doing)
            await asyncio.sleep(UNSTABLE_PAUSE_S)
            found = await self._client.run(lambda: self._list(group_id), doing=doing)
        return [
            sink_offset(
                TopicPartition(each.topic, each.partition), each.offset, each.metadata or ""
            )
            for each in found
            if each.offset >= 0
        ]

    async def look(self, connectors: Iterable[str], topics: Iterable[str]) -> "SinkLook":
        """See whether sinks may commit positions in topics, as a commit that may not takes long.

        What was found to be in order is believed for some seconds.

        Raises:
            DroverError: As ``positions``.
        """
        asked = self._empty.without(connectors)
        live: set[str] = set()
        if asked:
            doing = "the members of sinks' consumer groups cannot be read"
            live = await self._client.run(lambda: self._live(asked), doing=doing)
            self._empty.note({each: 0 for each in asked if each not in live})
        counts = self._topics.known(topics)
        for topic in self._topics.without(topics):
            state = await self._client.describe_topic(topic)
            counts[topic] = 0 if state is None else state.partition_count
            if state is not None:
                self._topics.note({topic: state.partition_count})
        return SinkLook(live, counts)

    # on a thread

    def _list(self, group_id: str) -> list[Position]:
        futures = self._client.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group_id)],
            require_stable=True,
            request_timeout=self._client.timeout_s,
        )
        try:
            found = futures[group_id].result().topic_partitions or []
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return []
            raise
        for each in found:
            if each.error is not None and each.error.code() != UNSTABLE:
                raise KafkaException(each.error)
        return list(found)

    def _live(self, connectors: list[str]) -> set[str]:
        groups = {group_of(connector): connector for connector in connectors}
        futures = self._client.admin.describe_consumer_groups(
            list(groups), request_timeout=self._client.timeout_s
        )
        live = set()
        for group_id, future in futures.items():
            try:
                state = future.result().state
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    continue
                raise
            if state not in _WITHOUT_MEMBERS:
                live.add(groups[group_id])
        return live


def _unstable(found: Sequence[Position]) -> KafkaError | None:
    """Why a position is not known yet, if one is not."""
    return next((each.error for each in found if each.error is not None), None)
