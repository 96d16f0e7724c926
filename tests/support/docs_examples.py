"""The definitions that the docs pages and examples/ show."""

import re
from collections.abc import Iterator
from pathlib import Path

from drover.cli.definitions import parse_definitions
from tests.support.repository import REPOSITORY, tracked_files

_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.S | re.M)
#: The definition around an example of settings that every connector has.
_ANY = "name: any\nconfig:\n  connector.class: NullSink\n  topics: any\n"


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


def config_of(page: str, name: str) -> dict[str, str]:
    """The config of a definition that a page shows."""
    (found,) = (
        each
        for place, text in examples()
        if place.startswith(f"docs/{page}.md-")
        for each in configs(text, place)
        if each["name"] == name
    )
    return found


def _files() -> Iterator[Path]:
    for each in tracked_files():
        if each.suffix == ".md" or (each.parts[0] == "examples" and each.suffix == ".yaml"):
            yield each
