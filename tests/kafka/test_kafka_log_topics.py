"""Topics that are misconfigured, deleted, truncated, owned by another cluster, or forbidden."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from drover.errors import InvalidArgumentError, Reason
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.control import ControlTopic
from drover.log.kafka.log import KafkaLog, KafkaLogSpec
from drover.log.kafka.topics import (
    config_topic,
    control_topic,
    ensure_topics,
    offset_topic,
    own_offset_topic,
    status_topic,
)
from drover.log.log import LogRecord
from drover.log.storage import KafkaStorage
from drover.model.ids import Term
from drover.testing import raises_reason, read_all
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic, produce
from tests.support.kafka.fixtures import USERS
from tests.support.kafka.following import Following
from tests.support.kafka.logs import LogOnKafka, storage_on
from tests.support.waiting import wait_until, wait_until_async

COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture
def storage(kafka: Kafka, topic_prefix: str) -> KafkaStorage:
    return storage_on(kafka.bootstrap, topic_prefix)


@pytest.fixture
async def client(storage: KafkaStorage) -> AsyncIterator[KafkaClient]:
    client = KafkaClient(storage, timeout_s=30)
    yield client
    await client.close()


@pytest.fixture
async def opened(kafka: Kafka, topic_prefix: str) -> AsyncIterator[LogOnKafka]:
    async with LogOnKafka.opened(kafka.bootstrap, topic_prefix) as opened:
        yield opened


# required topic settings


async def test_missing_topics_are_made_once(client: KafkaClient) -> None:
    storage = client.storage
    specs = [
        config_topic(storage),
        offset_topic(storage),
        status_topic(storage),
        control_topic(storage, 3),
    ]
    made, *again = await asyncio.gather(*(ensure_topics(client, specs) for _ in range(3)))
    assert [state.partition_count for state in made.values()] == [1, 25, 5, 7]
    assert again == [made, made]
    assert await ensure_topics(client, [control_topic(storage)]) == {
        storage.topics.control: made[storage.topics.control]
    }


async def test_the_control_topic_grows_when_the_number_of_shards_is_known(
    client: KafkaClient,
) -> None:
    control = await ControlTopic.open(client)
    await control.close()
    control = await ControlTopic.open(client, group_shards=4)
    await control.close()
    state = await client.describe_topic(control.topic)
    assert state is not None
    assert state.partition_count == 9


async def test_topics_that_must_not_be_made_are_named_with_the_commands_that_make_them(
    storage: KafkaStorage, kafka: Kafka
) -> None:
    storage = replace(storage, topics=replace(storage.topics, create=False))
    client = KafkaClient(storage, timeout_s=30)
    specs = [config_topic(storage), own_offset_topic(storage, f"{storage.topics.offset}-own")]
    try:
        for spec in specs:
            with raises_reason(
                Reason.STORAGE_MISCONFIGURED,
                "DROVER_STORAGE_CREATE_TOPICS",
                f"--create --topic {spec.name} --partitions {spec.partition_count} "
                "--config cleanup.policy=compact",
            ):
                await ensure_topics(client, [spec])
            assert await client.describe_topic(spec.name) is None
            count = spec.partition_count
            create_topic(kafka.bootstrap, spec.name, partitions=count, config=COMPACTED)
        create_topic(kafka.bootstrap, storage.topics.control, partitions=3, config=COMPACTED)
        assert len(await ensure_topics(client, specs)) == 2
        with raises_reason(Reason.STORAGE_MISCONFIGURED, "--alter", "--partitions 9"):
            await ensure_topics(client, [control_topic(storage, 4)])
        assert (await ensure_topics(client, [control_topic(storage, 1)])).keys() == {
            storage.topics.control
        }
    finally:
        await client.close()


async def test_a_config_topic_of_several_partitions_is_refused(
    client: KafkaClient, kafka: Kafka
) -> None:
    topic = client.storage.topics.config
    create_topic(kafka.bootstrap, topic, partitions=3, config=COMPACTED)
    with raises_reason(
        Reason.STORAGE_MISCONFIGURED, topic, "3 partitions", "kafka-topics.sh", kafka.bootstrap
    ):
        await ensure_topics(client, [config_topic(client.storage)])


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_a_topic_that_loses_records_is_refused(
    client: KafkaClient, kafka: Kafka, policy: str
) -> None:
    topics = client.storage.topics
    for topic in (topics.offset, topics.status):
        create_topic(kafka.bootstrap, topic, partitions=2, config={"cleanup.policy": policy})
    with raises_reason(
        Reason.STORAGE_MISCONFIGURED,
        f"kafka-configs.sh --bootstrap-server {kafka.bootstrap}",
        f"--entity-name {topics.offset} --add-config cleanup.policy=compact",
        f"--entity-name {topics.status} --add-config cleanup.policy=compact",
    ):
        await ensure_topics(client, [offset_topic(client.storage), status_topic(client.storage)])


async def test_more_replicas_than_brokers_are_told(client: KafkaClient) -> None:
    spec = replace(config_topic(client.storage), replication_factor=9)
    with raises_reason(Reason.STORAGE_MISCONFIGURED, spec.name, "REPLICATION_FACTOR is 9"):
        await ensure_topics(client, [spec])


async def test_a_log_in_a_topic_that_is_not_there_is_refused(
    opened: LogOnKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.log.kafka.topics.LOOKS", 3)
    for spec in (KafkaLogSpec(topic="not-there"), replace(opened.spec, partitions=[1])):
        with raises_reason(Reason.STORAGE_MISCONFIGURED, spec.topic):
            await KafkaLog.open(opened.client, opened.control, spec, opened.clock)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"bogus": "1"}, ["bogus"]),
        ({"socket.timeout.ms": "soon"}, ["socket.timeout.ms"]),
        ({"group.id": "x", "acks": "1"}, ["group.id", "acks"]),
    ],
)
def test_client_settings_that_cannot_be_are_refused(
    storage: KafkaStorage, config: dict[str, str], words: Sequence[str]
) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        KafkaClient(replace(storage, client_config=config))
    assert raised.value.reason is Reason.INVALID_CONFIG
    for word in ("DROVER_KAFKA_CONFIG", *words):
        assert word in str(raised.value)


# owners of topics


async def test_the_first_process_says_whose_the_topics_are(opened: LogOnKafka) -> None:
    control, group_id = opened.control, opened.client.storage.group_id
    await asyncio.gather(*(control.check_cluster(group_id, None) for _ in range(3)))
    assert control.value("cluster") == b'{"format":1,"group_id":"%s"}' % group_id.encode()
    await control.check_cluster(group_id, 4)
    await control.check_cluster(group_id, None)
    expected = b'{"format":1,"group_id":"%s","group_shards":4}' % group_id.encode()
    assert control.value("cluster") == expected
    with raises_reason(Reason.STORAGE_MISCONFIGURED, "DROVER_GROUP_SHARDS is 5", "4 shards"):
        await control.check_cluster(group_id, 5)
    with raises_reason(Reason.STORAGE_OWNED, "'another'", group_id, "DROVER_GROUP_ID"):
        await control.check_cluster("another", None)


async def test_of_two_clusters_that_start_at_once_one_is_refused(
    kafka: Kafka, topic_prefix: str, opened: LogOnKafka
) -> None:
    async with LogOnKafka.opened(kafka.bootstrap, topic_prefix) as other:
        outcomes = await asyncio.gather(
            opened.control.check_cluster("one", None),
            other.control.check_cluster("two", None),
            return_exceptions=True,
        )
    (refused,) = [each for each in outcomes if each is not None]
    assert getattr(refused, "reason", None) is Reason.STORAGE_OWNED


@pytest.mark.parametrize("value", [b'{"format":2,"group_id":"g"}', b"{", b'{"format":1}'])
async def test_a_cluster_record_of_another_version_is_refused(
    opened: LogOnKafka, kafka: Kafka, value: bytes
) -> None:
    control = opened.control
    await asyncio.to_thread(produce, kafka.bootstrap, control.topic, [(b"cluster", value)])
    with raises_reason(Reason.LOG_CORRUPT, control.topic, "'cluster'"):
        await control.check_cluster("g", None)


async def test_a_claim_that_cannot_be_read_is_told(opened: LogOnKafka, kafka: Kafka) -> None:
    key = f"claim:{opened.spec.topic}:0"
    topic = opened.control.topic
    await asyncio.to_thread(produce, kafka.bootstrap, topic, [(key.encode(), b'{"owner":"x"}')])
    with raises_reason(Reason.LOG_CORRUPT, key, opened.control.topic):
        await opened.log.claim("w", Term(1, 1))
    await asyncio.to_thread(produce, kafka.bootstrap, topic, [(key.encode(), None)])
    assert await opened.log.claim("w", Term(1, 1)) == 1


# lost records


def do(bootstrap: str, what: Callable[[AdminClient], Mapping[Any, Future[Any]]]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for asked in what(admin).values():
        asked.result(60)


async def done(bootstrap: str, what: Callable[[AdminClient], Mapping[Any, Future[Any]]]) -> None:
    await asyncio.to_thread(do, bootstrap, what)


async def delete_before(kafka: Kafka, topic: str, offset: int) -> None:
    """Brokers delete records only where the cleanup policy permits it."""
    policy = ConfigEntry(
        "cleanup.policy",
        "delete",
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
    place = TopicPartition(topic, 0, offset)
    await done(kafka.bootstrap, lambda admin: admin.incremental_alter_configs([resource]))

    async def is_deleted() -> bool:
        try:
            await done(kafka.bootstrap, lambda admin: admin.delete_records([place]))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                raise
            return False  # the new policy is not effective yet
        return True

    await wait_until_async(is_deleted)


async def make_again(kafka: Kafka, topic: str) -> None:
    await done(kafka.bootstrap, lambda admin: admin.delete_topics([topic]))

    async def made() -> bool:
        try:
            await asyncio.to_thread(create_topic, kafka.bootstrap, topic, config=COMPACTED)
        except Exception as error:
            if "TOPIC_ALREADY_EXISTS" not in str(error):
                raise
            return False
        return True

    await wait_until_async(made)


async def test_a_tail_behind_a_truncation_is_told_what_is_gone(
    opened: LogOnKafka, kafka: Kafka
) -> None:
    topic = opened.spec.topic
    for number in range(10):
        await opened.log.append([LogRecord(b"%d" % number, b"v")])
    await delete_before(kafka, topic, 6)
    following = Following(opened.log, 3)
    await asyncio.wait([following.task], timeout=60)
    error = following.task.exception()
    assert getattr(error, "reason", None) is Reason.LOG_CORRUPT
    assert getattr(error, "metadata", {}) == {"topic": topic, "partition": "0", "offset": "3"}
    # a reopened log reads the remaining records
    log = await opened.open()
    assert [one.offset for one in await read_all(log)] == [6, 7, 8, 9]
    assert await log.append([LogRecord(b"k", b"v")]) == 11


@pytest.mark.parametrize("record_count", [0, 9], ids=["shorter", "longer"])
async def test_a_topic_that_was_made_again_is_told(
    opened: LogOnKafka, kafka: Kafka, record_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.log.kafka.reader.TOPIC_CHECK_S", 0.5)
    topic = opened.spec.topic
    following = Following(opened.log)
    for number in range(3):
        await opened.log.append([LogRecord(b"%d" % number, b"v")])
    await following.brings([b"0", b"1", b"2"])
    await make_again(kafka, topic)
    written = [(b"%d" % number, b"new") for number in range(record_count)]
    await asyncio.to_thread(produce, kafka.bootstrap, topic, written)
    await asyncio.wait([following.task], timeout=60)
    error = following.task.exception()
    assert getattr(error, "reason", None) is Reason.LOG_CORRUPT
    assert topic in str(error)


async def test_a_topic_that_was_deleted_is_told(
    opened: LogOnKafka, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.log.kafka.reader.TOPIC_CHECK_S", 0.5)
    following = Following(opened.log)
    await opened.log.append([LogRecord(b"a", b"v")])
    await following.brings([b"a"])
    await done(kafka.bootstrap, lambda admin: admin.delete_topics([opened.spec.topic]))
    await asyncio.wait([following.task], timeout=60)
    error = following.task.exception()
    assert getattr(error, "reason", None) is Reason.LOG_CORRUPT
    assert "deleted" in str(error)


# users


WHATEVER: Any = None
ANY_ACL = AclBindingFilter(
    ResourceType.ANY,
    WHATEVER,
    ResourcePatternType.ANY,
    WHATEVER,
    WHATEVER,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


@pytest.fixture
def guarded(mortal_broker: KafkaBroker, topic_prefix: str) -> KafkaBroker:
    """A broker where user ``drover`` has a cluster's permissions, and ``eve`` has none."""
    broker = mortal_broker
    allowed = [
        (ResourceType.TOPIC, topic_prefix, ("READ", "WRITE", "CREATE", "DESCRIBE_CONFIGS")),
        (ResourceType.TRANSACTIONAL_ID, f"connect-cluster-{topic_prefix}", ("WRITE",)),
        (ResourceType.TRANSACTIONAL_ID, f"drover-cluster-{topic_prefix}", ("WRITE",)),
        (ResourceType.GROUP, topic_prefix, ("READ",)),
    ]
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.PREFIXED,
            "User:drover",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for kind, name, operations in allowed
        for operation in operations
    ]
    do(broker.bootstrap, lambda admin: admin.create_acls(bindings))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    wait_until(
        lambda: {*admin.describe_acls(ANY_ACL).result(60)} >= {*bindings},
        describe="the broker knows all ACLs",
    )
    return broker


async def test_settings_are_passed_through_and_acls_are_heeded(
    guarded: KafkaBroker, topic_prefix: str
) -> None:
    async with LogOnKafka.opened(
        guarded.sasl_bootstrap, topic_prefix, client_config=USERS.client_settings("drover")
    ) as opened:
        await opened.control.check_cluster(opened.client.storage.group_id, 2)
        following = Following(opened.log)
        epoch = await opened.log.claim("w", Term(1, 1))
        await opened.log.append([LogRecord(b"a", b"v")], epoch)
        await opened.log.append([LogRecord(b"b", b"v")])
        await following.brings([b"a", b"b"])
        # a log whose transactional id no ACL permits
        spec = replace(opened.spec, transactional_id="forbidden")
        log = await KafkaLog.open(opened.client, opened.control, spec, opened.clock)
        with raises_reason(Reason.STORAGE_MISCONFIGURED, "forbidden", "ACL"):
            await log.claim("w", Term(2, 1))
        await log.close()

        eve = KafkaClient(
            replace(opened.client.storage, client_config=USERS.client_settings("eve"))
        )
        spec = opened.spec
        with raises_reason(Reason.STORAGE_MISCONFIGURED, spec.topic, "ACL"):
            await ensure_topics(eve, [config_topic(eve.storage)])
        with raises_reason(Reason.STORAGE_MISCONFIGURED, spec.topic, "ACL"):
            await KafkaLog.open(eve, opened.control, spec, opened.clock)
        await eve.close()
