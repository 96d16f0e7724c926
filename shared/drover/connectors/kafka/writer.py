"""Writes records into another Kafka cluster, in transactions that include their offsets."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.connector import RetriableError, TopicPartition, compiled_pattern
from drover.connector.records import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TOPIC,
    VALUE,
)
from drover.connectors.kafka.access import ClusterAccess
from drover.connectors.kafka.cluster import (
    TIMEOUT_S,
    ClusterError,
    needed_rights,
    refuse,
    translated_errors,
)
from drover.connectors.refused_records import RefusedRecord, RefusedRecordError, answer
from drover.policy.own_cluster import OwnCluster

if TYPE_CHECKING:
    import confluent_kafka
    from confluent_kafka import Consumer
    from confluent_kafka.admin import ClusterMetadata

TOPIC_NAME = "${topic}"
#: A larger transaction would delay consumers of the copy, who wait for its end.
_TRANSACTION_RECORDS_MAX = 50_000
_TRANSACTION_S, _OFFSETS_S, _LATE_S = 60, 10, 2
_FULL_S = 0.1
#: How often to wait for the report about a record, after a transaction failed.
_REPORTS = 10
_PRODUCER_DEFAULTS = {
    "compression.type": "lz4",
    # otherwise librdkafka drops a restarting broker together with its waiting requests; a producer
    # that finds no broker is replaced by a new one that bootstraps again
    "metadata.recovery.strategy": "none",
    "reconnect.backoff.max.ms": 1_000,
    # a call of Python for each record would be slow
    "delivery.report.only.error": True,
}
#: How often, and how long each time, to wait for a newly created partition.
_LOOKS, _LOOK_S = 100, 0.1
#: How often per batch a fenced producer is replaced.
_ATTEMPTS = 3
#: Errors of the broker, or of the client before it sends, that a record causes.
_OF_A_RECORD = (
    "MSG_SIZE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "INVALID_RECORD",  # no key, in a compacted topic
    "INVALID_TIMESTAMP",
)

Place = tuple[str, int]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster and the names of copies; picklable, its repr shows no secret.

    ``client`` has librdkafka settings. ``group`` is the consumer group whose offsets for a copy's
    partitions are the next offsets of the originals.
    """

    client: tuple[tuple[str, str], ...] = field(repr=False)
    group: str
    topic_format: str = TOPIC_NAME
    creates: bool = True
    replication_factor: int = -1
    connector: str = ""
    own_cluster: OwnCluster | None = None
    #: The topics that the sink reads, or a pattern for them.
    topics: frozenset[str] = frozenset()
    pattern: str = ""

    def topic_of(self, topic: str) -> str:
        """The name of a topic's copy."""
        return self.topic_format.replace(TOPIC_NAME, topic)

    def transactional_id_of(self, topic: str, partition: int) -> str:
        """The transactional id of the producer for a partition."""
        return f"{self.group}-{topic}-{partition}"

    def check_group(self, cluster_id: str | None, topic: str = "", partition: int = 0) -> None:
        """Check the group, and the transactional id for a topic, at the cluster that was reached.

        Raises:
            ReservedError: The cluster is Drover's own, and they are not the connector's.
        """
        own = self.own_cluster
        if own is not None and own.is_at(cluster_id):
            refuse(own.group_fault(self.group, self.connector))
            named = self.transactional_id_of(topic, partition)
            refuse(own.transactional_id_fault(named, self.group, self.connector))

    def check_topic(self, cluster_id: str | None, topic: str) -> None:
        """Check the copy of a topic at the cluster that was reached.

        Raises:
            ReservedError: The cluster is Drover's own, and the copy is an internal topic, or one
                that the connector reads itself.
        """
        own = self.own_cluster
        if own is not None and own.is_at(cluster_id):
            copy = self.topic_of(topic)
            refuse(own.topics_fault([copy]))
            if copy in (self.topics or {topic}) or (
                self.pattern and compiled_pattern(self.pattern).matches(copy)
            ):
                refuse(
                    f"{topic} would be copied to {copy}, which the connector reads itself, because "
                    "the target cluster is Drover's own one: the copy must have another name"
                )


class _BadRecordsError(ClusterError):
    """The cluster refuses some records of a transaction, which has ended without effect."""


@dataclass(frozen=True)
class ClusterWriter:
    """Writes a batch; picklable, and receives all records in one call.

    Each partition has its own producer with a unique transactional id: initialising it fences an
    older producer and ends its transaction, and only then the committed offset is read. Of two
    tasks that write one partition, neither loses nor duplicates a record.

    ``output_ids`` has the ids of outputs after the first one of a topic partition. The metadata of
    a committed offset is the id of its output: an offset of another output is ignored.
    """

    target: Target
    output_ids: Mapping[TopicPartition, str] = field(default_factory=dict)
    tolerates: bool = False

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the number of records written, which are durable then, and the records that the
        cluster refuses.

        Raises:
            RefusedRecordError: The cluster refuses a record, and ``tolerates`` is false.
        """
        lanes = _lanes_of(self.target)
        written, refused = 0, list[RefusedRecord]()
        for batch in batches:
            for place, own in _by_place(batch):
                count, found = self._write(lanes, place, own)
                written += count
                refused += found
        yield answer(written, refused)

    def _write(
        self, lanes: "dict[Place, _Lane]", place: Place, batch: pa.RecordBatch
    ) -> "tuple[int, list[RefusedRecord]]":
        output_id = self.output_ids.get(TopicPartition(*place), "")
        for attempt in range(_ATTEMPTS):
            lane = lanes.pop(place, None)
            if lane is not None and lane.output_id != output_id:
                lane.let_go()
                lane = None
            try:
                if lane is None:
                    lane = _Lane(self.target, place, output_id)
                written, refused = lane.write(batch, tolerates=self.tolerates)
            except (ClusterError, RetriableError, RefusedRecordError) as error:
                # the next producer finds out whether the transaction was committed
                if lane is not None:
                    lane.let_go()
                if not _is_fenced(error) or attempt + 1 == _ATTEMPTS:
                    raise
                _log.info(
                    "%s-%d: the producer was fenced by another one and is replaced: %s",
                    *place,
                    error,
                )
            else:
                lanes[place] = lane
                return written, refused
        raise AssertionError("unreachable")


class _Lane:
    """The producer of a partition."""

    def __init__(self, target: Target, place: Place, output_id: str) -> None:
        from confluent_kafka import TopicPartition

        self._target = target
        self._origin, self._partition = place
        self.output_id = output_id
        self._topic = target.topic_of(self._origin)
        self._where = f"{self._topic}-{self._partition} of the target cluster"
        self._needs = needed_rights(
            dict(target.client),
            topic=f"Write, and Create if it does not exist, on the topic {self._topic}",
            group=f"Read on the consumer group {target.group}",
            transactional_id="Write on the transactional id "
            + target.transactional_id_of(self._origin, self._partition),
        )
        with translated_errors(self._where, needs=self._needs):
            self._open()
            try:
                self._offsets = _consumer_of(target)
                place_in_copy = TopicPartition(self._topic, self._partition)
                (found,) = self._committed([place_in_copy])
            except BaseException:
                self.let_go()
                raise
        self._next = next_offset_of(found, output_id)

    def _open(self) -> None:
        """Create the producer; its start ends an open transaction of an earlier one."""
        from confluent_kafka import Producer

        target = self._target
        named = {"transactional.id": target.transactional_id_of(self._origin, self._partition)}
        client = {**_PRODUCER_DEFAULTS, **_client_of(target), **named}
        self._producer: Producer = Producer(client)
        try:
            # before the transactional id is used: it fences another producer with the same id
            seen = self._producer.list_topics(timeout=TIMEOUT_S)
            target.check_group(seen.cluster_id, self._origin, self._partition)
            target.check_topic(seen.cluster_id, self._origin)
            self._prepare_topic(target, seen)
            self._bounded(self._producer.init_transactions, _TRANSACTION_S)
        except BaseException:
            self.let_go()
            raise

    def _committed(self, places: "list[confluent_kafka.TopicPartition]") -> Any:
        """The group's offsets. If the user may not read them, the client only times out."""
        from confluent_kafka import KafkaException

        try:
            return self._offsets.committed(places, timeout=TIMEOUT_S)
        except KafkaException as error:
            group = self._target.group
            if "READ" not in ClusterAccess(dict(self._target.client)).group(group):
                needed = self._needs["GROUP_AUTHORIZATION_FAILED"]
                raise ClusterError(f"{self._where}: {error.args[0].str()}: {needed}") from error
            raise

    def let_go(self) -> None:
        """Close the producer on another thread, because closing may block forever. Idempotent."""
        kept = [vars(self).pop("_producer", None)]
        threading.Thread(target=kept.clear, name="end of a producer", daemon=True).start()

    def write(
        self, batch: pa.RecordBatch, *, tolerates: bool = False
    ) -> tuple[int, list[RefusedRecord]]:
        """Write the records that are not written yet; returns their number, and the records that
        the cluster refuses.

        Raises:
            RefusedRecordError: The cluster refuses a record, and ``tolerates`` is false; the
                records before it are written.
        """
        offsets = batch.column(OFFSET).to_pylist()
        rows = range(sum(each < self._next for each in offsets), len(offsets))
        columns = [
            batch.column(name).slice(rows.start).to_pylist() for name in (KEY, VALUE, HEADERS)
        ]
        times = batch.column(TIMESTAMP).slice(rows.start).cast(pa.timestamp("ms", "UTC"))
        records = list(
            zip(*columns, times.cast(pa.int64()).to_pylist(), offsets[rows.start :], strict=True)
        )
        refused: list[RefusedRecord] = []
        for start in range(0, len(records), _TRANSACTION_RECORDS_MAX):
            part = records[start : start + _TRANSACTION_RECORDS_MAX]
            self._write_part(part, refused, tolerates=tolerates)
        return len(records) - len(refused), refused

    def _write_part(
        self,
        records: list[tuple[Any, ...]],
        refused: list[RefusedRecord],
        *,
        tolerates: bool,
    ) -> None:
        """Write records in one transaction; refused records are found by halving."""
        try:
            self._commit(records, records[-1][-1] + 1)
        except _BadRecordsError as error:
            if len(records) == 1:
                place = (self._origin, self._partition, records[0][-1])
                refused.append(RefusedRecord(*place, str(error)))
                if not tolerates:
                    raise RefusedRecordError(refused[-1]) from error
                return
            middle = len(records) // 2
            for half in (records[:middle], records[middle:]):
                self._write_part(half, refused, tolerates=tolerates)

    def _commit(self, records: list[tuple[Any, ...]], next_offset: int) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        faults: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            del message
            if error is not None and error.name() in _OF_A_RECORD:
                faults.append(error)

        with translated_errors(self._where, needs=self._needs):
            self._producer.begin_transaction()
            try:
                for key, value, headers, timestamp, _ in records:
                    self._produce(
                        key,
                        value,
                        headers=[(each["key"], each["value"]) for each in headers or ()],
                        timestamp=timestamp or 0,
                        on_delivery=delivered,
                    )
                position = TopicPartition(
                    self._topic, self._partition, next_offset, metadata=self.output_id
                )
                group = self._offsets.consumer_group_metadata()
                add = partial(self._producer.send_offsets_to_transaction, [position], group)
                self._bounded(add, _OFFSETS_S)
                self._bounded(self._producer.commit_transaction, _TRANSACTION_S)
            except KafkaException as error:
                found = [each for each in error.args[:1] if each.name() in _OF_A_RECORD]
                for _ in range(_REPORTS):
                    if found or faults:
                        break
                    self._producer.poll(_FULL_S)  # calls delivered()
                found += faults
                if not found:
                    raise
                # librdkafka cannot send offsets after it has aborted such a transaction
                self.let_go()
                self._open()
                text = f"{self._where} refuses it: {found[0].str()} ({found[0].name()})"
                raise _BadRecordsError(text) from error
        self._next = next_offset

    def _bounded(self, call: Callable[[float], object], timeout_s: float) -> None:
        """Run a call on another thread, which is abandoned if the call does not end.

        librdkafka loses requests to a coordinator that it drops, and then waits for the responses
        forever.
        """
        from confluent_kafka import KafkaException

        ended: Future[None] = Future()

        def run() -> None:
            try:
                call(timeout_s)
            except (KafkaException, SystemError) as error:
                ended.set_exception(error)
            else:
                ended.set_result(None)

        threading.Thread(target=run, name="call of a producer", daemon=True).start()
        try:
            ended.result(timeout_s + _LATE_S)
        except TimeoutError:
            raise RetriableError(
                f"{self._where}: no response within {timeout_s} s; the producer is replaced"
            ) from None

    def _produce(self, key: Any, value: Any, **more: Any) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, value=value, key=key, partition=self._partition, **more
                )
            except BufferError:
                self._producer.poll(_FULL_S)
            else:
                self._producer.poll(0)
                return

    def _prepare_topic(self, target: Target, seen: "ClusterMetadata") -> None:
        """Create the topic or partition if it is missing."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

        found = seen.topics.get(self._topic)
        count = 0 if found is None else len(found.partitions)
        if count > self._partition:
            return
        if not target.creates:
            raise ClusterError(
                f"the target cluster has no partition {self._partition} of {self._topic!r}: create "
                "it, or set topics.create"
            )
        admin = AdminClient(_client_of(target))
        wanted = self._partition + 1
        made = (
            admin.create_partitions([NewPartitions(self._topic, wanted)])
            if count
            else admin.create_topics(
                [NewTopic(self._topic, wanted, target.replication_factor)],
            )
        )
        try:
            made[self._topic].result(TIMEOUT_S)
        except KafkaException as error:
            others = (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS)
            if error.args[0].code() in others:  # another task created it first
                raise RetriableError(f"{self._where} is being created by another task") from error
            raise
        for _ in range(_LOOKS):
            now = self._producer.list_topics(self._topic, timeout=TIMEOUT_S).topics[self._topic]
            if len(now.partitions) > self._partition:
                return
            self._producer.poll(_LOOK_S)
        raise RetriableError(f"{self._where} was created, but no broker shows it yet")


#: The producers per target, kept in this process, which Spark reuses.
_lanes: dict[Target, dict[Place, _Lane]] = {}


def _lanes_of(target: Target) -> dict[Place, _Lane]:
    for other in [each for each in _lanes if each.group == target.group and each != target]:
        del _lanes[other]  # a previous config
    return _lanes.setdefault(target, {})


def _by_place(batch: pa.RecordBatch) -> Iterator[tuple[Place, pa.RecordBatch]]:
    """The records per topic partition, in order."""
    topics, partitions = batch.column(TOPIC), batch.column(PARTITION)
    pairs = pa.table({"t": topics, "p": partitions})
    places = pairs.group_by(["t", "p"], use_threads=False).aggregate([]).to_pylist()
    for each in places:
        own = batch
        if len(places) > 1:
            of_topic = pc.equal(topics, each["t"])
            own = batch.filter(pc.and_(of_topic, pc.equal(partitions, each["p"])))
        yield (each["t"], each["p"]), own


def _client_of(target: Target) -> dict[str, Any]:
    return {"client.id": "drover", **dict(target.client), "log_level": 0}


@lru_cache(maxsize=16)
def _consumer_of(target: Target) -> "Consumer":
    """A consumer for the group's offsets; it reads no records and joins no group."""
    from confluent_kafka import Consumer

    # a consumer warns about producer settings
    own = ("linger.ms", "batch.", "compression.", "acks", "queue.buffering.", "transaction.")
    client = {n: v for n, v in _client_of(target).items() if not n.startswith(own)}
    return Consumer({**client, "group.id": target.group, "isolation.level": "read_committed"})


def _is_fenced(error: Exception) -> bool:
    return any(
        each in str(error) for each in ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    )


def next_offset_of(found: "confluent_kafka.TopicPartition", output_id: str) -> int:
    """The next offset of an output, from a committed offset; 0 if it is another output's."""
    return max(found.offset, 0) if (found.metadata or "") == output_id else 0


def traced_offsets(
    target: Target, partitions: Mapping[TopicPartition, str]
) -> dict[TopicPartition, int]:
    """The next offsets of topic partitions, given with the ids of their outputs, that the group has
    committed for their copies.

    Raises:
        ClusterError: The cluster refuses it.
        RetriableError: The cluster is unreachable.
    """
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(_client_of(target))
    with translated_errors("the offsets of the target cluster"):
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(target.group)])
        found = asked[target.group].result(TIMEOUT_S).topic_partitions or []
    committed = {(each.topic, each.partition): each for each in found}
    traced = {}
    for key, output_id in partitions.items():
        own = committed.get((target.topic_of(key.topic), key.partition))
        offset = 0 if own is None else next_offset_of(own, output_id)
        if offset > 0:
            traced[key] = offset
    return traced


def set_back(target: Target, changes: Mapping[Place, int] | None) -> None:
    """Reset the written offsets of partitions, in their present outputs; None resets all.

    Raises:
        ClusterError: The cluster refuses it.
        RetriableError: The cluster is unreachable.
    """
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(_client_of(target))
    with translated_errors("the offsets of the target cluster"):
        target.check_group(admin.list_topics(timeout=TIMEOUT_S).cluster_id)
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(target.group)])
        found = asked[target.group].result(TIMEOUT_S).topic_partitions or []
        wanted = {
            (target.topic_of(topic), partition): offset
            for (topic, partition), offset in (changes or {}).items()
        }
        positions = [
            TopicPartition(
                each.topic,
                each.partition,
                wanted.get((each.topic, each.partition), 0),
                metadata=each.metadata or "",
            )
            for each in found
            if changes is None or (each.topic, each.partition) in wanted
        ]
        if not positions:
            return
        group = ConsumerGroupTopicPartitions(target.group, positions)
        answered = admin.alter_consumer_group_offsets([group])[target.group].result(TIMEOUT_S)
    for each in answered.topic_partitions or []:
        if each.error is not None and each.error.code() != KafkaError.NO_ERROR:
            raise ClusterError(f"{each.topic}-{each.partition}: {each.error.str()}")
