"""Every Drover connector has a case in the test kit."""

import tomllib

from tests.support.own_connectors import ON_KAFKA, SINKS, SOURCES
from tests.support.repository import REPOSITORY


def test_every_connector_is_tried_in_the_kit() -> None:
    project = tomllib.loads((REPOSITORY / "shared/pyproject.toml").read_text(encoding="utf-8"))
    registered = project["project"]["entry-points"]["drover.connectors"]
    missing = registered.keys() - SINKS.keys() - SOURCES.keys()
    assert not missing, f"add a case of {sorted(missing)} to tests/support/own_connectors.py"
    assert {*SINKS, *SOURCES} == registered.keys()
    assert {*ON_KAFKA} <= registered.keys()
