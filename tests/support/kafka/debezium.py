"""Debezium's connectors as plugins of Kafka Connect, fetched once, as Kafka's jars are."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka.jars import CACHE, PROJECT
from tests.support.kafka.missing import KafkaMissingError
from tests.support.maven import JarsMissingError, Wanted, fetched_once, version_in

_POM = PROJECT / "debezium" / "pom.xml"
POSTGRES_SOURCE = "io.debezium.connector.postgresql.PostgresConnector"
JDBC_SINK = "io.debezium.connector.jdbc.JdbcSinkConnector"


@dataclass(frozen=True, slots=True)
class Debezium:
    """The plugins' folder, and the releases of both connectors."""

    directory: Path
    postgres_version: str
    jdbc_version: str

    @property
    def worker_settings(self) -> dict[str, str]:
        """A Kafka Connect worker's settings for finding the plugins."""
        return {"plugin.path": str(self.directory)}


def find_debezium(environ: Mapping[str, str] = os.environ, *, cache: Path = CACHE) -> Debezium:
    """The plugins from the cache; fetches them if they are missing.

    Raises:
        KafkaMissingError: There are neither the plugins nor an mvn to fetch them.
    """
    postgres = version_in(_POM, "debezium.postgres.version")
    jdbc = version_in(_POM, "debezium.jdbc.version")
    wanted = Wanted(
        "Debezium's connectors", "unpack-dependencies", _POM, "debezium-connector-*/*.jar"
    )
    try:
        directory = fetched_once(wanted, f"debezium-{postgres}", environ, cache=cache)
    except JarsMissingError as error:
        raise KafkaMissingError(str(error)) from error
    return Debezium(directory, postgres, jdbc)
