"""The modules that a config may name. They are restricted, because importing a module runs its
code.
"""

import importlib
import os
import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from drover.config.plugin_imports import PLUGIN_IMPORTS

#: The environment variable with the allowed modules, for engines and executors; separated by
#: commas.
MODULES_VARIABLE = "DROVER_PLUGIN_MODULES"
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def module_names(text: str) -> list[str]:
    """The module names in a list separated by commas.

    Raises:
        ValueError: A name is not a valid module name.
    """
    names = [each.strip() for each in text.split(",") if each.strip()]
    for name in names:
        if not _MODULE.fullmatch(name):
            raise ValueError(f"{name!r} is not a module name: use package or package.module")
    return names


def module_fault(module: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why a config may not name an object in ``module`` that no entry point names; None if it may.

    An allowed name includes the modules below it.
    """
    allowed = module_names(environment.get(MODULES_VARIABLE, ""))
    if any(f"{module}.".startswith(f"{name}.") for name in allowed):
        return None
    listed = f" ({', '.join(allowed)})" if allowed else ""
    return (
        f"the module {module!r} is not allowed: no entry point names it, and the worker's "
        f"{MODULES_VARIABLE}{listed} does not include it"
    )


def plugin_fault(group: str, name: str) -> str | None:
    """Why a config may not name this object, or why it fails to load; None if it may."""
    name = name.strip()
    try:
        is_installed = bool(entry_points(group=group, name=name))
        module = _split(group, name)[0]
        fault = None if is_installed else module_fault(module)
        if fault is not None:
            return fault
        found = load_plugin(group, name)
    except ValueError as error:
        return str(error)
    # an allowed module imports others, and their objects are its attributes
    origin = getattr(found, "__module__", None) or module
    return None if is_installed else module_fault(str(origin))


def load_plugin(group: str, name: str) -> Any:
    """The object of an entry point in ``group``, or else the object with this import path.

    Does not check whether a config may name it; call ``plugin_fault`` before.

    Raises:
        ValueError: The object does not exist or fails to import.
    """
    module_name, attribute = _split(group, name.strip())
    try:
        found: Any = PLUGIN_IMPORTS.run(name, lambda: importlib.import_module(module_name))
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ValueError(f"cannot be imported: {type(error).__name__}: {error}") from error
    return found


def _split(group: str, path: str) -> tuple[str, str]:
    """The module, and the object's name in the module."""
    named = entry_points(group=group, name=path)
    if named:
        path = next(iter(named)).value.split("[")[0].strip()
    module_name, _, name = path.rpartition(":" if ":" in path else ".")
    if not module_name or not name:
        names = ", ".join(sorted(entry_points(group=group).names)) or "none"
        raise ValueError(
            f"must have the form package.module:name, or name an entry point of {group} ({names}), "
            f"not {path!r}"
        )
    return module_name, name
