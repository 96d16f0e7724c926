"""All of Drover's clients at a broker with TLS, and the errors of rejected clients."""

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from drover.dataplane.kafka.clients import shared_client
from drover.errors import DroverError, Reason
from drover.log.kafka.client import KafkaClient
from drover.testing import raises_reason
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.data_topic import Topic
from tests.support.kafka.fixtures import USERS
from tests.support.kafka.jars import KafkaJars
from tests.support.kafka.logs import storage_on
from tests.support.kafka.reached import (
    assert_a_log_is_claimed_written_and_followed,
    assert_tasks_write_and_read,
)
from tests.support.kafka.tls import Certificate, Tls, make_certificate
from tests.support.kafka.told import assert_told_in_turn
from tests.support.service_process import assert_one_clear_line, run_to_its_end
from tests.support.store_process import Leader, OnKafka, StoreProcess, at
from tests.support.waiting import wait_until, wait_until_async

MAX_LOG_LINES = 40
#: A call's timeout: its error then shows the broker's rejection. Late rejections are retried.
HEARD_S = 1.0


@pytest.fixture
def tls(mortal_broker: KafkaBroker) -> Tls:
    assert mortal_broker.options.tls is not None
    return mortal_broker.options.tls


@pytest.fixture(scope="module")
def another(kafka_jars: KafkaJars, tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate of an untrusted authority."""
    return make_certificate(kafka_jars, tmp_path_factory.mktemp("certificates"), "another")


@dataclass(frozen=True)
class Refused:
    """Settings of a client that the broker rejects, and a word of the expected error."""

    bootstrap: str
    settings: dict[str, str]
    word: str = "certificate"

    def is_told(self, error: DroverError) -> bool:
        """False where the broker's rejection arrived after the call had timed out."""
        assert "guessed" not in error.message
        if error.reason is Reason.STORAGE_UNAVAILABLE:
            return False
        assert error.reason is Reason.STORAGE_MISCONFIGURED, error
        assert "DROVER_KAFKA_CONFIG" in error.message
        assert self.word in error.message
        return True


REFUSALS = ("an authority that did not sign", "no certificate", "a wrong password")


@pytest.fixture(params=REFUSALS)
def refused(
    request: pytest.FixtureRequest, mortal_broker: KafkaBroker, tls: Tls, another: Certificate
) -> Refused:
    if request.param == "a wrong password":
        settings = {**USERS.client_settings("drover"), "sasl.password": "guessed"}
        return Refused(mortal_broker.sasl_bootstrap, settings, "password")
    settings = tls.client_settings()
    if request.param == "no certificate":
        settings = {name: value for name, value in settings.items() if "keystore" not in name}
    else:
        settings["ssl.ca.location"] = str(another.pem)
    return Refused(mortal_broker.tls_bootstrap, settings)


def as_variable(settings: dict[str, str]) -> dict[str, str]:
    return {"DROVER_KAFKA_CONFIG": json.dumps(settings)}


async def test_a_log_is_claimed_written_and_followed(
    mortal_broker: KafkaBroker, tls: Tls, topic_prefix: str
) -> None:
    await assert_a_log_is_claimed_written_and_followed(
        mortal_broker.tls_bootstrap, topic_prefix, tls.client_settings()
    )


def test_tasks_write_and_read(mortal_broker: KafkaBroker, tls: Tls, topic_prefix: str) -> None:
    settings = tls.client_settings()
    assert_tasks_write_and_read(mortal_broker.tls_bootstrap, f"{topic_prefix}topic", settings)


async def test_a_log_is_told_that_it_is_not_let_in(refused: Refused, topic_prefix: str) -> None:
    storage = storage_on(refused.bootstrap, topic_prefix, refused.settings)
    client = KafkaClient(storage, timeout_s=HEARD_S)

    async def is_told() -> bool:
        with pytest.raises(DroverError) as caught:
            await client.describe_topic("any")
        return refused.is_told(caught.value)

    try:
        await wait_until_async(is_told)
    finally:
        await client.close()


def test_tasks_are_told_that_they_are_not_let_in(refused: Refused, topic_prefix: str) -> None:
    topic = Topic.at(refused.bootstrap, f"{topic_prefix}topic", refused.settings)
    shared_client(topic.storage).timeout_s = HEARD_S

    def is_told(use: Callable[[], object]) -> bool:
        with pytest.raises(DroverError) as caught:
            use()
        return refused.is_told(caught.value)

    for use in (
        lambda: topic.plane.partition_counts([topic.name]),
        lambda: topic.plane.end_offsets([(topic.name, 0)]),
        lambda: topic.write({"value": [b"v"]}),
    ):
        wait_until(partial(is_told, use))


@pytest.mark.parametrize(
    ("service", "refused"),
    list(zip(("config-store", "coordinator", "status-store"), REFUSALS, strict=True)),
    indirect=["refused"],
)
async def test_a_service_that_is_not_let_in_ends_and_says_why(
    topic_prefix: str, tmp_path: Path, refused: Refused, service: str
) -> None:
    where = OnKafka(bootstrap=refused.bootstrap, prefix=topic_prefix)
    environment = {**where.environment(), **as_variable(refused.settings)}
    done = await run_to_its_end(service, tmp_path, environment)
    words = (refused.bootstrap, "DROVER_KAFKA_CONFIG", refused.word)
    assert_one_clear_line(done, service, *words)
    assert "guessed" not in done.err


@pytest.mark.faults("kafka")
async def test_a_store_is_unhealthy_while_its_broker_has_a_certificate_that_it_does_not_trust(
    mortal_broker: KafkaBroker,
    tls: Tls,
    another: Certificate,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    where = OnKafka(bootstrap=mortal_broker.tls_bootstrap, prefix=topic_prefix)
    store = StoreProcess("config-store", where, tmp_path, **as_variable(tls.client_settings()))
    good = tls.broker.keystore.read_bytes()
    try:
        store.start()
        async with at(store) as client:
            leader = Leader(client)
            await leader.write("before")
            store.wait_for_storage(serving=True)
            await asyncio.to_thread(mortal_broker.stop)
            shutil.copy(another.keystore, tls.broker.keystore)
            await asyncio.to_thread(mortal_broker.start)
            wait_until(lambda: "certificate verify failed" in store.process.log(), timeout_s=60)
            store.wait_for_storage(serving=False)
            assert store.health()
            with raises_reason(Reason.STORAGE_MISCONFIGURED, "DROVER_KAFKA_CONFIG", "certificate"):
                await leader.write("meanwhile")
            await asyncio.to_thread(mortal_broker.stop)
            tls.broker.keystore.write_bytes(good)
            await asyncio.to_thread(mortal_broker.start)
            await asyncio.to_thread(store.wait_for_storage, serving=True)
            await leader.write("after")
        assert_told_in_turn(
            store.process.log(), "the storage is unavailable", "the storage is available again"
        )
        assert len(store.process.log().splitlines()) < MAX_LOG_LINES, store.process.log()
        store.assert_unharmed()
    finally:
        store.process.stop()
        mortal_broker.stop()
        tls.broker.keystore.write_bytes(good)
