"""Systems for which other products have connectors, and the nearest connectors here."""

from collections.abc import Sequence
from dataclasses import dataclass

from drover.config.near_names import simple_name, words_of

SOURCE, SINK = "source", "sink"


@dataclass(frozen=True, slots=True)
class OtherSystem:
    """A system that class names of other products name.

    Attributes:
        name: Its name.
        keys: Texts in class names that name it, in lower case: a word, or, from five characters,
            any part.
        source: The nearest source here, and how it differs; empty if there is none.
        sink: The nearest sink here, and how it differs; empty if there is none.
    """

    name: str
    keys: tuple[str, ...]
    source: str = ""
    sink: str = ""


_PART_MIN_LENGTH = 5
_NEW_ROWS = "JdbcSource, which reads new and changed rows by a column, but no deletions"
_REST = "HttpSource, if its API returns JSON"
_FILES_SOURCE = "FilesSource, which reads csv, JSON, Parquet, Avro and text"
_FILES_SINK = "FilesSink"

#: In the order of the search: special systems first.
SYSTEMS = (
    OtherSystem(
        "offsets of consumer groups",
        ("mirrorcheckpoint",),
        source="KafkaSource, which copies them with sync.group.offsets.enabled=true",
    ),
    OtherSystem(
        "heartbeats", ("mirrorheartbeat",), source="KafkaSource, which needs no heartbeats"
    ),
    OtherSystem("other Kafka clusters", ("replicator", "mirror"), "KafkaSource", "KafkaSink"),
    OtherSystem("MySQL", ("mysql",), _NEW_ROWS, "JdbcSink"),
    OtherSystem("MariaDB", ("mariadb",), _NEW_ROWS, "JdbcSink"),
    OtherSystem("YugabyteDB", ("yugabyte",)),
    OtherSystem("CockroachDB", ("cockroach",)),
    OtherSystem("PostgreSQL", ("postgres", "pgsql"), "PostgresCdcSource", "JdbcSink"),
    OtherSystem("SQLite", ("sqlite",), _NEW_ROWS, "JdbcSink"),
    OtherSystem("MongoDB", ("mongo",)),
    OtherSystem("SQL Server", ("sqlserver", "mssql")),
    OtherSystem("Oracle", ("oracle", "xstream")),
    OtherSystem("Db2", ("db2", "db2as400", "informix")),
    OtherSystem("Vitess", ("vitess",)),
    OtherSystem("Cloud Spanner", ("spanner",)),
    OtherSystem("Cassandra", ("cassandra", "scylla", "astra")),
    OtherSystem("Elasticsearch", ("elastic",)),
    OtherSystem("OpenSearch", ("opensearch",)),
    OtherSystem("Solr", ("solr",)),
    OtherSystem("Snowflake", ("snowflake",)),
    OtherSystem("BigQuery", ("bigquery",)),
    OtherSystem("Redshift", ("redshift",)),
    OtherSystem("ClickHouse", ("clickhouse",)),
    OtherSystem("Databricks", ("databricks",), sink="DeltaSink"),
    OtherSystem("Delta Lake", ("deltalake", "delta"), sink="DeltaSink"),
    OtherSystem("Iceberg", ("iceberg",), sink="IcebergSink"),
    OtherSystem("Hudi", ("hudi",)),
    OtherSystem("SingleStore", ("singlestore", "memsql")),
    OtherSystem("Vertica", ("vertica",)),
    OtherSystem("Teradata", ("teradata",)),
    OtherSystem("Redis", ("redis",)),
    OtherSystem("Couchbase", ("couchbase",)),
    OtherSystem("Neo4j", ("neo4j",)),
    OtherSystem("DynamoDB", ("dynamo", "ddb")),
    OtherSystem("HBase", ("hbase",)),
    OtherSystem("Bigtable", ("bigtable",)),
    OtherSystem("Kudu", ("kudu",)),
    OtherSystem("InfluxDB", ("influx",)),
    OtherSystem("Prometheus", ("prometheus",)),
    OtherSystem("Splunk", ("splunk",)),
    OtherSystem("Kinesis", ("kinesis",)),
    OtherSystem("SQS", ("sqs", "awssqs")),
    OtherSystem("SNS", ("sns", "awssns")),
    OtherSystem("Lambda", ("lambda",)),
    OtherSystem("Pub/Sub", ("pubsub",)),
    OtherSystem("Event Hubs", ("eventhubs", "eventhub")),
    OtherSystem("Service Bus", ("servicebus",)),
    OtherSystem("RabbitMQ", ("rabbit",)),
    OtherSystem("MQTT", ("mqtt",)),
    OtherSystem("JMS", ("jms", "sjms2", "activemq", "solace", "tibco")),
    OtherSystem("IBM MQ", ("ibmmq", "mqsource", "mqsink", "mq")),
    OtherSystem("AMQP", ("amqp",)),
    OtherSystem("NATS", ("nats",)),
    OtherSystem("Pulsar", ("pulsar",)),
    OtherSystem("HDFS", ("hdfs", "hdfs2", "hdfs3", "webhdfs")),
    OtherSystem("SFTP and FTP", ("sftp", "ftp", "ftps")),
    OtherSystem("S3", ("s3", "awss3", "s3source", "minio"), _FILES_SOURCE, "S3Sink"),
    OtherSystem(
        "Google Cloud Storage", ("gcs", "googlestorage", "cloudstorage"), _FILES_SOURCE, _FILES_SINK
    ),
    OtherSystem(
        "Azure Blob Storage",
        ("blob", "azureblob", "azurestorage", "datalake", "adls"),
        _FILES_SOURCE,
        _FILES_SINK,
    ),
    OtherSystem("directories of files", ("spooldir", "filepulse"), _FILES_SOURCE, _FILES_SINK),
    OtherSystem("generated rows", ("datagen", "voluble"), source="DatagenSource"),
    OtherSystem("Salesforce", ("salesforce",), _REST),
    OtherSystem("ServiceNow", ("servicenow",), _REST),
    OtherSystem("Zendesk", ("zendesk",), _REST),
    OtherSystem("Jira", ("jira",), _REST),
    OtherSystem("GitHub", ("github",), _REST),
    OtherSystem("Syslog", ("syslog",)),
    OtherSystem("e-mail", ("email", "mail", "imap")),
    OtherSystem("HTTP APIs", ("http", "https", "rest", "webhook"), _REST, "HttpSink"),
    OtherSystem("JDBC databases", ("jdbc", "dbms"), "JdbcSource", "JdbcSink"),
)


def nearest_connector(name: str, systems: Sequence[OtherSystem] = SYSTEMS) -> str | None:
    """The sentence about the connector here that is nearest to a class of another product.

    Returns:
        None if the name names no system that is known here.
    """
    words = words_of(name)
    joined = "".join(words)
    for each in systems:
        if any(
            key in words or (len(key) >= _PART_MIN_LENGTH and key in joined) for key in each.keys
        ):
            return _sentence(each, _direction(name))
    return None


def _direction(name: str) -> str | None:
    words = words_of(simple_name(name))
    found = {SOURCE, SINK} & {*words}
    if len(found) == 1:
        return found.pop()
    # Debezium's connectors have neither word
    return SOURCE if name.strip().startswith("io.debezium.") else None


def _sentence(system: OtherSystem, direction: str | None) -> str:
    if direction is not None:
        nearest = system.source if direction == SOURCE else system.sink
        if nearest:
            return f"the nearest {direction} is {nearest}"
        return f"Drover has no {direction} for {system.name}"
    nearest = " or ".join(each for each in (system.source, system.sink) if each)
    return f"the nearest is {nearest}" if nearest else f"Drover has no connector for {system.name}"
