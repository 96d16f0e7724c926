"""One running cluster for all tests of a session; data flows during their faults."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import DroverError
from drover.local.process import ProcessPhase
from tests.support.cluster import EmbeddedCluster, embedded_cluster, run_drover
from tests.support.flow import Flow
from tests.support.forked import Finished
from tests.support.tutorial import write_package

ROOT = Path(__file__).parents[2]
#: The package of docs/connectors.md; it and the tutorial's are installed on the cluster's workers.
EXAMPLE = ROOT / "examples" / "json_files"
#: The timeout of plugin calls: enough for a task's start on a stalling machine.
PLUGIN_TIMEOUT_S = 20
PLUGINS = "plugins"
JAVA_PLUGINS = "java-plugins"
ENVIRONMENT = {
    "DROVER_PLUGIN_CALL_TIMEOUT_MS": str(PLUGIN_TIMEOUT_S * 1_000),
    "DROVER_PLUGIN_POLL_TIMEOUT_MS": str(PLUGIN_TIMEOUT_S * 1_000),
    "DROVER_PLUGIN_STOP_TIMEOUT_MS": "6000",
    "DROVER_PLUGIN_MODULES": "tests.support",
}
#: The logger of failures of connectors and tasks.
FAILURES = "drover.worker.failures"
_LINES_PER_TICK = 50
_ADMIN_MESSAGE_MAX = 2_000
_ASKED_MAX = 5


@dataclass(frozen=True, slots=True)
class SharedCluster:
    """The cluster, a client of a worker, and the flow that no test may disturb."""

    cluster: EmbeddedCluster
    client: ConnectClient
    flow: Flow
    directory: Path
    #: How often tests killed each process.
    kills: Counter[str] = field(default_factory=Counter)
    #: Workers that tests froze with their engines; the engines may have been replaced.
    frozen: set[str] = field(default_factory=set)

    @property
    def plugins(self) -> Path:
        """The workers' folder for plugin modules."""
        return self.directory / PLUGINS

    @property
    def java_plugins(self) -> Path:
        """The workers' folder for Java plugins."""
        return self.directory / JAVA_PLUGINS

    async def refusal(self, call: Awaitable[Any]) -> DroverError:
        """The cluster's error for a rejected call, checked for readability."""
        with pytest.raises(DroverError) as caught:
            await call
        assert_readable(caught.value)
        return caught.value

    async def drover(self, *arguments: str, stdin: bytes = b"") -> Finished:
        """Run the command against this cluster."""
        env = {"DROVER_ADDRESS": self.cluster.workers[0]}
        done = await run_drover(*arguments, cwd=self.directory, stdin=stdin, env=env)
        assert "Traceback" not in done.err
        assert "a defect" not in done.err
        return done

    @asynccontextmanager
    async def connector(self, name: str, config: Mapping[str, str]) -> AsyncIterator[pb.Connector]:
        """A connector that is deleted at the end of the block."""
        made = await self.client.create_connector(name, config)
        try:
            yield made
        finally:
            with suppress(DroverError):
                await self.client.delete_connector(name)

    def kill(self, name: str) -> None:
        """SIGKILL a process; the supervisor restarts it."""
        self.cluster.note_processes()
        self.kills[name] += 1
        self.cluster.process(name).kill()

    def assert_unharmed(self) -> None:
        """Every process runs unless a test killed it, and has logged no defect."""
        for name, process in self.cluster.supervisor.processes.items():
            assert process.phase is ProcessPhase.SERVING, name
            starts = 1 + self.kills[name]
            assert process.start_count == starts, f"{name} died: {self.cluster.log(name)[-3000:]}"
            if name not in self.frozen:
                assert errors_in(self.cluster.log(name)) == [], name


def assert_readable(error: DroverError) -> None:
    """The message has no trace of the code, and a readable length."""
    assert "Traceback" not in error.message
    assert 0 < len(error.message) <= _ADMIN_MESSAGE_MAX
    assert "defect" not in error.message


async def refused_for_now(
    client: ConnectClient,
    name: str,
    config: Mapping[str, str],
    *,
    timeout_s: float,
    because: str,
) -> DroverError:
    """The error of a create that cannot be executed now and may still be executed later.

    Retries if the response arrives too late, as on a busy machine.
    """
    for _ in range(_ASKED_MAX):
        with pytest.raises(DroverError) as caught:
            await client.create_connector(name, config, timeout_s=timeout_s)
        assert_readable(caught.value)
        if because in caught.value.message:
            return caught.value
    raise AssertionError(f"not refused because of {because!r}: {caught.value}")


def errors_in(log: str) -> list[str]:
    """A service's logged errors: these are defects in a cluster with only bad input.

    Spark's own log lines are excluded, because Spark logs an error for every row that a plugin or a
    full disk spoils. Failures of connectors and tasks are excluded: plugins or configs cause them.
    """
    found = []
    for line in log.splitlines():
        if line.startswith("Traceback"):
            found.append(line)
        elif line.startswith("{"):
            with suppress(ValueError):  # a full disk may truncate a line
                event = json.loads(line)
                bad = event.get("level") in ("error", "critical")
                if bad and event.get("service") != "spark" and event.get("logger") != FAILURES:
                    found.append(line)
    return found


@asynccontextmanager
async def shared_cluster(directory: Path) -> AsyncIterator[SharedCluster]:
    """Start a cluster and keep lines flowing through it; at its end no line may be missing."""
    flow = Flow(directory, lines_per_tick=_LINES_PER_TICK)
    plugins = directory / PLUGINS
    plugins.mkdir()
    package = await asyncio.to_thread(write_package, directory / "tutorial")
    await _install(plugins, EXAMPLE, package)
    env = {
        **ENVIRONMENT,
        "DROVER_PLUGIN_HOME": str(directory / JAVA_PLUGINS),
        "PYTHONPATH": os.pathsep.join(
            filter(None, (str(ROOT), str(plugins), os.environ.get("PYTHONPATH")))
        ),
    }
    async with embedded_cluster(directory / "cluster", env=env) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await flow.create_connectors(client)
            shared = SharedCluster(cluster, client, flow, directory)
            async with flow.feeding():
                await flow.wait_until_passed("before anything bad comes")
                yield shared
            await flow.assert_equal()
            shared.assert_unharmed()


async def _install(target: Path, *packages: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
        *("--no-build-isolation", "--target", str(target), *map(str, packages)),
    )
    assert await process.wait() == 0, f"{packages} cannot be installed"
