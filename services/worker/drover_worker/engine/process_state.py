"""What all connectors of an engine share in its process, and how it is restored.

Plugin code runs in the engine's process. Code that clears ``sys.path``, or sets a default time-out
of sockets, changes it for every other connector, which then fails without a fault. After each
plugin call the engine therefore restores the parts that it needs. Additional variables, modules,
paths and handlers stay.
"""

import builtins
import decimal
import fcntl
import gc
import locale
import logging
import os
import resource
import socket
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from drover_worker.engine.data_limit import without_reserve

_OWN_DESCRIPTORS_FROM = 64
#: Variables that keep their values; all others may change, but not disappear.
_KEPT_VARIABLES = frozenset({"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH"})
_KEPT_PREFIXES = ("PYTHON", "PYSPARK_", "SPARK_", "JAVA_", "HADOOP_", "DROVER_")
_LIMITS = ("NOFILE", "NPROC", "AS", "FSIZE", "STACK", "CPU")


@dataclass(frozen=True, slots=True)
class Changes:
    """What had changed.

    Attributes:
        restored: Names of what has its value again.
        lost: Names of what cannot be restored: the process must end.
    """

    restored: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.restored or self.lost)


class ProcessState:
    """The state of the process when this object was created; not thread-safe."""

    def __init__(self, vital_descriptors: tuple[int, ...] = ()) -> None:
        """``vital_descriptors`` are the ones without which the process cannot continue."""
        self._vital = {each: _id_of(each) for each in vital_descriptors}
        self._recursion_limit = sys.getrecursionlimit()
        self._parts: tuple[_Part, ...] = (
            _Modules(),
            *_values(),
            _Builtins(),
            _Variables(),
            _Items("sys.path", sys, "path"),
            _Items("sys.meta_path", sys, "meta_path"),
            _Items("sys.path_hooks", sys, "path_hooks"),
            _Items("the handlers of logging", logging.root, "handlers"),
            _TimeZone(),
            _Directory(),
            _Umask(),
            _Decimals(),
            _Warnings(),
            *(_Limit(f"RLIMIT_{name}") for name in _LIMITS),
            _Limit("RLIMIT_DATA", without_reserve),
        )

    def adopt(self) -> None:
        """Keep the present state instead; for changes of the engine's own code."""
        for part in self._parts:
            part.adopt()

    def restore(self) -> Changes:
        """Restore what changed; it takes some microseconds if nothing did."""
        restored, lost = [], []
        # first: the other steps need more calls
        if sys.getrecursionlimit() < self._recursion_limit:
            sys.setrecursionlimit(self._recursion_limit)
            restored.append("the recursion limit")
        if any(_id_of(each) != kept for each, kept in self._vital.items()):
            return Changes(lost=("the descriptors of the engine's connections",))
        for part in self._parts:
            try:
                if part.restore():
                    restored.append(part.name)
            except (OSError, ValueError):
                lost.append(part.name)
        return Changes(tuple(restored), tuple(lost))


class _Part(ABC):
    """A part of the state."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.adopt()

    @abstractmethod
    def adopt(self) -> None:
        """Keep the present state."""

    @abstractmethod
    def restore(self) -> bool:
        """Restore the kept state; whether it had changed."""


class _Value(_Part):
    """A single value."""

    def __init__(self, name: str, read: Callable[[], Any], write: Callable[[Any], object]) -> None:
        self._read, self._write = read, write
        super().__init__(name)

    def adopt(self) -> None:
        self._kept = self._read()

    def restore(self) -> bool:
        if self._read() == self._kept:
            return False
        self._write(self._kept)
        return True


class _Limit(_Value):
    """A limit of the kernel; restoring a lowered hard limit raises."""

    def __init__(self, name: str, read: Callable[[], tuple[int, int]] | None = None) -> None:
        number = getattr(resource, name)
        super().__init__(
            name,
            read or (lambda: resource.getrlimit(number)),
            lambda kept: resource.setrlimit(number, kept),
        )


class _Builtins(_Part):
    """Python's built-in names, which keep their values."""

    def __init__(self) -> None:
        super().__init__("builtins")

    def adopt(self) -> None:
        self._kept = dict(vars(builtins))

    def restore(self) -> bool:
        present = vars(builtins)
        if present == self._kept or self._kept.items() <= present.items():
            return False
        present.update(self._kept)
        return True


class _Variables(_Part):
    """The environment variables, of which none may disappear, and some keep their values."""

    def __init__(self) -> None:
        super().__init__("os.environ")

    def adopt(self) -> None:
        self._encoded = dict(_encoded_variables())
        self._kept = dict(os.environ)

    def restore(self) -> bool:
        if _encoded_variables() == self._encoded:
            return False
        wrong = {
            name: value
            for name, value in self._kept.items()
            if name not in os.environ or (_keeps_value(name) and os.environ[name] != value)
        }
        os.environ.update(wrong)
        return bool(wrong)


class _Modules(_Part):
    """The loaded modules, of which none may disappear."""

    def __init__(self) -> None:
        self._table: dict[str, Any] = sys.modules
        super().__init__("sys.modules")

    def adopt(self) -> None:
        self._kept = dict(self._table)
        self._count = len(self._table)

    def restore(self) -> bool:
        table, is_replaced = self._table, sys.modules is not self._table
        if not is_replaced and len(table) == self._count:
            return False
        sys.modules = table
        present = dict(table)
        missing = {name: each for name, each in self._kept.items() if name not in present}
        # an import that fails removes its module
        self._kept.update(
            (name, each) for name, each in present.items() if not _is_being_imported(each)
        )
        table.update(missing)
        self._count = len(table)
        return is_replaced or bool(missing)


class _Items(_Part):
    """A list as an attribute, of which no item may disappear."""

    def __init__(self, name: str, owner: object, attribute: str) -> None:
        self._owner, self._attribute = owner, attribute
        super().__init__(name)

    def adopt(self) -> None:
        self._list = getattr(self._owner, self._attribute)
        self._kept = list(self._list)

    def restore(self) -> bool:
        present = getattr(self._owner, self._attribute)
        if present == self._kept or all(each in present for each in self._kept):
            return False
        self._list[:] = [*self._kept, *(each for each in present if each not in self._kept)]
        setattr(self._owner, self._attribute, self._list)
        return True


class _TimeZone(_Part):
    """The local time zone."""

    def __init__(self) -> None:
        super().__init__("the time zone")

    def adopt(self) -> None:
        self._kept = _zone()

    def restore(self) -> bool:
        if _zone() == self._kept:
            return False
        if self._kept[0] is None:
            os.environ.pop("TZ", None)
        else:
            os.environ["TZ"] = self._kept[0]
        time.tzset()
        return True


class _Directory(_Part):
    """The working directory, to which relative paths of connectors refer."""

    def __init__(self) -> None:
        self._descriptor = -1
        super().__init__("the working directory")

    def adopt(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        opened = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        # where no code closes it by accident
        self._descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _OWN_DESCRIPTORS_FROM)
        os.close(opened)
        self._kept = _id_of(self._descriptor)

    def restore(self) -> bool:
        status = os.stat(".")  # noqa: PTH116 (microseconds count)
        if (status.st_dev, status.st_ino) == self._kept:
            return False
        os.fchdir(self._descriptor)
        return True


class _Umask(_Part):
    """The mode bits that new files do not get."""

    def __init__(self) -> None:
        super().__init__("the umask")

    def adopt(self) -> None:
        self._kept = os.umask(0o077)
        os.umask(self._kept)

    def restore(self) -> bool:
        return os.umask(self._kept) != self._kept  # it can only be read by setting it


class _Decimals(_Part):
    """The precision and rounding of decimals on the present thread, on which other connectors run
    as well.
    """

    def __init__(self) -> None:
        super().__init__("the decimal context")

    def adopt(self) -> None:
        self._kept = decimal.getcontext().copy()

    def restore(self) -> bool:
        if _rules(decimal.getcontext()) == _rules(self._kept):
            return False
        decimal.setcontext(self._kept.copy())
        return True


class _Warnings(_Part):
    """The absence of filters that make errors of the warnings of all code."""

    def __init__(self) -> None:
        super().__init__("warnings.filters")

    def adopt(self) -> None:
        self._kept = [each for each in warnings.filters if each[0] == "error"]

    def restore(self) -> bool:
        added = [each for each in warnings.filters if each[0] == "error"]
        if len(added) <= len(self._kept):
            return False
        others = [each for each in warnings.filters if each[0] != "error" or each in self._kept]
        warnings.filters[:] = others  # type: ignore[index]
        return True


def _values() -> list[_Value]:
    def attribute(name: str, owner: object, key: str) -> _Value:
        return _Value(name, lambda: getattr(owner, key), lambda kept: setattr(owner, key, kept))

    return [
        _Value("the switch interval", sys.getswitchinterval, sys.setswitchinterval),
        _Value("the limit of digits", sys.get_int_max_str_digits, sys.set_int_max_str_digits),
        _Value(
            "the default time-out of sockets", socket.getdefaulttimeout, socket.setdefaulttimeout
        ),
        _Value("the stack size of threads", threading.stack_size, threading.stack_size),
        _Value(
            "the locale",
            lambda: locale.setlocale(locale.LC_ALL),
            lambda kept: locale.setlocale(locale.LC_ALL, kept),
        ),
        _Value(
            "garbage collection", gc.isenabled, lambda kept: gc.enable() if kept else gc.disable()
        ),
        _Value("logging.disable", lambda: logging.root.manager.disable, logging.disable),
        attribute("sys.stdout", sys, "stdout"),
        attribute("sys.stderr", sys, "stderr"),
        attribute("sys.excepthook", sys, "excepthook"),
        attribute("sys.unraisablehook", sys, "unraisablehook"),
        attribute("threading.excepthook", threading, "excepthook"),
    ]


def _encoded_variables() -> Mapping[bytes, bytes]:
    """The table of ``os.environ``: reading the variables one by one takes 100 times as long."""
    table: Mapping[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    return table


def _keeps_value(name: str) -> bool:
    return name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES)


def _is_being_imported(module: object) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False) is True


def _zone() -> tuple[str | None, tuple[str, str], int]:
    return os.environ.get("TZ"), time.tzname, time.timezone


def _rules(context: decimal.Context) -> tuple[int, str, int, int, Mapping[Any, bool]]:
    return context.prec, context.rounding, context.Emin, context.Emax, context.traps


def _id_of(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino
