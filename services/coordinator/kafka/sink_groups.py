"""Sink offsets: positions of the consumer groups ``connect-<connector>``, as Kafka Connect's."""

import time
from collections.abc import Iterable

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

#: A group that was found without members is not looked at again for so long.
LOOK_EVERY_S = 5.0
LOOKS_KEPT_MAX = 10_000
_WITHOUT_MEMBERS = {ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD}


class SinkGroups:
    """Asks the brokers for consumer groups."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._empty_until_s: dict[str, float] = {}

    async def positions(self, connector: str) -> list[CommittedOffset]:
        """A connector's positions, those included that others have set; none is under way.

        Raises:
            DroverError: STORAGE_UNAVAILABLE, STORAGE_MISCONFIGURED.
        """
        group_id = group_of(connector)
        found = await self._client.run(
            lambda: self._list(group_id), doing=f"the offsets of group {group_id} cannot be read"
        )
        return [
            sink_offset(
                TopicPartition(each.topic, each.partition), each.offset, each.metadata or ""
            )
            for each in found
            if each.offset >= 0
        ]

    async def with_members(self, connectors: Iterable[str]) -> set[str]:
        """Those whose group has members at present: other consumers commit there as well.

        What was found without members is believed for some seconds.

        Raises:
            DroverError: As ``positions``.
        """
        now_s = time.monotonic()
        asked = [each for each in connectors if self._empty_until_s.get(each, now_s) <= now_s]
        if not asked:
            return set()
        live = await self._client.run(
            lambda: self._live(asked), doing="the members of sinks' consumer groups cannot be read"
        )
        if len(self._empty_until_s) > LOOKS_KEPT_MAX:
            self._empty_until_s.clear()
        for connector in asked:
            self._empty_until_s.pop(connector, None)
            if connector not in live:
                self._empty_until_s[connector] = now_s + LOOK_EVERY_S
        return live

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
            if each.error is not None:
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
