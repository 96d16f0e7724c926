"""Fetches plugins from Maven repositories with the local mvn, as the user's settings name them."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from drover.java_plugins.values import JavaPluginError

_TIMEOUT_S = 600
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_UNPINNED = ("LATEST", "RELEASE")
#: Jars that the host has; with them, Maven leaves out what only they need.
_OF_HOST = (
    "org.slf4j:slf4j-api",
    *(
        f"org.apache.kafka:{each}"
        for each in (
            *("connect-api", "connect-json", "connect-runtime", "connect-transforms"),
            *("kafka-clients", "kafka-server", "kafka-server-common", "kafka-tools", "kafka_2.13"),
        )
    ),
)
_REASON_MAX = 500


@dataclass(frozen=True, slots=True)
class Coordinates:
    """An artifact of a Maven repository.

    Attributes:
        group: Its group.
        artifact: Its name.
        version: Its version.
        type: ``jar``, ``zip``, ``tar.gz``.
        classifier: Its classifier; empty for the main artifact, which comes with its dependencies.
    """

    group: str
    artifact: str
    version: str
    type: str = "jar"
    classifier: str = ""

    def __str__(self) -> str:
        middle = f"{self.type}:{self.classifier}:" if self.classifier else ""
        return f"{self.group}:{self.artifact}:{middle}{self.version}"


def parse_coordinates(text: str) -> Coordinates | None:
    """The coordinates in ``G:A:V`` or ``G:A:TYPE:CLASSIFIER:V``; None if the text has another form.

    Raises:
        JavaPluginError: The version is not fixed.
    """
    parts = text.split(":")
    if len(parts) not in (3, 5) or not all(_PART.fullmatch(each) for each in parts):
        return None
    if parts[-1].upper() in _UNPINNED:
        raise JavaPluginError(f"{text} has no fixed version: name one, such as 4.3.1")
    if len(parts) == 3:
        return Coordinates(*parts)
    group, artifact, kind, classifier, version = parts
    return Coordinates(group, artifact, version, kind, classifier)


def fetch(coordinates: Coordinates, target: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Put an artifact into a new folder; a main artifact with its runtime dependencies.

    Jars of Kafka that the host of Java plugins has are left out. Maven's local repository is used
    first, and the network only for missing files.

    Raises:
        JavaPluginError: mvn is missing, or it failed.
    """
    mvn = shutil.which("mvn", path=environ.get("PATH", os.defpath))
    if mvn is None:
        raise JavaPluginError(
            f"no mvn in PATH to fetch {coordinates} with: install Maven (Debian, Ubuntu: apt-get"
            " install maven), or download the plugin and give its path"
        )
    with tempfile.TemporaryDirectory(prefix="drover-maven-") as folder:
        command = [
            mvn,
            "-B",
            "-q",
            "-Dstyle.color=never",
            *_goal(coordinates, Path(folder), target),
        ]
        failed = ""
        for offline in (["-o"], []):
            failed = _failure([*command, *offline], environ, Path(folder))
            if not failed and any(target.glob("*")):
                return
            shutil.rmtree(target, ignore_errors=True)
    raise JavaPluginError(f"mvn could not fetch {coordinates}: {failed or 'it copied no file'}")


def _goal(coordinates: Coordinates, folder: Path, target: Path) -> list[str]:
    if coordinates.classifier:
        artifact = (
            f"{coordinates.group}:{coordinates.artifact}:{coordinates.version}"
            f":{coordinates.type}:{coordinates.classifier}"
        )
        return [f"{_PLUGIN}:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={target}"]
    pom = folder / "pom.xml"
    pom.write_text(_pom(coordinates), encoding="utf-8")
    return [
        *("-f", str(pom), f"{_PLUGIN}:copy-dependencies"),
        *("-DincludeScope=runtime", f"-DoutputDirectory={target}"),
    ]


def _pom(coordinates: Coordinates) -> str:
    exclusions = "".join(
        "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>".format(
            *each.split(":")
        )
        for each in _OF_HOST
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.drover</groupId><artifactId>plugin</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>{coordinates.group}</groupId><artifactId>{coordinates.artifact}</artifactId>
    <version>{coordinates.version}</version><type>{coordinates.type}</type>
    <exclusions>{exclusions}</exclusions>
  </dependency></dependencies>
</project>
"""


def _failure(command: list[str], environ: Mapping[str, str], folder: Path) -> str:
    """Run mvn. Returns why it failed; empty if it did not."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {_TIMEOUT_S} s"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = [each for each in done.stdout.splitlines() if "ERROR" in each] or ["no reason given"]
    return lines[0].removeprefix("[ERROR]").strip()[:_REASON_MAX]
