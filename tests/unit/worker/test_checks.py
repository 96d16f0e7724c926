from drover_worker.core.config.checks import (
    config_name_violations,
    config_size_bytes,
    connector_not_found,
    sink_group_violations,
)


def test_a_long_name_that_is_not_there_is_cut() -> None:
    assert connector_not_found("a").message == "connector 'a' does not exist"
    assert len(connector_not_found("n" * 5000).message) < 300


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


def test_a_sink_must_not_use_the_group_of_another_connectors_sink() -> None:
    setting = "consumer.override.group.id"
    for group in ("connect-other", " connect-other", "connect-a"):
        (violation,) = sink_group_violations("a-x", {setting: group}, "drover")
        assert violation.field == f'config["{setting}"]'
        assert "that of another connector's sink" in violation.description
    assert sink_group_violations("a-x", {setting: "connect-a-x"}, "drover") == []


def test_connector_group_id_conflicts_with_worker_group() -> None:
    config = {"consumer.override.group.id": "drover"}
    (violation,) = sink_group_violations("sink", config, "drover")
    assert violation.field == 'config["consumer.override.group.id"]'
    assert sink_group_violations("drover", {"consumer.override.group.id": "own"}, "drover") == []
