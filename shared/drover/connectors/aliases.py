"""Maps configs of other products' connectors to the connectors of this package.

The tables list settings that have another meaning here, or none, as of mid-2026: Confluent's JDBC
connectors and S3 sink, Debezium's PostgreSQL connector and JDBC sink, Iceberg's sink, Aiven's HTTP
sink, MirrorMaker's source. The task configs of Kafka's FileStream connectors equal Kafka Connect's,
so either product continues with configs that the other one wrote.
"""

import re
from collections.abc import Iterator, Mapping

from drover.connector import OtherSettings, Violation

FILE_STREAM_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_STREAM_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
TASK_CLASS = "task.class"

_CONNECTOR_CLASS = "connector.class"
_TASK_CLASSES = {
    FILE_STREAM_SOURCE: "org.apache.kafka.connect.file.FileStreamSourceTask",
    FILE_STREAM_SINK: "org.apache.kafka.connect.file.FileStreamSinkTask",
}

_CALLS = "errors.retry.timeout limits the retries of a call"
_BATCHES = "batch.max.records and batch.max.bytes bound a batch"
_OFF = ("false",)


def _nothing(*names: str, instead: str = "") -> dict[str, str]:
    return dict.fromkeys(names, instead)


def _whatever(*names: str) -> dict[str, tuple[str, ...]]:
    """Settings that change the data, so that every value is refused."""
    return dict.fromkeys(names, ())


#: io.confluent.connect.jdbc.JdbcSourceConnector
JDBC_SOURCE = OtherSettings(
    refused={
        **_whatever(
            "catalog.pattern",
            "table.include.list",
            "table.exclude.list",
            "timestamp.columns.mapping",
            "incrementing.column.mapping",
            "query.masked",
            "query.suffix",
        ),
        "date.timezone": ("DB_TIMEZONE", "UTC"),
        "table.types": ("TABLE",),
        "timestamp.granularity": ("connect_logical",),
        "numeric.precision.mapping": _OFF,
        "quote.sql.identifiers": ("always",),
        "date.calendar.system": ("PROLEPTIC_GREGORIAN",),
    },
    without_effect={
        **_nothing("connection.attempts", "connection.backoff.ms", instead=_CALLS),
        **_nothing("query.retry.attempts", instead=_CALLS),
        **_nothing("max.buffer.size", "poll.linger.ms", instead=_BATCHES),
        **_nothing("dialect.name", instead="connection.url names the database"),
        **_nothing("jdbc.credentials.provider.*", instead="connection.user, connection.password"),
        **_nothing("transaction.isolation.mode", "table.monitoring.startup.polling.limit.ms"),
    },
)

_DEBEZIUM_JDBC_SINK = "io.debezium.connector.jdbc.JdbcSinkConnector"
_TABLE_NAMES = ("collection.name.format", "table.name.format")
_PLACEHOLDER = re.compile(r"\$\{(?!topic\})[^}]*\}")


def _debezium_tables(raw: Mapping[str, str | None]) -> Iterator[Violation]:
    """Tables that Debezium's sink would name differently."""
    name = next((each for each in _TABLE_NAMES if raw.get(each) is not None), _TABLE_NAMES[0])
    text = raw.get(name) or "${topic}"
    other = _PLACEHOLDER.search(text)
    if other is not None and name == _TABLE_NAMES[0]:
        yield Violation(name, f"has {other[0]}, but only ${{topic}} is supported")
    if (raw.get("connector.class") or "").strip() != _DEBEZIUM_JDBC_SINK or "${topic}" not in text:
        return
    if any(each.endswith("Router") for each in raw.values() if each):
        return  # a transform renames the topics, and so the tables
    for topic in (each.strip() for each in (raw.get("topics") or "").split(",")):
        if "." in topic:
            yield Violation(
                name,
                f"would make topic {topic!r} the table {topic.rpartition('.')[2]!r} of schema "
                f"{topic.rpartition('.')[0]!r} here, and {topic.replace('.', '_')!r} in Debezium's "
                "sink: name the table without ${topic}, or the topic without dots (RegexRouter)",
            )


#: io.confluent.connect.jdbc.JdbcSinkConnector and io.debezium.connector.jdbc.JdbcSinkConnector
JDBC_SINK = OtherSettings(
    renamed={
        "connection.username": "connection.user",
        "primary.key.mode": "pk.mode",
        "primary.key.fields": "pk.fields",
        "collection.name.format": "table.name.format",
        "schema.evolution": {
            "none": {"auto.create": "false", "auto.evolve": "false"},
            "basic": {"auto.create": "true", "auto.evolve": "true"},
        },
    },
    refused={
        **_whatever(
            "field.include.list",
            "field.exclude.list",
            "timestamp.fields.list",
            "column.naming.strategy",
            "cloud.events.schema.name.pattern",
            "data.type.mapping",
        ),
        "date.timezone": ("DB_TIMEZONE", "UTC"),
        "table.types": ("TABLE",),
        "db.timezone": ("UTC",),
        "use.time.zone": ("UTC",),
        "database.time_zone": ("UTC",),
        "timestamp.precision.mode": ("microseconds",),
        "date.calendar.system": ("PROLEPTIC_GREGORIAN",),
        "replace.null.with.default": ("true",),
        "truncate.enabled": _OFF,
        "quote.sql.identifiers": ("always",),
        "quote.identifiers": ("true",),
        "collection.naming.strategy": (
            "io.debezium.sink.naming.DefaultCollectionNamingStrategy",
            "io.debezium.connector.jdbc.naming.DefaultCollectionNamingStrategy",
        ),
        "table.naming.strategy": ("io.debezium.connector.jdbc.naming.DefaultTableNamingStrategy",),
    },
    without_effect={
        **_nothing("batch.size", instead=_BATCHES),
        **_nothing("max.retries", "retry.backoff.ms", instead=_CALLS),
        **_nothing("flush.max.retries", "flush.retry.delay.ms", instead=_CALLS),
        **_nothing("connection.attempts", "connection.backoff.ms", instead=_CALLS),
        **_nothing("connection.restart.on.errors", instead=_CALLS),
        **_nothing("dialect.name", instead="connection.url names the database"),
        **_nothing("use.reduction.buffer", instead="the last record of a key in a batch wins"),
        **_nothing(
            "connection.provider",
            "connection.pool.*",
            "dialect.*.*",
            "jdbc.credentials.provider.*",
            "keyed.message.batch.mode",
            "mssql.use.merge.holdlock",
            "string.output.value.column.name",
            "trim.sensitive.log",
            "hibernate.*",
        ),
    },
    faults=_debezium_tables,
)

#: io.debezium.connector.postgresql.PostgresConnector
POSTGRES_CDC = OtherSettings(
    defaults={
        "io.debezium.connector.postgresql.PostgresConnector": {
            "time.precision.mode": "adaptive",
            "interval.handling.mode": "numeric",
            "hstore.handling.mode": "json",
        }
    },
    renamed={
        **{
            f"{kind}.{former}": f"{kind}.{name}.list"
            for kind in ("table", "schema", "column")
            for former, name in (("whitelist", "include"), ("blacklist", "exclude"))
        },
        "database.server.name": "topic.prefix",
        "heartbeat.topics.prefix": "topic.heartbeat.prefix",
        "toasted.value.placeholder": "unavailable.value.placeholder",
        "truncate.handling.mode": {
            "skip": {"skipped.operations": "t"},
            "include": {"skipped.operations": "none"},
        },
    },
    refused={
        **_whatever(
            "column.mask.*",
            "column.truncate.*",
            "column.propagate.source.type",
            "datatype.propagate.source.type",
            "converters",
            "message.prefix.include.list",
            "post.processors",
            "replica.identity.autoset.values",
            "signal.data.collection",
            "snapshot.include.collection.list",
            "snapshot.mode.custom.name",
            "snapshot.mode.configuration.based.*",
            "snapshot.query.mode.custom.name",
            "snapshot.select.statement.overrides*",
            "sourceinfo.struct.maker",
        ),
        "binary.handling.mode": ("bytes",),
        "event.deserialization.failure.handling.mode": ("fail",),
        "sanitize.field.names": _OFF,
        "source.struct.version": ("v2",),
        "slot.drop_on_stop": _OFF,
        "event.converting.failure.handling.mode": ("fail",),
        "event.processing.failure.handling.mode": ("fail",),
        "field.name.adjustment.mode": ("none",),
        "include.schema.comments": _OFF,
        "include.unknown.datatypes": ("true",),
        "money.fraction.digits": ("2",),
        "provide.transaction.metadata": _OFF,
        "publish.via.partition.root": ("true",),
        "schema.name.adjustment.mode": ("none",),
        "skip.messages.without.change": _OFF,
        "slot.drop.on.stop": _OFF,
        "snapshot.query.mode": ("select_all",),
        "topic.delimiter": (".",),
        "topic.naming.strategy": ("io.debezium.schema.SchemaTopicNamingStrategy",),
        "xmin.fetch.interval.ms": ("0",),
    },
    without_effect={
        **_nothing("max.batch.size", "max.queue.size", "max.queue.size.in.bytes", instead=_BATCHES),
        **_nothing("errors.max.retries", "retriable.restart.connector.wait.ms", instead=_CALLS),
        **_nothing(
            "advanced.metrics.enable",
            "connection.validation.timeout.ms",
            "create.slot.command.timeout",
            "custom.metric.tags",
            "custom.retriable.exception",
            "database.initial.statements",
            "database.query.timeout.ms",
            "database.sslfactory",
            "database.sslpassword",
            "database.tcpKeepAlive",
            "executor.shutdown.timeout.ms",
            "extended.headers.enabled",
            "flush.lsn.source",
            "guardrail.*",
            "incremental.snapshot.*",
            "internal.*",
            "legacy.*",
            "log.position.check.enable",
            "lsn.flush.*",
            "message.prefix.exclude.list",
            "notification.*",
            "offset.*",
            "poll.dispatch.interval.ms",
            "query.fetch.size",
            "read.only",
            "schema.refresh.mode",
            "signal.*",
            "slot.failover",
            "slot.max.retries",
            "slot.retry.delay.ms",
            "slot.seek.to.known.offset.on.start",
            "slot.stream.params",
            "snapshot.delay.ms",
            "snapshot.fetch.size",
            "snapshot.isolation.mode",
            "snapshot.lock.timeout.ms",
            "snapshot.locking.mode*",
            "snapshot.max.threads*",
            "snapshot.tables.order.by.row.count",
            "statistics.metrics.enabled",
            "status.update.interval.ms",
            "streaming.delay.ms",
            "topic.cache.size",
            "topic.heartbeat.*",
            "topic.transaction",
            "transaction.metadata.factory",
        ),
    },
)

#: org.apache.iceberg.connect.IcebergSinkConnector, and its predecessor from Tabular
ICEBERG_SINK = OtherSettings(
    refused={
        **_whatever(
            "iceberg.table.*.route-regex",
            "iceberg.tables.auto-create-props.*",
            "iceberg.tables.write-props.*",
        ),
        "iceberg.catalog.catalog-impl": ("",),
        "iceberg.tables.cdc-field": ("",),
        "iceberg.tables.default-commit-branch": ("", "main"),
        "iceberg.table.*.commit-branch": ("main",),
        "iceberg.tables.dynamic-enabled": _OFF,
        "iceberg.tables.route-field": ("",),
        "iceberg.tables.schema-case-insensitive": _OFF,
        "iceberg.tables.schema-force-optional": _OFF,
    },
    without_effect=_nothing(
        "iceberg.catalog.io-impl",
        "iceberg.connect.group-id",
        "iceberg.control.commit.threads",
        "iceberg.control.commit.timeout-ms",
        "iceberg.control.group-id*",
        "iceberg.control.topic",
        "iceberg.coordinator*",
        "iceberg.hadoop*",
        "iceberg.kafka.*",
    ),
    passed_on=(
        "iceberg.catalog.*",
        "iceberg.table.*.id-columns",
        "iceberg.table.*.partition-by",
    ),
)

#: io.confluent.connect.s3.S3SinkConnector
S3_SINK = OtherSettings(
    refused={
        **_whatever(
            "avro.codec",
            "format.bytearray.*",
            "headers.format.class",
            "keys.format.class",
            "s3.object.tagging.key.value.pairs",
            "tombstone.encoded.partition",
        ),
        "directory.delim": ("/",),
        "file.delim": ("+",),
        "filename.offset.zero.pad.width": ("10",),
        "json.decimal.format": ("NUMERIC",),
        "s3.acl.canned": ("",),
        "s3.object.tagging": _OFF,
        "s3.schema.partition.affix.type": ("NONE",),
        "s3.sse.customer.key": ("",),
        "s3.sse.kms.key.id": ("",),
        "s3.ssea.name": ("", "AES256"),
        "schema.compatibility": ("NONE",),
        "storage.class": ("io.confluent.connect.s3.storage.S3Storage",),
        "store.kafka.headers": _OFF,
        "store.kafka.keys": _OFF,
    },
    without_effect={
        **_nothing("s3.part.retries", "s3.retry.backoff.ms", "retry.backoff.ms", instead=_CALLS),
        **_nothing(
            "s3.credentials.provider.class",
            instead="aws.* settings or the worker's environment have the credentials",
        ),
        **_nothing(
            "allow.optional.map.keys",
            "confluent.license",
            "confluent.topic.*",
            "connect.meta.data",
            "enable.conditional.writes",
            "enhanced.avro.schema.support",
            "locale",
            "max.files.scan.limit",
            "max.write.duration.ms",
            "partitioner.max.open.files",
            "report.null.values.to.dlq",
            "rotate.file.on.partition.change",
            "s3.compression.level",
            "s3.elastic.buffer.*",
            "s3.http.send.expect.continue",
            "s3.object.behavior.on.tagging.error",
            "s3.part.size",
            "s3.proxy.*",
            "s3.send.digest",
            "s3.wan.mode",
            "schemas.cache.config",
            "schemas.cache.size",
            "shutdown.timeout.ms",
        ),
    },
)

#: io.aiven.kafka.connect.http.HttpSinkConnector
HTTP_SINK = OtherSettings(
    refused={
        "decimal.format": ("NUMERIC",),
        "oauth2.grant.type": ("client_credentials",),
        "oauth2.request.client.id.property": ("client_id",),
        "oauth2.request.client.secret.property": ("client_secret",),
        "oauth2.request.grant.type.property": ("grant_type",),
        "oauth2.response.token.property": ("access_token",),
    },
    without_effect={
        **_nothing("kafka.retry.backoff.ms", instead=_CALLS),
        **_nothing(
            "http.proxy.*",
            "http.ssl.*",
            "oauth2.token.renew.on.status.codes",
        ),
    },
)


def _without_cluster_check(*prefixes: str) -> dict[str, str]:
    """Kafka 4.4's check for connections to a broker of another cluster, which librdkafka lacks."""
    names = (f"{prefix}.metadata.cluster.check.enable" for prefix in prefixes)
    return _nothing(*names, instead="librdkafka does not check to which cluster a broker belongs")


#: org.apache.kafka.connect.mirror.MirrorSourceConnector
KAFKA_SOURCE = OtherSettings(
    renamed={"topics.blacklist": "topics.exclude"},
    refused=_whatever("topic.filter.class", "config.property.filter.class"),
    without_effect={
        **_nothing("target.*", instead="records are copied to Drover's own cluster"),
        **_nothing("replication.factor", instead="topic.creation.default.replication.factor"),
        **_nothing(
            "add.source.alias.to.metrics",
            "admin.timeout.ms",
            "checkpoints.*",
            "clusters",
            "config.properties.*",
            "consumer.poll.timeout.ms",
            "emit.*",
            "enabled",
            "forwarding.admin.class",
            "heartbeats.*",
            "offset-syncs.*",
            "offset.lag.max",
            "producer.*",
            "source.admin.*",
            "source.producer.*",
            "sync.topic.*",
            "use.incremental.alter.configs",
        ),
        **_without_cluster_check("source.cluster", "source.consumer", "target.cluster"),
    },
    passed_on=("source.cluster.*", "source.consumer.*", "target.cluster.*"),
)

#: Not a connector of Kafka Connect: these settings are passed to the client.
KAFKA_SINK = OtherSettings(
    without_effect=_without_cluster_check("target.cluster", "target.producer"),
    passed_on=("target.cluster.*", "target.producer.*"),
)


def file_stream_task_config(config_texts: Mapping[str, str]) -> dict[str, str] | None:
    """The config of the only task; None if the class name is not Kafka Connect's."""
    task_class = _TASK_CLASSES.get(config_texts.get(_CONNECTOR_CLASS, "").strip())
    return None if task_class is None else {**config_texts, TASK_CLASS: task_class}
