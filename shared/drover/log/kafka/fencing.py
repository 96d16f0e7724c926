"""Fences the producers of a transactional id, which aborts their open transactions."""

from confluent_kafka import KafkaException

from drover.log.kafka.calls import connect, insist
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.errors import FENCED


def fence_producer(client: KafkaClient, transactional_id: str) -> None:
    """Return once no transaction that was started before under the id can be committed; blocks.

    Raises:
        DroverError: As ``KafkaClient.translated``.
    """
    producer = client.producer({"transactional.id": transactional_id})
    try:
        connect(producer, client.timeout_s)
        insist(producer.init_transactions, 2 * client.timeout_s)
    except KafkaException as error:
        if error.args[0].code() not in FENCED:  # if fenced, a later producer has fenced them all
            raise client.translated(
                error, doing=f"the transactional id {transactional_id} cannot be fenced"
            ) from error
