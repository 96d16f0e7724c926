"""Configs of well-known connectors with their Java class names."""

from collections.abc import Mapping

import pytest

from drover.connector import Connector
from drover.connector.catalogue import PluginRegistry
from drover.connector.settings import full_config_def, validate_config
from tests.support.offline import offline

JDBC_SOURCE = {
    "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
    "connection.url": "jdbc:postgresql://db:5432/shop",
    "connection.user": "drover",
    "connection.password": "secret",
    "connection.attempts": "5",
    "connection.backoff.ms": "5000",
    "dialect.name": "PostgreSqlDatabaseDialect",
    "mode": "timestamp+incrementing",
    "incrementing.column.name": "id",
    "timestamp.column.name": "changed_at",
    "timestamp.granularity": "connect_logical",
    "validate.non.null": "false",
    "numeric.mapping": "best_fit",
    "table.whitelist": "orders,customers",
    "table.types": "TABLE",
    "quote.sql.identifiers": "ALWAYS",
    "poll.interval.ms": "1000",
    "batch.max.rows": "5000",
    "topic.prefix": "shop-",
    "transforms": "key,id",
    "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.key.fields": "id",
    "transforms.id.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
    "transforms.id.field": "id",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "producer.override.linger.ms": "50",
}
JDBC_SINK = {
    "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
    "topics": "orders",
    "connection.url": "jdbc:postgresql://db:5432/shop",
    "connection.user": "drover",
    "connection.password": "secret",
    "insert.mode": "upsert",
    "pk.mode": "record_key",
    "pk.fields": "id",
    "batch.size": "3000",
    "max.retries": "10",
    "retry.backoff.ms": "3000",
    "auto.create": "true",
    "auto.evolve": "true",
    "delete.enabled": "true",
    "db.timezone": "UTC",
    "quote.sql.identifiers": "always",
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "orders-dead",
}
DEBEZIUM_JDBC_SINK = {
    "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
    "topics": "orders",
    "connection.url": "jdbc:postgresql://db:5432/shop",
    "connection.username": "drover",
    "connection.password": "secret",
    "connection.pool.max_size": "32",
    "insert.mode": "upsert",
    "delete.enabled": "true",
    "primary.key.mode": "record_key",
    "primary.key.fields": "id",
    "schema.evolution": "basic",
    "use.time.zone": "UTC",
    "collection.name.format": "app_${topic}",
    "batch.size": "500",
    "use.reduction.buffer": "true",
}
DEBEZIUM_POSTGRES = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "database.hostname": "db",
    "database.port": "5432",
    "database.user": "drover",
    "database.password": "secret",
    "database.dbname": "shop",
    "database.sslmode": "require",
    "topic.prefix": "shop",
    "slot.name": "shop_slot",
    "slot.drop.on.stop": "false",
    "publication.name": "shop_publication",
    "publication.autocreate.mode": "filtered",
    "table.include.list": "public.orders,public.customers",
    "snapshot.mode": "initial",
    "snapshot.fetch.size": "10000",
    "decimal.handling.mode": "precise",
    "time.precision.mode": "connect",
    "tombstones.on.delete": "true",
    "heartbeat.interval.ms": "10000",
    "max.batch.size": "2048",
    "max.queue.size": "8192",
    "schema.name.adjustment.mode": "none",
    "provide.transaction.metadata": "false",
    "skipped.operations": "t",
}
ICEBERG_SINK = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "app.orders",
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.evolve-schema-enabled": "true",
    "iceberg.table.app.orders.id-columns": "id",
    "iceberg.table.app.orders.partition-by": "day(at)",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://catalogue:8181",
    "iceberg.catalog.credential": "user:secret",
    "iceberg.catalog.warehouse": "lake",
    "iceberg.catalog.s3.endpoint": "http://minio:9000",
    "iceberg.catalog.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "iceberg.control.topic": "control-iceberg",
    "iceberg.control.commit.interval-ms": "60000",
    "iceberg.kafka.auto.offset.reset": "earliest",
}
S3_SINK = {
    "connector.class": "io.confluent.connect.s3.S3SinkConnector",
    "topics": "orders",
    "s3.region": "us-west-2",
    "s3.bucket.name": "lake",
    "s3.part.size": "5242880",
    "flush.size": "1000",
    "rotate.schedule.interval.ms": "60000",
    "timezone": "UTC",
    "storage.class": "io.confluent.connect.s3.storage.S3Storage",
    "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
    "partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
    "path.format": "'year'=YYYY/'month'=MM/'day'=dd",
    "partition.duration.ms": "3600000",
    "locale": "en-US",
    "schema.compatibility": "NONE",
    "behavior.on.null.values": "ignore",
}
HTTP_SINK = {
    "connector.class": "io.aiven.kafka.connect.http.HttpSinkConnector",
    "topics": "orders",
    "http.url": "https://api.example.com/orders",
    "http.authorization.type": "oauth2",
    "oauth2.access.token.url": "https://api.example.com/token",
    "oauth2.client.id": "drover",
    "oauth2.client.secret": "secret",
    "oauth2.response.token.property": "access_token",
    "http.headers.content.type": "application/json",
    "http.headers.additional": "x-shop:1",
    "http.timeout": "10",
    "http.ssl.trust.all.certs": "false",
    "batching.enabled": "true",
    "batch.max.size": "100",
    "batch.prefix": "[",
    "batch.suffix": "]",
    "batch.separator": ",",
    "max.retries": "3",
    "kafka.retry.backoff.ms": "3000",
}
MIRROR_SOURCE = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "east",
    "target.cluster.alias": "west",
    "source.cluster.bootstrap.servers": "kafka-east:9092",
    "target.cluster.bootstrap.servers": "kafka-west:9092",
    "source.cluster.security.protocol": "SASL_SSL",
    "source.consumer.fetch.min.bytes": "1",
    "topics": "orders.*",
    "topics.blacklist": ".*internal",
    "replication.factor": "3",
    "offset-syncs.topic.replication.factor": "3",
    "sync.topic.acls.enabled": "false",
    "emit.checkpoints.interval.seconds": "10",
    "refresh.topics.interval.seconds": "60",
    "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
}
FILE_STREAM_SOURCE = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "file": "/tmp/lines.txt",
    "topic": "lines",
    "batch.size": "2000",
}
FILE_STREAM_SINK = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
    "file": "/tmp/copy.txt",
    "topics": "lines",
}
CONFIGS = (
    JDBC_SOURCE,
    JDBC_SINK,
    DEBEZIUM_JDBC_SINK,
    DEBEZIUM_POSTGRES,
    ICEBERG_SINK,
    {**ICEBERG_SINK, "connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector"},
    S3_SINK,
    HTTP_SINK,
    MIRROR_SOURCE,
    FILE_STREAM_SOURCE,
    FILE_STREAM_SINK,
)
#: Settings without effect in these configs.
TUNING = {
    *("batch.size", "connection.attempts", "connection.backoff.ms", "connection.pool.max_size"),
    *("dialect.name", "max.retries", "retry.backoff.ms", "use.reduction.buffer"),
    *("max.batch.size", "max.queue.size", "snapshot.fetch.size"),
    *("iceberg.catalog.io-impl", "iceberg.control.topic", "iceberg.kafka.auto.offset.reset"),
    *("http.ssl.trust.all.certs", "kafka.retry.backoff.ms", "locale", "s3.part.size"),
    *("offset-syncs.topic.replication.factor", "replication.factor", "sync.topic.acls.enabled"),
    *("emit.checkpoints.interval.seconds", "producer.override.linger.ms"),
}


def stand_in(java_class: str) -> type[Connector]:
    """The connector with this Java class name, without checks that may call servers."""
    return offline(PluginRegistry().find(java_class))


def faults(raw: Mapping[str, str], **more: str) -> set[str]:
    values = validate_config(stand_in(raw["connector.class"]), {"name": "c", **raw, **more})
    return {each.key.name for each in values if each.errors}


def short(raw: Mapping[str, str]) -> str:
    return raw["connector.class"].rpartition(".")[2]


@pytest.mark.parametrize("raw", CONFIGS, ids=short)
def test_a_config_as_it_is_found_in_the_field_is_understood(raw: dict[str, str]) -> None:
    values = validate_config(stand_in(raw["connector.class"]), {"name": "c", **raw})
    assert {each.key.name: each.errors for each in values if each.errors} == {}
    warned = {each.key.name: each.warnings for each in values if each.warnings}
    unknown = {name: text for name, text in warned.items() if "no effect here" not in text[0]}
    assert unknown == {}
    own = full_config_def(stand_in(raw["connector.class"]), raw)
    assert warned.keys() == {name for name in raw if name in TUNING and name not in own}
    assert raw.items() <= {each.key.name: each.text for each in values}.items()


@pytest.mark.parametrize("raw", CONFIGS, ids=short)
def test_what_would_change_the_data_is_refused_by_name(raw: dict[str, str]) -> None:
    others = stand_in(raw["connector.class"]).other_settings
    changed = {name.replace("*", "some"): "other" for name in others.refused}
    assert faults(raw, **changed) == changed.keys()
    accepted = {name: max(values) for name, values in others.refused.items() if values}
    assert faults(raw, **accepted) == set()


def test_what_a_connector_has_is_in_no_list_of_others() -> None:
    for raw in CONFIGS:
        kind = stand_in(raw["connector.class"])
        others = kind.other_settings
        listed = {*others.renamed, *others.refused, *others.without_effect}
        assert listed.isdisjoint({each.name for each in full_config_def(kind)}), kind


def test_every_name_of_java_is_tried_here() -> None:
    plugins, _ = PluginRegistry().list()
    of_java = {
        alias for each in plugins for alias in each.aliases if alias.startswith(("io.", "org."))
    }
    assert {raw["connector.class"] for raw in CONFIGS} == of_java


def test_tables_that_debeziums_sink_would_call_otherwise_are_refused() -> None:
    name = "collection.name.format"
    assert faults(DEBEZIUM_JDBC_SINK, topics="shop.public.orders") == {name}
    without = {key: text for key, text in DEBEZIUM_JDBC_SINK.items() if key != name}
    assert faults(without, topics="shop.public.orders") == {name}
    assert faults({**without, name: "orders"}, topics="shop.public.orders") == set()
    assert faults({**without, name: "${source.schema}_orders"}) == {name}
    router = {
        "transforms": "short",
        "transforms.short.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.short.regex": r"shop\.public\.(.*)",
        "transforms.short.replacement": "$1",
    }
    assert faults({**without, **router}, topics="shop.public.orders") == set()
    assert faults(JDBC_SINK, topics="shop.public.orders") == set()


@pytest.mark.parametrize("raw", [JDBC_SOURCE, JDBC_SINK], ids=short)
@pytest.mark.parametrize("name", ["connection.currentSchema", "connection.oracle.jdbc.ReadTimeout"])
def test_parameters_of_a_jdbc_driver_are_refused(raw: dict[str, str], name: str) -> None:
    assert faults(raw, **{name: "x"}) == {name}
    # under Drover's own class the name has no meaning: a typing error gets a warning
    own = {**raw, "connector.class": stand_in(raw["connector.class"]).__name__}
    own["connector.class"] = own["connector.class"].removeprefix("Offline")
    assert faults(own, **{name: "x"}) == set()


@pytest.mark.parametrize(
    "more",
    [
        {
            "transforms": "t",
            "transforms.t.type": "io.debezium.transforms.Filter",
            "transforms.t.condition": "x",
        },
        {"value.converter": "com.acme.OtherConverter", "value.converter.some.setting": "x"},
        {
            "transforms": "t",
            "transforms.t.type": "Filter",
            "transforms.t.predicate": "p",
            "predicates": "p",
            "predicates.p.type": "com.acme.OtherPredicate",
            "predicates.p.some.setting": "x",
        },
    ],
)
def test_settings_of_a_class_that_does_not_exist_cause_no_warning(more: dict[str, str]) -> None:
    raw = {**FILE_STREAM_SOURCE, **more}
    values = validate_config(stand_in(raw["connector.class"]), {"name": "c", **raw})
    (fault,) = [each.key.name for each in values if each.errors]
    assert fault in more
    assert [each.key.name for each in values if each.warnings] == []


def test_a_setting_next_to_a_known_transform_still_causes_a_warning() -> None:
    raw = {
        **FILE_STREAM_SOURCE,
        "transforms": "t",
        "transforms.t.type": "HoistField$Value",
        "transforms.t.field": "line",
        "transforms.t.feild": "line",
    }
    values = validate_config(stand_in(raw["connector.class"]), {"name": "c", **raw})
    ((name, texts),) = [(each.key.name, each.warnings) for each in values if each.warnings]
    assert name == "transforms.t.feild"
    assert texts[0].endswith("did you mean transforms.t.field?")
