"""Which topic of another cluster an offset belongs to.

Brokers give each topic an id (KIP-516). A topic that is deleted and created again with the same
name has another one, so the offsets of the deleted topic are not offsets of the new one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drover.connector import OffsetChange
from drover.connectors.kafka.cluster import TIMEOUT_S, ClusterError, fault_of, needed_rights

if TYPE_CHECKING:
    from confluent_kafka import Message
    from confluent_kafka.admin import AdminClient

TOPIC_ID = "topic_id"
#: What a broker before Kafka 2.8 returns.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
#: Errors of a consumer whose topic was deleted, and perhaps created again.
GONE = (
    "UNKNOWN_TOPIC_OR_PART",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
)


class TopicGoneError(ClusterError):
    """The next record of a topic no longer exists: it was removed, or the topic was deleted."""

    def __init__(self, message: str, topic: str) -> None:
        super().__init__(message)
        self.topic = topic


def check_message(message: "Message", alias: str, client: Mapping[str, str]) -> None:
    """Raise the error that a consumer returned instead of a record, if it did.

    Args:
        message: Of the consumer.
        alias: The cluster's alias, for the error.
        client: The settings of the client, for the remedy.

    Raises:
        TopicGoneError: The next record of the topic no longer exists.
        ClusterError: Any other lasting error.
        RetriableError: A retry may help.
    """
    error = message.error()
    if error is None:
        return
    where = f"cluster {alias}, {message.topic()}-{message.partition()}"
    topic = str(message.topic())
    if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
        raise TopicGoneError(f"{where}: retention removed unread records", topic)
    if error.name() in GONE:
        raise TopicGoneError(str(fault_of(error, where)), topic)
    needs = needed_rights(client, topic=f"Read and Describe on the topic {topic}")
    raise fault_of(error, where, needs)


@dataclass(frozen=True, slots=True)
class CopiedOffset:
    """The committed offset of a source partition: ``{"offset": n, "topic_id": id}``. Offsets of
    MirrorMaker, of earlier versions and of operators have no id.
    """

    next_offset: int
    topic_id: str = ""

    @classmethod
    def parse(cls, offset: Mapping[str, Any]) -> "CopiedOffset":
        """Parse the value of an offset, which has that of the last copied record."""
        return cls(int(offset["offset"]) + 1, str(offset.get(TOPIC_ID) or ""))

    def value(self) -> dict[str, Any]:
        """The value of the offset."""
        named = {TOPIC_ID: self.topic_id} if self.topic_id else {}
        return {"offset": self.next_offset - 1, **named}

    def is_of_another(self, topic_id: str) -> bool:
        """Whether it belongs to another topic than that with an id."""
        return is_another(self.topic_id, topic_id)


def is_another(one: str, other: str) -> bool:
    """Whether two ids belong to different topics; an empty one is unknown."""
    return bool(one and other and one != other)


def topic_ids(admin: "AdminClient", topics: Collection[str], alias: str) -> dict[str, str]:
    """The ids of the existing ones of some topics; an empty text if the brokers have none.

    Raises:
        ClusterError: The cluster refuses it.
        RetriableError: The cluster is unavailable.
    """
    from confluent_kafka import KafkaException, TopicCollection

    if not topics:
        return {}
    asked = admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=TIMEOUT_S)
    found = {}
    for topic, future in asked.items():
        try:
            topic_id = str(future.result(TIMEOUT_S).topic_id)
        except KafkaException as error:
            if error.args[0].name() not in GONE:
                raise fault_of(error.args[0], f"cluster {alias}, {topic}") from error
        else:
            found[topic] = "" if topic_id == _NO_ID else topic_id
    return found


def refuse_wrong_ids(changes: Collection[OffsetChange]) -> None:
    """Reject offsets whose topic id is not text.

    Raises:
        ValueError: Lists every fault.
    """
    wrong = [
        f"{TOPIC_ID} of {place} must be the id of a topic, not {offset[TOPIC_ID]!r}"
        for place, offset in changes
        if offset is not None and not isinstance(offset.get(TOPIC_ID, ""), str)
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
