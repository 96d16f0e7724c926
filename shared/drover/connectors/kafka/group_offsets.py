"""Translates committed offsets of consumer groups to copies of their topics in another cluster.

No mapping of offsets is needed, because copies keep timestamps. A group resumes at the first record
of the copy that is not older than its next record in the original, which is that record or an
earlier one. It may read records twice, but misses none.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drover.connector import any_matches
from drover.connectors.kafka.cluster import TIMEOUT_S, known_own_cluster, translated_errors

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient

_POLL_S, _READ_S = 0.2, 15.0
_NO_MEMBERS = ("EMPTY", "DEAD", "UNKNOWN")

Place = tuple[str, int]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupSync:
    """Translates groups' offsets to the copies: forward only, and only for groups without members
    there.

    ``source`` and ``target`` are librdkafka settings of the clusters; ``copy_of`` names the copy of
    a topic.
    """

    source: Mapping[str, Any]
    target: Mapping[str, Any]
    groups: Sequence[str]
    excluded: Sequence[str]
    copy_of: Callable[[str], str]

    def run(self, topics: Mapping[str, int]) -> int:
        """Translate the offsets for topics, given with their partition counts; returns how many
        changed.

        Raises:
            ClusterError: A cluster refuses an operation.
            RetriableError: A cluster is unavailable.
        """
        from confluent_kafka import Consumer
        from confluent_kafka.admin import AdminClient

        reading = {"group.id": "drover-joins-no-group", "isolation.level": "read_committed"}
        source, target = AdminClient(dict(self.source)), AdminClient(dict(self.target))
        originals = Consumer({**self.source, **reading, "enable.partition.eof": True})
        copies = Consumer({**self.target, **reading})
        try:
            own = known_own_cluster()
            with translated_errors("the target's cluster"):
                reached = copies.list_topics(timeout=TIMEOUT_S).cluster_id
            kept = self._with_kept_times(target, copies, topics)
            changed = 0
            for group in self._wanted(source):
                if own is not None and own.is_at(reached) and own.group_fault(group, ""):
                    _log.debug("the group %s is reserved in Drover's own cluster", group)
                    continue
                with translated_errors(f"group {group}"):
                    changed += self._take_over(group, (source, originals), (target, copies), kept)
            return changed
        finally:
            originals.close()
            copies.close()

    def _wanted(self, source: "AdminClient") -> list[str]:
        with translated_errors("the source's groups"):
            found = source.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
        names = sorted(each.group_id for each in found.valid)
        return [
            name
            for name in names
            if any_matches(self.groups, name) and not any_matches(self.excluded, name)
        ]

    def _with_kept_times(
        self, target: "AdminClient", copies: "Consumer", topics: Mapping[str, int]
    ) -> set[Place]:
        """The partitions with a copy that keeps timestamps."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        with translated_errors("the target's topics"):
            found = copies.list_topics(timeout=TIMEOUT_S).topics
            present = {each: self.copy_of(each) for each in topics if self.copy_of(each) in found}
            resources = [ConfigResource(ResourceType.TOPIC, each) for each in present.values()]
            asked = target.describe_configs(resources) if resources else {}
            configs = {each.name: future.result(TIMEOUT_S) for each, future in asked.items()}
        kept = set()
        for topic, copy in present.items():
            if configs[copy]["message.timestamp.type"].value != "CreateTime":
                _log.warning(
                    "groups' offsets of %s are not translated: set message.timestamp.type of %s to "
                    "CreateTime",
                    *(topic, copy),
                )
                continue
            count = min(topics[topic], len(found[copy].partitions))
            kept |= {(topic, partition) for partition in range(count)}
        return kept

    def _take_over(
        self,
        group: str,
        source: "tuple[AdminClient, Consumer]",
        target: "tuple[AdminClient, Consumer]",
        kept: set[Place],
    ) -> int:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        known = _committed(source[0], group).keys() & kept
        if not known:
            return 0
        # in this order: first the end of the copy, then the offsets, then the end of the original
        ends = {
            place: target[1].get_watermark_offsets(self._copy(place), TIMEOUT_S)[1]
            for place in known
        }
        offsets = {p: at for p, at in _committed(source[0], group).items() if p in ends}
        times = _next_times(source[1], offsets)
        found = self._translated(target[1], ends, times)
        present = _committed(target[0], group)
        ahead = {
            place: offset
            for place, offset in found.items()
            if offset > present.get((self.copy_of(place[0]), place[1]), -1)
        }
        if not ahead or not _is_idle(target[0], group):
            return 0
        positions = [
            TopicPartition(self.copy_of(topic), partition, offset)
            for (topic, partition), offset in sorted(ahead.items())
        ]
        wanted = [ConsumerGroupTopicPartitions(group, positions)]
        answer = target[0].alter_consumer_group_offsets(wanted)[group].result(TIMEOUT_S)
        failed = [each for each in answer.topic_partitions or [] if each.error is not None]
        for each in failed:
            _log.warning("group %s, %s-%d: %s", group, each.topic, each.partition, each.error)
        return len(positions) - len(failed)

    def _translated(
        self, copies: "Consumer", ends: Mapping[Place, int], times: Mapping[Place, int | None]
    ) -> dict[Place, int]:
        """The offsets in the copies.

        ``times`` are the timestamps of the next records, None if there is none. If the copy has no
        record that late, the group resumes at the copy's end.
        """
        from confluent_kafka import TopicPartition

        found = {place: ends[place] for place, moment in times.items() if moment is None}
        asked = {place: moment for place, moment in times.items() if moment is not None}
        if asked:
            answers = copies.offsets_for_times(
                [TopicPartition(self.copy_of(t), p, at) for (t, p), at in asked.items()],
                timeout=TIMEOUT_S,
            )
            for place, answer in zip(asked, answers, strict=True):
                if answer.error is None:
                    later = answer.offset if answer.offset >= 0 else ends[place]
                    found[place] = min(later, ends[place])
        return found

    def _copy(self, place: Place) -> "TopicPartition":
        from confluent_kafka import TopicPartition

        return TopicPartition(self.copy_of(place[0]), place[1])


def _committed(admin: "AdminClient", group: str) -> dict[Place, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(TIMEOUT_S).topic_partitions or []
    return {
        (each.topic, each.partition): each.offset
        for each in found
        if each.error is None and each.offset >= 0
    }


def _is_idle(admin: "AdminClient", group: str) -> bool:
    """Whether a group has no members, or does not exist."""
    from confluent_kafka import KafkaException

    try:
        found = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].name() == "GROUP_ID_NOT_FOUND":
            return True
        raise
    return found.state.name in _NO_MEMBERS


def _next_times(originals: "Consumer", offsets: Mapping[Place, int]) -> dict[Place, int | None]:
    """The timestamps of the records at or after these offsets, in milliseconds; None at the end.

    Partitions whose record cannot be read in time, or has no timestamp, are left out.
    """
    from confluent_kafka import TopicPartition

    found: dict[Place, int | None] = {}
    waiting: dict[Place, int] = {}
    for place, offset in offsets.items():
        low, high = originals.get_watermark_offsets(TopicPartition(*place), TIMEOUT_S)
        if offset >= high:
            found[place] = None
        else:
            waiting[place] = max(offset, low)
    originals.assign([TopicPartition(*place, at) for place, at in waiting.items()])
    until_s = time.monotonic() + _READ_S
    while waiting and time.monotonic() < until_s:
        for message in originals.consume(len(waiting), _POLL_S):
            topic, partition = message.topic(), message.partition()
            assert topic is not None
            assert partition is not None
            if waiting.pop((topic, partition), None) is None:
                continue
            kind, moment = message.timestamp()
            error = message.error()
            if error is not None:
                if error.name() == "_PARTITION_EOF":  # only aborted records are left
                    found[topic, partition] = None
            elif kind:
                found[topic, partition] = moment
    originals.unassign()
    return found
