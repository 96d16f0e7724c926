"""Configs in the form of public repositories are understood, or refused by setting."""

import pytest

from drover.connector.catalogue import PluginNotFoundError, PluginRegistry
from drover.connector.settings import validate_config
from tests.support.offline import offline
from tests.support.public_configs import FAULTS, public_configs, without_class_sentence

_CONFIGS = public_configs()


def test_the_outcome_of_every_config_is_recorded() -> None:
    assert list(_CONFIGS) == list(FAULTS)
    assert len(_CONFIGS) >= 20


@pytest.mark.parametrize("name", _CONFIGS)
def test_a_public_config_has_exactly_the_recorded_faults(name: str) -> None:
    config = _CONFIGS[name]
    try:
        kind = offline(PluginRegistry().find(config["connector.class"]))
    except PluginNotFoundError as error:
        faults = {"connector.class": without_class_sentence(config, str(error))}
    else:
        values = validate_config(kind, config)
        faults = {each.key.name: each.errors[0] for each in values if each.errors}
        for each in values:
            assert not each.warnings or "no effect here: " in each.warnings[0], each
    assert sorted(faults) == sorted(FAULTS[name])
    for setting, text in FAULTS[name].items():
        assert faults[setting].startswith(text)
