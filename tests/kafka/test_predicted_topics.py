"""What brokers would reject of a connector's topics: validation and the run agree."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from drover.api.engine.v1 import engine_pb2
from drover.config.resolution import Resolution
from drover.connector.catalogue import PluginRegistry
from drover.connector.error_settings import ErrorSettings
from drover.connector.settings import parse_config
from drover.connector.topic_settings import source_topic_creation
from drover.connectors.files.lines.file_stream_source import FileStreamSource
from drover.dataplane.kafka.batch_producer import BatchProducer
from drover.dataplane.kafka.plane import KafkaPlane
from drover.dataplane.kafka.producing import RecordProducer
from drover.dataplane.kafka.reading import KafkaRangeReader
from drover.dataplane.plane import TransactionalWriter
from drover.dataplane.topic_creation import TopicCreation
from drover.dataplane.values import ReadRange
from drover.errors import DroverError, Reason
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId
from drover_worker.engine.plugins.validation import validate
from tests.support.asked import asked
from tests.support.kafka.acls import GROUP, TOPIC, TRANSACTIONAL_ID, Right, grant
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic, produce
from tests.support.kafka.coordinator_store import small_storage
from tests.support.kafka.fixtures import USERS

TASK = TaskId("lines", 0)
LETTERS = "errors.deadletterqueue.topic."
DEFAULT = "topic.creation.default."
ONE_OF_EACH = {f"{DEFAULT}partitions": "1", f"{DEFAULT}replication.factor": "1"}


def source(topic: str, **settings: str) -> dict[str, str]:
    base = {"connector.class": "FileStreamSource", "name": "lines", "file": "/f", "topic": topic}
    return {**base, **settings}


def sink(topic: str, **settings: str) -> dict[str, str]:
    base = {"connector.class": "FileStreamSink", "name": "lines", "file": "/f", "topics": topic}
    return {**base, **settings}


def with_letters(topic: str, **settings: str) -> dict[str, str]:
    return {"errors.tolerance": "all", f"{LETTERS}name": topic, **settings}


def answer_of(storage: KafkaStorage, config: dict[str, str]) -> engine_pb2.ConfigValidation:
    opened = partial(KafkaPlane, storage, staging_directory=Path("/not-used"))
    return validate(PluginRegistry(), Resolution(config, config), open_plane=asked(opened))


def faults_of(storage: KafkaStorage, config: dict[str, str]) -> dict[str, str]:
    """The errors by their settings."""
    found = answer_of(storage, config).values
    return {each.key.name: "; ".join(each.errors) for each in found if each.errors}


def told(error: DroverError) -> str:
    """The message of an error that an operator has to fix."""
    return error.message if error.reason is Reason.STORAGE_MISCONFIGURED else f"not that: {error}"


def written_with(storage: KafkaStorage, config: dict[str, str], topic: str) -> str:
    """The message of the run's write to a topic; empty if it succeeds."""
    parsed = parse_config(FileStreamSource, config).values
    creation = source_topic_creation(parsed, ErrorSettings.of(parsed))
    return written(storage, topic, creation)


def written(storage: KafkaStorage, topic: str, creation: TopicCreation) -> str:
    producer = RecordProducer(storage, topic=topic, creation=creation)
    try:
        list(producer(iter([pa.RecordBatch.from_pydict({"value": [b"v"]})])))
    except DroverError as error:
        return told(error)
    return ""


@pytest.fixture
def storage(kafka: Kafka, topic_prefix: str) -> KafkaStorage:
    return small_storage(kafka.bootstrap, topic_prefix)


@pytest.mark.parametrize("kind", [source, sink])
def test_a_dead_letter_topic_with_more_replicas_than_brokers_is_predicted(
    storage: KafkaStorage, topic_prefix: str, kind: Callable[..., dict[str, str]]
) -> None:
    letters, setting = f"{topic_prefix}dlq", f"{LETTERS}replication.factor"
    config = kind(f"{topic_prefix}t", **with_letters(letters))
    (found,) = faults_of(storage, config).items()
    assert found[0] == setting
    assert found[1].startswith("is 3, but the cluster has 1 broker: set it to at most 1")
    message = written_with(storage, source("t", **with_letters(letters)), letters)
    assert message == f"the topic {letters} cannot be created: {setting} {found[1]}"
    assert faults_of(storage, {**config, setting: "-1"}) == {}
    assert faults_of(storage, {**config, "errors.tolerance": "none"}) == {}, "it is not written"
    create_topic(storage.bootstrap_servers, letters)
    assert faults_of(storage, config) == {}, "an existing topic is used as it is"


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        (f"{DEFAULT}replication.factor", "2", "is 2, but the cluster has 1 broker"),
        (f"{DEFAULT}min.insync.replicas", "none", "is rejected by the brokers"),
        (f"{DEFAULT}cleanup.policy", "dlete", "String must be one of: compact, delete"),
        (f"{DEFAULT}no.such.setting", "1", "Unknown topic config name: no.such.setting"),
    ],
)
def test_settings_of_new_topics_that_brokers_reject_are_predicted(
    storage: KafkaStorage, topic_prefix: str, setting: str, value: str, text: str
) -> None:
    topic = f"{topic_prefix}t"
    config = source(topic, **{**ONE_OF_EACH, setting: value})
    (found,) = faults_of(storage, config).items()
    assert found[0] == setting
    assert text in found[1]
    assert f"{setting} {found[1]}" in written_with(storage, config, topic)


def test_of_topics_that_are_not_known_yet_the_rule_is_a_warning(storage: KafkaStorage) -> None:
    by_query = {"transforms": "q", "transforms.q.type": "Sql"}
    query = {"transforms.q.query": "SELECT value, key AS topic FROM batch"}
    setting = f"{DEFAULT}replication.factor"
    found = answer_of(
        storage, source("t", **{**ONE_OF_EACH, setting: "2", **by_query, **query})
    ).values
    warnings = {each.key.name: [*each.warnings] for each in found if each.warnings}
    assert not [each for each in found if each.errors]
    assert "the cluster has 1 broker" in warnings[setting][0]


def test_more_required_replicas_than_replicas_are_a_warning(
    storage: KafkaStorage, topic_prefix: str
) -> None:
    setting = f"{DEFAULT}min.insync.replicas"
    config = source(f"{topic_prefix}t", **{**ONE_OF_EACH, setting: "2"})
    (warned,) = [each for each in answer_of(storage, config).values if each.warnings]
    assert warned.key.name == setting
    assert "is 2, more than topic.creation.default.replication.factor=1" in warned.warnings[0]
    assert written_with(storage, config, f"{topic_prefix}t") == "", "Kafka 4 writes to it"


def test_a_topic_that_collides_with_an_existing_one_is_predicted(
    storage: KafkaStorage, topic_prefix: str
) -> None:
    create_topic(storage.bootstrap_servers, f"{topic_prefix}a.b")
    config = source(f"{topic_prefix}a_b")
    assert "collides with existing topic" in faults_of(storage, config)["topic"]
    assert "collides with existing topic" in written_with(storage, config, f"{topic_prefix}a_b")


def test_two_new_topics_that_collide_are_predicted(
    storage: KafkaStorage, topic_prefix: str
) -> None:
    letters = with_letters(f"{topic_prefix}c_d", **{f"{LETTERS}replication.factor": "1"})
    faults = faults_of(storage, source(f"{topic_prefix}c.d", **letters))
    assert "the names differ in '.' and '_' only" in faults["topic"]


def routed(replacement: str, **settings: str) -> dict[str, str]:
    return {
        "transforms": "r",
        "transforms.r.type": "RegexRouter",
        "transforms.r.regex": "(.*)",
        "transforms.r.replacement": replacement,
        **settings,
    }


@pytest.mark.parametrize(
    ("replacement", "text"),
    [("a b", "not 'a b'"), ("..", "must not be '..'"), ("$1" * 100, "1 to 249")],
)
def test_a_transform_that_gives_a_topic_an_invalid_name_is_predicted(
    storage: KafkaStorage, replacement: str, text: str
) -> None:
    (found,) = faults_of(storage, source("lines", **routed(replacement))).items()
    assert found[0] == "transforms"
    assert found[1].startswith("transforms.r (RegexRouter) renames the topic lines")
    assert text in found[1]


def test_the_rule_of_the_topic_after_the_transforms_counts(
    storage: KafkaStorage, topic_prefix: str
) -> None:
    create_topic(storage.bootstrap_servers, f"{topic_prefix}routed")
    creation = {**ONE_OF_EACH, f"{DEFAULT}replication.factor": "2"}
    existing = source("lines", **routed(f"{topic_prefix}routed", **creation))
    assert faults_of(storage, existing) == {}
    new = source("lines", **routed(f"{topic_prefix}new", **creation))
    assert "create the topic" in faults_of(storage, new)[f"{DEFAULT}replication.factor"]


def test_dead_letters_into_the_topic_of_the_records_are_rejected(storage: KafkaStorage) -> None:
    letters = with_letters("lines-dlq", **{f"{LETTERS}replication.factor": "1"})
    faults = faults_of(storage, source("lines", **routed("$1-dlq", **letters)))
    assert "to which the connector writes its records" in faults[f"{LETTERS}name"]


@pytest.mark.parametrize("kind", [source, sink])
def test_an_internal_topic_of_the_cluster_is_rejected(
    storage: KafkaStorage, kind: Callable[..., dict[str, str]]
) -> None:
    (fault,) = faults_of(storage, kind(storage.topics.config)).values()
    assert "an internal topic of the cluster" in fault
    letters = with_letters(storage.topics.status)
    (fault,) = faults_of(storage, kind("t", **letters)).values()
    assert "an internal topic of the cluster" in fault


def test_an_own_offsets_topic_with_more_replicas_than_brokers_is_predicted(
    storage: KafkaStorage, topic_prefix: str
) -> None:
    storage = replace(storage, topics=replace(storage.topics, replication_factor=3))
    config = source(f"{topic_prefix}t", **{"offsets.storage.topic": f"{topic_prefix}own"})
    (fault,) = faults_of(storage, config).values()
    assert "DROVER_STORAGE_REPLICATION_FACTOR is 3, but the cluster has 1 broker" in fault
    plane = KafkaPlane(storage, staging_directory=Path("/not-used"))
    writer = plane.writer(
        TASK,
        None,  # type: ignore[arg-type]  # the brokers know nothing of claims
        abandoned=lambda: False,
        check_claim=lambda: None,
        offsets_topic=f"{topic_prefix}own",
    )
    assert isinstance(writer, TransactionalWriter)
    with pytest.raises(DroverError, match="DROVER_STORAGE_REPLICATION_FACTOR is 3, but"):
        writer.starts([])
    writer.close()


def test_an_own_offsets_topic_that_must_not_be_created_is_predicted(
    storage: KafkaStorage, topic_prefix: str
) -> None:
    storage = replace(storage, topics=replace(storage.topics, create=False))
    config = source(f"{topic_prefix}t", **{"offsets.storage.topic": f"{topic_prefix}own"})
    (fault,) = faults_of(storage, config).values()
    assert f"the topic {topic_prefix}own is missing" in fault


def test_brokers_that_do_not_answer_are_a_skipped_check() -> None:
    away = KafkaStorage(bootstrap_servers="127.0.0.1:1", group_id="away")
    answer = answer_of(away, source("t"))
    assert not [each for each in answer.values if each.errors]
    (skipped,) = answer.skipped_checks
    assert "were not checked" in skipped.reason


# rights

OF_TASK: Right = (TRANSACTIONAL_ID, "cluster-lines-0", "WRITE")
#: A user with exactly the rights of a source and a sink, below the test's prefix.
RIGHTS: list[Right] = [
    (TOPIC, "t", "WRITE"),
    (TOPIC, "dlq", "WRITE"),
    (TOPIC, "new", "CREATE"),
    (TOPIC, "new", "WRITE"),
    (TOPIC, "in", "READ"),
    (TOPIC, "offsets", "WRITE"),
    (GROUP, "group", "READ"),
    OF_TASK,
]


def granted(broker: KafkaBroker, prefix: str, rights: Iterable[Right]) -> KafkaStorage:
    """A cluster whose user has these rights only."""
    grant(broker, [(kind, f"{prefix}{name}", operation) for kind, name, operation in rights])
    for topic in ("t", "dlq", "in", "offsets"):
        create_topic(broker.bootstrap, f"{prefix}{topic}")
    produce(broker.bootstrap, f"{prefix}in", [(None, b"v")])
    storage = small_storage(broker.sasl_bootstrap, prefix)
    return replace(storage, client_config=USERS.client_settings("drover"))


def of_source(prefix: str) -> dict[str, str]:
    return source(f"{prefix}t", **with_letters(f"{prefix}dlq"))


def of_new(prefix: str) -> dict[str, str]:
    return source(f"{prefix}new")


def of_sink(prefix: str) -> dict[str, str]:
    return sink(f"{prefix}in", **{"consumer.override.group.id": f"{prefix}group"})


def write_to(topic: str) -> Callable[[KafkaStorage, str], str]:
    def run(storage: KafkaStorage, prefix: str) -> str:
        return written_with(storage, source("t"), f"{prefix}{topic}")

    return run


def commit_offsets(storage: KafkaStorage, prefix: str) -> str:
    del prefix
    producer = BatchProducer(storage, TASK)
    try:
        producer.init()
        producer.produce([])
        producer.add_offsets([(b"k", b"v", "")])
        producer.commit()
    except DroverError as error:
        return told(error)
    finally:
        producer.close()
    return ""


def read_from(storage: KafkaStorage, prefix: str) -> str:
    plane = KafkaPlane(storage)
    try:
        plane.plan_read({(f"{prefix}in", 0): 0}, max_records=1, max_bytes=1)
        ranges = (ReadRange(f"{prefix}in", 0, 0, 1, 0),)
        list(KafkaRangeReader(storage, (ranges,))(0))
    except DroverError as error:
        return told(error)
    return ""


@pytest.mark.parametrize(
    ("lacking", "config", "setting", "run"),
    [
        ((TOPIC, "t", "WRITE"), of_source, "topic", write_to("t")),
        ((TOPIC, "dlq", "WRITE"), of_source, f"{LETTERS}name", write_to("dlq")),
        ((TOPIC, "new", "CREATE"), of_new, "topic", write_to("new")),
        ((TOPIC, "new", "WRITE"), of_new, "topic", write_to("new")),
        ((TOPIC, "in", "READ"), of_sink, "topics", read_from),
        ((TOPIC, "offsets", "WRITE"), of_source, "connector.class", commit_offsets),
        (
            (TRANSACTIONAL_ID, "cluster-lines-0", "WRITE"),
            of_source,
            "connector.class",
            commit_offsets,
        ),
    ],
    ids=lambda value: "-".join(map(str, value[1:])) if isinstance(value, tuple) else "",
)
def test_a_user_who_lacks_one_right_is_predicted_and_named(
    mortal_broker: KafkaBroker,
    topic_prefix: str,
    lacking: Right,
    config: Callable[[str], dict[str, str]],
    setting: str,
    run: Callable[[KafkaStorage, str], str],
) -> None:
    rights = [each for each in RIGHTS if each != lacking]
    storage = granted(mortal_broker, topic_prefix, rights)
    _, name, operation = lacking
    (found,) = faults_of(storage, config(topic_prefix)).items()
    assert found[0] == setting
    assert f"{topic_prefix}{name}" in found[1]
    assert f"User:drover lacks the operation {operation.capitalize()} on" in found[1]
    assert f"--operation {operation.capitalize()}" in found[1]
    message = run(storage, topic_prefix)
    assert "Add an ACL that allows User:drover the operation" in message
    assert f"{topic_prefix}{name}" in message


def test_a_user_with_exactly_the_needed_rights_has_no_faults(
    mortal_broker: KafkaBroker, topic_prefix: str
) -> None:
    storage = granted(mortal_broker, topic_prefix, RIGHTS)
    for config in (of_source, of_new, of_sink):
        answer = answer_of(storage, config(topic_prefix))
        assert not [each for each in answer.values if each.errors or each.warnings]
    assert [write_to(each)(storage, topic_prefix) for each in ("t", "dlq", "new")] == ["", "", ""]
    assert commit_offsets(storage, topic_prefix) == ""
    assert read_from(storage, topic_prefix) == ""


def test_that_a_user_may_write_to_a_topic_to_be_created_is_a_skipped_check(
    mortal_broker: KafkaBroker, topic_prefix: str
) -> None:
    storage = granted(mortal_broker, topic_prefix, RIGHTS)
    (skipped,) = answer_of(storage, of_new(topic_prefix)).skipped_checks
    assert skipped.setting == "topic"
    assert "brokers answer this only for topics that exist" in skipped.reason


def test_a_user_who_may_not_use_the_sinks_group_is_warned(
    mortal_broker: KafkaBroker, topic_prefix: str
) -> None:
    rights = [each for each in RIGHTS if each[0] is not GROUP]
    storage = granted(mortal_broker, topic_prefix, rights)
    warned = [each for each in answer_of(storage, of_sink(topic_prefix)).values if each.warnings]
    (text,) = [text for each in warned for text in each.warnings]
    assert f"lacks the operation Read on the consumer group {topic_prefix}group" in text
