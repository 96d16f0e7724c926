"""Drover accepts every definition in the docs and in examples/, and every connector has one."""

import pytest

from drover.connector.catalogue import PluginRegistry
from drover.connector.settings import parse_config, validate_config
from tests.support.docs_examples import config_of, configs, examples
from tests.support.docs_tables import connectors
from tests.support.offline import offline
from tests.support.predictions import EXAMPLES

#: Connectors of separate packages, installed by tests/e2e: examples/json_files, the tutorial's.
_ELSEWHERE = {"JsonFiles", "JsonFolder", "MyWeatherSink", "StationSource"}


@pytest.mark.parametrize(("place", "text"), examples(), ids=[each[0] for each in examples()])
def test_an_example_has_no_fault_and_no_setting_that_nothing_reads(place: str, text: str) -> None:
    found = configs(text, place)
    assert found
    for config in found:
        if config["connector.class"] in _ELSEWHERE:
            continue
        kind = offline(PluginRegistry().find(config["connector.class"]))
        values = validate_config(kind, config)
        told = {each.key.name: (*each.errors, *each.warnings) for each in values}
        assert {name: texts for name, texts in told.items() if texts} == {}


def test_every_connector_has_an_example_whose_run_is_compared_with_its_preview() -> None:
    assert list(EXAMPLES) == list(connectors())
    for name, each in EXAMPLES.items():
        found = PluginRegistry().find(config_of(each.page, each.name)["connector.class"])
        assert found is connectors()[name]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_path_or_host_outside_the_workers_limits_is_a_fault_of_its_setting(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DROVER_FILE_ROOTS", "/allowed")
    monkeypatch.setenv("DROVER_ALLOWED_HOSTS", "allowed.example.com")
    example = EXAMPLES[name]
    config = config_of(example.page, example.name)
    kind = offline(connectors()[name])
    faults = [each.key.name for each in validate_config(kind, config) if each.errors]
    assert faults == [*example.bounded]
    started = [each.field for each in parse_config(kind, config).violations]
    assert started == faults


def test_every_connector_has_an_example() -> None:
    shown = {
        PluginRegistry().find(each["connector.class"])
        for place, text in examples()
        for each in configs(text, place)
        if each["connector.class"] not in _ELSEWHERE
    }
    assert set(connectors().values()) <= shown
