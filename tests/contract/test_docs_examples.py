"""Every definition in the docs and in examples/ is one that Drover takes, and every connector has
one there.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from drover.cli.definitions import parse_definitions
from drover.connector.settings import validate_config
from drover_worker.engine.plugins import PluginRegistry
from tests.support.docs_tables import connectors
from tests.support.offline import offline
from tests.support.repository import REPOSITORY, tracked_files

_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.S | re.M)
#: Connectors of examples/json_files, a package of its own that tests/e2e installs.
_ELSEWHERE = {"JsonFiles", "JsonFolder"}
#: What stands for a connector around settings that all have.
_ANY = "name: any\nconfig:\n  connector.class: NullSink\n  topics: any\n"


def _files() -> Iterator[Path]:
    for each in tracked_files():
        if each.suffix == ".md" or (each.parts[0] == "examples" and each.suffix == ".yaml"):
            yield each


def examples() -> list[tuple[str, str]]:
    """Each example's place and text."""
    found = []
    for each in _files():
        text = (REPOSITORY / each).read_text(encoding="utf-8")
        blocks = [text] if each.suffix == ".yaml" else _BLOCK.findall(text)
        found += [(f"{each}-{number}", block) for number, block in enumerate(blocks, 1)]
    return found


def configs(text: str, place: str) -> list[dict[str, str]]:
    """The configs that an example defines."""
    if not re.search(r"^config:", text, re.M):
        text = _ANY + re.sub("^", "  ", text, flags=re.M)
    return [{**each.config, "name": each.name} for each in parse_definitions(text, f"{place}.yaml")]


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
