from pathlib import Path

import pytest

from tests.unit.engine.runner_world import Lines, World, Writer


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name, kind in (("made", Lines), ("faults", Lines), ("written", Writer), ("faults", Writer)):
        monkeypatch.setattr(kind, name, [])
    monkeypatch.setattr(Writer, "metadata", "note")
    return World(tmp_path / "data.db")
