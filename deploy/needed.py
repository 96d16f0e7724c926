"""Prints the part of requirements.lock that an image needs.

``python needed.py LOCK WHAT …``: each WHAT is a package, or the pyproject.toml of a distribution
with extras in brackets; their dependencies are included.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_ENTRY = re.compile(r"(?P<name>[\w.-]+)==")
_NEEDS = re.compile(r" +# needs (?P<extra>[\w-]+): (?P<names>.*)")
#: The name in the lock of requirements without an extra.
_ALWAYS = "always"
_REQUIREMENT = re.compile(r"(?P<name>[\w./-]+)\s*(?:\[(?P<extras>[^\]]*)\])?")


@dataclass(slots=True)
class Entry:
    """A package in the lock: its lines, and its requirements by extra."""

    text: str
    needs: dict[str, list[str]] = field(default_factory=dict)


def entries(lock: str) -> dict[str, Entry]:
    """The packages in the text of a lock, by normalized name."""
    found: dict[str, Entry] = {}
    entry = Entry("")
    for line in lock.splitlines():
        start, needs = _ENTRY.match(line), _NEEDS.fullmatch(line)
        if start is not None:
            entry = found[_normalized(start["name"])] = Entry("")
        if needs is not None:
            entry.needs[needs["extra"]] = needs["names"].split()
        else:
            entry.text += f"{line}\n"
    return found


def needed(lock: str, wanted: Iterable[str]) -> str:
    """The entries of a lock for requirements and their dependencies.

    Raises:
        KeyError: The lock lacks a package.
    """
    found = entries(lock)
    done: set[tuple[str, str]] = set()
    waiting = [pair for each in wanted for pair in _pairs(each)]
    while waiting:
        pair = waiting.pop()
        if pair not in done:
            done.add(pair)
            name, extra = pair
            waiting += [each for text in found[name].needs.get(extra, ()) for each in _pairs(text)]
    return "".join(found[name].text for name in sorted({name for name, _ in done}))


def requirements(what: str) -> list[str]:
    """A package itself, or requirements of a pyproject.toml and its extras, without Drover's."""
    match = _REQUIREMENT.fullmatch(what)
    if match is None or not match["name"].endswith(".toml"):
        return [what]
    project = tomllib.loads(Path(match["name"]).read_text(encoding="utf-8"))["project"]
    extras = [each for each in (match["extras"] or "").split(",") if each]
    optional = [each for extra in extras for each in project["optional-dependencies"][extra]]
    return [
        each for each in (*project["dependencies"], *optional) if not each.startswith("drover-")
    ]


def _pairs(requirement: str) -> Iterator[tuple[str, str]]:
    """A package without and with each of its extras."""
    match = _REQUIREMENT.match(requirement)
    assert match is not None, requirement
    name = _normalized(match["name"])
    yield name, _ALWAYS
    for extra in (match["extras"] or "").split(","):
        if extra:
            yield name, _normalized(extra.strip())


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    lines = needed(
        Path(sys.argv[1]).read_text(encoding="utf-8"),
        [each for what in sys.argv[2:] for each in requirements(what)],
    )
    sys.stdout.write(lines)
