"""Archives with the packages that executors on a Spark cluster need: Drover, its connectors'
libraries, and installed plugins, without pyspark, which the cluster has.

An archive is a tar.gz file for ``spark.archives``. It contains no interpreter: its ``bin/python``
runs the executor machine's Python of the same version, so both machines need the same operating
system and processor.
"""

import gzip
import importlib.metadata
import io
import os
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath

from drover.python_packages import normalised, requirements

#: The name of the archive's folder in an executor's working directory, after # in spark.archives.
ARCHIVE_NAME = "drover"
#: Where an executor finds Python with the archive's packages.
ARCHIVE_PYTHON = f"./{ARCHIVE_NAME}/bin/python"
_OWN = re.compile(r"drover[-_](connect|worker)")
_PLUGIN_GROUPS = "drover."
#: The cluster has its own, which must be of the version of its JVMs.
_OF_SPARK = frozenset({"pyspark", "py4j"})
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_SCRIPT = f"""\
#!/bin/sh
# Runs this machine's Python {_VERSION} with the packages of the archive.
here=$(CDPATH= cd "$(dirname "$0")/.." && pwd -P) || exit 1
python=${{DROVER_EXECUTOR_PYTHON:-python{_VERSION}}}
command -v "$python" > /dev/null || {{
  echo "executors need Python {_VERSION}, as the engine has, but there is no $python in PATH:" \
    "install it, or set spark.executorEnv.DROVER_EXECUTOR_PYTHON to its path" >&2
  exit 1
}}
PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}" exec "$python" "$@"
"""


@dataclass(frozen=True, slots=True)
class SparkArchive:
    """A written archive: its packages as ``name version``, and its size."""

    packages: Sequence[str]
    size_bytes: int


def write_archive(path: Path, *, import_path: Sequence[str] | None = None) -> SparkArchive:
    """Write the archive of this Python's packages; an existing file is replaced at the end.

    Args:
        path: The file to write.
        import_path: The folders with packages; None for the folders of this Python.

    Raises:
        OSError: A file cannot be read or written.
    """
    found = _needed(sys.path if import_path is None else import_path)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with (
            partial.open("xb") as file,
            # the same packages make the same file
            gzip.GzipFile("", "wb", 1, file, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            _add(archive, "bin/python", _SCRIPT.encode(), is_executable=True)
            names: set[str] = set()
            for distribution in found.values():
                for name, source in _files(distribution):
                    if name not in names:
                        names.add(name)
                        _add(archive, f"lib/{name}", source.read_bytes())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    packages = [f"{name} {each.version}" for name, each in sorted(found.items())]
    return SparkArchive(packages, path.stat().st_size)


def _needed(import_path: Sequence[str]) -> dict[str, Distribution]:
    """The distributions to pack, by name: Drover, plugins, and all requirements."""
    installed: dict[str, Distribution] = {}
    for each in importlib.metadata.distributions(path=list(import_path)):
        installed.setdefault(normalised(each.name), each)
    wanted = [(name, each) for name, each in installed.items() if _is_root(each)]
    needed: dict[str, Distribution] = {}
    extras_of: dict[str, set[str]] = {}
    while wanted:
        name, distribution = wanted.pop()
        needed[name] = distribution
        extras = extras_of.setdefault(name, set())
        # of Drover's own libraries all that are installed are packed
        counted = None if _is_own(distribution) else extras
        for required, its_extras in requirements(distribution, counted):
            if required not in installed or required in _OF_SPARK:
                continue
            known = extras_of.setdefault(required, set())
            if required not in needed or not its_extras <= known:
                known |= its_extras
                wanted.append((required, installed[required]))
    return needed


def _is_own(distribution: Distribution) -> bool:
    return _OWN.fullmatch(distribution.name.lower()) is not None


def _is_root(distribution: Distribution) -> bool:
    return _is_own(distribution) or any(
        each.group.startswith(_PLUGIN_GROUPS) for each in distribution.entry_points
    )


def _files(distribution: Distribution) -> Iterator[tuple[str, Path]]:
    """Names in the folder of packages, and their files."""
    for each in distribution.files or ():
        source = Path(str(distribution.locate_file(each)))
        if each.suffix == ".pth" and each.parent == PurePosixPath():
            yield from _edited_files(source)
        elif _is_packed(each) and source.is_file():
            yield str(each), source


def _is_packed(name: PurePosixPath) -> bool:
    # scripts are outside of the folder
    return ".." not in name.parts and "__pycache__" not in name.parts


def _edited_files(pth: Path) -> Iterator[tuple[str, Path]]:
    """The packages of an editable installation."""
    for line in pth.read_text(encoding="utf-8").splitlines():
        root = Path(line)
        if not root.is_dir():
            continue
        for package in sorted(each.parent for each in root.glob("*/__init__.py")):
            for source in sorted(package.rglob("*")):
                name = source.relative_to(root)
                if source.is_file() and "__pycache__" not in name.parts:
                    yield name.as_posix(), source


def _add(
    archive: tarfile.TarFile, name: str, content: bytes, *, is_executable: bool = False
) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o755 if is_executable or content.startswith(b"\x7fELF") else 0o644
    archive.addfile(info, io.BytesIO(content))
