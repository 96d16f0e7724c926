"""Logins of the producer and the reader of whole batches, at brokers that require
authentication.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    pkcs12,
)

from drover.dataplane.kafka.batch_producer import BatchProducer, can_send
from drover.dataplane.kafka.range_fetcher import RangeFetcher
from drover.dataplane.kafka.reading import range_reader
from drover.dataplane.plane import ALL_COLUMNS
from drover.dataplane.values import ReadRange
from drover.errors import DroverError
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId
from tests.kafka.test_exactly_once import MortalBatchProducer, World, make_world
from tests.kafka.test_kafka_log_topics import ANY_ACL
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.fixtures import USERS
from tests.support.kafka.tls import Certificate
from tests.support.waiting import wait_until

TASK = TaskId("lines", 0)


def as_pem(found: Certificate, into: Path) -> dict[str, str]:
    """The certificate and its key as files, the key encrypted with a password."""
    password = found.password.encode()
    loaded = pkcs12.load_pkcs12(found.keystore.read_bytes(), password)
    assert loaded.key is not None
    assert loaded.cert is not None
    key = loaded.key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)
    )
    (into / "key.pem").write_bytes(key)
    (into / "cert.pem").write_bytes(loaded.cert.certificate.public_bytes(Encoding.PEM))
    return {
        "ssl.certificate.location": str(into / "cert.pem"),
        "ssl.key.location": str(into / "key.pem"),
        "ssl.key.password": found.password,
    }


@pytest.fixture
def world(mortal_broker: KafkaBroker, topic_prefix: str, tmp_path: Path) -> World:
    return make_world(mortal_broker.bootstrap, topic_prefix, tmp_path, MortalBatchProducer)


def by_certificate(_world: World, broker: KafkaBroker, into: Path) -> dict[str, str]:
    tls = broker.options.tls
    assert tls is not None
    ca = {"security.protocol": "SSL", "ssl.ca.location": str(tls.broker.pem)}
    return {"bootstrap.servers": broker.tls_bootstrap, **ca, **as_pem(tls.client, into)}


def by_password(world: World, broker: KafkaBroker, _into: Path) -> dict[str, str]:
    """A user that may write the test's topics under its transactional ids."""
    bindings = [
        AclBinding(
            kind,
            world.storage.group_id,
            ResourcePatternType.PREFIXED,
            "User:drover",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind in (ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID)
    ]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for made in admin.create_acls(bindings).values():
        made.result(60)
    wait_until(lambda: {*admin.describe_acls(ANY_ACL).result(60)} >= {*bindings})
    return {"bootstrap.servers": broker.sasl_bootstrap, **USERS.client_settings("drover")}


def storage_with(world: World, settings: dict[str, str]) -> KafkaStorage:
    return KafkaStorage(
        bootstrap_servers=settings["bootstrap.servers"],
        group_id=world.storage.group_id,
        topics=world.storage.topics,
        client_config={key: v for key, v in settings.items() if key != "bootstrap.servers"},
    )


@pytest.mark.parametrize("login", [by_certificate, by_password])
def test_it_writes_as_whom_its_settings_name(
    world: World,
    mortal_broker: KafkaBroker,
    tmp_path: Path,
    login: Callable[[World, KafkaBroker, Path], dict[str, str]],
) -> None:
    storage = storage_with(world, login(world, mortal_broker, tmp_path))
    assert can_send(storage)
    sender = BatchProducer(storage, TASK)
    sender.init()
    sender.produce(world.staged(b"line").parts)
    sender.add_offsets([(b"k", b"v", "note")])
    sender.commit()
    sender.close()
    assert [value for _, value in world.offset_records()] == [b"v"]
    assert world.values() == [b"line"]
    reader = range_reader(storage)
    assert isinstance(reader, RangeFetcher)
    (rows,) = reader.read(ReadRange(world.topic, 0, 0, 1, 0), ALL_COLUMNS)
    assert rows.column("value").to_pylist() == [b"line"]
    reader.close()


def begin_to_write(storage: KafkaStorage) -> None:
    BatchProducer(storage, TASK).init()


def read(storage: KafkaStorage) -> None:
    list(RangeFetcher(storage).read(ReadRange("t", 0, 0, 1, 0), ALL_COLUMNS))


@pytest.mark.parametrize("doing", [begin_to_write, read])
def test_a_wrong_password_is_told(
    world: World, mortal_broker: KafkaBroker, doing: Callable[[KafkaStorage], None]
) -> None:
    login = {**USERS.client_settings("drover"), "sasl.password": "not-it"}
    storage = storage_with(world, {"bootstrap.servers": mortal_broker.sasl_bootstrap, **login})

    def is_told() -> bool:
        """False where the broker's response arrived after the call had timed out."""
        with pytest.raises(DroverError) as caught:
            doing(storage)
        assert "not-it" not in caught.value.message
        return "reject the connection" in caught.value.message

    wait_until(is_told)


@pytest.mark.parametrize(
    ("settings", "reached"),
    [
        ({}, True),
        ({"compression.type": "zstd", "message.max.bytes": "2000000"}, True),
        ({"security.protocol": "SSL", "ssl.ca.location": "/ca.pem"}, True),
        ({"security.protocol": "SSL", "ssl.keystore.location": "/client.p12"}, False),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, False),
        ({"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"}, True),
        ({"broker.address.family": "v6"}, False),
    ],
)
def test_settings_that_only_librdkafka_has_are_left_to_it(
    settings: dict[str, str], reached: bool
) -> None:
    storage = KafkaStorage(bootstrap_servers="b:1", group_id="g", client_config=settings)
    assert can_send(storage) is reached
