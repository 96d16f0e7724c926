"""A running Kafka Connect moves to Drover with the commands of ``drover migrate``, and back.

Ten connectors: three copies of growing files, a mirror, sinks of copied topics. All lines are
counted.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drover.cli.output.connectors import run_state
from drover.client import ConnectClient
from drover.errors import InvalidArgumentError
from tests.e2e.test_examples import steps
from tests.support.cluster import EmbeddedCluster
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic
from tests.support.kafka.connect import (
    FILE_SINK,
    STRING_CONVERTER,
    ConnectOptions,
    KafkaConnect,
)
from tests.support.kafka.copy import FileCopy
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.waiting import wait_until, wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.faults("kafka"),
    pytest.mark.timeout(3_000),
]

MIRROR = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
PASSWORD = "pa55-in-clear"
COMMAND_TIMEOUT_S = 1_200
PASS_TIMEOUT_S = 180
STARTS_MAX = 3


class TenConnectors:
    """Three copies (six connectors), a mirror, and three more sinks of copied topics."""

    def __init__(self, kafka: Kafka, prefix: str, directory: Path) -> None:
        self._bootstrap = kafka.bootstrap
        self.directory = directory
        self.prefix = prefix
        self.copies = []
        for name in ("flow.1", "with secret", "quiet"):
            topic = f"{prefix}{name.replace(' ', '-')}"
            create_topic(kafka.bootstrap, topic)
            self.copies.append(FileCopy(directory, f"{prefix}{name}", topic))
        self.flow, self.secret, self.quiet = self.copies
        for name in self.secret.configs:
            self.secret.configs[name]["vendor.password"] = PASSWORD
        self.mirror = f"{prefix}mirror"
        self.mirrored = f"{prefix}mirror-sink"
        self.failing = f"{prefix}fails"
        self.odd = f"{prefix}odd 'name' $x"
        self.missing_folder = directory / "missing"
        self.configs: dict[str, dict[str, str]] = {}
        for copy in self.copies:
            self.configs |= copy.configs
        self.configs[self.mirror] = {
            "connector.class": MIRROR,
            "source.cluster.alias": "old",
            "target.cluster.alias": "new",
            "source.cluster.bootstrap.servers": kafka.bootstrap,
            "target.cluster.bootstrap.servers": kafka.bootstrap,
            "topics": self.flow.topic,
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "sync.topic.acls.enabled": "false",
            "refresh.topics.interval.seconds": "5",
            "key.converter": BYTES,
            "value.converter": BYTES,
        }
        self.configs[self.mirrored] = self._sink("mirrored.txt", f"old.{self.flow.topic}")
        self.configs[self.failing] = self._sink("missing/fails.txt", self.flow.topic)
        self.configs[self.odd] = self._sink("odd.txt", self.secret.topic)

    def _sink(self, file: str, topic: str) -> dict[str, str]:
        return {
            "connector.class": FILE_SINK,
            "file": str(self.directory / file),
            "topics": topic,
            "value.converter": STRING_CONVERTER,
        }

    def create(self, connect: KafkaConnect) -> None:
        """Create all in Kafka Connect; all but one run, one of them is paused."""
        self.secret.append("a\nb\n")
        self.quiet.append("one\ntwo, and still o")
        for name, config in self.configs.items():
            connect.rest.create(name, config)
        running = [name for name in self.configs if name != self.failing]
        for name in running:
            connect.rest.wait_until_running(name)
        wait_until(
            lambda: (
                [each["state"] for each in connect.rest.status(self.failing)["tasks"]] == ["FAILED"]
            ),
            describe="the sink without a folder has failed",
        )
        wait_until(lambda: self.secret.output.exists() and not self.secret.lost())
        connect.rest.pause(self.quiet.sink)
        connect.rest.wait_until_state(self.quiet.sink, "PAUSED", tasks=1)

    async def assert_counted(self) -> None:
        """Every line is in every output once."""
        copied = [
            (self.flow.input, self.flow.output),
            (self.secret.input, self.secret.output),
            (self.quiet.input, self.quiet.output),
            (self.flow.input, self.directory / "mirrored.txt"),
            (self.flow.input, self.missing_folder / "fails.txt"),
            (self.secret.input, self.directory / "odd.txt"),
        ]
        for source, output in copied:
            await wait_until_async(
                partial(_is_copied, source, output),
                timeout_s=PASS_TIMEOUT_S,
                describe=f"{output} has {_size(source)} bytes",
            )
            lines = Counter(source.read_bytes().splitlines())
            found = Counter(output.read_bytes().splitlines())
            assert (lines - found, found - lines) == (Counter(), Counter()), output


def _is_copied(source: Path, output: Path) -> bool:
    return _size(output) >= _size(source)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.fixture
def connect(
    connect_cluster: Callable[..., KafkaConnect], kafka: Kafka, topic_prefix: str
) -> KafkaConnect:
    options = ConnectOptions.named(f"{topic_prefix}old")
    return connect_cluster(bootstrap=kafka.bootstrap, options=options)


def _run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> tuple[int, str]:
    """The exit code and the output of a command; ``drover`` is the one beside this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    present = {**os.environ, "PATH": path, "COLUMNS": "250", **(env or {})}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=present,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def _migrate(connect: KafkaConnect, cwd: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run the first documented command; the report."""
    documented = steps("README.md", marked_by="tests/kafka/test_migrate.py")
    assert documented == steps("docs/migrate.md", marked_by="tests/kafka/test_migrate.py")
    (command, _), (move, _) = documented
    assert move == "bash move/to-drover.sh"
    properties = connect.directory / "connect.properties"
    command = command.replace("http://localhost:8083", connect.rest.url)
    command = command.replace("connect-distributed.properties", str(properties))
    code, output = _run(*command.split(), cwd=cwd, env=env)
    assert code == 0, output
    assert PASSWORD not in output
    report: dict[str, Any] = json.loads((cwd / "move" / "report.json").read_text())
    return report


async def test_ten_connectors_move_one_by_one_and_back(
    kafka: Kafka, connect: KafkaConnect, topic_prefix: str, tmp_path: Path
) -> None:
    ten = TenConnectors(kafka, topic_prefix, tmp_path)
    providers = json.dumps({"file": {"allowed.paths": str(tmp_path / "move")}})
    options = ConnectOptions.named(f"{topic_prefix}new")
    environment = {"DROVER_CONFIG_PROVIDERS": providers}
    async with ten.flow.feeding():
        await asyncio.to_thread(ten.create, connect)
        await ten.flow.wait_until_passed("through Kafka Connect")
        async with drover_on_kafka(
            kafka.bootstrap, options, tmp_path / "drover", env=environment
        ) as cluster:
            await cluster.wait_until_members()
            env = {"DROVER_ADDRESS": cluster.workers[0]}
            report = await asyncio.to_thread(_migrate, connect, tmp_path, env)
            _assert_reported(report, ten, cluster)
            await _assert_checks_groups(cluster, ten)
            _fill_in_secrets(tmp_path / "move" / "secrets.properties")
            # the cause of the failure is removed before the move
            ten.missing_folder.mkdir()
            await _script("to-drover.sh", tmp_path, env)
            await _all_run_on_drover(cluster, ten)
            await ten.flow.wait_until_passed("through Drover")
            ten.quiet.append("pen\nthree\n")
            ten.secret.append("c\n")
            await wait_until_async(lambda: not ten.secret.lost(), timeout_s=PASS_TIMEOUT_S)
            again = await _script("to-drover.sh", tmp_path, env)
            assert again.count("moved before") == len(ten.configs)
            await _script("back.sh", tmp_path, env)
            async with cluster.client() as client:
                assert list(await client.list_connectors()) == []
        assert "not moved" in await _script("back.sh", tmp_path, env)
        await asyncio.to_thread(_all_run_on_kafka_connect, connect, ten)
        ten.quiet.append("four\n")
        ten.secret.append("d\n")
        await ten.flow.wait_until_passed("through Kafka Connect again")
    await ten.assert_counted()
    for name, config in ten.configs.items():
        assert connect.rest.get(name)["config"] == {**config, "name": name}


async def _script(name: str, cwd: Path, env: dict[str, str]) -> str:
    code, output = await asyncio.to_thread(_run, "bash", f"move/{name}", cwd=cwd, env=env)
    assert code == 0, output
    assert PASSWORD not in output
    return output


def _assert_reported(report: dict[str, Any], ten: TenConnectors, cluster: EmbeddedCluster) -> None:
    found = {each["name"]: each for each in report["connectors"]}
    assert found.keys() == ten.configs.keys()
    assert report["kafka_connect"]["version"] == "4.4.0"
    assert report["checked_by"] == {"kind": "cluster", "address": cluster.workers[0]}
    assert report["not_read"] == []
    assert all(each["can_move"] for each in found.values()), report
    assert {found[name]["verdict"] for name in ten.flow.configs} == {"unchanged"}
    assert found[ten.mirror]["runs_as"] == "KafkaSource"
    assert found[ten.quiet.sink]["state"] == "PAUSED"
    assert found[ten.flow.source]["offsets"]["readable"] is True
    assert "missing/fails.txt" in found[ten.failing]["tasks"][0]["cause"]
    for name in ten.secret.configs:
        assert [each["setting"] for each in found[name]["secrets"]] == ["vendor.password"]
    move = ten.directory / "move"
    texts = [each.read_text() for each in move.rglob("*") if each.is_file()]
    assert not [each for each in texts if PASSWORD in each]


async def _assert_checks_groups(cluster: EmbeddedCluster, ten: TenConnectors) -> None:
    """A sink whose group the Kafka client cannot commit to is not created."""
    config, name = ten.configs[ten.odd], f"{ten.prefix}näme"
    async with cluster.client() as client:
        with pytest.raises(InvalidArgumentError) as refused:
            await client.create_connector(name, config)
        (fault,) = refused.value.violations
        assert f"the consumer group connect-{name}" in fault.description
        group = {"consumer.override.group.id": f"{ten.prefix}readers"}
        answer = await client.validate_config({**config, **group, "name": name})
    assert [each.key.name for each in answer.values if each.errors] == []


def _fill_in_secrets(file: Path) -> None:
    lines = file.read_text().splitlines()
    filled = [f"{line}{PASSWORD}" if line.endswith("=") else line for line in lines]
    assert filled != lines
    file.write_text("\n".join(filled) + "\n")


async def _all_run_on_drover(cluster: EmbeddedCluster, ten: TenConnectors) -> None:
    async with cluster.client() as client:
        assert (await client.get_connector(ten.quiet.sink)).name == ten.quiet.sink
        # a connector that was stopped and is paused has no tasks yet
        await wait_until_async(lambda: _is_paused(client, ten.quiet.sink))
        await client.resume_connector(ten.quiet.sink)
        for name in ten.configs:
            await cluster.wait_for_task(name)


async def _is_paused(client: ConnectClient, name: str) -> bool:
    status = await client.get_connector_status(name)
    return run_state(status.connector.state) == "PAUSED"


def _all_run_on_kafka_connect(connect: KafkaConnect, ten: TenConnectors) -> None:
    connect.rest.wait_until_state(ten.quiet.sink, "PAUSED", tasks=0)
    connect.rest.resume(ten.quiet.sink)
    for name in ten.configs:
        connect.rest.wait_until_running(name)


async def test_ten_connectors_move_over_the_same_topics_and_back(
    kafka: Kafka, connect: KafkaConnect, topic_prefix: str, tmp_path: Path
) -> None:
    ten = TenConnectors(kafka, topic_prefix, tmp_path)
    ten.missing_folder.mkdir()
    async with ten.flow.feeding():
        ten.secret.append("a\nb\n")
        ten.quiet.append("one\n")
        for name, config in ten.configs.items():
            await asyncio.to_thread(connect.rest.create, name, config)
        for name in ten.configs:
            await asyncio.to_thread(connect.rest.wait_until_running, name)
        await ten.flow.wait_until_passed("through Kafka Connect")
        await asyncio.to_thread(_migrate, connect, tmp_path)
        options = ("--dir", str(tmp_path / "cluster"), "--workers", "1", "--port-base", "0")
        code, output = await asyncio.to_thread(
            _run, "bash", "move/same-topics.sh", *options, cwd=tmp_path
        )
        assert (code, "Kafka Connect still answers" in output) == (1, True), output
        await asyncio.to_thread(connect.stop)
        up = asyncio.create_task(
            _up("move/same-topics.sh", *options, topic_prefix=topic_prefix, cwd=tmp_path)
        )
        await wait_until_async(
            lambda: up.done() or _runs(ten, tmp_path), timeout_s=COMMAND_TIMEOUT_S / 2
        )
        assert not up.done(), up.result()
        await ten.flow.wait_until_passed("through Drover")
        await _script_at("same-topics-back.sh", tmp_path)
        await up
        await asyncio.to_thread(connect.start)
        for name in ten.configs:
            await asyncio.to_thread(connect.rest.wait_until_running, name)
        await ten.flow.wait_until_passed("through Kafka Connect again")
    await ten.assert_counted()


async def _up(script: str, *options: str, topic_prefix: str, cwd: Path) -> tuple[int, str]:
    """Run a script that runs ``drover up``; again if a process did not serve in its two minutes,
    as on a machine with much other work.
    """
    env = {
        "DROVER_CONTROL_STORAGE_TOPIC": f"{topic_prefix}control",
        "DROVER_STORAGE_REPLICATION_FACTOR": "1",
        "DROVER_GROUP_SHARDS": "1",
    }
    code, output = 1, ""
    for _ in range(STARTS_MAX):
        code, output = await asyncio.to_thread(_run, "bash", script, *options, cwd=cwd, env=env)
        if code == 0 or "is starting" not in output:
            break
    return code, output


async def _script_at(name: str, cwd: Path) -> None:
    arguments = ("bash", f"move/{name}", "--dir", str(cwd / "cluster"))
    code, output = await asyncio.to_thread(_run, *arguments, cwd=cwd)
    assert code == 0, output
    assert "connect-distributed.sh" in output


def _runs(ten: TenConnectors, cwd: Path) -> bool:
    """Whether all connectors run in the cluster that the script started."""
    if not (cwd / "cluster").exists():
        return False
    code, output = _run(
        *("drover", "connector", "list", "--dir", str(cwd / "cluster"), "-o", "json"), cwd=cwd
    )
    if code:
        return False
    names = {each["name"] for each in json.loads(output)}
    if not names >= ten.configs.keys():
        return False
    for name in ten.configs:
        _, output = _run(
            *("drover", "connector", "status", "--dir", str(cwd / "cluster"), "-o", "json"),
            *("--", name),
            cwd=cwd,
        )
        states = [each["state"] for each in json.loads(output).get("tasks", [])]
        if not states or {*states} != {"RUNNING"}:
            return False
    return True
