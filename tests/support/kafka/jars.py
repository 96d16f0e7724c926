"""The jars of Apache Kafka: fetched once with mvn, cached in the folder ``.kafka``."""

import os
import subprocess
import tempfile
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
_COMPILE_S = 120


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
        """The folder of a class that connectors of Kafka 4.3 need on 4.4, compiled once."""
        source = PROJECT / "AppInfoParser.java"
        directory = self.directory.with_name(f"{self.directory.name}-classes")
        if not directory.is_dir():
            with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".compiling-") as folder:
                compiled = Path(folder) / "classes"
                compiler = (str(self.java), "-m", "jdk.compiler/com.sun.tools.javac.Main")
                (clients,) = self.directory.glob("kafka-clients-*.jar")
                options = ("-cp", str(clients), "-d", str(compiled))
                subprocess.run([*compiler, *options, str(source)], check=True, timeout=_COMPILE_S)
                with suppress(OSError):  # another process was first
                    compiled.rename(directory)
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
