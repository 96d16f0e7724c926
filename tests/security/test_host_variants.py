"""Host names that resolve to addresses that connectors must not call, in each client."""

import socket
import struct
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from drover.connector.connector import Connector
from drover.connector.settings import validate_config
from drover.connectors.files.files_sink import FilesSink
from drover.connectors.files.files_source import FilesSource
from drover.connectors.http.sink import HttpSink
from drover.connectors.http.source import HttpSource
from drover.connectors.jdbc.sink import JdbcSink
from drover.connectors.jdbc.source import JdbcSource
from drover.connectors.kafka.sink import KafkaSink
from drover.connectors.kafka.source import KafkaSource
from drover.connectors.lakehouse.delta_sink import DeltaSink
from drover.connectors.lakehouse.iceberg_sink import IcebergSink
from drover.connectors.postgres.source import PostgresCdcSource
from drover.convert.registered.registry import registry_at
from drover.policy.egress import HOSTS_VARIABLE
from drover.policy.files import ROOTS_VARIABLE
from tests.support.error_texts import logged
from tests.support.registry_converters import converter_at, topics

pytestmark = [pytest.mark.faults("security"), pytest.mark.timeout(600)]

NAME = "innocent.example.test"
#: What the name resolves to.
ANSWERS: Mapping[str, tuple[str, ...]] = {
    "metadata": ("169.254.169.254",),
    "mixed": ("127.0.0.1", "169.254.169.254"),
    "mapped": ("::ffff:169.254.169.254",),
    "translated": ("64:ff9b::a9fe:a9fe",),
    "cloud": ("fd00:ec2::254",),
}
STORE = {
    "store.url": f"http://{NAME}:9000",
    "aws.access.key.id": "key",
    "aws.secret.access.key": "hidden",
}
CONFIGS: Mapping[str, tuple[type[Connector], Mapping[str, str]]] = {
    "HttpSource": (HttpSource, {"http.url": f"http://{NAME}:8080/", "topic": "t"}),
    "HttpSink": (HttpSink, {"http.url": f"http://{NAME}:8080/", "topics": "t"}),
    "FilesSource": (FilesSource, {"path": "s3://b/x", "topic": "t", "format": "text", **STORE}),
    "FilesSink": (FilesSink, {"path": "s3://b/x", "topics": "t", **STORE}),
    "DeltaSink": (DeltaSink, {"table.uri": "s3://b/x", "topics": "t", **STORE}),
    "IcebergSink": (
        IcebergSink,
        {
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": f"http://{NAME}:8181",
            "iceberg.tables": "app.t",
            "topics": "t",
        },
    ),
    "JdbcSource of PostgreSQL": (
        JdbcSource,
        {
            "connection.url": f"jdbc:postgresql://{NAME}:5432/d",
            "connection.user": "u",
            "mode": "bulk",
            "topic.prefix": "t-",
        },
    ),
    "JdbcSink of MySQL": (
        JdbcSink,
        {"connection.url": f"jdbc:mysql://{NAME}:3306/d", "connection.user": "u", "topics": "t"},
    ),
    "PostgresCdcSource": (
        PostgresCdcSource,
        {
            "database.hostname": NAME,
            "database.user": "u",
            "database.password": "hidden",
            "database.dbname": "d",
            "topic.prefix": "t",
        },
    ),
    "KafkaSource": (
        KafkaSource,
        {"source.cluster.bootstrap.servers": f"{NAME}:9092", "topics": "t"},
    ),
    "KafkaSink": (
        KafkaSink,
        {
            "target.cluster.bootstrap.servers": f"{NAME}:9092",
            "topics": "t",
            "topic.format": "x.${topic}",
        },
    ),
}


@pytest.fixture
def resolving(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The addresses of the name, as the last item; other names resolve as usual."""
    answers: list[tuple[str, ...]] = []
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *more: Any, **options: Any) -> Any:
        text = host.decode() if isinstance(host, bytes) else str(host)
        if text.rstrip(".") != NAME:
            return real(host, port, *more, **options)
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        found = []
        for each in answers[-1]:
            found += real(each, port, type=socket.SOCK_STREAM)
        return found

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setenv(ROOTS_VARIABLE, "/nowhere")
    return answers


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_name_that_resolves_to_a_forbidden_address_is_rejected(
    kind: str, answer: str, resolving: list[tuple[str, ...]]
) -> None:
    resolving.append(ANSWERS[answer])
    connector, settings = CONFIGS[kind]
    config = {"name": "a", "connector.class": connector.__name__, **settings}
    told = "\n".join(text for each in validate_config(connector, config) for text in each.errors)
    assert "which connectors must not call" in told, told
    assert f"an operator of the worker can name this address in {HOSTS_VARIABLE}" in told
    assert "hidden" not in told


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("converter", ["AvroConverter", "ProtobufConverter"])
def test_a_registry_that_resolves_to_a_forbidden_address_is_not_called(
    converter: str, answer: str, resolving: list[tuple[str, ...]]
) -> None:
    resolving.append(ANSWERS[answer])
    registry_at.cache_clear()
    values = pa.array([struct.pack(">bI", 0, 1) + b"x"], pa.binary())
    with pytest.raises(Exception, match=r".") as caught:
        converter_at(converter, f"http://{NAME}:8081").decode(values, topics("t"))
    registry_at.cache_clear()
    assert "must not call" in logged(caught.value)
