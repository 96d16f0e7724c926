"""Validation in processes of their own: hangs, crashes, secrets, rights."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drover.api.engine.v1 import engine_pb2
from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.plane import DataPlane
from drover.log.storage import KafkaStorage
from drover_worker.engine import framing
from drover_worker.engine.planes import open_plane
from drover_worker.engine.plugins import validations
from drover_worker.engine.plugins.validations import ValidationProcess
from drover_worker.engine.process_constants import DIRECTORY_VARIABLE
from drover_worker.engine.settings import EngineSettings
from tests.support import plugins_for_tests as plugins
from tests.support.plugins_for_tests import plugin
from tests.support.repository import REPOSITORY
from tests.support.validating import SECRET

GOOD = {"connector.class": "FileStreamSink", "name": "a", "topics": "t", "file": "/tmp/f"}


def validated(*requests: dict[str, Any], path: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The reports, as dictionaries, of validations that run at the same time, with further
    directories to import from.
    """
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.validating"],
        input=json.dumps(requests),
        env={
            "DROVER_ENGINE_DIRECTORY": "/nowhere",
            "DROVER_PLUGIN_MODULES": "tests.support",
            "PYTHONPATH": ":".join([*path, *sys.path]),
        },
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


def request(
    kind: type[plugins.Idle], *, use_systems: bool = False, limit_ms: int = 30_000, **config: str
) -> dict[str, Any]:
    named = {"connector.class": plugin(kind), "name": "a", "topic": "t", **config}
    return {"config": named, "use_systems": use_systems, "limit_ms": limit_ms}


def errors(report: dict[str, Any]) -> dict[str, list[str]]:
    values = report["validation"]["values"]
    return {each["key"]["name"]: each["errors"] for each in values if "errors" in each}


def test_a_validation_that_hangs_or_crashes_costs_only_its_own_result() -> None:
    hung, busy, crashed, good = validated(
        request(plugins.HangsInValidate, limit_ms=1_000),
        request(plugins.KeepsTheInterpreter, limit_ms=1_000),
        request(plugins.CrashesInValidate),
        {"config": GOOD, "use_systems": True},
    )
    for late in (hung, busy):
        assert late["failure"]["timed_out"]
        assert "did not return within 1 s" in late["failure"]["message"]
    assert "crashed" in crashed["failure"]["message"]
    assert errors(good) == {}
    assert good["validation"]["connector_type"] == "sink"


def test_a_plugin_whose_import_hangs_delays_only_validations_that_name_it(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text("import threading\nthreading.Event().wait()\n")
    about = tmp_path / "hanging-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hanging\nVersion: 1.0\n")
    kinds = ("connectors", "converters", "transforms", "predicates")
    points = "".join(f"[drover.{each}]\nHanging = hanging:Hanging\n" for each in kinds)
    (about / "entry_points.txt").write_text(points)
    naming = (
        {"connector.class": "Hanging"},
        {"value.converter": "Hanging"},
        {"transforms": "h", "transforms.h.type": "Hanging"},
        {"predicates": "p", "predicates.p.type": "hanging.Hanging"},
        {"header.converter": "Unknown"},  # may be an alias of the plugin
    )
    ordinary = (
        {"value.converter": "JsonConverter"},
        {"transforms": "f", "transforms.f.type": "Flatten$Value", "transforms.f.delimiter": "-"},
        {"connector.class": "DatagenSource", "topic": "t", "quickstart": "orders"},
    )
    found = validated(
        *({"config": {**GOOD, **each}, "use_systems": True, "limit_ms": 2_000} for each in naming),
        *({"config": {**GOOD, **each}, "use_systems": True} for each in ordinary),
        path=[str(tmp_path)],
    )
    for late in found[: len(naming)]:
        assert "did not return within 2 s" in late["failure"]["message"], late
    for good in found[len(naming) :]:
        assert "validation" in good, good


def test_only_a_validation_that_uses_systems_sees_secrets_and_calls_them() -> None:
    closed, opened, shown, masked, unknown, unread = validated(
        request(plugins.UsesSystems, url="${env:CANARY}", port="${env:PORT}"),
        request(plugins.UsesSystems, use_systems=True, url="${env:CANARY}"),
        request(plugins.ShowsItsProcess),
        request(plugins.ShowsItsProcess, use_systems=True),
        request(plugins.UsesSystems, url="${vault:a:b}"),
        request(plugins.UsesSystems, note="${vault:a:b}"),
    )
    assert errors(closed) == {}
    skipped = closed["validation"]["skipped_checks"]
    assert [each.get("setting", "") for each in skipped] == ["", "url", "port"]
    assert "role ADMIN" in skipped[0]["reason"]
    (fault,) = errors(opened)["url"]
    assert SECRET not in fault
    (skipped,) = opened["validation"]["skipped_checks"]
    assert "the topics of the connector were not checked" in skipped["reason"], "no storage here"
    assert SECRET not in str(shown)
    assert "PYTHONPATH" in str(shown)
    assert "CANARY" in str(masked)
    assert "no config provider 'vault'" in errors(unknown)["url"][0]
    assert errors(unread).keys() == {"url"}
    assert "no config provider 'vault'" in str(unread)


def test_a_group_that_the_kafka_client_cannot_commit_to_is_a_fault_on_kafka_only() -> None:
    named = {**GOOD, "name": "näme"}
    source = {"connector.class": "FileStreamSource", "name": "näme", "topic": "t", "file": "/f"}
    configs = (
        named,
        {**named, "consumer.override.group.id": "readers"},
        {**named, "consumer.override.group.id": "bücher", "batch.max.records": "-1"},
        {**named, "topics": ""},
        source,
    )
    on_kafka = [{"config": each, "use_systems": False, "on_kafka": True} for each in configs]
    embedded = {"config": named, "use_systems": False}
    *found, elsewhere = (errors(each) for each in validated(*on_kafka, embedded))
    assert [sorted(each) for each in found] == [
        ["name"],
        [],
        ["batch.max.records", "consumer.override.group.id"],
        ["name", "topics"],
        [],
    ]
    assert "consumer group connect-näme" in found[0]["name"][0]
    assert "Choose a name in ASCII, or set consumer.override.group.id" in found[0]["name"][0]
    assert elsewhere == {}


def test_a_validation_learns_of_topics_from_the_engine_unless_it_may_not_use_systems(
    tmp_path: Path,
) -> None:
    EmbeddedPlane.open(tmp_path).store.close()
    setting = "topic.creation.default.compression.type"
    of_topics = {
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        setting: "zstd",
    }
    source = {"connector.class": "DatagenSource", "name": "a", "quickstart": "orders", "topic": "t"}
    config = {**source, **of_topics}
    found, skipped, asked, refused = validated(
        {"config": config, "use_systems": True, "directory": str(tmp_path)},
        {"config": config, "use_systems": False, "directory": str(tmp_path)},
        {**request(plugins.AsksForTopics, use_systems=True), "directory": str(tmp_path)},
        {**request(plugins.AsksForTopics), "directory": str(tmp_path)},
    )
    assert "is not possible in embedded storage" in errors(found)[setting][0]
    assert errors(skipped) == {}
    assert setting in str(skipped["validation"]["skipped_checks"])
    assert errors(asked)["name"] == ["answered "]
    assert "this needs the role ADMIN" in errors(refused)["name"][0]


def test_a_process_has_no_large_libraries_that_validations_do_not_need() -> None:
    (found,) = validated(request(plugins.ShowsItsLibraries))
    imported = json.loads(errors(found)["name"][0])
    assert "pyarrow" in imported
    assert not {"pandas", "pyspark", "confluent_kafka", "aiokafka"}.intersection(imported)


def test_a_validation_on_kafka_opens_one_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[DataPlane] = []

    def opening(settings: EngineSettings, temporary: Path) -> DataPlane:
        opened.append(open_plane(settings, temporary))
        return opened[-1]

    monkeypatch.setattr(validations, "open_plane", opening)
    monkeypatch.setenv(DIRECTORY_VARIABLE, "/nowhere")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def ask_thrice() -> None:
        _, (descriptor,), _, _ = socket.recv_fds(theirs, 1_000, 1)
        with socket.socket(fileno=descriptor) as engine:
            framing.receive(engine, engine_pb2.ValidationRequest)
            for _ in range(3):
                question = engine_pb2.ValidationMessage(question=engine_pb2.StorageQuestion())
                framing.send(engine, question)
                framing.receive(engine, engine_pb2.StorageAnswer)
            report = engine_pb2.EngineReport(validation=engine_pb2.ConfigValidation())
            framing.send(engine, engine_pb2.ValidationMessage(report=report))

    settings = EngineSettings(
        storage=KafkaStorage(bootstrap_servers="127.0.0.1:1", group_id="drover")
    )
    wanted = engine_pb2.ValidateConfig(config=GOOD, use_systems=True)
    with ours, theirs:
        process = ValidationProcess(ours)
        for count in (1, 2):
            child = threading.Thread(target=ask_thrice)
            child.start()
            report = process.validate(wanted, settings=settings, environment=[])
            child.join()
            assert report.HasField("validation")
            assert len(opened) == count
