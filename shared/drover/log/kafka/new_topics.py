"""Why brokers reject a new topic, in terms of the settings that it was made from."""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from drover.log.kafka.client import KafkaClient
from drover.log.kafka.errors import misconfigured
from drover.log.storage import PARTITIONS, REPLICATION_FACTOR


@dataclass(frozen=True, slots=True)
class CreationFault:
    """A fault of a new topic: ``setting`` has the wrong value; empty if it is not known."""

    setting: str
    text: str

    def __str__(self) -> str:
        return f"{self.setting} {self.text}" if self.setting else self.text


def creation_fault(
    error: KafkaError, topic: NewTopic, settings: Mapping[str, str], *, broker_count: int
) -> CreationFault | None:
    """The fault of a new topic; None if its settings are not the reason.

    Args:
        error: The brokers' error.
        topic: The topic.
        settings: The names of the settings that the topic was made from, by PARTITIONS,
            REPLICATION_FACTOR and the names of topic settings.
        broker_count: The number of brokers in the cluster.
    """
    code = error.code()
    brokers = f"{broker_count} broker{'' if broker_count == 1 else 's'}"
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        factor = topic.replication_factor
        if factor < 0:
            text = (
                "default.replication.factor of the brokers cannot be reached: the cluster has "
                f"{brokers}. Set it to at most {broker_count}, or create the topic {topic.topic}"
            )
            return CreationFault("", text)
        if 0 < factor <= broker_count:  # some brokers are down, or the cluster has its own rules
            text = f"is {factor}, which the {brokers} of the cluster reject: {error.str()}"
            return CreationFault(settings.get(REPLICATION_FACTOR, "the replication factor"), text)
        text = (
            f"is {factor}, but the cluster has {brokers}: set it to at most {broker_count} or to "
            f"-1 for the brokers' default, or create the topic {topic.topic}"
        )
        return CreationFault(settings.get(REPLICATION_FACTOR, "the replication factor"), text)
    if code == KafkaError.INVALID_PARTITIONS:
        named = settings.get(PARTITIONS, "the partition count")
        return CreationFault(named, f"is rejected by the brokers: {error.str()}")
    if code == KafkaError.INVALID_CONFIG:
        # the message of the brokers names the setting
        names = [name for name in topic.config or {} if name in error.str()]
        longest = max(names, key=len, default="")
        text = f"is rejected by the brokers: {error.str()}"
        return CreationFault(settings.get(longest, longest), text)
    if code in (KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_EXCEPTION):
        return CreationFault("", f"the brokers reject it: {error.str()}")
    return None


def make_topic(client: KafkaClient, topic: NewTopic, settings: Mapping[str, str]) -> None:
    """Create a topic unless it exists; blocks. ``settings`` as of ``creation_fault``.

    Raises:
        FailedPreconditionError: STORAGE_MISCONFIGURED, the brokers reject the topic or the user;
            the message names the setting.
        DroverError: As KafkaClient.translated.
    """
    try:
        client.make_topic_now(topic)
    except (KafkaException, TimeoutError) as error:
        doing = f"the topic {topic.topic} cannot be created"
        fault = None
        if isinstance(error, KafkaException):
            fault = creation_fault(
                error.args[0], topic, settings, broker_count=_broker_count(client)
            )
        if fault is None:
            raise client.translated(
                error, doing=doing, topic=topic.topic, operation="Create"
            ) from error
        metadata = {"topic": topic.topic, "brokers": client.storage.bootstrap_servers}
        raise misconfigured(f"{doing}: {fault}", metadata) from error


def _broker_count(client: KafkaClient) -> int:
    """The number of brokers; 0 if none answers."""
    try:
        return client.cluster_operations_now()[1]
    except (KafkaException, TimeoutError):
        return 0
