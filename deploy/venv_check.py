"""Exits with 1 and one line if the virtual environment of this Python has to be made again.

An environment has the path of its folder in its scripts and in links to the checkout: where it was
moved or copied, it would run the code of another folder. One whose creation was interrupted lacks
pip. Run by path, with ``python -I``, because nothing else may be installed.
"""

import importlib.metadata
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

#: How ``python -m venv`` records its call in pyvenv.cfg; other programs record nothing.
_MADE_FOR = re.compile(r"^command = .+ -m venv (?:-\S+ )*(?P<folder>.+)$", re.MULTILINE)


def fault(prefix: Path, path: Sequence[str] = sys.path) -> str:
    """Why an environment has to be made again; empty if it is whole.

    Args:
        prefix: The folder of the environment.
        path: Where its modules are.
    """
    try:
        made_for = _MADE_FOR.search((prefix / "pyvenv.cfg").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "it has no pyvenv.cfg"
    if made_for and os.path.realpath(made_for["folder"]) != os.path.realpath(prefix):
        return f"it was made for {made_for['folder']}"
    # pip writes its record last
    found = importlib.metadata.distributions(name="pip", path=list(path))
    if not any(each.read_text("RECORD") for each in found):
        return "it has no pip for this version of Python"
    return ""


def main() -> int:
    """Check the environment of this Python; returns the exit code."""
    reason = fault(Path(sys.prefix))
    if reason:
        sys.stderr.write(f"{sys.prefix} is made again: {reason}\n")
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
