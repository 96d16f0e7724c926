"""Which installed Python packages changed after an engine loaded its code.

A package changed if one of its files was written since: the time of a file's last change (ctime) is
set by every installation, unlike its modification time. Of files with several links only their
folders show it: uv links files of its cache into each environment, which sets the times of the
files in all others. Nothing is imported.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import PathFinder
from pathlib import Path

from drover.python_packages import normalised, requirements

#: How the entry point groups of plugins start.
_GROUPS = "drover."
_IGNORED_FOLDERS = frozenset({"__pycache__", ".git", ".venv", "node_modules"})
#: Files of a distribution's metadata that each installation writes.
_METADATA = ("RECORD", "METADATA", "PKG-INFO", "direct_url.json", "INSTALLER")
#: The most files of a module that are looked at.
_FILES_MAX = 20_000


@dataclass(frozen=True)
class PackageChanges:
    """The changes since ``since_ms`` (since the epoch). Answers are cached: make one per question.

    Attributes:
        since_ms: When the engine had loaded its code.
        path: The folders that are searched for modules and distributions; by default sys.path.
    """

    since_ms: int
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    @cached_property
    def distributions(self) -> Mapping[str, str]:
        """The distributions that were installed or replaced since, by normalised name: their name
        with version.
        """
        return {
            name: f"{each.name} {each.version}"
            for name, each in self._installed.items()
            if _is_written(_metadata_folder(each), self.since_ms)
        }

    def of_class(self, class_name: str) -> str | None:
        """What changed of the code that a class uses: its module's package, or a distribution that
        the package's distribution requires, directly or not; None if nothing did.
        """
        module = class_name.partition(".")[0]
        owners = self._owners.get(module, frozenset())
        for name in sorted(owners):
            if name in self.distributions:
                return self.distributions[name]
        if self._module_changed(module):
            return f"the module {module}"
        required = self._required_by(owners)
        return next((self.distributions[each] for each in sorted(required & self._names)), None)

    def modules(self, names: Iterable[str]) -> list[str]:
        """Which of these top-level modules changed."""
        return sorted(name for name in set(names) if self._module_changed(name))

    @cached_property
    def plugin_modules(self) -> frozenset[str]:
        """The top-level modules that entry points of plugins name."""
        return frozenset(
            point.module.partition(".")[0]
            for each in self._installed.values()
            for point in each.entry_points
            if point.group.startswith(_GROUPS)
        )

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.distributions)

    @cached_property
    def _installed(self) -> Mapping[str, importlib.metadata.Distribution]:
        importlib.invalidate_caches()
        found: dict[str, importlib.metadata.Distribution] = {}
        for each in importlib.metadata.distributions(path=list(self.path)):
            if each.metadata["Name"]:
                found.setdefault(normalised(each.metadata["Name"]), each)
        return found

    @cached_property
    def _owners(self) -> Mapping[str, frozenset[str]]:
        """The distributions of each top-level module.

        An editable installation does not list its modules: its entry points name them.
        """
        found: dict[str, set[str]] = {}
        for name, each in self._installed.items():
            modules = {point.module.partition(".")[0] for point in each.entry_points}
            for file in each.files or ():
                top = file.parts[0]
                if len(file.parts) > 1 and not top.endswith((".dist-info", ".egg-info", "..")):
                    modules.add(top)
                elif len(file.parts) == 1 and top.endswith(".py"):
                    modules.add(top.removesuffix(".py"))
            for module in modules:
                found.setdefault(module, set()).add(name)
        return {module: frozenset(names) for module, names in found.items()}

    def _required_by(self, names: frozenset[str]) -> frozenset[str]:
        """The distributions that these require, directly or not.

        Which extras were installed is not recorded: all of ``names`` count, and of the others the
        extras that a requirement names.
        """
        found: set[str] = set()
        waiting: list[tuple[str, frozenset[str] | None]] = [(name, None) for name in names]
        while waiting:
            name, extras = waiting.pop()
            each = self._installed.get(name)
            for required, its_extras in requirements(each, extras) if each is not None else ():
                if required not in found:
                    found.add(required)
                    waiting.append((required, its_extras))
        return frozenset(found)

    def _module_changed(self, name: str) -> bool:
        return any(_written_ms(file) > self.since_ms for file in self._files_of(name))

    def _files_of(self, module: str) -> Iterator[str]:
        try:
            spec = PathFinder.find_spec(module, list(self.path))
            if spec is None:
                spec = importlib.util.find_spec(module)  # an editable installation's finder
        except (ImportError, ValueError, AttributeError):
            return
        if spec is None:
            return
        if spec.origin is not None and not spec.submodule_search_locations:
            yield spec.origin
        count = 0
        for place in spec.submodule_search_locations or ():
            for folder, folders, files in os.walk(place):
                folders[:] = [each for each in folders if each not in _IGNORED_FOLDERS]
                for file in files:
                    count += 1
                    if count > _FILES_MAX:
                        return
                    if not file.endswith(".pyc"):
                        yield str(Path(folder, file))


def _metadata_folder(each: importlib.metadata.Distribution) -> Path | None:
    path = getattr(each, "_path", None)
    return Path(path) if path is not None else None


def _is_written(folder: Path | None, since_ms: int) -> bool:
    if folder is None:
        return False
    files = (folder / name for name in _METADATA) if folder.is_dir() else ()
    return any(_written_ms(str(each)) > since_ms for each in (folder, *files))


def _written_ms(path: str) -> float:
    try:
        found = Path(path).stat()
    except OSError:
        return 0.0
    is_linked = stat.S_ISREG(found.st_mode) and found.st_nlink > 1
    return (found.st_mtime_ns if is_linked else found.st_ctime_ns) / 1e6
