"""Messages about classes of other products name classes that exist here."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from drover.config.class_registry import ClassRegistry
from drover.config.other_classes import OtherClasses
from drover.config.other_products import SYSTEMS
from drover.config.providers import PROVIDERS, PROVIDERS_ELSEWHERE
from drover.connector.catalogue import PluginNotFoundError, PluginRegistry
from drover.convert.other_converters import CONVERTERS_ELSEWHERE
from drover.convert.registry import CONVERTERS
from drover.transform.other_transforms import PREDICATES_ELSEWHERE, TRANSFORMS_ELSEWHERE
from drover.transform.registry import PREDICATES, TRANSFORMS
from tests.support.docs_tables import connectors

_DEBEZIUM = "io.debezium.transforms"


@pytest.mark.parametrize(
    ("registry", "others"),
    [
        (CONVERTERS, CONVERTERS_ELSEWHERE),
        (TRANSFORMS, TRANSFORMS_ELSEWHERE),
        (PREDICATES, PREDICATES_ELSEWHERE),
        (PROVIDERS, PROVIDERS_ELSEWHERE),
    ],
)
def test_the_nearest_class_exists(
    registry: ClassRegistry[Any], others: Sequence[OtherClasses]
) -> None:
    names = {each.partition("$")[0] for each in registry.names()}
    for each in others:
        assert each.nearest or each.job, each
        first = re.match(r"\w*", each.nearest)
        assert not each.nearest or (first and first[0] in names), each


def test_the_nearest_connector_exists() -> None:
    for each in SYSTEMS:
        for text in (each.source, each.sink):
            assert not text or text.partition(",")[0] in connectors(), each
        assert all(key == key.lower() for key in each.keys)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("io.debezium.connector.mysql.MySqlConnector", "the nearest source is JdbcSource, which"),
        ("io.debezium.connector.mongodb.MongoDbConnector", "Drover has no source for MongoDB."),
        ("com.mongodb.kafka.connect.MongoSinkConnector", "Drover has no sink for MongoDB."),
        ("io.debezium.connector.oracle.OracleConnector", "Drover has no source for Oracle."),
        ("io.debezium.connector.sqlserver.SqlServerConnector", "Drover has no source for SQL Serv"),
        ("io.confluent.connect.elasticsearch.ElasticsearchSinkConnector", "Drover has no sink for"),
        ("com.snowflake.kafka.connector.SnowflakeSinkConnector", "Drover has no sink for Snowfl"),
        ("com.wepay.kafka.connect.bigquery.BigQuerySinkConnector", "Drover has no sink for BigQ"),
        ("io.confluent.connect.gcs.GcsSinkConnector", "the nearest sink is FilesSink."),
        ("io.confluent.connect.s3.source.S3SourceConnector", "the nearest source is FilesSource"),
        ("io.confluent.connect.http.HttpSinkConnector", "did you mean 'HttpSink'? For a class"),
        ("com.datastax.oss.kafka.sink.CassandraSinkConnector", "Drover has no sink for Cassandra"),
        ("org.apache.kafka.connect.mirror.MirrorCheckpointConnector", "the nearest is KafkaSource"),
        ("org.apache.camel.kafkaconnector.CamelSinkConnector", "known: ConsoleSink, "),
        ("com.acme.Mongo", "Drover has no connector for MongoDB."),
        ("MongoSink", "Drover has no sink for MongoDB"),
        ("FtpSource", "Drover has no source for SFTP and FTP"),
        ("JdbcSnk", "did you mean 'JdbcSink'?"),
        ("Nothing", "known: ConsoleSink, "),
    ],
)
def test_an_unknown_connector_is_first_told_what_is_nearest(name: str, sentence: str) -> None:
    with pytest.raises(PluginNotFoundError) as caught:
        PluginRegistry().find(name)
    assert f"no connector {name!r} is installed on this worker: {sentence}" in str(caught.value)


@pytest.mark.parametrize(
    ("registry", "name", "hint"),
    [
        (TRANSFORMS, f"{_DEBEZIUM}.outbox.EventRouter", "the nearest is Sql"),
        (TRANSFORMS, f"{_DEBEZIUM}.ByLogicalTableRouter", "the nearest is RegexRouter"),
        (TRANSFORMS, f"{_DEBEZIUM}.Filter", "the nearest is Filter with the predicate"),
        (TRANSFORMS, f"{_DEBEZIUM}.ContentBasedRouter", "the nearest is Sql"),
        (TRANSFORMS, "io.confluent.connect.transforms.Filter$Value", "the nearest is Filter with"),
        (TRANSFORMS, f"{_DEBEZIUM}.TimezoneConverter", "no class here converts time zones"),
        (TRANSFORMS, "com.acme.Strange", "there are ArrowFunction"),
        (TRANSFORMS, "InsertFeild$Value", "did you mean 'InsertField$Value'?"),
        (PREDICATES, "HasHeader", "did you mean 'HasHeaderKey'?"),
        (CONVERTERS, "io.confluent.connect.json.JsonSchemaConverter", "no class here reads and"),
        (CONVERTERS, "io.debezium.converters.ByteArrayConverter", "the nearest is ByteArrayConv"),
        (CONVERTERS, "AvroConvertr", "did you mean 'AvroConverter'?"),
        (PROVIDERS, "vault", "no class here reads a secret store"),
        (PROVIDERS, "fil", "did you mean 'FileConfigProvider'?"),
    ],
)
def test_an_unknown_class_is_told_what_does_its_job(
    registry: ClassRegistry[Any], name: str, hint: str
) -> None:
    with pytest.raises(ValueError, match="is called") as caught:
        registry.find(name)
    assert f"is called {name!r}: {hint}" in str(caught.value)
