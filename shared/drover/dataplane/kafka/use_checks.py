"""Checks, before a connector runs, what the brokers would reject of it.

Nothing is created or changed. A check that the brokers do not answer is a SkippedCheck.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from drover.dataplane.kafka.clients import shared_client
from drover.dataplane.kafka.topics import new_topic
from drover.dataplane.topic_creation import READ, WRITE, PlannedTopic, PlannedUse, TopicRule
from drover.errors import Caution, SkippedCheck, Violation
from drover.log.kafka.aiokafka_client import can_reach
from drover.log.kafka.brokers import Coordinated, call, shared_brokers
from drover.log.kafka.client import SOCKET_TIMEOUT_MS, KafkaClient
from drover.log.kafka.errors import FORBIDDEN
from drover.log.kafka.new_topics import creation_fault
from drover.log.kafka.topics import OF_STORAGE, missing_part, own_offset_topic
from drover.log.storage import CLEANUP_POLICY, COMPACT, REPLICATION_FACTOR, KafkaStorage
from drover.model.config import OFFSETS_TOPIC_SETTING
from drover.model.ids import TaskId, producer_id
from drover.policy.kafka_users import ALL_OF_CLUSTER

_ALL_OF_TOPIC = frozenset({"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"})
_MIN_REPLICAS = "min.insync.replicas"
#: A valid name that no topic has: for rules of topics whose names are not known yet.
_UNNAMED = "drover-validation-of-a-new-topic"
_CLASS = "connector.class"
_SPELLED = {READ: "Read", WRITE: "Write"}
#: The time limit of the checks of one connector, whose requests have their own.
_LIMIT_S = 20.0


def use_faults(
    storage: KafkaStorage, use: PlannedUse, *, is_exactly_once: bool
) -> Sequence[Violation]:
    """What the brokers would reject of a connector's topics, group and transactions; blocks.

    Args:
        storage: The brokers, with the worker's user.
        use: The topics and the group.
        is_exactly_once: Whether sources write in transactions.
    """
    found: list[Violation] = []
    client = shared_client(storage)
    try:
        checks = _UseChecks(client, storage, use)
    except (KafkaException, TimeoutError) as error:
        return [_skipped("its topics and rights were not checked", client, error)]
    parts: list[tuple[str, Callable[[], Iterator[Violation]]]] = [
        ("its topics were not checked", lambda: checks.of_topics(is_exactly_once=is_exactly_once)),
        ("its rights on the consumer group were not checked", checks.of_group),
    ]
    if is_exactly_once and not use.group:
        what = "its rights on the transactional id were not checked"
        parts.append((what, checks.of_transactions))
    for what, check in parts:
        try:
            found += check()
        except (KafkaException, TimeoutError) as error:
            found.append(_skipped(what, client, error))
    return list(dict.fromkeys(found))


def _skipped(what: str, client: KafkaClient, error: KafkaException | TimeoutError) -> SkippedCheck:
    return SkippedCheck(_CLASS, client.translated(error, doing=what).message)


class _UseChecks:
    """The checks for one connector; raises KafkaException and TimeoutError."""

    def __init__(self, client: KafkaClient, storage: KafkaStorage, use: PlannedUse) -> None:
        self._client = client
        self._storage = storage
        self._use = use
        self._ends_s = time.monotonic() + _LIMIT_S
        operations, self._broker_count = client.cluster_operations_now()
        offsets = storage.topics.offset
        names = {offsets, use.offsets_topic, *(each.name for each in use.topics)} - {""}
        self._topics = client.topic_operations_now(names)
        of_offsets = self._topics.get(offsets)
        self._is_super_user = operations >= ALL_OF_CLUSTER and (
            of_offsets is None or of_offsets >= _ALL_OF_TOPIC
        )

    def of_topics(self, *, is_exactly_once: bool) -> Iterator[Violation]:
        """Faults of the topics."""
        planned = [*self._use.topics]
        offsets = self._offset_topics() if is_exactly_once and not self._use.group else []
        for each in (*planned, *offsets):
            found = self._topics.get(each.name)
            if found is None:
                yield from self._of_new(each)
            else:
                yield from self._of_existing(each, found)
        own = self._use.offsets_topic
        if is_exactly_once and own and own not in self._topics and not self._storage.topics.create:
            spec = own_offset_topic(self._storage, own)
            missing = missing_part(spec, None, self._storage.bootstrap_servers)
            yield Violation(OFFSETS_TOPIC_SETTING, f"cannot be used: {missing}")
        new = [each for each in planned if each.rule and each.name not in self._topics]
        yield from _collisions(new)

    def of_group(self) -> Iterator[Violation]:
        """The coordinator commits the offsets: its user may differ from the worker's."""
        group = self._use.group
        if not group or self._is_super_user:
            return
        if "READ" not in self._client.group_operations_now(group):
            yield Caution(
                _CLASS,
                f"{self._client.user} lacks the operation Read on the consumer group {group}: if "
                "the coordinator has the same user, it cannot commit the sink's offsets. "
                f"{self._remedy('Read', '--group', group)}",
            )

    def of_transactions(self) -> Iterator[Violation]:
        """A source's tasks write in transactions of their own ids."""
        if self._is_super_user:
            return
        storage = self._storage
        id_ = producer_id(storage.group_id, TaskId(self._use.connector, 0))
        if not can_reach(storage):
            yield SkippedCheck(
                _CLASS,
                f"whether {self._client.user} may write under the transactional id {id_} was not "
                "checked: the check does not support the client settings of DROVER_KAFKA_CONFIG",
            )
            return
        brokers = shared_brokers(storage, id_, request_timeout_ms=SOCKET_TIMEOUT_MS)
        try:
            # the brokers answer only users with Describe, which Write includes
            call(brokers.coordinator(id_, Coordinated.TRANSACTION), self._client.timeout_s)
        except KafkaException as error:
            if error.args[0].code() not in FORBIDDEN:
                raise
            yield Violation(
                _CLASS,
                f"{self._client.user} lacks the operation Write on the transactional id {id_}. "
                f"{self._remedy('Write', '--transactional-id', id_)}; or set "
                "DROVER_EXACTLY_ONCE_SOURCE_SUPPORT=disabled",
            )

    def _offset_topics(self) -> list[PlannedTopic]:
        storage = self._storage
        found = [PlannedTopic(_CLASS, storage.topics.offset, frozenset({WRITE}))]
        own = self._use.offsets_topic
        if own:
            spec = own_offset_topic(storage, own)
            settings = {CLEANUP_POLICY: COMPACT, **spec.settings}
            rule = TopicRule(spec.partition_count, spec.replication_factor, settings, OF_STORAGE)
            both = frozenset({READ, WRITE})
            created = rule if storage.topics.create else None
            found.append(PlannedTopic(OFFSETS_TOPIC_SETTING, own, both, created))
        return found

    def _of_existing(self, topic: PlannedTopic, allowed: frozenset[str]) -> Iterator[Violation]:
        for operation in sorted(topic.operations - allowed):
            spelled = _SPELLED[operation]
            unknown = "" if allowed else ", or the topic does not exist"
            yield Violation(
                topic.setting,
                f"needs the topic {topic.name}: {self._client.user} lacks the operation {spelled} "
                f"on it{unknown}. {self._remedy(spelled, '--topic', topic.name)}",
            )

    def _of_new(self, topic: PlannedTopic) -> Iterator[Violation]:
        rule = topic.rule
        if rule is None:
            return
        error = self._rejection(new_topic(topic.name or _UNNAMED, rule, rule.partition_count))
        if error is None:
            yield from self._of_replicas(topic, rule)
            yield from self._of_later_writes(topic)
        elif error.code() not in FORBIDDEN:
            yield from self._of_rejection(topic, rule, error)
        elif topic.name:
            yield Violation(
                topic.setting,
                f"needs the topic {topic.name}, which does not exist: {self._client.user} lacks "
                f"the operation Create on it. {self._remedy('Create', '--topic', topic.name)}; or "
                "create the topic",
            )

    def _of_rejection(
        self, topic: PlannedTopic, rule: TopicRule, error: KafkaError
    ) -> Iterator[Violation]:
        wanted = new_topic(topic.name or "in advance", rule, rule.partition_count)
        fault = creation_fault(error, wanted, rule.settings, broker_count=self._broker_count)
        of_connector = rule.settings is not OF_STORAGE
        if fault is None:
            yield SkippedCheck(
                topic.setting,
                f"whether the topic {topic.name} can be created was not checked: {error.str()}",
            )
        elif not topic.name:
            # all topics may exist, and a policy of the brokers may depend on names
            if fault.setting:
                text = f"{fault.text}: the brokers reject new topics of this connector"
                yield Caution(fault.setting, text)
        elif of_connector and fault.setting in rule.settings.values():
            yield Violation(fault.setting, fault.text)
        else:
            text = f"needs the topic {topic.name}, which cannot be created: {fault}"
            yield Violation(topic.setting, text)

    def _of_replicas(self, topic: PlannedTopic, rule: TopicRule) -> Iterator[Violation]:
        """Brokers of Kafka 4 write to such a topic with the replicas that it has."""
        least = rule.config.get(_MIN_REPLICAS, "")
        factor = rule.replication_factor or -1
        if least.isdecimal() and 0 < factor < int(least):
            yield Caution(
                rule.settings.get(_MIN_REPLICAS, topic.setting),
                f"is {least}, more than {rule.settings.get(REPLICATION_FACTOR)}={factor}: some "
                "versions of Kafka reject every record for such a topic",
            )

    def _of_later_writes(self, topic: PlannedTopic) -> Iterator[Violation]:
        if topic.name and topic.operations and not self._is_super_user:
            wanted = " and ".join(_SPELLED[each] for each in sorted(topic.operations))
            yield SkippedCheck(
                topic.setting,
                f"whether {self._client.user} has {wanted} on the topic {topic.name} was not "
                "checked: brokers answer this only for topics that exist",
            )

    def _rejection(self, topic: NewTopic) -> KafkaError | None:
        if time.monotonic() >= self._ends_s:
            raise TimeoutError
        try:
            self._client.make_topic_now(topic, dry_run=True)
        except KafkaException as error:
            return cast("KafkaError", error.args[0])
        return None

    def _remedy(self, operation: str, kind: str, name: str) -> str:
        return (
            "Grant it: kafka-acls.sh --bootstrap-server "
            f"{self._storage.bootstrap_servers} --add --allow-principal "
            f"{self._client.user} --operation {operation} {kind} {name}"
        )


def _collisions(topics: Sequence[PlannedTopic]) -> Iterator[Violation]:
    """New topics whose names differ in '.' and '_' only: brokers create the first one of them."""
    first: dict[str, str] = {}
    for each in topics:
        if each.name:
            other = first.setdefault(each.name.replace(".", "_"), each.name)
            if other != each.name:
                text = f"names {each.name}, which brokers reject beside the topic {other}"
                yield Violation(each.setting, f"{text}: the names differ in '.' and '_' only")
