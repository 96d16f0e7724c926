"""The connectors of databases beside Debezium's in Kafka Connect: same database, same broker."""

from collections.abc import Iterator

from bench import cdc_changes, jdbc_source, topic_sinks
from bench.databases import on_stage
from bench.figure import Figure


def figures() -> Iterator[Figure]:
    """CDC, JDBC source and sink beside Debezium in Kafka Connect; a topic to Parquet."""
    measures = (cdc_changes.measure, jdbc_source.measure, topic_sinks.measure)
    yield from on_stage("databases", measures)
