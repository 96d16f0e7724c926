"""Which modules a config may name: importing one runs its code."""

import importlib
import os
import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

#: The environment variable of engine and executors that lists them, with commas between.
MODULES_VARIABLE = "DROVER_PLUGIN_MODULES"
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def module_names(text: str) -> list[str]:
    """The names of a list with commas between.

    Raises:
        ValueError: one cannot be a module's.
    """
    names = [each.strip() for each in text.split(",") if each.strip()]
    for name in names:
        if not _MODULE.fullmatch(name):
            raise ValueError(f"{name!r} cannot be a module: package or package.module")
    return names


def module_fault(module: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why something in ``module`` that no entry point names may not be imported; None when it may.

    A name that is listed allows what lies below it as well.
    """
    allowed = module_names(environment.get(MODULES_VARIABLE, ""))
    if any(f"{module}.".startswith(f"{name}.") for name in allowed):
        return None
    listed = f"; {', '.join(allowed)} may be" if allowed else ""
    return (
        f"the module {module!r} may not be imported: no entry point names it, and it is not below "
        f"one of the worker's {MODULES_VARIABLE}{listed}"
    )


def plugin_fault(group: str, name: str) -> str | None:
    """Why ``load_plugin`` gives nothing that a config may name; None when it does."""
    name = name.strip()
    try:
        if not entry_points(group=group, name=name):
            fault = module_fault(_split(group, name)[0])
            if fault is not None:
                return fault
        load_plugin(group, name)
    except ValueError as error:
        return str(error)
    return None


def load_plugin(group: str, name: str) -> Any:
    """What an entry point of ``group`` is called, or else what has this import path. Whether a
    config may name it is for ``plugin_fault`` to say, before.

    Raises:
        ValueError: There is no such thing, or it cannot be imported.
    """
    module_name, attribute = _split(group, name.strip())
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ValueError(f"cannot be imported: {type(error).__name__}: {error}") from error
    return found


def _split(group: str, path: str) -> tuple[str, str]:
    """The module, and the name there."""
    named = entry_points(group=group, name=path)
    if named:
        path = next(iter(named)).value.split("[")[0].strip()
    module_name, _, name = path.rpartition(":" if ":" in path else ".")
    if not module_name or not name:
        names = ", ".join(sorted(entry_points(group=group).names)) or "none"
        raise ValueError(
            f"must be like package.module:name, not {path!r}, or an entry point of {group}: there "
            f"are {names}"
        )
    return module_name, name
