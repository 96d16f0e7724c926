"""Batches of a source task in transactions of its own producer, on a real broker without Spark."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import IsolationLevel, Producer
from confluent_kafka.admin import OffsetSpec

from drover.dataplane.kafka.batch_producer import BatchProducer
from drover.dataplane.kafka.clients import shared_client
from drover.dataplane.kafka.one_record_producer import OneRecordProducer
from drover.dataplane.kafka.producer_session import ProducerSession
from drover.dataplane.kafka.record_batches import Encoding
from drover.dataplane.kafka.staging import FileStager, StagedFiles, read_batches, staged_files
from drover.dataplane.kafka.task_producer import TaskProducer
from drover.dataplane.kafka.transactional import ExactlyOnceWriter
from drover.dataplane.partitioner import partitions_for_keys
from drover.dataplane.plane import AbandonedError, Destination, OutcomeUnknownError, Receipt
from drover.errors import (
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    Reason,
    UnavailableError,
)
from drover.log.storage import KafkaStorage, KafkaTopics
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset
from drover_worker.engine.core.publishing import FENCES_MAX
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import CALL_TIMEOUT_S, QUIET, Record, create_topic, read_all
from tests.support.kafka.fixtures import USERS
from tests.support.kafka.publisher import Publisher
from tests.support.waiting import wait_until

TASK = TaskId("lines", 0)
PARTITION = '{"filename":"/in.txt"}'


class Killed(BaseException):
    """Raised where the process is killed."""


class Mortal(TaskProducer):
    """A producer that dies after a given step; ``before`` is called before each step."""

    dies_after = ""
    little_bytes_max = 16 * 1024
    before: Callable[[str], None] = staticmethod(lambda _step: None)

    def __init__(self, storage: KafkaStorage, task: TaskId) -> None:
        super().__init__(storage, task)
        for step in ("init", "produce", "add_offsets", "commit"):
            setattr(self, step, self._mortal(step, getattr(self, step)))

    def _mortal(self, step: str, do: Callable[..., None]) -> Callable[..., None]:
        def done(*arguments: Any) -> None:
            self.before(step)
            do(*arguments)
            if self.dies_after == step:
                raise Killed(step)

        return done


class MortalBatchProducer(Mortal, BatchProducer):
    pass


class MortalRecordsFirstProducer(Mortal, BatchProducer):
    """Handles each batch as a large one: records first."""

    held_bytes_max = -1
    little_bytes_max = -1


class MortalOneRecordProducer(Mortal, OneRecordProducer):
    pass


@dataclass
class Owner:
    """An engine that runs the task; it holds the claim until another engine claims."""

    world: "World"
    number: int
    writer: Publisher = field(init=False)
    producer: Mortal = field(init=False)
    next: int = 0

    def __post_init__(self) -> None:
        self.producer = self.world.kind(self.world.storage, TASK)
        writer = ExactlyOnceWriter(
            self.world.storage,
            self.world.directory,
            TASK,
            check_claim=self._check_claim,
            producer=self.producer,
        )
        self.writer = Publisher(writer, lambda: self.world.abandoned)

    def _check_claim(self) -> None:
        if self.world.owner != self.number:
            raise FailedPreconditionError(Reason.STALE_CLAIM, f"{self.world.owner} has the task")

    def start(self) -> None:
        """Open the writer and continue at the committed offset."""
        self.writer.open()
        committed = self.world.committed()
        self.writer.opened(committed)
        self.next = int(committed[0].offset_json or "0") if committed else 0

    def publish_next(self) -> Receipt:
        """Publish a batch of two lines; repeat it if its outcome is unknown."""
        staged = self.world.staged(b"line %d" % self.next, b"line %d" % (self.next + 1))
        receipt = self.writer.publish([staged], [offset(self.next + 2)])
        self.next += 2
        return receipt


def are_there(staged: StagedFiles) -> bool:
    """Whether the staged records exist and can be published again."""
    return all(isinstance(part, bytes) or part.exists() for part in staged.parts)


def offset(position: int) -> CommittedOffset:
    return CommittedOffset('{ "filename": "/in.txt" }', f'{{"position": {position}}}')


@dataclass
class World:
    """Topics, and the task's current claim."""

    storage: KafkaStorage
    topic: str
    directory: Path
    kind: type[Mortal]
    owner: int = 0
    abandoned: bool = False
    owners: list[Owner] = field(default_factory=list)

    def take_over(self) -> Owner:
        """A later owner, whose claim is durable."""
        self.owner += 1
        self.owners.append(Owner(self, self.owner))
        return self.owners[-1]

    def staged(
        self, *values: bytes | None, encoding: Encoding | None = None, **columns: Any
    ) -> StagedFiles:
        batch = pa.RecordBatch.from_pydict({"value": list(values), **columns})
        stager = FileStager(
            self.storage,
            self.directory,
            Destination(topic=self.topic),
            encoding or self.kind(self.storage, TASK).encoding,
            little_bytes_max=self.kind.little_bytes_max,
        )
        return staged_files([row for each in stager(iter([batch])) for row in each.to_pylist()])

    def _wait_until_decided(self, topic: str) -> None:
        """Wait for the transaction markers: brokers write them after the commit returns."""
        client, place = shared_client(self.storage), [(topic, 0)]

        def is_decided() -> bool:
            ends = [client.offsets_now(place, OffsetSpec.latest(), each) for each in IsolationLevel]
            return ends[0] == ends[1]

        wait_until(is_decided, describe=f"no transaction is open in {topic}")

    def records(self, *, committed_only: bool = True) -> list[Record]:
        self._wait_until_decided(self.topic)
        return read_all(self.storage.bootstrap_servers, self.topic, committed_only=committed_only)

    def values(self, *, committed_only: bool = True) -> list[bytes | None]:
        return [each.value for each in self.records(committed_only=committed_only)]

    def offset_records(self) -> list[tuple[bytes | None, bytes | None]]:
        self._wait_until_decided(self.storage.topics.offset)
        found = read_all(self.storage.bootstrap_servers, self.storage.topics.offset)
        return [(each.key, each.value) for each in found]

    def committed(self) -> Sequence[CommittedOffset]:
        """The committed offsets as the coordinator fetches them."""
        records = self.offset_records()
        if not records:
            return ()
        position = str(records[-1][1]).partition(":")[2].strip("}' ")
        return (CommittedOffset(PARTITION, position),)


@pytest.fixture(params=[MortalBatchProducer, MortalRecordsFirstProducer, MortalOneRecordProducer])
def kind(request: pytest.FixtureRequest) -> type[Mortal]:
    found: type[Mortal] = request.param
    return found


@pytest.fixture
def world(kafka: Kafka, topic_prefix: str, tmp_path: Path, kind: type[Mortal]) -> Iterator[World]:
    world = make_world(kafka.bootstrap, topic_prefix, tmp_path, kind)
    yield world
    for each in world.owners:
        each.writer.close()


def make_world(
    bootstrap: str, prefix: str, directory: Path, kind: type[Mortal], **client: str
) -> World:
    """A world with the test's own topics."""
    topics = KafkaTopics(offset=f"{prefix}offsets")
    storage = KafkaStorage(
        bootstrap_servers=bootstrap,
        group_id=prefix.strip("-."),
        topics=topics,
        client_config=client,
    )
    create_topic(bootstrap, topics.offset, config={"cleanup.policy": "compact"})
    create_topic(bootstrap, f"{prefix}lines")
    return World(storage, f"{prefix}lines", directory, kind)


def test_a_batch_and_its_offsets_are_one_transaction(world: World) -> None:
    owner = world.take_over()
    owner.start()
    owner.publish_next()
    owner.publish_next()
    assert world.values() == [b"line 0", b"line 1", b"line 2", b"line 3"]
    key = b'["lines",{"filename":"/in.txt"}]'
    assert world.offset_records() == [(key, b'{"position":2}'), (key, b'{"position":4}')]
    assert not list(world.directory.iterdir()), "what is published is not kept"


def test_records_keep_what_they_have(world: World) -> None:
    owner = world.take_over()
    owner.start()
    headers = [{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}]
    staged = world.staged(b"v", None, key=[b"k", None], headers=[headers, None])
    owner.writer.publish([staged], [])
    first, second = world.records()
    assert (first.key, first.value) == (b"k", b"v")
    assert first.headers == (("h", b"\xff"), ("h", None))
    assert (second.key, second.value, second.headers) == (None, None, ())
    assert world.offset_records() == []


def test_records_go_to_the_partition_that_they_or_their_keys_say(world: World) -> None:
    world.topic += "-of-3"
    create_topic(world.storage.bootstrap_servers, world.topic, partitions=3)
    owner = world.take_over()
    owner.start()
    keys = [None, *(b"key %d" % number for number in range(20))]
    values = [b"%d" % number for number in range(len(keys))]
    by_key = world.staged(*values, key=keys)
    said = world.staged(b"said", b"not said", key=[b"key 0", None], partition=[2, None])
    owner.writer.publish([by_key, said], [])
    found = read_all(world.storage.bootstrap_servers, world.topic)
    assert [each.value for each in found if each.key is None] == [b"0", b"not said"]
    wanted = partitions_for_keys(pa.array(keys[1:], pa.binary()), 3).to_pylist()
    places = {each.key: each.partition for each in found if each.key and each.value != b"said"}
    assert places == dict(zip(keys[1:], wanted, strict=True))
    assert {each.partition for each in found if each.value == b"said"} == {2}
    for partition in range(3):
        numbers = [
            int(each.value or b"")
            for each in found
            if each.partition == partition and each.key and each.value != b"said"
        ]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("step", ["init", "produce", "add_offsets", "commit"])
def test_whoever_comes_after_an_owner_that_was_killed_goes_on_where_it_was(
    world: World, step: str
) -> None:
    first = world.take_over()
    first.start()
    first.publish_next()
    first.producer.dies_after = step
    with pytest.raises(Killed):
        first.start() if step == "init" else first.publish_next()
    second = world.take_over()
    second.start()
    assert second.next == (4 if step == "commit" else 2)
    while second.next < 6:
        second.publish_next()
    assert world.values() == [b"line %d" % number for number in range(6)]


@pytest.mark.parametrize("step", ["produce", "add_offsets", "commit"])
def test_an_owner_that_was_suspended_writes_nothing_when_it_wakes(world: World, step: str) -> None:
    first = world.take_over()
    first.start()

    def suspended(next_step: str) -> None:
        if next_step == step and world.owner == first.number:
            second = world.take_over()
            second.start()
            second.publish_next()

    first.producer.before = suspended
    with pytest.raises(FailedPreconditionError) as caught:
        first.publish_next()
    assert caught.value.reason is Reason.STALE_CLAIM
    assert world.values() == [b"line 0", b"line 1"]


@pytest.mark.parametrize("step", ["produce", "add_offsets"])
def test_an_owner_that_a_zombie_fenced_publishes_the_same_files_again(
    world: World, step: str
) -> None:
    zombie, owner = world.take_over(), world.take_over()
    owner.start()

    def late(next_step: str) -> None:
        if next_step == step and zombie.next == 0:
            zombie.next = 1
            with pytest.raises(FailedPreconditionError, match="2 has the task"):
                zombie.start()

    owner.producer.before = late
    owner.publish_next()
    assert zombie.next == 1
    assert world.values() == [b"line 0", b"line 1"]


def test_where_a_commit_was_fenced_only_the_offsets_tell(world: World) -> None:
    zombie, owner = world.take_over(), world.take_over()
    owner.start()

    def late(next_step: str) -> None:
        if next_step == "commit" and zombie.next == 0:
            zombie.next = 1
            with pytest.raises(FailedPreconditionError):
                zombie.start()

    owner.producer.before = late
    with pytest.raises(OutcomeUnknownError):
        owner.publish_next()
    owner.start()
    assert owner.next == 0
    owner.publish_next()
    assert world.values() == [b"line 0", b"line 1"]


def test_a_producer_that_is_fenced_again_and_again_gives_up_and_says_why(world: World) -> None:
    owner = world.take_over()
    owner.start()
    others: list[Producer] = []

    def taken(next_step: str) -> None:
        if next_step == "produce":
            settings = {
                "bootstrap.servers": world.storage.bootstrap_servers,
                "transactional.id": owner.producer.id,
                **QUIET,
            }
            others.append(Producer(settings))
            others[-1].init_transactions(CALL_TIMEOUT_S)

    owner.producer.before = taken
    with pytest.raises(FailedPreconditionError, match="another producer keeps using") as caught:
        owner.publish_next()
    assert caught.value.reason is Reason.STALE_WRITER_EPOCH
    assert owner.producer.id in caught.value.message
    assert len(others) == FENCES_MAX + 1
    assert world.values() == []


def test_a_transaction_that_takes_longer_than_the_brokers_let_it_is_told(
    mortal_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
    kind: type[Mortal],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drover_worker.engine.core.publishing.FENCES_MAX", 1)
    timeout = {"transaction.timeout.ms": "1000"}
    world = make_world(mortal_broker.bootstrap, topic_prefix, tmp_path, kind, **timeout)
    owner = world.take_over()
    owner.start()

    def slow(next_step: str) -> None:
        if next_step == "add_offsets":
            over_s = time.monotonic() + 2
            wait_until(lambda: time.monotonic() > over_s)

    owner.producer.before = slow
    staged = world.staged(os.urandom(2 * BatchProducer.held_bytes_max))
    with pytest.raises(FailedPreconditionError, match=r"exceeds transaction\.timeout\.ms"):
        owner.writer.publish([staged], [offset(1)])
    assert world.values() == []
    owner.writer.close()


def test_a_task_that_was_abandoned_leaves_nothing(world: World) -> None:
    owner = world.take_over()
    owner.start()
    world.abandoned = True
    with pytest.raises(AbandonedError):
        owner.publish_next()
    owner.writer.close()
    assert world.values() == []


def test_a_record_that_is_too_large_is_told_and_the_next_owner_goes_on(world: World) -> None:
    owner = world.take_over()
    owner.start()
    with pytest.raises(InvalidArgumentError, match=r"message\.max\.bytes") as caught:
        owner.writer.publish([world.staged(b"small", b"x" * 2_000_000)], [offset(2)])
    assert caught.value.reason is Reason.TOO_LARGE
    owner.writer.close()
    owner.start()
    owner.publish_next()
    assert world.values() == [b"line 0", b"line 1"]


def test_a_timeout_above_the_brokers_is_told(
    kafka: Kafka, topic_prefix: str, tmp_path: Path, kind: type[Mortal]
) -> None:
    world = make_world(
        kafka.bootstrap, topic_prefix, tmp_path, kind, **{"transaction.timeout.ms": "3600000"}
    )
    with pytest.raises(DroverError, match="Transaction timeout is larger") as caught:
        world.take_over().start()
    assert caught.value.reason is Reason.STORAGE_MISCONFIGURED


def test_brokers_that_forbid_it_are_told_with_what_it_needs(
    mortal_broker: KafkaBroker, topic_prefix: str, tmp_path: Path, kind: type[Mortal]
) -> None:
    world = make_world(mortal_broker.bootstrap, topic_prefix, tmp_path, kind)
    storage = KafkaStorage(
        bootstrap_servers=mortal_broker.sasl_bootstrap,
        group_id=world.storage.group_id,
        topics=world.storage.topics,
        client_config=USERS.client_settings("eve"),
    )
    world.storage = storage
    with pytest.raises(DroverError, match="on the transactional id") as caught:
        world.take_over().start()
    assert caught.value.reason is Reason.STORAGE_MISCONFIGURED
    assert f"{world.storage.group_id}-lines-0" in caught.value.message


def test_brokers_that_are_away_leave_the_batch_staged(
    kafka: Kafka, topic_prefix: str, tmp_path: Path, kind: type[Mortal]
) -> None:
    world = make_world(kafka.bootstrap, topic_prefix, tmp_path, kind)
    away = KafkaStorage(bootstrap_servers="127.0.0.1:1", group_id="away")
    owner = Owner(world, 0)
    writer = ExactlyOnceWriter(
        away,
        tmp_path,
        TASK,
        check_claim=lambda: None,
        producer=kind(away, TASK),
    )
    staged = world.staged(b"v")
    with pytest.raises(UnavailableError):
        Publisher(writer).publish([staged], [])
    assert are_there(staged)
    assert owner.next == 0


@pytest.mark.parametrize("kind", [MortalBatchProducer, MortalRecordsFirstProducer])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_batch_over_the_limit_of_its_topic_is_halved(
    kafka: Kafka, topic_prefix: str, tmp_path: Path, kind: type[Mortal], compression: str
) -> None:
    options = {"compression.type": compression}
    world = make_world(kafka.bootstrap, topic_prefix, tmp_path, kind, **options)
    world.topic = f"{topic_prefix}small"
    create_topic(kafka.bootstrap, world.topic, config={"max.message.bytes": "20000"})
    owner = world.take_over()
    owner.start()
    values = [os.urandom(1_000) for _ in range(200)]
    for number, part in enumerate((values[:120], values[120:])):
        staged = world.staged(*part, key=part, headers=[[{"key": "h", "value": b"v"}]] * len(part))
        owner.writer.publish([staged], [offset(number)])
    found = world.records()
    assert [each.value for each in found] == [each.key for each in found] == values
    assert {tuple(each.headers) for each in found} == {(("h", b"v"),)}
    large = world.staged(b"small", os.urandom(30_000))
    with pytest.raises(InvalidArgumentError) as caught:
        owner.writer.publish([large], [offset(2)])
    assert caught.value.reason is Reason.TOO_LARGE
    owner.writer.close()
    assert len(world.records()) == 200


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_the_limit_of_a_topic_is_learned_from_what_it_refuses(
    kafka: Kafka,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compression: str,
) -> None:
    options = {"compression.type": compression}
    world = make_world(kafka.bootstrap, topic_prefix, tmp_path, MortalBatchProducer, **options)
    world.topic = f"{topic_prefix}small"
    limit_bytes, record_count = 5_000, 150
    create_topic(kafka.bootstrap, world.topic, config={"max.message.bytes": str(limit_bytes)})
    refused: list[int] = []
    note = ProducerSession._refused

    def noted(*arguments: Any) -> Any:
        refused.append(arguments[-1])
        return note(*arguments)

    monkeypatch.setattr(ProducerSession, "_refused", noted)
    owner = world.take_over()
    owner.start()
    values = [os.urandom(250).hex().encode() for _ in range(3 * record_count)]
    counts = []
    for number in range(3):
        if number == 2:
            owner.producer.init()  # a new session
        some = values[number * record_count : (number + 1) * record_count]
        staged = world.staged(*some, encoding=owner.producer.encoding)
        counts.append(sum(1 for part in staged.parts for _ in read_batches(part)))
        owner.writer.publish([staged], [offset(number)])
    owner.writer.close()
    assert world.values() == values
    assert counts[0] == 1
    # executors make batches of about the limit as soon as it is known
    assert all(count * limit_bytes * 2 > record_count * 250 for count in counts[1:])
    assert len(refused) < 60
    assert min(refused) < 1.1 * limit_bytes
