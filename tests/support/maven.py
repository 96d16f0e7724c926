"""Artifacts of a pom, fetched once with mvn into a cache folder."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from drover.local.java_check import JavaUnusableError, find_java

_FETCH_TIMEOUT_S = 280
_INSTALL_MVN = "install Maven (Debian, Ubuntu: apt-get install maven; macOS: brew install maven)"


class JarsMissingError(Exception):
    """The jars are missing and cannot be fetched; the message is one line."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to fetch: mvn's goal for a pom, and the files that mark a complete folder."""

    what: str
    goal: str
    pom: Path
    sign: str


def version_in(pom: Path, name: str) -> str:
    """The property ``name``, a pinned release."""
    found = re.search(rf"<{re.escape(name)}>([^<]+)</{re.escape(name)}>", pom.read_text())
    if found is None:
        raise ValueError(f"{pom} names no <{name}>")
    return found[1]


def fetched_once(
    wanted: Wanted, name: str, environ: Mapping[str, str] = os.environ, *, cache: Path
) -> Path:
    """The cache folder with this ``name``; fills it if it is missing.

    Raises:
        JarsMissingError: There is neither the folder nor an mvn to fill it.
    """
    # a changed pom has another folder, so an existing folder is always complete
    checksum = hashlib.sha256(wanted.pom.read_bytes()).hexdigest()[:8]
    directory = cache / f"{name}-{checksum}"
    if not directory.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with _alone_in(cache):
            if not directory.is_dir():
                _fetch(wanted, environ, target=directory)
    return directory


def java_and_jars(
    wanted: Wanted, name: str, environ: Mapping[str, str] = os.environ, *, cache: Path
) -> tuple[Path, Path]:
    """A Java to run them with, and the folder of ``fetched_once``.

    Raises:
        JarsMissingError: There is no Java, or no way to the jars.
    """
    try:
        java = find_java(environ).path
    except JavaUnusableError as error:
        raise JarsMissingError(str(error)) from error
    return java, fetched_once(wanted, name, environ, cache=cache)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Admit one process at a time; others wait for the duration of a fetch."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _fetch(wanted: Wanted, environ: Mapping[str, str], *, target: Path) -> None:
    """Fetch into a temporary folder, and rename it when it is complete."""
    mvn = shutil.which("mvn", path=environ.get("PATH", os.defpath))
    if mvn is None:
        raise JarsMissingError(f"no mvn found in PATH to fetch {wanted.what} with; {_INSTALL_MVN}")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as folder:
        _run(mvn, wanted, environ, folder=Path(folder) / "files")
        (Path(folder) / "files").rename(target)


def _run(mvn: str, wanted: Wanted, environ: Mapping[str, str], *, folder: Path) -> None:
    command = [
        *(mvn, "-q", "-B", "-Dstyle.color=never", "-f", str(wanted.pom)),
        *(f"dependency:{wanted.goal}", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"),
        f"-DmarkersDirectory={folder.with_name('markers')}",  # else archives are unpacked once only
    ]
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_FETCH_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JarsMissingError(f"mvn could not fetch {wanted.what}: {error}") from error
    if done.returncode != 0 or not any(folder.glob(wanted.sign)):
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line] or [
            "no reason given"
        ]
        raise JarsMissingError(f"mvn could not fetch {wanted.what}: {errors[0][:500]}")
