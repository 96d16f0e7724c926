"""Commands and environments of child Python processes.

``python -m`` puts the working directory first on the import path: in a directory of another user, a
file there named as a library would run with this user's rights.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

#: Keeps the working directory off the import path of a Python process.
SAFE_PATH_VARIABLE = "PYTHONSAFEPATH"
_PATH = "PYTHONPATH"


def python_command(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """The command that runs a module, without the working directory on the import path.

    Args:
        module: Its full name, as after ``python -m``.
        arguments: The module's arguments.
        python: The interpreter.
    """
    return [python, "-P", "-m", module, *arguments]


def script_command(script: Path, *arguments: str) -> list[str]:
    """The command that runs a script of the standard library only, without site-packages."""
    return [sys.executable, "-I", "-S", str(script), *arguments]


def python_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with which descendants import nothing from their working directory.

    An empty part of PYTHONPATH means the working directory, and is removed.
    """
    parts = [part for part in environ.get(_PATH, "").split(os.pathsep) if part]
    path = {_PATH: os.pathsep.join(parts)} if parts else {}
    return {**{k: v for k, v in environ.items() if k != _PATH}, **path, SAFE_PATH_VARIABLE: "1"}
