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


_SPEED = "it changes the speed, not the data"
_CONNECTION = "it changes how connections are made, not the data"
_MONITORING = "it changes metrics, logs and messages, not the data"
_PLACE = "it changes where state is stored or work is coordinated, not the data"
_UNUSED = "it belongs to a feature that is off, or that no connector here has"
_SMALL = "it changes when and how large outputs are, not their records"


def _nothing(*names: str, why: str) -> dict[str, str]:
    """Settings without effect, with the reason why no data depends on them, or a replacement."""
    return dict.fromkeys(names, why)


def _whatever(*names: str) -> dict[str, tuple[str, ...]]:
    """Settings that change the data, so that every value is refused."""
    return dict.fromkeys(names, ())


_CONFLUENT = "io.confluent."
_DRIVER_PARAMETER = "connection."
_CONNECTION_SETTINGS = (
    *("connection.url", "connection.user", "connection.password"),
    *("connection.attempts", "connection.backoff.ms", "connection.username"),
    *("connection.provider", "connection.restart.on.errors", "connection.pool."),
)


def _driver_parameters(raw: Mapping[str, str | None]) -> Iterator[Violation]:
    """Settings that Confluent's connectors pass to the JDBC driver, which may change the data."""
    if not (raw.get(_CONNECTOR_CLASS) or "").strip().startswith(_CONFLUENT):
        return
    for name in raw:
        if name.startswith(_DRIVER_PARAMETER) and not name.startswith(_CONNECTION_SETTINGS):
            yield Violation(
                name,
                "is a parameter of a JDBC driver, and there is none here: remove it, or use a "
                "parameter of connection.url (docs/jdbc.md)",
            )


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
        "timestamp.granularity": ("connect_logical",),
        "numeric.precision.mapping": _OFF,
        "quote.sql.identifiers": ("always",),
        "date.calendar.system": ("PROLEPTIC_GREGORIAN",),
        "transaction.isolation.mode": ("DEFAULT", "READ_COMMITTED"),
    },
    without_effect={
        **_nothing("connection.attempts", "connection.backoff.ms", why=_CALLS),
        **_nothing("query.retry.attempts", why=_CALLS),
        **_nothing("max.buffer.size", "poll.linger.ms", why=_BATCHES),
        **_nothing("dialect.name", why="connection.url names the database"),
        **_nothing("jdbc.credentials.provider.*", why="connection.user, connection.password"),
        **_nothing("table.monitoring.startup.polling.limit.ms", why=_SPEED),
    },
    faults=_driver_parameters,
)

_DEBEZIUM_JDBC_SINK = "io.debezium.connector.jdbc.JdbcSinkConnector"
_TABLE_NAMES = ("collection.name.format", "table.name.format")
_PLACEHOLDER = re.compile(r"\$\{(?!topic\})[^}]*\}")


def _jdbc_sink_faults(raw: Mapping[str, str | None]) -> Iterator[Violation]:
    """Parameters of JDBC drivers, and tables that Debezium's sink would name differently."""
    yield from _driver_parameters(raw)
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
            "string.output.value.column.name",
        ),
        "date.timezone": ("DB_TIMEZONE", "UTC"),
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
        **_nothing("batch.size", why=_BATCHES),
        **_nothing("max.retries", "retry.backoff.ms", why=_CALLS),
        **_nothing("flush.max.retries", "flush.retry.delay.ms", why=_CALLS),
        **_nothing("connection.attempts", "connection.backoff.ms", why=_CALLS),
        **_nothing("connection.restart.on.errors", why=_CALLS),
        **_nothing("dialect.name", why="connection.url names the database"),
        **_nothing("table.types", why="table.name.format names a table or an updatable view"),
        **_nothing("use.reduction.buffer", why="the last record of a key in a batch wins"),
        **_nothing(
            "connection.provider",
            "connection.pool.*",
            "hibernate.*",
            "jdbc.credentials.provider.*",
            why=_CONNECTION,
        ),
        **_nothing("dialect.*.*", "mssql.use.merge.holdlock", why=_UNUSED),
        **_nothing("keyed.message.batch.mode", why="the last record of a key in a batch wins"),
        **_nothing("trim.sensitive.log", why=_MONITORING),
    },
    faults=_jdbc_sink_faults,
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
            "database.initial.statements",
            "message.prefix.include.list",
            "post.processors",
            "replica.identity.autoset.values",
            "signal.data.collection",
            "snapshot.include.collection.list",
            "snapshot.custom.class",
            "snapshot.mode.custom.name",
            "snapshot.mode.configuration.based.*",
            "slot.stream.params",
            "snapshot.query.mode.custom.name",
            "snapshot.select.statement.overrides*",
            "sourceinfo.struct.maker",
            "database.currentSchema",
            "database.options",
            "driver.*",
        ),
        "binary.handling.mode": ("bytes",),
        "event.deserialization.failure.handling.mode": ("fail",),
        "sanitize.field.names": _OFF,
        "source.struct.version": ("v2",),
        "slot.drop_on_stop": _OFF,
        "event.converting.failure.handling.mode": ("fail",),
        "event.processing.failure.handling.mode": ("fail",),
        "extended.headers.enabled": _OFF,
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
        **_nothing("max.batch.size", "max.queue.size", "max.queue.size.in.bytes", why=_BATCHES),
        **_nothing("errors.max.retries", "retriable.restart.connector.wait.ms", why=_CALLS),
        **_nothing(
            "connection.validation.timeout.ms",
            "create.slot.command.timeout",
            "custom.retriable.exception",
            "database.query.timeout.ms",
            "database.sslfactory",
            "database.sslpassword",
            "database.tcpKeepAlive",
            "slot.max.retries",
            "slot.retry.delay.ms",
            "status.update.interval.ms",
            why=_CONNECTION,
        ),
        **_nothing(
            "advanced.metrics.enable",
            "custom.metric.tags",
            "guardrail.*",
            "log.position.check.enable",
            "statistics.metrics.enabled",
            why=_MONITORING,
        ),
        **_nothing(
            "executor.shutdown.timeout.ms",
            "poll.dispatch.interval.ms",
            "query.fetch.size",
            "snapshot.delay.ms",
            "snapshot.fetch.size",
            "snapshot.lock.timeout.ms",
            "snapshot.max.threads*",
            "snapshot.tables.order.by.row.count",
            "streaming.delay.ms",
            "topic.cache.size",
            why=_SPEED,
        ),
        **_nothing(
            "flush.lsn.source",
            "lsn.flush.*",
            "offset.*",
            "slot.failover",
            "slot.seek.to.known.offset.on.start",
            why="committed offsets alone decide where the stream resumes",
        ),
        **_nothing(
            "snapshot.isolation.mode",
            "snapshot.locking.mode*",
            why="a snapshot is always one repeatable read, and locks no table",
        ),
        **_nothing(
            "incremental.snapshot.*",
            "message.prefix.exclude.list",
            "notification.*",
            "read.only",
            "signal.*",
            "topic.transaction",
            "transaction.metadata.factory",
            why=_UNUSED,
        ),
        **_nothing("schema.refresh.mode", why="each change has the columns of its table"),
        **_nothing("topic.heartbeat.*", why="use topic.heartbeat.prefix"),
        **_nothing(
            "include.schema.changes",
            "schema.history.*",
            "database.history.*",
            "database.server.id",
            why="it belongs to connectors for other databases",
        ),
        **_nothing("openlineage.*", why=_MONITORING),
        **_nothing("internal.*", "legacy.*", why="Debezium documents them for its own tests only"),
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
        why=_PLACE,
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
        **_nothing("s3.part.retries", "s3.retry.backoff.ms", "retry.backoff.ms", why=_CALLS),
        **_nothing(
            "s3.credentials.provider.class",
            why="aws.* settings or the worker's environment have the credentials",
        ),
        **_nothing(
            "confluent.license",
            "confluent.topic.*",
            "locale",
            why="it belongs to Confluent's licence or to time-based partitions in words",
        ),
        **_nothing(
            "max.files.scan.limit",
            "max.write.duration.ms",
            "s3.elastic.buffer.*",
            "s3.http.send.expect.continue",
            "s3.part.size",
            "s3.send.digest",
            "schemas.cache.config",
            "schemas.cache.size",
            "shutdown.timeout.ms",
            why=_SPEED,
        ),
        **_nothing("s3.proxy.*", "s3.wan.mode", why=_CONNECTION),
        **_nothing(
            "enable.conditional.writes",
            "partitioner.max.open.files",
            "rotate.file.on.partition.change",
            "s3.compression.level",
            why=_SMALL,
        ),
        **_nothing(
            "allow.optional.map.keys",
            "connect.meta.data",
            "enhanced.avro.schema.support",
            why="it changes names and notes in the schemas of Avro files, not their records",
        ),
        **_nothing(
            "report.null.values.to.dlq",
            why="behavior.on.null.values decides what happens to records without a value",
        ),
        **_nothing(
            "hive.*", "schema.generator.class", "s3.object.behavior.on.tagging.error", why=_UNUSED
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
        **_nothing("kafka.retry.backoff.ms", why=_CALLS),
        **_nothing(
            "http.proxy.*",
            "http.ssl.*",
            "oauth2.token.renew.on.status.codes",
            why=_CONNECTION,
        ),
    },
)


def _without_cluster_check(*prefixes: str) -> dict[str, str]:
    """Kafka 4.4's check for connections to a broker of another cluster, which librdkafka lacks."""
    names = (f"{prefix}.metadata.cluster.check.enable" for prefix in prefixes)
    return _nothing(*names, why="librdkafka does not check to which cluster a broker belongs")


#: org.apache.kafka.connect.mirror.MirrorSourceConnector
KAFKA_SOURCE = OtherSettings(
    renamed={
        "groups.blacklist": "groups.exclude",
        "source.consumer.auto.offset.reset": "consumer.auto.offset.reset",
        "topics.blacklist": "topics.exclude",
    },
    refused=_whatever("topic.filter.class", "config.property.filter.class"),
    without_effect={
        **_nothing("target.*", why="records are copied to Drover's own cluster"),
        **_nothing("replication.factor", why="topic.creation.default.replication.factor"),
        **_nothing("add.source.alias.to.metrics", why=_MONITORING),
        **_nothing(
            "admin.timeout.ms",
            "consumer.poll.timeout.ms",
            "forwarding.admin.class",
            "producer.*",
            "source.admin.*",
            "source.producer.*",
            "use.incremental.alter.configs",
            why=_CONNECTION,
        ),
        **_without_cluster_check("source.cluster", "source.consumer", "target.cluster"),
        **_nothing(
            "checkpoints.*",
            "emit.*",
            "heartbeats.*",
            "offset-syncs.*",
            "offset.lag.max",
            why="no heartbeats, checkpoints and offset-syncs are written; "
            "sync.group.offsets.enabled needs none",
        ),
        **_nothing("clusters", "enabled", why="a connector copies in one direction"),
        **_nothing("config.properties.*", why="sync.topic.configs.enabled has its own list"),
        **_nothing("sync.topic.*", why="copy ACLs and later changes of topic settings yourself"),
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
