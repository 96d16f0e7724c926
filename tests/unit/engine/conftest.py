from pathlib import Path

import pytest

from drover.config.plugin_modules import MODULES_VARIABLE
from tests.unit.engine.runner_world import Lines, World, Writer


@pytest.fixture(autouse=True)
def own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets configs name the connector classes of these tests."""
    monkeypatch.setenv(MODULES_VARIABLE, "tests, plugins_of_this_test, nowhere, drover.connector")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name, kind in (("made", Lines), ("faults", Lines), ("written", Writer), ("faults", Writer)):
        monkeypatch.setattr(kind, name, [])
    monkeypatch.setattr(Writer, "metadata", "note")
    return World(tmp_path / "data.db")
