"""Several brokers of one cluster, with replicas and leaders that move."""

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
#: The brokers that a test may kill.
OTHERS = (2, 3)
SETTLED_TIMEOUT_S = 60
#: It already leads, or on a busy machine the controller has lost its session.
_NOT_ELECTED = frozenset(
    {KafkaError.ELECTION_NOT_NEEDED, KafkaError.PREFERRED_LEADER_NOT_AVAILABLE}
)

#: Each partition has a replica on each broker, and one in-sync replica suffices: on a busy machine
#: another broker may also be slow.
_SETTINGS: Mapping[str, str] = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    # a busy broker must not count as dead
    "broker.session.timeout.ms": "6000",
    # leaders move only on a test's request
    "auto.leader.rebalance.enable": "false",
}
#: An acknowledged record has two replicas, also in internal topics.
_TWO_COPIES: Mapping[str, str] = {
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    # transactions of dead producers end soon after their timeout
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    # one of two cores may be busy for seconds
    "controller.quorum.election.timeout.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "6000",
}


class KafkaCluster:
    """Broker 1, which is also the controller and stays up, and brokers 2 and 3.

    With ``equal`` each broker is a controller, any one may be down, and acknowledged records have
    two replicas.
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
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> None:
        """Start all brokers; returns once all serve."""
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(KafkaBroker.start, self.brokers.values()))
        wait_until(
            lambda: len(self._admin.list_topics(timeout=CALL_TIMEOUT_S).brokers) == 3,
            timeout_s=SETTLED_TIMEOUT_S,
        )

    def stop(self) -> None:
        """Stop running brokers gracefully, the controller last.

        The last one of equal brokers is killed: without a quorum it cannot stop gracefully.
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
        """Create a topic whose partitions prefer ``leader``."""
        copies = [leader, *(node for node in self.brokers if node != leader)]
        wanted = NewTopic(
            topic, partitions, replica_assignment=[copies] * partitions, config=dict(config or {})
        )
        made = self._admin.create_topics([wanted], operation_timeout=CALL_TIMEOUT_S)
        made[topic].result(CALL_TIMEOUT_S)
        self.wait_until_whole(topic)

    def wait_until_led(self, topic: str, *nodes: int) -> None:
        """Wait until one of these brokers leads each partition: a killed broker is detected
        late.
        """
        self._wait_until(lambda: self._is_led(topic, *nodes), topic)

    def wait_until_whole(self, topic: str) -> None:
        """Wait until each partition has a leader and all replicas are in sync."""

        def is_whole() -> bool:
            found = self._partitions(topic)
            whole = [each.leader != -1 and len(each.isrs) == len(self.brokers) for each in found]
            return bool(found) and all(whole)

        self._wait_until(is_whole, topic)

    def wait_until_all_whole(self) -> None:
        """Wait until every topic is fully replicated, internal topics included."""

        def is_whole() -> bool:
            with suppress(KafkaException):
                topics = self._asks_the_first().list_topics(timeout=ANSWER_TIMEOUT_S).topics
                found = [each for topic in topics.values() for each in topic.partitions.values()]
                return all(len(each.isrs) == len(each.replicas) for each in found)
            return False

        wait_until(is_whole, timeout_s=2 * SETTLED_TIMEOUT_S, describe="all copies are there")

    def elect(self, topic: str, node: int) -> None:
        """Elect the broker as leader of the partitions that prefer it; returns once it leads."""
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
        """The topic's partitions; none for an unknown topic.

        A client that knows all brokers may ask a silent one; a new client knows only the first
        broker, which always responds.
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
