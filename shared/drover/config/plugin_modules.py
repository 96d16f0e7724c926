"""Which modules a config may name: importing one runs its code."""

import os
import re
from collections.abc import Mapping

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
