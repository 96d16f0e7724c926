"""Imports structlog as if rich and greenlet were not installed.

This module must be imported before structlog.

structlog imports both if it finds them: rich for coloured tracebacks, which are not used because
they show local variables, and greenlet for local values of threads. Other modules of the process
can still import them.
"""

import sys

_UNUSED = ("greenlet", "rich")

_hidden = [name for name in _UNUSED if name not in sys.modules]
for _name in _hidden:
    sys.modules[_name] = None  # type: ignore[assignment] # its import raises ModuleNotFoundError
try:
    import structlog  # noqa: F401
finally:
    for _name in _hidden:
        del sys.modules[_name]
