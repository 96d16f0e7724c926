"""The jars of Apache Kafka: fetched once with mvn, cached in the folder ``.kafka``."""

import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.java_command import java_command
from tests.support.kafka.missing import KafkaMissingError
from tests.support.maven import JarsMissingError, Wanted, java_and_jars, version_in
from tests.support.repository import REPOSITORY

PROJECT = REPOSITORY / "deploy" / "kafka"
CACHE = REPOSITORY / ".kafka"
_POM = PROJECT / "pom.xml"
_HOST = REPOSITORY / "services/worker/drover_worker/java_host/drover-java-host.jar"
_MOVED = "org/apache/kafka/common/utils/"


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """A release of Apache Kafka that this machine can run."""

    version: str
    directory: Path
    java: Path

    def command(
        self,
        main_class: str,
        *arguments: str,
        heap_mib: int,
        properties: Sequence[str] = (),
        classes: Sequence[Path] = (),
    ) -> list[str]:
        """The command line of a Kafka program; ``properties`` are its JVM's, as name=value, and
        ``classes`` further folders of classes.
        """
        return [
            *java_command(self.java, heap_mib=heap_mib),
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={PROJECT / 'log4j2.xml'}",
            *(f"-D{each}" for each in properties),
            *("-cp", os.pathsep.join((f"{self.directory}/*", *map(str, classes)))),
            main_class,
            *arguments,
        ]

    def connector_classes(self) -> Path:
        """The folder of the classes that connectors built with Kafka 4.3 need on 4.4.

        Raises:
            KafkaMissingError: The host of Java plugins, which has them, is not built.
        """
        if not _HOST.is_file():
            raise KafkaMissingError(
                f"{_HOST} is not built: run `make java-host` with mvn and a JDK"
            )
        directory = self.directory.with_name(f"{self.directory.name}-moved")
        if not directory.is_dir():
            with (
                tempfile.TemporaryDirectory(dir=directory.parent, prefix=".unpacking-") as folder,
                zipfile.ZipFile(_HOST) as jar,
            ):
                moved = [each for each in jar.namelist() if each.startswith(_MOVED)]
                unpacked = Path(folder) / "classes"
                jar.extractall(unpacked, moved)
                with suppress(OSError):  # another process was first
                    unpacked.rename(directory)
        return directory


def kafka_version(pom: Path = _POM) -> str:
    """The pinned release, as the pom states it."""
    return version_in(pom, "kafka.version")


def find_jars(
    environ: Mapping[str, str] = os.environ, *, cache: Path = CACHE, pom: Path = _POM
) -> KafkaJars:
    """The jars from the cache; fetches them if they are missing.

    Raises:
        KafkaMissingError: There is no Java, or neither the jars nor an mvn to fetch them.
    """
    version = kafka_version(pom)
    wanted = Wanted("Kafka's jars", "copy-dependencies", pom, "kafka-clients-*.jar")
    try:
        java, directory = java_and_jars(wanted, version, environ, cache=cache)
    except JarsMissingError as error:
        raise KafkaMissingError(str(error)) from error
    return KafkaJars(version, directory, java)
