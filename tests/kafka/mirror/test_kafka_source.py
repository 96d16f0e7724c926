"""Topics of a real Kafka cluster, copied with all fields of their records."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from drover.connector import ConnectorContext, RetriableError, SourceTaskContext, TopicRule
from drover.connector.offsets import source_offsets
from drover.connector.settings import parse_config, task_config
from drover.connector.task import TaskFigures
from drover.connectors.kafka.cluster import ClusterError
from drover.connectors.kafka.source import KafkaSource, KafkaSourceTask, parsed_places
from drover.model.ids import TaskId, Term
from tests.spark.pipeline import Pipeline
from tests.support.docs_examples import config_of
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import QUIET, create_topic
from tests.support.kafka.fixtures import USERS
from tests.support.kafka.tokens import token_issuer
from tests.support.waiting import wait_until

Row = dict[str, Any]
#: In the past, but recent enough for the broker's retention.
SOME_TIME_MS = int(time.time() * 1_000) - 3_600_000


def raw(kafka: Kafka, topics: str, **changed: str) -> dict[str, str]:
    return {
        "name": "mirror",
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.bootstrap.servers": kafka.bootstrap,
        "source.cluster.alias": "east",
        "topics": topics,
        **changed,
    }


def send(kafka: Kafka, topic: str, values: Sequence[bytes | None], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **QUIET})
    for each in values:
        producer.produce(topic, each, **more)
    assert producer.flush(30) == 0


def recreate(kafka: Kafka, topic: str, values: Sequence[bytes], *, partitions: int = 1) -> None:
    """Delete a topic, and create another one of its name with some records."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)

    def created() -> bool:
        try:
            create_topic(kafka.bootstrap, topic, partitions=partitions)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":  # it is being deleted
                raise
            return False
        return True

    wait_until(created)
    send(kafka, topic, values, partition=0)


class Copy:
    """One task over committed records, without an engine."""

    def __init__(self, config: dict[str, str]) -> None:
        self._config = config
        self._committed: dict[str, Any] = {}
        self.rows: list[Row] = []
        self.figures = TaskFigures()
        self.restart()

    def restart(self) -> None:
        """Restart the task as after a crash."""
        connector = KafkaSource()
        values = parse_config(KafkaSource, self._config).require_valid()
        connector.start(ConnectorContext("mirror"), values)
        (own,) = connector.task_configs(1)
        connector.stop()
        self.own = own
        self.task = KafkaSourceTask()
        self.task.start(
            SourceTaskContext(
                task=TaskId("mirror", 0),
                claim=Term(1, 1),
                config=task_config(KafkaSource, self._config, own),
                spark=None,  # type: ignore[arg-type]
                committed=list(self._committed.values()),
                report=self.figures.report,
            )
        )

    def step(self, *, commits: bool = True) -> list[Row]:
        batch = self.task.poll()
        if batch is None:
            return []
        rows: list[Row] = batch.frame.to_pylist()  # type: ignore[operator,union-attr]
        if commits:
            self._committed |= {each.partition_json: each for each in source_offsets(batch.offsets)}
            self.rows += rows
        return rows

    def run_until(self, count: int) -> list[Row]:
        def copied() -> bool:
            self.step()
            return len(self.rows) >= count

        wait_until(copied, describe=lambda: f"{len(self.rows)} of {count}")
        return self.rows

    def poll_until(self, done: Callable[[], bool]) -> None:
        """Poll until a condition is met; retriable errors are retried, as in an engine."""

        def is_done() -> bool:
            with suppress(RetriableError):
                self.step()
            return done()

        wait_until(is_done, describe=lambda: [each["value"] for each in self.rows])

    @property
    def values(self) -> list[bytes]:
        return [each["value"] for each in self.rows]

    @property
    def recreated_count(self) -> int:
        return self.figures.values().get("recreated_topic_count", 0)

    def offsets(self) -> list[dict[str, Any]]:
        """The values of the committed offsets."""
        return [json.loads(each.offset_json) for each in self._committed.values()]

    def without_ids(self) -> None:
        """Give the committed offsets the form of MirrorMaker."""
        for place, each in self._committed.items():
            value = {"offset": json.loads(each.offset_json)["offset"]}
            self._committed[place] = replace(each, offset_json=json.dumps(value))

    def close(self) -> None:
        self.task.stop()


def test_records_keep_all_that_they_have(
    kafka: Kafka, topic_prefix: str, pipeline: Pipeline
) -> None:
    topic = f"{topic_prefix}orders"
    create_topic(kafka.bootstrap, topic, partitions=3)
    headers: list[tuple[str, Any]] = [("a", b"1"), ("a", b"\xff"), ("none", None)]
    send(
        kafka, topic, [b"one", None], key=b"k", partition=2, headers=headers, timestamp=SOME_TIME_MS
    )
    send(kafka, topic, [b"two"], partition=0)
    running = pipeline.start_source(KafkaSource, raw(kafka, topic))
    target = f"east.{topic}"

    def copied() -> bool:
        running.step()
        return pipeline.store.end_offsets(target) == {0: 1, 1: 0, 2: 2}

    running.partition_count = 3
    wait_until(copied, describe=lambda: pipeline.store.end_offsets(target))
    copy = Copy(raw(kafka, topic))
    rows = sorted(copy.run_until(3), key=lambda each: (each["partition"], each["value"] or b"~"))
    copy.close()
    assert [(each["partition"], each["key"], each["value"]) for each in rows] == [
        (0, None, b"two"),
        (2, b"k", b"one"),
        (2, b"k", None),
    ]
    assert [(each["key"], each["value"]) for each in rows[1]["headers"]] == headers
    assert rows[0]["headers"] is None
    assert rows[1]["timestamp"].timestamp() == SOME_TIME_MS / 1_000
    assert copy.own["task.partitions"] == f"{topic}:0,1,2"


def test_a_task_goes_on_behind_what_was_committed(kafka: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}lines"
    create_topic(kafka.bootstrap, topic, partitions=2)
    for partition in (0, 1):
        values = [b"%d-%d" % (partition, n) for n in range(500)]
        send(kafka, topic, values, partition=partition)
    copy = Copy(raw(kafka, topic, **{"batch.max.records": "130"}))
    for turn in range(6):
        copy.run_until(100 * turn)
        wait_until(lambda: copy.step(commits=False))  # read, and killed before the commit
        copy.close()
        copy.restart()
    assert 0 < copy.figures.values()["lag_count"] <= 870
    copy.run_until(1_000)
    assert copy.figures.values()["lag_count"] == 0
    copy.close()
    for partition in (0, 1):
        own = [each["value"] for each in copy.rows if each["partition"] == partition]
        assert own == [b"%d-%d" % (partition, n) for n in range(500)]


def test_records_of_transactions_that_were_aborted_are_not_copied(
    kafka: Kafka, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}paid"
    create_topic(kafka.bootstrap, topic)
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, **QUIET}
    producer = Producer(settings)
    producer.init_transactions(30)
    for value, good in ((b"first", True), (b"never", False), (b"last", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(30) == 0
        if good:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    copy = Copy(raw(kafka, topic))
    assert [each["value"] for each in copy.run_until(2)] == [b"first", b"last"]
    copy.close()
    copy.restart()
    send(kafka, topic, [b"more"])
    assert copy.run_until(3)[2]["value"] == b"more"
    copy.close()


def test_copies_are_called_as_the_policy_says(kafka: Kafka, topic_prefix: str) -> None:
    # east. is a name that users gave to a topic; west. came from the target cluster
    for name in ("{}a", "{}b", "{}b.internal", "east.{}a", "west.{}a", "north.west.{}a"):
        create_topic(kafka.bootstrap, name.format(topic_prefix))
        send(kafka, name.format(topic_prefix), [b"x"])
    pattern = f".*{topic_prefix}.*"
    alias = {"target.cluster.alias": "west"}
    same = {"replication.policy.class": "IdentityReplicationPolicy", "topics.exclude": ".*b"}
    for changed, wanted in (
        ({"replication.policy.separator": "_"}, {"east_{}a", "east_{}b", "east_east.{}a"}),
        ({}, {"east.{}a", "east.{}b", "east.east.{}a"}),
        (same, {"{}a", "east.{}a", "west.{}a", "north.west.{}a"}),
    ):
        config = raw(kafka, pattern, **{"topics.exclude": ".*x", **alias, **changed})
        if "replication.policy.separator" in changed:
            config |= {"topics.exclude": "(north.)?west.*"}
        copy = Copy(config)
        copy.run_until(len(wanted))
        copy.close()
        assert {each["topic"] for each in copy.rows} == {
            each.format(topic_prefix) for each in wanted
        }


def test_records_that_retention_removed_are_told(kafka: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}short"
    create_topic(kafka.bootstrap, topic)
    send(kafka, topic, [b"0", b"1", b"2", b"3"])
    copy = Copy(raw(kafka, topic, **{"batch.max.records": "1"}))
    copy.run_until(1)
    copy.close()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    for future in admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        future.result(30)
    with pytest.raises(ClusterError, match=r"2 records were removed .* set lost\.records=earliest"):
        copy.restart()
    copy._config["lost.records"] = "earliest"
    copy.restart()
    assert copy.run_until(2)[1]["value"] == b"3"
    copy.close()


OLD = [b"o0", b"o1", b"o2"]


@pytest.mark.parametrize("count", [0, 1, 3, 5], ids=["none", "fewer", "equal", "more"])
@pytest.mark.parametrize("when", ["running", "stopped"])
def test_a_topic_that_is_created_again_is_copied_from_its_start(
    kafka: Kafka, topic_prefix: str, when: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    topic, other = f"{topic_prefix}again", f"{topic_prefix}steady"
    for name in (topic, other):
        create_topic(kafka.bootstrap, name)
        send(kafka, name, OLD)
    latest = {"consumer.auto.offset.reset": "latest"} if when == "stopped" and count == 5 else {}
    copy = Copy(raw(kafka, f"{topic_prefix}.*"))
    copy.run_until(6)
    new = [b"n%d" % n for n in range(count)]
    if when == "stopped":
        copy.close()
    recreate(kafka, topic, new)
    send(kafka, other, [b"more"])
    if when == "stopped":
        copy._config |= latest
        copy.restart()
    copy.poll_until(lambda: len(copy.rows) == 7 + count and copy.recreated_count == 1)
    send(kafka, topic, [b"last"])
    copy.poll_until(lambda: len(copy.rows) == 8 + count)
    assert [row["value"] for row in copy.rows if row["topic"] == f"east.{topic}"] == [
        *(*OLD, *new, b"last")
    ]
    assert [row["value"] for row in copy.rows if row["topic"] == f"east.{other}"] == [*OLD, b"more"]
    assert f"topic {topic} of cluster east was deleted and created again" in caplog.text
    copy.close()
    copy.restart()
    assert copy.step() == []
    copy.close()


def test_a_topic_that_is_created_again_twice_and_a_kill_before_the_commit(
    kafka: Kafka, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}twice"
    create_topic(kafka.bootstrap, topic, partitions=2)
    for partition in (0, 1):
        send(kafka, topic, OLD, partition=partition)
    copy = Copy(raw(kafka, topic))
    copy.run_until(6)
    recreate(kafka, topic, [b"a"] * 9)
    copy.close()
    recreate(kafka, topic, [b"b"] * 4, partitions=2)
    copy.restart()
    wait_until(lambda: copy.step(commits=False))
    copy.close()
    copy.restart()
    copy.poll_until(lambda: copy.values[6:] == [b"b"] * 4)
    copy.close()


def test_an_offset_without_an_id_takes_that_of_the_topic(kafka: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}adopted"
    create_topic(kafka.bootstrap, topic)
    send(kafka, topic, OLD)
    copy = Copy(raw(kafka, topic))
    copy.run_until(3)
    (known,) = copy.offsets()
    assert known["offset"] == 2
    assert len(known["topic_id"]) == 22
    copy.without_ids()
    copy.close()
    copy.restart()
    copy.poll_until(lambda: copy.offsets() == [known])  # although there is no new record
    assert copy.recreated_count == 0
    recreate(kafka, topic, [b"n%d" % n for n in range(5)])
    copy.poll_until(lambda: len(copy.rows) == 8)
    assert copy.values[3:] == [b"n%d" % n for n in range(5)]
    copy.close()


def test_offsets_with_and_without_an_id_can_be_set() -> None:
    place = {"cluster": "east", "partition": 0, "topic": "orders"}
    for offset in ({"offset": 5}, {"offset": 5, "topic_id": "x"}, None):
        assert KafkaSource.alter_offsets({}, [(place, offset)])
    for wrong in ({"offset": 5, "topic_id": 7}, {"offset": 5, "topic_id": None}):
        with pytest.raises(ValueError, match=r"topic_id of .* must be the id of a topic"):
            KafkaSource.alter_offsets({}, [(place, wrong)])


def test_new_partitions_and_topics_ask_for_new_tasks(kafka: Kafka, topic_prefix: str) -> None:
    big, small, new = (f"{topic_prefix}{each}" for each in ("big", "small", "new"))
    create_topic(kafka.bootstrap, big, partitions=4)
    create_topic(kafka.bootstrap, small)
    config = raw(kafka, f"{topic_prefix}.*", **{"refresh.topics.interval.seconds": "1"})
    connector = KafkaSource()
    asked = threading.Event()
    context = ConnectorContext("mirror", request_reconfiguration=asked.set)
    connector.start(context, parse_config(KafkaSource, config).require_valid())

    def places() -> list[tuple[str, int]]:
        # fewer tasks than partitions, so that the number of tasks stays the same
        tasks = connector.task_configs(2)
        assert len(tasks) == 2
        return sorted(place for each in tasks for place in parsed_places(each["task.partitions"]))

    assert places() == [*((big, number) for number in range(4)), (small, 0)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    for future in admin.create_partitions([NewPartitions(small, 3)]).values():
        future.result(30)
    create_topic(kafka.bootstrap, new)
    wanted = [*((big, number) for number in range(4)), (new, 0)]
    wait_until(lambda: places() == [*wanted, *((small, number) for number in range(3))])
    assert asked.wait(30)
    for future in admin.delete_topics([small]).values():
        future.result(30)
    wait_until(lambda: places() == wanted)
    connector.stop()


def test_topics_are_found_at_the_start_only_if_so_configured(
    kafka: Kafka, topic_prefix: str
) -> None:
    create_topic(kafka.bootstrap, f"{topic_prefix}a")
    changed = {"refresh.topics.enabled": "false", "refresh.topics.interval.seconds": "1"}
    connector = KafkaSource()
    values = parse_config(KafkaSource, raw(kafka, f"{topic_prefix}.*", **changed)).require_valid()
    connector.start(ConnectorContext("mirror"), values)
    assert not [each for each in threading.enumerate() if each.name == "kafka-topics"]
    connector.stop()


def test_a_copy_has_the_settings_and_the_partitions_of_its_original(
    kafka: Kafka, topic_prefix: str, pipeline: Pipeline
) -> None:
    topic, other = f"{topic_prefix}compacted", f"{topic_prefix}wide"
    create_topic(kafka.bootstrap, other, partitions=3)
    create_topic(kafka.bootstrap, topic, config={"cleanup.policy": "compact", "segment.ms": "99"})
    send(kafka, topic, [b"1"], key=b"k")
    send(kafka, other, [b"1"], partition=0)
    config = raw(kafka, f"{topic},{other}")
    copy = Copy(config)
    batch = None
    while batch is None:
        batch = copy.task.poll()
    copy.close()
    assert batch.originals == {
        f"east.{topic}": TopicRule(1, config={"cleanup.policy": "compact", "segment.ms": "99"}),
        f"east.{other}": TopicRule(3),
    }
    running = pipeline.start_source(KafkaSource, config)
    ends = pipeline.store.end_offsets

    def copied() -> bool:
        running.step()
        return (ends(f"east.{topic}"), ends(f"east.{other}")) == ({0: 1}, {0: 1, 1: 0, 2: 0})

    wait_until(copied)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    for future in admin.create_partitions([NewPartitions(topic, 5)]).values():
        future.result(30)
    send(kafka, topic, [b"2"], key=b"k", partition=4)
    running = pipeline.start_source(KafkaSource, config)  # a task with the new partitions
    wanted = {0: 1, 1: 0, 2: 0, 3: 0, 4: 1}

    def grown() -> bool:
        running.step()
        return ends(f"east.{topic}") == wanted

    wait_until(grown, describe=lambda: ends(f"east.{topic}"))


def faults(config: dict[str, str]) -> dict[str, str]:
    return {each.field: each.description for each in parse_config(KafkaSource, config).violations}


def test_a_config_is_tried_at_the_cluster(kafka: Kafka, topic_prefix: str) -> None:
    create_topic(kafka.bootstrap, f"{topic_prefix}a")
    config = raw(kafka, f"{topic_prefix}.*")
    servers = "source.cluster.bootstrap.servers"
    assert faults(config) == {}
    assert "match no topic" in faults({**config, "topics": f"{topic_prefix}nothing"})["topics"]
    assert "regular expression" in faults({**config, "topics": "("})["topics"]
    assert "cannot be used" in faults({**config, servers: "127.0.0.1:1"})[servers]
    unknown = "source.cluster.no.such.setting"
    assert "is not among the settings" in faults({**config, unknown: "x"})[unknown]
    java = {"source.cluster.ssl.keystore.location": "/a.jks"}
    assert "JKS is not supported" in faults({**config, **java})[servers]
    policy = {"replication.policy.class": "my.Policy"}
    assert faults({**config, **policy}).keys() == policy.keys()
    assert faults({**config, "replication.policy.separator": "a/b"}).keys() == {
        "replication.policy.separator"
    }
    assert faults({**config, "topic.filter.class": "my.Filter"}).keys() == {"topic.filter.class"}


def of_source(client: dict[str, str]) -> dict[str, str]:
    return {f"source.cluster.{name}": value for name, value in client.items()}


def test_a_login_as_java_has_it(mortal_broker: KafkaBroker, topic_prefix: str) -> None:
    topic = f"{topic_prefix}guarded"
    create_topic(mortal_broker.bootstrap, topic)
    own = of_source(USERS.java_client_settings("drover"))
    guarded = Kafka(mortal_broker.sasl_bootstrap)
    config = {**config_of("kafka-mirror", "east"), **raw(guarded, topic, **own)}
    # the user may describe no topic
    assert "match no topic of the cluster that the user may describe" in faults(config)["topics"]
    login = config["source.cluster.sasl.jaas.config"].replace("secret-1", "guessed")
    told = faults({**config, "source.cluster.sasl.jaas.config": login})
    assert "check the user, the password" in told["source.cluster.bootstrap.servers"]
    assert "guessed" not in str(told)


def test_a_client_of_an_identity_provider_reads(
    mortal_broker: KafkaBroker, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}guarded"
    create_topic(mortal_broker.bootstrap, topic)
    send(Kafka(mortal_broker.bootstrap), topic, [b"a"])
    guarded = Kafka(mortal_broker.sasl_bootstrap)
    with token_issuer(USERS.super_user) as issuer:
        copy = Copy(raw(guarded, topic, **of_source(issuer.java_client_settings())))
        assert [row["value"] for row in copy.run_until(1)] == [b"a"]
        copy.close()
        guessed = of_source(issuer.java_client_settings(secret="guessed"))
        told = faults(raw(guarded, topic, **guessed))["source.cluster.bootstrap.servers"]
    assert "check the user, the password" in told
    assert "guessed" not in told


def test_key_files_as_java_has_them(mortal_broker: KafkaBroker, topic_prefix: str) -> None:
    tls = mortal_broker.options.tls
    assert tls is not None
    topic = f"{topic_prefix}guarded"
    create_topic(mortal_broker.bootstrap, topic)
    guarded = Kafka(mortal_broker.tls_bootstrap)
    assert faults(raw(guarded, topic, **of_source(tls.java_client_settings()))) == {}
