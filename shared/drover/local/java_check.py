"""Checks that this machine's Java can run Spark; as a program it prints what is missing."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MINIMUM_VERSION = 17
#: Spark asks for this module at its start; cut-down runtimes lack it.
REQUIRED_MODULE = "jdk.incubator.vector"

_INSTALL = (
    f"install Java {MINIMUM_VERSION} or newer (Debian, Ubuntu: apt-get install "
    "openjdk-17-jre-headless; Fedora: dnf install java-17-openjdk-headless; macOS: brew install "
    "openjdk@17) or point JAVA_HOME at one"
)
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_TIMEOUT_S = 30


class JavaUnusableError(Exception):
    """No Java is installed that can run Spark; the message is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation that can run Spark."""

    path: Path
    version: int


def parse_version(text: str) -> int | None:
    """The feature release in the output of ``java -version``: 17 for "17.0.15", 8 for "1.8.0"."""
    match = _VERSION.search(text)
    if match is None:
        return None
    first, second = int(match[1]), match[2]
    return int(second) if first == 1 and second is not None else first


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Find the Java that Spark will use (JAVA_HOME, then PATH) and check that it can run Spark.

    Raises:
        JavaUnusableError: Java is missing, does not start, is too old, or lacks a module.
    """
    path = _locate(environ)
    version_text = _run(path, "-version")
    version = parse_version(version_text)
    if version is None:
        raise JavaUnusableError(f"cannot read the version of {path}; {_INSTALL}")
    if version < MINIMUM_VERSION:
        raise JavaUnusableError(f"{path} is Java {version}, too old for Spark; {_INSTALL}")
    modules = {line.split("@")[0].strip() for line in _run(path, "--list-modules").splitlines()}
    if REQUIRED_MODULE not in modules:
        raise JavaUnusableError(
            f"{path} is a cut-down runtime without the module {REQUIRED_MODULE}; {_INSTALL}"
        )
    return Java(path, version)


def _locate(environ: Mapping[str, str]) -> Path:
    home = environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            raise JavaUnusableError(
                f"JAVA_HOME is {home}, but {path} is not executable; {_INSTALL}"
            )
        return path
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    if found is None:
        raise JavaUnusableError(f"no Java found in JAVA_HOME or PATH; {_INSTALL}")
    return Path(found)


def _run(path: Path, argument: str) -> str:
    try:
        done = subprocess.run(
            [str(path), argument],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaUnusableError(f"{path} does not start ({error}); {_INSTALL}") from error
    output = done.stdout + done.stderr
    # Java 8 has no --list-modules; its version is checked before
    if done.returncode != 0 and argument == "-version":
        first = output.strip().splitlines()[:1]
        reason = first[0] if first else f"exit {done.returncode}"
        raise JavaUnusableError(f"{path} does not start ({reason}); {_INSTALL}")
    return output


def main() -> int:
    """Return 0 if Java can run Spark, else print one line and return 1."""
    try:
        find_java()
    except JavaUnusableError as error:
        print(f"drover: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
