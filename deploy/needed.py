"""Prints what a distribution needs: ``python needed.py PYPROJECT [EXTRA …]``, one a line."""

import sys
import tomllib
from pathlib import Path


def needed(pyproject: Path, extras: list[str]) -> list[str]:
    """Its dependencies and those of the extras."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(each for extra in extras for each in optional[extra])]


if __name__ == "__main__":
    sys.stdout.writelines(f"{each}\n" for each in needed(Path(sys.argv[1]), sys.argv[2:]))
