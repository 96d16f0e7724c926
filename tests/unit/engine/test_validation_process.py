"""Validation in processes of their own: hangs, crashes, secrets, rights."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from drover.dataplane.embedded import EmbeddedPlane
from tests.support import plugins_for_tests as plugins
from tests.support.plugins_for_tests import plugin
from tests.support.repository import REPOSITORY
from tests.support.validating import SECRET

GOOD = {"connector.class": "FileStreamSink", "name": "a", "topics": "t", "file": "/tmp/f"}


def validated(*requests: dict[str, Any]) -> list[dict[str, Any]]:
    """The reports, as dictionaries, of validations that run at the same time."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.validating"],
        input=json.dumps(requests),
        env={
            "DROVER_ENGINE_DIRECTORY": "/nowhere",
            "DROVER_PLUGIN_MODULES": "tests.support",
            "PYTHONPATH": ":".join(sys.path),
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
