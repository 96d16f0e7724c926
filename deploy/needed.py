"""Prints a distribution's dependencies, one per line: ``python needed.py PYPROJECT [EXTRA …]``."""

import sys
import tomllib
from pathlib import Path


def needed(pyproject: Path, extras: list[str]) -> list[str]:
    """The dependencies of a distribution and of its extras."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(each for extra in extras for each in optional[extra])]


if __name__ == "__main__":
    sys.stdout.writelines(f"{each}\n" for each in needed(Path(sys.argv[1]), sys.argv[2:]))
