"""KafkaSource: copies topics of another Kafka cluster, like MirrorMaker."""

import logging
import threading
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drover.connector import (
    REPLAYED,
    ConfigDef,
    ConnectorContext,
    OffsetChange,
    OffsetForm,
    PatternTimeoutError,
    RetriableError,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    TopicRule,
    Violation,
)
from drover.connectors.aliases import KAFKA_SOURCE
from drover.connectors.kafka.cluster import (
    TIMEOUT_S,
    ClusterError,
    ReservedError,
    client_faults,
    client_settings,
    known_own_cluster,
    noting,
    refuse,
    topics_of,
    translated_errors,
)
from drover.connectors.kafka.settings import (
    ALIAS,
    CONSUMER_PREFIX,
    DEFAULT_POLICY,
    EARLIEST,
    EXCLUDE,
    FAIL,
    KEEP_PARTITIONS,
    LOST,
    POLICY,
    PREFIX,
    REFRESH,
    REFRESH_S,
    RESET,
    SEPARATOR,
    SERVERS,
    SETTINGS,
    SYNC,
    SYNC_CONFIGS,
    SYNC_S,
    TARGET_ALIAS,
    TARGET_PREFIX,
    TASK_PARTITIONS,
    TOPICS,
    group_sync_of,
    is_wanted,
    origins_of,
    sync_faults,
    target_of,
)
from drover.connectors.kafka.source_checks import copying_faults
from drover.connectors.kafka.topic_ids import (
    CopiedOffset,
    TopicGoneError,
    check_message,
    is_another,
    refuse_wrong_ids,
    topic_ids,
)
from drover.connectors.kafka.topic_settings import topic_settings
from drover.connectors.offset_changes import refuse_misshapen

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

#: A batch passes the driver, so its size is limited.
_BATCH_BYTES_MAX = 16 * 1024 * 1024
_BATCH_RECORDS_MAX = 200_000
_AT_ONCE = 5_000
_POLL_S, _BATCH_S = 0.2, 1.0
_RECORD_BYTES = 64
#: How often an idle task checks whether topics were created again, and how many it checks per
#: second at most.
_CHECK_S, _CHECKED_PER_S = 1.0, 100
#: The most outdated errors in a row, without a poll between them that succeeds.
_OUTDATED_MAX = 10

#: The client looks up the coordinator of its group, which it does not use.
_OF_GROUP = "GROUP_AUTHORIZATION_FAILED"
_NO_MATCH = (
    "match no topic of the cluster that the user may describe (the operation Describe on topics)"
)

Place = tuple[str, int]
_log = logging.getLogger(__name__)


class KafkaSourceTask(SourceTask):
    """Reads its partitions with one consumer, which joins no group."""

    def start(self, context: SourceTaskContext) -> None:
        """Resume each partition after its last committed record."""
        from confluent_kafka.admin import AdminClient

        config = context.config
        self._context = context
        self._alias = config[ALIAS]
        told: list[KafkaError] = []
        consumer = consumer_of(config, told)
        self._consumer: Consumer | None = consumer
        with translated_errors(f"cluster {self._alias}", told):
            found = partitions_of(consumer, config, told)
        assigned = parsed_places(config[TASK_PARTITIONS])
        # topics that were deleted after the assignment are left out
        own = [place for place in assigned if place[1] < found.get(place[0], 0)]
        names = sorted({topic for topic, _ in own})
        settings = topic_settings(config, names) if config[SYNC_CONFIGS] else {}
        self._originals = {
            target_of(each, config): TopicRule(found[each], config=settings.get(each, {}))
            for each in names
        }
        committed = {
            (each["topic"], each["partition"]): CopiedOffset.parse(offset)
            for each, offset in context.offsets()
            if each.get("cluster") == self._alias
        }
        self._client = client_settings(config, PREFIX, CONSUMER_PREFIX)
        self._admin = AdminClient({**self._client, "log_level": 0})
        self._topic_ids = topic_ids(self._admin, names, self._alias)
        self._recreated_count = self._outdated_count = 0
        self._checked_s = time.monotonic()
        others = {
            (topic, partition)
            for topic, partition in own
            if (topic, partition) in committed
            and committed[topic, partition].is_of_another(self._topic_ids.get(topic, ""))
        }
        self._note_recreated({topic for topic, _ in others})
        self._next = {
            place: self._low(consumer, place)
            if place in others
            else self._first(consumer, place, committed.get(place))
            for place in own
        }
        #: Offsets that get the id of the topic with the next batch, because they have none.
        self._adopted = [
            place
            for place in own
            if place in committed
            and not committed[place].topic_id
            and self._topic_ids.get(place[0])
        ]
        self._assign(consumer)

    def poll(self) -> SourceBatch | None:
        """The available records, up to the limits of a batch."""
        consumer = self._consumer
        assert consumer is not None
        messages: list[Message] = []
        gone: TopicGoneError | None = None
        try:
            try:
                messages = self._taken(consumer)
            except TopicGoneError as error:
                gone = error
            if self._restarts_recreated(consumer, messages, gone.topic if gone else ""):
                return None
            if gone is not None and not self._is_outdated(consumer, gone):
                raise gone
            if gone is not None:
                self._assign(consumer)
                return None
        except Exception:
            self._assign(consumer)  # the records are read again
            raise
        self._outdated_count = 0
        if not messages and not self._adopted:
            self._report_lag(consumer)
            return None
        adopted = {place: self._next[place] - 1 for place in self._adopted}
        self._adopted = []
        moved = {_place(each): int(each.offset() or 0) for each in messages}
        self._next |= {place: offset + 1 for place, offset in moved.items()}
        self._report_lag(consumer)
        offsets = [
            (
                {"cluster": self._alias, "partition": partition, "topic": topic},
                CopiedOffset(offset + 1, self._topic_ids.get(topic, "")).value(),
            )
            for (topic, partition), offset in sorted((adopted | moved).items())
        ]
        return SourceBatch(self._table(messages), offsets, originals=self._originals)

    def _is_outdated(self, consumer: "Consumer", gone: TopicGoneError) -> bool:
        """Whether the client reported a position from before the last assignment: the present ones
        are within the topic.
        """
        self._outdated_count += 1
        own = [(place, at) for place, at in self._next.items() if place[0] == gone.topic]
        marks = [(*self._watermarks(consumer, place), at) for place, at in own]
        return self._outdated_count <= _OUTDATED_MAX and all(a <= at <= b for a, b, at in marks)

    def _restarts_recreated(
        self, consumer: "Consumer", messages: "Sequence[Message]", topic: str = ""
    ) -> bool:
        """Whether topics of the records, or ``topic``, were deleted and created again. They are
        then read from their start, and the records again. Without records all topics are checked
        from time to time.
        """
        read = Counter(str(each.topic()) for each in messages)
        asked = {*read, topic} - {""} if read or topic else self._due_topics()
        found = topic_ids(self._admin, asked, self._alias)
        known = self._topic_ids
        changed = {each for each in asked if is_another(known.get(each, ""), found.get(each, ""))}
        known.update({each: found[each] for each in asked if found.get(each)})
        if not changed:
            return False
        self._note_recreated(changed)
        for each in sorted(changed & read.keys()):
            _log.warning(
                "%d records of %s, which may be those of the deleted topic, are not copied: the "
                "topic is read from its start",
                *(read[each], each),
            )
        places = [place for place in self._next if place[0] in changed]
        self._next |= dict.fromkeys(places, 0)  # in case of an error; a new topic begins there
        self._adopted = [place for place in self._adopted if place not in places]
        self._next |= {place: self._low(consumer, place) for place in places}
        self._assign(consumer)
        return True

    def _due_topics(self) -> set[str]:
        topics = {topic for topic, _ in self._next}
        every_s = max(_CHECK_S, len(topics) / _CHECKED_PER_S)
        now_s = time.monotonic()
        if now_s < self._checked_s + every_s:
            return set()
        self._checked_s = now_s
        return topics

    def _note_recreated(self, topics: Collection[str]) -> None:
        for each in sorted(topics):
            _log.warning(
                "topic %s of cluster %s was deleted and created again: it is copied from its "
                "start, after the records of the deleted topic",
                *(each, self._alias),
            )
        self._recreated_count += len(topics)
        if topics:
            self._context.report("recreated_topic_count", self._recreated_count)

    def _report_lag(self, consumer: "Consumer") -> None:
        """Report the number of unread records, as far as cached watermarks show."""
        from confluent_kafka import TopicPartition

        ends = (
            (at, consumer.get_watermark_offsets(TopicPartition(*place), cached=True)[1])
            for place, at in self._next.items()
        )
        self._context.report("lag_count", sum(max(0, end - at) for at, end in ends))

    def _taken(self, consumer: "Consumer") -> "list[Message]":
        config = self._context.config
        records_max = min(config["batch.max.records"], _BATCH_RECORDS_MAX)
        bytes_max = min(config["batch.max.bytes"], _BATCH_BYTES_MAX)
        messages: list[Message] = []
        size = 0
        until_s = time.monotonic() + _BATCH_S
        while len(messages) < records_max and size < bytes_max and time.monotonic() < until_s:
            count = min(_AT_ONCE, records_max - len(messages))
            with translated_errors(f"cluster {self._alias}"):
                taken = consumer.consume(count, _POLL_S if not messages else 0.0)
            if not taken:
                break
            for each in taken:
                error = each.error()
                if error is not None and error.name() == _OF_GROUP:
                    continue
                check_message(each, self._alias, self._client)
                messages.append(each)
                size += len(each) + _RECORD_BYTES
        return messages

    def stop(self) -> None:
        """Close the consumer."""
        consumer = getattr(self, "_consumer", None)
        if consumer is not None:
            consumer.close()

    def _table(self, messages: Sequence["Message"]) -> pa.Table:
        config = self._context.config
        places = [_place(each) for each in messages]
        targets = {topic: target_of(topic, config) for topic, _ in set(places)}
        times = [each.timestamp() for each in messages]
        columns: dict[str, Any] = {
            "topic": pa.array([targets[topic] for topic, _ in places], pa.string()),
            "key": pa.array([each.key() for each in messages], pa.binary()),
            "value": pa.array([each.value() for each in messages], pa.binary()),
            "headers": _headers(messages),
            "timestamp": pa.array(
                [moment if kind else None for kind, moment in times], pa.int64()
            ).cast(pa.timestamp("ms", "UTC")),
        }
        if config[KEEP_PARTITIONS]:
            columns["partition"] = pa.array([number for _, number in places], pa.int32())
        return pa.table(columns)

    def _low(self, consumer: "Consumer", place: Place) -> int:
        return self._watermarks(consumer, place)[0]

    def _watermarks(self, consumer: "Consumer", place: Place) -> tuple[int, int]:
        from confluent_kafka import TopicPartition

        with translated_errors(f"cluster {self._alias}, {place[0]}-{place[1]}"):
            low, high = consumer.get_watermark_offsets(TopicPartition(*place), timeout=TIMEOUT_S)
        return int(low), int(high)

    def _first(self, consumer: "Consumer", place: Place, found: CopiedOffset | None) -> int:
        """The offset to start a partition at."""
        low, high = self._watermarks(consumer, place)
        if found is None:
            return low if self._context.config[RESET] == EARLIEST else high
        committed = found.next_offset
        where = f"{place[0]}-{place[1]} of cluster {self._alias}"
        if committed > high:
            why = "lost records" if found.topic_id else "was created again, or lost records"
            raise ClusterError(
                f"{where} ends at offset {high}, below the next offset {committed}: the topic "
                f"{why}; reset its offset to copy it from its start (drover connector offsets)"
            )
        if committed < low:
            if self._context.config[LOST] == FAIL:
                raise ClusterError(
                    f"{where} starts at offset {low}: {low - committed} records were removed by "
                    f"retention before they were read; set {LOST}={EARLIEST} to skip them"
                )
            _log.warning(
                "%s starts at offset %d: retention removed %d unread records",
                *(where, low, low - committed),
            )
            return low
        return committed

    def _assign(self, consumer: "Consumer") -> None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(*place, at) for place, at in self._next.items()])


class KafkaSource(SourceConnector):
    """Copies topics of another Kafka cluster unchanged: keys, values, headers, timestamps, and by
    default in the same partitions. The settings have the names of MirrorMaker's source connector.

    Each partition is a source partition ``{"cluster": alias, "partition": n, "topic": name}``. Its
    offset is that of the last copied record, as in MirrorMaker, with the id of the topic: a topic
    that was deleted and created again is copied from its start.
    """

    version = "0.1.0"
    aliases = ("KafkaSource", "org.apache.kafka.connect.mirror.MirrorSourceConnector")
    other_settings = KAFKA_SOURCE
    guarantees = REPLAYED
    offset_forms = (OffsetForm({"cluster": str, "partition": int, "topic": str}, {"offset": int}),)
    task_class = KafkaSourceTask

    def __init__(self) -> None:
        self._config: Mapping[str, Any] = {}
        self._found: dict[str, int] = {}
        self._stopping = threading.Event()

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return SETTINGS

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The settings must not contradict each other, and settings of clients must be allowed."""
        prefixes = (PREFIX, CONSUMER_PREFIX, *([TARGET_PREFIX] if config.get(SYNC) else ()))
        return [*sync_faults(config), *client_faults(config, *prefixes)]

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The cluster must be reachable and have matching topics."""
        faults: list[Violation] = []
        told: list[KafkaError] = []
        try:
            consumer = consumer_of(config, told)
        except ValueError as error:
            return [Violation(SERVERS, str(error))]
        try:
            with translated_errors("cannot be used", told):
                found = partitions_of(consumer, config, told)
            if found:
                faults += copying_faults(found, config)
            else:
                faults.append(Violation(TOPICS, _NO_MATCH))
        except ReservedError as error:
            faults.append(Violation(TOPICS, str(error)))
        except (ClusterError, RetriableError) as error:
            faults.append(Violation(SERVERS, str(error)))
        finally:
            consumer.close()
        return faults

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """No state exists outside the offsets."""
        del config
        kinds = {"cluster": str, "partition": int, "topic": str}
        refuse_misshapen(changes, partition=kinds, counts=("offset",))
        refuse_wrong_ids(changes)
        return True

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """Find topics, and watch for new ones."""
        self._config = config
        self._found = self._find()
        warn_of_cycles(self._found, config, is_set=TARGET_ALIAS in context.config_texts)
        if config[REFRESH]:
            threading.Thread(
                target=self._watch, args=(context,), name="kafka-topics", daemon=True
            ).start()
        if config[SYNC]:
            threading.Thread(target=self._sync, name="kafka-groups", daemon=True).start()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """The partitions, assigned by checksum: a new one changes the config of one task, unless
        the number of tasks changes too.
        """
        found = self._found
        count = min(max_tasks, sum(found.values()))
        return [{TASK_PARTITIONS: places_text(found, index, count)} for index in range(count)]

    def stop(self) -> None:
        """Stop watching for topics."""
        self._stopping.set()

    def _find(self) -> dict[str, int]:
        told: list[KafkaError] = []
        consumer = consumer_of(self._config, told)
        try:
            with translated_errors(f"cluster {self._config[ALIAS]}", told):
                return partitions_of(consumer, self._config, told)
        finally:
            consumer.close()

    def _watch(self, context: ConnectorContext) -> None:
        """Request new task configs when topics or partitions were added or removed."""
        while not self._stopping.wait(self._config[REFRESH_S]):
            try:
                found = self._find()
            except (ClusterError, RetriableError, PatternTimeoutError) as error:
                _log.warning("checking for new topics failed: %s", error)
                continue
            if found != self._found:
                self._found = found
                context.request_reconfiguration()

    def _sync(self) -> None:
        """Translate groups' offsets periodically."""
        sync = group_sync_of(self._config)
        while not self._stopping.wait(self._config[SYNC_S]):
            try:
                changed = sync.run(self._found)
            except Exception as error:  # noqa: BLE001 - noqa: BLE001 - copying continues, and the next round retries
                _log.warning("translating groups' offsets failed: %s", error)
            else:
                _log.debug("%d offsets of groups were translated", changed)


def consumer_of(config: Mapping[str, Any], told: "list[KafkaError]") -> "Consumer":
    """A consumer of the other cluster, which joins no group and commits nothing.

    Its asynchronous errors are added to ``told``.

    Raises:
        ValueError: A setting is not the client's.
    """
    from confluent_kafka import Consumer, KafkaException

    try:
        return Consumer(
            {
                "isolation.level": "read_committed",
                "client.id": "drover",
                **client_settings(config, PREFIX, CONSUMER_PREFIX),
                "group.id": "drover-joins-no-group",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": False,
                "log_level": 0,
                "error_cb": noting(told),
            }
        )
    except KafkaException as error:
        raise ValueError(error.args[0].str()) from error


def partitions_of(
    consumer: "Consumer", config: Mapping[str, Any], told: "Sequence[KafkaError]"
) -> dict[str, int]:
    """The topics that the settings select, with their partition counts.

    Raises:
        ReservedError: Some are internal topics of Drover's own cluster.
    """
    own = known_own_cluster()
    seen = topics_of(consumer, told)
    in_own = own is not None and own.is_at(seen.cluster_id)
    found = {
        name: len(topic.partitions)
        for name, topic in seen.topics.items()
        if topic.error is None and is_wanted(name, config, in_own_cluster=in_own)
    }
    if own is not None and in_own:
        fault = own.topics_fault(found)
        refuse(fault and f"{fault}: exclude it with {EXCLUDE}")
        itself = next((each for each in sorted(found) if target_of(each, config) == each), None)
        if itself is not None:
            refuse(
                f"{itself} would be copied into itself, because the source cluster is Drover's own "
                f"one: use {POLICY}={DEFAULT_POLICY}"
            )
    return found


def warn_of_cycles(topics: Iterable[str], config: Mapping[str, Any], *, is_set: bool) -> None:
    """Log topics that may be copies from Drover's cluster, if its alias there is not set."""
    known = set(topics)
    separator = config[SEPARATOR]
    for topic in sorted(known):
        parts = topic.split(separator) if origins_of(topic, config) else []
        if not is_set and any(separator.join(parts[at:]) in known for at in range(1, len(parts))):
            _log.warning(
                "topic %s may be a copy that another mirror made: if it came from Drover's "
                "cluster, set %s to the alias %s, or the two clusters copy each other's copies",
                *(topic, TARGET_ALIAS, parts[0]),
            )
            return


def share_of(topic: str, partition: int, count: int) -> int:
    """The number of the task, of ``count``, that reads a partition; a topic's partitions are spread
    evenly.
    """
    return (zlib.crc32(topic.encode()) + partition) % count


def places_text(found: Mapping[str, int], index: int, count: int) -> str:
    """The partitions of a task in the form of its config. Names of topics have no ``:``, ``;``."""
    own = {
        topic: [str(each) for each in range(number) if share_of(topic, each, count) == index]
        for topic, number in sorted(found.items())
    }
    return ";".join(f"{topic}:{','.join(places)}" for topic, places in own.items() if places)


def parsed_places(text: str) -> list[Place]:
    """The partitions of a task's config."""
    parts = [each.split(":") for each in text.split(";") if each]
    return [(topic, int(number)) for topic, numbers in parts for number in numbers.split(",")]


def _place(message: "Message") -> Place:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def _headers(messages: Sequence["Message"]) -> pa.Array:
    found: list[Any] = [each.headers() for each in messages]
    if not any(found):
        return pa.nulls(len(found), _BYTES_HEADERS)
    return pa.array(
        [[{"key": key, "value": value} for key, value in each] if each else None for each in found],
        _BYTES_HEADERS,
    )


_BYTES_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
