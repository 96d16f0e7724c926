"""Ending what a producer of a transactional id has open, and keeping it from writing on."""

from confluent_kafka import KafkaException

from drover.log.kafka.calls import connect, insist
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.errors import FENCED


def fence_producer(client: KafkaClient, transactional_id: str) -> None:
    """Return once no transaction that was begun under the id before can be committed; blocks.

    Raises:
        DroverError: What KafkaClient.translated says.
    """
    producer = client.producer({"transactional.id": transactional_id})
    try:
        connect(producer, client.timeout_s)
        insist(producer.init_transactions, 2 * client.timeout_s)
    except KafkaException as error:
        if error.args[0].code() not in FENCED:  # else another one has begun since, and fenced them
            raise client.translated(
                error, doing=f"the transactional id {transactional_id} cannot be fenced"
            ) from error
