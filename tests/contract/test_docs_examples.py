"""Drover accepts every definition in the docs and in examples/, and every connector has one."""

import pytest

from drover.connector.settings import validate_config
from drover_worker.engine.plugins.catalogue import PluginRegistry
from tests.support.docs_examples import configs, examples
from tests.support.docs_tables import connectors
from tests.support.offline import offline

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


def test_every_connector_has_an_example() -> None:
    shown = {
        PluginRegistry().find(each["connector.class"])
        for place, text in examples()
        for each in configs(text, place)
        if each["connector.class"] not in _ELSEWHERE
    }
    assert set(connectors().values()) <= shown
