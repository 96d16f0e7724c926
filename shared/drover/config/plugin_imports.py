"""Imports plugins one at a time.

Python guards each module with its own lock. Two threads that import different modules of one
package therefore see modules that are initialized in part, and fail.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader
from typing import TypeVar

#: Other imports wait this long for one import, then it is considered hung and they no longer wait.
IMPORT_LIMIT_S = 10.0

ResultT = TypeVar("ResultT")


class PluginImportHangsError(ImportError):
    """An earlier import of the same plugin has not ended."""


@dataclass(frozen=True, slots=True, eq=False)
class _Import:
    name: str
    thread_id: int
    start_s: float


class PluginImports:
    """One lock for the imports of a process; thread-safe. A thread may nest imports.

    An import that exceeds the limit loses the lock, so that it blocks its own plugin only.
    """

    def __init__(
        self, limit_s: float = IMPORT_LIMIT_S, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_s = limit_s
        self._now_s = now_s
        self.forget()

    def forget(self) -> None:
        """Release the lock: a forked process lacks the threads that held it."""
        self._changed = threading.Condition()
        self._holder: _Import | None = None
        self._hung: dict[str, _Import] = {}

    def run(self, name: str, load: Callable[[], ResultT]) -> ResultT:
        """Call ``load``, which imports the plugin ``name``, while no other import runs.

        If it fails, the modules that it left half-imported are dropped: the next call imports them
        again.

        Raises:
            PluginImportHangsError: An earlier import of this plugin has exceeded the limit.
            BaseException: What ``load`` raises.
        """
        with self._turn(name):
            before = set(sys.modules)
            try:
                return load()
            except BaseException:
                _drop_half_imported(before)
                raise

    @contextmanager
    def _turn(self, name: str) -> Iterator[None]:
        thread_id = threading.get_ident()
        with self._changed:
            if self._holder is not None and self._holder.thread_id == thread_id:
                mine = None
            else:
                mine = _Import(name, thread_id, self._wait(name))
                self._holder = mine
        try:
            yield
        finally:
            if mine is not None:
                self._end(mine)

    def _wait(self, name: str) -> float:
        """Wait until no import holds the lock, and return the time; requires the lock."""
        while True:
            now_s = self._now_s()
            if name in self._hung:
                waited_s = now_s - self._hung[name].start_s
                raise PluginImportHangsError(
                    f"the import of {name!r} hangs, for {waited_s:.0f} s so far: correct or remove "
                    "the plugin, then reload the plugins or restart the worker"
                )
            if self._holder is None:
                return now_s
            left_s = self._holder.start_s + self._limit_s - now_s
            if left_s > 0:
                self._changed.wait(left_s)
            else:
                self._hung[self._holder.name] = self._holder
                self._holder = None

    def _end(self, ended: _Import) -> None:
        with self._changed:
            if self._holder is ended:
                self._holder = None
            elif self._hung.get(ended.name) is ended:
                del self._hung[ended.name]
            self._changed.notify_all()


#: The imports of this process.
PLUGIN_IMPORTS = PluginImports()
os.register_at_fork(after_in_child=PLUGIN_IMPORTS.forget)


def _drop_half_imported(before: set[str]) -> None:
    """Remove modules imported since ``before`` whose package failed, as Python removed only it.

    Extension modules stay, because most cannot be initialized twice.
    """
    for name, module in list(sys.modules.items()):
        if name in before or not _lacks_package(name):
            continue
        loader = getattr(getattr(module, "__spec__", None), "loader", None)
        if not isinstance(loader, ExtensionFileLoader):
            sys.modules.pop(name, None)


def _lacks_package(name: str) -> bool:
    while "." in name:
        name = name.rpartition(".")[0]
        if name not in sys.modules:
            return True
    return False
