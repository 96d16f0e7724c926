"""Iceberg's own REST catalogue on loopback, with its tables in a file of SQLite."""

import importlib.util
import os
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.addresses import HOST, free_ports
from tests.support.child_process import ChildProcess
from tests.support.java_command import java_command
from tests.support.maven import Wanted, java_and_jars, version_in
from tests.support.repository import REPOSITORY

CACHE = REPOSITORY / ".iceberg"
_POM = Path(__file__).with_name("iceberg_rest_pom.xml")
_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
#: PySpark's jars with Hadoop's client and its logging.
_OF_SPARK = ("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar", "jcl-over-slf4j-*.jar")


@dataclass(frozen=True)
class IcebergRest:
    """A running catalogue; ``warehouse`` is the location of its tables.

    It listens on all interfaces, its default, and has no authentication.
    """

    port: int
    warehouse: str
    process: ChildProcess

    @property
    def address(self) -> str:
        """Its address."""
        return f"http://{HOST}:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        """A sink's settings for the catalogue."""
        return {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": self.address}

    def start(self) -> None:
        """Start or restart it, and wait until it responds."""
        self.process.start(ready=self._answers)

    def _answers(self) -> bool:
        with (
            suppress(OSError),
            urllib.request.urlopen(f"{self.address}/v1/config", timeout=30) as answer,
        ):
            return bool(answer.status == 200)
        return False


def find_command(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The command that starts it; fetches its jars if they are missing.

    Raises:
        JarsMissingError: There is no Java, or the jars cannot be fetched.
    """
    version = version_in(_POM, "iceberg.version")
    wanted = Wanted("Iceberg's jars", "copy-dependencies", _POM, "iceberg-core-*.jar")
    java, jars = java_and_jars(wanted, version, environ, cache=CACHE)
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    spark = Path(pyspark.origin).with_name("jars")
    hadoop = [str(found) for each in _OF_SPARK for found in spark.glob(each)]
    return [
        *java_command(java, heap_mib=256),
        "-Djava.awt.headless=true",
        *("-cp", ":".join([f"{jars}/*", *hadoop])),
        _MAIN,
    ]


@contextmanager
def running_iceberg_rest(warehouse: str | None = None, **properties: str) -> Iterator[IcebergRest]:
    """A catalogue until the context ends.

    Args:
        warehouse: where its tables are; by default in a folder that goes with it.
        properties: more of the catalogue's, with underscores for dots and two for dashes.

    Raises:
        JarsMissingError: see ``find_command``.
    """
    command = find_command()
    with tempfile.TemporaryDirectory(
        prefix="drover-iceberg-", ignore_cleanup_errors=True
    ) as folder:
        (port,) = free_ports(1)
        place = warehouse or f"file://{folder}/warehouse"
        environment = {
            "CATALOG_REST_PORT": str(port),
            "CATALOG_URI": f"jdbc:sqlite:{folder}/catalogue.db",
            "CATALOG_WAREHOUSE": place,
            # SeaweedFS rejects the checksums that Amazon's library adds by default
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            **{f"CATALOG_{name.upper()}": value for name, value in properties.items()},
        }
        process = ChildProcess(
            "the REST catalogue",
            command,
            log_path=Path(folder) / "log",
            environment=environment,
        )
        server = IcebergRest(port, place, process)
        server.start()
        try:
            yield server
        finally:
            process.kill()
