"""A broker with OAUTHBEARER: librdkafka fetches tokens from an identity provider."""

from collections.abc import Iterator

import pytest

from drover.errors import DroverError, Reason
from drover.log.kafka.client import KafkaClient
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.fixtures import USERS
from tests.support.kafka.logs import storage_on
from tests.support.kafka.reached import (
    assert_a_log_is_claimed_written_and_followed,
    assert_tasks_write_and_read,
)
from tests.support.kafka.tokens import Issuer, token_issuer
from tests.support.waiting import wait_until_async


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with token_issuer(USERS.super_user) as started:
        yield started


async def test_a_log_is_claimed_written_and_followed(
    mortal_broker: KafkaBroker, issuer: Issuer, topic_prefix: str
) -> None:
    await assert_a_log_is_claimed_written_and_followed(
        mortal_broker.sasl_bootstrap, topic_prefix, issuer.client_settings()
    )
    assert issuer.given_count > 0


def test_tasks_write_and_read(
    mortal_broker: KafkaBroker, issuer: Issuer, topic_prefix: str
) -> None:
    settings = issuer.client_settings()
    assert_tasks_write_and_read(mortal_broker.sasl_bootstrap, f"{topic_prefix}t", settings)


async def test_a_client_whom_the_provider_does_not_know_is_told(
    mortal_broker: KafkaBroker, issuer: Issuer, topic_prefix: str
) -> None:
    settings = issuer.client_settings(secret="guessed")
    client = KafkaClient(
        storage_on(mortal_broker.sasl_bootstrap, topic_prefix, settings), timeout_s=1.0
    )

    async def is_told() -> bool:
        with pytest.raises(DroverError) as caught:
            await client.describe_topic("any")
        assert "guessed" not in caught.value.message
        if caught.value.reason is Reason.STORAGE_UNAVAILABLE:
            return False  # the token came after this call's timeout
        assert caught.value.reason is Reason.STORAGE_MISCONFIGURED
        return "DROVER_KAFKA_CONFIG" in caught.value.message

    try:
        await wait_until_async(is_told)
    finally:
        await client.close()
    assert issuer.refused_count > 0
