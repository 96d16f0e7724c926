"""The commands of the README for executors on a Spark cluster, run as documented."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support.addresses import free_ports
from tests.support.child_process import ChildProcess
from tests.support.cluster import run_drover
from tests.support.kafka.choice import Kafka
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.drover_services import kafka_environment
from tests.support.repository import REPOSITORY
from tests.support.spark_processes import executors_below
from tests.support.waiting import wait_until, wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.faults("spark"),
    pytest.mark.timeout(1_800),
]

#: Covers the archive, and the start of an engine on a busy machine.
TIMEOUT_S = 600.0
_LINES = "".join(f"line {number}\n" for number in range(1_000))


def block(page: str, first: str) -> list[str]:
    """The commands of a page's block; ``first`` is the start of its first command."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    (found,) = re.findall(rf"```console\n(\$ {re.escape(first)}.*?)```", text, re.S)
    return [each.rstrip("\n") for each in re.split(r"^\$ ", found, flags=re.MULTILINE)[1:]]


class Shell:
    """Runs commands in one folder, with their addresses and files replaced."""

    def __init__(self, folder: Path, replaced: Mapping[str, str], env: Mapping[str, str]) -> None:
        self.folder = folder
        self._replaced = replaced
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {
            **env,
            "PATH": programs,
            "SPARK_LOCAL_IP": "127.0.0.1",
            # other tests may use the usual ports
            "DROVER_PORT_BASE": "0",
        }

    def run(self, command: str) -> None:
        """Run a command that must succeed."""
        subprocess.run(
            ["bash", "-e", "-c", self._own(command)],
            cwd=self.folder,
            env={**os.environ, **self.env},
            check=True,
            timeout=TIMEOUT_S,
        )

    def process(self, name: str, command: str) -> ChildProcess:
        """A process that is not started yet."""
        script = f"cd {self.folder} && exec env {self._own(command)}"
        log = self.folder / f"{name}.log"
        bash = shutil.which("bash") or "/bin/bash"
        return ChildProcess(name, [bash, "-c", script], log_path=log, environment=self.env)

    def _own(self, command: str) -> str:
        for old, new in self._replaced.items():
            command = command.replace(old, new)
        return command


def says(process: ChildProcess, what: str) -> bool:
    """Whether a process that runs has printed this."""
    assert process.is_alive, f"{process.name} ended: {process.shown_log()}"
    return what in process.log()


@pytest.fixture
def shell(kafka: Kafka, topic_prefix: str, tmp_path: Path) -> Shell:
    (port,) = free_ports(1)
    replaced = {
        "/tmp/drover.tar.gz": f"{tmp_path}/drover.tar.gz",
        "127.0.0.1:7077": f"127.0.0.1:{port}",
        "--port 7077": f"--port {port}",
        "127.0.0.1:9092": kafka.bootstrap,
    }
    options = ConnectOptions.named(topic_prefix.rstrip("-"), exactly_once_source="enabled")
    return Shell(tmp_path, replaced, kafka_environment(kafka.bootstrap, options))


@pytest.fixture
def started(shell: Shell) -> Iterator[dict[str, ChildProcess]]:
    """The processes of the last three commands, in the order of the README."""
    settings = block("deploy/README.md", "umask 077")
    pack, master, worker, drover = block("README.md", "drover spark-archive")
    shell.run("\n".join([*settings, 'printf %s "$DROVER_SPARK_CONF" > engines.json']))
    shell.env["DROVER_SPARK_CONF"] = (shell.folder / "engines.json").read_text()
    shell.run(pack)
    found = {}
    with ExitStack() as stack:
        for name, command, said in (
            ("master", master, "I have been elected leader"),
            ("worker", worker, "Successfully registered with master"),
            ("drover", drover, "the cluster is up"),
        ):
            process = found[name] = shell.process(name, command)
            stack.callback(process.kill)
            process.start(ready=lambda: True)
            wait_until(
                partial(says, process, said), timeout_s=TIMEOUT_S, describe=process.shown_log
            )
        yield found
        found["drover"].stop()


async def test_the_four_commands_give_executors_on_a_cluster(
    shell: Shell, started: dict[str, ChildProcess], topic_prefix: str
) -> None:
    source, target = shell.folder / "in.txt", shell.folder / "out.txt"
    source.write_text(_LINES)
    topic = f"{topic_prefix}lines"

    async def drover(*arguments: str) -> str:
        done = await run_drover(*arguments, cwd=shell.folder, env=shell.env)
        assert done.exit_code == 0, done
        return done.out

    configs = {
        "lines-source": {
            "connector.class": "FileStreamSource",
            "file": str(source),
            "topic": topic,
        },
        "lines-sink": {
            "connector.class": "FileStreamSink",
            "file": str(target),
            "topics": topic,
        },
    }
    for name, config in configs.items():
        definition = shell.folder / f"{name}.json"
        definition.write_text(json.dumps({"name": name, "config": config}))
        await drover("connector", "create", "-f", str(definition))
    await wait_until_async(
        lambda: target.exists() and target.read_text() == _LINES,
        timeout_s=TIMEOUT_S,
        describe=lambda: {name: each.log()[-2_000:] for name, each in started.items()},
    )
    assert executors_below(psutil.Process(started["worker"].pid))
