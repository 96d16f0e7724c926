"""The jars of Apache Kafka: fetched once through mvn, kept in the folder ``.kafka``."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from drover.cli.java_check import JavaUnusableError, find_java
from tests.support.kafka.missing import KafkaMissingError
from tests.support.repository import REPOSITORY

PROJECT = REPOSITORY / "deploy" / "kafka"
CACHE = REPOSITORY / ".kafka"
_POM = PROJECT / "pom.xml"
_FETCH_TIMEOUT_S = 280
_INSTALL_MVN = "install Maven (Debian, Ubuntu: apt-get install maven; macOS: brew install maven)"


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """A release of Apache Kafka that this machine can run."""

    version: str
    directory: Path
    java: Path

    def command(self, main_class: str, *arguments: str, heap_mib: int) -> list[str]:
        """How to run a program of Kafka; tuned to start soon, not to be fast for long."""
        return [
            str(self.java),
            f"-Xmx{heap_mib}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={PROJECT / 'log4j2.xml'}",
            *("-cp", f"{self.directory}/*"),
            main_class,
            *arguments,
        ]


def kafka_version(pom: Path = _POM) -> str:
    """The pinned release, as the pom states it."""
    found = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", pom.read_text())
    if found is None:
        raise ValueError(f"{pom} names no <kafka.version>")
    return found[1]


def find_jars(
    environ: Mapping[str, str] = os.environ, *, cache: Path = CACHE, pom: Path = _POM
) -> KafkaJars:
    """The jars from the cache; they are fetched where they are not there yet.

    Raises:
        KafkaMissingError: there is no Java, or neither the jars nor an mvn that could fetch them.
    """
    try:
        java = find_java(environ).path
    except JavaUnusableError as error:
        raise KafkaMissingError(str(error)) from error
    version = kafka_version(pom)
    # another set of dependencies is another folder, so that no folder ever has to be completed
    wanted = hashlib.sha256(pom.read_bytes()).hexdigest()[:8]
    directory = cache / f"{version}-{wanted}"
    if not directory.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with _alone_in(cache):
            if not directory.is_dir():
                _fetch(environ, pom=pom, target=directory)
    return KafkaJars(version, directory, java)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One process at a time; others wait for as long as a fetch takes."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _fetch(environ: Mapping[str, str], *, pom: Path, target: Path) -> None:
    """Into a folder that gets its name when it is complete."""
    mvn = shutil.which("mvn", path=environ.get("PATH", os.defpath))
    if mvn is None:
        raise KafkaMissingError(f"no mvn found in PATH to fetch Kafka's jars with; {_INSTALL_MVN}")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as folder:
        _copy_dependencies(mvn, environ, pom=pom, folder=Path(folder) / "jars")
        (Path(folder) / "jars").rename(target)


def _copy_dependencies(mvn: str, environ: Mapping[str, str], *, pom: Path, folder: Path) -> None:
    command = [
        *(mvn, "-q", "-B", "-Dstyle.color=never", "-f", str(pom)),
        *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"),
    ]
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_FETCH_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaMissingError(f"mvn could not fetch Kafka's jars: {error}") from error
    if done.returncode != 0 or not any(folder.glob("kafka-clients-*.jar")):
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line] or [
            "no reason given"
        ]
        raise KafkaMissingError(f"mvn could not fetch Kafka's jars: {errors[0][:500]}")
