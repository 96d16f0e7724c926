"""The cluster of docker-compose.yml on a real Docker engine, and faults of its containers."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.addresses import free_ports
from tests.support.prometheus import Prometheus
from tests.support.repository import REPOSITORY
from tests.support.waiting import wait_until

#: As in the Dockerfiles.
BASE_IMAGE = "python:3.11.14-slim-bookworm"
COMPOSE_FILES = ("docker-compose.yml", "tests/cluster/compose.yml")
#: The build downloads Spark.
BUILD_MAX_S = 3600
COMMAND_MAX_S = 300
#: A machine that builds and runs a whole cluster is slow.
WAIT_S = 300.0

#: 1.5 times a worker's session timeout.
AWAY_S = 15.0

_THREE_COMMANDS = re.compile(r"<!-- run by tests/cluster -->\n```console\n(.*?)```", re.S)


class NoEngineError(Exception):
    """No Docker engine is available; the message gives the remedy."""


def compose_command() -> list[str]:
    """The Compose command of this machine.

    Raises:
        NoEngineError: There is no engine, or no Compose.
    """
    said = _run(["docker", "version", "--format", "{{.Server.Version}}"]) if _has_docker() else None
    if said is None or said.returncode != 0:
        raise NoEngineError("the tests of the cluster need a running Docker engine: start one")
    if _run(["docker", "compose", "version"]).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise NoEngineError("the tests of the cluster need Docker's Compose: install it")


def _has_docker() -> bool:
    return shutil.which("docker") is not None


def _run(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, text=True, capture_output=True, check=False, **{"timeout": COMMAND_MAX_S, **options}
    )


def _docker(*words: str, stdin: str = "") -> str:
    done = _run(["docker", *words], input=stdin)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr}"
    return done.stdout


def three_commands() -> list[str]:
    """The three commands of deploy/README.md."""
    (block,) = _THREE_COMMANDS.findall((REPOSITORY / "deploy/README.md").read_text("utf-8"))
    commands = [line.removeprefix("$ ") for line in block.splitlines()]
    assert len(commands) == 3
    return commands


@dataclass
class ComposeCluster:
    """The cluster and a database, below the test's own directory.

    Attributes:
        compose: The Compose command.
        directory: The commands' working directory, with client certificates and workers' files.
        compose_files: Its Compose files, relative to the repository root.
        project: Its name, and the prefix of its network's name.
        port: The port for clients on this host.
        rest_port: The port of its gateway on this host.
        prometheus_port: The port of its Prometheus on this host.

    """

    compose: list[str]
    directory: Path
    compose_files: Sequence[str] = COMPOSE_FILES
    project: str = "drover-test"
    port: int = field(default_factory=lambda: free_ports(1)[0])
    rest_port: int = field(default_factory=lambda: free_ports(1)[0])
    prometheus_port: int = field(default_factory=lambda: free_ports(1)[0])

    @property
    def files(self) -> Path:
        """The folder mounted at /files in the workers."""
        return self.directory / "files"

    @property
    def certs(self) -> Path:
        """The clients' certificates."""
        return self.directory / "certs"

    @property
    def network(self) -> str:
        """The name of its containers' network."""
        return f"{self.project}.internal"

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of Compose and other commands."""
        return {
            **os.environ,
            "COLUMNS": "200",
            "COMPOSE_PROJECT_NAME": self.project,
            "COMPOSE_FILE": ":".join(f"{REPOSITORY}/{each}" for each in self.compose_files),
            "DROVER_NETWORK": self.network,
            "DROVER_PORT": str(self.port),
            "DROVER_REST_PORT": str(self.rest_port),
            "DROVER_PROMETHEUS_PORT": str(self.prometheus_port),
            "DROVER_FILES": str(self.files),
            "DROVER_SPARK_SECRET": "a-secret-of-tests-only",
            "XDG_CONFIG_HOME": str(self.directory / "config"),
        }

    def prepare(self) -> None:
        """Make the directory that workers write to."""
        self.files.mkdir()
        self.files.chmod(0o777)

    def follow(self, command: str) -> None:
        """Run a command of the guide at this cluster's port."""
        text = command.replace("docker compose", " ".join(self.compose))
        text = text.replace("localhost:7411", self.address)
        text = re.sub(r"^drover ", f"{sys.executable} -m drover.cli.main ", text)
        done = _run(["sh", "-ec", text], cwd=self.directory, env=self.environ, timeout=BUILD_MAX_S)
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    @property
    def address(self) -> str:
        """The address for clients on this host."""
        return f"localhost:{self.port}"

    def do(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        """Run a Compose command; returns its output."""
        done = _run(
            [*self.compose, *words],
            cwd=self.directory,
            env={**self.environ, **(env or {})},
            timeout=BUILD_MAX_S,
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def containers(self, service: str) -> list["Container"]:
        """A service's containers, running or not, in the order of their names."""
        done = _run(
            [
                *("docker", "ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}}"),
                *("--filter", f"label=com.docker.compose.project={self.project}"),
                *("--filter", f"label=com.docker.compose.service={service}"),
                *("--filter", "label=com.docker.compose.oneoff=False"),
            ]
        )
        found = [line.split() for line in done.stdout.splitlines()]
        return [
            Container(id_, service, self.network)
            for id_, _ in sorted(found, key=lambda each: each[1])
        ]

    def drover(self, *words: str, stdin: str = "") -> str:
        """Run the ``drover`` command with the context of the third command; returns its output."""
        done = self.try_drover(*words, stdin=stdin)
        assert done.returncode == 0, f"drover {' '.join(words)}: {done.stdout} {done.stderr}"
        return done.stdout

    def try_drover(
        self, *words: str, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command; any exit code is accepted."""
        return _run(
            [sys.executable, "-m", "drover.cli.main", *words],
            cwd=self.directory,
            env={**self.environ, **(env or {})},
            input=stdin,
        )

    def ask(self, *words: str) -> Any:
        """A command's JSON output; None if it fails, as without a running service."""
        done = self.try_drover(*words, "--output", "json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    @property
    def prometheus(self) -> Prometheus:
        """The Prometheus of the profile `observability`."""
        return Prometheus(f"localhost:{self.prometheus_port}")

    def wait_for_workers(self, count: int) -> None:
        """Wait until ``count`` workers are members with assignments."""

        def there() -> bool:
            info = self.ask("cluster", "info")
            return info is not None and serving_workers(info) == count

        wait_until(there, timeout_s=WAIT_S, describe=lambda: self.try_drover("cluster", "info"))

    def wait_until_running(self, *connectors: str, not_on: str = "") -> None:
        """Wait until all parts of the connectors are RUNNING on live workers."""

        def said() -> bool:
            return all(self._runs(name, not_on) for name in connectors)

        wait_until(said, timeout_s=WAIT_S, describe=lambda: [self._status(c) for c in connectors])

    def _status(self, connector: str) -> Any:
        return self.ask("connector", "status", connector)

    def _runs(self, connector: str, not_on: str) -> bool:
        status = self._status(connector)
        if status is None:
            return False
        parts = [status["connector"], *status["tasks"]]
        return len(parts) > 1 and all(
            part["state"] == "RUNNING" and not (not_on and part["worker_id"].startswith(not_on))
            for part in parts
        )

    def shop(self, sql: str) -> str:
        """Run SQL in the database."""
        (database,) = self.containers("shop")
        done = database.execute("psql", "-qtAc", sql)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def copy_out(self, service: str, path: str, to: Path) -> None:
        """Copy files of a service's volumes to this machine."""
        (container,) = self.containers(service)
        _docker("cp", f"{container.id}:{path}", str(to))

    def write_access(self, text: str) -> None:
        """Replace the access file, as the guide says."""
        command = [*self.compose, "run", "--rm", "-T", "certs", "sh", "-c"]
        done = _run(
            [*command, "cat > /certs/access.yaml"],
            cwd=self.directory,
            env=self.environ,
            input=text,
        )
        assert done.returncode == 0, done.stderr

    def bytes_over_base(self, image: str) -> int:
        """The bytes that an image adds to its base image."""
        whole, base = (
            int(_docker("image", "inspect", "--format", "{{.Size}}", each))
            for each in (image, self.environ.get("PYTHON_IMAGE") or BASE_IMAGE)
        )
        return whole - base

    def make_image(self, image: str, new: str) -> None:
        """Build an image that differs only in its label."""
        text = f"FROM {image}\nLABEL version={new.rpartition(':')[2]}\n"
        _docker("build", "--tag", new, "-", stdin=text)

    def build_kafka(self, jars: Path) -> None:
        """Build the image of tests/cluster/kafka-compose.yml from Kafka's jars."""
        context = self.directory / "kafka"
        shutil.copytree(REPOSITORY / "tests/cluster/kafka", context)
        shutil.copytree(jars, context / "jars")
        image = ("PYTHON_IMAGE", self.environ.get("PYTHON_IMAGE") or BASE_IMAGE)
        argument = ("--build-arg", "=".join(image))
        _docker("build", "--tag", "drover-test-kafka", *argument, str(context))

    def down(self) -> None:
        """Remove everything except the images."""
        profiles = ("--profile", "cli", "--profile", "observability")
        self.do(*profiles, "down", "--volumes", "--remove-orphans", "--timeout", "20")


def serving_workers(info: Any) -> int:
    """The number of live and healthy workers in the output of `drover cluster info`."""
    return sum(
        each["state"] == "ACTIVE" and each["health"] == "SERVING" for each in info["workers"]
    )


@dataclass(frozen=True)
class Container:
    """One container of a service."""

    id: str
    service: str
    network: str = ""

    def inspect(self) -> Any:
        """The engine's description of the container."""
        (found,) = json.loads(_docker("inspect", self.id))
        return found

    @property
    def host(self) -> str:
        """Its host name in the cluster's network."""
        return self.id[:12]

    @property
    def ip(self) -> str:
        """Its address in the cluster's network; empty if it is not connected."""
        networks = self.inspect()["NetworkSettings"]["Networks"]
        return str(networks.get(self.network, {}).get("IPAddress", ""))

    def healthy(self) -> bool:
        """Whether its health check passes."""
        state = self.inspect()["State"]
        return bool(state["Status"] == "running" and state["Health"]["Status"] == "healthy")

    def wait_until_healthy(self) -> None:
        """Wait until its health check passes."""
        wait_until(self.healthy, timeout_s=WAIT_S, describe=lambda: self.inspect()["State"])

    def execute(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it."""
        return _run(["docker", "exec", self.id, *words])

    def commands(self) -> list[str]:
        """The commands of its processes."""
        return _docker("top", self.id, "-eo", "pid,args").splitlines()[1:]

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Kill it for the block, and restart it at the end."""
        _docker("kill", self.id)
        try:
            yield
        finally:
            _docker("start", self.id)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause it for the block."""
        _docker("pause", self.id)
        try:
            yield
        finally:
            _docker("unpause", self.id)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Disconnect it from the cluster's network for the block."""
        _docker("network", "disconnect", self.network, self.id)
        try:
            yield
        finally:
            names = [f"--alias={each}" for each in (self.service, self.host)]
            _docker("network", "connect", *names, self.network, self.id)

    def stop(self) -> None:
        """Stop it as Compose does, with time for a graceful drain, and remove it."""
        _docker("stop", "--time", "60", self.id)
        _docker("rm", "--volumes", self.id)

    def log(self) -> list[str]:
        """Its output, line by line."""
        done = _run(["docker", "logs", self.id])
        return [*done.stdout.splitlines(), *done.stderr.splitlines()]


@contextmanager
def bare_container(image: str) -> Iterator[Container]:
    """A container of an image without settings, outside the cluster's network."""
    container = Container(_docker("run", "--detach", image).strip(), image)
    try:
        yield container
    finally:
        _docker("rm", "--force", "--volumes", container.id)


def outlast_a_session() -> None:
    """Wait longer than a session timeout: a frozen worker has then lost its assignment."""
    end_s = time.monotonic() + AWAY_S
    wait_until(lambda: time.monotonic() > end_s)


#: Faults of a container, by name.
FAULTS: Mapping[str, Callable[[Container], Any]] = {
    "killed": Container.killed,
    "paused": Container.paused,
    "cut off": Container.cut_off,
}
