"""Configs in the form in which public repositories have them, and what is expected of each."""

import json
from collections.abc import Mapping

from tests.support.repository import REPOSITORY

_DIRECTORY = REPOSITORY / "tests" / "data" / "public_configs"

_REFUSED = "is not supported and would change the data: remove it"
_CLASS = "connector.class"
#: The faults of each config: the beginning of the text by setting. For an unknown class the text
#: follows the sentence that it is not installed.
FAULTS: Mapping[str, Mapping[str, str]] = {
    "aiven-http-sink": {},
    "aiven-jdbc-sink": {_CLASS: "did you mean 'JdbcSink'?"},
    "aiven-s3-sink": {_CLASS: "the nearest sink is S3Sink."},
    "camel-s3-sink": {_CLASS: "the nearest sink is S3Sink."},
    "confluent-http-sink": {_CLASS: "did you mean 'HttpSink'?"},
    "datagen-users": {_CLASS: "did you mean 'DatagenSource'?"},
    "debezium-jdbc-sink": {},
    "debezium-old-names": {},
    "debezium-outbox": {
        "transforms.outbox.type": "no transform is called "
        "'io.debezium.transforms.outbox.EventRouter': the nearest is Sql",
        "value.converter": "must name a converter: no converter is called "
        "'io.debezium.converters.BinaryDataConverter': the nearest is ByteArrayConverter",
    },
    "debezium-router-filter": {
        "provide.transaction.metadata": f"{_REFUSED}, or set it to false",
        "transforms.content.type": "no transform is called "
        "'io.debezium.transforms.ContentBasedRouter': the nearest is Sql",
        "transforms.filter.type": "no transform is called 'io.debezium.transforms.Filter': the "
        "nearest is Filter with the predicate FieldMatches",
        "transforms.route.type": "no transform is called "
        "'io.debezium.transforms.ByLogicalTableRouter': the nearest is RegexRouter",
    },
    "debezium-strimzi": {"signal.data.collection": _REFUSED},
    "debezium-unwrap-headers": {
        "plugin.name": "must be one of pgoutput, not 'wal2json'",
        "transforms.unwrap.add.headers": _REFUSED,
        "transforms.unwrap.operation.header": f"{_REFUSED}, or set it to false",
    },
    "debezium-unwrap-rewrite": {},
    "elasticsearch-sink": {_CLASS: "Drover has no sink for Elasticsearch."},
    "file-sink": {},
    "file-source": {},
    "iceberg-dynamic": {
        "iceberg.catalog.type": "must be one of rest, sql, jdbc, not 'hive'",
        "iceberg.tables": "is required",
        "iceberg.tables.cdc-field": _REFUSED,
        "iceberg.tables.dynamic-enabled": f"{_REFUSED}, or set it to false",
        "iceberg.tables.route-field": _REFUSED,
        "transforms.dbz.type": "no transform is called "
        "'org.apache.iceberg.connect.transforms.DebeziumTransform': the nearest is "
        "ExtractNewRecordState with add.fields",
    },
    "iceberg-tabular": {},
    "jdbc-sink-upsert": {},
    "jdbc-source-query": {
        "numeric.precision.mapping": f"{_REFUSED}, or set it to false",
        "quote.sql.identifiers": f"{_REFUSED}, or set it to always",
        "timestamp.granularity": f"{_REFUSED}, or set it to connect_logical",
    },
    "jdbc-source-tables": {},
    "mirror-checkpoint": {
        _CLASS: "the nearest is KafkaSource, which copies them with sync.group.offsets.enabled=true"
    },
    "mirror-heartbeat": {_CLASS: "the nearest is KafkaSource, which needs no heartbeats."},
    "mirror-source": {},
    "mongodb-source": {_CLASS: "Drover has no source for MongoDB."},
    "mysql-capture": {_CLASS: "the nearest source is JdbcSource, which reads new and changed rows"},
    "s3-bytes-backward": {
        "format.class": "must be one of JsonFormat, ParquetFormat, not ",
        "schema.compatibility": f"{_REFUSED}, or set it to NONE",
    },
    "s3-hourly-avro": {"format.class": "must be one of JsonFormat, ParquetFormat, not "},
    "s3-json-by-time": {},
}


def public_configs() -> dict[str, dict[str, str]]:
    """The configs by name, each with its name."""
    found = {}
    for path in sorted(_DIRECTORY.glob("*.json")):
        definition = json.loads(path.read_text(encoding="utf-8"))
        found[path.stem] = {**definition["config"], "name": definition["name"]}
    return found


def without_class_sentence(config: Mapping[str, str], text: str) -> str:
    """The fault of an unknown class after the sentence that it is not installed."""
    return text.removeprefix(f"no connector {config[_CLASS]!r} is installed on this worker: ")
