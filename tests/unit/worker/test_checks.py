import pytest

from services.worker.core.checks import (
    config_name_violations,
    config_size_bytes,
    name_violations,
    sink_group_violations,
)


@pytest.mark.parametrize("name", ["orders", "an order", "a.b-c_d", "größe", "n" * 255])
def test_names_that_are_fine(name: str) -> None:
    assert name_violations(name) == []


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "empty"),
        ("a/b", "slashes"),
        ("a\\b", "slashes"),
        ("a\nb", "control"),
        ("a\x00", "control"),
        ("a\x7fb", "control"),
        ("n" * 256, "at most 255"),
    ],
)
def test_names_that_are_not(name: str, fault: str) -> None:
    (violation,) = name_violations(name)
    assert violation.field == "name"
    assert fault in violation.description


def test_every_fault_of_a_name_is_told_at_once() -> None:
    assert len(name_violations("a/\n" + "n" * 300)) == 3


def test_a_config_may_not_be_another_connectors() -> None:
    assert config_name_violations("a", {"name": " a "}) == []
    assert config_name_violations("a", {}) == []
    (violation,) = config_name_violations("a", {"name": "b"})
    assert violation.field == 'config["name"]'


def test_the_size_counts_bytes_not_characters() -> None:
    assert config_size_bytes({"ä": "€"}) == 5


def test_connector_name_conflicts_with_worker_group() -> None:
    (violation,) = sink_group_violations("sink", {}, "connect-sink")
    assert violation.field == "name"
    assert sink_group_violations("sink", {}, "drover") == []


def test_connector_group_id_conflicts_with_worker_group() -> None:
    config = {"consumer.override.group.id": "drover"}
    (violation,) = sink_group_violations("sink", config, "drover")
    assert violation.field == 'config["consumer.override.group.id"]'
    assert sink_group_violations("drover", {"consumer.override.group.id": "own"}, "drover") == []
