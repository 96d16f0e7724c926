"""Apicurio's schema registry on loopback, in memory; it has Confluent's API."""

import json
import os
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.addresses import HOST, free_ports
from tests.support.child_process import ChildProcess
from tests.support.java_command import java_command
from tests.support.maven import Wanted, java_and_jars, version_in
from tests.support.repository import REPOSITORY

CACHE = REPOSITORY / ".apicurio"
_POM = Path(__file__).with_name("apicurio_pom.xml")
_PREFIX = "/apis/ccompat/v7"
_TIMEOUT_S = 30


@dataclass(frozen=True)
class Apicurio:
    """A running registry, as Confluent's clients see it."""

    port: int
    process: ChildProcess

    @property
    def url(self) -> str:
        """The value for schema.registry.url."""
        return f"http://{HOST}:{self.port}{_PREFIX}"

    def register(self, subject: str, schema: Any, *references: tuple[str, str]) -> int:
        """Register a schema and return its id; ``references`` are names, and subjects with a first
        version.
        """
        return self.register_text(subject, json.dumps(schema), "AVRO", *references)

    def register_text(
        self, subject: str, text: str, kind: str, *references: tuple[str, str]
    ) -> int:
        """Register a schema of any kind by its text."""
        body = {
            "schema": text,
            "schemaType": kind,
            "references": [
                {"name": name, "subject": place, "version": 1} for name, place in references
            ],
        }
        return int(self._call("POST", f"subjects/{subject}/versions", body)["id"])

    def allow(self, subject: str, compatibility: str) -> None:
        """Set the compatibility rule of a subject."""
        self._call("PUT", f"config/{subject}", {"compatibility": compatibility})

    def schemas(self, subject: str) -> list[Any]:
        """All versions of a subject's schema."""
        return [json.loads(each) for each in self.texts(subject)]

    def texts(self, subject: str) -> list[str]:
        """The schemas as their registered texts."""
        versions = self._call("GET", f"subjects/{subject}/versions")
        found = [self._call("GET", f"subjects/{subject}/versions/{each}") for each in versions]
        return [each["schema"] for each in found]

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.url}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            return json.load(answer)

    def answers(self) -> bool:
        """Whether the registry responds."""
        with suppress(OSError):
            return self._call("GET", "subjects") is not None
        return False


def find_command(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The command that starts it; fetches its jars if they are missing.

    Raises:
        JarsMissingError: There is no Java, or the jars cannot be fetched.
    """
    version = version_in(_POM, "apicurio.version")
    wanted = Wanted("Apicurio's jars", "unpack", _POM, "apicurio-registry-app-*-runner.jar")
    java, jars = java_and_jars(wanted, version, environ, cache=CACHE)
    return [
        *java_command(java, heap_mib=256),
        *("-jar", str(jars / f"apicurio-registry-app-{version}-runner.jar")),
    ]


@contextmanager
def running_apicurio() -> Iterator[Apicurio]:
    """A registry until the context ends.

    Raises:
        JarsMissingError: see ``find_command``.
    """
    command = find_command()
    with tempfile.TemporaryDirectory(
        prefix="drover-apicurio-", ignore_cleanup_errors=True
    ) as folder:
        (port,) = free_ports(1)
        environment = {"QUARKUS_HTTP_HOST": HOST, "QUARKUS_HTTP_PORT": str(port)}
        process = ChildProcess(
            "the schema registry", command, log_path=Path(folder) / "log", environment=environment
        )
        registry = Apicurio(port, process)
        process.start(ready=registry.answers)
        try:
            yield registry
        finally:
            process.kill()
