"""Writes requirements.lock: ``python -m deploy.lock``, in an environment that ``make setup`` made.

The lock has the versions of constraints.txt with the SHA-256 of every file that the package index
offers for them, and their dependencies as comments, from which ``needed.py`` takes what an image
needs. The index is pip's: its settings, proxies and certificates apply.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

if TYPE_CHECKING:
    from pip._internal.index.collector import LinkCollector
    from pip._internal.models.link import Link

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS, LOCK = "constraints.txt", "requirements.lock"
_HEADER = """\
# Every version of constraints.txt with the SHA-256 of each of its files, and its dependencies.
# Written by `make lock`; do not edit.
"""


class LockError(Exception):
    """The lock cannot be written; the message has the remedy."""


def pins(text: str) -> dict[str, str]:
    """The versions in the text of constraints.txt, by the names of packages."""
    lines = (line.strip() for line in text.splitlines() if not line.startswith("#"))
    return dict(line.split("==") for line in lines if line)


def markers(pyprojects: Iterable[Path]) -> dict[str, str]:
    """The environment markers of direct requirements, by the normalized names of packages."""
    found: dict[str, str] = {}
    for each in pyprojects:
        content = tomllib.loads(each.read_text(encoding="utf-8"))
        groups = [
            content.get("project", {}).get("dependencies", []),
            *content.get("project", {}).get("optional-dependencies", {}).values(),
            *content.get("dependency-groups", {}).values(),
        ]
        for requirement in map(Requirement, (each for group in groups for each in group)):
            if requirement.marker is not None:
                found[canonicalize_name(requirement.name)] = str(requirement.marker)
    return found


def digests(collector: "LinkCollector", name: str, version: str) -> list[str]:
    """The SHA-256 of every wheel and source archive of a version, sorted.

    Raises:
        LockError: The index has no such version, or offers it without digests.
    """
    from pip._internal.exceptions import PipError
    from pip._internal.index.collector import parse_links
    from pip._internal.models.link import Link

    found = set()
    for place in collector.search_scope.get_index_urls_locations(name):
        try:
            page = collector.fetch_response(Link(place))
            links = list(parse_links(page)) if page is not None else []
            wanted = [each for each in links if _version_of(each) == Version(version)]
        except PipError as error:
            raise LockError(f"{name}: the index cannot be read: {error}") from error
        for link in wanted:
            if link.hash_name != "sha256" or not link.hash:
                raise LockError(f"{link.filename}: the index offers no sha256 for it")
            found.add(link.hash)
    if not found:
        raise LockError(f"{name}=={version}: the index has no file; change {CONSTRAINTS}")
    return sorted(found)


def needs(name: str, pinned: Mapping[str, str]) -> Iterator[str]:
    """The dependencies of an installed package that are pinned: ``extra: names``, or
    ``always: names``. Markers of the environment are ignored.
    """
    by_extra: dict[str, set[str]] = {}
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if canonicalize_name(requirement.name) not in pinned:
            continue
        extras = re.findall(r"""extra\s*==\s*["']([^"']+)""", str(requirement.marker or ""))
        shown: str = canonicalize_name(requirement.name)
        if requirement.extras:
            shown += f"[{','.join(sorted(requirement.extras))}]"
        for extra in extras or ["always"]:
            by_extra.setdefault(canonicalize_name(extra), set()).add(shown)
    for extra, names in sorted(by_extra.items()):
        yield f"{extra}: {' '.join(sorted(names))}"


def lock(root: Path) -> str:
    """The text of the lock.

    Raises:
        LockError: The index or the environment lacks a version.
    """
    # here, because the import changes the class of all loggers of the process
    from pip._internal.commands import create_command
    from pip._internal.index.collector import LinkCollector

    pinned = pins((root / CONSTRAINTS).read_text(encoding="utf-8"))
    known: dict[str, str] = {canonicalize_name(name): version for name, version in pinned.items()}
    conditions = markers([root / "pyproject.toml", *root.glob("s*/**/pyproject.toml")])
    command = create_command("install")
    options, _ = command.parse_args([])
    entries = [_HEADER]
    with command.main_context():
        collector = LinkCollector.create(command.get_default_session(options), options)  # type: ignore[attr-defined]
        for name, version in sorted(pinned.items(), key=lambda each: each[0].lower()):
            installed = distribution(name).version
            if installed != version:
                raise LockError(f"{name}: {installed} is installed, not {version}: run make setup")
            marker = conditions.get(canonicalize_name(name))
            head = f"{name}=={version}{f' ; {marker}' if marker else ''}"
            hashes = [f"    --hash=sha256:{each}" for each in digests(collector, name, version)]
            comments = [f"    # needs {each}" for each in needs(name, known)]
            entries.append("\n".join([" \\\n".join([head, *hashes]), *comments, ""]))
    return "".join(entries)


def _version_of(link: "Link") -> Version | None:
    try:
        if link.filename.endswith(".whl"):
            return parse_wheel_filename(link.filename)[1]
        return parse_sdist_filename(link.filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None  # an old kind of archive, which pip does not install


def main() -> int:
    """Write the lock into the directory that is named, by default the repository; returns the exit
    code.
    """
    root = Path(sys.argv.pop()) if len(sys.argv) > 1 else ROOT
    try:
        text = lock(root)
    except LockError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    (root / LOCK).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
