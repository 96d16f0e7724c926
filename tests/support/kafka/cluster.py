"""Several brokers of one cluster, whose partitions have copies and leaders that move."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from confluent_kafka import (
    ElectionType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from tests.support.kafka.broker import BrokerOptions, KafkaBroker
from tests.support.kafka.clients import ANSWER_TIMEOUT_S, CALL_TIMEOUT_S, QUIET
from tests.support.kafka.jars import KafkaJars
from tests.support.waiting import wait_until

HEAP_MIB = 288
CONTROLLER = 1
#: Those that a test may kill.
OTHERS = (2, 3)
SETTLED_TIMEOUT_S = 60
#: It leads already, or the machine is so busy that the controller misses it once more.
_NOT_ELECTED = frozenset(
    {KafkaError.ELECTION_NOT_NEEDED, KafkaError.PREFERRED_LEADER_NOT_AVAILABLE}
)

#: Each partition has a copy on each broker, and one that is up to date is enough to go on: where a
#: machine is busy another broker may be late as well.
_SETTINGS: Mapping[str, str] = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    # a broker that is busy is not to be taken for a dead one
    "broker.session.timeout.ms": "6000",
    # leaders move when a test says so
    "auto.leader.rebalance.enable": "false",
}
#: What is acknowledged has two copies, also of what brokers write for themselves.
_TWO_COPIES: Mapping[str, str] = {
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    # transactions of the dead are ended as soon as they have timed out
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    # one of two cores may be away for seconds
    "controller.quorum.election.timeout.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "6000",
}


class KafkaCluster:
    """Broker 1, which is the controller as well and stays up, and brokers 2 and 3.

    With ``equal`` each is a controller, any one of them may be away, and two keep what they take.
    """

    def __init__(self, jars: KafkaJars, directory: Path, *, equal: bool = False) -> None:
        settings = {**_SETTINGS, **(_TWO_COPIES if equal else {})}
        first = _broker(jars, directory, CONTROLLER, settings)
        self.brokers = {CONTROLLER: first}
        joined = "" if equal else first.controller
        for node in OTHERS:
            self.brokers[node] = _broker(jars, directory, node, settings, controller=joined)
        if equal:
            voters = [f"{node}@{broker.controller}" for node, broker in self.brokers.items()]
            for broker in self.brokers.values():
                broker.voters = ",".join(voters)
        self._admin = AdminClient({"bootstrap.servers": first.bootstrap, **QUIET})

    @property
    def bootstrap(self) -> str:
        """All of them."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> None:
        """Returns once all serve."""
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(KafkaBroker.start, self.brokers.values()))
        wait_until(
            lambda: len(self._admin.list_topics(timeout=CALL_TIMEOUT_S).brokers) == 3,
            timeout_s=SETTLED_TIMEOUT_S,
        )

    def stop(self) -> None:
        """In good order, the controller last; those that do not run are left alone.

        The last one of equals could not end in order: there is nobody left to agree.
        """
        for broker in reversed(self.brokers.values()):
            if broker.voters:
                broker.kill()
            else:
                broker.stop()

    def make_topic(
        self,
        topic: str,
        *,
        leader: int,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """One whose partitions are led by ``leader`` for as long as it is there."""
        copies = [leader, *(node for node in self.brokers if node != leader)]
        wanted = NewTopic(
            topic, partitions, replica_assignment=[copies] * partitions, config=dict(config or {})
        )
        made = self._admin.create_topics([wanted], operation_timeout=CALL_TIMEOUT_S)
        made[topic].result(CALL_TIMEOUT_S)
        self.wait_until_whole(topic)

    def wait_until_led(self, topic: str, *nodes: int) -> None:
        """Until each partition is led by one of these: a broker that was killed is missed late."""
        self._wait_until(lambda: self._is_led(topic, *nodes), topic)

    def wait_until_whole(self, topic: str) -> None:
        """Until each partition has a leader and all of its copies are as far as it is."""

        def is_whole() -> bool:
            found = self._partitions(topic)
            whole = [each.leader != -1 and len(each.isrs) == len(self.brokers) for each in found]
            return bool(found) and all(whole)

        self._wait_until(is_whole, topic)

    def wait_until_all_whole(self) -> None:
        """As ``wait_until_whole``, of every topic, those of the brokers themselves included."""

        def is_whole() -> bool:
            with suppress(KafkaException):
                topics = self._asks_the_first().list_topics(timeout=ANSWER_TIMEOUT_S).topics
                found = [each for topic in topics.values() for each in topic.partitions.values()]
                return all(len(each.isrs) == len(each.replicas) for each in found)
            return False

        wait_until(is_whole, timeout_s=2 * SETTLED_TIMEOUT_S, describe="all copies are there")

    def elect(self, topic: str, node: int) -> None:
        """Have the broker lead the partitions that were made for it; returns once it does."""
        self.wait_until_whole(topic)
        places = [TopicPartition(topic, each.id) for each in self._partitions(topic)]

        def is_elected() -> bool:
            elected = self._admin.elect_leaders(ElectionType.PREFERRED, places)
            answers = elected.result(CALL_TIMEOUT_S).values()
            errors = [error for error in answers if error is not None]
            assert {error.code() for error in errors} <= _NOT_ELECTED, errors
            return self._is_led(topic, node)

        self._wait_until(is_elected, topic)

    def _is_led(self, topic: str, *nodes: int) -> bool:
        leaders = {each.leader for each in self._partitions(topic)}
        return bool(leaders) and leaders <= {*nodes}

    def _wait_until(self, condition: Callable[[], bool], topic: str) -> None:
        wait_until(
            condition, timeout_s=SETTLED_TIMEOUT_S, describe=lambda: self._leaders_and_copies(topic)
        )

    def _partitions(self, topic: str) -> list[PartitionMetadata]:
        """None of a topic that is not known yet.

        A client that knows all brokers would ask any of them, also one that is silent; a new one
        knows the first only, which always answers.
        """
        with suppress(KafkaException):
            metadata = self._asks_the_first().list_topics(topic, timeout=ANSWER_TIMEOUT_S)
            return [*metadata.topics[topic].partitions.values()]
        return []

    def _asks_the_first(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.brokers[CONTROLLER].bootstrap, **QUIET})

    def _leaders_and_copies(self, topic: str) -> list[tuple[int, list[int]]]:
        return [(each.leader, each.isrs) for each in self._partitions(topic)]


def _broker(
    jars: KafkaJars,
    directory: Path,
    node: int,
    settings: Mapping[str, str],
    *,
    controller: str = "",
) -> KafkaBroker:
    options = BrokerOptions(
        node_id=node, controller=controller, heap_mib=HEAP_MIB, settings=settings
    )
    return KafkaBroker(jars, directory / f"broker-{node}", options)
