"""What the engine answers about a config."""

from drover.config.resolution import Resolution
from drover_worker.engine.plugins import PluginRegistry
from drover_worker.engine.validation import validate

SINK = {"connector.class": "FileStreamSink", "name": "a", "topics": "t", "file": "f"}


def warnings_of(config: dict[str, str]) -> dict[str, str]:
    answer = validate(PluginRegistry(), Resolution(config, config))
    return {value.key.name: warning for value in answer.values for warning in value.warnings}


def test_a_setting_that_the_connector_does_not_know_is_a_warning() -> None:
    found = warnings_of(SINK | {"tasks.maximum": "2"})
    assert list(found) == ["tasks.maximum"]
    assert found["tasks.maximum"].endswith("did you mean tasks.max?")
    assert warnings_of(SINK) == {}


def test_without_a_class_nobody_knows_which_settings_there_are() -> None:
    assert warnings_of({"name": "a", "topics": "t", "whatever": "x"}) == {}


def test_a_config_full_of_unknown_settings_gets_a_bounded_answer() -> None:
    found = warnings_of(SINK | {f"unknown.{number}": "x" for number in range(1_000)})
    assert len(found) == 100
