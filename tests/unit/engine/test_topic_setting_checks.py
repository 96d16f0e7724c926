"""topic.creation.* against the topics of embedded storage: faults, warnings, skipped checks."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drover.api.engine.v1 import engine_pb2
from drover.config.resolution import Resolution
from drover.connector.catalogue import PluginRegistry
from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.plane import DataPlane
from drover.errors import Reason, UnavailableError
from drover_worker.engine.plugins.validation import validate
from tests.support.asked import asked

SOURCE = {
    "connector.class": "DatagenSource",
    "name": "a",
    "quickstart": "orders",
    "topic": "t",
    "topic.creation.default.partitions": "1",
    "topic.creation.default.replication.factor": "1",
}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[EmbeddedPlane]:
    plane = EmbeddedPlane.open(tmp_path)
    yield plane
    plane.store.close()


def validated(
    open_plane: Callable[[], DataPlane] | None, **changes: str
) -> engine_pb2.ConfigValidation:
    config = {**SOURCE, **{name.replace("__", "."): value for name, value in changes.items()}}
    checks = None if open_plane is None else asked(open_plane)
    return validate(PluginRegistry(), Resolution(config, config), open_plane=checks)


def errors(answer: engine_pb2.ConfigValidation) -> dict[str, list[str]]:
    return {each.key.name: list(each.errors) for each in answer.values if each.errors}


def warnings(answer: engine_pb2.ConfigValidation) -> dict[str, list[str]]:
    return {each.key.name: list(each.warnings) for each in answer.values if each.warnings}


def test_settings_that_the_storage_has_are_valid(plane: EmbeddedPlane) -> None:
    found = validated(
        lambda: plane,
        topic__creation__default__retention__ms="-1",
        topic__creation__default__retention__bytes="1000",
        topic__creation__default__cleanup__policy="compact,delete",
    )
    assert (errors(found), warnings(found), list(found.skipped_checks)) == ({}, {}, [])


def test_another_setting_is_a_fault_that_lists_the_possible_ones(plane: EmbeddedPlane) -> None:
    found = errors(
        validated(
            lambda: plane,
            topic__creation__groups="g",
            topic__creation__g__include="x.*",
            topic__creation__g__segment__bytes="1000",
            topic__creation__default__retention__ms="7 days",
            topic__creation__default__cleanup__policy="compacted",
        )
    )
    assert set(found) == {
        "topic.creation.g.segment.bytes",
        "topic.creation.default.retention.ms",
        "topic.creation.default.cleanup.policy",
    }
    (fault,) = found["topic.creation.g.segment.bytes"]
    assert "cleanup.policy, delete.retention.ms" in fault


def test_several_copies_are_a_warning(plane: EmbeddedPlane) -> None:
    found = validated(lambda: plane, topic__creation__default__replication__factor="3")
    assert errors(found) == {}
    assert warnings(found) == {
        "topic.creation.default.replication.factor": [
            "has no effect: a topic of embedded storage has one copy"
        ]
    }
    unchanged = validated(lambda: plane, topic__creation__default__replication__factor="-1")
    assert warnings(unchanged) == {}


def test_a_topic_that_exists_with_another_value_is_a_warning(plane: EmbeddedPlane) -> None:
    plane.store.ensure_topic("t", settings={"retention.ms": "5"})
    plane.store.ensure_topic("logs", settings={"cleanup.policy": "compact"})
    found = validated(
        lambda: plane,
        topic__creation__groups="g",
        topic__creation__g__include="lo.*",
        topic__creation__g__cleanup__policy="delete",
        topic__creation__default__retention__ms="-1",
    )
    assert errors(found) == {}
    (about_t,) = warnings(found)["topic.creation.default.retention.ms"]
    assert "the topic logs exists with retention.ms=-1" not in about_t
    assert "the topic t exists with retention.ms=5, and keeps it" in about_t
    (about_logs,) = warnings(found)["topic.creation.g.cleanup.policy"]
    assert "the topic logs exists with cleanup.policy=compact" in about_logs


def test_a_topic_that_exists_with_the_same_settings_is_none(plane: EmbeddedPlane) -> None:
    plane.store.ensure_topic("t", settings={"retention.ms": "5"})
    found = validated(lambda: plane, topic__creation__default__retention__ms="5")
    assert warnings(found) == {}


def test_a_storage_that_cannot_be_asked_is_a_skipped_check() -> None:
    def fails() -> DataPlane:
        raise UnavailableError(Reason.STORAGE_UNAVAILABLE, "the disk is full")

    found = validated(fails, topic__creation__default__retention__ms="-1")
    assert errors(found) == {}
    skipped = {each.setting: each.reason for each in found.skipped_checks}
    assert "the disk is full" in skipped["topic.creation.default.retention.ms"]


def test_without_the_role_the_check_is_listed_as_skipped() -> None:
    found = validated(None, topic__creation__default__segment__bytes="1")
    assert errors(found) == {}
    assert "ADMIN" in found.skipped_checks[0].reason
